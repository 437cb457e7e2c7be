//! Checkpoint of a reply before its tools run: another worker can continue the turn from it.

use crate::domain::turn::{Observation, RecordedReply};
use crate::store::{Checkpoint, LeaseCheck};
use crate::venue::jobs;
use crate::worker::lease::{LeasedSession, RunStop};
use crate::worker::state::Worker;
use bytes::Bytes;

/// Stores the reply with its whole prompt: parts that others stored may be purged before the turn is continued.
pub(crate) async fn record(
    worker: &Worker,
    leased: &mut LeasedSession,
    recorded: RecordedReply,
) -> Result<Observation, RunStop> {
    let reply = Bytes::from(serde_json::to_vec(&recorded).expect("replies serialise"));
    let write = Checkpoint { turn: leased.run.version + 1, reply: Some(reply), ..Checkpoint::default() };
    let checked = worker.venue.store.checkpoint(worker.venue.now(), &leased.lease, &write).await?;
    let LeaseCheck::Held { cancelled, policy } = checked else { return Err(RunStop::Lost) };
    // Revocations made during the model call count for the calls of its reply.
    leased.versions.policy = policy;
    // The lease reports the first task of the mailbox, which need not be the served one.
    let cancelled = match &recorded.job {
        Some(job) if cancelled => jobs::has_ended(&worker.venue, &leased.lease.owner, job).await?,
        Some(_) | None => false,
    };
    Ok(if cancelled { Observation::Cancelled(Vec::new()) } else { Observation::Recorded })
}
