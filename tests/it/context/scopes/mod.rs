//! Scopes and instances in real turns: what goes with a call, and nothing else of its caller's
//! context.

mod delegates;
mod instances;
mod operations;
mod outputs;
mod worker_takeover;
mod page_examples;

use crate::support::venue::TestVenue;
use crate::support::watched_store::Watch;
use async_trait::async_trait;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use trellis::bus::embedded::EmbeddedBus;
use trellis::domain::chat::{ChatMessage, ModelRequest};
use trellis::domain::context::assemble::assemble;
use trellis::domain::context::ledger::PromptLedger;
use trellis::domain::ids::SessionKey;
use trellis::domain::job::Job;
use trellis::domain::lattice::Path;
use trellis::domain::lattice::layout::Scope;
use trellis::domain::session::TurnRecord;
use trellis::process::clock::Clock;
use trellis::store::embedded::EmbeddedStore;
use trellis::store::{Checkpoint, Lease, LeaseCheck, keys};
use trellis::venue::jobs;
use trellis::venue::ledger;
use trellis::venue::workspace::{Workspace, WriteOp};

async fn venue(rules: &str) -> (TestVenue, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(dir.path()).unwrap();
    let bus = EmbeddedBus::new(Arc::clone(&store), Duration::from_secs(2), Clock::system()).unwrap();
    let venue = TestVenue::new(store, Arc::new(bus), dir.path(), rules).await.foreseen();
    (venue, dir)
}

async fn write(venue: &TestVenue, path: &str, value: Value) {
    let tree = Workspace::new(Arc::clone(&venue.venue.store), venue.owner.clone(), Scope::default());
    let op = WriteOp::Write { path: Path::parse(path).unwrap(), value, expect: None };
    tree.apply_now(venue.venue.now(), &op).await.unwrap();
}

fn session_of(job: &Job) -> SessionKey {
    SessionKey { agent: job.head.agent.clone(), session: job.head.session.clone() }
}

async fn turns(venue: &TestVenue, job: &Job) -> Vec<TurnRecord> {
    let found = venue.venue.store.scan(&venue.owner, &keys::turns(&session_of(job)), None, false, 100).await.unwrap();
    found.into_iter().map(|(_, doc)| serde_json::from_slice(&doc.value.unwrap()).unwrap()).collect()
}

/// What the calls of a turn returned.
fn results(turn: &TurnRecord) -> Vec<&str> {
    let results = turn.said.iter().filter_map(|message| match message {
        ChatMessage::Tool { text, .. } => Some(text.as_str()),
        ChatMessage::User { .. } | ChatMessage::Assistant { .. } => None,
    });
    results.collect()
}

/// The prompt of a turn, built again from its record, and its ledger.
async fn prompt(venue: &TestVenue, job: &Job, turn: u64) -> (ModelRequest, PromptLedger) {
    let store = &*venue.venue.store;
    let past = ledger::load(store, &venue.owner, &session_of(job), turn).await.unwrap().unwrap();
    let seen = past.seen.unwrap();
    let again = assemble(&seen.inputs.unwrap()).unwrap();
    assert_eq!(again.ledger.prompt, past.record.unwrap().prompt, "it replays byte for byte");
    assert_eq!(again.ledger, seen.ledger);
    (again.request, again.ledger)
}

/// Everything that a model reads in it.
fn text_of(request: &ModelRequest) -> String {
    let messages = request.messages.iter().map(|message| match message {
        ChatMessage::User { text, .. } | ChatMessage::Assistant { text, .. } | ChatMessage::Tool { text, .. } => {
            text.as_str()
        }
    });
    std::iter::once(request.system.as_str()).chain(messages).collect::<Vec<_>>().join("\n\n")
}

/// The jobs that an agent serves, oldest first.
async fn jobs_of(venue: &TestVenue, agent: &str) -> Vec<Job> {
    let mut jobs = jobs::list(&venue.venue, &venue.owner, 0, 200).await.unwrap().items;
    jobs.retain(|job| job.head.agent.as_str() == agent);
    jobs.sort_by_key(|job| (job.head.created, job.head.id.clone()));
    jobs
}

/// Holds a worker up between its first reply and the record of it, or between that and the calls.
struct Between {
    is_recorded: bool,
    reached: Arc<Notify>,
    go_on: Arc<Notify>,
}

impl Between {
    fn new(is_recorded: bool) -> Self {
        Self { is_recorded, reached: Arc::default(), go_on: Arc::default() }
    }

    async fn hold(&self, write: &Checkpoint, is_recorded: bool) {
        if write.reply.is_some() && is_recorded == self.is_recorded {
            self.reached.notify_one();
            self.go_on.notified().await;
        }
    }
}

#[async_trait]
impl Watch for Between {
    async fn checkpointing(&self, write: &Checkpoint) {
        self.hold(write, false).await;
    }

    async fn checkpointed(&self, _lease: &Lease, write: &Checkpoint, _held: &LeaseCheck) {
        self.hold(write, true).await;
    }
}

async fn soon(what: &Notify) {
    tokio::time::timeout(Duration::from_mins(1), what.notified()).await.expect("it happens");
}

/// A tool whose calls get these sections.
fn fixed(name: &str, sections: &[&str]) -> Value {
    json!({"operation": "v/ops/test/scoped", "name": name, "scopes": {"const": sections}})
}

/// A tool whose calls ask for some of these.
fn asked(name: &str, sections: &[&str]) -> Value {
    json!({"operation": "v/ops/test/scoped", "name": name, "_scopes": {"type": "array", "items": {"enum": sections}}})
}
