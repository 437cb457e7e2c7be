//! `trellis secret` by hand: what it does, and ten things that it refuses.

use crate::support::cli::{Done, Up, command, run};
use std::io::Write;
use std::process::Stdio;

/// A command to a server with text on its stdin.
fn with_input(up: &Up, args: &[&str], text: &str) -> Done {
    let mut command = command(up.dir.path());
    command.env("TRELLIS_URL", &up.url).args(args);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // A command that refuses its arguments doesn't read.
    let _ = child.stdin.take().unwrap().write_all(text.as_bytes());
    let output = child.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Done { code: output.status.code().unwrap_or(-1), out: text(output.stdout), err: text(output.stderr) }
}

#[test]
fn a_secret_is_set_from_stdin_or_a_file_listed_and_deleted() {
    let up = Up::start();
    assert!(up.process.log().contains("made the key file `data/secrets.key`"), "{}", up.process.log());
    let set = with_input(&up, &["secret", "set", "KEY", "--host", "api.example.com"], "planted-value\n").ok();
    assert_eq!(set, "secret KEY stored, version 1, for api.example.com");
    up.file("value", "planted-other\r\n");
    let set = ["secret", "set", "KEY", "@value", "--overwrite", "--host", "a.b:8080", "--host", "*.example.com"];
    assert_eq!(up.run(&set).ok(), "secret KEY stored, version 2, for a.b:8080, *.example.com");
    let bare = with_input(&up, &["secret", "set", "BARE"], "planted-value").expect(0, "it may go to no host yet");
    assert!(!bare.err.contains("planted"));
    assert_eq!(
        up.run(&["secret", "list"]).ok(),
        "BARE  version 1  for no host\nKEY  version 2  for a.b:8080, *.example.com"
    );
    assert_eq!(up.run(&["secret", "delete", "BARE"]).ok(), "secret BARE deleted");
    let json = up.run(&["secret", "list", "--output", "json"]).ok();
    assert!(json.contains("\"KEY\"") && !json.contains("planted"), "{json}");
}

#[test]
fn bad_input_is_refused_with_what_to_do_and_never_shown() {
    let up = Up::start();
    with_input(&up, &["secret", "set", "KEY"], "planted-value").ok();
    for (args, input, code, err) in [
        (&["secret", "set", "KEY", "planted-value"][..], "", 2, "expected `-` (stdin) or `@file`"),
        (
            &["secret", "set", "KEY"],
            "planted-value",
            6,
            "secret `KEY` exists; `overwrite` replaces it; pass `--overwrite`",
        ),
        (&["secret", "set", "a b"], "planted-value", 2, "illegal secret name `a b`"),
        (&["secret", "set", "NEW"], "planted", 2, "stdin has 7 bytes, expected at least 8"),
        (&["secret", "set", "NEW"], "", 2, "stdin has 0 bytes, expected at least 8"),
        (&["secret", "set", "NEW", "@none"], "", 2, "file `none` can't be read"),
        (&["secret", "set", "NEW", "--host", "*"], "planted-value", 2, "`*` is no binding"),
        (&["secret", "set", "NEW", "--host", "https://a.b"], "planted-value", 2, "expected hosts such as"),
        (&["secret", "delete", "NONE"], "", 5, "no secret `NONE`"),
        (&["secret", "get", "KEY"], "", 2, "unrecognized subcommand 'get'"),
        (&["lattice", "read", "s/KEY"], "", 7, "a secret's value is shown to nobody"),
        (&["secret", "list", "--owner", "_venue/_venue"], "", 7, "is the venue's own"),
    ] {
        let done = with_input(&up, args, input).expect(code, err);
        assert!(done.out.is_empty() && !done.err.contains("planted"), "{args:?}: {done:?}");
    }
    let huge = "x".repeat(70_000);
    with_input(&up, &["secret", "set", "NEW"], &huge).expect(2, "at most 65536 bytes, got 70000");
}

#[test]
fn keys_are_made_added_and_changed() {
    let mut up = Up::start();
    with_input(&up, &["secret", "set", "KEY"], "planted-value").ok();
    let dir = up.dir.path().to_owned();
    run(&dir, &["secret", "rotate", "--set", "store.url=embedded:data"]).expect(8, "holds the folder");
    up.process.signal("TERM");
    up.process.ended();
    let rotate = ["secret", "rotate", "--set", "store.url=embedded:data"];
    assert_eq!(run(&dir, &rotate).ok(), "owners = 1\nrotated = 0\nalready = 1\nfailed = 0");
    run(&dir, &["secret", "keygen", "data/secrets.key"]).expect(6, "`--add` puts a new key before");
    run(&dir, &["secret", "keygen", "data/secrets.key", "--add"]).ok();
    assert_eq!(run(&dir, &rotate).ok(), "owners = 1\nrotated = 1\nalready = 0\nfailed = 0");
    let printed = run(&dir, &["secret", "keygen"]).ok();
    std::fs::write(dir.join("other.key"), &printed).unwrap();
    let other = [&rotate[..], &["--set", "secrets.key_file=other.key"]].concat();
    run(&dir, &other).expect(2, "key file `other.key` can be read by others");
    run(&dir, &["secret", "keygen", "own.key"]).ok();
    let own = [&rotate[..], &["--set", "secrets.key_file=own.key"]].concat();
    let lost = run(&dir, &own).expect(1, "local/me: secret `KEY` can't be opened: it is sealed with key `");
    assert!(lost.out.contains("failed = 1"), "{lost:?}");
    let none = [&rotate[..], &["--set", "secrets.key_file=none.key"]].concat();
    run(&dir, &none).expect(2, "key file `none.key` can't be read");
    std::fs::write(dir.join("own.key"), "planted").unwrap();
    let bad = run(&dir, &own).expect(2, "key 1 is not a key");
    assert!(!bad.err.contains("planted"));
    let start = ["up", "--data", "data", "--listen", "127.0.0.1:0", "--set", "secrets.key_file=own.key"];
    run(&dir, &start).expect(2, "key file `own.key`: key 1 is not a key");
}
