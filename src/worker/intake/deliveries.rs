//! A delivery of the queue, handled by its kind.

use super::{due_sessions, orders, result, submission, wakes};
use crate::bus::Delivery;
use crate::domain::message::InboundKind;
use crate::worker::stage::{self, Stage};
use crate::worker::state::Worker;
use crate::worker::state::slots::AdmissionSlot;
use std::sync::Arc;

/// Handles one delivery to its end, in the slot of its owner if it has one.
pub(super) async fn handle(worker: &Arc<Worker>, delivery: Delivery, slot: Option<AdmissionSlot>) {
    tracing::debug!(target: stage::TARGET, agent = %delivery.agent, stage = Stage::Arrive.as_str());
    if delivery.delivered > 1 {
        worker.venue.metrics.progress.count_retry("redelivery");
    }
    let Some(slot) = slot else {
        handle_kind(worker, delivery, None).await;
        // A slot may have become free meanwhile, before this session was remembered.
        return due_sessions::call(worker).await;
    };
    let busy = worker.venue.metrics.mark_slot_busy();
    handle_kind(worker, delivery, Some(&slot)).await;
    drop(busy);
    due_sessions::release_slot(worker, slot).await;
}

async fn handle_kind(worker: &Arc<Worker>, delivery: Delivery, slot: Option<&AdmissionSlot>) {
    match delivery.kind {
        InboundKind::Task | InboundKind::Message => submission::handle_submission(worker, &delivery, slot).await,
        InboundKind::Result => result::handle_result(worker, &delivery, slot).await,
        InboundKind::Wake => wakes::handle_wake(worker, &delivery, slot).await,
        InboundKind::Cancel => orders::cancel(worker, &delivery).await,
        InboundKind::Pause => orders::hold(worker, &delivery, true).await,
        InboundKind::Resume => orders::hold(worker, &delivery, false).await,
        InboundKind::Decide => orders::decide(worker, &delivery).await,
    }
}
