//! The subject that a message names for its answer.

use crate::domain::decode;
use crate::domain::event::{is_own_reply_subject, is_reply_allowed};
use crate::domain::ids::Owner;
use crate::domain::limits::MESSAGE_DEPTH;
use crate::worker::state::Worker;

/// Returns where the answer to a refused message goes, if its sender may name that subject. An unknown owner gets only
/// a shared inbox, and only where no tokens are required.
pub(super) fn allowed_reply_subject(worker: &Worker, owner: Option<&Owner>, body: &[u8]) -> Option<String> {
    let allowed = if worker.options.auth.is_required() { is_own_reply_subject } else { is_reply_allowed };
    let (tenant, user) = owner.map(|owner| (owner.tenant().token(), owner.user().token())).unwrap_or_default();
    parse_reply_to(body).filter(|subject| allowed(subject, &tenant, &user))
}

/// Parses `replyTo` of a body, even of one that is refused.
pub(super) fn parse_reply_to(body: &[u8]) -> Option<String> {
    let value = decode::message_json(body, MESSAGE_DEPTH).ok()?;
    value.get("replyTo")?.as_str().map(str::to_owned)
}
