//! In which turns bytes of a path reached a model: as context, or as the result of a tool.

use super::walk_agent;
use crate::domain::authority::{Authority, Capability};
use crate::domain::chat::{Arguments, ChatMessage};
use crate::domain::context::ledger::{Row, Status};
use crate::domain::ids::{AgentId, Owner, SessionKey};
use crate::domain::session::TurnRecord;
use crate::store::{Store, StoreError, decode, keys};
use serde::Serialize;
use serde_json::Value;

/// Turn records that one read takes.
const RECORDS: usize = 200;

/// One way in which bytes of a path reached a model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Reached {
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
    /// Bytes in the prompt.
    pub bytes: usize,
}

impl Reached {
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

/// One of two paths is the other, or lies below it.
pub fn overlap(a: &str, b: &str) -> bool {
    let (a, b) = (a.trim_matches('/'), b.trim_matches('/'));
    let below = |long: &str, short: &str| long.strip_prefix(short).is_some_and(|rest| rest.starts_with('/'));
    a == b || below(a, b) || below(b, a)
}

/// An argument names the path, one above or one below it.
pub fn touches(arguments: &Value, path: &str) -> bool {
    named(arguments, path).is_some()
}

fn named<'v>(value: &'v Value, path: &str) -> Option<&'v str> {
    match value {
        Value::String(text) => {
            (text.contains('/') || text == path).then_some(text.as_str()).filter(|text| overlap(text, path))
        }
        Value::Array(items) => items.iter().find_map(|item| named(item, path)),
        Value::Object(map) => map.values().find_map(|item| named(item, path)),
        Value::Null | Value::Bool(_) | Value::Number(_) => None,
    }
}

/// Every such turn of an agent, by session, oldest first.
pub async fn why(store: &dyn Store, owner: &Owner, agent: &AgentId, path: &str) -> Result<Vec<Reached>, StoreError> {
    let mut found = Vec::new();
    let mut sessions: Vec<SessionKey> = Vec::new();
    walk_agent(store, owner, agent, |session, base| {
        if sessions.last() != Some(session) {
            sessions.push(session.clone());
        }
        let rows = base.manifest.rows().filter_map(Result::ok);
        found.extend(rows.filter_map(|row| shown(session, base.turn, row, path)));
    })
    .await?;
    for session in &sessions {
        results(store, owner, session, path, &mut found).await?;
    }
    found.sort_by(|a, b| (&a.session, a.turn).cmp(&(&b.session, b.turn)));
    Ok(found)
}

fn shown(session: &SessionKey, turn: u64, row: Row, path: &str) -> Option<Reached> {
    let Row { key, source, rendered, status, .. } = row;
    let source = source.filter(|source| source.split(", ").any(|one| overlap(one, path)))?;
    let is_there = rendered > 0 && matches!(status, Status::Full | Status::Shrunk);
    is_there.then(|| reached(session, turn, key, source, rendered))
}

fn reached(session: &SessionKey, turn: u64, via: String, source: String, bytes: usize) -> Reached {
    Reached { agent: session.agent.to_string(), session: session.session.to_string(), turn, via, source, bytes }
}

async fn results(
    store: &dyn Store,
    owner: &Owner,
    session: &SessionKey,
    path: &str,
    found: &mut Vec<Reached>,
) -> Result<(), StoreError> {
    let prefix = keys::turns(session);
    let mut after: Option<String> = None;
    loop {
        let page = store.scan(owner, &prefix, after.as_deref(), false, RECORDS).await?;
        for (key, doc) in &page {
            let Some(bytes) = &doc.value else { continue };
            let record: TurnRecord = decode(key, bytes)?;
            found.extend(called(session, &record, path));
        }
        match page.last() {
            Some((key, _)) if page.len() == RECORDS => after = Some(key.clone()),
            Some(_) | None => return Ok(()),
        }
    }
}

fn called(session: &SessionKey, record: &TurnRecord, path: &str) -> Vec<Reached> {
    let mut named_by = Vec::new();
    let mut found = Vec::new();
    let mut outcomes = record.calls.iter();
    for message in &record.said {
        match message {
            ChatMessage::Assistant { calls, .. } => {
                for call in calls {
                    if let Arguments::Json(arguments) = &call.arguments
                        && let Some(source) = named(arguments, path)
                    {
                        named_by.push((call.id.as_str(), source));
                    }
                }
            }
            ChatMessage::Tool { call, name, text } => {
                let ok = outcomes.next().is_some_and(|outcome| outcome.outcome == "ok");
                let source = named_by.iter().find(|(id, _)| id == call).filter(|_| ok);
                found.extend(source.map(|(_, source)| {
                    reached(session, record.turn, format!("tool {name}"), (*source).to_owned(), text.len())
                }));
            }
            ChatMessage::User { .. } => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn paths_overlap_at_above_and_below() {
        for (a, b, expected) in [
            ("w/x", "w/x", true),
            ("w/x/y", "w/x", true),
            ("w", "w/x", true),
            ("w/xy", "w/x", false),
            ("n/x", "w/x", false),
            ("w/x/", "w/x", true),
        ] {
            assert_eq!(overlap(a, b), expected, "{a} {b}");
            assert_eq!(overlap(b, a), expected, "{b} {a}");
        }
    }

    #[test]
    fn arguments_touch_a_path_wherever_it_stands() {
        for (arguments, expected) in [
            (json!({"path": "w/x/1"}), true),
            (json!({"from": {"paths": ["n/a", "w/x"]}}), true),
            (json!({"path": "w/y", "value": "some w"}), false),
            (json!({"value": "w"}), false),
            (json!(null), false),
        ] {
            assert_eq!(touches(&arguments, "w/x"), expected, "{arguments}");
        }
    }
}
