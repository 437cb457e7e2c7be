//! With `--output json` every command's errors are JSON: one document on stderr, with the exit code in it.

use super::wrong_input::leaves;
use crate::support::cli::{Done, Up, command};
use serde_json::Value;

const JOB: &str = "00000000000000000000000000000000";

/// A call of each command that fails, with its exit code.
const WRONG: &[(&str, i32)] = &[
    ("agent apply bad.yaml", 2),
    ("agent apply none.toml", 2),
    ("agent get nobody", 5),
    ("agent list --limit x", 2),
    ("agent schema --no-such", 2),
    ("agent update nobody concurrency=2", 5),
    ("agent suspend nobody", 5),
    ("agent resume nobody", 5),
    ("agent fork nobody b", 5),
    ("agent delete nobody --yes", 5),
    ("open nowhere", 2),
    ("submit nobody x", 5),
    ("submit faulty x --wait", 3),
    ("submit never x --wait=300ms", 4),
    ("message nobody x", 5),
    ("chat nobody hi", 5),
    ("job list --agent a/b", 2),
    ("job get JOB", 5),
    ("job wait JOB", 5),
    ("job watch JOB", 5),
    ("job cancel JOB", 5),
    ("job pause JOB", 5),
    ("job resume JOB", 5),
    ("job message JOB x", 5),
    ("job settle JOB --not-done", 5),
    ("session list nobody", 5),
    ("session show never none", 5),
    ("session fork never none --at 1", 5),
    ("turn list nobody", 5),
    ("turn show never/none/1", 5),
    ("turn diff never/none/1 never/none/2", 5),
    ("turn replay never/none/1", 5),
    ("context nobody", 5),
    ("why q/x", 2),
    ("lattice write g/never 1", 2),
    ("lattice read w/none", 5),
    ("lattice list q/x", 2),
    ("secret set K", 2),
    ("secret list --no-such", 2),
    ("secret delete K", 5),
    ("secret keygen --no-such", 2),
    ("secret rotate --set worker.slotz=3", 2),
    ("webhook set h http://127.0.0.1:9/ --secret s/NONE", 7),
    ("webhook list --no-such", 2),
    ("webhook delete a/b", 2),
    ("webhook try none", 5),
    ("spend --no-such", 2),
    ("quota --no-such", 2),
    ("approvals --no-such", 2),
    ("approve abc", 2),
    ("reject JOB", 5),
    ("answer JOB a=b", 5),
    ("dead list --limit x", 2),
    ("dead show JOB", 5),
    ("dead redrive JOB", 5),
    ("timer set nobody x --in soon", 2),
    ("timer list --agent a/b", 2),
    ("timer cancel JOB", 5),
    ("policy show --no-such", 2),
    ("policy revoke", 2),
    ("policy restore none", 5),
    ("policy roots xyz", 2),
    ("policy approvals [1]", 2),
    ("resource list --no-such", 2),
    ("resource purge app/x", 2),
    ("tool import none.json", 2),
    ("tool try none", 5),
    ("token keygen", 2),
    ("token issue --key none.key", 2),
    ("token show x", 2),
    ("doctor --set worker.slotz=3", 2),
    ("ready --url http://127.0.0.1:1", 8),
    ("audit --set worker.slotz=3", 2),
    ("backup nightly --set store.url=embedded:none", 5),
    ("bench turns --set worker.slotz=3", 2),
    ("config show --set worker.slotz=3", 2),
    ("config check --set worker.slotz=3", 2),
    ("model try nothing/none", 8),
    ("model providers --no-such", 2),
    ("mock-llm none.toml", 2),
    ("mcp --no-such", 2),
    ("a2a --no-such", 2),
    ("completions elvis", 2),
    ("demo --no-such", 2),
    ("up --set worker.slotz=3", 2),
    ("worker", 2),
    ("worker list --set worker.slotz=3", 2),
    ("worker drain nobody", 5),
    ("serve --listen 127.0.0.1:0", 2),
];

/// The one document on stderr of a command that failed.
fn error_of(line: &str, done: &Done) -> Value {
    serde_json::from_str(&done.err).unwrap_or_else(|error| panic!("{line}: {error}: {done:?}"))
}

#[test]
fn errors_of_every_command_are_one_json_document() {
    let up = Up::start();
    up.file("bad.yaml", "model: scripted/echo\nsystemPromt: x\n");
    up.agent("never", "never");
    up.agent("faulty", "[[rule]]\nthen = { text = \"x\", fault = \"bad_request\" }\n");
    let mut wrong = Vec::new();
    for (line, code) in WRONG {
        let line = line.replace("JOB", JOB);
        let mut call = command(up.dir.path());
        call.args(line.split(' ')).args(["--output", "json"]);
        if !line.starts_with("worker") && !line.starts_with("serve") {
            call.env("TRELLIS_URL", &up.url);
        }
        let output = call.output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        let done =
            Done { code: output.status.code().unwrap_or(-1), out: text(output.stdout), err: text(output.stderr) };
        match serde_json::from_str::<Value>(&done.err) {
            Ok(error) if error["exit"] == *code && done.code == *code && error["error"].is_string() => {}
            _ => wrong.push(format!("{line}: expected {code}, got {done:?}")),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let has_row = |leaf: &String| WRONG.iter().any(|(line, _)| line == leaf || line.starts_with(&format!("{leaf} ")));
    for leaf in leaves(up.dir.path()).iter().filter(|leaf| !has_row(leaf)) {
        let args: Vec<&str> = leaf.split(' ').chain(["--no-such-option", "--output=json"]).collect();
        let done = up.run(&args);
        let error = error_of(leaf, &done);
        assert_eq!((done.code, &error["exit"]), (2, &2.into()), "{leaf}: {error}");
    }
}

#[test]
fn several_errors_are_lines_of_one_text() {
    let up = Up::start();
    for name in ["a.yaml", "b.yaml"] {
        up.file(name, "model: scripted/echo\nsystemPromt: x\n");
    }
    let done = up.run(&["agent", "apply", "a.yaml", "b.yaml", "--output", "json"]);
    let error = error_of("agent apply", &done);
    let text = error["error"].as_str().unwrap();
    assert!(text.contains("`a.yaml`") && text.contains("\n`b.yaml`") && !text.contains("error: "), "{text}");
}
