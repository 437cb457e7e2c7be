//! What is sent for each setting, message and dialect.

use super::super::super::EncodeError;
use super::super::super::tests::{assistant, body, encoded, output, request, result, tool, user};
use crate::chat::{ChatMessage, Effort, ModelRequest, ToolChoice};
use serde_json::{Value, json};

/// What a change of the request adds to its body, or why it is refused.
fn check(provider: &str, change: impl FnOnce(&mut ModelRequest), expected: impl Into<Value>) {
    let expected = expected.into();
    let mut changed = request(provider);
    let plain = body(&changed);
    change(&mut changed);
    match encoded(&changed) {
        Ok(encoded) => {
            let found = encoded.request.body.as_object().unwrap().clone();
            let is_new = |(key, value): &(String, Value)| plain.get(key) != Some(value) && key != "tools";
            let found: serde_json::Map<_, _> = found.into_iter().filter(is_new).collect();
            assert_eq!(json!(found), expected, "{provider}");
        }
        Err(EncodeError::Setting { setting, .. }) => assert_eq!(json!(setting), expected, "{provider}"),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_plain_request_has_its_stable_part_first() {
    let request = ModelRequest { tools: vec![tool("read")].into(), ..request("openai") };
    let encoded = encoded(&request).unwrap();
    assert_eq!((encoded.request.path.as_str(), encoded.request.headers.len()), ("chat/completions", 0));
    let expected = concat!(
        r#"{"model":"m","stream":true,"stream_options":{"include_usage":true},"prompt_cache_key":"session-1","#,
        r#""tools":[{"type":"function","function":{"name":"read","description":"Reads.","parameters":"#,
        r#"{"type":"object","properties":{"path":{"type":"string"}}}}}],"#,
        r#""messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"hello"}]}"#,
    );
    assert_eq!(encoded.request.body.to_string(), expected);
    let mistral = body(&ModelRequest { system: " ".into(), ..self::request("mistral") });
    let expected = json!({"model": "m", "stream": true, "messages": [{"role": "user", "content": "hello"}]});
    assert_eq!(mistral, expected, "hints that it doesn't know are left out");
}

#[test]
fn settings_of_the_sampling_are_sent_or_refused() {
    check("openai", |it| it.model.max_tokens = Some(9), json!({"max_completion_tokens": 9}));
    check("deepseek", |it| it.model.max_tokens = Some(9), json!({"max_tokens": 9}));
    check("openai", |it| it.model.temperature = Some(0.5), json!({"temperature": 0.5}));
    check("openai", |it| it.model.top_p = Some(0.5), json!({"top_p": 0.5}));
    check("openai", |it| it.model.stop = vec!["x".into()], json!({"stop": ["x"]}));
    check("openai", |it| it.model.seed = Some(-7), json!({"seed": -7}));
    check("deepseek", |it| it.model.seed = Some(7), json!("model.seed"));
    let qwen = |it: &mut ModelRequest| it.model.name = "qwen-max".into();
    check("openai", qwen, json!({"model": "qwen-max"}));
}

#[test]
fn reasoning_is_asked_for_as_the_dialect_says() {
    let table = [
        ("openai", Effort::None, json!({"reasoning_effort": "none"})),
        ("openai", Effort::Tokens(3_000), json!({"reasoning_effort": "medium"})),
        ("openrouter", Effort::High, json!({"reasoning": {"effort": "high"}})),
        ("openrouter", Effort::Tokens(3_000), json!({"reasoning": {"max_tokens": 3_000}})),
        ("openrouter", Effort::Tokens(0), json!({"reasoning": {"effort": "none"}})),
        ("deepseek", Effort::Low, json!({"thinking": {"type": "enabled"}})),
        ("kimi", Effort::None, json!({"thinking": {"type": "disabled"}})),
        ("aliyun", Effort::Tokens(77), json!({"enable_thinking": true, "thinking_budget": 77})),
        ("aliyun", Effort::None, json!({"enable_thinking": false})),
        ("mistral", Effort::Low, json!("model.reasoning")),
    ];
    for (provider, effort, expected) in table {
        check(provider, |it| it.model.reasoning = Some(effort), expected);
    }
}

#[test]
fn choices_of_tools_are_sent_only_beside_tools() {
    let chosen = |choice: ToolChoice| {
        move |it: &mut ModelRequest| {
            it.tools = vec![tool("read.file")].into();
            it.model.tool_choice = Some(choice);
        }
    };
    check("openai", chosen(ToolChoice::Auto), json!({"tool_choice": "auto"}));
    check("openai", chosen(ToolChoice::Required), json!({"tool_choice": "required"}));
    check("openai", chosen(ToolChoice::None), json!({"tool_choice": "none"}));
    let named = json!({"tool_choice": {"type": "function", "function": {"name": "read_file"}}});
    check("openai", chosen(ToolChoice::Tool("read.file".into())), named);
    check("openai", chosen(ToolChoice::Tool("other".into())), json!("model.toolChoice"));
    check("openai", |it| it.model.tool_choice = Some(ToolChoice::Required), json!({}));
    let parallel = |parallel: bool| {
        move |it: &mut ModelRequest| {
            it.tools = vec![tool("read")].into();
            it.model.parallel_tool_calls = Some(parallel);
        }
    };
    check("openai", parallel(false), json!({"parallel_tool_calls": false}));
    check("openai", parallel(true), json!({"parallel_tool_calls": true}));
    check("ollama", parallel(true), json!({}));
    check("ollama", parallel(false), json!("model.parallelToolCalls"));
    check("ollama", |it| it.model.parallel_tool_calls = Some(false), json!({}));
}

#[test]
fn a_typed_text_is_asked_for_where_the_provider_can_give_it() {
    let schema = json!({"type": "object", "properties": {"a": {"type": "integer"}}});
    let format = json!({"type": "json_schema", "json_schema": {"name": "output", "schema": schema, "strict": false}});
    for (provider, tools, optional, expected_format, expected_tools) in [
        ("openai", 1, false, format.clone(), true),
        ("groq", 0, false, format.clone(), false),
        ("groq", 1, false, Value::Null, true),
        ("groq", 1, true, format, false),
        ("deepseek", 1, true, json!({"type": "json_object"}), false),
    ] {
        let mut typed = request(provider);
        typed.output = Some(output(optional));
        typed.tools = vec![tool("read"); tools].into();
        typed.model.tool_choice = Some(ToolChoice::Required);
        let body = body(&typed);
        assert_eq!(body.get("response_format").unwrap_or(&Value::Null), &expected_format, "{provider} {tools}");
        assert_eq!(body.get("tools").is_some(), expected_tools, "{provider} {tools}");
        assert_eq!(body.get("tool_choice").is_some(), expected_tools, "{provider} {tools}");
        let system = body["messages"][0]["content"].as_str().unwrap();
        assert_eq!(system.contains("JSON Schema"), provider == "deepseek", "{system}");
    }
}

/// The messages behind the system prompt.
fn messages(provider: &str, messages: Vec<ChatMessage>) -> Value {
    let mut sent = body(&ModelRequest { messages, ..request(provider) })["messages"].take();
    sent.as_array_mut().unwrap().remove(0);
    sent
}

#[test]
fn messages_are_texts_calls_and_results() {
    let given = vec![
        user("a"),
        user("b"),
        assistant("openai", "", &["1", "2"], vec![json!({"text": "why"})]),
        result("1", "x"),
        result("2", "y"),
        assistant("openai", "done", &[], vec![]),
        user("c"),
    ];
    let call =
        |id: &str| json!({"id": id, "type": "function", "function": {"name": "read", "arguments": "{\"path\":\"a\"}"}});
    let expected = json!([
        {"role": "user", "content": "a\n\nb"},
        {"role": "assistant", "content": null, "tool_calls": [call("1"), call("2")]},
        {"role": "tool", "tool_call_id": "1", "content": "x"},
        {"role": "tool", "tool_call_id": "2", "content": "y"},
        {"role": "assistant", "content": "done"},
        {"role": "user", "content": "c"},
    ]);
    assert_eq!(messages("openai", given), expected);
}

#[test]
fn reasoning_goes_back_as_the_dialect_says() {
    let detail = json!({"type": "reasoning.text", "text": "why", "signature": "s", "index": 0});
    let signed = json!({"call": 1, "thought_signature": "s"});
    let extra = |signature: &str| json!({"google": {"thought_signature": signature}});
    let table = [
        ("deepseek", vec![json!({"text": "why"})], json!({"reasoning_content": "why"})),
        ("kimi", vec![], json!({"reasoning_content": " "})),
        ("openrouter", vec![detail.clone()], json!({"reasoning_details": [detail]})),
        ("openrouter", vec![json!({"text": "why"})], json!({})),
        ("gemini_openai", vec![], json!({"0": extra("skip_thought_signature_validator")})),
        ("gemini_openai", vec![signed], json!({"0": extra("skip_thought_signature_validator"), "1": extra("s")})),
        ("openai", vec![json!({"text": "why"})], json!({})),
    ];
    for (provider, items, expected) in table {
        let given = vec![user("a"), assistant(provider, "", &["1", "2"], items), result("1", "x"), result("2", "y")];
        let mut message = messages(provider, given)[1].take();
        let mut found = serde_json::Map::new();
        for (at, call) in message["tool_calls"].take().as_array().unwrap().iter().enumerate() {
            found.extend(call.get("extra_content").map(|extra| (at.to_string(), extra.clone())));
        }
        let keys = ["reasoning_content", "reasoning_details"];
        found.extend(keys.iter().filter_map(|key| Some(((*key).to_owned(), message.get(*key)?.clone()))));
        assert_eq!(json!(found), expected, "{provider}");
    }
}

#[test]
fn the_next_request_begins_with_the_whole_of_this_one() {
    let mut first = ModelRequest { tools: vec![tool("read")].into(), ..request("openai") };
    let before = body(&first).to_string();
    first.messages.extend([assistant("openai", "", &["1"], vec![]), result("1", "x")]);
    let after = body(&first).to_string();
    let before = before.strip_suffix("]}").unwrap();
    assert!(after.starts_with(before), "{before}\n{after}");
}
