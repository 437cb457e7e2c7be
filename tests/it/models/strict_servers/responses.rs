//! The Responses API.

use super::{Judge, check, with};
use serde_json::{Value, json};

fn user(text: &str) -> Value {
    json!({"role": "user", "content": [{"type": "input_text", "text": text}]})
}

fn said(text: &str) -> Value {
    json!({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]})
}

fn call(id: &str) -> Value {
    json!({"type": "function_call", "call_id": id, "name": "f", "arguments": "{}"})
}

fn output(id: &str) -> Value {
    json!({"type": "function_call_output", "call_id": id, "output": "done"})
}

fn reasoning(id: &str) -> Value {
    json!({"type": "reasoning", "id": id, "summary": [], "encrypted_content": "x"})
}

fn body(items: &[Value]) -> Value {
    json!({"model": "m", "input": items})
}

#[test]
fn the_order_of_items_is_judged() {
    let too_long = "x".repeat(65);
    for (items, expected) in [
        (vec![user("a")], ""),
        (vec![user("a"), reasoning("rs_1"), call("c1"), call("c2"), output("c1"), output("c2")], ""),
        (vec![user("a"), reasoning("rs_1"), said("b"), user("c")], ""),
        (vec![], "One of \"input\" or \"previous_response_id\""),
        (vec![user("a"), call("c1")], "No tool output found for function call c1."),
        (vec![user("a"), output("c1")], "No tool call found for function call output with call_id c1."),
        (vec![user("a"), output("c1"), call("c1")], "No tool"),
        (vec![user("a"), call("c1"), output("c1"), output("c1")], "Duplicate item found with call_id c1"),
        (vec![user("a"), call("c1"), output("c1"), call("c1"), output("c1")], "Duplicate item"),
        (vec![user("a"), call(""), output("")], "call_id': empty string"),
        (vec![user("a"), call(&too_long), output(&too_long)], "maximum length 64"),
        (
            vec![user("a"), reasoning("rs_1")],
            "'rs_1' of type 'reasoning' was provided without its required following item",
        ),
        (vec![user("a"), reasoning("rs_1"), user("b")], "without its required following item"),
        (
            vec![user("a"), reasoning("rs_1"), said("a"), reasoning("rs_1"), said("b"), user("c")],
            "Duplicate item found with id rs_1",
        ),
        (vec![json!({"type": "thought"})], "Invalid value: 'thought' at input[0].type"),
    ] {
        check(Judge::Responses, &body(&items), expected);
    }
    let goes_on = with(&body(&[output("c1")]), json!({"previous_response_id": "resp_1"}));
    check(Judge::Responses, &goes_on, "");
    check(Judge::Responses, &json!({"model": "m", "input": "hi"}), "");
    check(Judge::Responses, &json!({"model": "m", "input": ""}), "Invalid 'input': empty string");
}

#[test]
fn the_form_of_items_is_judged() {
    for (item, id, expected) in [
        (call("c1"), "fc_1", ""),
        (call("c1"), "item_1", "Expected an ID that begins with 'fc'"),
        (call("c1"), "", "letters, numbers, underscores, or dashes"),
        (said("a"), "msg_1", ""),
        (said("a"), "rs_1", "Expected an ID that begins with 'msg'"),
        (reasoning(""), "msg_1", "Expected an ID that begins with 'rs'"),
        (reasoning(""), "review:user", "this value contained additional characters"),
    ] {
        let mut item = item;
        item["id"] = id.into();
        let rest = if item["type"] == "function_call" { output("c1") } else { said("b") };
        check(Judge::Responses, &body(&[user("a"), item, rest, user("c")]), expected);
    }
    for (item, expected) in [
        (
            json!({"role": "assistant", "content": [{"type": "input_text", "text": "a"}]}),
            "Supported values are: 'output_text'",
        ),
        (
            json!({"role": "user", "content": [{"type": "output_text", "text": "a"}]}),
            "Supported values are: 'input_text'",
        ),
        (json!({"role": "user", "content": []}), "input[0].content"),
        (json!({"role": "tool", "content": "x"}), "Invalid value: 'tool'"),
        (json!({"type": "function_call", "call_id": "c", "name": "a.b", "arguments": "{}"}), "input[0].name"),
        (json!({"type": "function_call", "call_id": "c", "name": "a", "arguments": {}}), "input[0].arguments"),
        (json!({"type": "function_call_output", "call_id": "c"}), "input[0].output"),
    ] {
        check(Judge::Responses, &body(&[item]), expected);
    }
}

#[test]
fn tools_and_settings_are_judged() {
    let tool = |more: Value| {
        let mut tool = json!({"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}});
        for (key, value) in more.as_object().unwrap() {
            tool[key] = value.clone();
        }
        json!({"tools": [tool]})
    };
    let one_of = json!({"type": "object", "properties": {"a": {"oneOf": [{"type": "string"}]}}});
    let closed = json!({"type": "object", "properties": {}, "additionalProperties": false, "required": []});
    for (changes, expected) in [
        (tool(json!({})), ""),
        (tool(json!({"strict": true, "parameters": closed})), ""),
        (tool(json!({"strict": true})), "'additionalProperties' is required"),
        (tool(json!({"strict": false, "parameters": one_of})), ""),
        (tool(json!({"parameters": one_of})), "In context=('properties', 'a'), 'oneOf' is not permitted"),
        (
            tool(json!({"parameters": {"type": "object", "properties": {"a": {"type": "array"}}}})),
            "array schema missing items",
        ),
        (tool(json!({"name": "a b"})), "Invalid 'tools[0].name'"),
        (
            json!({"tools": [{"type": "function", "function": {"name": "f"}}]}),
            "Missing required parameter: 'tools[0].name'",
        ),
        (json!({"max_output_tokens": 16}), ""),
        (json!({"max_output_tokens": 15}), "below minimum value"),
        (json!({"max_tokens": 99}), "moved to 'max_output_tokens'"),
        (json!({"response_format": {}}), "moved to 'text.format'"),
        (json!({"text": {"format": {"type": "json_schema", "name": "n", "strict": true, "schema": closed}}}), ""),
        (json!({"text": {"format": {"type": "json_schema", "schema": closed}}}), "'text.format.name'"),
        (
            json!({"text": {"format": {"type": "json_schema", "name": "n", "strict": true, "schema": {"type": "object", "properties": {}}}}}),
            "'additionalProperties'",
        ),
    ] {
        check(Judge::Responses, &with(&body(&[user("a")]), changes), expected);
    }
}
