//! Turns by state, session, time and text.

use crate::domain::authority::Authority;
use crate::domain::chat::{Arguments, ChatMessage};
use crate::domain::ids::{AgentId, Owner, SessionId, SessionKey, decode_token};
use crate::domain::job::JobStatus;
use crate::domain::limits::LIST_LOOKS;
use crate::domain::session::TurnRecord;
use crate::domain::time::Millis;
use crate::store::{DocKey, Store, StoreError, decode, keys};

/// Places of the timeline that one step looks at.
const STEP: usize = 100;

/// Which turns are wanted; what is absent or empty excludes none.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Filter {
    /// That ended a job in one of these states.
    pub statuses: Vec<JobStatus>,
    /// Of this session.
    pub session: Option<SessionId>,
    /// Begun then or later.
    pub since: Option<Millis>,
    /// Begun then or earlier.
    pub until: Option<Millis>,
    /// With this text in what was heard or said; case doesn't matter.
    pub text: Option<String>,
}

impl Filter {
    /// Whether a turn is wanted, its session and the end of the time apart.
    pub fn takes(&self, turn: &TurnRecord) -> bool {
        (self.statuses.is_empty() || turn.ended.iter().any(|(_, status)| self.statuses.contains(status)))
            && self.until.is_none_or(|until| turn.start <= until)
            && self.text.as_ref().is_none_or(|text| says(turn, &text.to_lowercase()))
    }
}

fn says(turn: &TurnRecord, text: &str) -> bool {
    let has = |own: &str| own.to_lowercase().contains(text);
    turn.heard.iter().any(|heard| has(&heard.text))
        || turn.said.iter().any(|message| match message {
            ChatMessage::User { text: own } | ChatMessage::Tool { text: own, .. } => has(own),
            ChatMessage::Assistant { text: own, calls } => {
                has(own) || calls.iter().any(|call| has(&call.name) || has(&arguments(&call.arguments)))
            }
        })
}

fn arguments(arguments: &Arguments) -> String {
    serde_json::to_string(arguments).unwrap_or_default()
}

/// A page of a filtered list.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Found {
    /// Newest first, each with its session.
    pub turns: Vec<(SessionId, TurnRecord)>,
    /// Where the list goes on; `None` at its end. A page may be empty and the list go on.
    pub next: Option<String>,
}

/// The wanted turns of an agent behind a place, as `reader` may see them, newest first: at most `limit`, and among no more
/// than [`LIST_LOOKS`] that are looked at. Of one session by number, else by the time of their
/// beginning; `after` is the `next` of the page before, of the same filter.
pub async fn find(
    store: &dyn Store,
    (owner, reader): (&Owner, &Authority),
    agent: &AgentId,
    filter: &Filter,
    after: Option<&str>,
    limit: usize,
) -> Result<Found, StoreError> {
    let session = filter.session.as_ref();
    let session = session.map(|session| SessionKey { agent: agent.clone(), session: session.clone() });
    let prefix = session.as_ref().map_or_else(|| keys::timeline(agent), keys::turns);
    let mut place = after.map(|after| format!("{prefix}{after}"));
    if let (None, None, Some(until)) = (&place, &session, filter.until) {
        place = Some(format!("{prefix}{:016}", until.0.saturating_add(1)));
    }
    let mut found = Found::default();
    let mut left = if limit == 0 { 0 } else { LIST_LOOKS };
    while left > 0 {
        let step = STEP.min(left);
        left -= step;
        let page = store.scan(owner, &prefix, place.as_deref(), true, step).await?;
        let full = page.len() == step;
        let last = page.last().map(|(key, _)| key.clone());
        for (key, session, record) in records(store, owner, agent, session.as_ref(), page).await? {
            // Before anything is looked for in it.
            let record = record.seen_by(reader);
            if filter.since.is_some_and(|since| record.start < since) {
                return Ok(found);
            }
            if filter.takes(&record) {
                found.turns.push((session, record));
            }
            if found.turns.len() >= limit {
                found.next = key.strip_prefix(&prefix).map(str::to_owned);
                return Ok(found);
            }
        }
        if !full {
            return Ok(found);
        }
        place = last;
    }
    found.next = place.filter(|_| limit > 0).and_then(|key| Some(key.strip_prefix(&prefix)?.to_owned()));
    Ok(found)
}

/// The records behind a page of keys; those that are gone are left out.
async fn records(
    store: &dyn Store,
    owner: &Owner,
    agent: &AgentId,
    session: Option<&SessionKey>,
    page: Vec<(DocKey, crate::store::Doc)>,
) -> Result<Vec<(DocKey, SessionId, TurnRecord)>, StoreError> {
    let mut records = Vec::with_capacity(page.len());
    if let Some(session) = session {
        for (key, doc) in page {
            if let Some(bytes) = doc.value {
                let record = decode(&key, &bytes)?;
                records.push((key, session.session.clone(), record));
            }
        }
        return Ok(records);
    }
    let places: Vec<_> = page
        .iter()
        .filter_map(|(key, _)| keys::timeline_turn(agent, key).map(|(token, turn)| (key, token, turn)))
        .collect();
    let turns: Vec<DocKey> = places.iter().map(|(_, _, turn)| turn.clone()).collect();
    for ((key, token, turn), doc) in places.into_iter().zip(store.read(owner, &turns).await?) {
        let session = decode_token(token).and_then(|id| SessionId::new(id).ok());
        if let (Some(session), Some(bytes)) = (session, doc.value) {
            records.push((key.clone(), session, decode(&turn, &bytes)?));
        }
    }
    Ok(records)
}
