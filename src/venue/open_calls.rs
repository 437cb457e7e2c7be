//! Calls that must not be repeated and have begun. Their records are stored until their end is recorded; the sweep
//! lists those whose end nobody can record any more.

use crate::domain::agent::AgentStatus;
use crate::domain::call::Outcome;
use crate::domain::ids::{JobId, Owner};
use crate::domain::job::JobStatus;
use crate::domain::outcome::{CallMaker, CallerSession, OpenCall, OpenCallFate, UnknownCall, UnknownOutcome};
use crate::domain::session::TurnRecord;
use crate::domain::time::Millis;
use crate::domain::unknown_fields::UnknownFields;
use crate::store::{Doc, DocKey, DocWrite, StoreError, WriteOutcome, keys};
use crate::venue::Venue;
use crate::venue::agents;
use crate::venue::agents::sessions;
use crate::venue::outcomes;

/// Records that one step reads.
const PAGE: usize = 64;

/// Operation of an entry whose record can't be read.
const UNREADABLE: &str = "unreadable record";

/// Returns the write with which a call begins, and the key of its record, which the sweep checks at `due`.
pub fn record_write(open: &OpenCall, due: Millis) -> (DocKey, DocWrite) {
    let key = keys::open_call(due, &open.listed.id);
    (key.clone(), DocWrite::json(key, open))
}

/// Returns the keys of all records of the call that is listed as `id`: the sweep moves the record of a call that
/// outlasts its lease, and a predecessor leaves one of its own.
pub async fn record_keys(venue: &Venue, owner: &Owner, id: &JobId) -> Result<Vec<DocKey>, StoreError> {
    let mut found = Vec::new();
    let mut pages = venue.store.docs(owner, keys::OPEN_CALLS);
    while let Some(page) = pages.keys().await? {
        let is_of_call =
            |key: &DocKey| keys::job_of_due(keys::OPEN_CALLS, key).is_some_and(|(_, listed)| listed == *id);
        found.extend(page.into_iter().filter(is_of_call));
    }
    Ok(found)
}

/// Removes a call from the list after its end became known, unless a person has settled it.
pub async fn delist(venue: &Venue, owner: &Owner, id: &JobId) -> Result<(), StoreError> {
    let key = keys::outcome(id);
    let (listed, version) = venue.store.get_versioned::<UnknownOutcome>(owner, &key).await?;
    if listed.is_some_and(|listed| listed.settled.is_none()) {
        // On a conflict a person has settled it.
        venue.store.write(venue.now(), owner, &[DocWrite::delete(key).at_version(version)]).await?;
    }
    Ok(())
}

/// Lists the calls of an owner that are due and whose end nobody can record any more.
pub async fn sweep(venue: &Venue, owner: &Owner) -> Result<(), StoreError> {
    let mut pages = venue.store.docs(owner, keys::OPEN_CALLS).page_size(PAGE);
    while let Some(page) = pages.next().await? {
        for (key, doc) in page {
            let Some((due, id)) = keys::job_of_due(keys::OPEN_CALLS, &key) else { continue };
            if due > venue.now() {
                return Ok(());
            }
            match check_record(venue, owner, &id, &key, &doc).await {
                Ok(()) => {}
                Err(error) if error.is_transient() => return Err(error),
                // A damaged record doesn't keep others from being checked.
                Err(error) => tracing::warn!(%owner, call = %id, %error, "a call that has begun is not looked at"),
            }
        }
    }
    Ok(())
}

async fn check_record(venue: &Venue, owner: &Owner, id: &JobId, key: &str, doc: &Doc) -> Result<(), StoreError> {
    let open = match doc.decode::<OpenCall>(key) {
        Ok(Some(open)) => open,
        // An unreadable record shows only that a call has begun.
        Ok(None) | Err(_) => unreadable_call(id.clone(), venue.now()),
    };
    let session = match (&open.maker, &open.listed.call) {
        (CallMaker::Turn { .. }, Some(call)) => caller_session(venue, owner, &open, call).await?,
        (CallMaker::Turn { .. }, None) | (CallMaker::Request, _) => None,
    };
    let gone = DocWrite::delete(key).at_version(doc.version);
    match open.fate(venue.now(), session) {
        OpenCallFate::Pending(until) => {
            let (_, moved) = record_write(&open, until);
            venue.store.write(venue.now(), owner, &[gone, moved]).await?;
        }
        OpenCallFate::Recorded => drop(venue.store.write(venue.now(), owner, &[gone]).await?),
        OpenCallFate::Unknown => list_unknown(venue, owner, &open, gone).await?,
    }
    Ok(())
}

/// Lists a call, unless it is listed already, and deletes its record by the write `gone`.
pub async fn list_unknown(venue: &Venue, owner: &Owner, open: &OpenCall, gone: DocWrite) -> Result<(), StoreError> {
    let listed = &open.listed;
    let before = venue.store.doc(owner, &keys::outcome(&listed.id)).await?;
    let is_new = before.value.is_none();
    let entry = UnknownOutcome { at: venue.now(), ..listed.clone() };
    let mut writes = vec![gone];
    if is_new {
        writes.extend(outcomes::listing_writes(venue, owner, &entry, before.version));
    }
    let written = venue.store.write(venue.now(), owner, &writes).await?;
    if is_new && written == WriteOutcome::Done {
        venue.metrics.count_unknown_outcome(if listed.call.is_some() { "call" } else { "operation" });
        tracing::warn!(
            %owner, outcome = %listed.id, operation = listed.operation,
            "a call was begun and nobody has recorded its end; it is listed with those of unknown outcome"
        );
    }
    Ok(())
}

fn unreadable_call(id: JobId, at: Millis) -> OpenCall {
    let listed = UnknownOutcome::new(id, UNREADABLE, at);
    OpenCall { listed, maker: CallMaker::Request, repeatable: false, kept: UnknownFields::default() }
}

/// Returns the session of a call as it is; `None` if it is gone or unreadable.
async fn caller_session(
    venue: &Venue,
    owner: &Owner,
    open: &OpenCall,
    call: &UnknownCall,
) -> Result<Option<CallerSession>, StoreError> {
    let found = sessions::find(venue, owner, &call.session).await?.filter(|facts| !facts.unreadable);
    let Some(facts) = found else { return Ok(None) };
    Ok(Some(CallerSession {
        version: facts.version,
        epoch: facts.epoch,
        lease_until: facts.lease_until,
        is_recorded: is_recorded(venue, owner, call).await?,
        may_resume: open.repeatable && may_resume(venue, owner, open, call).await?,
    }))
}

/// Whether the record of the reply says that the call was made.
async fn is_recorded(venue: &Venue, owner: &Owner, call: &UnknownCall) -> Result<bool, StoreError> {
    let key = keys::turn(&call.session, call.turn);
    let record = venue.store.doc(owner, &key).await?.decode::<TurnRecord>(&key).ok().flatten();
    let at = usize::try_from(call.index).ok();
    let made = record.zip(at).and_then(|(record, at)| Some(record.calls.get(at)?.outcome.clone()));
    let unmade = [Outcome::Awaiting, Outcome::Cancelled].map(Outcome::as_str);
    Ok(made.is_some_and(|outcome| !unmade.contains(&outcome.as_str())))
}

/// Whether a successor will continue the turn: neither its task nor its agent has ended.
async fn may_resume(venue: &Venue, owner: &Owner, open: &OpenCall, call: &UnknownCall) -> Result<bool, StoreError> {
    let agent = agents::get(venue, owner, &call.session.agent).await?;
    if agent.is_none_or(|(agent, _)| agent.status == AgentStatus::Terminated) {
        return Ok(false);
    }
    let Some(job) = &open.listed.job else { return Ok(true) };
    let status = venue.store.doc(owner, &keys::job_status(job)).await?.status();
    Ok(status.is_some_and(|(status, _): (JobStatus, Millis)| !status.is_terminal()))
}
