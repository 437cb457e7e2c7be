//! Turns by state, session, time and text.

use crate::domain::authority::Authority;
use crate::domain::chat::{Arguments, ChatMessage};
use crate::domain::ids::{AgentId, Owner, SessionId, SessionKey, decode_token};
use crate::domain::job::JobStatus;
use crate::domain::limits::{LIST_BYTES, LIST_LOOK_BYTES, LIST_LOOKS};
use crate::domain::session::TurnRecord;
use crate::domain::time::Millis;
use crate::store::{DocKey, Store, StoreError, decode_listed, keys, steps};

/// Entries of the timeline that one step reads.
const STEP: usize = 100;

/// Filter of turns; an absent or empty field excludes none.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TurnFilter {
    /// States in which the turn ended a job; any of them.
    pub statuses: Vec<JobStatus>,
    /// Session of the turn.
    pub session: Option<SessionId>,
    /// Earliest start of a listed turn.
    pub since: Option<Millis>,
    /// Latest start of a listed turn.
    pub until: Option<Millis>,
    /// Text in the messages of the turn, in any case.
    pub text: Option<String>,
}

impl TurnFilter {
    /// Whether a turn passes the filter, apart from its session and its earliest beginning.
    pub fn accepts(&self, turn: &TurnRecord) -> bool {
        (self.statuses.is_empty() || turn.ended.iter().any(|(_, status)| self.statuses.contains(status)))
            && self.until.is_none_or(|until| turn.start <= until)
            && self.text.as_ref().is_none_or(|text| contains_text(turn, &text.to_lowercase()))
    }
}

fn contains_text(turn: &TurnRecord, text: &str) -> bool {
    let has = |own: &str| own.to_lowercase().contains(text);
    turn.heard.iter().any(|heard| has(&heard.text))
        || turn.said.iter().any(|message| match message {
            ChatMessage::User { text: own, .. } | ChatMessage::Tool { text: own, .. } => has(own),
            ChatMessage::Assistant { text: own, calls, .. } => {
                has(own) || calls.iter().any(|call| has(&call.name) || has(&arguments(&call.arguments)))
            }
        })
}

fn arguments(arguments: &Arguments) -> String {
    serde_json::to_string(arguments).unwrap_or_default()
}

/// A page of a filtered list.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TurnPage {
    /// Turns, newest first, each with its session.
    pub turns: Vec<(SessionId, TurnRecord)>,
    /// Cursor of the next page; `None` at the end of the list. An empty page may have a next one.
    pub next: Option<String>,
}

impl TurnPage {
    /// Returns the time back to which the list was read; `None` at its end, and for a list of one session, whose
    /// cursors have no time.
    pub fn searched_since(&self, filter: &TurnFilter) -> Option<Millis> {
        let next = self.next.as_ref().filter(|_| filter.session.is_none())?;
        next.split('-').next()?.parse().ok().map(Millis)
    }
}

/// Range of a list of turns that one page has.
#[derive(Debug, Clone, Copy)]
pub struct TurnPageRange<'a> {
    /// Cursor: the `next` of the page before, with the same filter.
    pub after: Option<&'a str>,
    /// Turns of the page at most.
    pub limit: usize,
}

/// Returns the turns of an agent after the cursor that pass the filter, as `reader` may see them, newest first: at most
/// `limit`, and at most [`LIST_BYTES`]. It reads at most [`LIST_LOOKS`] turns. Turns of one session are ordered by
/// number, else by their beginning.
pub async fn find(
    store: &dyn Store,
    owner: &Owner,
    reader: &Authority,
    agent: &AgentId,
    filter: &TurnFilter,
    range: TurnPageRange<'_>,
) -> Result<TurnPage, StoreError> {
    let TurnPageRange { after, limit } = range;
    let timeline = TimelineKeys::new(agent, filter.session.as_ref());
    let prefix = timeline.prefix.as_str();
    let mut place = after.map(|after| format!("{prefix}{after}"));
    if let (None, None, Some(until)) = (&place, &timeline.session, filter.until) {
        place = Some(format!("{prefix}{:016}", until.0.saturating_add(1)));
    }
    let mut found = TurnPage::default();
    let mut left = if limit == 0 { 0 } else { LIST_LOOKS };
    let (mut looked_at, mut taken) = (0, 0);
    while left > 0 && looked_at < LIST_LOOK_BYTES {
        let step = STEP.min(left);
        let TimelineStep { records, count, last, ended } =
            timeline.read_step(store, owner, place.as_deref(), step).await?;
        left -= count.min(left);
        for (key, session, record, bytes) in records {
            // Withheld parts must not be searched.
            let record = record.visible_to(reader);
            if filter.since.is_some_and(|since| record.start < since) {
                return Ok(found);
            }
            looked_at += bytes;
            if filter.accepts(&record) {
                taken += bytes;
                found.turns.push((session, record));
            }
            if found.turns.len() >= limit || taken > LIST_BYTES {
                found.next = key.strip_prefix(prefix).map(str::to_owned);
                return Ok(found);
            }
        }
        if ended {
            return Ok(found);
        }
        place = last.or(place);
    }
    found.next = place.filter(|_| limit > 0).and_then(|key| Some(key.strip_prefix(prefix)?.to_owned()));
    Ok(found)
}

/// Turn records of one step.
struct TimelineStep {
    /// Records with their keys, sessions and bytes; records that are gone or damaged are left out.
    records: Vec<(DocKey, SessionId, TurnRecord, usize)>,
    /// Number of entries that were read.
    count: usize,
    /// Key of the last entry.
    last: Option<DocKey>,
    /// Whether there are no more entries.
    ended: bool,
}

/// Keys of the timeline of an agent, or of the turns of one session.
struct TimelineKeys<'a> {
    agent: &'a AgentId,
    session: Option<SessionKey>,
    /// Prefix of all of them.
    prefix: String,
}

impl<'a> TimelineKeys<'a> {
    fn new(agent: &'a AgentId, session: Option<&SessionId>) -> Self {
        let session = session.map(|session| SessionKey { agent: agent.clone(), session: session.clone() });
        let prefix = session.as_ref().map_or_else(|| keys::timeline(agent), keys::turns);
        Self { agent, session, prefix }
    }

    /// Reads at most `step` entries, and records of at most [`LIST_BYTES`].
    async fn read_step(
        &self,
        store: &dyn Store,
        owner: &Owner,
        place: Option<&str>,
        step: usize,
    ) -> Result<TimelineStep, StoreError> {
        let Self { agent, session, prefix } = self;
        let mut records = Vec::new();
        if let Some(session) = session {
            let range = steps::KeyRange { prefix, after: place, reverse: true };
            let page = steps::scan(store, owner, range, step, LIST_BYTES).await?;
            let (count, last) = (page.docs.len(), page.docs.last().map(|(key, _)| key.clone()));
            for (key, doc) in page.docs {
                let bytes = doc.value.unwrap_or_default();
                let record = decode_listed(owner, &key, &bytes);
                records.extend(record.map(|record| (key, session.session.clone(), record, bytes.len())));
            }
            return Ok(TimelineStep { records, count, last, ended: page.ended });
        }
        let mut page = store.scan(owner, prefix, place, true, step).await?;
        let turn = |key: &str| keys::timeline_turn(agent, key).map_or_else(String::new, |(_, turn)| turn);
        let turns: Vec<[DocKey; 1]> = page.iter().map(|(key, _)| [turn(key)]).collect();
        let (docs, _) = steps::read(store, owner, &turns, LIST_BYTES).await?;
        let ended = page.len() < step && docs.len() == page.len();
        page.truncate(docs.len());
        let (count, last) = (page.len(), page.last().map(|(key, _)| key.clone()));
        for (((key, _), [turn]), mut doc) in page.into_iter().zip(&turns).zip(docs) {
            let Some((token, _)) = keys::timeline_turn(agent, &key) else { continue };
            let session = decode_token(token).and_then(|id| SessionId::new(id).ok());
            if let (Some(session), Some(bytes)) = (session, doc.pop().and_then(|doc| doc.value)) {
                let record = decode_listed(owner, turn, &bytes);
                records.extend(record.map(|record| (key, session, record, bytes.len())));
            }
        }
        Ok(TimelineStep { records, count, last, ended })
    }
}
