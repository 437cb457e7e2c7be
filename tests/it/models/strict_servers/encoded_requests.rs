//! Whatever a model, a person or a tool has said before: the request that is made of it passes the judge of every
//! dialect, and the types of its official SDK.

use crate::support::attachments::attachments;
use crate::support::dice::Dice;
use crate::support::model_calls::plain_request;
use crate::support::sdk_judge::Sdk;
use crate::support::strict::{Judge, refusal};
use serde_json::{Value, json};
use trellis::domain::chat::{Arguments, ChatMessage, ModelRequest, OutputFormat, ToolCall, ToolSpec};
use trellis::domain::wire::dialect::{DIALECTS, Dialect};
use trellis::domain::wire::encode;

const SEEDS: u64 = 120;
/// Bodies of each API that the SDK is given.
const SDK_SEEDS: u64 = 60;
const STEPS_MAX: u64 = 12;
const CALLS_MAX: u64 = 4;

/// A model of the provider whose rules are strictest.
fn model_name(judge: Judge) -> &'static str {
    match judge {
        Judge::DeepSeek => "deepseek-reasoner",
        Judge::Kimi => "kimi-k2-thinking",
        Judge::Gemini | Judge::Gemini3 | Judge::GeminiChat => "gemini-3-pro",
        Judge::OpenAi | Judge::Responses | Judge::Anthropic | Judge::Mistral | Judge::Ollama => "m",
    }
}

fn text(dice: &mut Dice) -> String {
    let long = "word ".repeat(2_000);
    let texts = ["", " ", "\n\t\u{a0}", "hi", "Grüße 🌱", "<think>hm</think>yes", "\u{0}", "[Continue]", &long];
    (*dice.pick(&texts)).to_owned()
}

/// Names that models have made up.
fn name(dice: &mut Dice) -> String {
    let long = "x".repeat(300);
    let names = [
        "get_invoice",
        "now",
        "functions.get_invoice",
        "rm -rf /",
        "",
        "naïve",
        "now ",
        &long,
        "mcp:a/b",
        "1st",
        "🌱",
        "get_invoice\n",
    ];
    (*dice.pick(&names)).to_owned()
}

fn id(dice: &mut Dice) -> String {
    let long = "call_".repeat(40);
    let ids = ["c1", "c1", "c2", "call_1", "", " ", "an id", "c.1", "ü", &long, "toolu_01", "abcdefgh1"];
    (*dice.pick(&ids)).to_owned()
}

fn arguments(dice: &mut Dice) -> Arguments {
    let values = [json!({"id": 7}), json!({}), json!([1]), json!("x"), Value::Null, json!({"": {"deep": [[]]}})];
    if dice.one_in(4) { Arguments::Malformed("{\"id\": 7".into()) } else { Arguments::Json(dice.pick(&values).clone()) }
}

/// A model's message, and results of its calls: all of them, some, in any order, some twice.
fn said(dice: &mut Dice) -> Vec<ChatMessage> {
    let calls: Vec<ToolCall> = (0..dice.below(CALLS_MAX))
        .map(|_| ToolCall { id: id(dice), name: name(dice), arguments: arguments(dice) })
        .collect();
    let mut results: Vec<ChatMessage> = Vec::new();
    for call in &calls {
        for _ in 0..[1, 1, 1, 0, 2][usize::try_from(dice.below(5)).unwrap()] {
            let at = usize::try_from(dice.below(results.len() as u64 + 1)).unwrap();
            let result = ChatMessage::Tool { call: call.id.clone(), name: call.name.clone(), text: text(dice) };
            results.insert(at, result);
        }
    }
    let mut messages = vec![ChatMessage::assistant(text(dice), calls)];
    messages.extend(results);
    messages
}

fn conversation(dice: &mut Dice) -> Vec<ChatMessage> {
    let mut messages = Vec::new();
    for _ in 0..dice.below(STEPS_MAX) {
        match dice.below(8) {
            0..3 => {
                let attachments = if dice.one_in(3) { attachments(dice) } else { Vec::new() };
                messages.push(ChatMessage::User { text: text(dice), attachments });
            }
            3 => messages.push(ChatMessage::Tool { call: id(dice), name: name(dice), text: text(dice) }),
            _ => messages.extend(said(dice)),
        }
    }
    messages
}

fn tools(dice: &mut Dice) -> Vec<ToolSpec> {
    let schemas = [
        json!({"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}),
        json!({"type": "object"}),
        json!({"type": "object", "properties": {"rows": {"type": "array"}, "any": {}}}),
        json!({"type": "object", "properties": {"rows": {"type": ["array", "null"]}, "a b": {"const": 1}}}),
        json!({"anyOf": [{"type": "object", "properties": {"a": {"type": "string"}}}, {"type": "object", "properties": {}}]}),
        json!({"type": "object", "properties": {"x": {"$ref": "#/$defs/x"}}, "$defs": {"x": {"enum": [1, "a"]}}, "additionalProperties": false}),
    ];
    let names = ["get_invoice", "now", "agent_create"];
    let count = usize::try_from(dice.below(4)).unwrap();
    let spec =
        |name: &&str| ToolSpec { name: (*name).into(), description: "d".into(), schema: dice.pick(&schemas).clone() };
    names[..count].iter().map(spec).collect()
}

fn request(seed: u64, dialect: &Dialect) -> ModelRequest {
    let mut dice = Dice(seed);
    let judge = Judge::for_provider(dialect.provider);
    let mut request = plain_request(dialect.provider, conversation(&mut dice));
    request.model.name = model_name(judge).into();
    request.system = text(&mut dice);
    request.tools = tools(&mut dice).into();
    request.stable = usize::try_from(dice.below(request.messages.len() as u64 + 1)).unwrap();
    if dice.one_in(4) {
        let schema = json!({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]});
        request.output = Some(OutputFormat { schema, tools_optional: dice.one_in(2) });
    }
    request
}

#[test]
fn no_judge_refuses_an_encoded_request() {
    let (mut refused, mut pictures) = (Vec::new(), 0);
    for dialect in &DIALECTS {
        for seed in 0..SEEDS {
            let encoded = encode(&request(seed, dialect), dialect, "acme/ann/clerk").unwrap();
            let judge = Judge::for_request(dialect.provider, &encoded.request.path);
            // The first bytes of a PNG.
            pictures += usize::from(encoded.request.body.to_string().contains("iVBORw0KGgo"));
            if let Some(text) = refusal(judge, &encoded.request.body) {
                refused.push(format!("{} seed {seed}: {text}", dialect.provider));
                break;
            }
        }
    }
    assert!(refused.is_empty(), "{} dialects:\n{}", refused.len(), refused.join("\n"));
    assert!(pictures > 500, "{pictures} requests have pictures");
}

#[test]
fn encoded_requests_are_of_the_types_of_the_sdks() {
    for (provider, sdk) in [
        ("openai", Sdk::OpenAi),
        ("openai_resp", Sdk::Responses),
        ("anthropic", Sdk::Anthropic),
        ("gemini", Sdk::Gemini),
    ] {
        let dialect = DIALECTS.iter().find(|dialect| dialect.provider == provider).unwrap();
        let body = |seed| encode(&request(seed, dialect), dialect, "acme/ann/clerk").unwrap().request.body;
        let bodies: Vec<Value> = (0..SDK_SEEDS).map(body).collect();
        let Some(found) = sdk.check(&bodies) else { return };
        for (seed, (body, found)) in bodies.iter().zip(found).enumerate() {
            assert!(found.is_empty(), "{provider} seed {seed}: {found:#?}\n{body:#}");
        }
    }
}
