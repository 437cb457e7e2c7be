//! Stage 5: the bytes of pictures and files of a request. They are read right before the model is called, under the
//! turn's authority, and within the memory that all calls of the process share.

use crate::domain::authority::ResourcePath;
use crate::domain::chat::ModelRequest;
use crate::domain::media::{AttachedBytes, Attachment};
use crate::domain::turn::Turn;
use crate::venue::assets;
use crate::worker::lease::{LeasedSession, RunStop};
use crate::worker::state::Worker;
use tokio::sync::OwnedSemaphorePermit;

/// Reads the attachments of a request. Dropping the permit frees their memory; an unreadable one is marked as withheld.
pub(crate) async fn load(
    worker: &Worker,
    leased: &LeasedSession,
    turn: &Turn,
    request: &mut ModelRequest,
) -> Result<Option<OwnedSemaphorePermit>, RunStop> {
    let bytes: usize = request.shown_attachments().map(|attachment| attachment.size).sum();
    if bytes == 0 {
        return Ok(None);
    }
    let permit = tokio::select! {
        biased;
        () = leased.stops.lost.cancelled() => return Err(RunStop::Lost),
        () = leased.cancelled.cancelled() => return Ok(None),
        permit = worker.venue.prompts.reserve_attachments(bytes) => permit,
    };
    for attachment in request.shown_attachments() {
        read(worker, turn, attachment).await?;
    }
    Ok(permit)
}

async fn read(worker: &Worker, turn: &Turn, attachment: &mut Attachment) -> Result<(), RunStop> {
    let (turn_input, asset) = (turn.input(), &attachment.asset);
    let withheld = if let Err(denied) = turn_input.authority.permits("crud/read", ResourcePath::asset(asset)) {
        denied.missing_capability()
    } else {
        match assets::read_content(&worker.venue, &turn_input.owner, asset).await {
            Ok(Some(found)) => {
                attachment.bytes = AttachedBytes::new(found.bytes);
                return Ok(());
            }
            Ok(None) => "it is not there any more".to_owned(),
            Err(error) if error.is_transient() => return Err(error.into()),
            Err(error) => error.to_string(),
        }
    };
    let (owner, session) = (&turn_input.owner, &turn_input.session);
    tracing::warn!(%owner, %session, %asset, withheld, "an attachment is not shown");
    attachment.withheld = Some(withheld);
    Ok(())
}
