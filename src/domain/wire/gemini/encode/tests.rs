//! Requests to Gemini: settings, contents, signatures.

use super::super::super::{EncodeError, HttpRequest, dialect, encode};
use crate::chat::{
    Arguments, ChatMessage, Effort, ModelRequest, ModelSettings, OutputFormat, Reasoning, ToolCall, ToolChoice,
    ToolSpec,
};
use serde_json::{Value, json};

const OLDER: &str = "gemini-2.5-flash";
const NEWER: &str = "gemini-3.8-flash";

fn user(text: &str) -> ChatMessage {
    ChatMessage::user(text)
}

fn model(text: &str, calls: &[&str], reasoning: Option<(&str, Vec<Value>)>) -> ChatMessage {
    let call = |id: &&str| ToolCall {
        id: (*id).to_owned(),
        name: "web.read".into(),
        arguments: Arguments::Json(json!({"path": "w/a"})),
    };
    let reasoning = reasoning.map(|(by, items)| Reasoning { by: format!("gemini/{by}"), items });
    ChatMessage::Assistant { text: text.into(), calls: calls.iter().map(call).collect(), reasoning }
}

fn result(id: &str) -> ChatMessage {
    ChatMessage::Tool { call: id.into(), name: "web.read".into(), text: format!("r{id}") }
}

fn request(name: &str) -> ModelRequest {
    let tool = |name: &str, schema: Value| ToolSpec { name: name.into(), description: "Reads".into(), schema };
    let tools = vec![
        tool("web.read", json!({"type": "object", "properties": {"path": {"type": "string"}}})),
        tool("now", json!({"type": "object", "properties": {}})),
    ];
    ModelRequest {
        model: ModelSettings::new("gemini", name),
        system: "You are an agent".into(),
        messages: vec![user("x")],
        tools: tools.into(),
        turn: "t/u/a/s/1".into(),
        stable: 0,
        output: None,
    }
}

fn sent(request: &ModelRequest) -> Result<HttpRequest, EncodeError> {
    let dialect = dialect::find_dialect(&request.model.provider).unwrap();
    encode(request, &dialect, "key").map(|encoded| encoded.request)
}

#[test]
fn a_request_has_the_shape_of_the_api() {
    let request = sent(&request(NEWER)).unwrap();
    assert_eq!(request.path, "models/gemini-3.8-flash:streamGenerateContent?alt=sse");
    assert_eq!(request.headers, []);
    let expected = json!({
        "tools": [{"functionDeclarations": [
            {
                "name": "web_read", "description": "Reads",
                "parameters": {"type": "object", "properties": {"path": {"type": "string"}}}
            },
            {"name": "now", "description": "Reads"}
        ]}],
        "systemInstruction": {"parts": [{"text": "You are an agent"}]},
        "contents": [{"role": "user", "parts": [{"text": "x"}]}]
    });
    assert_eq!(request.body, expected);
}

#[test]
fn a_name_goes_out_as_it_is_written() {
    for (name, expected) in [
        ("gemini-2.5-pro", "models/gemini-2.5-pro"),
        ("models/gemini-2.5-pro", "models/gemini-2.5-pro"),
        ("tunedModels/mine", "tunedModels/mine"),
    ] {
        assert_eq!(sent(&request(name)).unwrap().path, format!("{expected}:streamGenerateContent?alt=sse"));
    }
}

type Change = fn(&mut ModelRequest);

#[test]
fn each_setting_has_its_key() {
    let typed: Change = |it| {
        let schema = json!({"type": "object", "properties": {"a": {"type": "string"}}});
        it.output = Some(OutputFormat { schema, tools_optional: true });
    };
    let typed_beside_tools: Change = |it| {
        let schema = json!({"type": "object", "properties": {"a": {"type": "string"}}});
        it.output = Some(OutputFormat { schema, tools_optional: false });
        it.model.tool_choice = Some(ToolChoice::Required);
    };
    let config = |value: Value| json!({"generationConfig": value});
    let mode = |value: Value| json!({"toolConfig": {"functionCallingConfig": value}});
    let table: [(Change, Value); 15] = [
        (|it| it.model.max_tokens = Some(9), config(json!({"maxOutputTokens": 9}))),
        (|it| it.model.temperature = Some(0.5), config(json!({"temperature": 0.5}))),
        (|it| it.model.top_p = Some(0.9), config(json!({"topP": 0.9}))),
        (|it| it.model.stop = vec!["END".into()], config(json!({"stopSequences": ["END"]}))),
        (|it| it.model.seed = Some(-7), config(json!({"seed": -7}))),
        (|it| it.model.parallel_tool_calls = Some(true), json!({"toolConfig": null, "generationConfig": null})),
        (|it| it.model.tool_choice = Some(ToolChoice::Auto), mode(json!({"mode": "AUTO"}))),
        (|it| it.model.tool_choice = Some(ToolChoice::None), mode(json!({"mode": "NONE"}))),
        (|it| it.model.tool_choice = Some(ToolChoice::Required), mode(json!({"mode": "ANY"}))),
        (
            |it| it.model.tool_choice = Some(ToolChoice::Tool("web.read".into())),
            mode(json!({"mode": "ANY", "allowedFunctionNames": ["web_read"]})),
        ),
        (
            |it| {
                it.model.tool_choice = Some(ToolChoice::Required);
                it.tools = Vec::new().into();
            },
            json!({"toolConfig": null, "tools": null}),
        ),
        (|it| it.system = "\n".into(), json!({"systemInstruction": null})),
        (|it| drop(it.model.extra.insert("safetySettings".into(), json!([]))), json!({"safetySettings": []})),
        (
            typed,
            json!({"tools": null, "generationConfig": {
                "responseMimeType": "application/json",
                "responseSchema": {"type": "object", "properties": {"a": {"type": "string"}}}
            }}),
        ),
        (
            typed_beside_tools,
            json!({"toolConfig": {"functionCallingConfig": {"mode": "ANY"}}, "generationConfig": null}),
        ),
    ];
    for (change, expected) in table {
        let mut request = request(OLDER);
        change(&mut request);
        let body = sent(&request).unwrap().body;
        for (key, value) in expected.as_object().unwrap() {
            assert_eq!(body.get(key).unwrap_or(&Value::Null), value, "{key}");
        }
    }
}

#[test]
fn reasoning_is_asked_for_as_the_model_knows_it() {
    let budget = |tokens: u32| json!({"thinkingBudget": tokens, "includeThoughts": true});
    let level = |word: &str| json!({"thinkingLevel": word, "includeThoughts": true});
    for (name, reasoning, expected) in [
        (OLDER, None, Value::Null),
        (OLDER, Some(Effort::None), json!({"thinkingBudget": 0})),
        (OLDER, Some(Effort::Low), budget(1_024)),
        (OLDER, Some(Effort::Tokens(90_000)), budget(24_576)),
        (OLDER, Some(Effort::Tokens(9)), budget(512)),
        ("gemini-2.5-pro", Some(Effort::Tokens(0)), json!({"thinkingBudget": 128})),
        (NEWER, None, Value::Null),
        (NEWER, Some(Effort::None), json!({"thinkingLevel": "LOW"})),
        ("gemini-3.5-flash-lite", Some(Effort::None), json!({"thinkingLevel": "MINIMAL"})),
        (NEWER, Some(Effort::Medium), level("MEDIUM")),
        (NEWER, Some(Effort::Tokens(20_000)), level("HIGH")),
        ("gemini-2.0-flash", Some(Effort::None), Value::Null),
    ] {
        let mut request = request(name);
        request.model.reasoning = reasoning;
        let body = sent(&request).unwrap().body;
        assert_eq!(body["generationConfig"]["thinkingConfig"], expected, "{name} {reasoning:?}");
    }
}

#[test]
fn settings_unknown_to_the_format_are_refused() {
    let table: [(&str, &str, Change); 5] = [
        (OLDER, "model.seed", |it| it.model.seed = Some(1 << 40)),
        (OLDER, "model.stop", |it| it.model.stop = vec!["x".into(); 6]),
        (OLDER, "model.parallelToolCalls", |it| it.model.parallel_tool_calls = Some(false)),
        (OLDER, "model.toolChoice", |it| it.model.tool_choice = Some(ToolChoice::Tool("write".into()))),
        ("gemini-2.0-flash", "model.reasoning", |it| it.model.reasoning = Some(Effort::Low)),
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
fn calls_and_results_have_names_and_ids() {
    let messages = vec![user("x"), user("y"), model("t", &["1", "2"], None), result("2"), result("1"), user("z")];
    let body = sent(&ModelRequest { messages, ..request(OLDER) }).unwrap().body;
    let call = |id: &str| json!({"functionCall": {"id": id, "name": "web_read", "args": {"path": "w/a"}}});
    let response = |id: &str| json!({"functionResponse": {"id": id, "name": "web_read", "response": {"result": format!("r{id}")}}});
    let expected = json!([
        {"role": "user", "parts": [{"text": "x"}, {"text": "y"}]},
        {"role": "model", "parts": [{"text": "t"}, call("1"), call("2")]},
        {"role": "user", "parts": [response("1"), response("2")]},
        {"role": "user", "parts": [{"text": "z"}]}
    ]);
    assert_eq!(body["contents"], expected);
}

#[test]
fn signatures_go_back_on_the_parts_that_they_came_with() {
    const DUMMY: Option<&str> = Some("skip_thought_signature_validator");
    let call = |number: u64, signature: &str| json!({"call": number, "thoughtSignature": signature});
    let text = |signature: &str| json!({"part": "text", "thoughtSignature": signature});
    let check = |name: &str, by: &str, items: Vec<Value>, expected: [Option<&str>; 3]| {
        let messages = vec![user("x"), model("t", &["1", "2"], Some((by, items))), result("1"), result("2")];
        let body = sent(&ModelRequest { messages, ..request(name) }).unwrap().body;
        let parts = body["contents"][1]["parts"].as_array().unwrap();
        let found: Vec<_> = parts.iter().map(|part| part["thoughtSignature"].as_str()).collect();
        assert_eq!(found, expected, "{name} {by}");
    };
    let summary = json!({"text": "a thought"});
    let both = vec![summary, text("b2xk"), text("YQ=="), call(0, "YmI=")];
    check(NEWER, NEWER, both, [Some("YQ=="), Some("YmI="), None]);
    check(NEWER, NEWER, vec![call(1, "a-_b"), call(7, "YYYY")], [None, None, Some("a-_b")]);
    check(NEWER, NEWER, vec![call(0, ""), json!(7)], [None, DUMMY, None]);
    for broken in ["x", "====", "Y===", "YY Y", "YYY\u{e9}", "YQ=a"] {
        check(NEWER, NEWER, vec![text(broken), call(0, broken)], [None, DUMMY, None]);
    }
    check(NEWER, OLDER, vec![text("YQ=="), call(0, "YmI=")], [None, DUMMY, None]);
    check(OLDER, NEWER, vec![text("YQ=="), call(0, "YmI=")], [None, None, None]);
    check(OLDER, OLDER, vec![call(0, "YmI=")], [None, Some("YmI="), None]);
}
