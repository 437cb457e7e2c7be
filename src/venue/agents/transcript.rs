//! A session as a conversation: its newest messages, as chat clients show them.

use super::sessions::{begins_after, find, state};
use crate::domain::authority::Authority;
use crate::domain::chat::ChatMessage;
use crate::domain::expiry::Ttl;
use crate::domain::goal::Segment;
use crate::domain::ids::{AgentId, Owner, SessionId, SessionKey};
use crate::domain::limits::{LIST_BYTES, TURNS_PAGE};
use crate::domain::session::{SessionState, TurnRecord, WITHHELD};
use crate::store::{StoreError, decode, keys, steps};
use crate::venue::Venue;
use serde_json::{Value, json};

/// Range of a conversation.
#[derive(Debug, Clone, Copy)]
pub struct TranscriptRange<'a> {
    /// Lifetime of the agent's sessions.
    pub ttl: Option<&'a Ttl>,
    /// Number of turns, the newest.
    pub turns: usize,
    /// Number of characters of messages, the newest.
    pub chars: usize,
    /// Whether turns that a summary stands for are included, and those of expired conversations.
    pub archived: bool,
}

/// Returns the session of an agent that changed last.
pub async fn newest_session(venue: &Venue, owner: &Owner, agent: &AgentId) -> Result<Option<SessionId>, StoreError> {
    let mut newest = None;
    let mut sessions = venue.store.all_sessions(owner, Some(agent));
    while let Some(page) = sessions.next().await? {
        newest = page.into_iter().map(|facts| (facts.touched, facts.key.session)).chain(newest).max();
    }
    Ok(newest.map(|(_, session)| session))
}

/// Returns a session's conversation as `reader` may see it: `messages`, oldest first, and whether there is more. `None`
/// if nothing was ever sent to it.
pub async fn read(
    venue: &Venue,
    (owner, reader): (&Owner, &Authority),
    key: &SessionKey,
    wanted: TranscriptRange<'_>,
) -> Result<Option<Value>, StoreError> {
    let Some(facts) = find(venue, owner, key).await? else { return Ok(None) };
    let state = state(&facts);
    let since = begins_after(&facts, &state, wanted.ttl, venue.now());
    let expired = since > state.since;
    let SessionState { title, goals, .. } = if expired { SessionState::default() } else { state };
    let segments = goals.segments.into_iter().filter(|segment| segment.frame == 0 && !wanted.archived);
    let segments: Vec<Segment> = segments.collect();
    let since = if wanted.archived { 0 } else { since };
    let from = segments.iter().map(|segment| segment.to).max().unwrap_or(0).max(since);
    let limit = wanted.turns.clamp(1, TURNS_PAGE);
    let end = keys::turn(key, facts.version + 1);
    let page = steps::scan(&*venue.store, owner, &keys::turns(key), Some(&end), true, limit, LIST_BYTES).await?;
    let mut records = Vec::with_capacity(page.docs.len());
    for (place, doc) in page.docs {
        let record: TurnRecord = decode(&place, &doc.value.unwrap_or_default())?;
        records.push(record);
    }
    let oldest = records.last().map_or(0, |record| record.turn);
    let mut said: Vec<Value> = Vec::new();
    let mut left = wanted.chars;
    let mut cut = !page.ended && oldest > from + 1;
    'turns: for record in records.into_iter().filter(|record| record.turn > from) {
        for message in messages(&record.visible_to(reader)).into_iter().rev() {
            let chars = message["content"].as_str().map_or(0, |text| text.chars().count());
            if chars > left {
                cut = true;
                break 'turns;
            }
            left -= chars;
            said.push(message);
        }
    }
    if !cut {
        said.extend(segments.iter().rev().map(|segment| summary(segment, reader)));
    }
    said.reverse();
    Ok(Some(json!({
        "title": title, "updated": facts.touched, "turnCount": facts.version - since, "expired": expired,
        "messages": said, "truncated": cut
    })))
}

/// Returns a summary as a message; without its text if the reader may not read it.
fn summary(segment: &Segment, reader: &Authority) -> Value {
    let readable = reader.covers_reading(&segment.authority);
    let text = if readable { segment.summary.as_str() } else { WITHHELD };
    let mut shown = json!({"role": "summary", "content": text, "turns": segment.turns, "turn": segment.to});
    if !readable {
        shown["hidden"] = true.into();
    }
    shown
}

/// Returns the messages of a turn, in order.
fn messages(record: &TurnRecord) -> Vec<Value> {
    let place = |role: &str, text: &str, at: u64| json!({"role": role, "content": text, "turn": record.turn, "ts": at});
    let heard = record.heard.iter().map(|heard| {
        let mut message = place("user", &heard.text, record.start.0);
        if let Some(job) = &heard.job {
            message["job"] = job.as_str().into();
        }
        message
    });
    let said = record.said.iter().map(|message| match message {
        ChatMessage::User { text, .. } => place("user", text, record.start.0),
        ChatMessage::Assistant { text, calls, .. } => {
            let mut message = place("assistant", text, record.end.0);
            if !calls.is_empty() {
                let calls = calls
                    .iter()
                    .map(|call| json!({"id": call.id, "name": call.name, "arguments": call.arguments.to_value()}));
                message["toolCalls"] = calls.collect();
            }
            message
        }
        ChatMessage::Tool { call, name, text } => {
            let mut message = place("tool", text, record.end.0);
            (message["id"], message["name"]) = (call.as_str().into(), name.as_str().into());
            message
        }
    });
    heard.chain(said).collect()
}
