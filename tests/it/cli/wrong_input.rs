//! What the command line says of wrong input, of programs that are no venue, and of servers that are away.

use crate::support::cli::{Up, command, run};
use crate::support::port;
use serde_json::Value;
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;

/// A program that answers every request with JSON, as long as the test runs.
fn stranger() -> String {
    const ANSWER: &str = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 13\r\nconnection: close\r\n\r\n{\"agents\":[]}";
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let mut request = [0; 8192];
            let _ = stream.read(&mut request);
            let _ = stream.write_all(ANSWER.as_bytes());
        }
    });
    url
}

/// Subcommands of a command, by its help.
fn subcommands(dir: &Path, command: &[&str]) -> Vec<String> {
    let help = run(dir, &[command, &["--help"]].concat()).ok();
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| line.starts_with("  "));
    // Behind two spaces stands a name; what is further in goes on with a text.
    let names = listed.filter(|line| !line.starts_with("   ")).filter_map(|line| line.split_whitespace().next());
    names.filter(|name| *name != "help").map(str::to_owned).collect()
}

/// Every command that has no subcommands, `agent apply` and the like.
pub(crate) fn leaves(dir: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for noun in subcommands(dir, &[]) {
        let verbs = subcommands(dir, &[&noun]);
        found.extend(verbs.iter().map(|verb| format!("{noun} {verb}")));
        if verbs.is_empty() || noun == "worker" {
            found.insert(noun);
        }
    }
    found
}

/// A call of each command, in an order in which each has what it needs; with its exit code.
const CALLS: &[(&str, i32)] = &[
    ("agent apply a.toml", 0),
    ("agent get a", 0),
    ("agent list", 0),
    ("agent schema", 0),
    ("agent update a.toml", 2),
    ("agent suspend a", 0),
    ("agent resume a", 0),
    ("agent fork a b", 0),
    ("submit a hello --wait --session s", 0),
    ("message a note --session s", 0),
    ("chat a hi --session s", 0),
    ("open --print", 0),
    ("job list", 0),
    ("job get 00000000000000000000000000000000", 5),
    ("job wait 00000000000000000000000000000000", 5),
    ("job watch 00000000000000000000000000000000", 5),
    ("job cancel 00000000000000000000000000000000", 5),
    ("session list a", 0),
    ("session show a s", 0),
    ("session fork a s --at 1", 0),
    ("turn list a", 0),
    ("turn show a/s/1", 0),
    ("turn diff a/s/1 a/s/1", 0),
    ("turn replay a/s/1", 0),
    ("context a", 0),
    ("why w/x", 0),
    ("lattice write w/x 1", 0),
    ("lattice read w/x", 0),
    ("lattice list", 0),
    ("secret list", 0),
    ("secret set K", 2),
    ("secret delete K", 5),
    ("secret keygen", 0),
    ("webhook set h http://127.0.0.1:9/ --secret s/NONE", 7),
    ("webhook list", 0),
    ("webhook delete none", 0),
    ("webhook try none", 5),
    ("spend", 0),
    ("approvals", 0),
    ("approve 00000000000000000000000000000000", 5),
    ("reject 00000000000000000000000000000000", 5),
    ("answer 00000000000000000000000000000000 a=b", 5),
    ("dead list", 0),
    ("timer list", 0),
    ("tool import none.json", 2),
    ("tool try none", 5),
    ("policy show", 0),
    ("policy roots null", 0),
    ("policy approvals []", 0),
    ("resource list", 0),
    ("doctor", 0),
    ("ready", 0),
    ("audit", 0),
    ("worker list", 0),
    ("config show", 0),
    ("config check", 0),
    ("completions bash", 0),
    // Its stdin is empty.
    ("mcp", 0),
    ("a2a agents", 0),
    ("agent delete a --yes", 0),
];

/// Those that need more than a call, or run for long; tests of their own call them with a configuration.
const ELSEWHERE: &[&str] = &["demo", "up", "worker", "serve", "mock-llm", "backup"];

#[test]
fn every_command_runs_with_a_config_file_in_the_environment() {
    let up = Up::start();
    up.file("a.toml", "model = { provider = \"scripted\", name = \"echo\" }");
    up.file("trellis.toml", "[http]\nbody_limit = 900000\n");
    let with_file = |line: &str| {
        let mut call = command(up.dir.path());
        call.env("TRELLIS_URL", &up.url).env("TRELLIS_CONFIG", up.dir.path().join("trellis.toml"));
        call.args(line.split(' ')).output().unwrap()
    };
    let mut run = BTreeSet::new();
    for (line, code) in CALLS {
        let done = with_file(line);
        let said = format!("{}{}", String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
        assert_eq!(done.status.code(), Some(*code), "{line}: {said}");
        run.insert((*line).to_owned());
    }
    for leaf in leaves(up.dir.path()).iter().filter(|leaf| !ELSEWHERE.contains(&leaf.as_str())) {
        if run.iter().any(|line| line == leaf || line.starts_with(&format!("{leaf} "))) {
            continue;
        }
        // What has no call of its own is parsed, at least.
        let done = with_file(&format!("{leaf} --help"));
        assert!(done.status.success(), "{leaf}");
    }
}

#[test]
fn doctor_checks_the_configured_servers_not_the_client_url() {
    let dir = tempfile::tempdir().unwrap();
    let [redis, nats] = ["redis", "nats"].map(|kind| format!("{kind}://127.0.0.1:{}", port::lasting()));
    let mut doctor = command(dir.path());
    doctor.env("TRELLIS_URL", format!("http://127.0.0.1:{}", port::lasting()));
    doctor.args(["doctor", "--set", &format!("store.url={redis}"), "--set", &format!("bus.url={nats}")]);
    let done = doctor.output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.code(), Some(8), "{said}");
    // Both at once, each with what to do.
    assert!(said.contains(&redis) && said.contains(&nats), "{said}");
    assert!(said.contains("start the server, or set `store.url`") && said.contains("or set `bus.url`"), "{said}");
    assert!(!said.contains("trellis up"), "{said}");
}

#[test]
fn a_server_that_is_no_venue_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let url = stranger();
    for args in [&["agent", "list"][..], &["job", "list"], &["ready"], &["lattice", "list"], &["doctor"]] {
        let args: Vec<_> = args.iter().copied().chain(["--url", &url]).collect();
        run(dir.path(), &args).expect(8, &format!("what answers at `{url}` is no Trellis server"));
    }
}

#[test]
fn wrong_addresses_name_the_right_ones() {
    let up = Up::start();
    let address = up.url.trim_start_matches("http://");
    up.run(&["agent", "list", "--url", address]).expect(2, &format!("before it: `http://{address}`"));
    let encrypted = format!("https://{address}");
    up.run(&["agent", "list", "--url", &encrypted]).expect(8, &format!("its address may be `{}`", up.url));
}

#[test]
fn an_empty_list_without_a_head_prints_nothing() {
    let up = Up::start();
    for (args, note) in [
        (&["approvals"][..], "nothing waits for a person"),
        (&["job", "list", "--outcome", "unknown"], "no call has an unknown outcome"),
        (&["resource", "list"], "nothing is kept there"),
    ] {
        let done = up.run(args).expect(0, note);
        assert_eq!(done.out, "", "{args:?}");
    }
}

#[test]
fn wrong_arguments_are_told_in_the_words_of_the_command() {
    let up = Up::start();
    up.agent("a", "echo");
    for (args, code, err) in [
        (&["approve", "abc"][..], 2, "`abc` is no id of an approval"),
        (&["secret", "set", "K"], 2, "no value for secret `K`: stdin has 0 bytes, expected at least 8"),
        (&["policy", "roots", "xyz"], 2, "expected a JSON list of `{with, can}`"),
        (&["policy", "roots", "{\"with\": \"w\"}"], 2, "or `null` for no limit"),
        (&["policy", "approvals", "[1]"], 2, "expected a JSON list of `{with, can}`"),
        (&["policy", "roots", "[{"], 2, "malformed JSON in the argument: EOF"),
        (&["chat", "a", "hi", "--session", "none"], 5, "agent `a` has no session `none`; `trellis session list a`"),
        (&["context", "a", "--grant", "app/user/u"], 2, "--task <INPUT>"),
        (&["context", "a", "--context-id", "shared"], 2, "--task <INPUT>"),
        (&["agent", "delete", "a"], 2, "agent `a` would be ended for good"),
        (&["agent", "delete", "a"], 2, "nobody is there to ask: `--yes` does it"),
        (&["agent", "delete", "nope"], 5, "no agent `nope`; `trellis agent list` shows which there are"),
        (&["timer", "set", "nope", "x", "--after", "1h"], 5, "no agent `nope`; `trellis agent list` shows which"),
        (&["job", "list", "--limit", "0"], 2, "--limit"),
        (&["turn", "list", "a", "--limit", "0"], 2, "--limit"),
        (&["dead", "list", "--limit", "0"], 2, "--limit"),
        (&["dead", "redrive", "--code", "MODEL_ERORR"], 2, "did you mean `MODEL_ERROR`"),
    ] {
        let done = up.run(args).expect(code, err);
        assert!(!done.err.contains("v/ops/"), "{}", done.err);
    }
    up.run(&["agent", "get", "a"]).ok();
}

#[test]
fn errors_are_json_where_the_data_is() {
    let up = Up::start();
    let job = "0".repeat(32);
    for args in [&["job", "get", &job, "--output", "json"][..], &["job", "get", "x", "--output=json"]] {
        let done = up.run(args);
        let error: Value = serde_json::from_str(&done.err).unwrap_or_else(|_| panic!("{}", done.err));
        assert_eq!(error["exit"], done.code);
        assert!(error["error"].is_string() && done.out.is_empty(), "{error}");
    }
}

#[test]
fn a_taken_port_leaves_no_folder() {
    let up = Up::start();
    let address = up.url.trim_start_matches("http://");
    run(up.dir.path(), &["up", "--data", "other", "--listen", address]).expect(6, "can't listen on");
    assert!(!up.dir.path().join("other").exists());
}

#[test]
fn a_wrong_file_names_line_and_column() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
    let model = "model = { provider = \"scripted\", name = \"echo\" }\n";
    file("key.toml", &format!("{model}\nsystemPromt = \"x\"\n"));
    file("kind.toml", &format!("{model}\n  concurrency = \"many\"\n"));
    file("key.json", "{\n  \"model\": \"scripted/echo\",\n  \"systemPromt\": 1\n}");
    file("key.yaml", "model: scripted/echo\nlimits:\n  turns: 3\n  turnz: 4\n");
    file("kind.yml", "model: scripted/echo\n\nconcurrency: many\n");
    file("syntax.yaml", "model: scripted/echo\ntools: [a\nbudget: }\n");
    file("twice.yaml", "model: scripted/echo\nmodel: scripted/never\n");
    file("id.yaml", "model: scripted/echo\nid: 3\n");
    file("key.rules", "[[rule]]\nthen = { text = \"x\", tims = 1 }\n");
    file("fleet.toml", "[worker]\nslots = 1\nslotz = 3\n[http]\nbody_limit = \"big\"\n");
    for (args, err) in [
        (&["agent", "apply", "key.toml"][..], "did you mean `systemPrompt` (line 3, column 1)"),
        (&["agent", "apply", "kind.toml"], "(line 3, column 3)"),
        (&["agent", "apply", "key.json"], "(line 3, column 3)"),
        (&["agent", "apply", "key.yaml"], "`key.yaml`: "),
        (&["agent", "apply", "key.yaml"], "did you mean `turns`"),
        (&["agent", "apply", "key.yaml"], "(line 4, column 3)"),
        (&["agent", "apply", "kind.yml"], "(line 3, column 1)"),
        (&["agent", "apply", "syntax.yaml"], "`syntax.yaml`: malformed YAML: "),
        (&["agent", "apply", "syntax.yaml"], "at line "),
        (&["agent", "apply", "twice.yaml"], "duplicate mapping key: model at line 2, column 1"),
        (&["agent", "apply", "id.yaml"], "`id`: expected text, got `3` (line 2, column 1)"),
        (&["mock-llm", "key.rules"], "did you mean `times` (line 2, column 22)"),
        (&["config", "check", "--config", "fleet.toml"], "did you mean `worker.slots`? (line 3, column 1)"),
        (&["config", "check", "--config", "fleet.toml"], "(line 5, column 1)"),
    ] {
        run(dir.path(), args).expect(2, err);
    }
}

#[test]
fn a_rules_file_with_a_misspelt_key_is_refused_at_the_start() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("bad.rules"), "[[rule]]\nwen = {}\nthen = { text = \"x\" }\n").unwrap();
    let up = ["up", "--data", "data", "--listen", "127.0.0.1:0", "--set", "models.scripted=bad.rules"];
    let said = "unknown key `wen` in rule 1, did you mean `when` (line 2, column 1)";
    run(dir.path(), &up).expect(2, said).expect(2, "rules file `bad.rules`");
    std::fs::write(dir.path().join("agent.toml"), "model = \"scripted/bad.rules\"\n").unwrap();
    let folder = up.map(|argument| argument.replace("=bad.rules", "=."));
    let folder: Vec<&str> = folder.iter().map(String::as_str).collect();
    run(dir.path(), &folder).expect(2, said).expect(2, "bad.rules`");
    assert!(!dir.path().join("data").exists());
}
