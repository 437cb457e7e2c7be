//! Submissions within this process: they are admitted to a free slot without a message in the queue.

use super::due;
use crate::domain::chat::ModelSettings;
use crate::store::{Admit, StoreError};
use crate::venue::local::{Brought, DirectWorker};
use crate::worker::Worker;
use async_trait::async_trait;
use std::sync::Arc;
use tokio::sync::oneshot;

/// The worker as its process submits to it.
pub(in crate::worker) struct Direct(pub(in crate::worker) Arc<Worker>);

#[async_trait]
impl DirectWorker for Direct {
    async fn admit(&self, admit: Admit) -> Brought {
        let worker = &self.0;
        if !worker.takes_work() {
            return Brought::Back(Box::new(admit));
        }
        let Some(seat) = worker.seats.take(&admit.owner) else { return Brought::Back(Box::new(admit)) };
        let (answer, answered) = oneshot::channel();
        let own = Arc::clone(worker);
        // In a task of its own: if the submitter went away during the grant, the lease would have no holder.
        worker.shutdown.spawn_turn("session", async move {
            let _busy = own.venue.metrics.slot_taken();
            // The submitter may have gone away.
            due::run(&own, admit, seat, |intake| drop(answer.send(Brought::Asked(intake)))).await;
        });
        answered.await.unwrap_or_else(|_| Brought::Asked(Err(gone(worker))))
    }

    fn missing_key(&self, model: &ModelSettings) -> Option<String> {
        self.0.model.missing_key(model)
    }
}

/// Returns the error for a submission whose task panicked; its effect is unknown.
fn gone(worker: &Worker) -> StoreError {
    let reason = "the submission was given up; bring it again under the same id".to_owned();
    StoreError::Unavailable { store: worker.venue.name.clone(), reason }
}
