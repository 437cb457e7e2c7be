//! Sessions whose models answer with whatever providers have been seen to send: every request of them is one that its
//! provider takes, and no reply ends the session.

use crate::support::attachments::attachments;
use crate::support::dice::Dice;
use crate::support::sdk_judge::Sdk;
use crate::support::strict::{Judge, refusal};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use trellis::domain::chat::{
    ChatMessage, Effort, ModelRequest, ModelSettings, OutputFormat, Reply, ToolCall, ToolSpec,
};
use trellis::domain::wire::dialect::{DIALECTS, Dialect, ReasoningRequest, WireFormat, find_dialect};
use trellis::domain::wire::{DecodeError, Decoder, EncodedRequest, encode};

const TURNS: usize = 200;
const SEEDS: u64 = 12;
/// Providers whose rules differ most.
const HOMES: [&str; 6] = ["openai", "openai_resp", "anthropic", "gemini", "mistral", "deepseek"];
/// Every so many requests one is shown to the official SDK as well.
const SDK_EVERY: usize = 25;

const NAMES: [&str; 12] = [
    "get_order",
    "functions.get_order",
    "rm -rf /",
    "",
    " ",
    "größe",
    "get_order ",
    "lattice.read",
    "a/b/c",
    "multi_tool_use.parallel",
    "9lives",
    "get_order\u{200b}",
];
const IDS: [&str; 8] = ["", "call_1", "call_1", "toolu_01", "call|fc_7", "ünï", "functions.get_order:0", "abcdefgh1"];
const ARGUMENTS: [&str; 10] = [
    "",
    "{}",
    "{\"id\": 7}",
    "{\"id\": ",
    "[1, 2]",
    "null",
    "\"{\\\"id\\\": 7}\"",
    "{\"order id\": \"x\", \"\": 1}",
    "NaN",
    "{\"a\":{\"b\":[{}]}}",
];
const TEXTS: [&str; 9] = [
    "",
    " ",
    "\n\t",
    "Done.",
    "<think>why</think>Done.",
    "🙂 Grüße \u{202e}",
    "{\"answer\": 1}",
    "\u{0}",
    "[Message]\nx",
];

/// One piece of what a provider says.
struct Said {
    text: &'static str,
    thought: &'static str,
    calls: Vec<(&'static str, &'static str, &'static str)>,
    /// It ends at the limit of tokens, for an unknown reason, or never.
    end: u64,
}

impl Said {
    fn roll(dice: &mut Dice) -> Self {
        let calls = (0..dice.below(4)).map(|_| (*dice.pick(&IDS), *dice.pick(&NAMES), *dice.pick(&ARGUMENTS)));
        let calls = calls.collect();
        Self { text: *dice.pick(&TEXTS), thought: *dice.pick(&["", "", "Let me see."]), calls, end: dice.below(12) }
    }

    fn stream(&self, dice: &mut Dice, format: WireFormat) -> String {
        let events = match format {
            WireFormat::OpenAiChat => self.chat(dice),
            WireFormat::OpenAiResponses => self.responses(),
            WireFormat::Anthropic => self.messages(),
            WireFormat::Gemini => self.gemini(),
        };
        let end = *dice.pick(&["\n\n", "\r\n\r\n"]);
        let begin = *dice.pick(&["", "\u{feff}", ": ping\n\n"]);
        let events: Vec<String> = events.iter().map(|event| format!("data: {event}{end}")).collect();
        format!("{begin}{}", events.concat())
    }

    fn chat(&self, dice: &mut Dice) -> Vec<String> {
        let key = *dice.pick(&["delta", "message"]);
        let chunk = |delta: Value, finish: Value| {
            json!({"choices": [{"index": 0, key: delta, "finish_reason": finish}]}).to_string()
        };
        let mut events = vec![chunk(json!({"role": "assistant", "content": self.text}), Value::Null)];
        if !self.thought.is_empty() {
            events.push(chunk(json!({"reasoning_content": self.thought}), Value::Null));
        }
        let indexed = dice.below(3);
        for (at, (id, name, arguments)) in self.calls.iter().enumerate() {
            let mut call = json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}});
            match indexed {
                0 => call["index"] = at.into(),
                1 => call["index"] = 0.into(),
                _ => {}
            }
            events.push(chunk(json!({"tool_calls": [call]}), Value::Null));
        }
        let finish = match self.end {
            0 => json!("length"),
            1 => json!("insufficient_system_resource"),
            2 => json!("content_filter"),
            3 => return events,
            _ => json!(if self.calls.is_empty() { "stop" } else { "tool_calls" }),
        };
        events.push(chunk(json!({}), finish));
        if dice.one_in(2) {
            events.push("[DONE]".into());
        }
        events
    }

    fn responses(&self) -> Vec<String> {
        let mut output = Vec::new();
        if !self.thought.is_empty() {
            output.push(json!({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"}));
        }
        if !self.text.is_empty() {
            let content = json!([{"type": "output_text", "text": self.text, "annotations": []}]);
            output.push(json!({"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": content}));
        }
        for (at, (id, name, arguments)) in self.calls.iter().enumerate() {
            output.push(json!({
                "type": "function_call", "id": format!("fc_{at}"), "call_id": id, "name": name, "arguments": arguments,
            }));
        }
        let mut events: Vec<String> = output
            .iter()
            .enumerate()
            .map(|(at, item)| {
                json!({"type": "response.output_item.done", "output_index": at, "item": item}).to_string()
            })
            .collect();
        let (kind, status, details) = match self.end {
            0 => ("response.incomplete", "incomplete", json!({"reason": "max_output_tokens"})),
            1 => ("response.incomplete", "incomplete", json!({"reason": "content_filter"})),
            2 => ("response.failed", "failed", Value::Null),
            3 => return events,
            _ => ("response.completed", "completed", Value::Null),
        };
        let response = json!({"status": status, "output": output, "incomplete_details": details});
        events.push(json!({"type": kind, "response": response}).to_string());
        events
    }

    fn messages(&self) -> Vec<String> {
        let mut events = vec![json!({"type": "message_start", "message": {"usage": {"input_tokens": 5}}})];
        let mut index = 0;
        let mut block = |start: Value, delta: Value| {
            events.push(json!({"type": "content_block_start", "index": index, "content_block": start}));
            events.push(json!({"type": "content_block_delta", "index": index, "delta": delta}));
            events.push(json!({"type": "content_block_stop", "index": index}));
            index += 1;
        };
        if !self.thought.is_empty() {
            let start = json!({"type": "thinking", "thinking": self.thought, "signature": "c2lnbmVk"});
            block(start, json!({"type": "signature_delta", "signature": "c2lnbmVk"}));
        }
        block(json!({"type": "text", "text": ""}), json!({"type": "text_delta", "text": self.text}));
        for (id, name, arguments) in &self.calls {
            let start = json!({"type": "tool_use", "id": id, "name": name, "input": {}});
            block(start, json!({"type": "input_json_delta", "partial_json": arguments}));
        }
        let stop = match self.end {
            0 => "max_tokens",
            1 => "refusal",
            2 => "pause_turn",
            3 => return events.iter().map(Value::to_string).collect(),
            _ => {
                if self.calls.is_empty() {
                    "end_turn"
                } else {
                    "tool_use"
                }
            }
        };
        events.push(json!({"type": "message_delta", "delta": {"stop_reason": stop}, "usage": {"output_tokens": 3}}));
        events.push(json!({"type": "message_stop"}));
        events.iter().map(Value::to_string).collect()
    }

    fn gemini(&self) -> Vec<String> {
        let mut parts = vec![json!({"text": self.text})];
        if !self.thought.is_empty() {
            parts.push(json!({"text": self.thought, "thought": true}));
        }
        for (at, (_, name, arguments)) in self.calls.iter().enumerate() {
            let args = serde_json::from_str::<Value>(arguments).unwrap_or_default();
            let mut part = json!({"functionCall": {"name": name, "args": args}});
            if at == 0 && !self.thought.is_empty() {
                part["thoughtSignature"] = "c2lnbmVk".into();
            }
            parts.push(part);
        }
        let finish = match self.end {
            0 => "MAX_TOKENS",
            1 => "MALFORMED_FUNCTION_CALL",
            2 => return vec![json!({"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}}).to_string()],
            3 => return vec![json!({"candidates": [{"content": {"parts": parts}}]}).to_string()],
            _ => "STOP",
        };
        vec![
            json!({"candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": finish}]}).to_string(),
        ]
    }
}

fn tools() -> Vec<ToolSpec> {
    let tool = |name: &str, schema: Value| ToolSpec { name: name.into(), description: "does it".into(), schema };
    vec![
        tool(
            "get_order",
            json!({"type": "object", "properties": {"id": {"type": "integer"}, "tags": {"type": "array"}}}),
        ),
        tool("put", json!({"type": ["object", "null"], "properties": {"order id": {"type": ["array", "string"]}}})),
        tool("any.of", json!({"anyOf": [{"type": "object", "properties": {"a": {}}}, {"type": "object"}]})),
        tool("nothing", json!({"type": "object"})),
        tool(
            "tree",
            json!({
                "type": "object", "properties": {"node": {"$ref": "#/$defs/node"}},
                "$defs": {"node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}, "value": {"const": 7}}}},
            }),
        ),
        tool("get order", json!({"type": "object", "properties": {"größe": {"enum": [1, "x", null]}}})),
    ]
}

/// A session as its worker keeps it.
struct Session {
    messages: Vec<ChatMessage>,
    dice: Dice,
}

impl Session {
    fn request(&mut self, dialect: &Dialect) -> ModelRequest {
        let dice = &mut self.dice;
        // What trimming leaves may begin anywhere.
        if self.messages.len() > 40 && dice.one_in(10) {
            let from = usize::try_from(dice.below(30)).unwrap();
            self.messages.drain(..from);
        }
        let attachments = if dice.one_in(6) { attachments(dice) } else { Vec::new() };
        self.messages.push(ChatMessage::User { text: (*dice.pick(&TEXTS)).to_owned(), attachments });
        let names = ["small", "gemini-3-pro", "claude-sonnet-4-5"];
        let name: &&str = dice.pick(&names);
        let mut model = ModelSettings::new(dialect.provider, name);
        model.max_tokens = dice.one_in(2).then_some(4_000);
        if dialect.reasoning != ReasoningRequest::Unsupported && dice.one_in(2) {
            model.reasoning = Some(*dice.pick(&[Effort::None, Effort::Low, Effort::High, Effort::Tokens(2_000)]));
        }
        let output = dice.one_in(4).then(|| OutputFormat {
            schema: json!({"type": "object", "properties": {"answer": {"type": "integer"}}, "required": ["answer"]}),
            tools_optional: dice.one_in(2),
        });
        ModelRequest {
            model,
            system: (*dice.pick(&["", "You are a clerk.", " "])).to_owned(),
            messages: self.messages.clone(),
            tools: if dice.one_in(5) { Vec::new().into() } else { tools().into() },
            turn: "acme/ann/clerk/default/1".into(),
            stable: usize::try_from(dice.below(self.messages.len() as u64)).unwrap(),
            output,
        }
    }

    /// A reply, in pieces of any size.
    fn read(&mut self, dialect: &Dialect, encoded: &EncodedRequest, model: &str) -> Result<Reply, DecodeError> {
        let bytes = Said::roll(&mut self.dice).stream(&mut self.dice, dialect.format).into_bytes();
        let mut decoder = Decoder::new(dialect, encoded, model, Some(4_000));
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            let at = usize::try_from(1 + self.dice.below(40)).unwrap().min(rest.len());
            decoder.feed(&rest[..at])?;
            rest = &rest[at..];
        }
        decoder.end().map(|(_, reply)| reply)
    }

    /// Keeps a reply with the results of its calls, as far as there are any.
    fn keep(&mut self, reply: Reply) {
        let Reply { text, calls, reasoning, .. } = reply;
        let results: Vec<_> = calls
            .iter()
            .filter_map(|ToolCall { id, name, .. }| {
                let text = (*self.dice.pick(&TEXTS)).to_owned();
                // Of a turn that was cut off.
                (!self.dice.one_in(20)).then(|| ChatMessage::Tool { call: id.clone(), name: name.clone(), text })
            })
            .collect();
        self.messages.push(ChatMessage::Assistant { text, calls, reasoning });
        self.messages.extend(results);
    }
}

fn sdk_of(format: WireFormat) -> Sdk {
    match format {
        WireFormat::OpenAiChat => Sdk::OpenAi,
        WireFormat::OpenAiResponses => Sdk::Responses,
        WireFormat::Anthropic => Sdk::Anthropic,
        WireFormat::Gemini => Sdk::Gemini,
    }
}

#[test]
fn no_reply_makes_a_request_that_its_provider_refuses() {
    let mut shown: BTreeMap<&str, (Sdk, Vec<Value>)> = BTreeMap::new();
    let (mut replies, mut failures) = (0, 0);
    for seed in 0..SEEDS {
        let mut session = Session { messages: Vec::new(), dice: Dice(seed) };
        // Half of the sessions stay with one provider, the others change it from turn to turn.
        let home = find_dialect(HOMES[usize::try_from(seed / 2).unwrap() % HOMES.len()]).unwrap();
        for turn in 0..TURNS {
            let dialect = if seed % 2 == 0 { home } else { *session.dice.pick(&DIALECTS) };
            let request = session.request(&dialect);
            let place = format!("seed {seed}, turn {turn}, {}", dialect.provider);
            let encoded = encode(&request, &dialect, "session").unwrap_or_else(|error| panic!("{place}: {error}"));
            let body = &encoded.request.body;
            let judge = Judge::for_request(dialect.provider, &encoded.request.path);
            if let Some(refused) = refusal(judge, body) {
                panic!("{place}: {refused}\n{body:#}");
            }
            // Keys of a dialect that OpenAI's own types don't have are no fault.
            let is_plain = matches!(dialect.provider, "openai" | "openai_resp" | "anthropic" | "gemini");
            if is_plain && turn % SDK_EVERY == 0 {
                let of = shown.entry(dialect.provider).or_insert_with(|| (sdk_of(dialect.format), Vec::new()));
                of.1.push(body.clone());
            }
            match session.read(&dialect, &encoded, &request.model.id()) {
                Ok(reply) => {
                    replies += 1;
                    session.keep(reply);
                }
                Err(_) => failures += 1,
            }
        }
    }
    assert!(replies > failures && failures > 100, "both kinds are met: {replies} replies, {failures} failures");
    for (provider, (sdk, bodies)) in shown {
        let Some(found) = sdk.check(&bodies) else { return };
        for (body, wrong) in bodies.iter().zip(found) {
            assert!(wrong.is_empty(), "{provider}: {wrong:#?}\n{body:#}");
        }
    }
}
