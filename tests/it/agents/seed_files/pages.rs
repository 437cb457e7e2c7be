//! What the pages show: Covia's tools and context, Platos' values.

use super::*;
use trellis::domain::agent::AgentConfig;
use trellis::domain::authority::envelope::Envelope;
use trellis::domain::job::{ErrorCode, JobStatus};
use trellis::domain::resource::HeldNamespaces;

/// `covia-tools-and-context`, "Tool Resolution".
const TOOLS: &str = r#""tools": [
"v/ops/covia/read",
"v/ops/covia/write",
{ "operation": "v/ops/http/get", "name": "fetch_url", "description": "Fetch a web page" }
]"#;

/// "Static Context (config)".
const CONTEXT: &str = r#""context": [
{ "ref": "w/docs/policy", "label": "Company Policy" },
{ "ref": "w/vendor-records/acme", "label": "ACME Vendor Record" },
{ "op": "v/ops/covia/list", "input": { "path": "w/vendors" }, "label": "Known Vendors" }
]"#;

/// "Capabilities".
const CAPS: &str = r#""caps": [
{ "with": "w/vendor-records/", "can": "crud/read" },
{ "with": "w/enrichments/", "can": "crud" }
]"#;

/// "Dynamic Context (tools)".
const LOAD: &str =
    r#"{ "name": "context_load", "input": { "path": "w/reports/Q1", "label": "Q1 Report", "budget": 5000 } }"#;
const UNLOAD: &str = r#"{ "name": "context_unload", "input": { "path": "w/reports/Q1" } }"#;

fn call(text: &str) -> Value {
    let call = parse(text);
    json!({"tool": call["name"], "arguments": call["input"]})
}

fn rule(agent: &str, turn: usize, calls: &[Value]) -> Value {
    json!({"when": {"agent": agent, "turn": turn}, "then": {"calls": calls}})
}

fn done() -> Value {
    json!({"then": {"text": "done: {{tool_result}}"}})
}

async fn covia(dir: &Path, rules: Value) -> TestVenue {
    let venue = venue(dir, &rules).await;
    write(&venue, "w/docs/policy", json!("Pay on time.\nNever twice.")).await;
    write(&venue, "w/vendor-records/acme", json!({"name": "ACME", "iban": "DE02"})).await;
    write(&venue, "w/vendors", json!({"acme": {"since": 2001}, "bolt": {"since": 2009}})).await;
    write(&venue, "w/reports/Q1", json!({"total": 42})).await;
    venue
}

#[tokio::test(flavor = "multi_thread")]
async fn tools_and_context_of_the_covia_page_run_unchanged() {
    let dir = tempfile::tempdir().unwrap();
    let fetch = json!({"tool": "fetch_url", "arguments": {"url": "http://127.0.0.1:9/"}});
    let put = json!({"tool": "covia_write", "arguments": {"path": "w/enrichments/acme", "value": {"ok": true}}});
    let venue = covia(
        dir.path(),
        json!([rule("buyer", 1, &[call(LOAD), fetch]), rule("buyer", 2, &[call(UNLOAD), put]), done()]),
    )
    .await;
    venue.agent("buyer", parse(&format!("{{{TOOLS}, {CONTEXT}}}"))).await;
    let job = ask(&venue, "buyer", "t1", json!({})).await;
    assert!(output(&job).as_str().unwrap().starts_with("done: "), "{:?}", job.result);

    let (prompt, tools, ledger) = saw(&venue, &job, 1).await;
    has(
        &prompt,
        &[
            "## Covia Lattice",
            "[Context: Company Policy]\nPay on time.\nNever twice.",
            "[Context: ACME Vendor Record]\n{name: \"ACME\", iban: \"DE02\"}",
            "[Context: Known Vendors]\n",
            "\"acme\", \"bolt\"",
            "/180000 bytes",
        ],
    );
    assert!(!prompt.contains("[Context: Q1 Report]"), "nothing is loaded yet: {prompt}");
    assert_eq!(&ledger.tools[..3], ["covia_read", "covia_write", "fetch_url"]);
    assert_eq!(tools[2]["description"], "Operation: v/ops/http/get. Fetch a web page");
    assert_eq!(ledger.refused, []);
    assert!(ledger.tools.iter().any(|tool| tool == "schema_validate"), "the default tools follow: {:?}", ledger.tools);

    let (prompt, _, ledger) = saw(&venue, &job, 2).await;
    has(
        &prompt,
        &["[Context: Q1 Report]\n{total: 42}", "  w/reports/Q1 — Q1 Report [5000B]", "not one that this venue allows"],
    );
    assert_eq!(row(&ledger, "loads/w/reports/Q1").asked, 5_000);
    let (prompt, _, _) = saw(&venue, &job, 3).await;
    assert!(!prompt.contains("[Context: Q1 Report]"), "it is unloaded: {prompt}");
    let kept = operate(&venue, "lattice/read", json!({"path": "w/enrichments/acme"})).await;
    assert_eq!(kept["value"], json!({"ok": true}));
}

#[tokio::test(flavor = "multi_thread")]
async fn capabilities_of_the_covia_page_are_shown_and_enforced() {
    let dir = tempfile::tempdir().unwrap();
    let read = |path: &str| json!({"tool": "covia_read", "arguments": {"path": path}});
    let put = |path: &str| json!({"tool": "covia_write", "arguments": {"path": path, "value": 1}});
    let calls = [
        read("w/vendor-records/acme/iban"),
        put("w/enrichments/acme"),
        read("w/enrichments/acme"),
        put("w/vendor-records/acme"),
        read("w/vendor-records-of-others"),
        call(LOAD),
    ];
    let venue = covia(dir.path(), json!([rule("buyer", 1, &calls), done()])).await;
    venue.agent("buyer", parse(&format!("{{{TOOLS}, {CONTEXT}, {CAPS}}}"))).await;
    let job = ask(&venue, "buyer", "t1", json!({})).await;
    let (prompt, _, ledger) = saw(&venue, &job, 1).await;
    has(
        &prompt,
        &[
            "## Your capabilities (caps)\n- crud/read on w/vendor-records/\n- crud on w/enrichments/",
            "[Context: Company Policy — unavailable: capability denied: needs crud/read on w/docs/policy]",
            "[Context: ACME Vendor Record]\n{name: \"ACME\"",
            "[Context: Known Vendors — unavailable: Capability denied: v/ops/covia/list requires crud/read on w/vendors.",
        ],
    );
    assert_eq!(row(&ledger, "context/Company Policy").status.as_str(), "denied");
    let (prompt, _, _) = saw(&venue, &job, 2).await;
    let held = "Your capabilities are: crud/read on w/vendor-records/, crud on w/enrichments/";
    has(
        &prompt,
        &[
            "DE02",
            &format!("Capability denied: covia_write requires crud/write on w/vendor-records/acme. {held}"),
            &format!("requires crud/read on w/vendor-records-of-others. {held}"),
            &format!("Capability denied: context_load requires crud/read on w/reports/Q1. {held}"),
        ],
    );
    let session = SessionKey { agent: job.head.agent.clone(), session: job.head.session.clone() };
    let past = ledger::load(&*venue.venue.store, &venue.owner, &session, 1).await.unwrap().unwrap();
    let outcomes: Vec<_> = past.record.unwrap().calls.into_iter().map(|call| call.outcome).collect();
    assert_eq!(outcomes, ["ok", "ok", "ok", "denied", "denied", "denied"]);
}

/// `platos-agent-context`, "Inject into tool arguments": a part of `contextMapping`.
const INJECTION: &str = r#"{
  "toolArgInjection": {
    "send_email": { "from": "user_email", "tenant_id": "tenant_id" }
  }
}"#;

/// "Override per turn".
const SESSION_CONTEXT: &str = r#"{ "entity_ids": ["entity-1"], "shipping_address_id": "addr-9" }"#;

#[tokio::test(flavor = "multi_thread")]
async fn values_of_the_platos_page_reach_prompt_and_tool() {
    let dir = tempfile::tempdir().unwrap();
    let mail =
        json!({"tool": "send_email", "arguments": {"to": "bob@x", "body": "hi", "from": "eve@x", "tenant_id": "evil"}});
    let venue = venue(dir.path(), &json!([rule("mailer", 1, &[mail]), done()])).await;
    write(&venue, "v/context/project", json!({"tenant_id": "acme", "region": "eu"})).await;
    write(&venue, "v/context/users/me", json!({"user_id": "u-1", "user_email": "ada@acme", "user": {"name": "Ada"}}))
        .await;
    let mut mapping = parse(INJECTION);
    // The sources of "Configure mappings", row by row.
    for (key, source) in [("user_id", "session.user_id"), ("calendar_id", "_auto"), ("region", "_global")] {
        mapping[key] = json!({"source": source, "fallback": "none"});
    }
    mapping["greeting"] = json!({"source": "CONSTANT:hello"});
    let prompt = "Say ${greeting} to ${user.name} (${user_id}) of ${region}, calendar ${calendar_id}; \
                  ship to {{shipping_address_id}}; ${nothing}!";
    let tools = json!([{"operation": "v/ops/test/echo", "name": "send_email", "description": "Sends mail"}]);
    let config = json!({
        "systemPrompt": prompt, "tools": tools, "contextMapping": mapping, "entityIdsRequired": true,
        "defaultTools": false,
    });
    venue.agent("mailer", config).await;

    let refused = ask(&venue, "mailer", "t0", json!({"entity_ids": "entity-1"})).await;
    assert_eq!(refused.status, JobStatus::Failed);
    assert_eq!(refused.result.clone().unwrap().error_code, Some(ErrorCode::EntityIdsRequired));
    has(&error(&refused), &["ENTITY_IDS_REQUIRED", "got a string"]);
    assert!(venue.model_calls().is_empty(), "no model was asked");

    let job = ask(&venue, "mailer", "t1", parse(SESSION_CONTEXT)).await;
    let sent = output(&job).as_str().unwrap().to_owned();
    has(&sent, &["ada@acme", "\"tenant_id\":\"acme\"", "bob@x"]);
    assert!(!sent.contains("eve@x") && !sent.contains("evil"), "{sent}");
    let (prompt, tools, ledger) = saw(&venue, &job, 1).await;
    has(&prompt, &["Say hello to Ada (u-1) of eu, calendar none; ship to addr-9; !"]);
    assert_eq!(ledger.unresolved, ["nothing"]);
    assert!(!tools[0].to_string().contains("tenant_id"), "{tools}");
    let session = SessionKey { agent: job.head.agent.clone(), session: job.head.session.clone() };
    let past = ledger::load(&*venue.venue.store, &venue.owner, &session, 1).await.unwrap().unwrap();
    let said = json!(past.record.unwrap().said[0]).to_string();
    assert!(said.contains("bob@x") && !said.contains("eve@x"), "the transcript: {said}");
    // They ride on the request that carried them.
    let later = ask(&venue, "mailer", "t2", json!({"entity_ids": ["entity-2"]})).await;
    has(&saw(&venue, &later, 1).await.0, &["ship to ; !"]);
}

/// `agntz-context-and-resources`: `resources` of an agent.
const RESOURCES: &str = r#"{"resources": {"memory": {"mode": "read-write", "autoScan": true}}}"#;

#[test]
fn resources_are_declared_as_on_the_page() {
    let mut config = parse(RESOURCES);
    config["model"] = json!({"provider": "scripted", "name": "echo"});
    let config = AgentConfig::parse(&config).unwrap();
    let providers = trellis::venue::resources::ResourceProviders::default();
    assert_eq!(providers.check(&config), Ok(()));
    let tools = providers.offered_tools(&config, &Envelope::default(), &HeldNamespaces::default());
    let names: Vec<_> = tools.iter().map(|tool| tool.spec.name.as_str()).collect();
    assert_eq!(names[..3], ["memory_read", "memory_search", "memory_write"]);
}
