//! Environment variables that are set to nothing, as `TRELLIS_TOKEN= trellis …` and compose files do, and empty tokens.

use crate::support::cli::{Done, Up, command, run};
use std::path::Path;

const VARIABLES: [&str; 6] =
    ["TRELLIS_URL", "TRELLIS_OWNER", "TRELLIS_TOKEN", "TRELLIS_TOKEN_FILE", "TRELLIS_NATS", "TRELLIS_CONFIG"];

/// Runs a command with every variable of the command line set to nothing.
fn run_with_empty_variables(dir: &Path, args: &[&str]) -> Done {
    let output = command(dir).args(args).envs(VARIABLES.map(|name| (name, ""))).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Done { code: output.status.code().unwrap_or(-1), out: text(output.stdout), err: text(output.stderr) }
}

#[test]
fn an_empty_variable_counts_as_not_set() {
    let up = Up::start();
    up.agent("echo", "echo");
    up.file("token.txt", "some.token.here\n");
    for args in [
        &["agent", "list"][..],
        &["submit", "echo", "hi", "--wait"],
        &["agent", "list", "--token-file", "token.txt"],
        &["agent", "list", "--owner", "local/me"],
        &["doctor"],
        &["ready"],
    ] {
        let args = [args, &["--url", &up.url]].concat();
        let done = run_with_empty_variables(up.dir.path(), &args);
        assert_eq!(done.code, 0, "{args:?}: {done:?}");
    }
    // Without `--url` the default is asked, whoever listens there.
    let done = run_with_empty_variables(up.dir.path(), &["agent", "list"]);
    assert_ne!(done.code, 2, "{done:?}");
}

#[test]
fn an_empty_token_is_refused_with_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("token.txt"), " \n").unwrap();
    for (args, place) in [
        (["--token-file", "token.txt"], "the token file `token.txt` is empty"),
        (["--token", ""], "the token of `--token` or TRELLIS_TOKEN is empty"),
    ] {
        for command in [&["agent", "list"][..], &["job", "list"], &["submit", "a", "x", "--nats", "nats://127.0.0.1:1"]]
        {
            let done = run(dir.path(), &[command, &args].concat()).expect(2, place);
            assert!(done.err.contains("`trellis token issue` prints a token"), "{done:?}");
        }
    }
}
