//! Every entrance refuses what is too deep, a list for a map and what is misspelt, each with its place.

use super::nested;
use crate::support::http::Server;
use crate::support::operate::{boss, operate};
use crate::support::venue::TestVenue;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::sync::Arc;
use trellis::domain::agent::budget::ContextBudget;
use trellis::domain::agent::entry::ContextEntry;
use trellis::domain::agent::tool::NamedTool;
use trellis::domain::agent::{AgentConfig, AgentLimits, Retry};
use trellis::domain::approval::AnswerBody;
use trellis::domain::approval::GivenAnswer;
use trellis::domain::authority::Capability;
use trellis::domain::authority::grant;
use trellis::domain::budget::Budget;
use trellis::domain::chat::ModelSettings;
use trellis::domain::decode;
use trellis::domain::event::{ResultBody, Submission};
use trellis::domain::ids::{EventId, JobId};
use trellis::domain::limits::VALUE_DEPTH;
use trellis::domain::message::{BusMessage, InboundKind, MessageAddress};
use trellis::domain::outputs::Outputs;
use trellis::domain::resource::Resources;
use trellis::domain::token::claims::Claims;
use trellis::venue::context::preview::Preview;
use trellis::venue::jobs;
use trellis::venue::ledger::experiment::Experiment;

const AGENT: &str = "/api/v1/agents/a";

async fn server(rules: &str) -> (Server, TestVenue, tempfile::TempDir) {
    let (venue, dir) = TestVenue::embedded(rules).await;
    venue.agent("a", json!({"model": {"provider": "scripted", "name": "echo"}})).await;
    let server = Server::of(Arc::clone(&venue.venue)).await;
    (server, venue, dir)
}

#[tokio::test(flavor = "multi_thread")]
async fn too_deep_values_over_http_are_refused_with_their_place() {
    let (server, _venue, _dir) = server("").await;
    let deep = nested(VALUE_DEPTH);
    let model = json!({"provider": "scripted", "name": "echo"});
    let run = |input: Value| json!({"operation": "v/ops/lattice/write", "input": input});
    for (path, body, place) in [
        ("/api/v1/agents/a/tasks", json!({"input": deep}), "`input.a[0].a"),
        ("/api/v1/agents/a/messages", json!({"input": deep}), "`input.a[0].a"),
        ("/api/v1/agents/a/tasks", json!({"input": 1, "sessionContext": {"k": deep}}), "`sessionContext.k.a[0]"),
        ("/api/v1/run", run(json!({"path": "w/x/y", "value": deep})), "`input.value.a[0]"),
        ("/api/v1/invoke", run(json!({"path": "w/x/y", "value": deep})), "`input.value.a[0]"),
        ("/api/v1/agents/a/context", json!({"task": deep}), "`task.a[0]"),
    ] {
        let answer = server.post(path, body).await;
        answer.is_problem(400, "nested deeper than 64 levels of maps and lists");
        answer.is_problem(400, place);
    }
    let config = json!({"model": model, "tools": [{"name": "t", "description": "d", "input": deep}]});
    server.put(AGENT, config).await.is_problem(400, "`tools[0].input.a[0]");
}

#[tokio::test(flavor = "multi_thread")]
async fn levels_put_below_one_another_count_together() {
    for (venue, _dir) in super::venues("").await {
        let caller = boss(&venue.owner);
        let run = |name: &'static str, input: Value| operate(&venue.venue, &caller, name, input);
        let refused = |result: Result<Value, trellis::venue::operation::OpError>| {
            let error = result.unwrap_err().to_string();
            assert!(error.contains("nested deeper than 64 levels"), "{error}");
        };
        // 60 levels, and the way to a place 20 levels down in it.
        let maps = (0..60).fold(json!(1), |inner, _| json!({"a": inner}));
        run("lattice/write", json!({"path": "w/deep/x", "value": maps})).await.unwrap();
        let below = format!("w/deep/x{}", "/a".repeat(20));
        refused(run("lattice/write", json!({"path": below, "value": nested(50)})).await);
        run("lattice/write", json!({"path": below, "value": nested(VALUE_DEPTH - 20)})).await.unwrap();
        refused(run("lattice/append", json!({"path": format!("{below}/list"), "value": nested(50)})).await);
        refused(run("lattice/copy", json!({"from": "w/deep/x", "to": "w/deep/y/a/b/c/d/e"})).await);
        run("lattice/append", json!({"path": "w/list", "value": nested(VALUE_DEPTH - 1)})).await.unwrap();
        refused(run("lattice/append", json!({"path": "w/list", "value": nested(VALUE_DEPTH)})).await);
        refused(run("lattice/write", json!({"path": "w/all", "value": nested(VALUE_DEPTH + 1)})).await);
        // Text that would be too deep as a value stays text.
        let text = nested(100).to_string();
        run("lattice/write", json!({"path": "w/deep/t", "value": text})).await.unwrap();
        assert_eq!(venue.read("w/deep/t").await.unwrap(), json!(text));
        let merged = run("json/merge", json!({"values": [maps, {"a": {"b": 1}}]})).await.unwrap();
        assert!(decode::check(&merged["value"]).is_ok());
        let whole = run("lattice/read", json!({"path": "w"})).await.unwrap();
        assert_eq!(whole["exists"], true);
    }
}

const RULES: &str = r#"
[[rule]]
when = { agent = "writer", turn = 1 }
then = { calls = [{ tool = "lattice_write", arguments = { path = "w/x/y", value = "{{input}}" } }] }

[[rule]]
when = { agent = "deep", turn = 1 }
then = { calls = [{ tool = "lattice_write", arguments = { path = "w/x/y", value = DEEP } }] }

[[rule]]
then = { text = "{{tool_result}}" }
"#;

/// The worker's queue: what a stranger publishes, and arguments of a model.
#[tokio::test(flavor = "multi_thread")]
async fn too_deep_values_from_queue_and_model_are_refused() {
    let deep = format!("{}1{}", "[".repeat(VALUE_DEPTH + 2), "]".repeat(VALUE_DEPTH + 2));
    for (venue, _dir) in super::venues(&RULES.replace("DEEP", &deep)).await {
        venue.agent("writer", json!({})).await;
        venue.agent("deep", json!({})).await;
        venue.worker();
        let publish = async |id: &str, body: Value| {
            let to = MessageAddress::In {
                owner: venue.owner.clone(),
                agent: "writer".parse().unwrap(),
                kind: InboundKind::Task,
            };
            venue.venue.bus.publish(&BusMessage { to, id: Some(id.into()), body, trace: None }).await.unwrap();
            JobId::derive(&venue.venue.key, &venue.owner, &EventId::new(id).unwrap())
        };
        let deep = publish("deep", json!({"input": nested(VALUE_DEPTH)})).await;
        let list = publish("list", json!(["hello", "sess1"])).await;
        let fits = publish("fits", json!({"input": nested(VALUE_DEPTH - 2)})).await;
        let mut done = None;
        for _ in 0..600 {
            done = jobs::get(&venue.venue, &venue.owner, &fits).await.unwrap().and_then(|job| job.result);
            if done.is_some() {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
        let text = done.expect("the job ends").output.unwrap_or_default().to_string();
        assert!(text.contains("written"), "{text}");
        for refused in [deep, list] {
            assert_eq!(jobs::get(&venue.venue, &venue.owner, &refused).await.unwrap(), None);
        }
        let job = venue.run("deep", "model", json!("go")).await;
        let text = job.result.unwrap().output.unwrap().to_string();
        assert!(text.contains("nested deeper than 64 levels"), "{text}");
        let turns = venue.turns("deep", job.head.session.as_str()).await;
        assert!(!json!(turns[0].said).to_string().contains("[[["), "{:?}", turns[0].said);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_of_bodies_name_the_key() {
    let (server, _venue, _dir) = server("").await;
    let tasks = "/api/v1/agents/a/tasks";
    for (body, part) in [
        (json!(["hello", "sess1"]), "expected a map with `"),
        (json!("hello"), "expected a map with `"),
        (json!({"input": 1, "sessionId": 7}), "`sessionId`: expected a string, got number 7"),
        (json!({"input": 1, "budget": {"tokens": "many"}}), "`budget.tokens`: expected a whole number of at least 0"),
        (json!({"input": 1, "budget": [5]}), "`budget`: expected a map with `"),
        (json!({"input": 1, "contextIds": ["a", 3]}), "`contextIds[1]`: expected a string, got number 3"),
        (json!({"inptu": 1}), "unknown field `inptu`, did you mean `input`; known are `input`, `sessionId`, `replyTo`"),
    ] {
        server.post(tasks, body).await.is_problem(400, part);
    }
    let agent = |change: Value| {
        let mut config = json!({"model": {"provider": "scripted", "name": "echo"}});
        config.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        config
    };
    for (change, part) in [
        (json!({"defaultTools": "no"}), "`defaultTools`: expected a boolean, got text \"no\""),
        (json!({"caps": [["w", "crud"]]}), "`caps[0]`: expected a map with `"),
        (
            json!({"contextMapping": {"k": "sesion.k"}}),
            "`contextMapping.k`: unknown tier `sesion`, did you mean `session.k`",
        ),
        (json!({"toolArgInjection": {"t": {"a": "usr.id"}}}), "`toolArgInjection.t.a`: unknown tier `usr`"),
    ] {
        server.put(AGENT, agent(change)).await.is_problem(400, part);
    }
    let replay = "/api/v1/agents/a/turns/main/1/replay";
    server.post(replay, json!({"without": "w/x"})).await.is_problem(400, "`without`: expected a list");
    server.post("/api/v1/agents/a/context", json!([1])).await.is_problem(400, "expected a map with `");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_preview_without_a_task_takes_nothing_of_a_request() {
    let (server, _venue, _dir) = server("").await;
    let path = "/api/v1/agents/a/context";
    for (key, value) in [
        ("context", json!([{"with": "w", "can": "crud/read"}])),
        ("context", json!([])),
        ("contextIds", json!(["app/user/u_1"])),
        ("sessionContext", json!({"who": "Ann"})),
    ] {
        let answer = server.post(path, json!({(key): value})).await;
        answer.is_problem(400, &format!("`{key}`: it belongs to the request of a task, and there is no `task`"));
        server.post(path, json!({"task": "x", (key): value})).await.body(200);
    }
    let empty = json!({"context": null, "contextIds": [], "sessionContext": {}});
    server.post(path, empty).await.body(200);
}

/// Every map in `value` as the list of its values: what serde takes for a struct.
fn as_lists(value: &Value) -> Vec<Value> {
    let mut found = Vec::new();
    match value {
        Value::Object(map) => {
            found.push(map.values().cloned().collect());
            for (key, inner) in map {
                for changed in as_lists(inner) {
                    let mut map = map.clone();
                    map.insert(key.clone(), changed);
                    found.push(map.into());
                }
            }
        }
        Value::Array(items) => {
            for (at, inner) in items.iter().enumerate() {
                for changed in as_lists(inner) {
                    let mut items = items.clone();
                    items[at] = changed;
                    found.push(items.into());
                }
            }
        }
        _ => {}
    }
    found
}

/// A public struct with an example that has every struct inside it; `read` reads one.
fn refuses_lists(name: &str, example: &Value, read: impl Fn(Value) -> Result<(), String>) {
    read(example.clone()).unwrap_or_else(|error| panic!("{name}: {error}"));
    let lists = as_lists(example);
    assert!(!lists.is_empty(), "{name} has no map");
    for list in lists {
        assert!(read(list.clone()).is_err(), "{name} takes {list}");
    }
}

fn typed<T: DeserializeOwned>(value: Value) -> Result<(), String> {
    decode::into_type::<T>(value).map(drop).map_err(|wrong| wrong.to_string())
}

#[test]
fn no_public_struct_takes_a_list() {
    let id = "0f".repeat(16);
    refuses_lists("Submission", &json!({"input": 1, "sessionId": "s", "budget": {"tokens": 5}}), typed::<Submission>);
    let result = json!({"sessionId": "s", "job": id, "result": {"status": "COMPLETE", "output": 1}});
    refuses_lists("ResultBody", &result, typed::<ResultBody>);
    refuses_lists(
        "AnswerBody",
        &json!({"approval": id, "answer": {"approve": {"scopes": ["x"]}}}),
        typed::<AnswerBody>,
    );
    refuses_lists("Given", &json!({"reject": {"reason": "no"}}), typed::<GivenAnswer>);
    refuses_lists("Given", &json!({"answers": {"a": 1}}), typed::<GivenAnswer>);
    refuses_lists("Budget", &json!({"tokens": 5, "cost": 1.5}), typed::<Budget>);
    refuses_lists("Capability", &json!({"with": "w", "can": "crud"}), typed::<Capability>);
    refuses_lists(
        "ModelSettings",
        &json!({"provider": "p", "name": "n", "price": {"input": 1, "output": 2}}),
        typed::<ModelSettings>,
    );
    refuses_lists("ContextBudget", &json!({"bytes": 5000}), typed::<ContextBudget>);
    refuses_lists("ContextEntry", &json!({"ref": "w/x", "budget": 500}), typed::<ContextEntry>);
    refuses_lists(
        "NamedTool",
        &json!({"operation": "v/ops/a/b", "scopes": {"const": ["context/x"]}}),
        typed::<NamedTool>,
    );
    refuses_lists("Outputs", &json!({"complete": {"schema": true}}), typed::<Outputs>);
    refuses_lists("Resources", &json!({"notes": {"kind": "memory", "mode": "read"}}), typed::<Resources>);
    refuses_lists("AgentLimits", &json!({"turns": 3, "tokens": 4}), typed::<AgentLimits>);
    refuses_lists("Retry", &json!({"attempts": 3}), typed::<Retry>);
    refuses_lists("Experiment", &json!({"without": ["w/x"], "model": "a/b"}), typed::<Experiment>);
    refuses_lists("Preview", &json!({"contextIds": ["a"], "session": "s"}), typed::<Preview>);
    let config = json!({
        "model": {"provider": "scripted", "name": "echo"}, "limits": {"turns": 3}, "retry": {"attempts": 2},
        "caps": [{"with": "w", "can": "crud"}], "delegable": [{"with": "w", "can": "crud/read"}],
        "tools": [{"operation": "v/ops/lattice/read", "name": "r"}], "context": [{"ref": "w/x"}],
        "contextBudget": {"bytes": 5000}, "resources": {"notes": {"kind": "memory"}},
        "toolArgInjection": {"r": {"path": "k"}},
    });
    refuses_lists("AgentConfig", &config, |value| AgentConfig::parse(&value).map(drop).map_err(|e| e.to_string()));
    refuses_lists("grants", &json!([{"with": "w", "can": "crud"}]), |value| {
        grant::parse(value.as_array().unwrap(), &[]).map(drop).map_err(|e| e.to_string())
    });
    let claims = json!({"iss": "i", "sub": "acme/ann", "exp": 1, "att": [{"with": "w", "can": "crud"}]});
    refuses_lists("Claims", &claims, |value| {
        Claims::parse(value.to_string().as_bytes()).map(drop).map_err(|e| e.to_string())
    });
}
