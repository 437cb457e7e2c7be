//! `OpenAI` and Anthropic.

use super::{SchemaSubset, sent};
use serde_json::{Value, json};

#[track_caller]
fn check(given: &Value, expected: &Value) {
    for subset in [SchemaSubset::OpenAi, SchemaSubset::Anthropic] {
        let found = sent(given, subset).schema;
        assert_eq!(found, *expected, "\ngiven    {given}\nfound    {found}\nexpected {expected}");
    }
}

/// The schema of one property.
#[track_caller]
fn check_property(given: &Value, expected: &Value) {
    check(
        &json!({"type": "object", "properties": {"a": given}}),
        &json!({"type": "object", "properties": {"a": expected}}),
    );
}

#[test]
fn the_top_is_a_map_without_combinators() {
    let empty = json!({"type": "object", "properties": {}});
    for given in [json!({}), json!(true), json!({"type": "object"}), json!({"type": ["object", "null"]})] {
        check(&given, &empty);
    }
    check(
        &json!({"allOf": [
            {"properties": {"a": {"type": "string"}}, "required": ["a"]},
            {"properties": {"b": {"type": "integer"}}, "required": ["b"], "description": "B."}
        ]}),
        &json!({
            "type": "object", "description": "B.",
            "properties": {"a": {"type": "string"}, "b": {"type": "integer"}}, "required": ["a", "b"]
        }),
    );
    check(
        &json!({
            "type": "object", "description": "An action",
            "properties": {"id": {"type": "string"}}, "required": ["id"], "additionalProperties": false,
            "oneOf": [
                {"properties": {"kind": {"const": "move"}, "to": {"type": "string"}}, "required": ["kind", "to"]},
                {"properties": {"kind": {"const": "stop"}}, "required": ["kind"]},
                {"type": "null"}
            ]
        }),
        &json!({
            "type": "object",
            "description": "An action. Give one of: (1) `kind` = \"move\", `to`; (2) `kind` = \"stop\"",
            "properties": {
                "id": {"type": "string"},
                "kind": {"anyOf": [{"type": "string", "const": "move"}, {"type": "string", "const": "stop"}]},
                "to": {"type": "string"}
            },
            "required": ["id", "kind"]
        }),
    );
    check(
        &json!({"properties": {"a": {}, "b": {}}, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]}),
        &json!({
            "type": "object", "description": "Give one of: (1) `a`; (2) `b`", "properties": {"a": {}, "b": {}}
        }),
    );
    check(
        &json!({"enum": [{"a": 1}, {"a": 2, "b": 3}, "x"]}),
        &json!({
            "type": "object", "description": "Give one of: (1) `a` = 1; (2) `a` = 2, `b` = 3",
            "properties": {
                "a": {"anyOf": [{"type": "number", "const": 1}, {"type": "number", "const": 2}]},
                "b": {"type": "number", "const": 3}
            },
            "required": ["a"]
        }),
    );
    check(
        &json!({"type": "object", "properties": {"a": {}}, "not": {"required": ["b"]}}),
        &json!({"type": "object", "description": "(not: {\"required\":[\"b\"]})", "properties": {"a": {}}}),
    );
}

#[test]
fn references_stay_below_the_top() {
    check(
        &json!({
            "$ref": "#/definitions/node",
            "definitions": {
                "node": {"type": "object", "properties": {"next": {"$ref": "#/definitions/node"}, "a%": {"$ref": "#/definitions/a~1b%25"}}},
                "a/b%": {"type": ["array", "null"]}
            }
        }),
        &json!({
            "type": "object",
            "properties": {
                "next": {"$ref": "#/$defs/node"},
                "a_": {"$ref": "#/$defs/a_1b_25", "description": "`a%`"}
            },
            "$defs": {
                "node": {
                    "type": "object",
                    "properties": {"next": {"$ref": "#/$defs/node"}, "a%": {"$ref": "#/$defs/a_1b_25"}}
                },
                "a_1b_25": {"type": ["array", "null"], "items": {}}
            }
        }),
    );
    check(
        &json!({"type": "object", "properties": {"self": {"$ref": "#", "description": "Inner", "minProperties": 1}}}),
        &json!({
            "type": "object",
            "properties": {"self": {"$ref": "#/$defs/root", "description": "Inner"}},
            "$defs": {"root": {
                "type": "object",
                "properties": {"self": {"$ref": "#/$defs/root", "description": "Inner"}}
            }}
        }),
    );
}

#[test]
fn nested_schemas_are_of_the_latest_draft() {
    for (given, expected) in [
        (json!({"type": "array"}), json!({"type": "array", "items": {}})),
        (json!({"type": ["array", "string", "null"]}), json!({"type": ["array", "string", "null"], "items": {}})),
        (json!(true), json!({})),
        (json!({"description": "Any"}), json!({"description": "Any"})),
        (json!({"const": "x"}), json!({"type": "string", "const": "x"})),
        (json!({"enum": ["x", 1]}), json!({"type": ["number", "string"], "enum": ["x", 1]})),
        (
            json!({"oneOf": [{"type": "string"}, {"type": "array"}]}),
            json!({"anyOf": [{"type": "string"}, {"type": "array", "items": {}}]}),
        ),
        (
            json!({"type": "object", "anyOf": [{"required": ["x"]}, {"required": ["y"]}]}),
            json!({"anyOf": [{"type": "object", "required": ["x"]}, {"type": "object", "required": ["y"]}]}),
        ),
        (
            json!({"type": "array", "items": [{"type": "string"}, true], "additionalItems": false}),
            json!({"type": "array", "prefixItems": [{"type": "string"}, {}], "maxItems": 2, "items": {}}),
        ),
        (
            json!({"type": "number", "minimum": 1, "exclusiveMinimum": true, "multipleOf": 0}),
            json!({"type": "number", "exclusiveMinimum": 1}),
        ),
        (
            json!({"type": "string", "minLength": 2.0, "maxLength": -1, "format": "uri", "x-extra": {"deep": 1}}),
            json!({"type": "string", "format": "uri", "minLength": 2}),
        ),
        (
            json!({"type": "integer", "not": {"const": 3}}),
            json!({"type": "integer", "description": "(not: {\"const\":3})"}),
        ),
        (
            json!({"type": "object", "additionalProperties": {"type": "array"}}),
            json!({"type": "object", "additionalProperties": {"type": "array", "items": {}}}),
        ),
    ] {
        check_property(&given, &expected);
    }
    check(
        &json!({"type": "object", "properties": {"a": {}, "b": false}, "required": ["a", "a", 1]}),
        &json!({"type": "object", "properties": {"a": {}}, "required": ["a"]}),
    );
}

#[test]
fn names_are_mapped_back() {
    let long = "x".repeat(70);
    let schema = json!({
        "type": "object",
        "properties": {
            "filter[id]": {"type": "string", "description": "Which"}, "filter_id_": {}, "": {}, "ü ö": {}, (&long): {},
            "in": {"type": "array", "items": {"type": "object", "properties": {"a b": {}}, "required": ["a b"]}}
        },
        "required": ["filter[id]", "not there"]
    });
    for subset in [SchemaSubset::OpenAi, SchemaSubset::Anthropic] {
        let sent = sent(&schema, subset);
        let names: Vec<&String> = sent.schema["properties"].as_object().unwrap().keys().collect();
        let cut = "x".repeat(64);
        assert_eq!(names, ["filter_id__2", "filter_id_", "unnamed", "___", &cut, "in", "not_there"]);
        assert_eq!(sent.schema["properties"]["filter_id__2"]["description"], "`filter[id]`. Which");
        assert_eq!(sent.schema["required"], json!(["filter_id__2", "not_there"]));
        let given = json!({
            "filter_id__2": "1", "filter_id_": 2, "unnamed": 3, "___": 4, (&cut): 5, "in": [{"a_b": 6}], "not_there": 7
        });
        let restored = json!({
            "filter[id]": "1", "filter_id_": 2, "": 3, "ü ö": 4, (&long): 5, "in": [{"a b": 6}], "not there": 7
        });
        assert_eq!(sent.renames.restore(given), restored);
    }
}
