//! The command line: grants and buckets of a task, what is kept, and its erasure.

use crate::support::cli::Up;
use serde_json::json;

const RULES: &str = r#"
[[rule]]
when = { turn = 1, text = '"remember"' }
then = { calls = [{ tool = "memory_write", arguments = { content = "{{input.remember}}" } }] }

[[rule]]
when = { prompt = "likes tea" }
then = { text = "tea it is" }

[[rule]]
when = { prompt = "scratchpad/alpha" }
then = { text = "a bucket" }

[[rule]]
then = { text = "done" }
"#;

#[test]
fn a_user_is_remembered_and_erased_from_the_command_line() {
    let up = Up::start();
    up.file("clerk.rules", RULES);
    let memory = json!({"memory": {"mode": "read-write", "preload": "all"}});
    let config =
        json!({"model": {"provider": "scripted", "name": "clerk.rules"}, "contextWrite": true, "resources": memory});
    up.file("clerk.json", &config.to_string());
    up.run(&["agent", "apply", "clerk.json"]).ok();
    let grant = |user: &'static str| ["--grant", user, "--wait"];
    let submit = |input: &str, more: &[&str]| up.run(&[&["submit", "clerk", input], more].concat()).ok();
    submit(r#"{"remember": "likes tea"}"#, &grant("app/user/a"));
    assert!(submit("1", &grant("app/user/a")).contains("tea it is"));
    let spoken = up.run(&["submit", "clerk", "1", "--grant", "app/user/a"]).ok();
    up.run(&["job", "wait", &spoken]).ok();
    let watched = || up.run(&["job", "watch", &spoken, "--output", "ndjson"]).ok();
    assert!(watched().contains("tea it is"), "{}", watched());
    assert!(!submit("2", &grant("app/user/b")).contains("tea it is"));
    assert!(submit("3", &["--context-id", "alpha", "--wait"]).contains("a bucket"));
    let look = |more: &[&str]| up.run(&[&["context", "clerk", "--task", "7", "--prompt"], more].concat()).ok();
    assert!(look(&["--grant", "app/user/a"]).contains("- [general] likes tea"));
    assert!(look(&["--grant", "app/user/b"]).contains("Memory topics: none."));
    assert!(look(&["--context-id", "alpha"]).contains("a bucket"));
    let listed = up.run(&["resource", "list"]).ok();
    assert_eq!(listed, "alpha  scratchpad  1\napp/user/a  memory  1");
    up.run(&["resource", "purge", "app/user", "--recursive"]).expect(2, "say so with `--yes`");
    let purged = up.run(&["resource", "purge", "app/user", "--recursive", "--yes"]).ok();
    assert_eq!(purged, "files  0\nmemory  1\nscratchpad  0\nturns  5\njobs  4\ndeadLetters  0\ntimers  0");
    assert!(!watched().contains("tea it is"), "neither its record nor its stream: {}", watched());
    assert_eq!(up.run(&["resource", "list"]).ok(), "alpha  scratchpad  1");
    assert!(!submit("4", &grant("app/user/a")).contains("tea it is"));
    let bad = up.run(&["submit", "clerk", "5", "--context-id", "a b", "--wait"]);
    bad.expect(2, "`contextIds`: `a b`: whitespace in a segment is not allowed");
}
