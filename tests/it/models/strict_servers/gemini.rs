//! `generateContent`.

use super::{Judge, check, with};
use serde_json::{Value, json};

fn user(text: &str) -> Value {
    json!({"role": "user", "parts": [{"text": text}]})
}

fn model(parts: Value) -> Value {
    json!({"role": "model", "parts": parts})
}

fn call(name: &str) -> Value {
    json!({"functionCall": {"name": name, "args": {}}})
}

fn result(name: &str) -> Value {
    json!({"functionResponse": {"name": name, "response": {"result": "done"}}})
}

fn results(parts: Value) -> Value {
    json!({"role": "user", "parts": parts})
}

fn body(contents: &[Value]) -> Value {
    json!({"contents": contents})
}

#[test]
fn the_order_of_turns_is_judged() {
    let after_user = "function call turn comes immediately after a user turn";
    let count = "number of function response parts is equal to the number of function call parts";
    for (contents, expected) in [
        (vec![user("a")], ""),
        (vec![user("a"), user("b")], ""),
        (
            vec![
                user("a"),
                model(json!([call("f"), call("g")])),
                results(json!([result("g"), result("f")])),
                user("b"),
            ],
            "",
        ),
        (vec![], "contents is not specified"),
        (vec![model(json!([call("f")])), results(json!([result("f")]))], after_user),
        (
            vec![user("a"), model(json!([{"text": "x"}])), model(json!([call("f")])), results(json!([result("f")]))],
            after_user,
        ),
        (vec![user("a"), results(json!([result("f")]))], "function response turn comes immediately after"),
        (vec![user("a"), model(json!([call("f"), call("f")])), results(json!([result("f")]))], count),
        (vec![user("a"), model(json!([call("f")])), user("b")], count),
        (vec![user("a"), model(json!([call("f")]))], count),
        (
            vec![user("a"), model(json!([call("f")])), results(json!([result("f"), {"text": "b"}]))],
            "function response parts only",
        ),
        (vec![user("a"), model(json!([call("f")])), results(json!([result("g")]))], "no function call of that name"),
        (vec![user("a"), model(json!([{"text": "x"}]))], "end with a user role"),
        (vec![json!({"role": "assistant", "parts": [{"text": "a"}]})], "Please use a valid role"),
    ] {
        check(Judge::Gemini, &body(&contents), expected);
    }
}

#[test]
fn the_form_of_parts_is_judged() {
    let long = "x".repeat(65);
    for (part, expected) in [
        (json!({"text": "x"}), ""),
        (json!({"text": "", "thoughtSignature": "c2ln"}), ""),
        (json!({"text": ""}), "required oneof field 'data' must have one initialized field"),
        (json!({}), "required oneof field 'data'"),
        (json!({"text": "x", "thoughtSignature": "no base64!"}), "Base64 decoding failed"),
    ] {
        check(Judge::Gemini, &body(&[user("a"), model(json!([part])), user("b")]), expected);
    }
    for name in ["a b", "1a", "", &long] {
        check(
            Judge::Gemini,
            &body(&[user("a"), model(json!([call(name)])), results(json!([result(name)]))]),
            "Invalid function name",
        );
        let tools = json!({"tools": [{"functionDeclarations": [{"name": name}]}]});
        check(Judge::Gemini, &with(&body(&[user("a")]), tools), "Invalid function name");
    }
    let mut wrong = call("f");
    wrong["functionCall"]["args"] = "x".into();
    check(Judge::Gemini, &body(&[user("a"), model(json!([wrong])), results(json!([result("f")]))]), "Struct");
    check(Judge::Gemini, &body(&[json!({"role": "user", "parts": []})]), "contents.parts must not be empty");
    check(
        Judge::Gemini,
        &with(&body(&[user("a")]), json!({"systemInstruction": {"parts": [{"text": ""}]}})),
        "system_instruction",
    );
}

#[test]
fn schemas_are_judged() {
    let object = |property: Value| json!({"type": "object", "properties": {"a": property}});
    for (schema, expected) in [
        (object(json!({"type": "STRING"})), ""),
        (object(json!({"type": "array", "items": {"type": "integer", "format": "int32"}})), ""),
        (object(json!({"anyOf": [{"type": "string"}, {"type": "number"}]})), ""),
        (object(json!({"type": "string", "enum": ["x"], "format": "enum"})), ""),
        (object(json!({"type": "string", "const": "x"})), "Unknown name \"const\""),
        (object(json!({"$ref": "#/$defs/x"})), "Unknown name \"$ref\""),
        (
            json!({"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": false}),
            "Unknown name \"additionalProperties\"",
        ),
        (object(json!({"type": ["string", "null"]})), "Proto field is not repeating, cannot start list"),
        (object(json!({})), "type: must be specified"),
        (object(json!({"type": "null"})), "type: must be specified"),
        (object(json!({"type": "array"})), "properties[a].items: missing field"),
        (object(json!({"type": "string", "items": {"type": "string"}})), "items: only allowed for ARRAY type"),
        (object(json!({"type": "object"})), "properties[a].properties: should be non-empty for OBJECT type"),
        (json!({"type": "object", "properties": {}}), "should be non-empty for OBJECT type"),
        (object(json!({"type": "string", "properties": {}})), "properties: only allowed for OBJECT type"),
        (
            json!({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a", "b"]}),
            "required[1]: property is not defined",
        ),
        (object(json!({"type": "integer", "enum": ["1"]})), "enum: only allowed for STRING type"),
        (object(json!({"type": "string", "enum": [1]})), "enum[0]' (TYPE_STRING), 1"),
        (object(json!({"type": "string", "enum": []})), "enum: should be non-empty"),
        (object(json!({"type": "string", "enum": ["a", ""]})), "enum[1]: cannot be empty"),
        (
            object(json!({"type": "string", "format": "uri"})),
            "only 'enum' and 'date-time' are supported for STRING type",
        ),
        (object(json!({"anyOf": [{"type": "array"}]})), "properties[a].any_of[0].items: missing field"),
        (json!({"type": "string"}), "schema should be of OBJECT type"),
    ] {
        let tools = json!({"tools": [{"functionDeclarations": [{"name": "f", "parameters": schema}]}]});
        check(Judge::Gemini, &with(&body(&[user("a")]), tools), expected);
    }
    let all = json!({"tools": [{"functionDeclarations": [{"name": "f", "parametersJsonSchema": {"type": "object", "$defs": {}}}]}]});
    check(Judge::Gemini, &with(&body(&[user("a")]), all), "");
    let twice = json!({"tools": [{"functionDeclarations": [{"name": "f"}, {"name": "f"}]}]});
    check(Judge::Gemini, &with(&body(&[user("a")]), twice), "Duplicate function declaration found: f");
    let format = json!({"generationConfig": {"responseSchema": {"type": "STRING"}}});
    check(Judge::Gemini, &with(&body(&[user("a")]), format), "response_mime_type");
}

#[test]
fn thought_signatures_are_judged() {
    let signed = json!({"functionCall": {"name": "f", "args": {}}, "thoughtSignature": "c2ln"});
    let dummy =
        json!({"functionCall": {"name": "f", "args": {}}, "thoughtSignature": "skip_thought_signature_validator"});
    let two = |parts: Value| body(&[user("a"), model(parts), results(json!([result("f"), result("g")]))]);
    let earlier = body(&[
        user("a"),
        model(json!([call("f")])),
        results(json!([result("f")])),
        model(json!([{"text": "yes"}])),
        user("b"),
    ]);
    for (body, expected) in [
        (two(json!([signed, call("g")])), ""),
        (two(json!([dummy, call("g")])), ""),
        (two(json!([call("f"), call("g")])), "missing a thought_signature in functionCall parts"),
        (earlier, ""),
    ] {
        check(Judge::Gemini3, &body, expected);
        check(Judge::Gemini, &body, "");
    }
}
