//! Messages that a prompt showed in part: they are kept whole in the session's scratch space.

use crate::domain::context::events::{is_cut, stored_path};
use crate::domain::event::{Event, Payload};
use crate::domain::lattice::Path;
use crate::domain::turn::Turn;
use crate::domain::turn::decide::Decision;
use crate::venue::workspace::{self, WorkspaceError, WriteOp};
use crate::worker::lease::RunStop;
use crate::worker::turn_base::TurnBase;
use serde_json::Value;

/// Index of these writes, after those of a reply's calls; the venue's own writes have no quota.
const MESSAGES_INDEX: u32 = workspace::OWN_WRITES + 1;

/// Keeps the messages that the turn has shown in part; the prompt said where the rest is.
pub(crate) async fn keep_cut_messages(turn_base: &TurnBase, turn: &Turn, decision: &Decision) -> Result<(), RunStop> {
    let messages = turn.input().plan.messages.iter();
    for (path, value) in messages.filter_map(|message| cut_message(&message.event, decision)) {
        match turn_base.workspace.apply(MESSAGES_INDEX, WriteOp::Write { path, value, expect: None }).await {
            Err(WorkspaceError::Store(error)) => return Err(RunStop::Store(error)),
            Ok(_) => {}
            // The agent has written something else there.
            Err(error) => tracing::warn!(session = %turn.input().session, %error, "a cut message is not kept"),
        }
    }
    Ok(())
}

fn cut_message(event: &Event, decision: &Decision) -> Option<(Path, Value)> {
    let Payload::Message { input, .. } = &event.payload else { return None };
    let is_kept = decision.record.heard.iter().any(|heard| is_cut(event, &heard.text));
    Some((stored_path(&event.id).filter(|_| is_kept)?, input.clone()))
}
