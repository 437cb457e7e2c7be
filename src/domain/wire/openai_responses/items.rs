//! Tracks the output items of one reply, so that content counts once even if a server repeats it.

use super::super::DecodeError;
use super::super::reply::{CallPiece, PIECES_MAX, ReplyBuilder};
use serde_json::{Map, Value, json};

/// The kind of an output item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OutputItemKind {
    /// A text or a refusal.
    Message,
    /// A call of a tool of this runtime.
    Call,
    /// Reasoning, encrypted or as text.
    Reasoning,
}

impl OutputItemKind {
    /// Returns the kind of an item; `None` for items that are ignored.
    pub(super) fn from_item(item: &Value) -> Option<Self> {
        match item.get("type")?.as_str()? {
            "message" => Some(Self::Message),
            "function_call" => Some(Self::Call),
            "reasoning" => Some(Self::Reasoning),
            _ => None,
        }
    }
}

/// An output item that has begun.
#[derive(Debug)]
struct OutputItem {
    kind: OutputItemKind,
    /// Its position in the output, if the server sends one.
    place: Option<u64>,
    id: Option<String>,
    /// Text, arguments or reasoning came in pieces; a later whole content repeats them.
    has_content: bool,
    /// The reply knows the name of this call. A later event may have another id for it.
    is_named: bool,
    /// Length of its text in bytes.
    text_bytes: usize,
    /// The item is among the recorded pieces of the reply.
    is_recorded: bool,
}

/// The output items of one reply, in the order in which they began.
#[derive(Debug, Default)]
pub(crate) struct OutputItems(Vec<OutputItem>);

impl OutputItems {
    /// Whether there are more than 1,000 items. Each new item is searched for among all, so their number is limited.
    pub(super) fn are_too_many(&self) -> bool {
        self.0.len() > PIECES_MAX
    }

    /// Returns the index of the item of an event; adds the item if it is new. `id` is the item's own id.
    pub(super) fn find_or_begin(&mut self, kind: OutputItemKind, place: Option<u64>, id: Option<&str>) -> usize {
        let is_it = |item: &OutputItem| match (place, item.place, id, item.id.as_deref()) {
            (Some(place), Some(known), ..) => place == known,
            (_, _, Some(id), Some(known)) => id == known,
            // Servers that send neither position nor id send one item after the other.
            _ => !item.is_recorded,
        };
        let found = self.0.iter().rposition(|item| item.kind == kind && is_it(item));
        let at = found.unwrap_or(self.0.len());
        if found.is_none() {
            let id = id.map(str::to_owned);
            self.0.push(OutputItem {
                kind,
                place,
                id,
                has_content: false,
                is_named: false,
                text_bytes: 0,
                is_recorded: false,
            });
        }
        at
    }

    /// Adds a piece of a message's text.
    pub(super) fn push_text(&mut self, at: usize, text: &str, reply: &mut ReplyBuilder) -> Result<(), DecodeError> {
        self.0[at].has_content = true;
        self.0[at].text_bytes += text.len();
        reply.push_text(text)
    }

    /// Whether a message's text, a call's arguments or reasoning came before.
    pub(super) fn has_content(&self, at: usize) -> bool {
        self.0[at].has_content
    }

    /// Adds a piece of a refusal.
    pub(super) fn push_refusal(&mut self, at: usize, text: &str, reply: &mut ReplyBuilder) -> Result<(), DecodeError> {
        self.0[at].has_content = true;
        reply.push_refusal(text)
    }

    /// Adds a piece of readable reasoning.
    pub(super) fn push_thought(&mut self, at: usize, text: &str, reply: &mut ReplyBuilder) -> Result<(), DecodeError> {
        self.0[at].has_content = true;
        reply.push_thought(text)
    }

    /// Adds a piece of a call's arguments, or all of them if no piece came before.
    pub(super) fn push_arguments(
        &mut self,
        at: usize,
        arguments: &Value,
        is_whole: bool,
        reply: &mut ReplyBuilder,
    ) -> Result<(), DecodeError> {
        let is_empty = arguments.is_null() || arguments.as_str().is_some_and(str::is_empty);
        if is_empty || is_whole && self.0[at].has_content {
            return Ok(());
        }
        self.0[at].has_content = true;
        reply.push_call(CallPiece { index: call_index(at), arguments: Some(arguments), ..CallPiece::default() })
    }

    /// Records the id and the name of a call.
    pub(super) fn name_call(&mut self, at: usize, item: &Value, reply: &mut ReplyBuilder) -> Result<(), DecodeError> {
        let text = |key: &str| item.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
        if self.0[at].is_named {
            return Ok(());
        }
        self.0[at].is_named = text("name").is_some();
        let id = text("call_id").or_else(|| text("id"));
        reply.push_call(CallPiece { index: call_index(at), id, name: text("name"), arguments: None })
    }

    /// Completes an item: adds the content that didn't come in pieces, and records the parts that go back with the next
    /// request.
    pub(super) fn finish(&mut self, at: usize, item: &Value, reply: &mut ReplyBuilder) -> Result<(), DecodeError> {
        let is_told = self.0[at].has_content;
        match self.0[at].kind {
            OutputItemKind::Message => {
                for part in parts(item, "content").filter(|_| !is_told) {
                    let text = |key: &str| part.get(key).and_then(Value::as_str);
                    match (text("refusal"), text("text")) {
                        (Some(refusal), _) => self.push_refusal(at, refusal, reply)?,
                        (None, Some(words)) => self.push_text(at, words, reply)?,
                        (None, None) => {}
                    }
                }
            }
            OutputItemKind::Call => {
                self.name_call(at, item, reply)?;
                self.push_arguments(at, item.get("arguments").unwrap_or(&Value::Null), true, reply)?;
            }
            OutputItemKind::Reasoning => {
                let told = ["summary", "content"].into_iter().find(|key| parts(item, key).next().is_some());
                for part in told.into_iter().flat_map(|key| parts(item, key)).filter(|_| !is_told) {
                    if let Some(text) = part.get("text").and_then(Value::as_str) {
                        self.push_thought(at, text, reply)?;
                    }
                }
            }
        }
        if self.0[at].is_recorded {
            return Ok(());
        }
        self.0[at].is_recorded = true;
        let recorded = self.recorded_parts(at, item);
        recorded.map_or(Ok(()), |recorded| reply.push_reasoning(recorded))
    }

    /// Completes all items from the whole output of a reply. Known items are matched by their number among items of
    /// their kind, because some servers send other ids and positions here.
    pub(super) fn finish_all(&mut self, output: &[Value], reply: &mut ReplyBuilder) -> Result<(), DecodeError> {
        let mut seen: Vec<OutputItemKind> = Vec::new();
        for (place, item) in output.iter().enumerate() {
            let Some(kind) = OutputItemKind::from_item(item) else { continue };
            let number = seen.iter().filter(|before| **before == kind).count();
            seen.push(kind);
            let known = (0..self.0.len()).filter(|at| self.0[*at].kind == kind).nth(number);
            let at = known.unwrap_or_else(|| {
                self.find_or_begin(kind, u64::try_from(place).ok(), item.get("id").and_then(Value::as_str))
            });
            if !self.0[at].is_recorded {
                self.finish(at, item, reply)?;
            }
        }
        Ok(())
    }

    /// Returns the parts of an item that go back. For reasoning: the encrypted part. For other items: the id and the
    /// phase, by which the provider knows what its reasoning belongs to.
    fn recorded_parts(&self, at: usize, item: &Value) -> Option<Value> {
        let mut kept = Map::new();
        let mut keep = |keys: &[&str]| {
            let found = keys.iter().filter_map(|key| Some(((*key).to_owned(), item.get(*key)?.clone())));
            kept.extend(found.filter(|(_, value)| !value.is_null()));
        };
        match self.0[at].kind {
            OutputItemKind::Reasoning => {
                item.get("encrypted_content")?.as_str().filter(|text| !text.is_empty())?;
                keep(&["type", "id", "summary", "encrypted_content"]);
                kept.entry("summary").or_insert_with(|| json!([]));
            }
            OutputItemKind::Message => {
                keep(&["type", "id", "phase"]);
                kept.insert("length".into(), json!(self.0[at].text_bytes));
            }
            OutputItemKind::Call => keep(&["type", "id"]),
        }
        Some(kept.into())
    }
}

/// Returns the number of a call in the reply, which is the index of its item.
fn call_index(at: usize) -> Option<u64> {
    u64::try_from(at).ok()
}

/// Iterates over the parts of an item in a field.
fn parts<'i>(item: &'i Value, key: &str) -> impl Iterator<Item = &'i Value> {
    item.get(key).and_then(Value::as_array).into_iter().flatten()
}
