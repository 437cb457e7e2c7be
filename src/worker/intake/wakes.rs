//! Wakes: a session or an invoked operation is due.

use super::{admit, due_sessions, stray};
use crate::bus::Delivery;
use crate::domain::decode;
use crate::domain::ids::{SessionId, SessionKey};
use crate::domain::invocation::job_of_session;
use crate::store::Admit;
use crate::worker::operations;
use crate::worker::state::Worker;
use crate::worker::state::slots::{AdmissionSlot, SlotWait};
use serde::Deserialize;
use std::sync::Arc;
use std::time::Duration;

/// Delay and number of tries after which a wake goes to another worker when this one has no slot.
const HANDOVER_DELAY: Duration = Duration::from_millis(100);
const HANDOVER_TRIES: u64 = 8;

#[derive(Deserialize)]
struct WakeBody {
    session: SessionId,
    /// More sessions of this owner are due than were named in wakes.
    #[serde(default)]
    more: bool,
}

/// Handles a wake: a session or an invoked operation is due.
pub(super) async fn handle_wake(worker: &Arc<Worker>, delivery: &Delivery, slot: Option<&AdmissionSlot>) {
    let body = match decode::from_json::<WakeBody>(&delivery.body) {
        Ok(body) => body,
        Err(error) => return stray::keep_unusable(worker, delivery, format!("malformed wake: {error}")).await,
    };
    let session = SessionKey { agent: delivery.agent.clone(), session: body.session };
    if let Some(job) = job_of_session(&session) {
        operations::offer(worker, &delivery.owner, &job);
        return delivery.settle.ack().await;
    }
    run_due(worker, delivery, session, slot, body.more).await;
}

/// Runs a due session in its owner's slot, or leaves it due. `more`: other sessions of the owner are due too, so the
/// store is asked for them when a slot is free.
pub(super) async fn run_due(
    worker: &Arc<Worker>,
    delivery: &Delivery,
    session: SessionKey,
    slot: Option<&AdmissionSlot>,
    more: bool,
) {
    let owner = &delivery.owner;
    if slot.is_none() {
        worker.slots.enqueue_waiting(owner, &session, &SlotWait::Woken);
    }
    if more {
        worker.slots.note_more_due(owner);
    }
    match slot {
        // Another worker may have a free slot.
        None if more && delivery.delivered < HANDOVER_TRIES => delivery.settle.nak(HANDOVER_DELAY).await,
        None => delivery.settle.ack().await,
        Some(_) => {
            if more {
                due_sessions::fill(worker, owner).await;
            }
            let admit = Admit { owner: owner.clone(), session, event: None, lease: None };
            admit::admit_and_run(worker, delivery, admit, "wake", slot).await;
        }
    }
}
