//! Sessions as callers see them: list, read, fork.

use super::copies::CopyClaim;
use super::error::LifecycleError;
use crate::domain::authority::Authority;
use crate::domain::decode;
use crate::domain::expiry::Ttl;
use crate::domain::ids::{AgentId, Owner, SessionId, SessionKey};
use crate::domain::limits::LIST_BYTES;
use crate::domain::session::{SessionState, TurnRecord};
use crate::domain::time::Millis;
use crate::store::{EventKind, SessionFacts, StoreError, decode_listed, keys, steps};
use crate::venue::Venue;
use crate::view::ledger::TurnRecordView;
use crate::view::session::SessionRowView;

/// Sessions that one step of a list reads.
const LIST_STEP: usize = 20;

/// Returns a page of an agent's sessions by id after `after`, and the cursor of the next page. The sessions live for
/// `ttl`.
pub async fn list(
    venue: &Venue,
    owner: &Owner,
    agent: &AgentId,
    ttl: Option<&Ttl>,
    after: Option<&SessionId>,
    limit: usize,
) -> Result<(Vec<SessionRowView>, Option<SessionId>), StoreError> {
    let after = after.map(|session| SessionKey { agent: agent.clone(), session: session.clone() });
    let mut found = Vec::new();
    // States may be large, so only a few are in memory at a time.
    let mut sessions = venue.store.all_sessions(owner, Some(agent)).start_after(after).page_size(LIST_STEP);
    while found.len() < limit {
        sessions = sessions.page_size(LIST_STEP.min(limit - found.len()));
        let Some(page) = sessions.next().await? else { break };
        found.extend(page.iter().map(|session| session_row(session, ttl, venue.now())));
    }
    Ok((found, sessions.last_place().map(|last| last.session)))
}

/// Returns the state of a session; the default if it has none or is damaged.
pub(in crate::venue) fn state(session: &SessionFacts) -> SessionState {
    session.state.as_ref().and_then(|bytes| decode::read_stored(bytes).ok()).unwrap_or_default()
}

/// Returns the last turn before the session's current conversation, whose time may end at `now`.
pub(super) fn begins_after(session: &SessionFacts, state: &SessionState, ttl: Option<&Ttl>, now: Millis) -> u64 {
    // A session with pending events doesn't expire here: the turn that serves them decides that.
    let rests = session.mailbox.is_empty() && session.lease_until.is_none();
    state.conversation_start(ttl.filter(|_| rests), session.version, session.touched, now)
}

/// Returns the row of a session in a list.
pub(in crate::venue) fn session_row(session: &SessionFacts, ttl: Option<&Ttl>, now: Millis) -> SessionRowView {
    let state = state(session);
    let since = begins_after(session, &state, ttl, now);
    let expired = since > state.since;
    let waiting = |kind| session.mailbox.iter().filter(|entry| entry.kind == kind).count();
    let leased = session.lease_until.is_some_and(|until| until > now);
    let status = match session.mailbox.is_empty() {
        _ if leased => "RUNNING",
        true => "IDLE",
        false => "WAITING",
    };
    SessionRowView {
        session_id: session.key.session.clone(),
        title: state.title.filter(|_| !expired),
        status: status.to_owned(),
        turns: session.version,
        turn_count: session.version - since,
        expired,
        updated: session.touched,
        tasks: waiting(EventKind::Task),
        messages: waiting(EventKind::Message),
        results: waiting(EventKind::Result),
        due: session.due,
        loads: None,
        pipeline: None,
    }
}

/// Returns the last turn before the session's current conversation, for an agent whose sessions live for `ttl`.
pub async fn last_expired_turn(
    venue: &Venue,
    owner: &Owner,
    key: &SessionKey,
    ttl: Option<&Ttl>,
) -> Result<u64, StoreError> {
    let found = find(venue, owner, key).await?;
    Ok(found.map_or(0, |facts| begins_after(&facts, &state(&facts), ttl, venue.now())))
}

/// Finds one session; `None` if nothing was ever sent to it.
pub async fn find(venue: &Venue, owner: &Owner, key: &SessionKey) -> Result<Option<SessionFacts>, StoreError> {
    venue.store.find_session(owner, key).await
}

/// Returns turns of a session after turn `after`, oldest first, with their messages as far as `reader` may see them,
/// and the turn after which the next page begins.
pub async fn read(
    venue: &Venue,
    owner: &Owner,
    reader: &Authority,
    key: &SessionKey,
    after: u64,
    limit: usize,
) -> Result<(Vec<TurnRecordView>, Option<u64>), StoreError> {
    // Turns above the session's version are left by an interrupted copy and aren't its own.
    let own = find(venue, owner, key).await?.map_or(0, |facts| facts.version);
    let (prefix, begin) = (keys::turns(key), keys::turn(key, after));
    let range = steps::KeyRange::ascending(&prefix).start_after(&begin);
    let page = steps::scan(&*venue.store, owner, range, limit, LIST_BYTES).await?;
    let (mut turns, mut last, mut full) = (Vec::with_capacity(page.docs.len()), after, !page.ended);
    for (place, doc) in page.docs {
        let Some(turn) = keys::number_of_turn(&place) else { continue };
        if turn > own {
            full = false;
            break;
        }
        last = turn;
        let record = decode_listed::<TurnRecord>(owner, &place, &doc.value.unwrap_or_default());
        let Some(record) = record else { continue };
        turns.push(TurnRecordView::for_transcript(&record.visible_to(reader)));
    }
    Ok((turns, full.then_some(last)))
}

/// Creates a session whose transcript is that of another up to turn `at`. It has no task, no child, no approval and no
/// mail; it keeps what the old session has loaded. Without `to` it gets a fresh name.
pub async fn fork(
    venue: &Venue,
    owner: &Owner,
    from: &SessionKey,
    at: u64,
    to: Option<SessionId>,
) -> Result<SessionKey, LifecycleError> {
    let known = super::get(venue, owner, &from.agent).await?;
    if known.is_none() {
        return Err(LifecycleError::Unknown(from.agent.clone()));
    }
    let Some(facts) = find(venue, owner, from).await? else { return Err(LifecycleError::NoSession(from.clone())) };
    if at == 0 || at > facts.version {
        return Err(LifecycleError::NoTurn { session: from.clone(), asked: at, newest: facts.version });
    }
    let session = to.unwrap_or_else(fresh_name);
    let to = SessionKey { agent: from.agent.clone(), session };
    if find(venue, owner, &to).await?.is_some() {
        return Err(LifecycleError::Taken(to));
    }
    let Some(mut claim) = CopyClaim::for_session(venue, owner, &to).await? else {
        return Err(LifecycleError::Taken(to));
    };
    let copied = claim.copy(&facts, at, &to).await;
    claim.release(copied.map(|()| to)).await
}

/// Returns a name that no session has.
fn fresh_name() -> SessionId {
    SessionId::new(format!("f-{}", uuid::Uuid::now_v7().simple())).expect("hex digits are a legal id")
}
