//! Messages that a prompt showed in part: they are kept whole in the session's scratch space.

use crate::domain::context::events::{is_cut, kept_path};
use crate::domain::event::{Event, Payload};
use crate::domain::lattice::Path;
use crate::domain::turn::Turn;
use crate::domain::turn::decide::Decision;
use crate::venue::workspace::{self, WorkspaceError, WriteOp};
use crate::worker::ground::Ground;
use crate::worker::lease::Stop;
use serde_json::Value;

/// Index of these writes, after those of a reply's calls; the venue's own writes have no quota.
const PLACE: u32 = workspace::OWN + 1;

/// Keeps the messages that the turn has shown in part; the prompt said where the rest is.
pub(crate) async fn keep(ground: &Ground, turn: &Turn, decision: &Decision) -> Result<(), Stop> {
    let messages = turn.setting().plan.messages.iter();
    for (path, value) in messages.filter_map(|message| kept(&message.event, decision)) {
        match ground.workspace.apply(PLACE, WriteOp::Write { path, value, expect: None }).await {
            Err(WorkspaceError::Store(error)) => return Err(Stop::Store(error)),
            Ok(_) => {}
            // The agent has written something else there.
            Err(error) => tracing::warn!(session = %turn.setting().session, %error, "a cut message is not kept"),
        }
    }
    Ok(())
}

fn kept(event: &Event, decision: &Decision) -> Option<(Path, Value)> {
    let Payload::Message { input, .. } = &event.payload else { return None };
    let is_kept = decision.record.heard.iter().any(|heard| is_cut(event, &heard.text));
    Some((kept_path(&event.id).filter(|_| is_kept)?, input.clone()))
}
