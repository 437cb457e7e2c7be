//! The life of agents, their sessions and lists through the binary.

use crate::support::cli::{Up, command};
use serde_json::{Value, json};
use std::io::Write;
use std::process::Stdio;

fn model(more: &str) -> String {
    format!("model = {{ provider = \"scripted\", name = \"echo\" }}\n{more}\n")
}

#[test]
fn apply_shows_what_changes_and_changes_it_once() {
    let up = Up::start();
    std::fs::create_dir(up.dir.path().join("team")).unwrap();
    up.file("team/a.toml", &model("systemPrompt = \"one\""));
    up.file("team/b.toml", &model(""));
    assert_eq!(up.run(&["agent", "apply", "team", "--dry-run"]).ok(), "a would be created\nb would be created");
    up.run(&["agent", "get", "a"]).expect(5, "no agent `a`");
    let first = up.run(&["agent", "apply", "team"]).ok();
    assert_eq!(first, "a created, configuration 1\nb created, configuration 1");
    up.file("team/a.toml", &model("systemPrompt = \"two\"\nlimits = { turns = 5 }"));
    let change = "\n  systemPrompt: \"one\" -> \"two\"\n  limits.turns: 50 -> 5\n";
    let dry = up.run(&["agent", "apply", "team", "--dry-run"]).ok();
    assert_eq!(dry, format!("a would be updated{change}b would stay unchanged"));
    let second = up.run(&["agent", "apply", "team"]).ok();
    assert_eq!(second, format!("a updated, configuration 2{change}b unchanged, configuration 1"));
    let third = up.run(&["agent", "apply", "team", "--output", "json"]).ok();
    let third: Value = serde_json::from_str(&third).unwrap();
    assert_eq!((&third["agents"][0]["result"], &third["agents"][0]["changes"]), (&json!("unchanged"), &json!([])));
    let changed = up.run(&["agent", "update", "a", "limits.turns=7", "description=x"]).ok();
    assert_eq!(changed, "a updated, configuration 3");
    assert_eq!(up.run(&["agent", "update", "a", "description=x"]).ok(), "a unchanged, configuration 3");
    let schema: Value = serde_json::from_str(&up.run(&["agent", "schema"]).ok()).unwrap();
    assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
}

#[test]
fn an_agent_is_suspended_resumed_forked_deleted_and_removed() {
    let up = Up::start();
    up.agent("a", "echo");
    assert_eq!(up.run(&["agent", "suspend", "a", "--reason", "repairs"]).ok(), "a SUSPENDED: repairs");
    assert!(up.run(&["agent", "list"]).ok().contains("SUSPENDED"));
    let job = up.run(&["submit", "a", "hello", "--session", "s1"]).ok();
    let job = job.lines().next().unwrap().split_whitespace().next().unwrap().to_owned();
    assert_eq!(up.run(&["agent", "resume", "a"]).ok(), "a SLEEPING");
    assert_eq!(up.run(&["job", "wait", &job]).ok(), "hello");
    assert_eq!(up.run(&["agent", "fork", "a", "b", "--timeline"]).ok(), "b is a fork of a");
    assert!(up.run(&["session", "list", "b"]).ok().contains("s1"));
    assert_eq!(up.run(&["agent", "delete", "a", "--yes"]).ok(), "a TERMINATED, 0 unfinished tasks cancelled");
    up.run(&["submit", "a", "x"]).expect(6, "terminated");
    assert_eq!(up.run(&["agent", "delete", "a", "--remove", "--yes"]).ok(), "a removed, 0 unfinished tasks cancelled");
    up.run(&["agent", "get", "a"]).expect(5, "no agent `a`");
}

#[test]
fn a_chat_waits_for_the_reply_and_its_session_can_be_forked() {
    let up = Up::start();
    up.agent("a", "echo");
    up.run(&["chat", "a", "one", "--session", "s"])
        .expect(5, "agent `a` has no session `s`; `trellis session list a` shows which");
    let first: Value = serde_json::from_str(&up.run(&["chat", "a", "one", "--output", "json"]).ok()).unwrap();
    let s = first["sessionId"].as_str().unwrap();
    let other: Value = serde_json::from_str(&up.run(&["chat", "a", "hello", "--output", "json"]).ok()).unwrap();
    assert!(other["sessionId"] != s, "two that name no session don't see each other's talk");
    let mut child = command(up.dir.path())
        .env("TRELLIS_URL", &up.url)
        .args(["chat", "a", "--session", s])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"two\n\nthree\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), String::from_utf8(output.stdout).unwrap()), (Some(0), "two\nthree\n".to_owned()));
    let shown = up.run(&["session", "show", "a", s]).ok();
    for part in ["message: [Message from: local/me]\n  one", "agent: one", "agent: three", "turn 3"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let page = up.run(&["session", "show", "a", s, "--limit", "2"]).ok();
    assert!(page.ends_with("… `--after 2` shows the next"), "{page}");
    assert_eq!(up.run(&["session", "fork", "a", s, "--at", "1", "--to", "branch"]).ok(), "branch");
    assert!(up.run(&["turn", "show", "a/branch/1"]).ok().contains("or a fork copied the turn"));
    up.run(&["turn", "replay", "a/branch/1"]).expect(6, "or a fork copied the turn");
    assert_eq!(up.run(&["chat", "a", "other", "--session", "branch"]).ok(), "other");
    let branch = up.run(&["session", "show", "a", "branch"]).ok();
    assert!(branch.contains("one") && branch.contains("other") && !branch.contains("two"), "{branch}");
    let turns = up.run(&["turn", "list", "a", "--session", s, "--text", "TWO", "--output", "json"]).ok();
    let turns: Value = serde_json::from_str(&turns).unwrap();
    assert_eq!((turns["turns"].as_array().unwrap().len(), &turns["turns"][0]["turn"]), (1, &json!(2)));
    up.agent("n", "never");
    up.run(&["chat", "n", "hm", "--timeout", "300ms"]).expect(4, "no reply within 300ms; the agent goes on");
}

#[test]
fn jobs_are_listed_by_their_state_agent_and_text() {
    let up = Up::start();
    up.agent("a", "echo");
    up.agent("n", "never");
    up.run(&["submit", "a", "apples", "--wait"]).ok();
    up.run(&["submit", "a", "pears", "--wait"]).ok();
    up.run(&["submit", "n", "apples"]).ok();
    let count = |args: &[&str]| {
        let args = [&["job", "list", "--output", "ndjson"], args].concat();
        up.run(&args).ok().lines().filter(|line| !line.is_empty()).count()
    };
    assert_eq!(count(&[]), 3);
    assert_eq!(count(&["--agent", "a"]), 2);
    assert_eq!(count(&["--state", "complete"]), 2);
    assert_eq!(count(&["--state", "complete,failed", "--text", "APPLES"]), 1);
    assert_eq!(count(&["--since", "1h"]), 3);
    assert_eq!(count(&["--until", "1h"]), 0);
    let page = up.run(&["job", "list", "--agent", "a", "--limit", "1"]).ok();
    let cursor = page.rsplit_once("`--cursor ").unwrap().1.split('`').next().unwrap().to_owned();
    assert_eq!(count(&["--agent", "a", "--cursor", &cursor]), 1);
}

#[test]
fn bad_input_is_refused_with_what_to_do() {
    let up = Up::start();
    up.agent("a", "echo");
    let job = up.run(&["submit", "a", "hello", "--session", "main", "--wait"]).ok();
    assert_eq!(job, "hello");
    for (args, code, part) in [
        (&["agent", "suspend", "gone"][..], 5, "no agent `gone`"),
        (&["agent", "update", "a", "systemPromt=x"], 2, "did you mean `systemPrompt`"),
        (&["agent", "update", "a", "model.nme=x"], 2, "unknown field `nme`"),
        (&["agent", "update", "a", "mailbox=5", "--expect", "9"], 6, "has version 1, expected 9"),
        (&["agent", "update", "a"], 2, "KEY=VALUE"),
        (&["agent", "fork", "a", "a"], 6, "agent `a` exists"),
        (&["agent", "fork", "a", "b", "--timeline", "--overwrite"], 2, "cannot be used with"),
        (&["agent", "delete", "gone", "--remove", "--yes"], 5, "no agent `gone`"),
        (&["session", "fork", "a", "main", "--at", "99"], 5, "has no turn 99: its newest is 1"),
        (&["session", "fork", "a", "main", "--at", "0"], 2, "less than the minimum"),
        (&["session", "fork", "a", "main", "--at", "1", "--to", "main"], 6, "session `a/main` exists"),
        (&["session", "show", "a", "none"], 5, "no session `a/none`"),
        (&["session", "list", "gone"], 5, "no agent `gone`"),
        (&["job", "list", "--state", "done"], 2, "COMPLETE"),
        (&["job", "list", "--since", "yesterday"], 2, "how long ago"),
        (&["job", "list", "--cursor", "x"], 2, "expected the `next` of a page"),
        (&["job", "list", "--agent", "a", "--offset", "5"], 2, "goes on with `cursor`"),
        (&["turn", "list", "a", "--state", "done"], 2, "COMPLETE"),
        (&["chat", "gone", "hello"], 5, "no agent `gone`"),
        (&["chat", "a", "@missing.txt"], 2, "can't be read"),
    ] {
        let done = up.run(args);
        assert!(done.code == code && done.err.contains(part), "{args:?}: expected {code} and `{part}`, got {done:#?}");
    }
}
