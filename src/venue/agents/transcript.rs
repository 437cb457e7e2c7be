//! A session as a conversation: its newest messages, as chat clients show them.

use super::sessions::{begins_after, find, state};
use crate::domain::authority::Authority;
use crate::domain::chat::{ChatMessage, ToolCall};
use crate::domain::expiry::Ttl;
use crate::domain::goal::Segment;
use crate::domain::ids::{AgentId, Owner, SessionId, SessionKey};
use crate::domain::limits::{LIST_BYTES, TURNS_PAGE};
use crate::domain::session::{SessionState, TurnRecord, WITHHELD};
use crate::domain::time::Millis;
use crate::store::{Doc, DocKey, StoreError, decode_listed, keys, steps};
use crate::venue::Venue;
use crate::view::session::{ConversationCallView, ConversationMessageView, ConversationRole, ConversationView};

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

/// Returns a session's conversation as `reader` may see it; `None` if nothing was ever sent to it.
pub async fn read(
    venue: &Venue,
    owner: &Owner,
    reader: &Authority,
    key: &SessionKey,
    wanted: TranscriptRange<'_>,
) -> Result<Option<ConversationView>, StoreError> {
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
    let (prefix, end) = (keys::turns(key), keys::turn(key, facts.version + 1));
    let range = steps::KeyRange::descending(&prefix).start_after(&end);
    let page = steps::scan(&*venue.store, owner, range, limit, LIST_BYTES).await?;
    let read = page.docs.len();
    let record = |(place, doc): (DocKey, Doc)| decode_listed(owner, &place, &doc.value.unwrap_or_default());
    let records: Vec<TurnRecord> = page.docs.into_iter().filter_map(record).collect();
    let oldest = records.last().map_or(0, |record| record.turn);
    let mut said: Vec<ConversationMessageView> = Vec::new();
    let mut left = wanted.chars;
    // A conversation with a damaged turn isn't whole.
    let mut cut = !page.ended && oldest > from + 1 || records.len() < read;
    'turns: for record in records.into_iter().filter(|record| record.turn > from) {
        for message in messages(&record.visible_to(reader)).into_iter().rev() {
            let chars = message.content.chars().count();
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
    Ok(Some(ConversationView {
        agent_id: key.agent.clone(),
        found: true,
        session_id: key.session.clone(),
        messages: said,
        title,
        updated: facts.touched,
        turn_count: facts.version - since,
        expired,
        truncated: cut,
    }))
}

/// Returns a message with what every message has.
const fn plain_message(
    role: ConversationRole,
    content: String,
    turn: u64,
    ts: Option<Millis>,
) -> ConversationMessageView {
    ConversationMessageView {
        role,
        content,
        turns: None,
        turn,
        ts,
        job: None,
        tool_calls: Vec::new(),
        id: None,
        name: None,
        hidden: None,
    }
}

/// Returns a summary as a message; without its text if the reader may not read it.
fn summary(segment: &Segment, reader: &Authority) -> ConversationMessageView {
    let is_readable = reader.covers_reading(&segment.authority);
    let text = if is_readable { segment.summary.as_str() } else { WITHHELD };
    ConversationMessageView {
        turns: Some(segment.turns),
        hidden: (!is_readable).then_some(true),
        ..plain_message(ConversationRole::Summary, text.to_owned(), segment.to, None)
    }
}

/// Returns the messages of a turn, in order.
fn messages(record: &TurnRecord) -> Vec<ConversationMessageView> {
    let place =
        |role: ConversationRole, text: &str, at: Millis| plain_message(role, text.to_owned(), record.turn, Some(at));
    let heard = record.heard.iter().map(|heard| ConversationMessageView {
        job: heard.job.clone(),
        ..place(ConversationRole::User, &heard.text, record.start)
    });
    let said = record.said.iter().map(|message| match message {
        ChatMessage::User { text, .. } => place(ConversationRole::User, text, record.start),
        ChatMessage::Assistant { text, calls, .. } => ConversationMessageView {
            tool_calls: calls.iter().map(call_view).collect(),
            ..place(ConversationRole::Assistant, text, record.end)
        },
        ChatMessage::Tool { call, name, text } => ConversationMessageView {
            id: Some(call.clone()),
            name: Some(name.clone()),
            ..place(ConversationRole::Tool, text, record.end)
        },
    });
    heard.chain(said).collect()
}

fn call_view(call: &ToolCall) -> ConversationCallView {
    ConversationCallView { id: call.id.clone(), name: call.name.clone(), arguments: call.arguments.to_value() }
}
