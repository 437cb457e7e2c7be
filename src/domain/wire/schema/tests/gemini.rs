//! Gemini and Vertex.

use super::{SchemaSubset, sent};
use serde_json::{Value, json};

#[track_caller]
fn check(given: &Value, expected: &Value) {
    let found = sent(given, SchemaSubset::Gemini).schema;
    assert_eq!(found, *expected, "\ngiven    {given}\nfound    {found}\nexpected {expected}");
}

/// The schema of one property.
#[track_caller]
fn check_property(given: &Value, expected: &Value) {
    check(
        &json!({"type": "object", "properties": {"a": given}}),
        &json!({"type": "object", "properties": {"a": expected}}),
    );
}

const ANY: &str = "JSON text of the value: a string stands in quotes";

#[test]
fn a_value_has_one_type() {
    for (given, expected) in [
        (json!({"type": ["string", "null"]}), json!({"type": "string", "nullable": true})),
        (
            json!({"type": ["array", "string", "null"], "items": {"type": "integer"}, "description": "Which"}),
            json!({"anyOf": [
                {"type": "string", "description": "Which", "nullable": true},
                {"type": "array", "items": {"type": "integer"}}
            ]}),
        ),
        (
            json!({"anyOf": [{"type": "string"}, {"type": "null"}], "default": null, "title": "Name"}),
            json!({"type": "string", "description": "Name (default: null)", "nullable": true}),
        ),
        (json!({"type": ["integer", "number"]}), json!({"type": "number"})),
        (
            json!({"properties": {"x": {"type": "boolean"}}}),
            json!({"type": "object", "properties": {"x": {"type": "boolean"}}}),
        ),
        (json!({}), json!({"type": "string", "description": ANY})),
        (json!(true), json!({"type": "string", "description": ANY})),
        (json!({"description": "The value"}), json!({"type": "string", "description": format!("The value. {ANY}")})),
        (json!({"type": "array"}), json!({"type": "array", "items": {"type": "string", "description": ANY}})),
        (
            json!({"oneOf": [{"const": "a", "description": "First"}, {"const": "b"}]}),
            json!({"type": "string", "description": "[\"a\"]: First", "enum": ["a", "b"]}),
        ),
    ] {
        check_property(&given, &expected);
    }
}

#[test]
fn choices_are_texts() {
    for (given, expected) in [
        (json!({"const": "x"}), json!({"type": "string", "enum": ["x"]})),
        (json!({"type": "integer", "enum": [1, 2]}), json!({"type": "string", "enum": ["1", "2"]})),
        (json!({"enum": ["a", null]}), json!({"type": "string", "enum": ["a"], "nullable": true})),
        (json!({"const": true}), json!({"type": "boolean", "description": "Only true"})),
        (json!({"enum": ["", "a"]}), json!({"type": "string", "description": "One of [\"\",\"a\"]"})),
    ] {
        check_property(&given, &expected);
    }
}

#[test]
fn unknown_keywords_are_told() {
    for (given, expected) in [
        (
            json!({"type": "string", "format": "uri", "pattern": "^a", "minLength": 1, "contentEncoding": "x"}),
            json!({"type": "string", "description": "(format: \"uri\")", "pattern": "^a", "minLength": 1}),
        ),
        (
            json!({"type": "string", "pattern": "(?i)a", "format": "date-time"}),
            json!({"type": "string", "format": "date-time", "description": "(pattern: \"(?i)a\")"}),
        ),
        (
            json!({"type": "number", "minimum": 0, "exclusiveMaximum": 5, "not": {"const": 3}, "description": "N"}),
            json!({
                "type": "number", "minimum": 0, "description": "N (exclusiveMaximum: 5) (not: {\"const\":3})"
            }),
        ),
        (
            json!({"type": "array", "items": {"type": "string"}, "uniqueItems": true, "minItems": 1}),
            json!({
                "type": "array", "items": {"type": "string"}, "minItems": 1, "description": "(uniqueItems: true)"
            }),
        ),
        (
            json!({"type": "array", "prefixItems": [{"type": "number"}, {"type": "string"}], "items": false}),
            json!({
                "type": "array", "description": "In this order: [{\"type\":\"number\"},{\"type\":\"string\"}]",
                "items": {"anyOf": [{"type": "string"}, {"type": "number"}]}, "maxItems": 2
            }),
        ),
    ] {
        check_property(&given, &expected);
    }
}

#[test]
fn maps_with_any_keys_are_text() {
    for (given, expected) in [
        (json!({"type": "object"}), json!({"type": "string", "description": "JSON text of a map"})),
        (
            json!({"type": "object", "additionalProperties": {"type": "integer"}, "description": "Counts"}),
            json!({
                "type": "string",
                "description": "Counts. JSON text of a map, by the schema {\"type\":\"object\",\"additionalProperties\":{\"type\":\"integer\"}}"
            }),
        ),
        (
            json!({"type": "object", "properties": {"x": {"type": "string"}}, "additionalProperties": true}),
            json!({"type": "object", "properties": {
                "x": {"type": "string"},
                "more_fields": {"type": "string", "description": "JSON text of a map with all further fields"}
            }}),
        ),
    ] {
        check_property(&given, &expected);
    }
    check(
        &json!({"type": "object", "description": "the result: any fields"}),
        &json!({
            "type": "object", "description": "the result: any fields",
            "properties": {
                "more_fields": {"type": "string", "description": "JSON text of a map with all fields"}
            }
        }),
    );
    check(&json!({"type": "object", "properties": {}}), &json!({"type": "object", "properties": {}}));
    check(
        &json!({"type": "object", "required": ["a b"]}),
        &json!({
            "type": "object",
            "properties": {"a_b": {"type": "string", "description": format!("`a b`. {ANY}")}}, "required": ["a_b"]
        }),
    );
}

#[test]
fn references_are_written_out_until_it_is_too_deep() {
    let schema = json!({
        "type": "object", "properties": {"tree": {"$ref": "#/$defs/tree"}},
        "$defs": {"tree": {"type": "object", "properties": {
            "name": {"type": "string"}, "children": {"type": "array", "items": {"$ref": "#/$defs/tree"}}
        }}}
    });
    let sent = sent(&schema, SchemaSubset::Gemini);
    let tree = &sent.schema["properties"]["tree"]["properties"];
    assert_eq!(tree["name"], json!({"type": "string"}));
    let deep = &tree["children"]["items"]["properties"]["children"];
    assert_eq!(deep["type"], "string");
    let said = deep["description"].as_str().unwrap();
    assert!(said.starts_with("JSON text of a list, by the schema {\"type\":\"array\""), "{said}");
    let leaf = json!({"name": "c", "children": []});
    let given = json!({"tree": {"children": [{"name": "b", "children": json!([leaf]).to_string()}]}});
    assert_eq!(sent.renames.restore(given), json!({"tree": {"children": [{"name": "b", "children": [leaf]}]}}));
}

#[test]
fn alternatives_stand_alone() {
    check_property(
        &json!({"description": "Where", "oneOf": [
            {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"], "description": "A place"},
            {"type": "object", "properties": {"name": {"type": "string"}}},
            {"type": "null"}
        ]}),
        &json!({"anyOf": [
            {
                "description": "Where. A place", "properties": {"x": {"type": "integer"}}, "required": ["x"],
                "type": "object", "nullable": true
            },
            {"properties": {"name": {"type": "string"}}, "type": "object"}
        ]}),
    );
    // What is meant by a text must be clear.
    let unclear = json!({"anyOf": [{"type": "string"}, {"enum": [1, 2]}]});
    let sent = sent(&json!({"properties": {"a": unclear}}), SchemaSubset::Gemini);
    assert_eq!(sent.schema["properties"]["a"]["type"], "string");
    assert_eq!(sent.renames.restore(json!({"a": "\"5\""})), json!({"a": "5"}));
    assert_eq!(sent.renames.restore(json!({"a": "1"})), json!({"a": 1}));
}
