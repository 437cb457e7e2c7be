//! The admission of an event: the store's step, and what it needs when the answer isn't simple.

use super::replace::cancel_replaced;
use crate::domain::decode;
use crate::domain::job::JobHead;
use crate::store::{AdmissionOutcome, Admit, Intake, StoreError, keys};
use crate::venue::Venue;

/// Admits an event; first cancels another task, if the agent's policy says so. A task that came before with another
/// `replyTo` is a duplicate.
pub async fn admit(venue: &Venue, request: &mut Admit) -> Result<AdmissionOutcome, StoreError> {
    let mut answer = venue.store.admit(venue.now(), request).await?;
    if answer.intake == Intake::ReplaceRunning {
        cancel_replaced(venue, request).await?;
        answer = venue.store.admit(venue.now(), request).await?;
    }
    if answer.intake == Intake::Conflict && is_known_task(venue, request).await? {
        answer.intake = Intake::Duplicate;
    }
    Ok(answer)
}

/// Whether the task was accepted before, and only its `replyTo` is another one.
async fn is_known_task(venue: &Venue, request: &Admit) -> Result<bool, StoreError> {
    let Some(open) = request.event.as_ref().and_then(|event| event.open.as_ref()) else { return Ok(false) };
    let Ok(asked) = decode::read_stored::<JobHead>(&open.head) else { return Ok(false) };
    let known = venue.store.get::<JobHead>(&request.owner, &keys::job_head(&open.job)).await?;
    Ok(known.is_some_and(|known| known.event == asked.event && known.asks_the_same(&asked)))
}
