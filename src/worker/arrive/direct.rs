//! Submissions to this very process: they are admitted to a free slot at once, and no message lies between.

use super::admit::{leave, settle};
use super::seats::Seat;
use crate::bus::Settle;
use crate::domain::ids::{Owner, SessionKey};
use crate::ingress;
use crate::store::{Admit, Admitted, Grant, LeaseOutcome};
use crate::venue::local::{Brought, DirectWorker};
use crate::worker::Worker;
use crate::worker::lease::outage::return_grant;
use crate::worker::session::{self, End};
use crate::worker::stage::Stage;
use async_trait::async_trait;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

/// The worker, for who submits in its process.
pub(in crate::worker) struct Direct {
    pub(in crate::worker) worker: Arc<Worker>,
    pub(in crate::worker) slots: Arc<Semaphore>,
}

#[async_trait]
impl DirectWorker for Direct {
    async fn admit(&self, admit: Admit) -> Brought {
        let worker = &self.worker;
        let slot = Arc::clone(&self.slots).try_acquire_owned();
        let (Ok(slot), false) = (slot, worker.shutdown.stopping().is_cancelled()) else {
            return Brought::Back(Box::new(admit));
        };
        let Some(seat) = worker.seats.take(&admit.owner) else { return Brought::Back(Box::new(admit)) };
        let asked = worker.venue.clock.steady();
        let mut asking =
            Asking { worker, admit: Admit { lease: Some(worker.lease_request()), ..admit }, is_answered: false };
        Stage::Admit.enter(&asking.admit.session);
        let taken = ingress::take(&worker.venue, &mut asking.admit).await;
        asking.is_answered = taken.is_ok();
        let (owner, session) = (asking.admit.owner.clone(), asking.admit.session.clone());
        drop(asking);
        match taken {
            Ok(Admitted { intake, lease: LeaseOutcome::Run(grant) }) => {
                let due = Due { worker: Arc::clone(worker), owner, session };
                // In a task of its own, whatever becomes of whoever has submitted it.
                worker.shutdown.spawn_turn("session", async move {
                    due.run(*grant, asked, seat).await;
                    drop(slot);
                });
                Brought::Asked(Ok(intake))
            }
            Ok(Admitted { intake, .. }) => {
                Stage::Idle.enter(&session);
                leave(worker, Some(seat), &owner).await;
                Brought::Asked(Ok(intake))
            }
            Err(error) => {
                leave(worker, Some(seat), &owner).await;
                Brought::Asked(Err(error))
            }
        }
    }
}

/// The store is asked for a lease.
struct Asking<'w> {
    worker: &'w Arc<Worker>,
    admit: Admit,
    is_answered: bool,
}

impl Drop for Asking<'_> {
    /// Whoever submits went away, or the answer was lost: what may have been granted is given back.
    fn drop(&mut self) {
        if !self.is_answered {
            return_grant(self.worker, &self.admit);
        }
    }
}

/// What stands for a message where there is none: the session is in the store, and due.
#[derive(Clone)]
struct Due {
    worker: Arc<Worker>,
    owner: Owner,
    session: SessionKey,
}

impl Due {
    /// Runs the session in the seat in which it was granted.
    async fn run(self, grant: Grant, asked: Duration, seat: Seat) {
        let Self { worker, owner, session } = self.clone();
        let due: Arc<dyn Settle> = Arc::new(self);
        match session::run(&worker, grant, asked, &*due).await {
            End::Idle => {}
            end @ (End::Lost | End::Failed(_)) => settle(&worker, &due, end).await,
        }
        Stage::Idle.enter(&session);
        leave(&worker, Some(seat), &owner).await;
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
