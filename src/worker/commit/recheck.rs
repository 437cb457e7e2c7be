//! Authority at commit: calls whose grants were revoked since they were made become denials in the transcript.

use crate::domain::authority::{Authority, ResourcePath};
use crate::domain::call::ToolTarget;
use crate::domain::call::{Outcome, PlannedCall, ResolvedCall};
use crate::domain::chat::ChatMessage;
use crate::domain::resource::{HeldNamespaces, NamespaceUse};
use crate::domain::session::{CallRecord, TurnRecord};

/// Returns the calls that are denied now, by index in the reply, with the text of the denial. Calls that took effect at
/// once can't be undone and stay.
pub(crate) fn denied_calls(calls: &[(u32, PlannedCall)], record: &TurnRecord, now: &Authority) -> Vec<(u32, String)> {
    let check = |(index, call): &(u32, PlannedCall)| {
        let made = deferred_call(record, *index)?;
        if let Some(denied) = call.scoped.iter().find_map(|scoped| scoped.check_authority(now).err()) {
            return Some((*index, denied.to_string()));
        }
        // For a resource, the namespaces that were used are checked by `denied_resource_uses`.
        if let Ok(ResolvedCall { target: ToolTarget::Resource { .. }, .. }) = &call.what {
            return None;
        }
        let denied =
            made.needs.iter().find_map(|need| now.permits(&need.can, ResourcePath::from_capability(need)).err())?;
        Some((*index, denied.model_text(&made.tool)))
    };
    calls.iter().filter_map(check).collect()
}

/// Returns the record of a call whose effects wait for the commit.
fn deferred_call(record: &TurnRecord, index: u32) -> Option<&CallRecord> {
    usize::try_from(index).ok().and_then(|at| record.calls.get(at)).filter(|made| !made.went_out)
}

/// Returns the calls whose use of a resource is denied now, of those whose effects wait for the commit.
pub(crate) fn denied_resource_uses(
    calls: &[(u32, PlannedCall)],
    used: &[(u32, NamespaceUse)],
    record: &TurnRecord,
    now: &Authority,
) -> Vec<(u32, String)> {
    let held = HeldNamespaces::from_authority(now);
    let denied = |(index, used): &(u32, NamespaceUse)| {
        deferred_call(record, *index)?;
        let (_, call) = calls.iter().find(|(at, _)| at == index)?;
        let denied = held.check(&call.tool, used.ability, &used.namespace).err()?;
        Some((*index, denied.to_string()))
    };
    used.iter().filter_map(denied).collect()
}

/// Replaces the results of denied calls by the denials.
pub(crate) fn show_denials(record: &mut TurnRecord, denied: &[(u32, String)]) {
    let results = record.said.iter_mut().filter_map(|message| match message {
        ChatMessage::Tool { text, .. } => Some(text),
        ChatMessage::User { .. } | ChatMessage::Assistant { .. } => None,
    });
    for ((text, call), index) in results.zip(&mut record.calls).zip(0..) {
        if let Some((_, denial)) = denied.iter().find(|(at, _)| *at == index) {
            text.clone_from(denial);
            Outcome::Denied.as_str().clone_into(&mut call.outcome);
            call.needs.clear();
        }
    }
}
