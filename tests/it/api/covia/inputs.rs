//! Covia's inputs and operations, a row for each form.

use crate::support::http::Server;
use serde_json::{Value, json};

/// What a row comes to.
enum Comes {
    /// The output has these values at these JSON pointers.
    To(&'static [(&'static str, &'static str)]),
    /// A refusal with this status and this part of its text.
    Refused(u16, &'static str),
}

use Comes::{Refused, To};

async fn check(server: &Server, rows: &[(&str, Value, Comes)]) {
    let mut wrong = Vec::new();
    for (operation, input, expected) in rows {
        let answer = server.post("/api/v1/run", json!({"operation": operation, "input": input})).await;
        let (status, output) = (answer.status.as_u16(), answer.body);
        let fits = match expected {
            To(values) => {
                let is_there = |(pointer, value): &(&str, &str)| {
                    let expected: Value = serde_json::from_str(value).unwrap();
                    output.pointer(pointer).unwrap_or(&Value::Null) == &expected
                };
                status == 200 && values.iter().all(is_there)
            }
            Refused(expected, part) => {
                status == *expected && output["error"].as_str().is_some_and(|error| error.contains(part))
            }
        };
        if !fits {
            wrong.push(format!("{operation} {input}: {status} {output}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn schema() -> Value {
    json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]})
}

#[tokio::test(flavor = "multi_thread")]
async fn pure_operations_are_run_as_covia_s() {
    let server = Server::start().await;
    let cases = json!({"a": 1, "b": null});
    let rows = [
        ("json/select", json!({"key": "a", "cases": cases, "default": 2}), To(&[("/result", "1")])),
        ("json/select", json!({"key": "b", "cases": cases, "default": 2}), To(&[("/result", "null")])),
        ("json/select", json!({"key": "z", "cases": cases, "default": 2}), To(&[("/result", "2")])),
        ("json/select", json!({"key": "z", "cases": cases}), To(&[("/result", "null")])),
        (
            "json/select",
            json!({"key": "a"}),
            Refused(400, "expected `select` with one of `value` and `path`, or `key`"),
        ),
        ("json/select", json!({"key": "a", "cases": cases, "value": 1}), Refused(400, "or `key` with `cases`")),
        ("json/select", json!({"select": "a", "value": cases}), To(&[("/value", "1")])),
        (
            "json:cond",
            json!({"cases": [{"when": false, "then": 1}, {"when": null, "then": 2}, {"when": 0, "then": 3}]}),
            To(&[("/result", "3")]),
        ),
        ("json/cond", json!({"cases": [{"when": false, "then": 1}], "default": "d"}), To(&[("/result", "\"d\"")])),
        ("json/cond", json!({"cases": []}), To(&[("/result", "null")])),
        ("json/cond", json!({"cases": [{"when": 1}]}), Refused(400, "\"then\" is a required property")),
        (
            "json/assoc",
            json!({"target": {"a": 1}, "path": ["b", "c"], "value": 2}),
            To(&[("/result", r#"{"a": 1, "b": {"c": 2}}"#)]),
        ),
        ("json/assoc", json!({"path": "a/b", "value": 2}), To(&[("/result", r#"{"a/b": 2}"#)])),
        ("json/assoc", json!({"path": [], "value": 2}), Refused(400, "expected 1 to 32 keys, got 0")),
        ("schema/coerce", json!({"schema": schema(), "value": {"n": "5"}}), To(&[("/value/n", "5")])),
        ("schema/coerce", json!({"schema": schema(), "value": {"n": "five"}}), To(&[("/value/n", "\"five\"")])),
        ("schema/coerce", json!({"schema": {"type": "foo"}, "value": 1}), Refused(400, "not a JSON Schema")),
        ("schema/check", json!({"schema": schema()}), To(&[("/valid", "true")])),
        ("schema/check", json!({"schema": {"type": "foo"}}), To(&[("/valid", "false")])),
        (
            "schema/validate-all",
            json!({"schema": schema(), "value": {}}),
            To(&[("/valid", "false"), ("/errors/0/path", "\"\"")]),
        ),
        (
            "schema:validateAll",
            json!({"schema": schema(), "value": {"n": 1}}),
            To(&[("/valid", "true"), ("/errors", "[]")]),
        ),
        (
            "auth/whoami",
            json!({}),
            To(&[("/caller", "\"local/me\""), ("/owner", "\"local/me\""), ("/authenticated", "true")]),
        ),
        ("secret/extract", json!({"name": "X"}), Refused(403, "is not given out")),
        ("ucan/issue", json!({"aud": "x", "att": [], "exp": 1}), Refused(404, "`trellis token` does")),
    ];
    check(&server, &rows).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn operations_run_at_this_venue_under_any_of_its_names() {
    let server = Server::start().await;
    let status = server.get("/api/v1/status").await.body(200);
    let merge = |venue: &Value| json!({"operation": "v/ops/json/merge", "input": {"values": [{"a": 1}, {"b": 2}]}, "venue": venue});
    let job =
        server.post("/api/v1/invoke", json!({"operation": "json/merge", "input": {"values": [1]}})).await.body(201);
    for name in ["did", "url", "name"] {
        for operation in ["grid/run", "job/run", "grid/invoke"] {
            let output = server.run(operation, merge(&status[name])).await;
            assert_eq!(output["value"], json!({"a": 1, "b": 2}), "{operation} {name}");
        }
        let asked = json!({"id": job["id"], "venue": status[name]});
        assert_eq!(server.run("grid/job-status", asked.clone()).await["status"], "COMPLETE");
        assert_eq!(server.run("grid/jobResult", asked).await["output"]["value"], 1);
    }
    let elsewhere = json!("did:web:other.example");
    let rows = [
        ("grid/run", merge(&elsewhere), Refused(400, "`venue`: operations run at this venue alone")),
        ("grid/invoke", merge(&elsewhere), Refused(400, "leave it out")),
        ("grid/job-result", json!({"id": job["id"], "venue": elsewhere}), Refused(400, "`venue`: operations run")),
    ];
    check(&server, &rows).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_are_made_asked_and_triggered_as_covia_s() {
    let server = Server::start().await;
    server.echo_agent("echo").await;
    let ask = |wait: Value| json!({"agentId": "echo", "input": {"a": 1}, "wait": wait});
    let rows = [
        ("agent/create", json!({"agentId": "echo"}), To(&[("/created", "false"), ("/updated", "false")])),
        ("agent/create", json!({"agentId": "echo", "config": {"systemPrompt": "x"}}), To(&[("/created", "false")])),
        ("agent/create", json!({"agentId": "fresh"}), Refused(400, "expected `config` with at least `model`")),
        ("agent/request", ask(json!(false)), To(&[("/status", "\"STARTED\"")])),
        ("agent/request", ask(json!(1)), To(&[("/status", "\"STARTED\"")])),
        (
            "agent/request",
            json!({"agentId": "echo", "input": 1, "wait": 0, "context": [{"with": "/local/me/w/docs", "can": "crud/read"}]}),
            To(&[("/status", "\"STARTED\"")]),
        ),
        (
            "agent/request",
            json!({"agentId": "echo", "input": 1, "context": [{"with": "/local/you/w/docs", "can": "crud/read"}]}),
            Refused(403, "is not in the tree of"),
        ),
        ("agent/request", ask(json!("soon")), Refused(400, "is not of types")),
        ("agent/list", json!({"includeTerminated": true}), To(&[("/agents/0/agentId", "\"echo\"")])),
        ("covia/inspect", json!({"paths": "w/none"}), To(&[])),
        ("agent/trigger", json!({"agentId": "echo"}), To(&[("/agentId", "\"echo\"")])),
        ("agent/trigger", json!({"agentId": "echo", "wait": false, "force": true}), To(&[("/agentId", "\"echo\"")])),
        ("agent/trigger", json!({"agentId": "echo", "wait": 1, "sessionId": "s"}), To(&[("/agentId", "\"echo\"")])),
        (
            "agent/trigger",
            json!({"agentId": "echo", "input": 1, "after": "2h", "wait": true}),
            Refused(400, "a timer only sends"),
        ),
        ("agent/trigger", json!({"agentId": "none", "wait": true}), Refused(404, "no agent `none`")),
    ];
    check(&server, &rows).await;
    let idle = json!({"agentId": "echo", "config": {"systemPrompt": "changed"}});
    assert_eq!(server.run("agent/create", idle).await["configVersion"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scheduled_request_is_a_timer() {
    let server = Server::start().await;
    server.echo_agent("echo").await;
    let request = |input: Value| json!({"operation": "v/ops/agent/request", "input": input, "after": 3_600_000});
    let rows = [
        ("scheduler/schedule", request(json!({"agentId": "none", "input": 1})), Refused(404, "no agent `none`")),
        ("scheduler/schedule", request(json!({"agentId": "echo"})), Refused(400, "`input.input`: missing")),
        (
            "scheduler/schedule",
            request(json!({"agentId": "echo", "input": 1, "contextIds": ["x"]})),
            Refused(400, "`input.contextIds`"),
        ),
        (
            "scheduler/schedule",
            json!({"operation": "json:merge", "input": {}, "after": 1}),
            Refused(400, "give an agent the task to call it"),
        ),
        (
            "scheduler/schedule",
            json!({"operation": "agent:request", "input": {"agentId": "echo", "input": 1}}),
            Refused(400, "expected one of `at`, `after`"),
        ),
        ("scheduler/cancel", json!({"handle": "ab".repeat(16)}), To(&[("/cancelled", "false")])),
        ("scheduler/trigger", json!({"handle": "ab".repeat(16)}), To(&[("/triggered", "false")])),
    ];
    check(&server, &rows).await;
    let first = server.run("scheduler/schedule", request(json!({"agentId": "echo", "input": "later"}))).await;
    let note =
        json!({"operation": "agent:message", "input": {"agentId": "echo", "message": "note"}, "after": 7_200_000});
    let second = server.run("scheduler/schedule", note).await;
    let events = server.run("scheduler/list", json!({})).await["events"].clone();
    let shown = |event: &Value| (event["handle"].clone(), event["op"].clone(), event["time"].clone());
    let (task, message) = (json!("v/ops/agent/request"), json!("v/ops/agent/message"));
    let expected =
        [(&first, task), (&second, message)].map(|(set, op)| (set["handle"].clone(), op, set["time"].clone()));
    assert_eq!(events.as_array().unwrap().iter().map(shown).collect::<Vec<_>>(), expected);
    assert_eq!(server.run("scheduler/cancel", json!({"handle": second["handle"]})).await["cancelled"], true);
    assert_eq!(server.run("scheduler/trigger", json!({"handle": first["handle"]})).await["triggered"], true);
    assert_eq!(server.run("scheduler/list", json!({})).await["events"], json!([]));
    let jobs = server.get("/api/v1/jobs?details=true").await.body(200);
    assert_eq!(jobs["items"][0]["input"], "later", "{jobs}");
}

#[tokio::test(flavor = "multi_thread")]
async fn assets_are_registered_by_their_metadata() {
    let server = Server::start().await;
    let register = async |body: Value| server.post("/api/v1/assets", body).await.body(201).as_str().unwrap().to_owned();
    let invoice = register(json!({"name": "I1", "description": "d", "type": "invoice"})).await;
    let known = server.get(&format!("/api/v1/assets/{invoice}")).await.body(200);
    assert_eq!((&known["name"], &known["type"], &known["description"]), (&json!("I1"), &json!("invoice"), &json!("d")));
    let again = server.post("/api/v1/assets", json!({"type": "invoice", "description": "d", "name": "I1"})).await;
    assert_eq!(again.body(200), json!(invoice), "in another order they are the same");
    let merge = register(json!({"name": "merge", "operation": {"adapter": "json:merge"}})).await;
    let metadata = json!({"name": "n", "type": "note"});
    let note = server.run("asset/store", json!({"metadata": metadata, "contentText": "hello"})).await;
    assert_eq!((&note["stored"], &note["id"], &note["type"]), (&json!(true), &note["hash"], &json!("note")));
    let id = note["id"].as_str().unwrap();
    assert_eq!(server.run("asset/content", json!({"id": id})).await["content"], "hello");
    let bytes = server.run("asset/store", json!({"metadata": metadata, "content": "0x6869"})).await;
    assert_eq!(server.run("asset/content", json!({"id": bytes["id"]})).await["content"], "hi");
    let of_type = async |input: Value| {
        let page = server.run("asset/list", input).await;
        let mut names: Vec<_> = page["items"].as_array().unwrap().iter().map(|item| item["name"].clone()).collect();
        names.sort_by_key(ToString::to_string);
        (names, page["total"].clone(), page["next"].clone())
    };
    assert_eq!(of_type(json!({"type": "invoice"})).await, (vec![json!("I1")], json!(1), json!(null)));
    assert_eq!(of_type(json!({"type": "note", "limit": 1})).await, (vec![json!("n")], json!(2), json!(1)));
    assert_eq!(of_type(json!({"type": "note", "offset": 1})).await, (vec![json!("n")], json!(2), json!(null)));
    assert_eq!(of_type(json!({"type": "none"})).await, (vec![], json!(0), json!(null)));
    assert_eq!(of_type(json!({"kind": "operation"})).await, (vec![json!("merge")], json!(1), json!(null)));
    let listed = server.get("/api/v1/assets?kind=operation").await.body(200);
    assert_eq!((&listed["items"], &listed["total"]), (&json!([merge]), &json!(1)));
    let rows = [
        (
            "asset/store",
            json!({"metadata": metadata, "content": "0xabc"}),
            Refused(400, "hexadecimal digits after `0x`"),
        ),
        (
            "asset/store",
            json!({"metadata": metadata, "content": "a", "contentText": "a"}),
            Refused(400, "exactly one of `content`"),
        ),
        ("asset/list", json!({"kind": "other"}), Refused(400, "is not one of")),
    ];
    check(&server, &rows).await;
}

/// Whoever hears `true` believes that nothing was sent.
#[tokio::test(flavor = "multi_thread")]
async fn cancelled_is_said_only_of_what_was_still_to_come() {
    let server = Server::start().await;
    server.echo_agent("echo").await;
    let input =
        json!({"operation": "v/ops/agent/request", "input": {"agentId": "echo", "input": "x"}, "after": 3_600_000});
    let schedule = async || server.run("scheduler/schedule", input.clone()).await["handle"].clone();
    let cancel = async |handle: &Value| server.run("scheduler/cancel", json!({"handle": handle})).await;
    let waiting = schedule().await;
    assert_eq!(cancel(&waiting).await, json!({"cancelled": true}));
    assert_eq!(cancel(&waiting).await, json!({"cancelled": false}));
    let fired = schedule().await;
    assert_eq!(server.run("scheduler/trigger", json!({"handle": fired})).await, json!({"triggered": true}));
    assert_eq!(cancel(&fired).await, json!({"cancelled": false}));
}
