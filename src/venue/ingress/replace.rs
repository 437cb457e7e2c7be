//! Busy policy `replace`: a task replaces the one before it.

use crate::domain::decode;
use crate::domain::job::{JobHead, JobStatus};
use crate::domain::quota::QuotaUsage;
use crate::store::keys::{BusyPolicy, Gate, GateStatus};
use crate::store::{Admit, MailboxEntry, StoreError, keys};
use crate::venue::Venue;
use crate::venue::agents::sessions;
use crate::venue::jobs;

/// Approximate bytes of the result of a replaced task.
const CANCELLED_BYTES: u64 = 512;

/// Cancels the oldest open task of the session, and lets the new task be admitted without asking again. Later tasks
/// stay. Nothing is cancelled if the task was admitted before, or if its id is of a task in another session. A crash
/// between this and the admission cancels the next one, too.
pub(super) async fn cancel_replaced(venue: &Venue, admit: &mut Admit) -> Result<(), StoreError> {
    let Some(event) = &mut admit.event else { return Ok(()) };
    event.may_replace = false;
    let (event, Some(job)) = (&*event, &event.job) else { return Ok(()) };
    let keys = [keys::agent_gate(&admit.session.agent), keys::job_status(job), keys::job_head(job)];
    let docs = venue.store.read(&admit.owner, &keys).await?;
    let [gate, status, head] = docs.as_slice() else { return Ok(()) };
    let gate = gate.value.as_ref().and_then(|bytes| Gate::decode(bytes));
    let Some(gate) = gate.filter(|gate| gate.busy == BusyPolicy::Replace && gate.status != GateStatus::Terminated)
    else {
        return Ok(());
    };
    // A turn opens the job of a request before the task is sent: that job is still pending.
    if status.status().is_some_and(|(status, _)| status != JobStatus::Pending) {
        return Ok(());
    }
    // A job of this id in another session makes the task a conflict.
    let head = head.value.as_ref().and_then(|bytes| decode::read_stored::<JobHead>(bytes).ok());
    if head.is_some_and(|head| (&head.agent, &head.session) != (&admit.session.agent, &admit.session.session)) {
        return Ok(());
    }
    let Some(session) = sessions::find(venue, &admit.owner, &admit.session).await? else { return Ok(()) };
    let is_full = u64::try_from(session.mailbox.len()).unwrap_or(u64::MAX) >= u64::from(gate.mailbox);
    if is_full || session.mailbox.iter().any(|entry| entry.job.as_ref() == Some(job)) {
        return Ok(());
    }
    if let Some(replaced) = session.mailbox.iter().find_map(MailboxEntry::open_task) {
        let adds = event.added_usage(false);
        // The cancelled task leaves a result.
        let adds = QuotaUsage { documents: adds.documents + 1, bytes: adds.bytes + CANCELLED_BYTES, ..adds };
        if event.quota.is_some() && venue.check_room(&admit.owner, adds).await.is_err() {
            // The task or the next one would be refused, so no task is cancelled for it.
            return Ok(());
        }
        jobs::cancel(venue, &admit.owner, replaced, Some(&format!("replaced by job {job}"))).await?;
    }
    Ok(())
}
