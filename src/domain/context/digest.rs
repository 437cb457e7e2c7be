//! The hash of a whole prompt, by which a replay proves that it is the same.

use crate::canonical::{canonical, text};
use crate::chat::{ChatMessage, ModelRequest};
use crate::ids::sha256_hex;
use crate::tools::ToolTable;
use serde::Serialize;
use sha2::{Digest, Sha256};

/// Returns the SHA-256 of everything that the model sees: of the request as `turn show --prompt` prints it, without the
/// name of the turn, as canonical JSON of RFC 8785. Every reader can compute it.
pub fn prompt_hash(request: &ModelRequest) -> String {
    sha256_hex(&canonical_request(request))
}

/// Writes the canonical form of a [`ModelRequest`] without the name of its turn. This is most of the work of a hash,
/// and nearly all of it is texts, so these are written directly.
fn canonical_request(request: &ModelRequest) -> Vec<u8> {
    let ModelRequest { model, system, messages, tools, output, turn: _, stable: _ } = request;
    let mut out = Vec::with_capacity(system.len() + messages.iter().map(message_capacity).sum::<usize>());
    out.extend_from_slice(b"{\"messages\":[");
    for (at, message) in messages.iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        write_message(&mut out, message);
    }
    out.extend_from_slice(b"],\"model\":");
    out.extend_from_slice(&canonical(model));
    if let Some(output) = output {
        out.extend_from_slice(b",\"output\":");
        out.extend_from_slice(&canonical(output));
    }
    out.extend_from_slice(b",\"system\":");
    text(&mut out, system);
    out.extend_from_slice(b",\"tools\":");
    out.extend_from_slice(&canonical(&**tools));
    out.push(b'}');
    out
}

/// Estimates the bytes of a message in the canonical form.
fn message_capacity(message: &ChatMessage) -> usize {
    let (ChatMessage::User { text, .. } | ChatMessage::Assistant { text, .. } | ChatMessage::Tool { text, .. }) =
        message;
    text.len() + text.len() / 16 + 64
}

fn write_message(out: &mut Vec<u8>, message: &ChatMessage) {
    match message {
        ChatMessage::User { text: said, attachments } if attachments.is_empty() => {
            out.extend_from_slice(b"{\"role\":\"user\",\"text\":");
            text(out, said);
        }
        ChatMessage::Assistant { text: said, calls, reasoning: None } if calls.is_empty() && !said.is_empty() => {
            out.extend_from_slice(b"{\"role\":\"assistant\",\"text\":");
            text(out, said);
        }
        ChatMessage::User { .. } | ChatMessage::Assistant { .. } => return out.extend_from_slice(&canonical(message)),
        ChatMessage::Tool { call, name, text: said } => {
            out.extend_from_slice(b"{\"call\":");
            text(out, call);
            out.extend_from_slice(b",\"name\":");
            text(out, name);
            out.extend_from_slice(b",\"role\":\"tool\",\"text\":");
            text(out, said);
        }
    }
    out.push(b'}');
}

/// Returns the hash that older versions have recorded: SHA-256 of model, system prompt, tools (by their own hash) and
/// messages. Each field follows its length and each list its number, so that two prompts never have the same bytes.
pub fn fields_hash(request: &ModelRequest, tools: &ToolTable) -> String {
    let ModelRequest { model, system, messages, tools: _, output: _, turn: _, stable: _ } = request;
    let mut fields = FieldHasher(Sha256::new());
    fields.json(model);
    fields.text(system);
    fields.text(&tools.hash);
    fields.number(messages.len());
    for message in messages {
        match message {
            ChatMessage::User { text, .. } => {
                fields.text("user");
                fields.text(text);
            }
            ChatMessage::Assistant { text, calls, .. } => {
                fields.text("assistant");
                fields.text(text);
                fields.json(calls);
            }
            ChatMessage::Tool { call, name, text } => {
                fields.text("tool");
                fields.text(call);
                fields.text(name);
                fields.text(text);
            }
        }
    }
    hex::encode(fields.0.finalize())
}

struct FieldHasher(Sha256);

impl FieldHasher {
    fn number(&mut self, number: usize) {
        self.0.update((number as u64).to_le_bytes());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len());
        self.0.update(bytes);
    }

    fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    fn json(&mut self, value: &impl Serialize) {
        self.bytes(&serde_json::to_vec(value).expect("requests serialise"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chat::{Arguments, ModelSettings, ToolCall, ToolSpec};
    use serde_json::json;
    use std::collections::BTreeSet;

    fn user(text: &str) -> ChatMessage {
        ChatMessage::user(text)
    }

    fn tool(call: &str, name: &str, text: &str) -> ChatMessage {
        ChatMessage::Tool { call: call.into(), name: name.into(), text: text.into() }
    }

    fn called(id: &str, argument: u8) -> ChatMessage {
        let call = ToolCall { id: id.into(), name: "read".into(), arguments: Arguments::Json(json!({"n": argument})) };
        ChatMessage::assistant("a".into(), vec![call])
    }

    fn request(system: &str, messages: Vec<ChatMessage>) -> ModelRequest {
        let model = ModelSettings::new("p", "m");
        ModelRequest {
            model,
            system: system.into(),
            messages,
            tools: Vec::new().into(),
            turn: "t/u/a/s/1".into(),
            stable: 0,
            output: None,
        }
    }

    fn hash(request: &ModelRequest) -> String {
        prompt_hash(request)
    }

    #[test]
    fn a_change_in_what_the_model_sees_changes_the_hash() {
        let mut other_model = request("s", vec![user("ab")]);
        other_model.model.temperature = Some(0.5);
        let prompts = [
            other_model,
            request("s", vec![user("ab")]),
            request("sa", vec![user("b")]),
            request("s", vec![user("a"), user("b")]),
            request("s", vec![user("b"), user("a")]),
            request("s", vec![]),
            request("s", vec![tool("c", "n", "ab")]),
            request("s", vec![tool("cn", "", "ab")]),
            request("s", vec![tool("c", "na", "b")]),
            request("s", vec![called("1", 1)]),
            request("s", vec![called("2", 1)]),
            request("s", vec![called("1", 2)]),
            request("s", vec![ChatMessage::assistant("ab".into(), Vec::new())]),
        ];
        let hashes: BTreeSet<String> = prompts.iter().map(hash).collect();
        assert_eq!(hashes.len(), prompts.len());
        let one = &prompts[1];
        let specs = vec![ToolSpec { name: "x".into(), description: String::new(), schema: json!({}) }];
        assert_ne!(hash(&ModelRequest { tools: specs.into(), ..one.clone() }), hash(one), "tools are a part of it");
    }

    #[test]
    fn the_digest_is_of_the_canonical_request() {
        let said = |text: &str| ChatMessage::assistant(text.into(), Vec::new());
        let mut messages = vec![user("ab"), called("1", 1), tool("c\"", "n\n", "ab"), said("a\\b"), said("")];
        messages.push(user(""));
        let mut one = request("s\"é\u{1}", messages);
        one.model.temperature = Some(0.1);
        one.tools =
            vec![ToolSpec { name: "x".into(), description: "d".into(), schema: json!({"b": 1, "a": 1.0}) }].into();
        let mut printed = serde_json::to_value(&one).unwrap();
        printed.as_object_mut().unwrap().remove("turn");
        assert_eq!(hash(&one), sha256_hex(&canonical(&printed)));
    }

    #[test]
    fn the_name_of_a_turn_is_not_seen_and_the_hash_is_pinned() {
        let one = request("s", vec![user("ab")]);
        let other = ModelRequest { turn: "t/u/a/s/2".into(), ..one.clone() };
        assert_eq!(hash(&one), hash(&other));
        assert_eq!(hash(&one), "85dc867b736e3ff848cef4852d58f35f5a52dd0a47a6cd82be19bcbc87f358bf");
        let before = fields_hash(&one, &ToolTable::new(Vec::new(), Vec::new(), Vec::new()));
        assert_eq!(before, "49ff89ab51d34e2e4b63a2a3d8ffae51da3f63e9bda99a7f9e6ea6de55cf54c8");
    }
}
