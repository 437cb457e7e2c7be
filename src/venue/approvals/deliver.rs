//! Answers on their way to the sessions, and to the jobs of calls, that wait for them.

use super::get;
use crate::domain::approval::{Approval, ApprovalAnswer};
use crate::domain::event::mailbox_key;
use crate::domain::event::{Event, Payload};
use crate::domain::ids::{EventId, JobId, Owner, VenueIdSubject, sha256_hex};
use crate::domain::priority::Priority;
use crate::store::{Admit, DocKey, DocWrite, EventKind, Intake, NewEvent, StoreError, keys};
use crate::venue::Venue;
use crate::venue::operation_jobs::bring_forward;
use bytes::Bytes;
use std::time::Duration;

/// Age of an answer at which the sweep delivers it to its session.
const HEARD_WITHIN: Duration = Duration::from_secs(5);

/// Answers of one owner that one step delivers.
const PAGE: usize = 64;

/// Delivers the answer of an approval that was decided now, which has a mark; `None`: a job gets it, not a session.
pub(super) async fn deliver_now(
    venue: &Venue,
    owner: &Owner,
    decided: &Approval,
) -> Result<Option<Intake>, StoreError> {
    let mark = decided.answer.as_ref().map(|answer| answer_mark_key(&decided.id, answer));
    if let Some(job) = &decided.asked_by {
        // While a worker has the job, the mark stays: the sweep has the job looked at again.
        if let (true, Some(mark)) = (bring_forward(venue, owner, job).await?, mark) {
            clear_mark(venue, owner, mark).await?;
        }
        return Ok(None);
    }
    let told = deliver_answer(venue, owner, decided).await?;
    if let Some(mark) = mark
        && let Err(error) = clear_mark(venue, owner, mark).await
    {
        tracing::debug!(%owner, approval = %decided.id, %error, "the session is told of its answer once more");
    }
    Ok(Some(told))
}

/// Returns the key of the mark of an answer that its session has not received.
pub(super) fn answer_mark_key(id: &JobId, answer: &ApprovalAnswer) -> DocKey {
    keys::answer_due(answer.at.plus(HEARD_WITHIN), id)
}

async fn clear_mark(venue: &Venue, owner: &Owner, mark: DocKey) -> Result<(), StoreError> {
    venue.store.write(venue.now(), owner, &[DocWrite::delete(mark)]).await.map(|_| ())
}

/// Delivers answers that sessions may not have received; returns whether there are more. Any process may do it at any
/// time, and several at once.
pub async fn deliver_answers(venue: &Venue, owner: &Owner) -> Result<bool, StoreError> {
    let now = venue.now();
    let found = venue.store.scan(owner, keys::ANSWERS_DUE, None, false, PAGE).await?;
    let mut told = 0;
    for (mark, _) in found {
        let Some((due, id)) = keys::job_of_due(keys::ANSWERS_DUE, &mark) else { continue };
        if due > now {
            return Ok(false);
        }
        match get(&*venue.store, owner, &id).await {
            Ok(Some((Approval { asked_by: Some(job), .. }, _))) => {
                if !bring_forward(venue, owner, &job).await? {
                    continue;
                }
            }
            Ok(Some((approval, _))) => {
                deliver_answer(venue, owner, &approval).await?;
            }
            // The approval was deleted with its job.
            Ok(None) => {}
            Err(error @ StoreError::Corrupt { .. }) => {
                tracing::warn!(%owner, approval = %id, %error, "answer not told");
            }
            Err(error) => return Err(error),
        }
        clear_mark(venue, owner, mark).await?;
        told += 1;
    }
    Ok(told == PAGE)
}

/// Puts the answer into the mailbox of the session that waits, and wakes it.
async fn deliver_answer(venue: &Venue, owner: &Owner, approval: &Approval) -> Result<Intake, StoreError> {
    let now = venue.now();
    let id = EventId::of_venue(&venue.key, VenueIdSubject::Answer(&approval.id));
    let event = Event {
        caller: approval.answer.as_ref().map(|answer| answer.by.clone()),
        ..Event::new(id.clone(), now, Payload::Decision { approval: approval.id.clone() })
    };
    let event = NewEvent {
        body_hash: sha256_hex(approval.id.as_str().as_bytes()),
        id,
        kind: EventKind::Result,
        job: None,
        order: mailbox_key(EventKind::Result, Priority::Normal, now, 0),
        body: Bytes::from(serde_json::to_vec(&event).expect("events serialise")),
        open: None,
        finish: None,
        outbox: Vec::new(),
        quota: None,
        may_replace: false,
    };
    let admit = Admit { owner: owner.clone(), session: approval.session.clone(), event: Some(event), lease: None };
    let intake = venue.store.admit(now, &admit).await?.intake;
    if !matches!(intake, Intake::Refused(_)) {
        venue.wake(owner, &approval.session).await;
    }
    Ok(intake)
}
