//! Writes a conversation as messages of content blocks, with marks where the provider's cache may end.

use super::super::conversation::{Conversation, SentCall, SentMessage, SentPart, SentPlace};
use serde_json::{Value, json};
use std::borrow::Cow;

/// Number of blocks before a mark among which the end of an earlier request is looked for. The provider looks at 20;
/// some are kept in reserve.
const CACHE_LOOKBACK_BLOCKS: usize = 15;
/// Key in a recorded thinking block: which parts of the answer stood before the block. Absent if it stood first.
pub(super) const POSITION_KEY: &str = "behind";

/// Place of a block. Addresses are in the order of the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct BlockAddress {
    /// Index of the message.
    message: usize,
    /// Index of the block in its message.
    block: usize,
}

/// The messages of a request while they are built.
#[derive(Debug, Default)]
pub(super) struct BlockMessages {
    sent: Vec<(&'static str, Vec<Value>)>,
    /// Addresses of the blocks of each part of each message of the conversation.
    places: Vec<Vec<BlockAddress>>,
}

impl BlockMessages {
    /// Builds the messages of a conversation; with `returns` they have the model's thinking blocks.
    pub(super) fn from_conversation(conversation: &Conversation<'_>, returns: bool, signed: bool) -> Self {
        let mut messages = Self::default();
        for message in &conversation.messages {
            let places = match message {
                SentMessage::User(parts) => parts.iter().map(|part| messages.push("user", user_block(part))).collect(),
                SentMessage::Results(results) => results
                    .iter()
                    .map(|result| {
                        let block = json!({"type": "tool_result", "tool_use_id": result.id, "content": result.text});
                        messages.push("user", block)
                    })
                    .collect(),
                SentMessage::Assistant { text, calls, reasoning } => {
                    let items = reasoning.filter(|_| returns).unwrap_or_default();
                    let blocks = assistant_blocks(text.as_ref(), calls, items, signed);
                    blocks.into_iter().map(|block| messages.push("assistant", block)).last().into_iter().collect()
                }
            };
            messages.places.push(places);
        }
        messages
    }

    /// Adds a block. Consecutive blocks of one role form one message.
    fn push(&mut self, role: &'static str, block: Value) -> BlockAddress {
        if self.sent.last().is_none_or(|(before, _)| *before != role) {
            self.sent.push((role, Vec::new()));
        }
        let message = self.sent.len() - 1;
        self.sent[message].1.push(block);
        BlockAddress { message, block: self.sent[message].1.len() - 1 }
    }

    /// Marks where the provider's cache may end: behind the first message, at the stable end, and once between them.
    /// The mark between them keeps the end of the last request findable after many new blocks.
    pub(super) fn mark_cache_ends(&mut self, stable: Option<SentPlace>) {
        let Some(place) = stable else { return };
        let Some(end) = self.places.get(place.message).and_then(|parts| parts.get(place.part)).copied() else { return };
        let first = self.places.first().and_then(|parts| parts.last()).copied().filter(|first| *first < end);
        let addresses = self
            .sent
            .iter()
            .enumerate()
            .flat_map(|(message, (_, blocks))| (0..blocks.len()).map(move |block| BlockAddress { message, block }));
        let before: Vec<BlockAddress> = addresses.take_while(|address| *address < end).collect();
        let between = before.iter().rev().skip(CACHE_LOOKBACK_BLOCKS).find(|address| !self.is_thinking(**address));
        let between = between.copied().filter(|between| first.is_some_and(|first| first < *between));
        for BlockAddress { message, block } in [first, between, Some(end)].into_iter().flatten() {
            mark_cache_end(&mut self.sent[message].1[block]);
        }
    }

    fn is_thinking(&self, address: BlockAddress) -> bool {
        matches!(self.sent[address.message].1[address.block]["type"].as_str(), Some("thinking" | "redacted_thinking"))
    }

    /// Returns the messages as a list of JSON.
    pub(super) fn into_value(self) -> Value {
        self.sent.into_iter().map(|(role, content)| json!({"role": role, "content": content})).collect()
    }
}

fn user_block(part: &SentPart<'_>) -> Value {
    match part {
        SentPart::Text(text) => json!({"type": "text", "text": text}),
        SentPart::Media(media) => {
            let kind = if media.media.is_image() { "image" } else { "document" };
            let source = json!({"type": "base64", "media_type": media.media.as_str(), "data": media.base64()});
            json!({"type": kind, "source": source})
        }
    }
}

/// Marks the end of what the provider's cache may keep.
pub(super) fn mark_cache_end(block: &mut Value) {
    block["cache_control"] = json!({"type": "ephemeral"});
}

/// Returns the blocks of a model's message: its thinking, its text and its calls in the order of its reply.
fn assistant_blocks(text: Option<&Cow<'_, str>>, calls: &[SentCall<'_>], items: &[Value], signed: bool) -> Vec<Value> {
    let at = |has_text: bool, calls: usize| {
        let stands = move |item: &&Value| (item[POSITION_KEY]["text"] == true, calls_before(item)) == (has_text, calls);
        items.iter().filter(stands).filter_map(|item| thinking_block(item, signed))
    };
    let mut blocks: Vec<Value> = at(false, 0).collect();
    blocks.extend(text.map(|text| json!({"type": "text", "text": text})));
    blocks.extend(at(true, 0));
    for (number, call) in calls.iter().enumerate() {
        if number > 0 {
            blocks.extend(at(false, number));
            blocks.extend(at(true, number));
        }
        blocks.push(json!({"type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments}));
    }
    // The API refuses a message that ends with thinking.
    while blocks.last().is_some_and(|block| block["type"] != "text" && block["type"] != "tool_use") {
        blocks.pop();
    }
    blocks
}

fn calls_before(item: &Value) -> usize {
    item[POSITION_KEY]["calls"].as_u64().and_then(|calls| usize::try_from(calls).ok()).unwrap_or(0)
}

/// Whether a recorded piece of reasoning is a thinking block that stood first in its reply.
pub(super) fn begins_message(item: &Value) -> bool {
    item.get(POSITION_KEY).is_none() && thinking_block(item, true).is_some()
}

/// Returns a recorded piece of reasoning as a block to send; `None` if the provider does not take it back.
fn thinking_block(item: &Value, signed: bool) -> Option<Value> {
    let text = |key: &str| item[key].as_str().unwrap_or_default();
    match item["type"].as_str()? {
        "thinking" if !signed || !text("signature").is_empty() => {
            Some(json!({"type": "thinking", "thinking": text("thinking"), "signature": text("signature")}))
        }
        "redacted_thinking" if !text("data").is_empty() => {
            Some(json!({"type": "redacted_thinking", "data": text("data")}))
        }
        _ => None,
    }
}
