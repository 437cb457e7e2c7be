//! Stage 5: the bytes of the pictures and files of a request. They are read right before the model is called, by the
//! authority of the turn, and take no more memory than all calls of the process may together.

use crate::domain::authority::ResourcePath;
use crate::domain::chat::{ChatMessage, ModelRequest};
use crate::domain::limits::ATTACHMENTS_MEMORY;
use crate::domain::media::{AttachedBytes, Attachment};
use crate::domain::turn::Turn;
use crate::venue::assets;
use crate::venue::context::ROOM_UNIT;
use crate::worker::Worker;
use crate::worker::lease::{Leased, Stop};
use tokio::sync::SemaphorePermit;

/// How many times its bytes a call holds at once: the content, its Base64 in the body, and the body as it is sent.
const COPIES: usize = 4;

/// Reads what a request shows. The memory for it is given back with the permit; what can't be read any more says so.
pub(crate) async fn load<'w>(
    worker: &'w Worker,
    leased: &Leased,
    turn: &Turn,
    request: &mut ModelRequest,
) -> Result<Option<SemaphorePermit<'w>>, Stop> {
    let bytes: usize = shown_attachments(request).map(|attachment| attachment.size).sum();
    if bytes == 0 {
        return Ok(None);
    }
    let units = (bytes.saturating_mul(COPIES).min(ATTACHMENTS_MEMORY) / ROOM_UNIT).max(1);
    let permit = tokio::select! {
        biased;
        () = leased.stops.lost.cancelled() => return Err(Stop::Lost),
        () = leased.cancelled.cancelled() => return Ok(None),
        permit = worker.venue.prompts.room.acquire_many(u32::try_from(units).unwrap_or(u32::MAX)) => permit.ok(),
    };
    for attachment in shown_attachments(request) {
        read(worker, turn, attachment).await?;
    }
    Ok(permit)
}

fn shown_attachments(request: &mut ModelRequest) -> impl Iterator<Item = &mut Attachment> {
    let attachments = request.messages.iter_mut().flat_map(|message| match message {
        ChatMessage::User { attachments, .. } => attachments.as_mut_slice(),
        ChatMessage::Assistant { .. } | ChatMessage::Tool { .. } => &mut [],
    });
    attachments.filter(|attachment| attachment.is_shown())
}

async fn read(worker: &Worker, turn: &Turn, attachment: &mut Attachment) -> Result<(), Stop> {
    let (setting, asset) = (turn.setting(), &attachment.asset);
    let withheld = if let Err(denied) = setting.authority.permits("crud/read", ResourcePath::asset(asset)) {
        denied.need()
    } else {
        match assets::content(&worker.venue, &setting.owner, asset).await {
            Ok(Some(found)) => {
                attachment.bytes = AttachedBytes::new(found.bytes);
                return Ok(());
            }
            Ok(None) => "it is not there any more".to_owned(),
            Err(error) if error.is_transient() => return Err(error.into()),
            Err(error) => error.to_string(),
        }
    };
    tracing::warn!(owner = %setting.owner, session = %setting.session, %asset, withheld, "an attachment is not shown");
    attachment.withheld = Some(withheld);
    Ok(())
}
