//! The Messages API.

use super::{Judge, check, with};
use serde_json::{Value, json};

fn message(role: &str, blocks: Value) -> Value {
    json!({"role": role, "content": blocks})
}

fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

fn call(id: &str) -> Value {
    json!({"type": "tool_use", "id": id, "name": "f", "input": {}})
}

fn result(id: &str) -> Value {
    json!({"type": "tool_result", "tool_use_id": id, "content": "done"})
}

fn body(messages: &[Value]) -> Value {
    json!({"model": "m", "max_tokens": 9, "messages": messages})
}

fn hello() -> Value {
    message("user", json!("hi"))
}

#[test]
fn the_order_of_messages_is_judged() {
    let calling = |blocks: Value| vec![hello(), message("assistant", blocks)];
    let answered = |blocks: Value, results: Value| [calling(blocks), vec![message("user", results)]].concat();
    let again = || {
        [answered(json!([call("c1")]), json!([result("c1")])), vec![message("assistant", json!([call("c1")]))]].concat()
    };
    for (messages, expected) in [
        (vec![hello()], ""),
        (vec![hello(), hello()], ""),
        (answered(json!([text("a"), call("c1"), call("c2")]), json!([result("c2"), result("c1"), text("b")])), ""),
        (vec![], "at least one message is required"),
        (vec![message("assistant", json!("a")), hello()], "first message must use the \"user\" role"),
        (vec![hello(), message("system", json!("a"))], "Input should be 'user' or 'assistant'"),
        (vec![hello(), message("assistant", json!("a"))], "must end with a user message"),
        (calling(json!([call("c1")])), "without `tool_result` blocks immediately after: c1"),
        (answered(json!([call("c1"), call("c2")]), json!([result("c1")])), "immediately after: c2"),
        (answered(json!([call("c1")]), json!([text("b"), result("c1")])), "immediately after: c1"),
        (answered(json!([call("c1")]), json!([text("b")])), "immediately after: c1"),
        (vec![message("user", json!([result("c1")]))], "unexpected `tool_use_id` found in `tool_result` blocks: c1"),
        (answered(json!([call("c1")]), json!([result("c1"), result("c1")])), "must have a single result"),
        ([again(), vec![message("user", json!([result("c1")]))]].concat(), "`tool_use` ids must be unique"),
        (answered(json!([call("a.b")]), json!([result("a.b")])), "'^[a-zA-Z0-9_-]+$'"),
        (
            vec![message("user", json!([call("c1")])), message("user", json!([result("c1")]))],
            "only be in `assistant` messages",
        ),
    ] {
        check(Judge::Anthropic, &body(&messages), expected);
    }
    for (key, value, expected) in [
        ("name", json!("functions.f"), "tool_use.name"),
        ("name", json!(""), "tool_use.name"),
        ("input", json!("x"), "valid dictionary"),
    ] {
        let mut wrong = call("c1");
        wrong[key] = value;
        check(Judge::Anthropic, &body(&answered(json!([wrong]), json!([result("c1")]))), expected);
    }
}

#[test]
fn texts_are_judged() {
    let nested = |said: &str| json!({"type": "tool_result", "tool_use_id": "c1", "content": [text(said)]});
    let called = message("assistant", json!([call("c1")]));
    for (messages, expected) in [
        (vec![message("user", json!([text("")]))], "text content blocks must be non-empty"),
        (vec![message("user", json!("  \n"))], "text content blocks must contain non-whitespace text"),
        (
            vec![hello(), message("assistant", json!([text(" "), call("c1")])), message("user", json!([result("c1")]))],
            "non-whitespace",
        ),
        (vec![message("user", json!([]))], "all messages must have non-empty content"),
        (vec![hello(), called.clone(), message("user", json!([nested("x")]))], ""),
        (vec![hello(), called, message("user", json!([nested("")]))], "must be non-empty"),
    ] {
        check(Judge::Anthropic, &body(&messages), expected);
    }
    for (system, expected) in
        [(json!(""), ""), (json!([text("s")]), ""), (json!([text(" ")]), "system: text content blocks")]
    {
        check(Judge::Anthropic, &with(&body(&[hello()]), json!({"system": system})), expected);
    }
}

#[test]
fn tools_and_cache_marks_are_judged() {
    let tool = |name: &str, schema: Value| json!({"name": name, "input_schema": schema});
    let object = |properties: Value| json!({"type": "object", "properties": properties});
    let marked = |n: usize| json!({"system": vec![json!({"type": "text", "text": "s", "cache_control": {"type": "ephemeral"}}); n]});
    let open = json!({"output_config": {"format": {"type": "json_schema", "schema": object(json!({}))}}});
    for (changes, expected) in [
        (json!({"tools": [tool("f", object(json!({"a.b": {"type": "array"}})))]}), ""),
        (json!({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}), ""),
        (json!({"tools": [tool("a.b", object(json!({})))]}), "tools.0.custom.name"),
        (json!({"tools": [tool("f", json!({}))]}), "input_schema.type: Input should be 'object'"),
        (json!({"tools": [{"name": "f"}]}), "input_schema: Field required"),
        (
            json!({"tools": [tool("f", json!({"type": "object", "anyOf": []}))]}),
            "does not support oneOf, allOf, or anyOf",
        ),
        (json!({"tools": [tool("f", object(json!({"a b": {}})))]}), "Property keys should match pattern"),
        (json!({"tools": [tool("f", object(json!({}))), tool("f", object(json!({})))]}), "Tool names must be unique"),
        (marked(4), ""),
        (marked(5), "A maximum of 4 blocks with cache_control may be provided. Found 5."),
        (
            json!({"system": [{"type": "text", "text": "", "cache_control": {}}]}),
            "cache_control cannot be set for empty text",
        ),
        (json!({"max_tokens": 0}), "max_tokens: Input should be greater"),
        (open, "'additionalProperties' must be explicitly set to false"),
    ] {
        check(Judge::Anthropic, &with(&body(&[hello()]), changes), expected);
    }
    check(Judge::Anthropic, &json!({"model": "m", "messages": [hello()]}), "max_tokens: Field required");
}

#[test]
fn thinking_settings_and_blocks_are_judged() {
    let thought = json!({"type": "thinking", "thinking": "hm", "signature": "s"});
    let unsigned = json!({"type": "thinking", "thinking": "hm"});
    let turn = |blocks: Value| body(&[hello(), message("assistant", blocks), message("user", json!([result("c1")]))]);
    let on = |budget: u64| json!({"thinking": {"type": "enabled", "budget_tokens": budget}, "max_tokens": 4_096});
    let later = body(&[
        hello(),
        message("assistant", json!([call("c1")])),
        message("user", json!([result("c1")])),
        message("assistant", json!("yes")),
        hello(),
    ]);
    for (body, changes, expected) in [
        (turn(json!([thought, call("c1")])), on(1_024), ""),
        (turn(json!([call("c1")])), json!({}), ""),
        (later, on(1_024), ""),
        (turn(json!([call("c1")])), on(1_024), "Expected `thinking` or `redacted_thinking`, but found `tool_use`"),
        (turn(json!([text("a"), thought, call("c1")])), on(1_024), "but found `text`"),
        (turn(json!([unsigned, call("c1")])), on(1_024), "thinking.signature: Field required"),
        (body(&[hello()]), on(1_023), "greater than or equal to 1024"),
        (body(&[hello()]), on(4_096), "must be greater than `thinking.budget_tokens`"),
        (with(&body(&[hello()]), on(1_024)), json!({"temperature": 0.5}), "may only be set to 1"),
        (
            with(&body(&[hello()]), on(1_024)),
            json!({"tool_choice": {"type": "any"}}),
            "when tool_choice forces tool use",
        ),
    ] {
        check(Judge::Anthropic, &with(&body, changes), expected);
    }
}
