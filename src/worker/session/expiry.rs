//! Sessions past their time to live: empty in the turn that begins, and in the store with its commit.

use crate::domain::agent::AgentConfig;
use crate::venue::context::Transcript;
use crate::worker::Worker;
use crate::worker::lease::{Leased, Stop, transcript};

/// Empties the session if its time to live was over when the event to serve arrived.
pub(crate) async fn begin_anew(worker: &Worker, leased: &mut Leased, config: &AgentConfig) -> Result<(), Stop> {
    let (Some(ttl), Some(at)) = (&config.session.ttl, leased.run.arrived()) else { return Ok(()) };
    if leased.expired || leased.run.version == 0 || !leased.run.state.rests() {
        return Ok(());
    }
    let last = transcript::all(worker, leased).await?.last().map(|record| record.end);
    if last.is_some_and(|last| leased.run.expire(ttl, last, at)) {
        tracing::debug!(session = %leased.lease.session, "its time to live is over; it begins anew");
        leased.past.transcript = Some(Transcript::default());
        leased.expired = true;
    }
    Ok(())
}
