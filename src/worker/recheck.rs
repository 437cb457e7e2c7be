//! Authority at commit: what was revoked since a call was made becomes a denial in the transcript.

use crate::domain::authority::Authority;
use crate::domain::chat::ChatMessage;
use crate::domain::resource::{Held, Use};
use crate::domain::scope::Delegate;
use crate::domain::session::TurnRecord;
use crate::domain::tools::Target;
use crate::domain::turn::{Outcome, PlannedCall, Resolved};
use crate::ops::agent::ask::request_needs;
use crate::ops::{Catalog, dispatch};

/// Calls that would be denied now, by their place in the reply, with the text of the denial.
pub(super) fn denied(catalog: &Catalog, calls: &[(u32, PlannedCall)], now: &Authority) -> Vec<(u32, String)> {
    let check = |(index, call): &(u32, PlannedCall)| {
        if let Some(denied) = call.scoped.iter().find_map(|scoped| scoped.held(now).err()) {
            return Some((*index, denied));
        }
        if let Ok(Resolved { target: Target::Delegate(Delegate { agent: Some(agent), .. }), .. }) = &call.what {
            let (ability, resource) = request_needs(agent);
            let denied = now.permits(ability, &resource).err()?;
            return Some((*index, denied.text(&format!("delegate `{agent}`"))));
        }
        let Ok(Resolved { target: Target::Operation(path), arguments }) = &call.what else { return None };
        let arguments = dispatch::inject(catalog, path, arguments.clone(), &call.injection).ok()?;
        let (found, arguments) = dispatch::settle(catalog, path, arguments, true).ok()?;
        let needs = found.operation.needs(&arguments).ok()?;
        let denied = needs.iter().find_map(|need| now.permits(need.ability, &need.resource).err())?;
        Some((*index, denied.text(found.spec.path)))
    };
    calls.iter().filter_map(check).collect()
}

/// Calls whose use of a resource would be denied now.
pub(super) fn lost(calls: &[(u32, PlannedCall)], used: &[(u32, Use)], now: &Authority) -> Vec<(u32, String)> {
    let held = Held::of(now);
    let denied = |(index, used): &(u32, Use)| {
        let (_, call) = calls.iter().find(|(at, _)| at == index)?;
        Some((*index, held.check(&call.tool, used.ability, &used.namespace).err()?))
    };
    used.iter().filter_map(denied).collect()
}

/// Shows denials in the place of what calls returned.
pub(super) fn show(record: &mut TurnRecord, denied: &[(u32, String)]) {
    let results = record.said.iter_mut().filter_map(|message| match message {
        ChatMessage::Tool { text, .. } => Some(text),
        ChatMessage::User { .. } | ChatMessage::Assistant { .. } => None,
    });
    for ((text, call), index) in results.zip(&mut record.calls).zip(0..) {
        if let Some((_, denial)) = denied.iter().find(|(at, _)| *at == index) {
            text.clone_from(denial);
            Outcome::Denied.as_str().clone_into(&mut call.outcome);
        }
    }
}
