//! Due sessions without a message here: they waited for a slot, or the store named them.

use super::settle::settle;
use crate::bus::Acknowledge;
use crate::domain::ids::{Owner, SessionKey};
use crate::store::{AdmissionOutcome, Admit, Grant, Intake, LeaseOutcome, StoreError};
use crate::venue::ingress;
use crate::worker::lease::outage::return_grant;
use crate::worker::session::{self, SessionEnd};
use crate::worker::stage::Stage;
use crate::worker::state::Worker;
use crate::worker::state::slots::{AdmissionSlot, SlotWait, WaitingWork};
use async_trait::async_trait;
use futures::{StreamExt, stream};
use std::sync::Arc;
use std::time::Duration;

/// Time after which a due session that was named is named again, unless it runs.
pub(in crate::worker) const REPEAT_DELAY: Duration = Duration::from_secs(5);

/// Wakes published at the same time.
const WAKES_AT_ONCE: usize = 32;

/// Releases a slot and starts the sessions that wait for it; if none is known, asks the store.
pub(super) async fn release_slot(worker: &Arc<Worker>, slot: AdmissionSlot) {
    let owner = slot.owner.clone();
    drop(slot);
    call(worker).await;
    if worker.shutdown.stop_token().is_cancelled() {
        return;
    }
    fill(worker, &owner).await;
    acknowledge(worker, &owner).await;
}

/// Acknowledges messages that exceed the owner's waiting sessions.
async fn acknowledge(worker: &Worker, owner: &Owner) {
    for message in worker.slots.release(owner) {
        message.ack().await;
    }
}

/// Runs due sessions from the store for an owner that has room for more than is known here.
pub(super) async fn fill(worker: &Arc<Worker>, owner: &Owner) {
    if !fetch_due_once(worker, owner).await {
        return;
    }
    // Sessions admitted within the grace period aren't due yet, and may be more than are remembered.
    let (own, owner) = (Arc::clone(worker), owner.clone());
    worker.shutdown.spawn_turn("due", async move {
        let stop = own.shutdown.stop_token();
        if stop.run_until_cancelled(own.venue.clock.wait_until(own.venue.clock.steady() + REPEAT_DELAY)).await.is_some()
        {
            own.slots.note_more_due(&owner);
            fetch_due_once(&own, &owner).await;
            acknowledge(&own, &owner).await;
        }
    });
}

/// Asks the store once, if more may be due. Returns whether it named fewer sessions than were asked for.
async fn fetch_due_once(worker: &Arc<Worker>, owner: &Owner) -> bool {
    let Some(missing) = worker.slots.sessions_to_fetch(owner) else { return false };
    let looked = fetch_due(worker, owner, missing).await;
    let all = looked.as_ref().is_ok_and(|found| *found >= missing);
    worker.slots.finish_lookup(owner, all);
    match looked {
        Ok(_) => wake_waiting(worker),
        Err(error) => tracing::debug!(%owner, %error, "due sessions not looked for; the sweep does it"),
    }
    !all
}

/// Runs waiting sessions in the free slots; a stopping worker wakes them elsewhere.
pub(in crate::worker) async fn call(worker: &Arc<Worker>) {
    if worker.shutdown.stop_token().is_cancelled() {
        return wake_elsewhere(worker).await;
    }
    wake_waiting(worker);
}

fn wake_waiting(worker: &Arc<Worker>) {
    if !worker.takes_work() {
        return;
    }
    while let Some((slot, session)) = worker.slots.take_next() {
        let own = Arc::clone(worker);
        let admit = Admit { owner: slot.owner.clone(), session, event: None, lease: None };
        // Boxed: its end starts the next session.
        let run: futures::future::BoxFuture<'static, ()> = Box::pin(async move {
            let _busy = own.venue.metrics.mark_slot_busy();
            run(&own, admit, slot, |_| {}).await;
        });
        worker.shutdown.spawn_turn("session", run);
    }
}

/// Wakes all waiting sessions for other workers.
pub(super) async fn wake_elsewhere(worker: &Worker) {
    let WaitingWork { sessions, messages } = worker.slots.remove_waiting();
    let wake = async |(owner, session)| worker.venue.wake(&owner, &session).await;
    stream::iter(sessions).for_each_concurrent(WAKES_AT_ONCE, wake).await;
    stream::iter(messages).for_each_concurrent(WAKES_AT_ONCE, async |message| message.ack().await).await;
}

/// Extends the acknowledgement time of the messages of waiting sessions, until the worker stops.
pub(super) async fn keep_messages(worker: Arc<Worker>) {
    let (clock, stop) = (&worker.venue.clock, worker.shutdown.stop_token());
    while stop.run_until_cancelled(clock.wait_until(clock.steady() + worker.options.lease / 3)).await.is_some() {
        for message in worker.slots.unacknowledged_messages() {
            message.progress().await;
        }
    }
}

/// Asks the store for due sessions of an owner. Returns how many it named.
async fn fetch_due(worker: &Worker, owner: &Owner, missing: usize) -> Result<usize, StoreError> {
    let venue = &worker.venue;
    let limit = u32::try_from(missing).unwrap_or(u32::MAX);
    let swept = venue.store.sweep(venue.now(), owner, REPEAT_DELAY, limit).await?;
    venue.relay(owner, &swept.outbox).await;
    for session in &swept.due {
        worker.slots.enqueue_waiting(owner, session, &SlotWait::Due);
    }
    Ok(swept.due.len())
}

/// Admits an event, leases its session, passes on the intake, and runs the session.
pub(super) async fn run(
    worker: &Arc<Worker>,
    mut admit: Admit,
    slot: AdmissionSlot,
    answer: impl FnOnce(Result<Intake, StoreError>),
) {
    admit.lease = Some(worker.lease_request());
    Stage::Admit.enter(&admit.session);
    let asked = worker.venue.clock.steady();
    let taken = ingress::admit(&worker.venue, &mut admit).await;
    if taken.is_err() {
        return_grant(worker, &admit);
    }
    // The event is in the store: its memory is freed while the session runs.
    let Admit { owner, session, event, lease: _ } = admit;
    drop(event);
    let (intake, lease) = match taken {
        Ok(AdmissionOutcome { intake, lease }) => (Ok(intake), lease),
        Err(error) => (Err(error), LeaseOutcome::NotAsked),
    };
    answer(intake);
    if let LeaseOutcome::Run(grant) = lease {
        let due = DueSession { worker: Arc::clone(worker), owner, session: session.clone() };
        due.run(*grant, asked).await;
    }
    Stage::Idle.enter(&session);
    release_slot(worker, slot).await;
}

/// Stands for a message where there is none: the session is in the store, and due.
struct DueSession {
    worker: Arc<Worker>,
    owner: Owner,
    session: SessionKey,
}

impl DueSession {
    async fn run(self, grant: Grant, asked: Duration) {
        let worker = Arc::clone(&self.worker);
        let due: Arc<dyn Acknowledge> = Arc::new(self);
        match session::run(&worker, grant, asked, &*due).await {
            SessionEnd::Idle => {}
            end @ (SessionEnd::LeaseLost | SessionEnd::Failed(_)) => settle(&worker, &due, end).await,
        }
    }
}

#[async_trait]
impl Acknowledge for DueSession {
    async fn ack(&self) {}

    /// Wakes the session after the delay, and at once if the worker stops: no message brings it to another one.
    async fn nak(&self, delay: Duration) {
        let (worker, owner, session) = (Arc::clone(&self.worker), self.owner.clone(), self.session.clone());
        self.worker.shutdown.spawn_turn("wake", async move {
            let stop = worker.shutdown.stop_token().clone();
            stop.run_until_cancelled(tokio::time::sleep(delay)).await;
            worker.venue.wake(&owner, &session).await;
        });
    }

    async fn progress(&self) {}
}
