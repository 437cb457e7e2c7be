//! The lease keeper: renews while a session runs, and says when the lease is lost or the task
//! is cancelled.

use super::Worker;
use crate::bus::Settle;
use crate::store::{Held, Lease};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// What stops a running turn.
#[derive(Debug, Clone, Default)]
pub(super) struct Stops {
    /// Another has the lease, or may have: write nothing more.
    pub(super) lost: CancellationToken,
    /// The served task was cancelled.
    pub(super) cancelled: CancellationToken,
}

/// Renews the lease, and the delivery that runs under it, three times per lease, until dropped.
pub(super) async fn keep(worker: &Worker, lease: &Lease, settle: &dyn Settle, stops: &Stops) {
    let ttl = worker.options.lease;
    let pause = (ttl / 3).max(Duration::from_millis(10));
    loop {
        tokio::time::sleep(pause).await;
        settle.progress().await;
        match worker.venue.store.renew(worker.venue.now(), lease, ttl).await {
            Ok(Held::Yes { cancelled: false }) => {}
            Ok(Held::Yes { cancelled: true }) => stops.cancelled.cancel(),
            Ok(Held::Fenced) => {
                worker.venue.metrics.leases_lost.inc();
                tracing::warn!(session = %lease.session, epoch = lease.epoch, "lease lost");
                stops.lost.cancel();
                return;
            }
            // The commit is fenced: going on without a renewal is safe, only perhaps in vain.
            Err(error) => tracing::warn!(session = %lease.session, %error, "lease not renewed"),
        }
    }
}
