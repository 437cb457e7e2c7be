//! Submissions to this very process: they are admitted to a free slot at once, and no message lies between.

use super::admit::{leave, settle};
use super::seats::Seat;
use crate::bus::Settle;
use crate::domain::ids::{Owner, SessionKey};
use crate::ingress;
use crate::store::{Admit, Admitted, Grant, LeaseOutcome, StoreError};
use crate::venue::local::{Brought, DirectWorker};
use crate::worker::Worker;
use crate::worker::lease::outage::return_grant;
use crate::worker::session::{self, End};
use crate::worker::stage::Stage;
use async_trait::async_trait;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, oneshot};

/// The worker, for who submits in its process.
pub(in crate::worker) struct Direct {
    pub(in crate::worker) worker: Arc<Worker>,
    pub(in crate::worker) slots: Arc<Semaphore>,
}

#[async_trait]
impl DirectWorker for Direct {
    async fn admit(&self, admit: Admit) -> Brought {
        let worker = &self.worker;
        let (Ok(slot), false) =
            (Arc::clone(&self.slots).try_acquire_owned(), worker.shutdown.stopping().is_cancelled())
        else {
            return Brought::Back(Box::new(admit));
        };
        let Some(seat) = worker.seats.take_behind(&admit.owner) else { return Brought::Back(Box::new(admit)) };
        let (answer, answered) = oneshot::channel();
        let own = Arc::clone(worker);
        // In a task of its own: whoever submits may go away while the store grants a lease, and nobody would have it.
        worker.shutdown.spawn_turn("session", async move {
            let busy = own.venue.metrics.slot_taken();
            run(&own, admit, seat, answer).await;
            drop((busy, slot));
        });
        answered.await.unwrap_or_else(|_| Brought::Asked(Err(gone(worker))))
    }
}

/// It panicked, and the log says where; what it did isn't known.
fn gone(worker: &Worker) -> StoreError {
    let reason = "the submission was given up; bring it again under the same id".to_owned();
    StoreError::Unavailable { store: worker.venue.name.clone(), reason }
}

async fn run(worker: &Arc<Worker>, mut admit: Admit, seat: Seat, answer: oneshot::Sender<Brought>) {
    admit.lease = Some(worker.lease_request());
    Stage::Admit.enter(&admit.session);
    let asked = worker.venue.clock.steady();
    let taken = ingress::take(&worker.venue, &mut admit).await;
    if taken.is_err() {
        return_grant(worker, &admit);
    }
    // The event is in the store: it takes no memory while the session runs.
    let Admit { owner, session, event, lease: _ } = admit;
    drop(event);
    let (intake, lease) = match taken {
        Ok(Admitted { intake, lease }) => (Ok(intake), lease),
        Err(error) => (Err(error), LeaseOutcome::NotAsked),
    };
    // Whoever went away needs no answer.
    let _ = answer.send(Brought::Asked(intake));
    if let LeaseOutcome::Run(grant) = lease {
        let due = Due { worker: Arc::clone(worker), owner: owner.clone(), session: session.clone() };
        due.run(*grant, asked).await;
    }
    Stage::Idle.enter(&session);
    leave(worker, Some(seat), &owner).await;
}

/// What stands for a message where there is none: the session is in the store, and due.
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

    /// A wake, after that time.
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
