//! A prompt in which a document is another, wherever it was read: entries at, below and above it, results of tools and
//! of jobs, placeholders, and copies that the same conversation made of all of it. What was made from it and can't be
//! made again says so.

use super::why::seen;
use super::without::{rest, user_of};
use crate::domain::chat::ChatMessage;
use crate::domain::context::inputs::Inputs;
use crate::domain::context::item::{Absence, Content, Item};
use crate::domain::context::result::{Rest, tool_result};
use crate::domain::decode;
use crate::domain::event::{Event, Payload};
use crate::domain::lattice::Path;
use crate::domain::lattice::value::{get, set};
use crate::domain::limits::{ENTRY_BYTES, TOOL_RESULT_BYTES};
use crate::domain::origin::{Origin, Seen, is_below, overlap};
use crate::domain::session::TurnRecord;
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// The operation whose results can be made again.
const READ: &str = "v/ops/lattice/read";

/// Puts a value in the place of what was there. Whether anything came from there.
pub(super) fn put(inputs: &mut Inputs, path: &str, value: &Value) -> bool {
    let mut found = false;
    for (path, value) in copies(inputs, path, value) {
        found |= put_at(inputs, &path, &value);
    }
    found
}

/// The path with its value, and where the conversation copied it, or a part of it.
fn copies(inputs: &Inputs, path: &str, value: &Value) -> Vec<(String, Value)> {
    let mut places = vec![(path.to_owned(), value.clone())];
    let calls = inputs.transcript.iter().flat_map(|record| &record.calls);
    for seen in calls.flat_map(|call| call.reads.iter().flatten()) {
        let Some(into) = &seen.into else { continue };
        let copied = places.iter().filter_map(|(place, value)| match place.strip_prefix(&seen.path) {
            Some(rest) if is_below(place, &seen.path) => Some((format!("{into}{rest}"), value.clone())),
            Some(_) | None if is_below(&seen.path, place) => {
                Some((into.clone(), value_below(value, &seen.path, place)?))
            }
            Some(_) | None => None,
        });
        let new: Vec<_> = copied.filter(|(copy, _)| places.iter().all(|(place, _)| place != copy)).collect();
        places.extend(new);
    }
    places
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
        let mut record = TurnRecord::clone(turn);
        if replace_answers(&mut record, path, value) {
            found = true;
            *turn = Arc::new(record.into());
        }
    }
    let user = user_of(inputs);
    found | inputs.values.replace(&user, |place| is_below(place, path).then(|| value_below(value, place, path)))
}

/// What of a value at a path lies at a place below it.
fn value_below(value: &Value, place: &str, path: &str) -> Option<Value> {
    get(value, &rest(place, path)?).cloned()
}

/// What is at `read` when a value is put at `path`, before which `old` was there; an error where that can't be told.
fn read_again(read: &str, path: &str, value: &Value, old: Option<&Value>) -> Result<Option<Value>, ()> {
    if is_below(read, path) {
        return Ok(value_below(value, read, path));
    }
    let (mut all, rest) = (old.cloned().ok_or(())?, rest(path, read).ok_or(())?);
    set(&mut all, &rest, value.clone()).map_err(drop)?;
    Ok(Some(all))
}

fn replace_item(item: &mut Item, path: &str, value: &Value) -> bool {
    let source = item.source.clone().unwrap_or_default();
    let is_read = source.split(", ").any(|source| overlap(source, path));
    if !is_read && !item.origin.reads.iter().any(|seen| overlap(&seen.path, path)) {
        return false;
    }
    let old = match &item.content {
        Content::Value(value) => Some(value),
        Content::Text(_) | Content::Excerpt { .. } | Content::Absent(..) => None,
    };
    let again = if is_read && !source.contains(", ") { read_again(&source, path, value, old) } else { Err(()) };
    item.content = match again {
        Ok(Some(value)) => Content::of(value, item.asked.unwrap_or(ENTRY_BYTES)),
        Ok(None) => Content::Absent(Absence::Missing, "nothing is there".into()),
        Err(()) => Content::Absent(Absence::Failed, format!("it can't be made again with another `{path}`")),
    };
    item.origin = Origin { reads: item.origin.reads.clone(), ..Origin::default() };
    true
}

/// The answer of a child.
fn replace_result(event: &mut Event, path: &str, value: &Value) -> bool {
    let Some(place) = event.job().map(|job| format!("j/{job}/output")) else { return false };
    let Payload::Result { result, .. } = &mut event.payload else { return false };
    if !overlap(&place, path) {
        return false;
    }
    if let Ok(output) = read_again(&place, path, value, result.output.as_ref()) {
        result.output = output;
    }
    true
}

/// The results of calls that have read it. Whether there are any.
fn replace_answers(record: &mut TurnRecord, path: &str, value: &Value) -> bool {
    // The answer of a copy says no more than that it was made.
    let is_of = |seen: &Seen| seen.into.is_none() && overlap(&seen.path, path);
    let calls = record.said.iter().flat_map(|message| match message {
        ChatMessage::Assistant { calls, .. } => calls.as_slice(),
        ChatMessage::User { .. } | ChatMessage::Tool { .. } => &[],
    });
    let calls: Vec<_> = calls.cloned().collect();
    let answers = record.said.iter().enumerate().filter_map(|(at, message)| match message {
        ChatMessage::Tool { call, text, .. } => Some((at, call, text)),
        ChatMessage::User { .. } | ChatMessage::Assistant { .. } => None,
    });
    let mut changed = Vec::new();
    for ((at, call, text), (number, made)) in answers.zip(record.calls.iter().enumerate()) {
        if !seen(record, call, made).iter().any(is_of) {
            continue;
        }
        let arguments = calls.iter().find(|known| known.id == *call).map(|known| known.arguments.shown());
        let again = arguments.filter(|_| made.operation == READ && made.outcome == "ok");
        changed.push((at, number, again.and_then(|arguments| read_answer(&arguments, text, path, value))));
    }
    for (at, number, again) in &changed {
        if let Some(ChatMessage::Tool { text, .. }) = record.said.get_mut(*at) {
            *text = again.clone().unwrap_or_default();
        }
        if let (Some(made), None) = (record.calls.get_mut(*number), again) {
            made.note = Some(format!("left out: it can't be made again with another {path}"));
        }
    }
    if !changed.is_empty() {
        for message in &mut record.said {
            if let ChatMessage::Assistant { reasoning, .. } = message {
                *reasoning = None;
            }
        }
    }
    !changed.is_empty()
}

/// What a read of the tree answers then; `None` where that can't be told.
fn read_answer(arguments: &Value, text: &str, path: &str, value: &Value) -> Option<String> {
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
        return Some(tool_result(&json!({"values": values}), TOOL_RESULT_BYTES, &Rest::Again));
    }
    let read = Path::from_json(&arguments["path"]).ok()?;
    let shown = answer_for_path(&read.to_string(), old.as_ref(), path, value)?;
    Some(tool_result(&shown, TOOL_RESULT_BYTES, &Rest::At { path: read, field: Some("value") }))
}

/// The answer for one path.
fn answer_for_path(read: &str, before: Option<&Value>, path: &str, value: &Value) -> Option<Value> {
    let old = before.and_then(|before| before.get("value"));
    let Some(value) = read_again(read, path, value, old).ok()? else { return Some(json!({"exists": false})) };
    let mut answer = json!({"exists": true, "value": value});
    if let Some(version) = before.and_then(|before| before.get("version")) {
        answer["version"] = version.clone();
    }
    Some(answer)
}
