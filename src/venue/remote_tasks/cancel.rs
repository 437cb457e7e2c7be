//! Cancellation of tasks elsewhere whose jobs were cancelled.

use super::step::OpenedAgent;
use crate::domain::a2a::fault::{RemoteFaultKind, RemoteReplyError};
use crate::domain::a2a::task::{RemoteTask, RemoteTaskInput};
use crate::domain::decode;
use crate::domain::ids::Owner;
use crate::venue::Venue;
use crate::venue::a2a_client::PeerFailure;
use crate::venue::operation_jobs::CancelledRemote;
use crate::venue::outbound::departure::Departure;

/// Has the task of a job that was cancelled cancelled, too; `true` if the agent has taken that. After a crash in the middle
/// the agent is asked again.
pub async fn stop_cancelled(venue: &Venue, owner: &Owner, cancelled: &CancelledRemote) -> bool {
    let Some(remote) = &cancelled.invoked.remote else { return false };
    match decode::into_type::<RemoteTaskInput>(cancelled.head.input.clone()) {
        Ok(input) => cancel_task(venue, owner, &input, remote).await,
        Err(_) => false,
    }
}

/// Asks the agent to cancel a task; `false` if it could not be asked or has refused. A task that has ended counts as
/// cancelled.
pub(super) async fn cancel_task(venue: &Venue, owner: &Owner, input: &RemoteTaskInput, remote: &RemoteTask) -> bool {
    let Some(task) = &remote.task else { return false };
    match try_cancel(venue, owner, input, remote, task).await {
        Ok(()) => {
            tracing::info!(%owner, agent = %input.agent, task, "an A2A agent was asked to cancel its task");
            true
        }
        Err(error) => {
            tracing::warn!(%owner, agent = %input.agent, task, %error, "an A2A agent did not cancel its task; it may go on");
            false
        }
    }
}

async fn try_cancel(
    venue: &Venue,
    owner: &Owner,
    input: &RemoteTaskInput,
    remote: &RemoteTask,
    task: &str,
) -> Result<(), PeerFailure> {
    let opened = OpenedAgent::find(venue, owner, input).await?;
    let peer = opened.peer(venue, owner).await?;
    let call = remote.interface.cancel(task);
    match peer.ask(&remote.interface, &call, None, &Departure::default()).await {
        Err(PeerFailure::Answer(RemoteReplyError::Fault(fault)))
            if matches!(fault.kind, RemoteFaultKind::TaskNotCancelable | RemoteFaultKind::TaskNotFound) =>
        {
            Ok(())
        }
        asked => asked.map(drop),
    }
}
