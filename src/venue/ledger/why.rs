//! In which turns bytes of a path reached a model: as context, or as the result of a tool. What was
//! read says its record, which is written where it is read.

use super::walk_agent;
use crate::domain::authority::{Authority, Capability};
use crate::domain::chat::{Arguments, ChatMessage};
use crate::domain::context::ledger::{Row, Status};
use crate::domain::ids::{AgentId, Owner, SessionKey};
use crate::domain::origin::{Seen, overlap};
use crate::domain::session::{CallRecord, TurnRecord};
use crate::domain::time::Millis;
use crate::store::{Store, StoreError, keys};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One way in which bytes of a path reached a model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathUse {
    /// The agent.
    pub agent: String,
    /// Its session.
    pub session: String,
    /// The turn; of a tool result the one that made the call: the model sees it from the next on.
    pub turn: u64,
    /// Key of the part, or `tool <name>`.
    pub via: String,
    /// Path that was read.
    pub source: String,
    /// Version of the document that held it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
    /// Operation that read it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub through: String,
    /// Where its bytes went, when they were copied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub into: Option<String>,
    /// Bytes in the prompt.
    pub bytes: usize,
    /// When the agent was removed, whose turns are gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removed: Option<Millis>,
}

impl PathUse {
    /// The reader may read what was read; of several sources, all.
    pub fn may_be_named_to(&self, reader: &Authority) -> bool {
        let place = |source: &str| match source.strip_prefix("n/") {
            Some(rest) => format!("g/{}/n/{rest}", self.agent),
            None => source.to_owned(),
        };
        let may = |source: &str| reader.is_unlimited() || reader.may_know(&read_of(place(source)));
        self.source.split(", ").all(may)
    }
}

fn read_of(with: String) -> Capability {
    Capability { with, can: "crud/read".into() }
}

/// The paths that arguments may name: all that is known of calls before their reads were taken down.
fn named(value: &Value) -> Vec<&str> {
    match value {
        Value::String(text) if text.contains('/') => vec![text.as_str()],
        Value::Array(items) => items.iter().flat_map(named).collect(),
        Value::Object(map) => map.values().flat_map(named).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Vec::new(),
    }
}

/// A path, and the copies that an agent's calls have made of what is there.
struct Trail<'p> {
    path: &'p str,
    copies: Vec<PathUse>,
}

impl<'p> Trail<'p> {
    /// `copies` are all that were made, of whatever.
    fn of(path: &'p str, mut copies: Vec<PathUse>) -> Self {
        let mut trail = Self { path, copies: Vec::new() };
        loop {
            let (more, rest): (Vec<_>, Vec<_>) = copies.into_iter().partition(|copy| trail.leads_to(copy));
            if more.is_empty() {
                return trail;
            }
            trail.copies.extend(more);
            copies = rest;
        }
    }

    /// Bytes of the path reached a model so: from there, or from a copy. In the session that made the
    /// copy not before that; in others whenever.
    fn leads_to(&self, reached: &PathUse) -> bool {
        let from = |copy: &PathUse| {
            let later = copy.session != reached.session || reached.turn >= copy.turn;
            later && copy.agent == reached.agent && copy.into.iter().any(|into| overlap(&reached.source, into))
        };
        overlap(&reached.source, self.path) || self.copies.iter().any(from)
    }
}

/// Every such turn of an agent, by session, oldest first; those that read a copy, which calls of the
/// agent have made, too.
pub async fn why(store: &dyn Store, owner: &Owner, agent: &AgentId, path: &str) -> Result<Vec<PathUse>, StoreError> {
    let mut found = all(store, owner, agent).await?;
    let trail = Trail::of(path, found.iter().filter(|reached| reached.into.is_some()).cloned().collect());
    found.retain(|reached| trail.leads_to(reached));
    Ok(found)
}

/// All that an agent's models have seen of any path.
pub async fn all(store: &dyn Store, owner: &Owner, agent: &AgentId) -> Result<Vec<PathUse>, StoreError> {
    let mut found = Vec::new();
    let mut sessions: Vec<SessionKey> = Vec::new();
    walk_agent(store, owner, agent, |session, base| {
        if sessions.last() != Some(session) {
            sessions.push(session.clone());
        }
        let rows = base.manifest.rows().filter_map(Result::ok);
        found.extend(rows.flat_map(|row| shown(session, base.turn, &row)));
    })
    .await?;
    for session in &sessions {
        results(store, owner, session, &mut found).await?;
    }
    found.sort_by(|a, b| (&a.session, a.turn).cmp(&(&b.session, b.turn)));
    Ok(found)
}

/// What a part of a prompt came from, and what an operation has read for it.
fn shown(session: &SessionKey, turn: u64, row: &Row) -> Vec<PathUse> {
    let Row { key, source, rendered, status, origin, .. } = row;
    let is_there = *rendered > 0 && matches!(status, Status::Full | Status::Shrunk) && key != "transcript";
    if !is_there {
        return Vec::new();
    }
    let own = source.iter().flat_map(|source| source.split(", "));
    let own = own.map(|source| Seen { version: origin.version, ..Seen::new(source) });
    own.chain(origin.reads.iter().cloned()).map(|seen| reached(session, turn, key.clone(), seen, *rendered)).collect()
}

fn reached(session: &SessionKey, turn: u64, via: String, seen: Seen, bytes: usize) -> PathUse {
    let Seen { path, version, through, allowed: _, into } = seen;
    let (agent, session) = (session.agent.to_string(), session.session.to_string());
    PathUse { agent, session, turn, via, source: path, version, through, into, bytes, removed: None }
}

async fn results(
    store: &dyn Store,
    owner: &Owner,
    session: &SessionKey,
    found: &mut Vec<PathUse>,
) -> Result<(), StoreError> {
    let mut turns = store.docs(owner, keys::turns(session));
    while let Some(page) = turns.records::<TurnRecord>().await? {
        found.extend(page.iter().flat_map(|(_, record)| called(session, record)));
    }
    Ok(())
}

fn called(session: &SessionKey, record: &TurnRecord) -> Vec<PathUse> {
    let of = |(name, text, seen): (&str, &str, Seen)| {
        // Of a copy the answer says no more than that it was made.
        let bytes = if seen.into.is_some() { 0 } else { text.len() };
        reached(session, record.turn, format!("tool {name}"), seen, bytes)
    };
    reads(record).into_iter().map(of).collect()
}

/// What the calls of a turn have read, each with the tool and what the model was answered.
fn reads(record: &TurnRecord) -> Vec<(&str, &str, Seen)> {
    let answers = record.said.iter().filter_map(|message| match message {
        ChatMessage::Tool { call, name, text } => Some((call, name, text)),
        ChatMessage::User { .. } | ChatMessage::Assistant { .. } => None,
    });
    let reads = answers.zip(&record.calls).flat_map(|((call, name, text), made)| {
        seen(record, call, made).into_iter().map(move |seen| (name.as_str(), text.as_str(), seen))
    });
    reads.collect()
}

/// What one call has read, by its record, else by what its arguments name.
pub fn seen(record: &TurnRecord, call: &str, made: &CallRecord) -> Vec<Seen> {
    if let Some(reads) = &made.reads {
        return reads.clone();
    }
    if made.outcome != "ok" {
        return Vec::new();
    }
    let calls = record.said.iter().flat_map(|message| match message {
        ChatMessage::Assistant { calls, .. } => calls.as_slice(),
        ChatMessage::User { .. } | ChatMessage::Tool { .. } => &[],
    });
    let arguments = calls.filter(|made| made.id == call).map(|made| match &made.arguments {
        Arguments::Json(arguments) => named(arguments),
        Arguments::Malformed(_) => Vec::new(),
    });
    arguments.flatten().map(Seen::new).collect()
}

/// What is kept of agents that were removed: of one, or of all.
pub async fn removed(
    store: &dyn Store,
    owner: &Owner,
    agent: Option<&AgentId>,
    path: &str,
) -> Result<Vec<PathUse>, StoreError> {
    let copies = kept(store, owner, agent, |reached| reached.into.is_some()).await?;
    let trail = Trail::of(path, copies);
    kept(store, owner, agent, |reached| trail.leads_to(reached)).await
}

/// Those of it that are `wanted`.
async fn kept(
    store: &dyn Store,
    owner: &Owner,
    agent: Option<&AgentId>,
    wanted: impl Fn(&PathUse) -> bool,
) -> Result<Vec<PathUse>, StoreError> {
    let prefix = agent.map_or_else(|| keys::READS.to_owned(), keys::reads_of);
    let mut found = Vec::new();
    let mut pages = store.docs(owner, prefix);
    while let Some(page) = pages.records::<Vec<PathUse>>().await? {
        found.extend(page.into_iter().flat_map(|(_, kept)| kept).filter(&wanted));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::chat::ToolCall;
    use serde_json::json;

    #[test]
    fn arguments_touch_a_path_wherever_it_stands() {
        for (arguments, expected) in [
            (json!({"path": "w/x/1"}), true),
            (json!({"from": {"paths": ["n/a", "w/x"]}}), true),
            (json!({"path": "w/y", "value": "some w"}), false),
            (json!({"value": "w"}), false),
            (json!(null), false),
        ] {
            assert_eq!(named(&arguments).iter().any(|named| overlap(named, "w/x")), expected, "{arguments}");
        }
    }

    fn record(reads: Option<Vec<Seen>>, arguments: Value) -> TurnRecord {
        let call = ToolCall { id: "c".into(), name: "t".into(), arguments: Arguments::Json(arguments) };
        let made = CallRecord {
            tool: "t".into(),
            operation: "v/ops/t".into(),
            outcome: "ok".into(),
            reads,
            ..CallRecord::default()
        };
        let said = vec![
            ChatMessage::assistant(String::new(), vec![call]),
            ChatMessage::Tool { call: "c".into(), name: "t".into(), text: "12345".into() },
        ];
        TurnRecord { turn: 3, said, calls: vec![made], ..TurnRecord::default() }
    }

    #[test]
    fn a_copy_leads_on_from_when_it_was_made() {
        let reached = |session: &str, turn, source: &str, into: Option<&str>| {
            let session = SessionKey { agent: "a".parse().unwrap(), session: session.parse().unwrap() };
            let seen = Seen { into: into.map(str::to_owned), ..Seen::new(source) };
            super::reached(&session, turn, "tool t".into(), seen, 1)
        };
        let copies = vec![
            reached("s", 3, "w/b", Some("o/c")),
            reached("s", 2, "w/a", Some("w/b")),
            reached("s", 1, "w/z", Some("w/y")),
        ];
        let trail = Trail::of("w/a", copies);
        for (session, turn, source, expected) in [
            ("s", 1, "w/a", true),
            ("s", 1, "w/b", false),
            ("s", 2, "w/b", true),
            ("s", 2, "o/c", false),
            ("s", 3, "o/c", true),
            ("other", 1, "o/c", true),
            ("s", 4, "w/y", false),
        ] {
            assert_eq!(trail.leads_to(&reached(session, turn, source, None)), expected, "{session} {turn} {source}");
        }
    }

    #[test]
    fn what_was_read_counts_and_what_was_only_named_does_not() {
        let session = SessionKey { agent: "a".parse().unwrap(), session: "s".parse().unwrap() };
        let named = json!({"path": "w/x", "value": 1});
        let of = |record: &TurnRecord| {
            let found = called(&session, record).into_iter();
            found.map(|reached| (reached.source, reached.version, reached.bytes)).collect::<Vec<_>>()
        };
        assert_eq!(of(&record(Some(Vec::new()), named.clone())), []);
        let seen = Seen { version: Some(2), ..Seen::new("w/y") };
        assert_eq!(of(&record(Some(vec![seen.clone()]), named.clone())), [("w/y".to_owned(), Some(2), 5)]);
        let copied = Seen { into: Some("w/z".into()), ..seen };
        assert_eq!(of(&record(Some(vec![copied]), named.clone()))[0].2, 0);
        assert_eq!(of(&record(None, named)), [("w/x".to_owned(), None, 5)], "a record of before");
    }
}
