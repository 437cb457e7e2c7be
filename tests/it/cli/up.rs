//! `trellis up` and the commands against it, through the binary.

use crate::support::cli::{Process, Up, command, run};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::process::Stdio;

fn json_of(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

#[test]
fn submit_wait_and_a_clean_exit_on_sigterm() {
    let mut up = Up::start();
    up.agent("helper", "echo");
    assert_eq!(up.run(&["submit", "helper", "Say hello", "--wait"]).ok(), "Say hello");
    let record = json_of(&up.run(&["submit", "helper", "again", "--wait=60s", "--output", "json"]).ok());
    assert_eq!((&record["status"], &record["output"]), (&json!("COMPLETE"), &json!("again")));
    let listed = up.run(&["job", "list", "--output", "ndjson"]).ok();
    assert_eq!(listed.lines().count(), 2);
    assert_eq!(json_of(listed.lines().next().unwrap())["input"], "again");
    assert!(up.run(&["job", "list"]).ok().contains("COMPLETE"));
    up.process.signal("TERM");
    let status = up.process.ended();
    assert_eq!(status.code(), Some(0), "{}", up.process.log());
}

#[test]
fn a_job_survives_kill_9_and_completes_on_the_same_folder() {
    let mut up = Up::start();
    // Until it is killed, no reply comes.
    up.agent("slow", "[[rule]]\nthen = { text = \"never\", fault = \"hang\" }\n");
    let job = up.run(&["submit", "slow", "it"]).ok();
    let status = |up: &Up| json_of(&up.run(&["job", "get", &job, "--output", "json"]).ok())["status"].clone();
    while status(&up) == "PENDING" {}
    let mut waiting = command(up.dir.path());
    waiting.args(["job", "wait", &job, "--url", &up.url]).stdout(Stdio::piped());
    let waiting = waiting.spawn().unwrap();
    up.process.signal("KILL");
    up.process.ended();
    up.file("slow.rules", "[[rule]]\nthen = { text = \"done {{input}}\", delay_ms = 700 }\n");
    up.start_again();
    assert!(["STARTED", "PENDING", "COMPLETE"].contains(&status(&up).as_str().unwrap()));
    assert_eq!(up.run(&["job", "wait", &job, "--timeout", "60s"]).ok(), "done it");
    // Who waited all the time has not noticed.
    let waited = waiting.wait_with_output().unwrap();
    assert_eq!((waited.status.code(), String::from_utf8_lossy(&waited.stdout).as_ref()), (Some(0), "done it\n"));
}

#[test]
fn the_second_signal_exits_at_once() {
    let mut up = Up::start();
    up.agent("never", "never");
    let job = up.run(&["submit", "never", "x"]).ok();
    while json_of(&up.run(&["job", "get", &job, "--output", "json"]).ok())["status"] == "PENDING" {}
    up.process.signal("INT");
    up.process.says("SIGINT: stopping");
    up.process.signal("INT");
    assert_eq!(up.process.ended().code(), Some(130));
}

#[test]
fn watch_shows_status_and_text_and_the_end() {
    let up = Up::start();
    let rules = "[[rule]]\nwhen = { text = \"first\" }\nthen = { fault = \"hang\" }\n\n\
                 [[rule]]\nthen = { text = \"a reply that comes in several pieces\", stream_chunk_ms = 20 }\n";
    up.file("talker.rules", rules);
    up.file("talker.toml", "concurrency = 1\nmodel = { provider = \"scripted\", name = \"talker.rules\" }");
    up.run(&["agent", "apply", "talker.toml"]).ok();
    // Nothing is said before somebody watches: the agent is busy until then.
    let first = up.run(&["submit", "talker", "first"]).ok();
    while json_of(&up.run(&["job", "get", &first, "--output", "json"]).ok())["status"] == "PENDING" {}
    let job = up.run(&["submit", "talker", "x"]).ok();
    let mut watching = command(up.dir.path());
    watching.args(["job", "watch", &job, "--url", &up.url]).stdout(Stdio::piped());
    let mut watching = watching.spawn().unwrap();
    let mut out = BufReader::new(watching.stdout.take().unwrap());
    let mut shown = String::new();
    out.read_line(&mut shown).unwrap();
    assert_eq!(shown, "PENDING\n");
    up.run(&["job", "cancel", &first]).ok();
    out.read_to_string(&mut shown).unwrap();
    assert_eq!(watching.wait().unwrap().code(), Some(0));
    assert!(shown.ends_with("COMPLETE\na reply that comes in several pieces\n"), "{shown}");
    // Once as it was written, once as the output.
    assert!(shown.matches("several").count() == 2, "{shown}");
}

#[test]
fn agents_messages_and_values_are_handled_by_commands() {
    let up = Up::start();
    up.file("agents.d", "");
    std::fs::create_dir(up.dir.path().join("team")).unwrap();
    up.file("team/a.toml", "id = \"first\"\nmodel = { provider = \"scripted\", name = \"echo\" }");
    up.file("team/b.json", r#"{"description": "two", "model": {"provider": "scripted", "name": "echo"}}"#);
    let applied = up.run(&["agent", "apply", "team"]).ok();
    assert_eq!(applied, "b created, configuration 1\nfirst created, configuration 1");
    assert!(up.run(&["agent", "apply", "team"]).ok().contains("first unchanged, configuration 1"));
    assert!(up.run(&["agent", "list"]).ok().contains("b      "));
    assert_eq!(json_of(&up.run(&["agent", "get", "b"]).ok())["config"]["description"], "two");
    up.run(&["message", "b", "note this", "--session", "s1"]).ok();
    assert_eq!(up.run(&["lattice", "write", "w/v/acme", r#"{"ok": true}"#]).ok(), "w/v/acme written");
    up.run(&["lattice", "append", "w/log", "one"]).ok();
    up.run(&["lattice", "append", "w/log", "-7"]).ok();
    assert_eq!(json_of(&up.run(&["lattice", "read", "w/log"]).ok()), json!(["one", -7]));
    assert_eq!(up.run(&["lattice", "list", "w/v"]).ok(), "acme");
    assert!(up.run(&["lattice", "inspect", "w/v", "w/log"]).ok().contains("acme"));
    up.run(&["lattice", "delete", "w/v/acme"]).ok();
    up.run(&["lattice", "read", "w/v/acme"]).expect(5, "nothing at `w/v/acme`");
    assert_eq!(up.run(&["lattice", "list", "w/v", "--owner", "other/one"]).code, 5);
}

#[test]
fn the_timeline_of_an_agent_is_read_like_any_value() {
    let up = Up::start();
    up.agent("helper", "echo");
    assert_eq!(json_of(&up.run(&["lattice", "read", "g/helper/timeline"]).ok()), json!([]));
    for text in ["one", "two"] {
        up.run(&["submit", "helper", text, "--wait", "--session", "a-b"]).ok();
    }
    let turns = json_of(&up.run(&["lattice", "read", "g/helper/timeline"]).ok());
    let shown: Vec<_> = turns.as_array().unwrap().iter().map(|t| (&t["session"], &t["said"][0]["text"])).collect();
    assert_eq!(shown, [(&json!("a-b"), &json!("one")), (&json!("a-b"), &json!("two"))]);
    assert_eq!(json_of(&up.run(&["lattice", "read", "g/helper/timeline/1/end"]).ok()), turns[1]["end"]);
    for nothing in ["g/helper/timeline/2", "g/helper/timeline/x", "g/nobody/timeline"] {
        up.run(&["lattice", "read", nothing]).expect(5, "nothing at");
    }
}

#[test]
fn input_comes_from_files_and_stdin() {
    let up = Up::start();
    up.agent("echo", "echo");
    up.file("in.json", "{\"a\": 1}\n");
    assert_eq!(json_of(&up.run(&["submit", "echo", "@in.json", "--wait"]).ok()), json!({"a": 1}));
    let mut child = command(up.dir.path())
        .args(["submit", "echo", "-", "--text", "--wait", "--url", &up.url])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"[not json").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "[not json\n");
}

#[test]
fn doctor_config_and_completions_need_no_server() {
    let mut up = Up::start();
    up.process.signal("TERM");
    up.process.ended();
    let dir = &up.dir;
    let report = json_of(&run(dir.path(), &["doctor", "--data", "data", "--output", "json"]).ok());
    let holds = report["guarantees"].as_array().unwrap().iter().all(|g| g["verdict"] == "holds");
    assert!(holds, "{report}");
    let shown = run(dir.path(), &["config", "show", "--origin", "--set", "worker.slots=3"]).ok();
    assert!(shown.lines().any(|l| l.starts_with("worker.slots = 3 ") && l.ends_with("# flag")), "{shown}");
    run(dir.path(), &["config", "check"]).expect(0, "is valid");
    assert!(run(dir.path(), &["completions", "bash"]).ok().contains("_trellis"));
}

#[test]
fn mock_llm_serves_rules_until_a_signal() {
    let dir = tempfile::tempdir().unwrap();
    let mut mock = Process::start(dir.path(), ["mock-llm", "echo", "--listen", "127.0.0.1:0"]);
    let url = mock.says(" on ").replace("/v1/", "");
    // It is a server, and none of Trellis.
    run(dir.path(), &["agent", "list", "--url", &url]).expect(8, "is no Trellis server");
    mock.signal("TERM");
    assert_eq!(mock.ended().code(), Some(0));
}

#[test]
fn edited_rules_count_from_the_next_call_on() {
    let up = Up::start();
    up.agent("clerk", "[[rule]]\nthen = { text = \"old\" }\n");
    assert_eq!(up.run(&["submit", "clerk", "x", "--wait=60s"]).ok(), "old");
    up.file("clerk.rules", "[[rule]]\nthen = { text = \"newer\" }\n");
    assert_eq!(up.run(&["submit", "clerk", "x", "--wait=60s"]).ok(), "newer");
    up.file("clerk.rules", "[[rule]]\nthan = { text = \"broken\" }\n");
    up.run(&["submit", "clerk", "x", "--wait=3s"]).expect(4, "rules file `clerk.rules`: unknown key `than`");
    up.file("clerk.rules", "[[rule]]\nthen = { text = \"mended\" }\n");
    up.run(&["agent", "resume", "clerk"]).ok();
    assert_eq!(up.run(&["submit", "clerk", "x", "--wait=60s"]).ok(), "mended");
}

#[test]
fn a_text_that_was_cut_off_is_said_to_be() {
    let up = Up::start();
    up.agent("teller", "[[rule]]\nthen = { text = \"Once upon a\", truncated = true }\n");
    let done = up.run(&["submit", "teller", "x", "--wait=60s"]).expect(0, "limit of tokens cut this text off");
    assert_eq!(done.out.trim(), "Once upon a");
    let job = up.run(&["submit", "teller", "x"]).ok();
    up.run(&["job", "wait", &job]).expect(0, "limit of tokens cut this text off");
}

#[test]
fn the_advice_for_a_missing_secret_can_be_followed() {
    let up = Up::start();
    let tool = "[[tools]]\nname = \"look\"\ndescription = \"Looks.\"\n[tools.http]\nurl = \"http://127.0.0.1:9/look\"\nheaders = { Key = \"s/KEY\" }\n";
    up.file("looker.toml", &format!("model = {{ provider = \"scripted\", name = \"echo\" }}\n{tool}"));
    let applied = up.run(&["agent", "apply", "looker.toml"]).expect(0, "trellis secret set KEY --host 127.0.0.1:9`");
    assert!(applied.err.contains("no secret `KEY`"), "{applied:?}");
    up.file("value", "long enough to be a secret");
    up.run(&["secret", "set", "KEY", "@value", "--host", "127.0.0.1:9"]).ok();
    let applied = up.run(&["agent", "apply", "looker.toml"]).expect(0, "");
    assert!(!applied.err.contains("KEY"), "{applied:?}");
}
