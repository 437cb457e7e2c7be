//! Resources through real turns: what is remembered, who sees it, and how it is erased.

mod cli;
mod files;
mod kinds;
mod memory;
mod purge;
mod scratchpad;
mod shared;

use crate::support::redis::RedisServer;
use crate::support::venue::TestVenue;
use crate::support::watched_store::{Watch, Watched};
use async_trait::async_trait;
use serde_json::{Value, json};
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::Notify;
use trellis::bus::embedded::EmbeddedBus;
use trellis::domain::chat::ChatMessage;
use trellis::domain::context::assemble::assemble;
use trellis::domain::event::Submission;
use trellis::domain::ids::SessionKey;
use trellis::domain::job::Job;
use trellis::domain::session::TurnRecord;
use trellis::process::clock::Clock;
use trellis::store::embedded::EmbeddedStore;
use trellis::store::redis::{RedisStore, ServerOrInjected};
use trellis::store::{Checkpoint, Lease, LeaseCheck, Store, keys};
use trellis::venue::ledger;

/// The calls of these tests: a tool, and which arguments it is given.
const SHAPES: [(&str, &[&str]); 31] = [
    ("memory_read", &[]),
    ("memory_read", &["topics"]),
    ("memory_search", &["query"]),
    ("memory_write", &["content"]),
    ("memory_write", &["content", "topics"]),
    ("memory_write", &["content", "scope"]),
    ("memory_correct", &["content", "id"]),
    ("memory_write", &["content", "type"]),
    ("memory_put", &["content", "key"]),
    ("memory_put", &["content", "key", "type"]),
    ("memory_get", &["key"]),
    ("memory_forget", &["id"]),
    ("memory_forget", &["scope"]),
    ("memory_forget", &["key"]),
    ("memory_read", &["limit"]),
    ("memory_forget", &[]),
    ("files_list", &[]),
    ("files_read", &["path"]),
    ("files_read", &["length", "offset", "path"]),
    ("files_write", &["content", "path"]),
    ("files_write", &["content", "expect", "path"]),
    ("docs_list", &[]),
    ("docs_read", &["id"]),
    ("docs_read", &["id", "namespace"]),
    ("docs_search", &["query"]),
    ("docs_search", &["namespace", "query"]),
    ("docs_put", &["content", "id"]),
    ("docs_put", &["content", "id", "namespace"]),
    ("docs_delete", &["id"]),
    ("lattice_read", &["path"]),
    ("job_run", &["input", "operation"]),
];

/// The input of a task by which its agent makes this call; `word` is `do`, or
/// `beside` for another call that happens once.
fn task(word: &str, tool: &str, args: &Value) -> Value {
    let mut keys: Vec<_> = args.as_object().unwrap().keys().map(String::as_str).collect();
    keys.sort_unstable();
    json!({word: format!("{tool}({})", keys.join(",")), "args": args})
}

/// Agents that hand on, then one rule per tool: the task says which, and with what.
fn rules() -> String {
    let mut rules = String::new();
    for (agent, child) in [("top", "middle"), ("middle", "leaf")] {
        let ask = format!(
            r#"{{ tool = "agent_request", arguments = {{ agentId = "{child}", input = "{{{{input}}}}", wait = 60000 }} }}"#
        );
        let _ = writeln!(rules, "[[rule]]\nwhen = {{ agent = \"{agent}\", turn = 1 }}\nthen = {{ calls = [{ask}] }}\n");
    }
    for (tool, keys) in SHAPES {
        let arguments: Vec<_> = keys.iter().map(|key| format!("{key} = \"{{{{input.args.{key}}}}}\"")).collect();
        let call = format!("{{ tool = \"{tool}\", arguments = {{ {} }} }}", arguments.join(", "));
        let once = r#"{ tool = "test_once", arguments = {} }"#;
        for (word, calls) in [("do", call.clone()), ("beside", format!("{call}, {once}"))] {
            let when = format!(r#"{{ turn = 1, text = '"{word}":"{tool}({})"' }}"#, keys.join(","));
            let _ = writeln!(rules, "[[rule]]\nwhen = {when}\nthen = {{ calls = [{calls}] }}\n");
        }
    }
    let say = "[[rule]]\nwhen = { text = '\"say\":' }\nthen = { text = \"{{input.say}}\" }\n\n";
    rules + say + "[[rule]]\nthen = { text = \"done\" }\n"
}

/// Holds a turn up between its calls and its commit.
#[derive(Clone, Default)]
struct HeldUp {
    reached: Arc<Notify>,
    go_on: Arc<Notify>,
    was: Arc<AtomicBool>,
}

#[async_trait]
impl Watch for HeldUp {
    async fn checkpointed(&self, _lease: &Lease, write: &Checkpoint, _held: &LeaseCheck) {
        if !write.calls.is_empty() && !self.was.swap(true, Ordering::SeqCst) {
            self.reached.notify_one();
            self.go_on.notified().await;
        }
    }
}

/// Memory and files, to be read and written.
fn writable() -> Value {
    json!({"memory": {"mode": "read-write"}, "files": {"mode": "read-write"}})
}

struct Site {
    venue: TestVenue,
    _dir: tempfile::TempDir,
}

#[derive(Clone, Copy)]
enum Backend {
    Embedded,
    Redis,
}

impl Site {
    async fn new() -> Self {
        Self::over(Backend::Embedded).await.unwrap()
    }

    /// `None` when there is no `redis-server`.
    async fn over(backend: Backend) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let embedded = EmbeddedStore::open(dir.path()).unwrap();
        let bus = EmbeddedBus::new(Arc::clone(&embedded), Duration::from_secs(2), Clock::system()).unwrap();
        let store: Arc<dyn Store> = match backend {
            Backend::Embedded => embedded,
            Backend::Redis => {
                let options = RedisServer::shared()?.options(ServerOrInjected::Server);
                RedisStore::open(options).await.unwrap()
            }
        };
        let venue = TestVenue::new(store, Arc::new(bus), dir.path(), &rules()).await;
        Some(Self { venue, _dir: dir })
    }

    /// Whose first call that happens once is held up until it is let go.
    async fn held_up() -> (Self, HeldUp) {
        let dir = tempfile::tempdir().unwrap();
        let embedded = EmbeddedStore::open(dir.path()).unwrap();
        let bus = EmbeddedBus::new(Arc::clone(&embedded), Duration::from_secs(2), Clock::system()).unwrap();
        let watch = HeldUp::default();
        let store = Arc::new(Watched { inner: embedded, watch: watch.clone() });
        let venue = TestVenue::new(store, Arc::new(bus), dir.path(), &rules()).await;
        (Self { venue, _dir: dir }, watch)
    }

    /// An agent named `clerk`, and a worker.
    async fn clerk(self, resources: Value) -> Self {
        self.venue.agent("clerk", json!({"resources": resources, "tools": ["v/ops/test/once"]})).await;
        self.venue.worker();
        self
    }

    /// Runs a task of an agent under grants, in a session of its own.
    async fn ask(&self, agent: &str, id: &str, grants: Value, input: Value) -> Job {
        let context = grants.as_array().cloned();
        let submission = Submission { input, session_id: Some(id.parse().unwrap()), context, ..Submission::default() };
        let submitted = self.venue.arrive(agent, id, true, submission).await;
        self.venue.ended(&submitted.job.unwrap()).await
    }

    /// What a tool of `clerk` answered: its outcome, and its text.
    async fn call(&self, id: &str, grants: Value, tool: &str, args: Value) -> (String, String) {
        self.ask("clerk", id, grants, task("do", tool, &args)).await;
        self.first("clerk", id).await
    }

    /// What a call of `clerk` that must not fail returned.
    async fn ok(&self, id: &str, grants: Value, tool: &str, args: Value) -> Value {
        let (outcome, text) = self.call(id, grants, tool, args).await;
        assert_eq!(outcome, "ok", "{tool}: {text}");
        serde_json::from_str(&text).unwrap()
    }

    async fn turns(&self, agent: &str, session: &str) -> Vec<TurnRecord> {
        let key = key(agent, session);
        let found = self.venue.venue.store.scan(&self.venue.owner, &keys::turns(&key), None, false, 100).await.unwrap();
        found.into_iter().map(|(_, doc)| serde_json::from_slice(&doc.value.unwrap()).unwrap()).collect()
    }

    /// Outcome and text of the first call of a session.
    async fn first(&self, agent: &str, session: &str) -> (String, String) {
        let turn = self.turns(agent, session).await.remove(0);
        let text = turn.said.iter().find_map(|message| match message {
            ChatMessage::Tool { text, .. } => Some(text.clone()),
            ChatMessage::User { .. } | ChatMessage::Assistant { .. } => None,
        });
        (turn.calls[0].outcome.clone(), text.unwrap())
    }

    /// The reference data of the first prompt of a session, and its ledger's row of a key. The prompt is
    /// built again from its record, and must come out as it was.
    async fn saw(&self, agent: &str, session: &str, row: &str) -> (String, Option<ledger_row::Row>) {
        let store = &*self.venue.venue.store;
        let past = ledger::load(store, &self.venue.owner, &key(agent, session), 1).await.unwrap().unwrap();
        let seen = past.seen.unwrap();
        let again = assemble(&seen.inputs.unwrap()).unwrap();
        assert_eq!(again.ledger, seen.ledger, "replayed");
        assert_eq!(Some(again.ledger.prompt), past.record.map(|record| record.prompt), "the same bytes");
        let ChatMessage::User { text, .. } = again.request.messages[0].clone() else { panic!("no reference data") };
        (text, seen.ledger.rows.into_iter().find(|found| found.key == row))
    }

    /// Tools of the first prompt of a session.
    async fn tools(&self, agent: &str, session: &str) -> Vec<String> {
        let store = &*self.venue.venue.store;
        let past = ledger::load(store, &self.venue.owner, &key(agent, session), 1).await.unwrap().unwrap();
        let tools = past.seen.unwrap().inputs.unwrap().tools.names().into_iter().map(str::to_owned).collect::<Vec<_>>();
        tools.into_iter().filter(|name| ["memory", "files", "docs"].iter().any(|of| name.starts_with(of))).collect()
    }

    async fn revoke(&self, path: &str) {
        self.venue.revoke(path).await;
    }
}

mod ledger_row {
    pub use trellis::domain::context::ledger::Row;
}

fn key(agent: &str, session: &str) -> SessionKey {
    SessionKey { agent: agent.parse().unwrap(), session: session.parse().unwrap() }
}

/// Contents of the entries of a read, the newest first.
fn contents(read: &Value) -> Vec<&str> {
    read["entries"].as_array().unwrap().iter().map(|entry| entry["content"].as_str().unwrap()).collect()
}
