//! `trellis mcp`: the same server on stdin and stdout.

use super::stateless_request;
use crate::support::cli::{Up, command};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

struct Pipe {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Pipe {
    fn open(up: &Up, url: &str) -> Self {
        let mut command = command(up.dir.path());
        command.args(["mcp", "--url", url]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let (input, output) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, input, output }
    }

    fn send(&mut self, line: &str) {
        writeln!(self.input.as_mut().unwrap(), "{line}").unwrap();
    }

    fn next(&mut self) -> Value {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
    }

    fn ask(&mut self, message: &Value) -> Value {
        self.send(&message.to_string());
        self.next()
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn published(up: &Up) {
    up.file("echo.toml", "published = true\nmodel = { provider = \"scripted\", name = \"echo\" }\n");
    up.run(&["agent", "apply", "echo.toml"]).ok();
    up.file("never.toml", "published = true\nmodel = { provider = \"scripted\", name = \"never\" }\n");
    up.run(&["agent", "apply", "never.toml"]).ok();
}

#[test]
fn both_revisions_pass_through_stdin_and_stdout() {
    let up = Up::start();
    published(&up);
    let mut pipe = Pipe::open(&up, &up.url);
    let discovered = pipe.ask(&stateless_request("server/discover", json!({}), &json!({})).1);
    assert_eq!(discovered["result"]["supportedVersions"][0], "2026-07-28", "{discovered}");
    let call = json!({"name": "ask_echo", "arguments": {"input": "höre"}});
    let called = pipe.ask(&stateless_request("tools/call", call.clone(), &json!({})).1);
    assert_eq!(called["result"]["structuredContent"]["output"], "höre", "{called}");
    let initialize =
        json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
    let agreed = pipe.ask(&json!({"jsonrpc": "2.0", "id": "i", "method": "initialize", "params": initialize}));
    assert_eq!(agreed["result"]["protocolVersion"], "2025-11-25", "{agreed}");
    pipe.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}).to_string());
    let called = pipe.ask(&json!({"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": call}));
    assert_eq!((&called["id"], &called["result"]["structuredContent"]["output"]), (&json!(5), &json!("höre")));
    let malformed = pipe.ask(&json!({"jsonrpc": "2.0", "id": 6, "method": "nothing"}));
    assert_eq!(malformed["error"]["code"], -32601);
    pipe.send("no json");
    assert_eq!(pipe.next()["error"]["code"], -32700);
    drop(pipe.input.take());
    assert!(pipe.child.wait().unwrap().success(), "it ends with its stdin");
}

#[test]
fn a_cancelled_request_makes_room_and_is_not_answered() {
    let up = Up::start();
    published(&up);
    let mut pipe = Pipe::open(&up, &up.url);
    let call = json!({"name": "ask_never", "arguments": {"input": "x"}});
    let mut long = stateless_request("tools/call", call, &json!({})).1;
    long["id"] = json!("long");
    pipe.send(&long.to_string());
    // Other requests are answered meanwhile.
    let listed = pipe.ask(&stateless_request("tools/list", json!({}), &json!({})).1);
    assert!(listed["result"]["tools"].is_array(), "{listed}");
    pipe.send(
        &json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "long"}}).to_string(),
    );
    let again = pipe.ask(&stateless_request("tools/list", json!({}), &json!({})).1);
    assert_eq!(again["id"], 1);
    drop(pipe.input.take());
    assert!(pipe.child.wait().unwrap().success());
}

#[test]
fn a_line_that_is_too_long_is_skipped() {
    let up = Up::start();
    let mut pipe = Pipe::open(&up, &up.url);
    pipe.send(&"x".repeat((1 << 20) + 100));
    let refused = pipe.next();
    assert_eq!((&refused["error"]["code"], refused.get("id")), (&json!(-32600), None), "{refused}");
    assert_eq!(pipe.ask(&json!({"jsonrpc": "2.0", "id": 2, "method": "ping"}))["result"], json!({}));
    // An id that the venue doesn't repeat.
    let id = "x".repeat(300);
    let refused = pipe.ask(&json!({"jsonrpc": "2.0", "id": id, "method": "ping"}));
    assert_eq!((&refused["error"]["code"], &refused["id"]), (&json!(-32600), &json!(id)), "{refused}");
}

#[test]
fn one_request_too_many_is_refused_until_one_is_cancelled() {
    let up = Up::start();
    published(&up);
    let mut pipe = Pipe::open(&up, &up.url);
    let call = json!({"name": "ask_never", "arguments": {"input": "x"}});
    let mut long = stateless_request("tools/call", call, &json!({})).1;
    for at in 0..64 {
        long["id"] = json!(format!("long-{at}"));
        pipe.send(&long.to_string());
    }
    let list = stateless_request("tools/list", json!({}), &json!({})).1;
    let refused = pipe.ask(&list);
    assert!(refused["error"]["message"].as_str().unwrap().contains("64 requests run at once"), "{refused}");
    pipe.send(
        &json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "long-7"}}).to_string(),
    );
    let is_answered = (0..100).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(20));
        pipe.ask(&list)["result"]["tools"].is_array()
    });
    assert!(is_answered, "a cancellation makes room");
}

#[test]
fn a_request_to_a_venue_that_is_away_has_an_answer() {
    let up = Up::start();
    let mut pipe = Pipe::open(&up, &format!("http://127.0.0.1:{}", crate::support::port::lasting()));
    let refused = pipe.ask(&json!({"jsonrpc": "2.0", "id": 1, "method": "ping"}));
    assert!(refused["error"]["message"].as_str().unwrap().contains("no server at"), "{refused}");
    assert_eq!(refused["id"], 1);
}
