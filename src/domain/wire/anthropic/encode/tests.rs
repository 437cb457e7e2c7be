//! Requests to Claude: settings, messages, cache marks.

use super::super::super::{EncodeError, HttpRequest, dialect, encode};
use crate::chat::{
    Arguments, ChatMessage, Effort, ModelRequest, ModelSettings, OutputFormat, Reasoning, ToolCall, ToolChoice,
    ToolSpec,
};
use serde_json::{Value, json};

/// A Claude that is told to think by a budget.
const BUDGET: &str = "claude-sonnet-4-5";
/// A Claude that is told to think by an effort.
const ADAPTIVE: &str = "claude-opus-4-6";
/// A Claude that thinks by default.
const BY_DEFAULT: &str = "claude-opus-5";
/// A Claude that thinks at least between calls.
const BETWEEN: &str = "claude-sonnet-5-5";
/// A Claude that always thinks.
const ALWAYS: &str = "claude-opus-5-5";

fn user(text: &str) -> ChatMessage {
    ChatMessage::user(text)
}

fn model(calls: &[&str], reasoning: Option<Vec<Value>>) -> ChatMessage {
    let call = |id: &&str| ToolCall {
        id: (*id).to_owned(),
        name: "read".into(),
        arguments: Arguments::Json(json!({"path": "w/a"})),
    };
    ChatMessage::Assistant {
        text: "I look".into(),
        calls: calls.iter().map(call).collect(),
        reasoning: reasoning.map(|items| Reasoning { by: format!("anthropic/{BUDGET}"), items }),
    }
}

fn result(id: &str) -> ChatMessage {
    ChatMessage::Tool { call: id.into(), name: "read".into(), text: "r".into() }
}

fn request(name: &str) -> ModelRequest {
    let tool = ToolSpec {
        name: "read".into(),
        description: "Reads a file".into(),
        schema: json!({"type": "object", "properties": {"path": {"type": "string"}}}),
    };
    ModelRequest {
        model: ModelSettings::new("anthropic", name),
        system: "You are an agent".into(),
        messages: vec![user("x")],
        tools: vec![tool].into(),
        turn: "t/u/a/s/1".into(),
        stable: 0,
        output: None,
    }
}

fn sent(request: &ModelRequest) -> Result<HttpRequest, EncodeError> {
    let dialect = dialect::find_dialect(&request.model.provider).unwrap();
    encode(request, &dialect, "key").map(|encoded| encoded.request)
}

fn thinking_item(thinking: &str, signature: &str) -> Value {
    json!({"type": "thinking", "thinking": thinking, "signature": signature})
}

#[test]
fn a_request_has_the_shape_of_the_api() {
    let request = sent(&request(BUDGET)).unwrap();
    assert_eq!(request.path, "messages");
    assert_eq!(request.headers, [("anthropic-version", "2023-06-01".to_owned())]);
    let expected = json!({
        "model": BUDGET,
        "stream": true,
        "tools": [{
            "name": "read",
            "description": "Reads a file",
            "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}}
        }],
        "system": [{"type": "text", "text": "You are an agent", "cache_control": {"type": "ephemeral"}}],
        "messages": [{"role": "user", "content": [{"type": "text", "text": "x"}]}],
        "max_tokens": 32_000
    });
    assert_eq!(request.body, expected);
    let keys: Vec<_> = request.body.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["model", "stream", "tools", "system", "messages", "max_tokens"], "what is stable stands first");
}

type Change = fn(&mut ModelRequest);

/// The body of a changed request has these keys with these values; `null` is no key.
fn check_keys(table: Vec<(&str, Change, Value)>) {
    for (name, change, expected) in table {
        let mut request = request(name);
        change(&mut request);
        let body = sent(&request).unwrap().body;
        for (key, value) in expected.as_object().unwrap() {
            assert_eq!(body.get(key).unwrap_or(&Value::Null), value, "{name}: {key}");
        }
    }
}

#[test]
fn each_setting_has_its_key() {
    check_keys(vec![
        (BUDGET, |it| it.model.max_tokens = Some(9), json!({"max_tokens": 9})),
        (BUDGET, |it| it.model.max_tokens = Some(0), json!({"max_tokens": 1})),
        ("claude-3-haiku-20240307", |_| {}, json!({"max_tokens": 4_096})),
        (BUDGET, |it| it.model.temperature = Some(0.5), json!({"temperature": 0.5})),
        (ALWAYS, |it| it.model.temperature = Some(1.0), json!({"temperature": null})),
        ("kimi-k3", |it| it.model.temperature = Some(1.5), json!({"temperature": 1.5})),
        (BUDGET, |it| it.model.top_p = Some(0.9), json!({"top_p": 0.9})),
        (BUDGET, |it| it.model.stop = vec!["END".into()], json!({"stop_sequences": ["END"]})),
        (BUDGET, |it| it.model.tool_choice = Some(ToolChoice::Auto), json!({"tool_choice": {"type": "auto"}})),
        (BUDGET, |it| it.model.tool_choice = Some(ToolChoice::None), json!({"tool_choice": {"type": "none"}})),
        (BUDGET, |it| it.model.tool_choice = Some(ToolChoice::Required), json!({"tool_choice": {"type": "any"}})),
    ]);
}

#[test]
fn tools_and_outputs_have_their_keys() {
    check_keys(vec![
        (
            BUDGET,
            |it| it.model.tool_choice = Some(ToolChoice::Tool("read".into())),
            json!({"tool_choice": {"type": "tool", "name": "read"}}),
        ),
        (
            BUDGET,
            |it| it.model.parallel_tool_calls = Some(false),
            json!({"tool_choice": {"type": "auto", "disable_parallel_tool_use": true}}),
        ),
        (BUDGET, |it| it.model.parallel_tool_calls = Some(true), json!({"tool_choice": null})),
        (
            BUDGET,
            |it| {
                it.model.tool_choice = Some(ToolChoice::Required);
                it.tools = Vec::new().into();
            },
            json!({"tool_choice": null, "tools": null}),
        ),
        (
            BY_DEFAULT,
            |it| it.model.tool_choice = Some(ToolChoice::Required),
            json!({"tool_choice": {"type": "any"}, "thinking": {"type": "disabled"}}),
        ),
        (
            BUDGET,
            |it| {
                it.system = " ".into();
            },
            json!({
                "system": null,
                "tools": [{
                    "name": "read", "description": "Reads a file", "cache_control": {"type": "ephemeral"},
                    "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}}
                }]
            }),
        ),
        (BUDGET, |it| drop(it.model.extra.insert("top_k".into(), json!(5))), json!({"top_k": 5})),
        (
            BUDGET,
            |it| {
                let schema = json!({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]});
                it.output = Some(OutputFormat { schema, tools_optional: true });
            },
            json!({"output_config": {"format": {"type": "json_schema", "schema": {
                "type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": false,
                "required": ["a"]
            }}}}),
        ),
        (
            "claude-sonnet-4-0",
            |it| it.output = Some(OutputFormat { schema: json!({"type": "object"}), tools_optional: true }),
            json!({"output_config": null}),
        ),
    ]);
}

#[test]
fn reasoning_is_asked_for_as_the_model_knows_it() {
    let enabled = |tokens: u32| json!({"type": "enabled", "budget_tokens": tokens});
    let adaptive = || json!({"type": "adaptive"});
    let disabled = || json!({"type": "disabled"});
    let table = [
        (BUDGET, None, None, Value::Null, Value::Null),
        (BUDGET, Some(Effort::None), None, disabled(), Value::Null),
        (BUDGET, Some(Effort::Low), None, enabled(1_024), Value::Null),
        (BUDGET, Some(Effort::High), None, enabled(16_384), Value::Null),
        (BUDGET, Some(Effort::Tokens(50)), None, enabled(1_024), Value::Null),
        (BUDGET, Some(Effort::Tokens(90_000)), None, enabled(24_000), Value::Null),
        (BUDGET, Some(Effort::High), Some(4_000), enabled(3_000), Value::Null),
        (BUDGET, Some(Effort::High), Some(1_025), enabled(1_024), Value::Null),
        (BUDGET, Some(Effort::High), Some(1_024), Value::Null, Value::Null),
        (ADAPTIVE, None, None, Value::Null, Value::Null),
        (ADAPTIVE, Some(Effort::None), None, disabled(), Value::Null),
        (ADAPTIVE, Some(Effort::Tokens(4_000)), None, adaptive(), json!({"effort": "medium"})),
        (BY_DEFAULT, None, None, Value::Null, Value::Null),
        (BY_DEFAULT, Some(Effort::Tokens(0)), None, disabled(), Value::Null),
        (BETWEEN, Some(Effort::None), None, json!({"type": "between_tools"}), Value::Null),
        (BETWEEN, Some(Effort::High), None, adaptive(), json!({"effort": "high"})),
        (ALWAYS, None, None, Value::Null, Value::Null),
        (ALWAYS, Some(Effort::None), None, Value::Null, json!({"effort": "low"})),
        (ALWAYS, Some(Effort::Low), None, adaptive(), json!({"effort": "low"})),
        ("claude-3-5-haiku-latest", Some(Effort::None), None, Value::Null, Value::Null),
        ("kimi-k3", Some(Effort::Medium), None, enabled(4_096), Value::Null),
    ];
    for (name, reasoning, max_tokens, thinking, output) in table {
        let mut request = request(name);
        request.model.reasoning = reasoning;
        request.model.max_tokens = max_tokens;
        let body = sent(&request).unwrap().body;
        assert_eq!((&body["thinking"], &body["output_config"]), (&thinking, &output), "{name} {reasoning:?}");
    }
}

#[test]
fn settings_unknown_to_the_model_are_refused() {
    let table: [(&str, &str, Change); 14] = [
        (BUDGET, "model.seed", |it| it.model.seed = Some(1)),
        (BUDGET, "model.stop", |it| it.model.stop = vec!["\n".into()]),
        (BUDGET, "model.temperature", |it| it.model.temperature = Some(1.5)),
        (ALWAYS, "model.temperature", |it| it.model.temperature = Some(0.0)),
        (ALWAYS, "model.topP", |it| it.model.top_p = Some(0.5)),
        (BUDGET, "model.topP", |it| (it.model.temperature, it.model.top_p) = (Some(0.5), Some(0.5))),
        (BUDGET, "model.temperature", |it| {
            (it.model.temperature, it.model.reasoning) = (Some(0.5), Some(Effort::Low));
        }),
        (BUDGET, "model.topP", |it| (it.model.top_p, it.model.reasoning) = (Some(0.5), Some(Effort::Low))),
        ("claude-3-opus-20240229", "model.reasoning", |it| it.model.reasoning = Some(Effort::Low)),
        (BUDGET, "model.toolChoice", |it| {
            (it.model.tool_choice, it.model.reasoning) = (Some(ToolChoice::Required), Some(Effort::Low));
        }),
        (BETWEEN, "model.toolChoice", |it| {
            (it.model.tool_choice, it.model.reasoning) = (Some(ToolChoice::Required), Some(Effort::None));
        }),
        (ALWAYS, "model.toolChoice", |it| it.model.tool_choice = Some(ToolChoice::Tool("read".into()))),
        (BUDGET, "model.toolChoice", |it| it.model.tool_choice = Some(ToolChoice::Tool("write".into()))),
        (BY_DEFAULT, "model.toolChoice", |it| {
            (it.model.tool_choice, it.model.reasoning) = (Some(ToolChoice::Required), Some(Effort::High));
        }),
    ];
    for (name, expected, change) in table {
        let mut request = request(name);
        change(&mut request);
        match sent(&request) {
            Err(EncodeError::Setting { setting, .. }) => assert_eq!(setting, expected, "{name}"),
            other => panic!("{name} {expected}: {other:?}"),
        }
    }
}

#[test]
fn results_and_what_follows_them_are_one_message() {
    let messages = vec![user("x"), user("y"), model(&["1", "2"], None), result("1"), result("2"), user("z")];
    let body = sent(&ModelRequest { messages, ..request(BUDGET) }).unwrap().body;
    let call = |id: &str| json!({"type": "tool_use", "id": id, "name": "read", "input": {"path": "w/a"}});
    let result = |id: &str| json!({"type": "tool_result", "tool_use_id": id, "content": "r"});
    let text = |text: &str| json!({"type": "text", "text": text});
    let expected = json!([
        {"role": "user", "content": [text("x"), text("y")]},
        {"role": "assistant", "content": [text("I look"), call("1"), call("2")]},
        {"role": "user", "content": [result("1"), result("2"), text("z")]}
    ]);
    assert_eq!(body["messages"], expected);
}

/// The blocks of the model's first message, by their types and texts.
fn first_reply(name: &str, by: &str, effort: Option<Effort>, items: Vec<Value>) -> (Vec<String>, bool) {
    let mut request = request(name);
    request.model.reasoning = effort;
    request.messages = vec![user("x"), model(&["1", "2"], Some(items)), result("1"), result("2")];
    let ChatMessage::Assistant { reasoning: Some(reasoning), .. } = &mut request.messages[1] else { unreachable!() };
    by.clone_into(&mut reasoning.by);
    let body = sent(&request).unwrap().body;
    let shown = |block: &Value| {
        let text = ["thinking", "data", "text", "id"].iter().find_map(|key| block[*key].as_str()).unwrap();
        assert!(block.get("behind").is_none());
        text.to_owned()
    };
    let blocks = body["messages"][1]["content"].as_array().unwrap().iter().map(shown).collect();
    (blocks, body.get("thinking").is_some())
}

#[test]
fn thinking_goes_back_where_it_stood_to_the_model_that_wrote_it() {
    let placed = |mut item: Value, text: bool, calls: u64| {
        item["behind"] = json!({"text": text, "calls": calls});
        item
    };
    let items = || {
        vec![
            thinking_item("t1", "s"),
            json!({"type": "redacted_thinking", "data": "t2"}),
            placed(thinking_item("t3", "s"), true, 0),
            placed(thinking_item("t4", "s"), true, 1),
            placed(thinking_item("t5", "s"), true, 2),
            thinking_item("unsigned", ""),
            json!({"text": "of another format"}),
            json!(7),
        ]
    };
    let whole = ["t1", "t2", "I look", "t3", "1", "t4", "2"];
    let bare = ["I look", "1", "2"];
    let by = |name: &str| format!("anthropic/{name}");
    for (name, by, effort, expected, thinks) in [
        (BUDGET, by(BUDGET), Some(Effort::Low), whole.as_slice(), true),
        (BUDGET, by("claude-opus-4-5"), Some(Effort::Low), &bare, false),
        (BUDGET, by(BUDGET), None, &bare, false),
        (ADAPTIVE, by(ADAPTIVE), Some(Effort::Low), &whole, true),
        (ADAPTIVE, by(BUDGET), Some(Effort::Low), &bare, true),
        (BY_DEFAULT, by(BY_DEFAULT), None, &whole, false),
        (BY_DEFAULT, by(BY_DEFAULT), Some(Effort::None), &bare, true),
        (ALWAYS, by(ALWAYS), Some(Effort::High), &bare, true),
        ("kimi-k3", by("kimi-k3"), None, &["t1", "t2", "unsigned", "I look", "t3", "1", "t4", "2"], false),
    ] {
        let (blocks, has_thinking) = first_reply(name, &by, effort, items());
        assert_eq!(
            (blocks.as_slice(), has_thinking),
            (&expected.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>()[..], thinks),
            "{name} {effort:?}"
        );
    }
}

#[test]
fn a_loop_that_was_not_thought_goes_on_without_thinking() {
    let signed = || Some(vec![thinking_item("t", "s")]);
    let thought = |id: &str| [model(&[id], signed()), result(id)];
    let foreign = |id: &str| [model(&[id], None), result(id)];
    let unsigned = |id: &str| [model(&[id], Some(vec![thinking_item("t", "")])), result(id)];
    for (pairs, expected) in [
        (vec![thought("1"), thought("2")], true),
        (vec![thought("1"), foreign("2")], false),
        (vec![foreign("1"), thought("2")], false),
        (vec![unsigned("1")], false),
        (vec![[user("x"), model(&[], None)]], true),
        (vec![foreign("1"), [model(&[], None), user("next")], thought("2")], true),
        (vec![foreign("1"), [user("behind results"), user("y")]], false),
    ] {
        let mut request = request(BUDGET);
        request.model.reasoning = Some(Effort::Low);
        request.messages.extend(pairs.iter().flatten().cloned());
        let body = sent(&request).unwrap().body;
        assert_eq!(body.get("thinking").is_some(), expected, "{pairs:?}");
    }
}

/// Places of the marks in the messages: number of the message and of the block.
fn marks(messages: Vec<ChatMessage>, stable: usize) -> Vec<(usize, usize)> {
    let mut request = request(BUDGET);
    request.model.reasoning = Some(Effort::Low);
    (request.messages, request.stable) = (messages, stable);
    let body = sent(&request).unwrap().body;
    assert!(body.to_string().matches("cache_control").count() <= 4);
    let mut found = Vec::new();
    for (at, message) in body["messages"].as_array().unwrap().iter().enumerate() {
        for (block, value) in message["content"].as_array().unwrap().iter().enumerate() {
            if value.get("cache_control").is_some() {
                assert_ne!(value["type"], "thinking");
                found.push((at, block));
            }
        }
    }
    found
}

#[test]
fn marks_stand_on_stable_ends_only() {
    let signed = || Some(vec![thinking_item("t", "s")]);
    let short = || vec![user("x"), user("y"), model(&["1"], signed()), result("1"), user("z")];
    for (stable, expected) in
        [(0, vec![]), (1, vec![(0, 0)]), (2, vec![(0, 1)]), (4, vec![(0, 1), (2, 0)]), (5, vec![(0, 1), (2, 1)])]
    {
        assert_eq!(marks(short(), stable), expected, "{stable}");
    }
    let mut long = vec![user("x")];
    for number in 0..10 {
        let id = number.to_string();
        long.extend([model(&[&id], signed()), result(&id)]);
    }
    // Four blocks in each round: the sixteenth before the last one.
    assert_eq!(marks(long.clone(), long.len()), [(0, 0), (12, 0), (20, 0)]);
    assert_eq!(marks(long, 3), [(0, 0), (2, 0)]);
}
