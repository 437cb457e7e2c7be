//! A prompt in which a document has another value, wherever it was read: entries at, below and above it, results of
//! tools and of jobs, placeholders, and copies that the same conversation made of it. What was computed from it and
//! can't be computed again says so.

use super::answered_calls::{AnsweredCall, answered_calls};
use super::experiment::{CONVERSATION_COPIES, PathEffect};
use super::leave_out::{forget_reasoning, leave_out_heard, result_place, segments_below, user_of};
use crate::domain::chat::ChatMessage;
use crate::domain::context::inputs::Inputs;
use crate::domain::context::item::{Absence, ItemContent, PromptItem};
use crate::domain::context::result::{ResultRest, tool_result};
use crate::domain::decode;
use crate::domain::event::{Event, Payload};
use crate::domain::lattice::Path;
use crate::domain::lattice::value::{get, set};
use crate::domain::limits::{ENTRY_BYTES, TOOL_RESULT_BYTES};
use crate::domain::origin::{Origin, SourceRead, ancestors, is_below, overlap};
use crate::domain::session::TurnRecord;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The operation whose results can be computed again.
const READ: &str = "v/ops/lattice/read";

/// Paths to which a value was copied.
struct ValueCopies<'v> {
    /// Paths with the part of the value at each, the original path first.
    places: Vec<(String, &'v Value)>,
    /// Whether there are more copies than are followed.
    is_cut: bool,
}

/// Replaces the value at a path, and at the copies of it.
pub(super) fn put_value(inputs: &mut Inputs, path: &str, value: &Value) -> PathEffect {
    let transcript = inputs.transcript.clone();
    let reads = transcript.iter().flat_map(|record| &record.calls).flat_map(|call| call.reads.iter().flatten());
    let ValueCopies { places, is_cut } = find_copies(path, value, reads);
    let mut found = false;
    for (path, value) in places {
        found |= put_at(inputs, &path, value);
    }
    PathEffect { found, is_cut }
}

/// Returns the path and the places to which these reads copied it or a part of it, up to [`CONVERSATION_COPIES`].
fn find_copies<'v, 's>(
    path: &str,
    value: &'v Value,
    reads: impl IntoIterator<Item = &'s SourceRead>,
) -> ValueCopies<'v> {
    let mut places = vec![(path.to_owned(), value)];
    let mut known = BTreeMap::from([(path.to_owned(), value)]);
    for seen in reads {
        let Some(into) = &seen.into else { continue };
        for (place, value) in copy_places(&known, seen.path.trim_matches('/'), into.trim_matches('/')) {
            if known.contains_key(&place) {
                continue;
            }
            if places.len() >= CONVERSATION_COPIES {
                return ValueCopies { places, is_cut: true };
            }
            places.push((place.clone(), value));
            known.insert(place, value);
        }
    }
    ValueCopies { places, is_cut: false }
}

/// Returns what a copy from one place into another makes of places with known values: of the nearest at or above
/// `from`, and of those below it. For a copy into its own source, those below aren't copied again: each such copy would
/// double them.
fn copy_places<'v>(known: &BTreeMap<String, &'v Value>, from: &str, into: &str) -> Vec<(String, &'v Value)> {
    let nearest = std::iter::once(from).chain(ancestors(from)).find_map(|place| known.get_key_value(place));
    let whole = nearest.and_then(|(place, value)| Some((into.to_owned(), get(value, &segments_below(from, place)?)?)));
    let below = known.range(format!("{from}/")..).take_while(|(place, _)| is_below(place, from));
    let below = below.filter(|_| !is_below(into, from));
    let below = below.filter_map(|(place, value)| Some((format!("{into}{}", place.strip_prefix(from)?), *value)));
    whole.into_iter().chain(below).collect()
}

fn put_at(inputs: &mut Inputs, path: &str, value: &Value) -> bool {
    let mut found = false;
    for item in &mut inputs.items {
        found |= replace_item(item, path, value);
    }
    for (_, event) in &mut inputs.served.results {
        found |= replace_result(event, path, value);
    }
    for turn in &mut inputs.transcript {
        if comes_from(turn, path) {
            let mut record = TurnRecord::clone(turn);
            replace_answers(&mut record, path, value);
            for heard in &mut record.heard {
                leave_out_heard(heard, &recompute_note(path), &|job| overlap(&job, path));
            }
            found = true;
            *turn = Arc::new(record.into());
        }
    }
    let user = user_of(inputs);
    found | inputs.values.replace(&user, |place| is_below(place, path).then(|| value_below(value, place, path)))
}

/// Whether something that a turn was shown comes from a path.
fn comes_from(record: &TurnRecord, path: &str) -> bool {
    answered_calls(record).any(|answered| answered.reads(record).iter().any(|seen| shows_path(seen, path)))
        || record.heard.iter().filter_map(result_place).any(|place| overlap(&place, path))
}

/// Whether a read shows the value at a path. The answer of a copy shows no value.
fn shows_path(seen: &SourceRead, path: &str) -> bool {
    seen.into.is_none() && overlap(&seen.path, path)
}

/// Returns the text that stands for a value computed from another value at a path.
fn recompute_note(path: &str) -> String {
    format!("it can't be made again with another `{path}`")
}

/// Returns the part of a value at `path` that lies at a place below it.
fn value_below(value: &Value, place: &str, path: &str) -> Option<Value> {
    get(value, &segments_below(place, path)?).cloned()
}

/// Returns the value at `read` after `value` is put at `path`, where `old` was before; an error if it can't be
/// computed.
fn recompute_read(read: &str, path: &str, value: &Value, old: Option<&Value>) -> Result<Option<Value>, ()> {
    if is_below(read, path) {
        return Ok(value_below(value, read, path));
    }
    let (mut all, rest) = (old.cloned().ok_or(())?, segments_below(path, read).ok_or(())?);
    set(&mut all, &rest, value.clone()).map_err(drop)?;
    Ok(Some(all))
}

fn replace_item(item: &mut PromptItem, path: &str, value: &Value) -> bool {
    let source = item.source.clone().unwrap_or_default();
    let is_read = source.split(", ").any(|source| overlap(source, path));
    if !is_read && !item.origin.reads.iter().any(|seen| overlap(&seen.path, path)) {
        return false;
    }
    let old = match &item.content {
        ItemContent::Value(value) => Some(value),
        ItemContent::Text(_) | ItemContent::Excerpt { .. } | ItemContent::Absent(..) => None,
    };
    let again = if is_read && !source.contains(", ") { recompute_read(&source, path, value, old) } else { Err(()) };
    item.content = match again {
        Ok(Some(value)) => ItemContent::from_value(value, item.asked.unwrap_or(ENTRY_BYTES)),
        Ok(None) => ItemContent::Absent(Absence::Missing, "nothing is there".into()),
        Err(()) => ItemContent::Absent(Absence::Failed, recompute_note(path)),
    };
    item.origin = Origin { reads: item.origin.reads.clone(), ..Origin::default() };
    true
}

/// Replaces the output of a child's job.
fn replace_result(event: &mut Event, path: &str, value: &Value) -> bool {
    let Some(place) = event.job().map(|job| format!("j/{job}/output")) else { return false };
    let Payload::Result { result, .. } = &mut event.payload else { return false };
    let is_from = overlap(&place, path);
    if is_from {
        let again = recompute_read(&place, path, value, result.output.as_ref());
        result.output = again.unwrap_or_else(|()| Some(recompute_note(path).into()));
    }
    is_from
}

/// Replaces the results of calls that have read the path.
fn replace_answers(record: &mut TurnRecord, path: &str, value: &Value) {
    let calls = record.said.iter().flat_map(|message| match message {
        ChatMessage::Assistant { calls, .. } => calls.as_slice(),
        ChatMessage::User { .. } | ChatMessage::Tool { .. } => &[],
    });
    let calls: Vec<_> = calls.cloned().collect();
    let mut changed = Vec::new();
    for (number, answered) in answered_calls(record).enumerate() {
        if !answered.reads(record).iter().any(|seen| shows_path(seen, path)) {
            continue;
        }
        let AnsweredCall { at, call, text, made, .. } = answered;
        let arguments = calls.iter().find(|known| known.id == call).map(|known| known.arguments.to_value());
        let again = arguments.filter(|_| made.operation == READ && made.outcome == "ok");
        changed.push((at, number, again.and_then(|arguments| recompute_answer(&arguments, text, path, value))));
    }
    for (at, number, again) in &changed {
        if let Some(ChatMessage::Tool { text, .. }) = record.said.get_mut(*at) {
            *text = again.clone().unwrap_or_default();
        }
        if let (Some(made), None) = (record.calls.get_mut(*number), again) {
            made.note = Some(format!("left out: {}", recompute_note(path)));
        }
    }
    if !changed.is_empty() {
        forget_reasoning(record);
    }
}

/// Returns the answer of a read of the tree after the change; `None` if it can't be computed.
fn recompute_answer(arguments: &Value, text: &str, path: &str, value: &Value) -> Option<String> {
    let old: Option<Value> = decode::from_json(text.as_bytes()).ok();
    if let Some(paths) = arguments.get("paths").and_then(Value::as_array) {
        let mut values = Map::new();
        for read in paths {
            let name = Path::from_json(read).ok()?.to_string();
            let before = old.as_ref().and_then(|old| old.get("values")?.get(&name).cloned());
            let shown =
                if overlap(&name, path) { answer_for_path(&name, before.as_ref(), path, value)? } else { before? };
            values.insert(name, shown);
        }
        return Some(tool_result(&json!({"values": values}), TOOL_RESULT_BYTES, &ResultRest::CallAgain));
    }
    let read = Path::from_json(&arguments["path"]).ok()?;
    let shown = answer_for_path(&read.to_string(), old.as_ref(), path, value)?;
    Some(tool_result(&shown, TOOL_RESULT_BYTES, &ResultRest::Stored { path: read, field: Some("value") }))
}

/// Returns the answer of a read of one path after the change.
fn answer_for_path(read: &str, before: Option<&Value>, path: &str, value: &Value) -> Option<Value> {
    let old = before.and_then(|before| before.get("value"));
    let Some(value) = recompute_read(read, path, value, old).ok()? else { return Some(json!({"exists": false})) };
    let mut answer = json!({"exists": true, "value": value});
    if let Some(version) = before.and_then(|before| before.get("version")) {
        answer["version"] = version.clone();
    }
    Some(answer)
}

#[cfg(test)]
mod tests;
