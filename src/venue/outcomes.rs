//! Calls of unknown outcome as they are stored: read, list, settle.
//!
//! Each is written together with the record of the call: the commit of its turn, or the end of the operation's job. A
//! settlement changes no job and no turn.

use crate::domain::authority::ResourcePath;
use crate::domain::ids::{JobId, Owner};
use crate::domain::lattice::Namespace;
use crate::domain::limits::{INPUT_BYTES, SETTLEMENT_NOTE_CHARS};
use crate::domain::outcome::{OutcomeSettlement, UnknownOutcome};
use crate::domain::time::Millis;
use crate::store::{DocWrite, Edit, StoreError, keys, steps};
use crate::venue::Venue;
use crate::venue::jobs::ListPage;
use crate::venue::notices;
use crate::venue::operation::{Caller, OpError};
use std::cmp::Reverse;

/// Ability to settle an outcome, on its job, or on its agent if there is no job.
const SETTLE: &str = "job/settle";

/// Returns the writes that list a call which isn't listed yet, and tell of it; `version` is that of the document.
pub fn listing_writes(venue: &Venue, owner: &Owner, outcome: &UnknownOutcome, version: u64) -> [DocWrite; 2] {
    let listing = DocWrite::json(keys::outcome(&outcome.id), outcome).at_version(version);
    [listing, notices::outcome_write(venue, owner, outcome)]
}

/// Returns the writes that list an operation which was invoked as a job.
pub fn job_listing_writes(venue: &Venue, owner: &Owner, job: &JobId, operation: &str, at: Millis) -> [DocWrite; 2] {
    let outcome = UnknownOutcome { job: Some(job.clone()), ..UnknownOutcome::new(job.clone(), operation, at) };
    listing_writes(venue, owner, &outcome, 0)
}

/// Returns one unknown outcome, settled or not.
pub async fn get(venue: &Venue, owner: &Owner, id: &JobId) -> Result<Option<UnknownOutcome>, StoreError> {
    venue.store.get(owner, &keys::outcome(id)).await
}

/// Lists a page of an owner's unknown outcomes, the newest first: the unsettled ones, or with `all` every one that is
/// kept.
pub async fn list(
    venue: &Venue,
    owner: &Owner,
    all: bool,
    offset: usize,
    limit: usize,
) -> Result<ListPage<UnknownOutcome>, StoreError> {
    let mut known = Vec::new();
    let mut outcomes = venue.store.docs(owner, keys::OUTCOMES);
    while let Some(page) = outcomes.records::<UnknownOutcome>().await? {
        let wanted = page.into_iter().filter(|(_, outcome)| all || outcome.settled.is_none());
        known.extend(wanted.map(|(key, outcome)| (outcome.at, key)));
    }
    known.sort_unstable_by_key(|(at, _)| Reverse(*at));
    let places: Vec<_> = known.into_iter().map(|(_, key)| [key]).collect();
    let (items, next) = steps::page(&*venue.store, owner, &places, offset, limit).await?;
    Ok(ListPage { items, total: places.len(), next })
}

/// Settles for a caller whether a call has happened. The same settlement again changes nothing; another one is a
/// conflict.
pub async fn settle(
    venue: &Venue,
    caller: &Caller,
    id: &JobId,
    settlement: OutcomeSettlement,
) -> Result<UnknownOutcome, OpError> {
    let bytes = check(&settlement)?;
    let owner = &caller.owner;
    let attempt = || async {
        let (found, version) = venue.store.get_versioned::<UnknownOutcome>(owner, &keys::outcome(id)).await?;
        let missing = || OpError::NotFound(format!("no unknown outcome `{id}`; `job/outcomes` lists them"));
        let outcome = found.ok_or_else(missing)?;
        let about = match (&outcome.job, &outcome.call) {
            (Some(job), _) => ResourcePath::job(job),
            (None, Some(call)) => ResourcePath::agent(&call.session.agent),
            (None, None) => ResourcePath::job(id),
        };
        if let Err(denied) = caller.authority.permits(SETTLE, about) {
            let list = ResourcePath::whole_namespace(Namespace::Jobs);
            return Err(caller.hide_unseen(OpError::Denied(denied.model_text(SETTLE)), list, missing));
        }
        match &outcome.settled {
            Some(before) if before.agrees_with(&settlement) => Ok(Edit::without_writes(outcome)),
            Some(before) => Err(OpError::Conflict(format!(
                "outcome `{id}` was settled as {} by `{}`",
                if before.done { "done" } else { "not done" },
                before.by
            ))),
            None => {
                let settled = UnknownOutcome { settled: Some(settlement.clone()), ..outcome };
                let write = DocWrite::json(keys::outcome(id), &settled).at_version(version);
                Ok(Edit::write([write], settled).with_quota(venue.quota_to_end(bytes).await))
            }
        }
    };
    let outcome = venue.store.edit(venue.now(), owner, "unknown outcome", id, attempt).await?;
    tracing::info!(
        %owner, outcome = %id, operation = outcome.operation, by = caller.name, done = settlement.done,
        "an unknown outcome was settled"
    );
    Ok(outcome)
}

/// Checks a settlement, and returns the bytes of its texts.
fn check(settlement: &OutcomeSettlement) -> Result<usize, OpError> {
    if !settlement.done && settlement.result.is_some() {
        return Err(OpError::Invalid("what was not done has no result".into()));
    }
    if settlement.note.as_ref().is_some_and(|note| note.chars().count() > SETTLEMENT_NOTE_CHARS) {
        return Err(OpError::Invalid(format!("the note has more than {SETTLEMENT_NOTE_CHARS} characters")));
    }
    let bytes = settlement.result.as_ref().map_or(0, |result| result.to_string().len());
    if bytes > INPUT_BYTES {
        return Err(OpError::Invalid(format!("the result has {bytes} bytes, at most {INPUT_BYTES} are kept")));
    }
    Ok(bytes + settlement.note.as_ref().map_or(0, String::len))
}
