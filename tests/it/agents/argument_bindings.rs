//! Bindings that can't be kept are refused where an agent is configured, and shown where that is known only later.

use crate::support::both_stores::{On, on_both};
use crate::support::http::Server;
use crate::support::operate::{boss, operate};
use crate::support::venue::TestVenue;
use reqwest::Method;
use serde_json::{Value, json};
use trellis::domain::authority::{Authority, Capability};
use trellis::domain::context::assemble::assemble;
use trellis::domain::context::ledger::PromptLedger;
use trellis::domain::event::Submission;
use trellis::domain::ids::SessionKey;
use trellis::process::clock::Clock;
use trellis::venue::ledger;
use trellis::venue::operation::Caller;

fn agent(tools: &Value, more: &Value) -> Value {
    let mut config = json!({"model": {"provider": "scripted", "name": "echo"}, "tools": tools, "defaultTools": false});
    config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    config
}

fn bound(tool: &str, argument: &str) -> Value {
    json!({"toolArgInjection": {tool: {argument: "user_email"}}})
}

fn named() -> Value {
    json!([{"operation": "v/ops/agent/message", "name": "send_email"}])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_binding_that_can_not_be_kept_is_refused_at_every_entrance() {
    let server = Server::start().await;
    let twice = json!({"contextMapping": {"agent_id": "_auto", "agentId": "_auto"}});
    for (config, part) in [
        (agent(&named(), &bound("sendEmail", "message")), "did you mean `send_email`"),
        (agent(&named(), &bound("send_email", "mesage")), "did you mean `message`"),
        (agent(&named(), &bound("v/ops/agent/mesage", "message")), "did you mean `v/ops/agent/message`"),
        (agent(&named(), &bound("complete_task", "result")), "`complete_task`"),
        (agent(&named(), &twice), "`agent_id` and `agentId`"),
    ] {
        server.put("/api/v1/agents/a", config.clone()).await.is_problem(400, part);
        for dry in [true, false] {
            let input = json!({"agentId": "a", "config": config, "dryRun": dry});
            let create = json!({"operation": "v/ops/agent/create", "input": input});
            server.post("/api/v1/run", create).await.is_problem(400, part);
        }
        server.get("/api/v1/agents/a").await.is_problem(404, "no agent");
    }
    server.put("/api/v1/agents/a", agent(&named(), &json!({}))).await.body(201);
    let change = json!({"config": bound("sendEmail", "message")}).to_string();
    let patched = server.send(Method::PATCH, "/api/v1/agents/a", &[], change.clone()).await;
    assert!(patched.status.is_client_error() && patched.body.to_string().contains("send_email"), "{}", patched.body);
    let input = json!({"agentId": "a", "config": bound("sendEmail", "message")});
    let update = json!({"operation": "v/ops/agent/update", "input": input});
    server.post("/api/v1/run", update).await.is_problem(400, "did you mean `send_email`");
    // Every name that a call can have is one that a binding can have.
    for tool in ["send_email", "v/ops/agent/message", "agent:message", "agent_message"] {
        let answer = server.put("/api/v1/agents/a", agent(&named(), &bound(tool, "message"))).await.body(200);
        assert_eq!(answer["warnings"], json!([]), "{tool}");
    }
    // What nobody can call is a warning.
    let answer = server.put("/api/v1/agents/a", agent(&named(), &bound("lattice_write", "path"))).await.body(200);
    assert!(answer["warnings"][0].as_str().unwrap().contains("not offered"), "{answer}");
}

const RULES: &str = r#"
[[rule]]
when = { turn = 1 }
then = { calls = [{ tool = "look", arguments = { path = "w/evil" } }] }

[[rule]]
then = { text = "{{tool_result}}" }
"#;

/// What the turns of an agent with this binding of its tool `look` answer, and what their ledger reports.
async fn looked(venue: &TestVenue, id: &str, tools: Value, bindings: Value) -> (String, PromptLedger) {
    let config = json!({"tools": tools, "defaultTools": false, "toolArgInjection": bindings});
    venue.agent(id, config).await;
    let answer = venue.run(id, id, json!("go")).await.result.unwrap().output.unwrap().to_string();
    let key = SessionKey { agent: id.parse().unwrap(), session: id.parse().unwrap() };
    let submitted = Submission { input: json!("go"), session_id: Some(id.parse().unwrap()), ..Submission::default() };
    let job = venue.arrive(id, &format!("{id}-again"), true, submitted).await.job.unwrap();
    venue.ended(&job).await;
    let past = ledger::load(&*venue.venue.store, &venue.owner, &key, 1).await.unwrap().unwrap();
    (answer, past.seen.unwrap().ledger)
}

/// As a venue before has stored it, or as it is known only in a turn.
async fn a_stored_binding_holds_or_its_tool_is_not_offered(on: On) {
    let Some((venue, _dir)) = on.venue(RULES, Clock::system()).await else { return };
    venue.worker();
    venue.write("w/good", json!("fine")).await;
    venue.write("w/evil", json!("stolen")).await;
    let pin = json!({"path": "v/ops/lattice/read", "name": "look"});
    operate(&venue.venue, &boss(&venue.owner), "v/ops/asset/pin", pin).await.unwrap();
    let renamed = || json!([{"operation": "v/ops/lattice/read", "name": "look"}]);
    let good = |tool: &str, argument: &str| json!({tool: {argument: "CONSTANT:w/good"}});
    for (id, tools, bindings) in [
        ("pin", json!(["o/look"]), good("o/look", "path")),
        ("pin-name", json!(["/o/look"]), good("look", "path")),
        ("pin-form", json!(["o/look"]), good("/o/look/", "path")),
        ("derived", renamed(), good("lattice_read", "path")),
        ("path", renamed(), good("lattice:read", "path")),
    ] {
        let (answer, ledger) = looked(&venue, id, tools, bindings).await;
        assert!(answer.contains("fine") && !answer.contains("stolen"), "{id}: {answer}");
        assert_eq!(json!(ledger).get("reports"), None, "{id}");
    }
    for (id, tools, bindings, report) in [
        ("near", renamed(), good("Look", "path"), "no tool `Look` is offered, did you mean `look`"),
        ("lacks", json!(["o/look"]), good("o/look", "pth"), "binds argument `pth`"),
    ] {
        let (answer, ledger) = looked(&venue, id, tools, bindings).await;
        assert!(!answer.contains("stolen"), "{id}: {answer}");
        assert!(answer.contains("unknown tool `look`"), "{id}: {answer}");
        let said = json!(ledger).to_string();
        assert!(said.contains(report), "{id}: {said}");
    }
    let (_, ledger) = looked(&venue, "far", renamed(), good("send_email", "from")).await;
    assert_eq!(json!(ledger)["reports"], json!([["toolArgInjection.send_email", "no tool `send_email` is offered"]]));
}

const PEEKS: &str = r#"
[[rule]]
when = { turn = 1, text = "load" }
then = { calls = [{ tool = "context_load", arguments = { path = "v/context/project" } }] }

[[rule]]
when = { turn = 1 }
then = { calls = [
  { tool = "lattice_read", arguments = { path = "v/context/project" } },
  { tool = "lattice_read", arguments = { path = "v/context/users/me" } },
  { tool = "lattice_read", arguments = { path = "v" } },
  { tool = "lattice_list", arguments = { path = "v/context" } },
  { tool = "lattice_inspect", arguments = { path = "v/context" } },
  { tool = "job_run", arguments = { operation = "lattice:read", input = { path = "v/context/project" } } },
  { tool = "lattice_copy", arguments = { from = "v/context/project", to = "w/copied" } },
] }

[[rule]]
then = { text = "done" }
"#;

/// What injection hides is not read by its path: by an agent without a capability on it, and by one that binds.
async fn an_injected_value_is_not_read_by_its_path(on: On) {
    let Some((venue, _dir)) = on.venue(PEEKS, Clock::system()).await else { return };
    venue.worker();
    let operator = Caller { operator: true, ..boss(&venue.owner) };
    for (path, value) in
        [("v/context/project", json!({"key": "PROJECT-7"})), ("v/context/users/me", json!({"key": "USER-7"}))]
    {
        let write = json!({"path": path, "value": value});
        operate(&venue.venue, &operator, "v/ops/lattice/write", write).await.unwrap();
    }
    let tools =
        json!(["lattice/read", "lattice/list", "lattice/inspect", "lattice/copy", "job/run", "schema/validate"]);
    let bound = json!({"schema_validate": {"value": "key"}});
    let context = json!([{"with": "v/context", "can": "crud/read"}]);
    let all = json!([{"with": "", "can": "*"}]);
    for (id, caps, bindings, sees) in [
        ("none", Some(json!([])), json!({}), false),
        ("other", Some(json!([{"with": "w", "can": "crud"}])), json!({}), false),
        ("binds", None, bound.clone(), false),
        ("binds-all", Some(all), bound.clone(), false),
        ("named", Some(context.clone()), json!({}), true),
        ("binds-named", Some(context), bound, true),
        ("free", None, json!({}), true),
    ] {
        let mut config = json!({"tools": tools, "defaultTools": false, "toolArgInjection": bindings});
        if let Some(caps) = caps {
            config["caps"] = caps;
        }
        venue.agent(id, config).await;
        for (input, turn) in [("go", 2), ("load", 2)] {
            let session = format!("{id}-{input}");
            let session_id = Some(session.parse().unwrap());
            let submission = Submission { input: json!(input), session_id, ..Submission::default() };
            let job = venue.arrive(id, &session, true, submission).await.job.unwrap();
            venue.ended(&job).await;
            let key = SessionKey { agent: id.parse().unwrap(), session: session.parse().unwrap() };
            let past = ledger::load(&*venue.venue.store, &venue.owner, &key, turn).await.unwrap().unwrap();
            let request = assemble(&past.seen.unwrap().inputs.unwrap()).unwrap().request;
            let shown = serde_json::to_string(&request).unwrap();
            assert_eq!(shown.contains("PROJECT-7"), sees, "{id} {input}: {shown}");
            assert_eq!(shown.contains("USER-7"), sees && input == "go", "{id} {input}: {shown}");
        }
    }
    // Nor by a caller whose token is for one agent.
    let narrow = Authority::new(Some(vec![Capability { with: "g/free".into(), can: "agent/request".into() }]));
    let caller = Caller::new(venue.owner.clone(), "local/me".into(), narrow);
    for path in ["v/context/project", "v/context/users/me", "v/context"] {
        let read = operate(&venue.venue, &caller, "v/ops/lattice/read", json!({"path": path})).await;
        assert!(read.unwrap_err().to_string().contains("crud/read on v/context"), "{path}");
    }
    let all = operate(&venue.venue, &caller, "v/ops/lattice/read", json!({"path": "v"})).await.unwrap();
    assert!(all["value"]["info"].is_object() && !all.to_string().contains("PROJECT-7"), "{all}");
}

const ASKS: &str = r#"
[[rule]]
when = { prompt = "You ask.", turn = 1 }
then = { calls = [{ tool = "agent_request", arguments = { agentId = "{{input}}", input = "go", wait = 60000 } }] }

[[rule]]
when = { turn = 1 }
then = { calls = [
  { tool = "lattice_read", arguments = { path = "v/context/project" } },
  { tool = "lattice_read", arguments = { path = "v/context/users/me" } },
  { tool = "lattice_list", arguments = { path = "v/context" } },
  { tool = "context_load", arguments = { path = "v/context/project" } },
] }

[[rule]]
then = { text = "done" }
"#;

/// An agent that may not read what is filled in does not read it through another one, whatever that one may do.
async fn an_injected_value_is_not_read_through_a_child(on: On) {
    let Some((venue, _dir)) = on.venue(ASKS, Clock::system()).await else { return };
    venue.worker();
    let operator = Caller { operator: true, ..boss(&venue.owner) };
    for (path, value) in
        [("v/context/project", json!({"key": "PROJECT-7"})), ("v/context/users/me", json!({"key": "USER-7"}))]
    {
        let write = json!({"path": path, "value": value});
        operate(&venue.venue, &operator, "v/ops/lattice/write", write).await.unwrap();
    }
    let bound = json!({"schema_validate": {"value": "key"}});
    let asks = json!({"with": "g", "can": "agent"});
    let context = json!({"with": "v/context", "can": "crud/read"});
    for (id, caps, bindings, sees) in [
        ("limited", Some(json!([asks])), json!({}), false),
        ("binds", None, bound.clone(), false),
        ("binds-named", Some(json!([asks, context])), bound, true),
        ("plain", None, json!({}), true),
    ] {
        let tools = json!(["agent/request", "schema/validate"]);
        let mut config = json!({
            "systemPrompt": "You ask.", "tools": tools, "defaultTools": false, "toolArgInjection": bindings,
        });
        if let Some(caps) = caps {
            config["caps"] = caps;
        }
        venue.agent(id, config).await;
        let child = format!("child-of-{id}");
        let entry = json!({"ref": "v/context/project", "label": "project"});
        let tools = json!(["lattice/read", "lattice/list"]);
        let named = json!([{"with": "", "can": "*"}, {"with": "v/context", "can": "crud/read"}]);
        venue.agent(&child, json!({"tools": tools, "defaultTools": false, "context": [entry], "caps": named})).await;
        let job = venue.run(id, &format!("t-{id}"), json!(child)).await;
        let all = trellis::venue::jobs::list(&venue.venue, &venue.owner, 0, 100).await.unwrap().items;
        let served = all.iter().find(|job| job.head.agent.as_str() == child).unwrap_or_else(|| panic!("{id}: {job:?}"));
        let key = SessionKey { agent: served.head.agent.clone(), session: served.head.session.clone() };
        let past = ledger::load(&*venue.venue.store, &venue.owner, &key, 2).await.unwrap().unwrap();
        let request = assemble(&past.seen.unwrap().inputs.unwrap()).unwrap().request;
        let shown = serde_json::to_string(&request).unwrap();
        assert_eq!(shown.contains("PROJECT-7"), sees, "{id}: {shown}");
        assert_eq!(shown.contains("USER-7"), sees, "{id}: {shown}");
    }
}

const MAKES: &str = r#"
[[rule]]
when = { turn = 1 }
then = { calls = [
  { tool = "agent_create", arguments = { agentId = "helper", config = { model = "scripted/echo", systemPrompt = "${key}" } } },
  { tool = "agent_update", arguments = { agentId = "binds", config = { toolArgInjection = {} } } },
  { tool = "agent_fork", arguments = { sourceId = "binds", agentId = "twin", config = { toolArgInjection = {} } } },
  { tool = "agent_context", arguments = { agentId = "shows" } },
  { tool = "lattice_read" },
] }

[[rule]]
then = { text = "done" }
"#;

/// Nor does it make an agent that is shown it, change itself into one, or look at the prompt of one; and no refusal has
/// it.
async fn an_injected_value_is_not_shown_to_created_agents(on: On) {
    let Some((venue, _dir)) = on.venue(MAKES, Clock::system()).await else { return };
    venue.worker();
    let operator = Caller { operator: true, ..boss(&venue.owner) };
    let write = json!({"path": "v/context/project", "value": {"key": "w/PROJECT-7"}});
    operate(&venue.venue, &operator, "v/ops/lattice/write", write).await.unwrap();
    let open = json!({"systemPrompt": "${key}", "tools": [], "defaultTools": false});
    venue.agent("shows", open).await;
    let caps = json!([{"with": "g", "can": "agent"}, {"with": "g", "can": "crud/read"}]);
    let config = json!({
        "tools": ["agent/create", "agent/update", "agent/fork", "agent/context", "lattice/read"],
        "defaultTools": false, "caps": caps, "toolArgInjection": {"lattice_read": {"path": "key"}},
    });
    venue.agent("binds", config).await;
    let job = venue.run("binds", "t", json!("go")).await;
    let key = SessionKey { agent: job.head.agent.clone(), session: job.head.session.clone() };
    let past = ledger::load(&*venue.venue.store, &venue.owner, &key, 2).await.unwrap().unwrap();
    let request = assemble(&past.seen.unwrap().inputs.unwrap()).unwrap().request;
    let shown = serde_json::to_string(&request).unwrap();
    assert!(!shown.contains("PROJECT-7"), "{shown}");
    assert!(shown.contains("requires crud/read on (the value of path)"), "{shown}");
    assert_eq!(shown.matches("takes a capability that names `v/context`").count(), 4, "{shown}");
}

const SENDS: &str = r#"
[[rule]]
when = { turn = 1 }
then = { calls = [{ tool = "http_get" }, { tool = "http_post", arguments = { body = 1 } }, { tool = "queue_publish", arguments = { input = 1, wait = 0 } }] }

[[rule]]
then = { text = "done" }
"#;

/// A host and a queue are shown otherwise than the URL and the job that were filled in.
async fn a_refused_call_shows_no_part_of_what_is_filled_in(on: On) {
    let Some((venue, _dir)) = on.venue(SENDS, Clock::system()).await else { return };
    venue.worker();
    let config = json!({
        "tools": ["v/ops/http/get", "v/ops/http/post", "v/ops/queue/publish"], "defaultTools": false,
        "contextMapping": {"constants": {
            "http_get": {"url": "HTTP://Canary-7.example:8080/x?q=canary-7"},
            "http_post": {"url": "https://canary-7.example/charge"}, "queue_publish": {"queue": "canary-7"},
        }},
    });
    venue.agent("sends", config).await;
    let job = venue.run("sends", "t", json!("go")).await;
    let shown = json!(venue.turns("sends", job.head.session.as_str()).await[0].said).to_string();
    assert!(!shown.to_lowercase().contains("canary-7"), "{shown}");
    assert_eq!(shown.matches("host `(the value of url)`").count(), 2, "{shown}");
    assert!(shown.contains("(the value of queue)"), "{shown}");
    let server = Server::of(std::sync::Arc::clone(&venue.venue)).await;
    let config = agent(&json!([]), &json!({"contextMapping": {"constants": {"none": {"a": 1}}}}));
    let place = "`contextMapping.constants.none` or `toolArgInjection.none`: there is no tool";
    server.put("/api/v1/agents/a", config).await.is_problem(400, place);
}

on_both! {
    a_refused_call_shows_no_part_of_what_is_filled_in
    an_injected_value_is_not_shown_to_created_agents
    a_stored_binding_holds_or_its_tool_is_not_offered
    an_injected_value_is_not_read_by_its_path
    an_injected_value_is_not_read_through_a_child
}
