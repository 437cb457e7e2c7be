//! Sessions past their time to live: empty in the turn that begins, and in the store with its commit.

use crate::domain::agent::AgentConfig;
use crate::venue::context::Transcript;
use crate::worker::lease::{LeasedSession, RunStop, transcript};
use crate::worker::state::Worker;

/// Empties the session if its time to live was over when the event to serve arrived.
pub(crate) async fn empty_expired(
    worker: &Worker,
    leased: &mut LeasedSession,
    config: &AgentConfig,
) -> Result<(), RunStop> {
    let (Some(ttl), Some(at)) = (&config.session.ttl, leased.run.first_arrival()) else { return Ok(()) };
    if leased.is_expired || leased.run.version == 0 || !leased.run.state.is_idle() {
        return Ok(());
    }
    let last = transcript::load_transcript(worker, leased).await?.last().map(|record| record.end);
    if last.is_some_and(|last| leased.run.reset_if_expired(ttl, last, at)) {
        tracing::debug!(session = %leased.lease.session, "its time to live is over; it begins anew");
        leased.history.transcript = Some(Transcript::default());
        leased.is_expired = true;
    }
    Ok(())
}
