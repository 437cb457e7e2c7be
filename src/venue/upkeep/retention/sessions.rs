//! Retention of turns and sessions.

use super::batch::{ForgetBatch, decode_readable};
use crate::domain::context::record::manifest::stretch_start;
use crate::domain::decode;
use crate::domain::ids::{EventId, JobId, Owner, SessionKey};
use crate::domain::retention::{RetentionRules, SessionFate, SessionView, is_turn_due, session_fate};
use crate::domain::session::{SessionState, TurnRecord};
use crate::store::{Doc, ForgetOutcome, ForgetRequest, RestingSession, SessionFacts, StoreError, keys};
use crate::venue::Venue;
use crate::venue::ledger;

/// Sessions that one step reads.
const SESSIONS: usize = 50;
/// Turns of a session that are read at a time, and how often one step reads some.
const TURNS: (usize, u32) = (100, 10);

/// Result of one page of sessions.
#[derive(Debug, Default)]
pub(super) struct TidiedSessions {
    /// Where the next page begins; `None` = at the beginning.
    pub(super) next: Option<SessionKey>,
    /// Number of deleted sessions.
    pub(super) sessions: u64,
    /// Number of deleted turns.
    pub(super) turns: u64,
}

/// Applies retention to a page of sessions after one.
pub(super) async fn tidy_page(
    venue: &Venue,
    owner: &Owner,
    rules: RetentionRules,
    after: Option<SessionKey>,
) -> Result<TidiedSessions, StoreError> {
    let mut done = TidiedSessions::default();
    if rules.turns.is_none() {
        return Ok(done);
    }
    let mut sessions = venue.store.all_sessions(owner, None).start_after(after).page_size(SESSIONS);
    let found = sessions.next().await?.unwrap_or_default();
    done.next = sessions.last_place();
    for facts in found {
        let session = facts.key.clone();
        match tidy(venue, owner, rules, facts, &mut done).await {
            Ok(()) => {}
            // A damaged session stays for inspection, and doesn't keep others from being deleted.
            Err(error) if !error.is_transient() => tracing::debug!(%owner, %session, %error, "not tidied up"),
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

/// Applies retention to one session.
async fn tidy(
    venue: &Venue,
    owner: &Owner,
    rules: RetentionRules,
    facts: SessionFacts,
    done: &mut TidiedSessions,
) -> Result<(), StoreError> {
    let Some(view) = session_view(&facts) else { return Ok(()) };
    match session_fate(rules, venue.now(), &view) {
        None => {}
        Some(SessionFate::Turns { below }) => {
            done.turns += delete_turns(venue, owner, rules, &facts.key, Some(below)).await?.0;
        }
        Some(SessionFate::Whole) => {
            let (gone, all) = delete_turns(venue, owner, rules, &facts.key, None).await?;
            done.turns += gone;
            if all {
                let resting = RestingSession { session: facts.key, arrivals: facts.arrivals };
                let documents = vec![keys::session_cap(&resting.session), keys::session_wait(&resting.session)];
                let forget = ForgetRequest { documents, sessions: vec![resting], ..ForgetRequest::default() };
                let forgotten = venue.store.forget(venue.now(), owner, &forget).await?;
                done.sessions += u64::from(forgotten == ForgetOutcome::Done);
            }
        }
    }
    Ok(())
}

/// Returns what matters of a session; `None` if its record, state or mailbox is damaged: it stays for inspection.
fn session_view(facts: &SessionFacts) -> Option<SessionView> {
    if facts.unreadable || !facts.damaged.is_empty() {
        return None;
    }
    let state = match &facts.state {
        None => SessionState::default(),
        Some(bytes) => decode::read_stored(bytes).ok()?,
    };
    let stirs = !facts.mailbox.is_empty() || facts.lease_until.is_some() || facts.due.is_some();
    Some(SessionView { version: facts.version, touched: facts.touched, is_busy: stirs, state })
}

/// Deletes a session's oldest turns: those `below` a number that are old enough, unless the record of a prompt that
/// stays builds on theirs; or all. Returns how many, and whether none is left.
async fn delete_turns(
    venue: &Venue,
    owner: &Owner,
    rules: RetentionRules,
    session: &SessionKey,
    below: Option<u64>,
) -> Result<(u64, bool), StoreError> {
    let (limit, times) = TURNS;
    let prefix = keys::turns(session);
    let mut gone = 0;
    for _ in 0..times {
        let page = venue.store.scan(owner, &prefix, None, false, limit).await?;
        let more = page.len() == limit;
        let mut old: Vec<_> = page
            .iter()
            .map(|(key, doc)| (key, decode_readable::<TurnRecord>(key, doc)))
            .take_while(|(key, record)| below.is_none_or(|below| is_expired(rules, venue, key, record.as_ref(), below)))
            .collect();
        let rest = page.len() - old.len();
        let first = page.get(old.len()).map(|(key, _)| turn_number(key));
        // If a whole page is old, the next turn may stay.
        let first = first.or_else(|| page.last().filter(|_| more).map(|(key, _)| turn_number(key) + 1));
        if let (Some(first), Some(_)) = (first, below) {
            old.retain(|(key, _)| turn_number(key) < stretch_start(first));
        }
        let count = old.len();
        let mut batch = ForgetBatch::new(venue, owner);
        let mut events = Vec::new();
        for (key, record) in old {
            batch.documents.extend(ledger::documents_of_turn(session, key, record.as_ref()));
            events.extend(record.into_iter().flat_map(|record| record.events));
        }
        batch.events = without_jobs(venue, owner, events).await?;
        batch.flush().await?;
        gone += count as u64;
        if rest > 0 || !more {
            return Ok((gone, rest == 0));
        }
    }
    Ok((gone, false))
}

/// Returns the number of a turn; the highest for a key without one.
fn turn_number(key: &str) -> u64 {
    keys::number_of_turn(key).unwrap_or(u64::MAX - 1)
}

fn is_expired(rules: RetentionRules, venue: &Venue, key: &str, record: Option<&TurnRecord>, below: u64) -> bool {
    turn_number(key) < below && record.is_none_or(|record| is_turn_due(rules, venue.now(), record.end))
}

/// Returns those of the events whose dedupe records no job keeps.
async fn without_jobs(venue: &Venue, owner: &Owner, events: Vec<EventId>) -> Result<Vec<EventId>, StoreError> {
    let heads: Vec<_> = events.iter().map(|event| keys::job_head(&JobId::derive(&venue.key, owner, event))).collect();
    let heads: Vec<Doc> = venue.store.read(owner, &heads).await?;
    Ok(events.into_iter().zip(heads).filter(|(_, head)| head.value.is_none()).map(|(event, _)| event).collect())
}
