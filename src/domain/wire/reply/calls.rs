//! Collects the calls of a reply as servers stream them: without index, all with index 0, `{}` first, arguments as a
//! map.

use super::super::names::ToolNames;
use crate::chat::{Arguments, ToolCall};
use crate::decode;
use serde_json::{Map, Value};
use std::collections::BTreeSet;

/// Bytes that a call counts beside its name and its arguments.
const CALL_BYTES: usize = 32;
/// Bytes that a piece of a call counts beside its content.
const PIECE_BYTES: usize = 4;
/// Most bytes of arguments that are parsed after each piece to see whether they are complete.
const GROWING_BYTES: usize = 4 * 1024;

/// A piece of a call.
#[derive(Debug, Clone, Copy, Default)]
pub struct CallPiece<'p> {
    /// Number of the call in the reply, if the provider sends one.
    pub index: Option<u64>,
    /// Id of the call, if this piece has it.
    pub id: Option<&'p str>,
    /// Name of the tool, if this piece has it.
    pub name: Option<&'p str>,
    /// Text to append to the arguments, or a whole map.
    pub arguments: Option<&'p Value>,
}

/// A call whose pieces are still coming.
#[derive(Debug, Clone, Default)]
struct GrowingCall {
    index: Option<u64>,
    id: String,
    name: String,
    text: String,
    /// Arguments that came as a map.
    map: Option<Value>,
}

impl GrowingCall {
    /// Whether its arguments are a complete, non-empty map, so that another call may begin. `{}` may be a placeholder.
    ///
    /// Servers that need this check write short arguments. Longer ones are not parsed, because the check runs for each
    /// piece.
    fn is_whole_while_growing(&self) -> bool {
        self.text.len() <= GROWING_BYTES && self.is_whole()
    }

    /// Whether its arguments are a complete, non-empty map.
    fn is_whole(&self) -> bool {
        let has_keys = |value: &Value| value.as_object().is_some_and(|map| !map.is_empty());
        self.map.as_ref().is_some_and(has_keys)
            || self.text.trim_end().ends_with('}')
                && decode::lenient_json(self.text.as_bytes()).is_ok_and(|it| has_keys(&it))
    }
}

/// The calls of a reply, in the order in which they began.
#[derive(Debug, Default)]
pub(super) struct ReplyCalls(Vec<GrowingCall>);

impl ReplyCalls {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn has_index(&self, index: u64) -> bool {
        self.0.iter().any(|call| call.index == Some(index))
    }

    /// Adds a piece; returns the bytes that it counts.
    pub(super) fn push(&mut self, piece: CallPiece<'_>) -> usize {
        let id = piece.id.filter(|id| !id.is_empty());
        let name = piece.name.filter(|name| !name.is_empty());
        let found = self.find(piece.index, id, name);
        let mut bytes = if found.is_none() { CALL_BYTES } else { PIECE_BYTES };
        let at = found.unwrap_or_else(|| {
            self.0.push(GrowingCall { index: piece.index, ..GrowingCall::default() });
            self.0.len() - 1
        });
        let call = &mut self.0[at];
        if let Some(id) = id.filter(|_| call.id.is_empty()) {
            bytes += id.len();
            id.clone_into(&mut call.id);
        }
        if let Some(name) = name.filter(|name| *name != call.name) {
            bytes += name.len();
            // Names come in fragments, or repeat what came before.
            let so_far = name.strip_prefix(call.name.as_str()).unwrap_or(name).to_owned();
            call.name.push_str(&so_far);
        }
        match piece.arguments {
            Some(Value::String(text)) => {
                bytes += text.len();
                // The text was a placeholder for the arguments that follow.
                if call.text.len() < CALL_BYTES && call.text.trim() == "{}" && !text.trim().is_empty() {
                    call.text.clear();
                }
                call.text.push_str(text);
            }
            Some(Value::Null) | None => {}
            Some(value) => {
                bytes += value.to_string().len();
                if call.map.is_none() || value.as_object().is_none_or(|map| !map.is_empty()) {
                    call.map = Some(value.clone());
                }
            }
        }
        bytes
    }

    /// Finds the call that a piece continues.
    fn find(&self, index: Option<u64>, id: Option<&str>, name: Option<&str>) -> Option<usize> {
        if let Some(at) = id.and_then(|id| self.0.iter().rposition(|call| call.id == id)) {
            return Some(at);
        }
        let at = match index {
            Some(index) => self.0.iter().rposition(|call| call.index == Some(index))?,
            None => self.0.len().checked_sub(1)?,
        };
        let call = &self.0[at];
        let is_another = match (id, name) {
            // The id changes from piece to piece, or is missing: the name decides.
            (Some(_), Some(_)) => !call.id.is_empty(),
            (None, Some(name)) => {
                !call.name.is_empty() && (call.is_whole_while_growing() || call.name != name && !call.text.is_empty())
            }
            (_, None) => false,
        };
        (!is_another).then_some(at)
    }

    /// Whether a call has no arguments or incomplete ones, so that pieces may be missing.
    pub(super) fn is_incomplete(&self) -> bool {
        self.0.iter().any(|call| !call.is_whole())
    }

    /// Returns the calls under our names, each with an id of its own. If the reply was cut off, the last call is
    /// malformed unless its arguments are complete.
    pub(super) fn finish(self, names: &ToolNames, truncated: bool) -> Vec<ToolCall> {
        let mut ids = BTreeSet::new();
        let last = self.0.len().saturating_sub(1);
        let call = |(at, call): (usize, GrowingCall)| {
            let cut = truncated && at == last && !call.is_whole();
            let mut id = call.id.clone();
            let mut number = at;
            while id.is_empty() || !ids.insert(id.clone()) {
                id = format!("call_{number}");
                number += 1;
            }
            let arguments = match arguments(call.map, call.text, cut) {
                Arguments::Json(value) => match names.find(&call.name) {
                    Some(tool) if !tool.renames.is_empty() => Arguments::Json(tool.renames.restore(value)),
                    Some(_) | None => Arguments::Json(value),
                },
                Arguments::Malformed(text) => Arguments::Malformed(text),
            };
            ToolCall { id, name: names.own_name(&call.name), arguments }
        };
        self.0.into_iter().enumerate().map(call).collect()
    }
}

/// Parses the arguments. An empty text is an empty map; a text that is no map is kept as text.
fn arguments(map: Option<Value>, text: String, cut: bool) -> Arguments {
    if cut {
        return Arguments::Malformed(if text.is_empty() { map.map_or(text, |map| map.to_string()) } else { text });
    }
    if text.trim().is_empty() {
        return Arguments::Json(map.unwrap_or_else(|| Value::Object(Map::new())));
    }
    match decode::lenient_json(text.as_bytes()) {
        Ok(value @ Value::Object(_)) => Arguments::Json(value),
        // A JSON text inside a JSON string.
        Ok(Value::String(inner)) => match decode::lenient_json(inner.as_bytes()) {
            Ok(value @ Value::Object(_)) => Arguments::Json(value),
            Ok(_) | Err(_) => Arguments::Malformed(text),
        },
        Ok(_) | Err(_) => Arguments::Malformed(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    type Piece<'p> = (Option<u64>, Option<&'p str>, Option<&'p str>, Value);

    fn calls(pieces: &[Piece], truncated: bool) -> Vec<(String, String, String)> {
        let mut calls = ReplyCalls::default();
        for (index, id, name, arguments) in pieces {
            calls.push(CallPiece { index: *index, id: *id, name: *name, arguments: Some(arguments) });
        }
        let shown = |call: ToolCall| match call.arguments {
            Arguments::Json(value) => (call.id, call.name, value.to_string()),
            Arguments::Malformed(text) => (call.id, call.name, format!("malformed {text}")),
        };
        calls.finish(&ToolNames::default(), truncated).into_iter().map(shown).collect()
    }

    fn check(pieces: &[Piece], expected: &[(&str, &str, &str)]) {
        let found = calls(pieces, false);
        let found: Vec<_> = found.iter().map(|(id, name, text)| (id.as_str(), name.as_str(), text.as_str())).collect();
        assert_eq!(found, expected, "{pieces:?}");
    }

    #[test]
    fn streamed_calls_are_understood_as_meant() {
        // As OpenAI writes them.
        check(
            &[
                (Some(0), Some("a"), Some("f"), json!("")),
                (Some(0), None, None, json!("{\"x\":")),
                (Some(1), Some("b"), Some("g"), json!("")),
                (Some(0), None, None, json!("1}")),
                (Some(1), None, None, json!("{}")),
            ],
            &[("a", "f", "{\"x\":1}"), ("b", "g", "{}")],
        );
        // Without an index.
        check(
            &[
                (None, Some("a"), Some("f"), json!("{\"x\"")),
                (None, None, None, json!(":1}")),
                (None, Some("b"), Some("f"), json!("{\"x\":2}")),
            ],
            &[("a", "f", "{\"x\":1}"), ("b", "f", "{\"x\":2}")],
        );
        // All with index 0, with and without ids.
        check(
            &[(Some(0), Some("a"), Some("f"), json!("{\"x\":1}")), (Some(0), Some("b"), Some("f"), json!("{\"x\":2}"))],
            &[("a", "f", "{\"x\":1}"), ("b", "f", "{\"x\":2}")],
        );
        check(
            &[(Some(0), None, Some("f"), json!("{\"x\":1}")), (Some(0), None, Some("g"), json!("{\"x\":2}"))],
            &[("call_0", "f", "{\"x\":1}"), ("call_1", "g", "{\"x\":2}")],
        );
        // A placeholder first, and the name once more in each piece.
        check(
            &[(Some(0), Some("a"), Some("f"), json!("{}")), (Some(0), Some("a"), Some("f"), json!("{\"x\":1}"))],
            &[("a", "f", "{\"x\":1}")],
        );
        // Another id in each piece.
        check(
            &[(Some(0), Some("a"), Some("f"), json!("{\"x\"")), (Some(0), Some("b"), None, json!(":1}"))],
            &[("a", "f", "{\"x\":1}")],
        );
        // Arguments as a map, an empty one first.
        check(
            &[(None, None, Some("f"), json!({})), (None, None, None, json!({"x": 1}))],
            &[("call_0", "f", "{\"x\":1}")],
        );
        check(&[(Some(7), None, Some("f"), json!(null))], &[("call_0", "f", "{}")]);
        check(&[(None, Some("a"), Some("f"), json!("\"{\\\"x\\\":1}\""))], &[("a", "f", "{\"x\":1}")]);
    }

    #[test]
    fn arguments_that_are_no_map_are_malformed() {
        for text in ["{\"a\": 1", "text", "[1]", "7"] {
            assert_eq!(calls(&[(None, Some("a"), Some("f"), json!(text))], false)[0].2, format!("malformed {text}"));
        }
    }

    #[test]
    fn the_last_call_of_a_reply_that_was_cut_off_is_not_whole() {
        for (text, expected) in
            [("", "malformed "), ("{}", "malformed {}"), ("{\"a\":", "malformed {\"a\":"), ("{\"a\":1}", "{\"a\":1}")]
        {
            let pieces = [(Some(0), Some("a"), Some("f"), json!("")), (Some(1), Some("b"), Some("g"), json!(text))];
            let found = calls(&pieces, true);
            assert_eq!((found[0].2.as_str(), found[1].2.as_str()), ("{}", expected), "{text:?}");
        }
    }

    #[test]
    fn ids_are_unique() {
        let pieces =
            [(Some(0), Some("call_1"), Some("f"), json!({"a": 1})), (Some(1), None, Some("f"), json!({"a": 2}))];
        let ids: Vec<_> = calls(&pieces, false).into_iter().map(|(id, ..)| id).collect();
        assert_eq!(ids, ["call_1", "call_2"]);
    }
}
