//! Chat Completions and those that speak it.

use super::{Judge, check, with};
use serde_json::{Value, json};

fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

fn call(id: &str, name: &str) -> Value {
    json!({"id": id, "type": "function", "function": {"name": name, "arguments": "{}"}})
}

fn calling(calls: &[Value]) -> Value {
    json!({"role": "assistant", "content": null, "tool_calls": calls})
}

fn result(id: &str) -> Value {
    json!({"role": "tool", "tool_call_id": id, "content": "done"})
}

fn chat(messages: &[Value]) -> Value {
    json!({"model": "m", "messages": messages})
}

fn tool(name: &str, schema: &Value) -> Value {
    json!({"type": "function", "function": {"name": name, "description": "d", "parameters": schema}})
}

fn object(properties: &Value) -> Value {
    json!({"type": "object", "properties": properties})
}

#[test]
fn the_order_of_messages_is_judged() {
    let too_long = "x".repeat(41);
    for (messages, expected) in [
        (vec![user("hi")], ""),
        (vec![json!({"role": "system", "content": "s"}), user("hi")], ""),
        (vec![user("a"), calling(&[call("c1", "f"), call("c2", "f")]), result("c2"), result("c1"), user("b")], ""),
        (vec![], "Invalid 'messages': empty array"),
        (vec![user("a"), calling(&[call("c1", "f")])], "did not have response messages: c1"),
        (vec![user("a"), calling(&[call("c1", "f")]), user("b"), result("c1")], "did not have response messages: c1"),
        (vec![user("a"), result("c1")], "must be a response to a preceeding message"),
        (
            vec![user("a"), calling(&[call("c1", "f")]), result("c1"), result("c1")],
            "must be a response to a preceeding",
        ),
        (
            vec![user("a"), calling(&[call("c1", "f"), call("c1", "f")]), result("c1")],
            "Duplicate value for 'tool_call_id'",
        ),
        (vec![user("a"), calling(&[])], "tool_calls': empty array"),
        (vec![user("a"), calling(&[call("", "f")]), result("")], ".id': empty string"),
        (vec![user("a"), calling(&[call(&too_long, "f")]), result(&too_long)], "maximum length 40"),
        (vec![user("a"), calling(&[call("c1", "functions.f")]), result("c1")], "'^[a-zA-Z0-9_-]+$'"),
        (vec![user("a"), calling(&[call("c1", "")]), result("c1")], "'^[a-zA-Z0-9_-]+$'"),
        (vec![user("a"), json!({"role": "assistant", "content": ""}), user("b")], "expected a string, got null"),
        (vec![json!({"role": "user", "content": null})], "expected a string, got null"),
        (vec![json!({"role": "user", "content": []})], "expected a string, got something else"),
        (vec![json!({"role": "critic", "content": "x"})], "Invalid value: 'critic'"),
    ] {
        check(Judge::OpenAi, &chat(&messages), expected);
    }
    let mut map = calling(&[call("c1", "f")]);
    map["tool_calls"][0]["function"]["arguments"] = json!({});
    check(Judge::OpenAi, &chat(&[user("a"), map, result("c1")]), "arguments': expected a string");
}

#[test]
fn tools_and_their_schemas_are_judged() {
    let body = chat(&[user("hi")]);
    let array = json!({"type": "array"});
    for (schema, expected) in [
        (object(&json!({"a": {"type": "array", "items": {}}})), ""),
        (object(&json!({})), ""),
        (object(&json!({"a": {"oneOf": [{"type": "string"}, {"type": "null"}]}})), ""),
        (object(&json!({"a": array})), "In context=('properties', 'a'), array schema missing items"),
        (object(&json!({"a": {"type": ["array", "null"]}})), "array schema missing items"),
        (object(&json!({"a": {"anyOf": [{"type": "string"}, array]}})), "('properties', 'a', 'anyOf', '1')"),
        (json!({"type": "object", "properties": {}, "$defs": {"d": array}}), "array schema missing items"),
        (json!({"type": "object"}), "object schema missing properties"),
        (json!({"type": "string"}), "must be a JSON Schema of 'type: \"object\"', got 'type: \"string\"'"),
        (json!({}), "got 'type: \"None\"'"),
        (json!({"type": "object", "properties": {}, "anyOf": []}), "not have 'oneOf'/'anyOf'"),
    ] {
        check(Judge::OpenAi, &with(&body, json!({"tools": [tool("f", &schema)]})), expected);
    }
    let some = object(&json!({}));
    let many: Vec<Value> = (0..129).map(|n| tool(&format!("f{n}"), &some)).collect();
    for (tools, expected) in [
        (json!([tool("f", &some), tool("g", &Value::Null)]), ""),
        (json!([tool("f", &some), tool("f", &some)]), "the name 'f' is given twice"),
        (json!([tool("a b", &some)]), "Invalid 'tools[0].function.name'"),
        (json!(many[..128]), ""),
        (json!(many), "maximum length 128"),
        (json!([]), "Invalid 'tools': empty array"),
    ] {
        check(Judge::OpenAi, &with(&body, json!({"tools": tools})), expected);
    }
}

#[test]
fn strict_schemas_are_judged() {
    let format = |schema: Value| {
        let format = json!({"type": "json_schema", "json_schema": {"name": "n", "strict": true, "schema": schema}});
        with(&chat(&[user("hi")]), json!({"response_format": format}))
    };
    let closed = |properties: Value, required: Value| json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false});
    let text = json!({"type": "string"});
    for (schema, expected) in [
        (closed(json!({"a": text}), json!(["a"])), ""),
        (closed(json!({"a": {"anyOf": [{"type": "string"}, {"type": "null"}]}}), json!(["a"])), ""),
        (closed(json!({"a": text}), json!([])), "an array including every key in properties. Missing 'a'"),
        (json!({"type": "object", "properties": {}}), "In context=(), 'additionalProperties' is required"),
        (
            closed(json!({"a": {"type": "object", "properties": {}}}), json!(["a"])),
            "('properties', 'a'), 'additionalProperties'",
        ),
        (closed(json!({"a": {"oneOf": [text]}}), json!(["a"])), "'oneOf' is not permitted"),
        (closed(json!({"a": {"type": "string", "default": "x"}}), json!(["a"])), "'default' is not permitted"),
        (closed(json!({"a": {}}), json!(["a"])), "schema must have a 'type' key"),
        (closed(json!({"a": {"type": "array"}}), json!(["a"])), "array schema missing items"),
    ] {
        check(Judge::OpenAi, &format(schema.clone()), expected);
        let mut function = tool("f", &schema);
        function["function"]["strict"] = true.into();
        check(Judge::OpenAi, &with(&chat(&[user("hi")]), json!({"tools": [function]})), expected);
    }
    let mut unnamed = format(closed(json!({}), json!([])));
    unnamed["response_format"]["json_schema"]["name"] = "a b".into();
    check(Judge::OpenAi, &unnamed, "response_format.json_schema.name");
}

#[test]
fn settings_are_judged() {
    let body = chat(&[user("hi")]);
    for (changes, expected) in [
        (json!({"model": "gpt-4o", "max_tokens": 9}), ""),
        (json!({"model": "gpt-5.1", "max_tokens": 9}), "Use 'max_completion_tokens' instead"),
        (json!({"model": "o3-mini-high", "max_tokens": 9}), "Use 'max_completion_tokens' instead"),
        (json!({"model": "o3-mini", "max_completion_tokens": 9}), ""),
        (json!({"tool_choice": "auto"}), "'tool_choice' is only allowed when 'tools'"),
        (json!({"parallel_tool_calls": true}), "'parallel_tool_calls' is only allowed"),
        (json!({"stream": true, "stream_options": {}}), ""),
        (json!({"stream_options": {}}), "only allowed when 'stream' is enabled"),
    ] {
        check(Judge::OpenAi, &with(&body, changes), expected);
    }
}

/// A turn with a call, and what its assistant message has beside it.
fn thinking(model: &str, beside: &Value) -> Value {
    let mut message = calling(&[call("c12345678", "f")]);
    for (key, value) in beside.as_object().unwrap() {
        message[key] = value.clone();
    }
    json!({"model": model, "messages": [user("a"), message, result("c12345678")]})
}

#[test]
fn returned_reasoning_is_judged() {
    let signed = json!([{"id": "c12345678", "type": "function", "function": {"name": "f", "arguments": "{}"},
        "extra_content": {"google": {"thought_signature": "c2ln"}}}]);
    let missing = "Missing `reasoning_content` field in the assistant message at message index 1";
    let kimi = "reasoning_content is missing in assistant tool call message at index 1";
    for (judge, model, beside, expected) in [
        (Judge::DeepSeek, "deepseek-chat", json!({}), ""),
        (Judge::DeepSeek, "deepseek-reasoner", json!({}), missing),
        (Judge::DeepSeek, "deepseek-reasoner", json!({"reasoning_content": ""}), ""),
        (Judge::Kimi, "kimi-k2-thinking", json!({"reasoning_content": "hm"}), ""),
        (Judge::Kimi, "kimi-k2-thinking", json!({"reasoning_content": ""}), kimi),
        (Judge::Kimi, "moonshot-v1-8k", json!({}), ""),
        (Judge::GeminiChat, "gemini-3-pro", json!({}), "missing a thought_signature"),
        (Judge::GeminiChat, "gemini-3-pro", json!({"tool_calls": signed}), ""),
    ] {
        check(judge, &thinking(model, &beside), expected);
    }
    let told = with(&thinking("deepseek-chat", &json!({})), json!({"thinking": {"type": "enabled"}}));
    check(Judge::DeepSeek, &told, missing);
    check(
        Judge::DeepSeek,
        &chat(&[json!({"role": "developer", "content": "s"}), user("a")]),
        "unknown variant `developer`",
    );
    let format = json!({"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {}}}});
    check(Judge::DeepSeek, &with(&chat(&[user("a")]), format), "This response_format type is unavailable now");
    let both = json!({"thinking": {"type": "disabled"}, "reasoning_effort": "low"});
    check(Judge::Kimi, &with(&chat(&[user("a")]), both), "cannot specify both");
}

#[test]
fn requests_for_mistral_are_judged() {
    let id = "abcdefgh1";
    let called = calling(&[call(id, "f")]);
    let said = json!({"role": "assistant", "content": "yes"});
    for (messages, expected) in [
        (vec![user("a"), said.clone(), user("b")], ""),
        (vec![json!({"role": "system", "content": "s"}), user("a"), called.clone(), result(id)], ""),
        (vec![user("a"), called.clone(), result(id), said.clone(), user("b")], ""),
        (vec![user("a"), called.clone(), result(id), user("b")], "Unexpected role 'user' after role 'tool'"),
        (vec![user("a"), user("b")], "Unexpected role 'user' after role 'user'"),
        (vec![user("a"), said.clone(), said.clone(), user("b")], "Unexpected role 'assistant' after role 'assistant'"),
        (vec![user("a"), said.clone()], "Expected last role User or Tool"),
        (vec![user("a"), json!({"role": "assistant", "content": "yes", "prefix": true})], ""),
        (vec![user("a"), calling(&[call("call_1234", "f")]), result("call_1234")], "with a length of 9"),
        (
            vec![user("a"), calling(&[call(id, "f"), call("abcdefgh2", "f")]), result(id), said.clone(), user("b")],
            "Not the same number",
        ),
        (
            vec![user("a"), json!({"role": "assistant", "content": ""}), user("b")],
            "content or tool_calls, but not none",
        ),
        (
            vec![user("a"), json!({"role": "assistant", "content": "x", "reasoning_content": "r"}), user("b")],
            "'reasoning_content'",
        ),
    ] {
        check(Judge::Mistral, &chat(&messages), expected);
    }
    for (key, value) in [("max_completion_tokens", json!(9)), ("stream_options", json!({})), ("store", json!(false))] {
        check(Judge::Mistral, &with(&chat(&[user("a")]), json!({key: value})), "Extra inputs are not permitted");
    }
}

#[test]
fn requests_for_ollama_are_judged() {
    let message = |message: Value| json!({"model": "m", "messages": [message]});
    for (body, expected) in [
        (message(user("a")), ""),
        (json!({"messages": []}), "model is required"),
        (message(json!({"role": "user", "content": [{"type": "text", "text": "a"}]})), "cannot unmarshal array"),
        (message(calling(&[call("c", "f")])), "cannot unmarshal string"),
        (with(&message(user("a")), json!({"tools": [tool("f", &json!({"properties": []}))]})), "parameters.properties"),
    ] {
        let mut body = body;
        if let Some(content) = body.pointer_mut("/messages/0/content").filter(|content| content.is_null()) {
            *content = "".into();
        }
        check(Judge::Ollama, &body, expected);
    }
}
