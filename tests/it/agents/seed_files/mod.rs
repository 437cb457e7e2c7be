//! The configurations of the seed pages, as they stand there, and configurations that are wrong.

mod bad_input;
mod pages;
mod sources;

use crate::support::operate;
use crate::support::venue::TestVenue;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use trellis::bus::embedded::EmbeddedBus;
use trellis::domain::authority::Authority;
use trellis::domain::context::assemble::assemble;
use trellis::domain::context::ledger::{PromptLedger, Row};
use trellis::domain::event::Submission;
use trellis::domain::ids::SessionKey;
use trellis::domain::job::Job;
use trellis::process::clock::Clock;
use trellis::store::embedded::EmbeddedStore;
use trellis::venue::ledger;
use trellis::venue::operation::Caller;

async fn venue(dir: &Path, rules: &Value) -> TestVenue {
    let store = EmbeddedStore::open(dir).unwrap();
    let bus = EmbeddedBus::new(Arc::clone(&store), Duration::from_secs(2), Clock::system()).unwrap();
    let venue = TestVenue::new(store, Arc::new(bus), dir, &json!({"rule": rules}).to_string()).await;
    venue.worker();
    venue
}

/// An operation run by an operator.
async fn operate(venue: &TestVenue, operation: &str, input: Value) -> Value {
    let name = venue.owner.to_string();
    let caller = Caller { operator: true, ..Caller::new(venue.owner.clone(), name, Authority::default()) };
    operate::operate(&venue.venue, &caller, operation, input).await.unwrap()
}

async fn write(venue: &TestVenue, path: &str, value: Value) {
    operate(venue, "lattice/write", json!({"path": path, "value": value})).await;
}

/// A task with the values of its request.
async fn ask(venue: &TestVenue, agent: &str, id: &str, session_context: Value) -> Job {
    let Value::Object(session_context) = session_context else { panic!("expected a map") };
    let session_id = Some(id.parse().unwrap());
    let submission = Submission { input: json!("go"), session_id, session_context, ..Submission::default() };
    let submitted = venue.arrive(agent, id, true, submission).await;
    venue.ended(&submitted.job.unwrap()).await
}

/// What the model saw in a turn, texts and tools, and the ledger of it.
async fn saw(venue: &TestVenue, job: &Job, turn: u64) -> (String, Value, PromptLedger) {
    let session = SessionKey { agent: job.head.agent.clone(), session: job.head.session.clone() };
    let past = ledger::load(&*venue.venue.store, &venue.owner, &session, turn).await.unwrap();
    let inputs = past.unwrap().seen.unwrap().inputs.unwrap();
    let assembled = assemble(&inputs).unwrap();
    let tools = json!(*assembled.request.tools);
    let texts: Vec<_> = assembled.request.messages.iter().map(|message| json!(message)["text"].clone()).collect();
    let texts: Vec<_> = texts.iter().filter_map(Value::as_str).collect();
    (format!("{}\n\n{}", assembled.request.system, texts.join("\n\n")), tools, assembled.ledger)
}

#[track_caller]
fn has(prompt: &str, parts: &[&str]) {
    for part in parts {
        assert!(prompt.contains(part), "expected `{part}` in:\n{prompt}");
    }
}

#[track_caller]
fn row<'l>(ledger: &'l PromptLedger, key: &str) -> &'l Row {
    ledger.rows.iter().find(|row| row.key == key).unwrap_or_else(|| panic!("no `{key}` in {:#?}", ledger.rows))
}

fn output(job: &Job) -> Value {
    job.result.clone().unwrap().output.unwrap_or_default()
}

fn error(job: &Job) -> String {
    job.result.clone().unwrap().error.unwrap_or_default()
}

fn parse(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}
