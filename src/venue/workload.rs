//! Work of the whole venue that waits or runs, as one number for choosing the number of workers.

use super::Venue;
use crate::bus::BusError;
use crate::store::StoreError;
use crate::venue::registry;
use crate::view::audit::WorkView;
use std::time::Duration;

/// Age of a measurement up to which it is used again.
const MEASURED_FOR: Duration = Duration::from_secs(5);

/// Sessions that are due within that time count as work. It is longer than a lease, by which a running session is due;
/// what waits for a person or a timer is due later.
const SOON: Duration = Duration::from_mins(2);

/// Why the amount of work isn't known.
#[derive(Debug, thiserror::Error)]
pub enum WorkError {
    /// Error of the store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Error of the queue.
    #[error(transparent)]
    Bus(#[from] BusError),
}

impl Venue {
    /// Counts the work that waits and the work that runs, and sets the metrics.
    pub async fn measure_work(&self) -> Result<WorkView, WorkError> {
        let (now, metrics) = (self.clock.steady(), &self.metrics);
        let is_fresh = metrics.work_measured.lock().is_some_and(|last| now < last + MEASURED_FOR);
        if !is_fresh {
            let backlog = self.bus.backlog().await?;
            let sessions = self.store.busy_sessions(self.now().plus(SOON)).await?;
            let busy = registry::fleet_state(self).await?.busy;
            metrics.progress.set_sessions(busy.min(sessions), sessions.saturating_sub(busy));
            let age = backlog.oldest.map_or(Duration::ZERO, |oldest| self.now().elapsed_since(oldest));
            let gauge = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
            metrics.queue_messages.set(gauge(backlog.messages()));
            metrics.queue_oldest.set(gauge(age.as_secs()));
            metrics.work.set(gauge(backlog.messages().saturating_add(sessions)));
            *metrics.work_measured.lock() = Some(now);
        }
        let (work, messages) = (metrics.work.get(), metrics.queue_messages.get());
        Ok(WorkView { work, messages, oldest_seconds: metrics.queue_oldest.get() })
    }
}
