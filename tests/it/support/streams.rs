//! Streams of replies as the official APIs write them, from a seed: what the provider says is chosen first, and then
//! how it is written.

#![expect(clippy::needless_pass_by_value, reason = "values are written in place")]

mod anthropic;
mod gemini;
mod openai;
mod responses;

use super::dice::Dice;
use super::sdk_judge::Sdk;
use serde_json::{Value, json};

const PIECES_MAX: u64 = 6;
const CALLS_MAX: u64 = 4;
/// Tokens of a class at most.
const TOKENS_MAX: u64 = 9_000;
/// Characters of which JSON, lines and splits of bytes have their troubles.
const TEXTS: [&str; 14] = [
    "hi",
    " ",
    "Grüße ",
    "🦀🏽‍🚀",
    "\n\n",
    "\r\n",
    "data: [DONE]",
    "{\"a\":",
    "\"quoted\" \\ back",
    "\u{2028}line\u{85}",
    "שלום",
    "e\u{301}",
    "\u{0}\u{1f}",
    "<b>&amp;</b>",
];

/// How a reply ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    Whole,
    /// By the limit of tokens, in the middle of a call where there is one.
    Limit,
    Filter,
}

/// What a provider says in one reply.
#[derive(Debug, Clone)]
pub struct Plan {
    pub texts: Vec<String>,
    pub thoughts: Vec<String>,
    pub calls: Vec<PlannedCall>,
    pub ending: Ending,
    /// Tokens: prompt, of it from the cache, reply, of it reasoning; `None`: the provider says nothing of them.
    pub tokens: Option<[u64; 4]>,
}

/// A call of a tool.
#[derive(Debug, Clone)]
pub struct PlannedCall {
    pub id: String,
    pub name: String,
    /// The arguments as they are sent, cut off where the reply is.
    pub arguments: String,
}

/// A stream as it stands on the wire.
#[derive(Debug, Clone)]
pub struct WireStream {
    pub sdk: Sdk,
    /// Where it comes from: a seed, or words.
    pub name: String,
    pub text: String,
}

impl WireStream {
    /// Of this seed.
    pub fn generated(sdk: Sdk, seed: u64) -> Self {
        let mut dice = Dice(seed);
        let plan = plan(&mut dice, sdk);
        let events = match sdk {
            Sdk::OpenAi => openai::events(&plan, &mut dice),
            Sdk::Responses => responses::events(&plan, &mut dice),
            Sdk::Anthropic => anthropic::events(&plan, &mut dice),
            Sdk::Gemini => gemini::events(&plan, &mut dice),
        };
        Self { sdk, name: format!("seed {seed}"), text: written(sdk, &events, &mut dice) }
    }
}

fn plan(dice: &mut Dice, sdk: Sdk) -> Plan {
    let ending = match dice.below(6) {
        0 => Ending::Limit,
        // Claude's filter ends with a refusal, which has no reply.
        1 if sdk != Sdk::Anthropic => Ending::Filter,
        _ => Ending::Whole,
    };
    let calls = if dice.one_in(2) { dice.below(CALLS_MAX + 1) } else { 0 };
    let mut calls: Vec<PlannedCall> = (0..calls).map(|at| planned_call(dice, at)).collect();
    // Gemini sends arguments whole.
    if let Some(last) = calls.last_mut().filter(|_| ending == Ending::Limit && sdk != Sdk::Gemini) {
        let end = usize::try_from(dice.below(last.arguments.chars().count() as u64)).unwrap();
        last.arguments = last.arguments.chars().take(end).collect();
    }
    let mut pieces = |often: u64| if dice.one_in(often) { texts(dice) } else { Vec::new() };
    let (mut texts, thoughts) = (pieces(1), pieces(3));
    if calls.is_empty() && texts.is_empty() {
        texts.push("said".to_owned());
    }
    let input = dice.below(TOKENS_MAX) + 1;
    let output = dice.below(TOKENS_MAX) + 1;
    let tokens = [input, dice.below(input), output, if thoughts.is_empty() { 0 } else { dice.below(output) }];
    let is_told = sdk != Sdk::OpenAi || !dice.one_in(3);
    Plan { texts, thoughts, calls, ending, tokens: is_told.then_some(tokens) }
}

fn texts(dice: &mut Dice) -> Vec<String> {
    (0..dice.below(PIECES_MAX)).map(|_| (*dice.pick(&TEXTS)).to_owned()).collect()
}

fn planned_call(dice: &mut Dice, at: u64) -> PlannedCall {
    let words = texts(dice).concat();
    let shapes = [
        json!({}),
        json!({"path": words}),
        json!({"path": "a/b", "deep": {"list": [1, -2.5, null, true, {"x": words}]}}),
        json!({"n": 12_345_678_901_i64, words.as_str(): [[]]}),
    ];
    let arguments = dice.pick(&shapes).to_string();
    let name = if dice.one_in(2) { "read" } else { "write_file" };
    PlannedCall { id: format!("call_{at}_{}", dice.below(1_000)), name: name.to_owned(), arguments }
}

/// A text in pieces, cut between any two characters.
fn pieces(text: &str, dice: &mut Dice) -> Vec<String> {
    let (mut pieces, mut piece) = (Vec::new(), String::new());
    for c in text.chars() {
        piece.push(c);
        if dice.one_in(5) {
            pieces.push(std::mem::take(&mut piece));
        }
    }
    pieces.push(piece);
    pieces
}

/// Events as lines: with CR or without, with comments, with characters as they are or escaped.
fn written(sdk: Sdk, events: &[Value], dice: &mut Dice) -> String {
    let end = if dice.one_in(3) { "\r\n" } else { "\n" };
    let (is_ascii, has_comments) = (dice.one_in(3), sdk != Sdk::Gemini && dice.one_in(3));
    let mut lines: Vec<String> = Vec::new();
    for event in events {
        if has_comments && dice.one_in(4) {
            lines.extend([": keep-alive".to_owned(), String::new()]);
        }
        lines.extend(event["type"].as_str().map(|kind| format!("event: {kind}")));
        let data = event.to_string();
        lines.extend([format!("data: {}", if is_ascii { escaped(&data) } else { data }), String::new()]);
    }
    if sdk == Sdk::OpenAi {
        lines.extend(["data: [DONE]".to_owned(), String::new()]);
    }
    lines.into_iter().map(|line| line + end).collect()
}

fn escaped(json: &str) -> String {
    let mut text = String::new();
    for c in json.chars() {
        if c.is_ascii() {
            text.push(c);
        } else {
            let mut units = [0; 2];
            text.extend(c.encode_utf16(&mut units).iter().map(|unit| format!("\\u{unit:04x}")));
        }
    }
    text
}
