//! Stages 1 and 2. In comes one delivery of the queue; it is admitted to its session, refused with an answer, or kept as
//! a stray, and settled. Admitted and granted, its session runs (stage 3); nothing here looks into a session.

mod admit;
mod callers;
pub(super) mod direct;
mod orders;
mod refuse;
mod result;
pub(super) mod seats;
pub(super) mod stray;
mod submission;

use super::stage::{self, Stage};
use super::{Worker, invoked};
use crate::bus::{Delivery, Settle};
use crate::domain::decode;
use crate::domain::ids::{SessionId, SessionKey};
use crate::domain::invoked::job_of;
use crate::domain::message::InKind;
use crate::store::Admit;
use serde::Deserialize;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Redelivery of a message whose handling failed.
const RETRY: Duration = Duration::from_secs(1);

#[derive(Deserialize)]
struct WakeBody {
    session: SessionId,
}

/// A slot for a delivery that is here already, which the queue keeps meanwhile; `None`: the worker stops, and another
/// gets it.
pub(super) async fn wait_for_slot(
    worker: &Worker,
    slots: &Arc<Semaphore>,
    settle: &dyn Settle,
) -> Option<OwnedSemaphorePermit> {
    loop {
        let free = tokio::time::timeout(worker.options.lease / 3, Arc::clone(slots).acquire_owned());
        match worker.shutdown.stopping().run_until_cancelled(free).await {
            Some(Ok(slot)) => return slot.ok(),
            Some(Err(_)) => settle.progress().await,
            None => {
                settle.nak(Duration::ZERO).await;
                return None;
            }
        }
    }
}

/// Handles one delivery to its end.
pub(super) async fn handle(worker: &Arc<Worker>, delivery: Delivery) {
    tracing::debug!(target: stage::TARGET, agent = %delivery.agent, stage = Stage::Arrive.as_str());
    match delivery.kind {
        InKind::Task | InKind::Message => submission::submission(worker, &delivery).await,
        InKind::Result => result::result(worker, &delivery).await,
        InKind::Wake => match decode::from_json::<WakeBody>(&delivery.body) {
            Ok(body) => {
                let session = SessionKey { agent: delivery.agent.clone(), session: body.session };
                if let Some(job) = job_of(&session) {
                    invoked::offer(worker, &delivery.owner, &job);
                    delivery.settle.ack().await;
                    return;
                }
                let admit = Admit { owner: delivery.owner.clone(), session, event: None, lease: None };
                admit::admit_and_run(worker, &delivery, admit, "wake").await;
            }
            Err(error) => stray::unusable(worker, &delivery, format!("malformed wake: {error}")).await,
        },
        InKind::Cancel => orders::cancel(worker, &delivery).await,
        InKind::Pause => orders::hold(worker, &delivery, true).await,
        InKind::Resume => orders::hold(worker, &delivery, false).await,
        InKind::Decide => orders::decide(worker, &delivery).await,
    }
}
