//! Calls of declared tools by agents and people: what is sent, what comes back, and what the ledger shows.

use super::service::{Service, header};
use super::{apply, calls_of, set_secret, tool, venue};
use serde_json::{Value, json};

const ORDER_RULES: &str = r#"
[[rule]]
when = { turn = 1 }
then = { calls = [{ tool = "get_order", arguments = { id = "A-7", expand = ["lines", "a b"] } }] }

[[rule]]
then = { text = "told: {{tool_result}}" }
"#;

fn order_tool(service: &Service) -> Value {
    json!({
        "name": "get_order", "description": "Gets an order.",
        "input": {
            "type": "object", "required": ["id"],
            "properties": {"id": {"type": "string"}, "expand": {"type": "array", "items": {"type": "string"}}}
        },
        "http": {
            "url": service.url("/orders/{id}"), "query": {"expand": "{expand}", "v": 2},
            "headers": {"Authorization": {"$secret": "s/SHOP", "prefix": "Bearer "}},
            "result": "/data/order", "output": {"type": "object", "required": ["id"]}, "status": {"404": "nothing"}
        }
    })
}

#[test]
fn an_agent_calls_the_tool_of_its_file() {
    let service = Service::start();
    let up = venue(&service, &[]);
    set_secret(&up, &service, "SHOP", "hunter2hunter2");
    apply(&up, "clerk", ORDER_RULES, json!({"tools": [order_tool(&service)], "defaultTools": false})).ok();
    let told = up.run(&["submit", "clerk", "go", "--wait"]).ok();
    assert!(told.contains("\"total\":12") || told.contains("\"total\": 12"), "{told}");
    assert!(!told.contains("hunter2"), "the answer repeats the secret: {told}");
    let sent = service.requests("GET /orders/");
    assert_eq!(sent.len(), 1);
    assert!(sent[0].starts_with("GET /orders/A-7?expand=lines&expand=a+b&v=2 HTTP/1.1\r\n"), "{}", sent[0]);
    assert_eq!(header(&sent[0], "authorization").as_deref(), Some("Bearer hunter2hunter2"));
    assert_eq!(header(&sent[0], "idempotency-key"), None, "a call that reads has no key");
    let call = &calls_of(&up, "clerk")[0];
    assert_eq!((&call["operation"], &call["outcome"]), (&json!("v/ops/own/get_order"), &json!("ok")));
    assert_eq!(call["sent"], Value::Null);
}

const REFUND_RULES: &str = r#"
[[rule]]
when = { turn = 1 }
then = { calls = [{ tool = "refund", arguments = { id = "A-7" } }] }

[[rule]]
then = { text = "told: {{tool_result}}" }
"#;

#[test]
fn a_call_with_an_effect_can_be_reconciled() {
    let service = Service::start();
    let up = venue(&service, &[]);
    let refund = tool("refund", json!({"method": "POST", "url": service.url("/refunds"), "body": {"order": "{id}"}}));
    apply(&up, "clerk", REFUND_RULES, json!({"tools": [refund]})).ok();
    let job: Value =
        serde_json::from_str(&up.run(&["submit", "clerk", "go", "--wait", "--output", "json"]).ok()).unwrap();
    let sent = service.requests("POST /refunds ");
    assert_eq!(sent.len(), 1);
    assert!(sent[0].ends_with("\r\n\r\n{\"order\":\"A-7\"}"), "{}", sent[0]);
    let call = &calls_of(&up, "clerk")[0];
    let trace = header(&sent[0], "traceparent").unwrap();
    let parts: Vec<usize> = trace.split('-').map(str::len).collect();
    assert_eq!(parts, [2, 32, 16, 2], "{trace}");
    assert_eq!(call["sent"]["traceparent"], trace);
    assert_eq!(call["sent"]["key"], header(&sent[0], "idempotency-key").unwrap());
    assert_eq!(call["sent"]["job"], header(&sent[0], "trellis-job").unwrap());
    assert!(job.to_string().contains(call["sent"]["job"].as_str().unwrap()), "{job}");
    let name = "clerk";
    let list: Value = serde_json::from_str(&up.run(&["turn", "list", name, "--output", "json"]).ok()).unwrap();
    let first = list["turns"].as_array().unwrap().iter().find(|turn| turn["turn"] == 1).unwrap();
    let shown = up.run(&["turn", "show", first["name"].as_str().unwrap()]).ok();
    assert!(shown.contains(&trace), "{shown}");
}

#[test]
fn a_capability_of_the_path_and_one_of_the_host_are_needed() {
    let service = Service::start();
    let up = venue(&service, &[]);
    let refund = tool("refund", json!({"method": "POST", "url": service.url("/refunds"), "body": {"order": "{id}"}}));
    let (host, path) = (service.url(""), "v/ops/own/refund");
    for (caps, outcome) in [
        (json!([{"with": path, "can": "invoke"}, {"with": host, "can": "http/post"}]), "ok"),
        (json!([{"with": path, "can": "invoke"}, {"with": host, "can": "http/get"}]), "denied"),
        (json!([{"with": "v/ops/own/other", "can": "invoke"}, {"with": host, "can": "http"}]), "denied"),
        (json!([{"with": path, "can": "invoke"}]), "denied"),
    ] {
        let done = apply(&up, "clerk", REFUND_RULES, json!({"tools": [refund], "defaultTools": false, "caps": caps}));
        let (code, warned) = (done.code, done.err.contains("`caps` deny every call of `refund`"));
        assert_eq!((code, warned), (0, outcome == "denied"), "{caps}: {}", done.err);
        up.run(&["submit", "clerk", "go", "--wait", "--session", &format!("s{}", caps.to_string().len())]);
        let list: Value = serde_json::from_str(&up.run(&["turn", "list", "clerk", "--output", "json"]).ok()).unwrap();
        let calls = list["turns"].as_array().unwrap().iter().filter_map(|turn| turn["calls"].as_array()).flatten();
        let first = calls.map(|call| call["outcome"].as_str().unwrap().to_owned()).next();
        assert_eq!(first.as_deref(), Some(outcome), "{caps}");
    }
    assert_eq!(service.requests("POST /refunds ").len(), 1);
}

#[test]
fn files_records_and_agents_declare_tools_that_people_try() {
    let service = Service::start();
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("tools")).unwrap();
    let get = json!({"url": service.url("/orders/{id}"), "result": "/data/order/total", "status": {"404": "nothing"}});
    let file = json!({"tools": [tool("get_total", get.clone())]});
    std::fs::write(dir.path().join("tools/shop.json"), file.to_string()).unwrap();
    let [hosts, private] = service.settings();
    let up = crate::support::cli::Up::start_in(dir, &[&hosts, &private, "catalog.tools=tools"]);
    let total = |args: &[&str]| up.run(&[&["tool", "try"][..], args].concat()).ok();
    assert_eq!(total(&["shop:get_total", r#"{"id": "A-7"}"#]), "12");
    assert_eq!(total(&["v/ops/shop/get_total", r#"{"id": "none"}"#]), "null");
    let record = tool("total_of_order", get.clone());
    up.run(&["lattice", "write", "o/total", &record.to_string()]).ok();
    assert_eq!(total(&["o/total", r#"{"id": "A-7"}"#]), "12");
    assert_eq!(total(&["total", r#"{"id": "A-7"}"#]), "12");
    let rules = r#"
[[rule]]
when = { turn = 1 }
then = { calls = [
    { tool = "total_of_order", arguments = { id = "A-7" } },
    { tool = "shop_get_total", arguments = { id = "A-7" } },
    { tool = "mine", arguments = { id = "A-7" } },
] }

[[rule]]
then = { text = "told" }
"#;
    let config = json!({"tools": ["o/total", "v/ops/shop/get_total", tool("mine", get)], "defaultTools": false});
    apply(&up, "clerk", rules, config).ok();
    up.run(&["submit", "clerk", "go", "--wait"]).ok();
    let calls = calls_of(&up, "clerk");
    let made: Vec<_> = calls.iter().map(|call| (call["operation"].as_str(), call["outcome"].as_str())).collect();
    let ok = Some("ok");
    assert_eq!(made, [(Some("v/ops/own/total"), ok), (Some("v/ops/shop/get_total"), ok), (Some("v/ops/own/mine"), ok)]);
    assert_eq!(total(&["mine", r#"{"id": "A-7"}"#, "--agent", "clerk"]), "12");
    up.run(&["tool", "try", "mine", r#"{"id": "A-7"}"#]).expect(5, "no operation");
}

#[test]
fn a_declared_job_goes_to_its_queue() {
    let service = Service::start();
    let up = venue(&service, &[]);
    let rules = r#"
[[rule]]
when = { turn = 1 }
then = { calls = [{ tool = "ocr", arguments = { file = "a.pdf" } }, { tool = "ocr", arguments = { fil = "a.pdf" } }] }

[[rule]]
then = { text = "told: {{tool_result}}" }
"#;
    let input = json!({
        "type": "object", "properties": {"file": {"type": "string"}}, "required": ["file"], "additionalProperties": false
    });
    let ocr = json!({
        "name": "ocr", "description": "Reads a scan.", "input": input,
        "jobs": {"queue": "ocr", "output": {"type": "object", "required": ["text"]}, "wait": 2000}
    });
    apply(&up, "clerk", rules, json!({"tools": [ocr], "defaultTools": false})).ok();
    // An embedded queue has no external workers: the job fails, and the call has its end.
    up.run(&["submit", "clerk", "go", "--wait"]).ok();
    let calls = calls_of(&up, "clerk");
    assert_eq!((&calls[0]["operation"], &calls[0]["outcome"]), (&json!("v/ops/jobs/ocr"), &json!("ok")));
    assert_eq!(calls[1]["outcome"], "bad arguments");
}
