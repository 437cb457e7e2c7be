//! Due sessions without a message here: they waited for a slot, or the store named them.

use super::admit::settle;
use super::seats::{GivenUp, Seat, Waits};
use crate::bus::Settle;
use crate::domain::ids::{Owner, SessionKey};
use crate::ingress;
use crate::store::{Admit, Admitted, Grant, Intake, LeaseOutcome, StoreError};
use crate::worker::Worker;
use crate::worker::lease::outage::return_grant;
use crate::worker::session::{self, End};
use crate::worker::stage::Stage;
use async_trait::async_trait;
use futures::{StreamExt, stream};
use std::sync::Arc;
use std::time::Duration;

/// Time after which a due session that was named is named again, unless it runs.
pub(in crate::worker) const GRACE: Duration = Duration::from_secs(5);

/// Wakes published at the same time.
const WAKES: usize = 32;

/// Releases a slot and starts the sessions that wait for it; if none is known, asks the store.
pub(super) async fn leave(worker: &Arc<Worker>, seat: Seat) {
    let owner = seat.owner.clone();
    drop(seat);
    call(worker).await;
    if worker.shutdown.stopping().is_cancelled() {
        return;
    }
    fill(worker, &owner).await;
    acknowledge(worker, &owner).await;
}

/// Acknowledges messages that exceed the owner's waiting sessions.
async fn acknowledge(worker: &Worker, owner: &Owner) {
    for message in worker.seats.release(owner) {
        message.ack().await;
    }
}

/// Runs due sessions from the store for an owner that has room for more than is known here.
pub(super) async fn fill(worker: &Arc<Worker>, owner: &Owner) {
    if !look_once(worker, owner).await {
        return;
    }
    // Sessions admitted within the grace period aren't due yet, and may be more than are remembered.
    let (own, owner) = (Arc::clone(worker), owner.clone());
    worker.shutdown.spawn_turn("due", async move {
        let stop = own.shutdown.stopping();
        if stop.run_until_cancelled(own.venue.clock.until(own.venue.clock.steady() + GRACE)).await.is_some() {
            own.seats.note_more_due(&owner);
            look_once(&own, &owner).await;
            acknowledge(&own, &owner).await;
        }
    });
}

/// Asks the store once, if more may be due. Returns whether it named fewer sessions than were asked for.
async fn look_once(worker: &Arc<Worker>, owner: &Owner) -> bool {
    let Some(missing) = worker.seats.missing(owner) else { return false };
    let looked = look(worker, owner, missing).await;
    let all = looked.as_ref().is_ok_and(|found| *found >= missing);
    worker.seats.finish_lookup(owner, all);
    match looked {
        Ok(_) => call_waiting(worker),
        Err(error) => tracing::debug!(%owner, %error, "due sessions not looked for; the sweep does it"),
    }
    !all
}

/// Runs waiting sessions in the free slots; a stopping worker wakes them elsewhere.
pub(in crate::worker) async fn call(worker: &Arc<Worker>) {
    if worker.shutdown.stopping().is_cancelled() {
        return call_elsewhere(worker).await;
    }
    call_waiting(worker);
}

fn call_waiting(worker: &Arc<Worker>) {
    if !worker.takes_work() {
        return;
    }
    while let Some((seat, session)) = worker.seats.next() {
        let own = Arc::clone(worker);
        let admit = Admit { owner: seat.owner.clone(), session, event: None, lease: None };
        // Boxed: its end starts the next session.
        let run: futures::future::BoxFuture<'static, ()> = Box::pin(async move {
            let _busy = own.venue.metrics.slot_taken();
            run(&own, admit, seat, |_| {}).await;
        });
        worker.shutdown.spawn_turn("session", run);
    }
}

/// Wakes all waiting sessions for other workers.
pub(super) async fn call_elsewhere(worker: &Worker) {
    let GivenUp { sessions, messages } = worker.seats.give_up();
    let wake = async |(owner, session)| worker.venue.wake(&owner, &session).await;
    stream::iter(sessions).for_each_concurrent(WAKES, wake).await;
    stream::iter(messages).for_each_concurrent(WAKES, async |message| message.ack().await).await;
}

/// Extends the acknowledgement time of the messages of waiting sessions, until the worker stops.
pub(super) async fn keep_messages(worker: Arc<Worker>) {
    let (clock, stop) = (&worker.venue.clock, worker.shutdown.stopping());
    while stop.run_until_cancelled(clock.until(clock.steady() + worker.options.lease / 3)).await.is_some() {
        for message in worker.seats.held() {
            message.progress().await;
        }
    }
}

/// Asks the store for due sessions of an owner. Returns how many it named.
async fn look(worker: &Worker, owner: &Owner, missing: usize) -> Result<usize, StoreError> {
    let venue = &worker.venue;
    let limit = u32::try_from(missing).unwrap_or(u32::MAX);
    let swept = venue.store.sweep(venue.now(), owner, GRACE, limit).await?;
    venue.relay(owner, &swept.outbox).await;
    for session in &swept.due {
        worker.seats.pass_over(owner, session, &Waits::Due);
    }
    Ok(swept.due.len())
}

/// Admits an event, leases its session, passes on the intake, and runs the session.
pub(super) async fn run(
    worker: &Arc<Worker>,
    mut admit: Admit,
    seat: Seat,
    answer: impl FnOnce(Result<Intake, StoreError>),
) {
    admit.lease = Some(worker.lease_request());
    Stage::Admit.enter(&admit.session);
    let asked = worker.venue.clock.steady();
    let taken = ingress::take(&worker.venue, &mut admit).await;
    if taken.is_err() {
        return_grant(worker, &admit);
    }
    // The event is in the store: its memory is freed while the session runs.
    let Admit { owner, session, event, lease: _ } = admit;
    drop(event);
    let (intake, lease) = match taken {
        Ok(Admitted { intake, lease }) => (Ok(intake), lease),
        Err(error) => (Err(error), LeaseOutcome::NotAsked),
    };
    answer(intake);
    if let LeaseOutcome::Run(grant) = lease {
        let due = Due { worker: Arc::clone(worker), owner, session: session.clone() };
        due.run(*grant, asked).await;
    }
    Stage::Idle.enter(&session);
    leave(worker, seat).await;
}

/// Stands for a message where there is none: the session is in the store, and due.
struct Due {
    worker: Arc<Worker>,
    owner: Owner,
    session: SessionKey,
}

impl Due {
    async fn run(self, grant: Grant, asked: Duration) {
        let worker = Arc::clone(&self.worker);
        let due: Arc<dyn Settle> = Arc::new(self);
        match session::run(&worker, grant, asked, &*due).await {
            End::Idle => {}
            end @ (End::Lost | End::Failed(_)) => settle(&worker, &due, end).await,
        }
    }
}

#[async_trait]
impl Settle for Due {
    async fn ack(&self) {}

    /// Wakes the session after the delay.
    async fn nak(&self, delay: Duration) {
        let (worker, owner, session) = (Arc::clone(&self.worker), self.owner.clone(), self.session.clone());
        self.worker.shutdown.spawn_turn("wake", async move {
            let stop = worker.shutdown.stopping().clone();
            if stop.run_until_cancelled(tokio::time::sleep(delay)).await.is_some() {
                worker.venue.wake(&owner, &session).await;
            }
        });
    }

    async fn progress(&self) {}
}
