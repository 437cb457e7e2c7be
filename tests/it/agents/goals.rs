//! Goal trees and typed outputs in real turns: what each frame sees, and that a past turn of a tree
//! is rebuilt byte for byte although its results came later.

use crate::support::venue::TestVenue;
use serde_json::{Value, json};
use trellis::domain::chat::ChatMessage;
use trellis::domain::context::assemble::assemble;
use trellis::domain::event::Submission;
use trellis::domain::ids::SessionKey;
use trellis::domain::job::{ErrorCode, Job, JobStatus};
use trellis::domain::session::TurnRecord;
use trellis::venue::context::preview::{self, Preview};
use trellis::venue::ingress::{self, Arrival};
use trellis::venue::ledger;

const RULES: &str = r#"
# Within a goal, the innermost first.
[[rule]]
when = { agent = "planner", prompt = "[Current goal 2]", tool = "lattice_read" }
then = { text = "the price of bolts is {{tool_result.value}}" }

[[rule]]
when = { agent = "planner", prompt = "[Current goal 2]" }
then = { calls = [{ tool = "lattice_read", arguments = { path = "w/prices/bolts" } }] }

[[rule]]
when = { agent = "planner", prompt = "[Current goal 1]", tool = "subgoal" }
then = { calls = [{ tool = "complete", arguments = { bolts = 3 } }] }

[[rule]]
when = { agent = "planner", prompt = "[Current goal 1]", tool = "context_load" }
then = { calls = [{ tool = "subgoal", arguments = { description = "Look up the price of bolts." } }] }

[[rule]]
when = { agent = "planner", prompt = "[Current goal 1]" }
then = { calls = [{ tool = "context_load", arguments = { path = "w/prices", label = "Prices", budget = 300 } }] }

[[rule]]
when = { agent = "planner", tool = "subgoal" }
then = { calls = [{ tool = "complete", arguments = { total = 6, items = ["bolts"] } }] }

[[rule]]
when = { agent = "planner" }
then = { text = "I split it up.", calls = [{ tool = "subgoal", arguments = { description = "Find the prices." } }] }

# Never gives what is asked for.
[[rule]]
when = { agent = "stubborn", turn = 2 }
then = { calls = [{ tool = "complete_task", arguments = { result = "six" } }] }

[[rule]]
when = { agent = "stubborn" }
then = { text = "it is six" }

[[rule]]
then = { calls = [{ tool = "complete_task", arguments = { result = [1, 2] } }] }
"#;

/// Two goals of one reply, the second of which needs what the first has found.
const SEQUENTIAL: &str = r#"
[[rule]]
when = { agent = "planner", prompt = "[Current goal 2]" }
then = { text = "drafted" }

[[rule]]
when = { agent = "planner", prompt = "[Current goal 1]" }
then = { calls = [{ tool = "complete", arguments = { strongest = "vendor-b" } }] }

[[rule]]
when = { agent = "planner", tool = "subgoal" }
then = { calls = [{ tool = "complete", arguments = { total = 6 } }] }

[[rule]]
when = { agent = "planner" }
then = { calls = [{ tool = "subgoal", arguments = { description = "Compare the vendors." } }, { tool = "subgoal", arguments = { description = "Draft the report." } }] }
"#;

fn planner() -> Value {
    json!({
        "loop": "goalTree", "tools": ["subgoal", "compact"],
        "outputs": {"complete": {"schema": {
            "type": "object", "properties": {"total": {"type": "number"}, "items": {"type": "array"}},
            "required": ["total"], "additionalProperties": false
        }}}
    })
}

async fn venue() -> (TestVenue, tempfile::TempDir) {
    let (venue, dir) = TestVenue::embedded(RULES).await;
    let venue = venue.foreseen();
    venue.write("w/prices/bolts", json!(3)).await;
    venue.worker();
    (venue, dir)
}

async fn run(venue: &TestVenue, agent: &str, id: &str, response_schema: Option<Value>) -> Job {
    let session_id = Some("s".parse().unwrap());
    let submission = Submission { input: json!("buy bolts"), session_id, response_schema, ..Submission::default() };
    let submitted = venue.arrive(agent, id, true, submission).await;
    venue.ended(&submitted.job.unwrap()).await
}

/// The prompt of a turn, built again from its record; its hash is the recorded one.
async fn prompt(venue: &TestVenue, record: &TurnRecord) -> String {
    let session = SessionKey { agent: "planner".parse().unwrap(), session: "s".parse().unwrap() };
    let past = ledger::load(&*venue.venue.store, &venue.owner, &session, record.turn).await.unwrap().unwrap();
    let again = assemble(&past.seen.unwrap().inputs.unwrap()).unwrap();
    assert_eq!(again.ledger.prompt, record.prompt, "turn {}", record.turn);
    let text = |message: &ChatMessage| match message {
        ChatMessage::User { text, .. } | ChatMessage::Assistant { text, .. } | ChatMessage::Tool { text, .. } => {
            text.clone()
        }
    };
    again.request.messages.iter().map(text).collect::<Vec<_>>().join("\n")
}

#[tokio::test]
async fn each_goal_sees_its_own_conversation_and_returns_its_result() {
    let (venue, _dir) = venue().await;
    venue.agent("planner", planner()).await;
    let job = run(&venue, "planner", "t1", None).await;
    assert_eq!(job.result.unwrap().output, Some(json!({"total": 6, "items": ["bolts"]})));
    let turns = venue.turns("planner", "s").await;
    assert_eq!(turns.iter().map(|turn| turn.frame).collect::<Vec<_>>(), [0, 1, 1, 2, 2, 1, 0]);
    let mut prompts = Vec::new();
    for turn in &turns {
        prompts.push(prompt(&venue, turn).await);
    }
    let shown = |part: &str| prompts.iter().map(|prompt| prompt.contains(part)).collect::<Vec<_>>();
    let (t, f) = (true, false);
    assert_eq!(shown("[Current goal 1] Find the prices."), [f, t, t, f, f, t, f]);
    assert_eq!(shown("[Current goal 2] Look up the price of bolts."), [f, f, f, t, t, f, f]);
    assert_eq!(shown("[Goal 0] {goal: \"buy bolts\", turns: 1, latest: \"I split it up.\"}"), [f, t, t, f, f, t, f]);
    assert_eq!(shown("[Goal 0] \"buy bolts\""), [f, f, f, t, t, f, f], "farther away in fewer bytes");
    assert_eq!(shown("[Goal 1] {goal: \"Find the prices.\""), [f, f, f, t, t, f, f]);
    // Loaded in goal 1, inherited by goal 2, gone with goal 1.
    assert_eq!(shown("[Context: Prices]"), [f, f, t, t, t, t, f]);
    assert_eq!(shown("the price of bolts is 3"), [f, f, f, f, f, t, f]);
    assert_eq!(shown(r#"{"bolts":3}"#), [f, f, f, f, f, f, t]);
}

#[tokio::test]
async fn a_later_goal_sees_the_result_of_an_earlier_one() {
    let (venue, _dir) = TestVenue::embedded(SEQUENTIAL).await;
    venue.worker();
    venue.agent("planner", planner()).await;
    let job = run(&venue, "planner", "t1", None).await;
    assert_eq!(job.result.unwrap().output, Some(json!({"total": 6})));
    let mut prompts = Vec::new();
    for turn in &venue.turns("planner", "s").await {
        prompts.push((turn.frame, prompt(&venue, turn).await));
    }
    let line = r#"[Ended goal] {goal: "Compare the vendors.", result: {strongest: "vendor-b"}}"#;
    let shown: Vec<_> = prompts.iter().map(|(frame, prompt)| (*frame, prompt.contains(line))).collect();
    assert_eq!(shown, [(0, false), (1, false), (2, true), (0, false)]);
}

#[tokio::test]
async fn a_preview_shows_what_the_task_must_end_with() {
    let (venue, _dir) = venue().await;
    venue.agent("planner", planner()).await;
    let asked = Preview { task: Some(json!("buy bolts")), ..Preview::default() };
    let shown = preview::inputs(&venue.venue, &venue.owner, &"planner".parse().unwrap(), asked).await.unwrap();
    run(&venue, "planner", "t1", None).await;
    let session = SessionKey { agent: "planner".parse().unwrap(), session: "s".parse().unwrap() };
    let past = ledger::load(&*venue.venue.store, &venue.owner, &session, 1).await.unwrap().unwrap();
    let real = past.seen.unwrap().inputs.unwrap();
    assert_eq!((&shown.frame, &shown.tools.specs), (&real.frame, &real.tools.specs));
}

#[tokio::test]
async fn a_request_may_say_what_its_output_must_be() {
    let (venue, _dir) = venue().await;
    venue.agent("lister", json!({})).await;
    let list = json!({"type": "array", "items": {"type": "integer"}});
    let job = run(&venue, "lister", "t1", Some(list)).await;
    assert_eq!(job.result.unwrap().output, Some(json!([1, 2])));
    let job = run(&venue, "lister", "t2", Some(json!({"type": "array", "items": {"type": "string"}}))).await;
    let result = job.result.unwrap();
    assert_eq!((result.status, result.error_code), (JobStatus::Failed, Some(ErrorCode::OutputInvalid)));
    let error = result.error.unwrap();
    assert!(error.contains("at `/0`: 1 is not of type \"string\""), "{error}");
}

#[tokio::test]
async fn an_agent_that_never_fits_fails_after_two_refusals() {
    let (venue, _dir) = venue().await;
    venue.agent("stubborn", json!({"outputs": {"complete": {"schema": {"type": "number"}}}})).await;
    let job = run(&venue, "stubborn", "t1", None).await;
    assert_eq!(job.result.unwrap().error_code, Some(ErrorCode::OutputInvalid));
    assert_eq!(venue.turns("stubborn", "s").await.len(), 3, "it is not asked a fourth time");
}

#[tokio::test]
async fn an_unusable_schema_is_refused_before_acceptance() {
    let (venue, _dir) = venue().await;
    venue.agent("lister", json!({})).await;
    for (task, schema, expected) in [
        (true, json!("list"), "`responseSchema`: expected a JSON Schema as a map, got \"list\""),
        (true, json!({"type": "lists"}), "`responseSchema`: not a JSON Schema: "),
        (false, json!({"type": "array"}), "`responseSchema`: a message has no output, give it to a task"),
    ] {
        let arrival = Arrival {
            owner: venue.owner.clone(),
            agent: "lister".parse().unwrap(),
            task,
            id: ingress::fresh_id(),
            submission: Submission { response_schema: Some(schema), ..Submission::default() },
            received: venue.venue.now(),
            sequence: 0,
            by: trellis::domain::principal::Principal::ANYBODY,
            may_override: false,
            trace: None,
        };
        let error = ingress::submit(&venue.venue, &arrival).await.unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    }
}
