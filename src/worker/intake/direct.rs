//! Submissions within this process: they are admitted to a free slot, or wait for one, without a message in the queue.

use super::due_sessions;
use crate::domain::chat::ModelSettings;
use crate::store::{Admit, Intake, StoreError};
use crate::venue::ingress;
use crate::venue::local_worker::{DirectWorker, HandoverOutcome};
use crate::worker::state::Worker;
use crate::worker::state::slots::SlotWait;
use async_trait::async_trait;
use std::sync::Arc;
use tokio::sync::oneshot;

/// The worker as its process submits to it.
pub(in crate::worker) struct DirectAdmission(pub(in crate::worker) Arc<Worker>);

#[async_trait]
impl DirectWorker for DirectAdmission {
    async fn admit(&self, admit: Admit) -> HandoverOutcome {
        let worker = &self.0;
        if !worker.takes_work() {
            return HandoverOutcome::Returned(Box::new(admit));
        }
        let Some(slot) = worker.slots.take(&admit.owner) else {
            return HandoverOutcome::Stored(admit_to_wait(worker, admit).await);
        };
        let (answer, answered) = oneshot::channel();
        let own = Arc::clone(worker);
        // In a task of its own: if the submitter went away during the grant, the lease would have no holder.
        worker.shutdown.spawn_turn("session", async move {
            let _busy = own.venue.metrics.mark_slot_busy();
            // The submitter may have gone away.
            due_sessions::run(&own, admit, slot, |intake| drop(answer.send(HandoverOutcome::Stored(intake)))).await;
        });
        answered.await.unwrap_or_else(|_| HandoverOutcome::Stored(Err(panicked_error(worker))))
    }

    fn missing_key(&self, model: &ModelSettings) -> Option<String> {
        self.0.model.missing_key(model)
    }
}

/// Admits an event whose session waits here for a slot. Other workers with free slots are told.
async fn admit_to_wait(worker: &Arc<Worker>, mut admit: Admit) -> Result<Intake, StoreError> {
    let intake = ingress::admit(&worker.venue, &mut admit).await?.intake;
    if intake == Intake::New {
        worker.slots.enqueue_waiting(&admit.owner, &admit.session, &SlotWait::Due);
        if worker.slots.claim_announcement(&admit.owner) {
            worker.venue.wake_of_many(&admit.owner, &admit.session).await;
        }
        // A slot may have become free meanwhile, before this session was remembered.
        due_sessions::call(worker).await;
    }
    Ok(intake)
}

/// Returns the error for a submission whose task panicked; its effect is unknown.
fn panicked_error(worker: &Worker) -> StoreError {
    let reason = "the submission was given up; bring it again under the same id".to_owned();
    StoreError::Unavailable { store: worker.venue.name.clone(), reason }
}
