//! A process that is killed in the middle of its tool calls, and the one that goes on after it.

use crate::support::cli::Up;
use serde_json::Value;
use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// Longest wait for what must happen.
const PATIENCE: Duration = Duration::from_mins(1);

/// A server that takes every request and answers none.
struct Silent {
    port: u16,
    seen: Receiver<String>,
}

impl Silent {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (sender, seen) = channel();
        std::thread::spawn(move || {
            let mut held = Vec::new();
            for stream in listener.incoming().map_while(Result::ok) {
                let mut stream = stream;
                let _ = sender.send(request(&mut stream));
                held.push(stream);
            }
        });
        Self { port, seen }
    }
}

/// One request, up to the length of its body.
fn request(stream: &mut TcpStream) -> String {
    let mut text = String::new();
    let mut piece = [0; 4096];
    loop {
        let read = stream.read(&mut piece).unwrap_or(0);
        text += &String::from_utf8_lossy(&piece[..read]);
        let length = text.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
        let body = text.split_once("\r\n\r\n").map(|(_, body)| body.len());
        if read == 0 || body.is_some_and(|body| body >= length.unwrap_or(0)) {
            return text;
        }
    }
}

/// `job/run` has the effect of what it runs: one that happens once is not begun again. What the
/// runtime fills in is as it was before the kill, also for calls that are made again.
#[test]
fn a_kill_during_calls_repeats_no_unrepeatable_call() {
    let silent = Silent::start();
    let hosts = format!("http_client.allow_hosts=127.0.0.1:{}", silent.port);
    let mut up = Up::start_with(&[&hosts, "http_client.allow_private=true"]);
    up.file(
        "payer.rules",
        &format!(
            r#"
[[rule]]
when = {{ agent = "payer", turn = 1 }}
then = {{ calls = [
  {{ tool = "save", arguments = {{ path = "w/evil", value = "mine" }} }},
  {{ tool = "job_run", arguments = {{ operation = "http:post", input = {{ url = "http://127.0.0.1:{}/pay", body = "mine" }} }} }},
] }}

[[rule]]
then = {{ text = "{{{{tool_result}}}}" }}
"#,
            silent.port
        ),
    );
    up.file(
        "payer.toml",
        r#"
model = { provider = "scripted", name = "payer.rules" }
defaultTools = false
tools = [{ operation = "v/ops/lattice/write", name = "save" }, "v/ops/http/post", "v/ops/job/run"]
toolArgInjection.save.path = "target"
toolArgInjection.http_post.body = "payload"
"#,
    );
    up.run(&["agent", "apply", "payer.toml"]).ok();
    let submitted =
        up.run(&["submit", "payer", "go", "--context", "target=w/good", "--context", "payload=filled in"]).ok();
    let job = submitted.lines().last().unwrap().trim().to_owned();
    let asked = silent.seen.recv_timeout(PATIENCE).expect("the payment is begun");
    assert!(asked.ends_with("filled in") && !asked.contains("mine"), "{asked}");
    up.process.signal("KILL");
    up.process.ended();
    up.start_again();
    let ended = up.run(&["job", "wait", &job, "--output", "json"]).ok();
    let ended: Value = serde_json::from_str(&ended).unwrap();
    assert!(ended.to_string().contains("outcome unknown"), "{ended}");
    assert!(silent.seen.try_recv().is_err(), "it is not begun again");
    assert_eq!(up.run(&["lattice", "read", "w/good"]).ok(), "mine");
    assert_ne!(up.run(&["lattice", "read", "w/evil"]).code, 0, "the binding wins after the kill too");
    let listed = up.run(&["job", "list", "--outcome", "unknown", "--output", "json"]).ok();
    let listed: Value = serde_json::from_str(&listed).unwrap();
    let outcome = &listed["items"][0];
    assert_eq!(
        (&listed["total"], &outcome["job"], &outcome["call"]["index"]),
        (&1.into(), &job.as_str().into(), &1.into())
    );
    let id = outcome["id"].as_str().unwrap();
    let turn = ["agent", "session", "turn"].map(|key| outcome["call"][key].to_string().replace('"', "")).join("/");
    for shown in [up.run(&["job", "list", "--outcome", "unknown"]).ok(), up.run(&["turn", "show", &turn]).ok()] {
        let made = shown.lines().find(|line| line.trim_start().starts_with("with ") && line.contains("http://"));
        assert!(made.is_some_and(|line| !line.contains("filled in")), "with what it was made, in {shown}");
    }
    assert_ne!(up.run(&["job", "settle", id]).code, 0, "done or not done");
    let settled = up.run(&["job", "settle", id, "--not-done", "--note", "no such payment"]).ok();
    assert!(settled.contains("not done, by") && settled.contains("no such payment"), "{settled}");
    assert_ne!(up.run(&["job", "settle", id, "--done", "paid"]).code, 0, "it counts once");
    assert!(!up.run(&["job", "list", "--outcome", "unknown"]).ok().contains(id), "settled");
    assert!(up.run(&["job", "list", "--outcome", "unknown", "--all"]).ok().contains(id), "kept");
    let timeline = up.run(&["lattice", "read", "g/payer/timeline"]).ok();
    assert!(timeline.contains("outcome unknown") && !timeline.contains("filled in"), "{timeline}");
}
