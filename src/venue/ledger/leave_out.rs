//! A prompt without what came from a path: entries at, below and above it, what operations have read for others,
//! results of tools, placeholders, and copies.

use super::answered_calls::answered_calls;
use super::experiment::{CONVERSATION_COPIES, PathEffect};
use crate::domain::chat::ChatMessage;
use crate::domain::context::inputs::Inputs;
use crate::domain::context::item::{ItemContent, PromptItem};
use crate::domain::lattice::Path;
use crate::domain::lattice::value::remove;
use crate::domain::lines;
use crate::domain::origin::{PathSet, SourceRead, is_below, with_copies};
use crate::domain::session::{CallerMessage, TurnRecord};
use std::sync::Arc;

/// Removes what came from a path, and from the places `elsewhere` to which it was copied.
pub(super) fn leave_out(inputs: &mut Inputs, path: &str, elsewhere: &[String]) -> PathEffect {
    let (mut paths, is_cut) = find_copies(inputs, path);
    for place in elsewhere {
        paths.insert(place);
    }
    let is_gone = |seen: &SourceRead| paths.overlaps(&seen.path);
    let items = std::mem::take(&mut inputs.items);
    let count = items.len();
    let mut found = false;
    for item in items {
        let kept = strip_paths(item, &paths, &mut found);
        inputs.items.extend(kept.filter(|item| !item.origin.reads.iter().any(&is_gone)));
    }
    found |= inputs.items.len() < count;
    let output = |job: &dyn std::fmt::Display| format!("j/{job}/output");
    let results = inputs.served.results.len();
    let is_left_out = |job: String| paths.overlaps(&job);
    inputs.served.results.retain(|(_, event)| !event.job().is_some_and(|job| is_left_out(output(job))));
    found |= inputs.served.results.len() < results;
    for turn in &mut inputs.transcript {
        let mut record = TurnRecord::clone(turn);
        found |= clear_results(&mut record, path, &is_gone);
        for heard in &mut record.heard {
            found |= leave_out_heard(heard, path, &is_left_out);
        }
        *turn = Arc::new(record.into());
    }
    let user = user_of(inputs);
    found |= inputs.values.remove(&user, |place| paths.overlaps(place));
    PathEffect { found, is_cut }
}

/// Returns the user of the owner of a turn, `tenant/user/agent/session/turn`.
pub(super) fn user_of(inputs: &Inputs) -> String {
    inputs.moment.turn.split('/').nth(1).unwrap_or_default().to_owned()
}

/// Returns the path with its copies, made by handing sections on and by calls of this conversation. Also returns
/// whether there are more.
fn find_copies(inputs: &Inputs, path: &str) -> (PathSet, bool) {
    let handed = inputs.items.iter().flat_map(|item| &item.origin.reads);
    let calls = inputs.transcript.iter().flat_map(|record| &record.calls);
    with_copies(path, handed.chain(calls.flat_map(|call| call.reads.iter().flatten())), CONVERSATION_COPIES)
}

/// Returns an item without these paths; of one above them the rest, if it can be told apart.
fn strip_paths(mut item: PromptItem, paths: &PathSet, found: &mut bool) -> Option<PromptItem> {
    let sources: Vec<String> = item.source.iter().flat_map(|source| source.split(", ")).map(str::to_owned).collect();
    for source in &sources {
        for path in paths.find_overlapping(source) {
            if is_below(source, path) || sources.len() > 1 {
                return None;
            }
            match (&mut item.content, segments_below(path, source)) {
                (ItemContent::Value(value), Some(rest)) => *found |= remove(value, &rest),
                // A text has nothing below it; a resource is one of many values.
                (ItemContent::Text(_), Some(_)) => {}
                (
                    ItemContent::Value(_)
                    | ItemContent::Text(_)
                    | ItemContent::Excerpt { .. }
                    | ItemContent::Absent(..),
                    _,
                ) => {
                    return None;
                }
            }
        }
    }
    Some(item)
}

/// Returns the segments of a path below another one.
pub(super) fn segments_below(path: &str, above: &str) -> Option<Vec<String>> {
    let (path, above) = (Path::parse(path).ok()?, Path::parse(above).ok()?);
    path.segments().strip_prefix(above.segments()).map(<[String]>::to_vec)
}

/// Replaces the results of calls that have read the path by a note that they are left out. Returns whether there are
/// any.
fn clear_results(record: &mut TurnRecord, path: &str, is_gone: &impl Fn(&SourceRead) -> bool) -> bool {
    let read = answered_calls(record).filter(|answered| answered.reads(record).iter().any(is_gone));
    let gone: Vec<String> = read.map(|answered| answered.call.to_owned()).collect();
    let results = record.said.iter_mut().filter_map(|message| match message {
        ChatMessage::Tool { call, text, .. } => Some((call, text)),
        ChatMessage::User { .. } | ChatMessage::Assistant { .. } => None,
    });
    for ((call, text), made) in results.zip(&mut record.calls) {
        if gone.contains(call) {
            text.clear();
            made.note = Some(format!("left out: {path}"));
        }
    }
    if !gone.is_empty() {
        forget_reasoning(record);
    }
    !gone.is_empty()
}

/// Removes the model's reasoning, which may repeat what it had read.
pub(super) fn forget_reasoning(record: &mut TurnRecord) {
    for message in &mut record.said {
        if let ChatMessage::Assistant { reasoning, .. } = message {
            *reasoning = None;
        }
    }
}

/// Returns the path of a job's output that an earlier turn was shown.
pub(super) fn result_place(heard: &CallerMessage) -> Option<String> {
    let line = heard.text.lines().find_map(|line| line.strip_prefix("- Job ")).filter(|_| heard.job.is_none())?;
    Some(format!("j/{}/output", line.split(' ').next()?))
}

/// Replaces the text of a child job's result, if it is left out, by the reason. Returns whether it was replaced.
pub(super) fn leave_out_heard(heard: &mut CallerMessage, why: &str, is_out: &impl Fn(String) -> bool) -> bool {
    let is_gone = result_place(heard).is_some_and(is_out);
    if is_gone {
        heard.text = format!("{}{why}]", lines::LEFT_OUT);
    }
    is_gone
}

#[cfg(test)]
mod tests;
