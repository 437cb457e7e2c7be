//! The context of real turns: loads, entries of every form, tools that are found, loads that must go.

use crate::support::cli::Up;
use crate::support::operate::{boss, operate};
use crate::support::venue::TestVenue;
use serde_json::{Value, json};
use std::sync::Arc;
use trellis::domain::event::Submission;
use trellis::domain::ids::SessionKey;
use trellis::domain::job::{ErrorCode, Job, JobStatus};
use trellis::domain::lattice::Path;
use trellis::domain::lattice::layout::Scope;
use trellis::domain::session::TurnRecord;
use trellis::store::keys;
use trellis::venue::workspace::Workspace;

const RULES: &str = r#"
[[rule]]
when = { agent = "reader", turn = 1, text = "load" }
then = { calls = [{ tool = "context_load", arguments = { path = "w/reports/Q1", label = "Q1 Report", budget = 5000, level = "{{input.level}}" } }, { tool = "context_load", arguments = { path = "s/key" } }] }

[[rule]]
when = { agent = "reader", prompt = "[Context: Q1 Report]\n{total: 42}", text = "forget" }
then = { calls = [{ tool = "context_unload", arguments = { path = "w/reports/Q1" } }] }

[[rule]]
when = { agent = "reader", prompt = "[Context: Q1 Report]\n{total: 42}" }
then = { text = "I see it" }

[[rule]]
when = { agent = "reader" }
then = { text = "I see nothing" }

[[rule]]
when = { agent = "finder", turn = 1 }
then = { calls = [{ tool = "more_tools", arguments = { query = "test never returns" } }] }

[[rule]]
when = { agent = "finder", turn = 2 }
then = { calls = [{ tool = "test_echo", arguments = {} }, { tool = "lattice_write", arguments = { path = "w/x/y", value = "{{tool_result}}" } }] }

[[rule]]
when = { agent = "finder" }
then = { text = "{{tool_result}}" }

[[rule]]
when = { agent = "viewer", prompt = "[Context: echoed]\n{message: \"for ${x}\"}" }
then = { text = "all there" }

[[rule]]
when = { agent = "viewer" }
then = { text = "something is missing" }

[[rule]]
when = { agent = "crowded", turn = 1 }
then = { calls = [{ tool = "context_load", arguments = { path = "w/big/a", budget = 4000 } }, { tool = "context_load", arguments = { path = "w/big/b", budget = 4000 } }] }

[[rule]]
when = { agent = "crowded", turn = 2, prompt = "omitted: loads/w/big/b" }
then = { calls = [{ tool = "lattice_read", arguments = { path = "w/none" } }] }

[[rule]]
when = { agent = "crowded", turn = 3, prompt = "w/big/b [4000B]" }
then = { text = "still loaded" }

[[rule]]
when = { agent = "crowded", turn = 3 }
then = { text = "done" }
"#;

async fn venue() -> (TestVenue, tempfile::TempDir) {
    let (venue, dir) = TestVenue::embedded(RULES).await;
    let venue = venue.foreseen();
    venue.worker();
    (venue, dir)
}

async fn turns(venue: &TestVenue, job: &Job) -> Vec<TurnRecord> {
    let key = SessionKey { agent: job.head.agent.clone(), session: job.head.session.clone() };
    let found = venue.venue.store.scan(&venue.owner, &keys::turns(&key), None, false, 100).await.unwrap();
    found.into_iter().map(|(_, doc)| serde_json::from_slice(&doc.value.unwrap()).unwrap()).collect()
}

async fn ask(venue: &TestVenue, agent: &str, id: &str, session: &str, input: Value) -> Job {
    let submission = Submission { input, session_id: Some(session.parse().unwrap()), ..Submission::default() };
    let submitted = venue.arrive(agent, id, true, submission).await;
    venue.ended(&submitted.job.unwrap()).await
}

fn output(job: &Job) -> Value {
    job.result.clone().unwrap().output.unwrap_or_default()
}

#[tokio::test]
async fn a_loaded_path_is_shown_from_the_next_turn_on_at_its_level() {
    let (venue, _dir) = venue().await;
    venue.write("w/reports/Q1", json!({"total": 42})).await;
    venue.agent("reader", json!({"caps": [{"with": "w/reports", "can": "crud/read"}]})).await;
    let job = ask(&venue, "reader", "t1", "a", json!({"do": "load", "level": "session"})).await;
    assert_eq!(output(&job), json!("I see it"));
    let outcomes: Vec<_> = turns(&venue, &job).await[0].calls.iter().map(|call| call.outcome.clone()).collect();
    assert_eq!(outcomes, ["ok", "denied"]);
    // The session keeps it; another one doesn't have it.
    assert_eq!(output(&ask(&venue, "reader", "t2", "a", json!("look")).await), json!("I see it"));
    assert_eq!(output(&ask(&venue, "reader", "t3", "b", json!("look")).await), json!("I see nothing"));
    // It is read afresh: what it shows is what is there now.
    venue.write("w/reports/Q1", json!({"total": 43})).await;
    assert_eq!(output(&ask(&venue, "reader", "t4", "a", json!("look")).await), json!("I see nothing"));
    venue.write("w/reports/Q1", json!({"total": 42})).await;
    assert_eq!(output(&ask(&venue, "reader", "t5", "a", json!("forget")).await), json!("I see nothing"));
    // At the level of the agent every session has it.
    assert_eq!(
        output(&ask(&venue, "reader", "t6", "c", json!({"do": "load", "level": "agent"})).await),
        json!("I see it")
    );
    assert_eq!(output(&ask(&venue, "reader", "t7", "b", json!("look")).await), json!("I see it"));
    assert_eq!(output(&ask(&venue, "reader", "t8", "b", json!("forget")).await), json!("I see nothing"));
    assert_eq!(output(&ask(&venue, "reader", "t9", "c", json!("look")).await), json!("I see nothing"));
}

#[tokio::test]
async fn tools_that_are_found_are_offered_from_the_next_turn_on() {
    let (venue, _dir) = venue().await;
    venue.agent("finder", json!({"tools": ["more_tools", "v/ops/lattice/write"], "defaultTools": false})).await;
    let job = venue.run("finder", "t1", json!({})).await;
    let calls: Vec<_> = turns(&venue, &job).await.into_iter().flat_map(|turn| turn.calls).collect();
    let outcomes: Vec<_> = calls.iter().map(|call| (call.tool.as_str(), call.outcome.as_str())).collect();
    assert_eq!(outcomes, [("more_tools", "ok"), ("test_echo", "unknown tool"), ("lattice_write", "ok")]);
    let tree = Workspace::new(Arc::clone(&venue.venue.store), venue.owner.clone(), Scope::default());
    let found = tree.get(&Path::parse("w/x/y").unwrap()).await.unwrap().unwrap();
    assert_eq!(found["found"][0]["path"], "v/ops/test/never");
    assert_eq!(found["found"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn entries_of_every_form_are_shown_and_what_fails_says_why() {
    let (venue, _dir) = venue().await;
    venue.agent("echo", json!({"model": {"provider": "scripted", "name": "echo"}})).await;
    let done = venue.run("echo", "t0", json!({"message": {"deep": [1, 2]}})).await;
    venue.write("w/docs/policy", json!("pay on time")).await;
    let config = json!({"context": [
        "Be brief.",
        "w/docs/policy",
        {"op": "v/ops/test/echo", "input": {"message": "for \\${x}"}, "label": "echoed"},
        {"job": done.head.id, "label": "child"},
        {"op": "v/ops/test/error", "label": "broken"},
        {"op": "v/ops/test/never", "label": "hanging"},
        {"op": "v/ops/lattice/write", "input": {"path": "w/a/b", "value": 1}, "label": "writes"},
        {"op": "v/ops/no/such", "label": "unknown"},
        {"ref": "w/docs/none", "label": "gone"},
        {"job": "00".repeat(16), "label": "no job"},
    ]});
    venue.agent("viewer", config).await;
    let job = venue.run("viewer", "t1", json!({})).await;
    assert_eq!(output(&job), json!("all there"));
}

/// A revocation hides a turn by what its record says that the prompt read.
#[tokio::test]
async fn however_an_entry_names_what_it_reads_its_turn_records_it() {
    let (venue, _dir) = venue().await;
    venue.write("w/docs/policy", json!("pay on time")).await;
    venue.write("o/look", json!({"operation": "v/ops/lattice/read"})).await;
    let own = json!({"path": format!("/{}/w/docs/policy", venue.owner)});
    let read = json!({"path": "w/docs/policy"});
    let run = |operation: &str| json!({"operation": operation, "input": read});
    for (agent, entry) in [
        ("plain", json!({"op": "v/ops/lattice/read", "input": read})),
        ("address", json!({"op": "v/ops/lattice/read", "input": own})),
        ("pinned", json!({"op": "o/look", "input": read})),
        ("nested", json!({"op": "v/ops/job/run", "input": run("v/ops/lattice/read")})),
        ("inner", json!({"op": "v/ops/job/run", "input": run("o/look")})),
    ] {
        let model = json!({"provider": "scripted", "name": "echo"});
        venue.agent(agent, json!({"model": model, "context": [entry]})).await;
        let job = venue.run(agent, agent, json!("hello")).await;
        let turns = venue.turns(agent, job.head.session.as_str()).await;
        let used: Vec<_> = turns[0].used.iter().flatten().map(|cap| format!("{} {}", cap.can, cap.with)).collect();
        assert!(used.contains(&"crud/read w/docs/policy".to_owned()), "{agent}: {used:?}");
    }
}

/// Agents that show themselves, or each other, would fill the stack of the process that makes their prompts.
#[tokio::test]
async fn a_prompt_is_no_piece_of_a_prompt() {
    let (venue, _dir) = venue().await;
    let shows = |agent: &str| json!({"op": "v/ops/agent/context", "input": {"agentId": agent}});
    let nested = json!({"operation": "v/ops/agent/context", "input": {"agentId": "nest"}});
    let reloads = json!({"agentId": "reload", "sessionId": "s"});
    let agents = [
        ("mirror", shows("mirror")),
        ("ping", shows("pong")),
        ("pong", shows("ping")),
        ("nest", json!({"op": "v/ops/job/run", "input": nested})),
        ("reload", json!({"op": "v/ops/agent/reload-context", "input": reloads})),
    ];
    for (agent, entry) in &agents {
        let model = json!({"provider": "scripted", "name": "echo"});
        venue.agent(agent, json!({"model": model, "context": [entry]})).await;
    }
    for (agent, _) in &agents {
        let (caller, asked) = (boss(&venue.owner), json!({"agentId": agent}));
        let prompt = operate(&venue.venue, &caller, "v/ops/agent/context", asked).await.unwrap().to_string();
        assert!(prompt.contains("makes a prompt, which can't be a piece of another"), "{agent}: {prompt}");
        assert_eq!(venue.run(agent, agent, json!("hello")).await.status, JobStatus::Complete, "{agent}");
    }
}

/// Covia's: keys with dots between, from the job's `output` on.
#[test]
fn a_part_of_a_job_s_output_is_named_by_dots_in_a_turn() {
    let up = Up::start();
    let output =
        r#"{ a = { b = [1, { c = "by dots" }] }, "x.y" = "as written", output = { z = "a key of that name" } }"#;
    let call = format!("{{ tool = \"complete_task\", arguments = {{ result = {output} }} }}");
    up.agent("maker", &format!("[[rule]]\nthen = {{ calls = [{call}] }}\n"));
    let job = up.run(&["submit", "maker", "x", "--output", "json"]).ok();
    let job: Value = serde_json::from_str(&job).unwrap();
    let job = job["job"].as_str().unwrap().to_owned();
    up.run(&["job", "wait", &job]).ok();
    let entry = |label: &str, path: &str| json!({"job": job, "path": path, "label": label});
    let context = [
        ("whole", "output.a.b.1.c", "by dots"),
        ("bare", "a.b.1.c", "by dots"),
        ("slashes", "a/b/1/c", "by dots"),
        ("dotted", "x.y", "as written"),
        ("key", "output.z", "a key of that name"),
    ];
    let gone = entry("gone", "output.a.none");
    let entries: Vec<Value> = context.iter().map(|(label, path, _)| entry(label, path)).chain([gone]).collect();
    let model = json!({"provider": "scripted", "name": "echo"});
    up.file("viewer.json", &json!({"model": model, "context": entries}).to_string());
    up.run(&["agent", "apply", "viewer.json"]).ok();
    up.run(&["submit", "viewer", "look", "--session", "s", "--wait"]).ok();
    let prompt = up.run(&["turn", "show", "viewer/s/1", "--prompt"]).ok();
    for (label, path, value) in context {
        let shown = prompt.split(&format!("[Context: {label}]")).nth(1).unwrap_or_else(|| panic!("{label}: {prompt}"));
        let shown = shown.split("[Context: ").next().unwrap();
        assert!(shown.contains(value), "{path}: expected `{value}` in: {shown}");
    }
    let shown = up.run(&["turn", "show", "viewer/s/1"]).ok();
    let row = shown.lines().find(|line| line.starts_with("context/gone")).unwrap();
    assert!(row.contains("nothing is there in the job's output"), "{row}");
}

#[tokio::test]
async fn a_missing_required_entry_fails_the_task_before_any_call() {
    let (venue, _dir) = venue().await;
    venue.agent("viewer", json!({"context": [{"ref": "w/docs/none", "required": true}]})).await;
    let job = venue.run("viewer", "t1", json!({})).await;
    let result = job.result.unwrap();
    assert_eq!((job.status, result.error_code), (JobStatus::Failed, Some(ErrorCode::ContextRequiredMissing)));
    assert_eq!(result.error.unwrap(), "required context `w/docs/none` is unavailable: nothing is there");
    assert!(venue.model_calls().is_empty());
}

#[tokio::test]
async fn loads_leave_a_nearly_full_context_and_stay_out() {
    let (venue, _dir) = venue().await;
    venue.write("w/big/a", json!("a".repeat(5_000))).await;
    venue.write("w/big/b", json!("b".repeat(5_000))).await;
    let config = json!({"contextBudget": {"bytes": 11_000}, "defaultTools": false, "tools": ["v/ops/lattice/read"]});
    venue.agent("crowded", config).await;
    let job = venue.run("crowded", "t1", json!({})).await;
    assert_eq!(output(&job), json!("done"));
}
