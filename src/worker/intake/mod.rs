//! Stages 1 and 2: one delivery of the queue is admitted to its session, refused with an answer, or kept as a stray,
//! and then settled. An admitted session that gets a lease runs (stage 3). This module reads no session.

mod admit;
mod callers;
pub(super) mod direct;
pub(super) mod due_sessions;
mod orders;
pub(super) mod questions;
pub(super) mod receive;
mod refuse;
mod result;
pub(super) mod slots;
pub(super) mod stray;
mod submission;

use self::slots::{AdmissionSlot, SlotWait};
use super::stage::{self, Stage};
use super::{Worker, operations};
use crate::bus::Delivery;
use crate::domain::decode;
use crate::domain::ids::{SessionId, SessionKey};
use crate::domain::invocation::job_of_session;
use crate::domain::message::InboundKind;
use crate::store::Admit;
use serde::Deserialize;
use std::sync::Arc;
use std::time::Duration;

/// Redelivery delay of a message whose handling failed.
const REDELIVERY_DELAY: Duration = Duration::from_secs(1);

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

/// Handles one delivery to its end, in the slot of its owner if it has one.
async fn handle(worker: &Arc<Worker>, delivery: Delivery, seat: Option<AdmissionSlot>) {
    tracing::debug!(target: stage::TARGET, agent = %delivery.agent, stage = Stage::Arrive.as_str());
    let Some(seat) = seat else {
        handle_kind(worker, delivery, None).await;
        // A slot may have become free meanwhile, before this session was remembered.
        return due_sessions::call(worker).await;
    };
    let busy = worker.venue.metrics.mark_slot_busy();
    handle_kind(worker, delivery, Some(&seat)).await;
    drop(busy);
    due_sessions::release_slot(worker, seat).await;
}

async fn handle_kind(worker: &Arc<Worker>, delivery: Delivery, seat: Option<&AdmissionSlot>) {
    match delivery.kind {
        InboundKind::Task | InboundKind::Message => submission::handle_submission(worker, &delivery, seat).await,
        InboundKind::Result => result::handle_result(worker, &delivery, seat).await,
        InboundKind::Wake => wake(worker, &delivery, seat).await,
        InboundKind::Cancel => orders::cancel(worker, &delivery).await,
        InboundKind::Pause => orders::hold(worker, &delivery, true).await,
        InboundKind::Resume => orders::hold(worker, &delivery, false).await,
        InboundKind::Decide => orders::decide(worker, &delivery).await,
    }
}

/// Handles a wake: a session or an invoked operation is due.
async fn wake(worker: &Arc<Worker>, delivery: &Delivery, seat: Option<&AdmissionSlot>) {
    let body = match decode::from_json::<WakeBody>(&delivery.body) {
        Ok(body) => body,
        Err(error) => return stray::keep_unusable(worker, delivery, format!("malformed wake: {error}")).await,
    };
    let session = SessionKey { agent: delivery.agent.clone(), session: body.session };
    if let Some(job) = job_of_session(&session) {
        operations::offer(worker, &delivery.owner, &job);
        return delivery.settle.ack().await;
    }
    run_due(worker, delivery, session, seat, body.more).await;
}

/// Runs a due session in its owner's slot, or leaves it due. `more`: other sessions of the owner are due too, so the
/// store is asked for them when a slot is free.
async fn run_due(
    worker: &Arc<Worker>,
    delivery: &Delivery,
    session: SessionKey,
    seat: Option<&AdmissionSlot>,
    more: bool,
) {
    let owner = &delivery.owner;
    if seat.is_none() {
        worker.slots.enqueue_waiting(owner, &session, &SlotWait::Woken);
    }
    if more {
        worker.slots.note_more_due(owner);
    }
    match seat {
        // Another worker may have a free slot.
        None if more && delivery.delivered < HANDOVER_TRIES => delivery.settle.nak(HANDOVER_DELAY).await,
        None => delivery.settle.ack().await,
        Some(_) => {
            if more {
                due_sessions::fill(worker, owner).await;
            }
            let admit = Admit { owner: owner.clone(), session, event: None, lease: None };
            admit::admit_and_run(worker, delivery, admit, "wake", seat).await;
        }
    }
}
