//! A worker dies between the request and the answer of a declared call.

use super::service::{Service, header};
use super::{apply, calls_of, tool};
use serde_json::{Value, json};

const RULES: &str = r#"
[[rule]]
when = { turn = 1 }
then = { calls = [{ tool = "refund", arguments = { id = "A-7" } }] }

[[rule]]
then = { text = "told: {{tool_result}}" }
"#;

fn refund_through_a_crash(path: &str, effect: &str) -> (Service, String, Vec<Value>) {
    let service = Service::start();
    let settings = service.settings();
    let [hosts, private] = settings.each_ref().map(String::as_str);
    let mut up = crate::support::cli::Up::start_with(&[hosts, private, "worker.lease=2s"]);
    let http = json!({"method": "POST", "url": service.url(path), "effect": effect, "body": {"order": "{id}"}});
    apply(&up, "clerk", RULES, json!({"tools": [tool("refund", http)]})).ok();
    let id = up.run(&["submit", "clerk", "go"]).ok();
    service.wait_for(&format!("POST {path} "), 1);
    up.process.signal("KILL");
    up.process.ended();
    up.start_again();
    let told = up.run(&["job", "wait", &id]).ok();
    let calls = calls_of(&up, "clerk");
    (service, told, calls)
}

#[test]
fn a_call_that_must_not_be_repeated_is_unknown_after_a_crash() {
    let (service, told, calls) = refund_through_a_crash("/hangs", "once");
    let sent = service.requests("POST /hangs ");
    assert_eq!(sent.len(), 1, "no refund twice");
    assert!(told.contains("outcome unknown"), "{told}");
    assert_eq!(calls[0]["outcome"], "outcome unknown");
    assert_eq!(calls[0]["sent"]["key"], header(&sent[0], "idempotency-key").unwrap(), "the ledger names the request");
    assert_eq!(calls[0]["sent"]["traceparent"], header(&sent[0], "traceparent").unwrap());
}

#[test]
fn a_repeatable_call_is_made_again_under_its_key() {
    let (service, told, calls) = refund_through_a_crash("/keyed", "repeatable");
    let sent = service.requests("POST /keyed ");
    assert_eq!(sent.len(), 2, "once before the crash, once after it");
    for name in ["idempotency-key", "traceparent", "trellis-job"] {
        assert!(
            header(&sent[0], name).is_some() && header(&sent[0], name) == header(&sent[1], name),
            "{name}: {sent:?}"
        );
    }
    assert!(told.contains("re_1"), "{told}");
    assert_eq!(calls[0]["outcome"], "ok");
}
