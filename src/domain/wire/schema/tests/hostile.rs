//! Schemas that nobody means well with.

use super::{SUBSETS, SchemaSubset, project, sent};
use serde_json::{Map, Value, json};

#[test]
fn inexpressible_schemas_are_refused_with_their_place() {
    let deep = (0..200).fold(json!({}), |inner, _| json!({"properties": {"a": inner}}));
    let doubled = (0..15).map(|n| {
        let next = json!({"$ref": format!("#/$defs/{}", n + 1)});
        (n.to_string(), json!({"allOf": [next, next]}))
    });
    let doubled: Map<String, Value> = doubled.chain([("15".to_owned(), json!({}))]).collect();
    for (schema, part) in [
        (json!(false), "at `#`: arguments are a map, expected a schema that a map fits"),
        (
            json!({"type": "array"}),
            "at `#`: arguments are a map, expected a schema that a map fits, got `\"type\": \"array\"`",
        ),
        (json!({"anyOf": [{"type": "string"}, {"type": "null"}]}), "at `#`: arguments are a map"),
        (json!({"enum": ["a"]}), "at `#`: arguments are a map"),
        (json!({"allOf": [{"type": "object"}, {"type": "string"}]}), "at `#`: arguments are a map"),
        (
            json!({"properties": {"a": {"$ref": "#/$defs/b"}}}),
            "at `#/properties/a`: the reference `#/$defs/b` leads to nothing",
        ),
        (
            json!({"properties": {"a": {"$ref": "https://x/y"}}}),
            "at `#/properties/a`: the reference `https://x/y` can't be followed",
        ),
        (json!({"properties": {"a": {"$ref": "#/properties/a"}}}), "does a reference lead back to itself?"),
        (json!({"allOf": [{"$ref": "#"}]}), "does a reference lead back to itself?"),
        (json!({"properties": {"a": {"$ref": "#/$defs/0"}}, "$defs": doubled}), "its references multiply"),
        (json!({"description": "x".repeat(70_000)}), "expected at most 65536"),
        (deep, "at `#`: "),
    ] {
        for subset in SUBSETS {
            let error = project(&schema, subset).unwrap_err().to_string();
            assert!(error.contains(part), "{subset:?}: expected `{part}` in: {error}");
        }
    }
}

#[test]
fn keywords_of_wrong_types_say_nothing() {
    for odd in [json!(null), json!(7), json!("x"), json!([1, null]), json!({"a": 1}), json!([]), json!({})] {
        for key in [
            "type",
            "properties",
            "required",
            "items",
            "enum",
            "anyOf",
            "oneOf",
            "allOf",
            "$ref",
            "$defs",
            "minimum",
            "minLength",
            "maxItems",
            "multipleOf",
            "pattern",
            "format",
            "additionalProperties",
            "patternProperties",
            "prefixItems",
            "description",
            "title",
            "not",
            "if",
            "dependentSchemas",
            "propertyNames",
            "uniqueItems",
            "nullable",
            "examples",
            "exclusiveMinimum",
            "const",
        ] {
            let inner = json!({"type": "object", "properties": {"a": {key: odd}, "b": {"type": "array", key: odd}}});
            for subset in SUBSETS {
                if odd.is_string() && key == "$ref" {
                    continue;
                }
                sent(&inner, subset);
                let _ = project(&json!({"type": "object", key: odd}), subset);
            }
        }
    }
}

/// Each value of several lists of alternatives has one of each: twenty lists of 24 have more than any process can join.
#[test]
fn alternatives_that_multiply_are_described_or_refused() {
    for count in [2, 3, 20] {
        let list = |at: usize| {
            let alternatives = (0..24).map(|n| json!({"type": "object", "required": [format!("k{at}_{n}")]}));
            json!({"anyOf": alternatives.collect::<Vec<_>>()})
        };
        let lists: Vec<Value> = (0..count).map(list).collect();
        let schema = json!({"type": "object", "properties": {"a": {"allOf": lists}}});
        for subset in SUBSETS {
            match project(&schema, subset) {
                Ok(projected) => assert!(projected.schema.to_string().len() < 300_000),
                Err(error) => {
                    let text = error.to_string();
                    assert!(text.contains("multiply") || text.contains("bytes"), "{subset:?}: {text}");
                }
            }
        }
    }
}

#[test]
fn references_that_multiply_are_described() {
    let step = |n: usize| {
        let next = json!({"$ref": format!("#/$defs/{}", n + 1)});
        let fields: Map<String, Value> = (0..12).map(|at| (format!("f{at}"), next.clone())).collect();
        (n.to_string(), json!({"anyOf": [{"type": "object", "properties": fields}, next]}))
    };
    let mut defs: Map<String, Value> = (0..20).map(step).collect();
    defs.insert("20".to_owned(), json!({"type": "string"}));
    let schema = json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/0"}}, "$defs": defs});
    for subset in SUBSETS {
        match project(&schema, subset) {
            Ok(projected) => assert!(projected.schema.to_string().len() < 300_000),
            Err(error) => assert!(error.to_string().contains("bytes"), "{error}"),
        }
    }
    let wide: Map<String, Value> = (0..4_000).map(|at| (format!("f{at}"), json!({"type": "string"}))).collect();
    let wide = json!({"type": "object", "properties": {"a": {"type": "object", "properties": wide}}});
    for subset in SUBSETS {
        if let Err(error) = project(&wide, subset) {
            assert!(error.to_string().contains("expected at most"), "{error}");
        }
    }
}

#[test]
fn deep_schemas_end_in_text() {
    let deep = (0..14).fold(
        json!({"type": "string"}),
        |inner, _| json!({"type": "object", "properties": {"a": {"type": "array", "items": inner}}}),
    );
    for subset in SUBSETS {
        sent(&deep, subset);
    }
    let nested = (0..28).fold(json!({"type": "string"}), |inner, _| json!({"anyOf": [inner, {"type": "integer"}]}));
    for subset in [SchemaSubset::OpenAi, SchemaSubset::Gemini] {
        sent(&json!({"properties": {"a": nested}}), subset);
    }
}
