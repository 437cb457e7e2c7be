//! Input schemas of pins, combined with those of the catalogue.

use crate::secret::hide::has_hidden;
use serde_json::{Map, Value, json};

/// Marks of an argument in the catalog that hold under any schema: only trusted code gives it, or it may be a secret.
const MARKS: [&str; 2] = ["x-trusted", "x-secret"];
/// Mark of an argument that is never shown.
const HIDDEN: &str = "writeOnly";

/// Returns a pin's schema with the catalogue's marks of arguments of the same names.
pub(super) fn with_marks(own: &Value, catalog: &Value) -> Value {
    let mut own = own.clone();
    let Value::Object(schema) = &mut own else { return own };
    if let Some(Value::Object(properties)) = schema.get_mut("properties") {
        for (name, property) in properties {
            let Some(original) = catalog["properties"].get(name) else { continue };
            let mut marks: Map<String, Value> = Map::new();
            marks.extend(MARKS.iter().filter_map(|mark| Some(((*mark).to_owned(), original.get(*mark)?.clone()))));
            if has_hidden(original) {
                marks.insert(HIDDEN.into(), true.into());
            }
            match property {
                Value::Object(property) => property.extend(marks),
                other if !marks.is_empty() => *other = Value::Object(marks),
                _ => {}
            }
        }
    }
    if has_hidden(catalog) && !has_hidden(&own) {
        // The pin may give a hidden argument another name, so all of it is hidden.
        own[HIDDEN] = true.into();
    }
    own
}

/// Returns a pin's schema with the catalogue's other arguments, which may be bound or are given by trusted code.
pub(super) fn with_other_arguments(own: &Value, catalog: &Value) -> Value {
    let mut whole = own.clone();
    let Value::Object(schema) = &mut whole else { return whole };
    let Value::Object(properties) = schema.entry("properties").or_insert_with(|| json!({})) else { return whole };
    for (name, property) in catalog["properties"].as_object().into_iter().flatten() {
        properties.entry(name.clone()).or_insert_with(|| property.clone());
    }
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    fn catalog() -> Value {
        json!({"type": "object", "additionalProperties": false, "properties": {
            "value": {"type": "string", "writeOnly": true}, "who": {"x-trusted": true}, "plain": {"type": "string"}
        }})
    }

    #[test]
    fn marks_of_the_catalog_hold_under_a_schema_of_another() {
        for (own, expected) in [
            (
                json!({"properties": {"value": {"type": "number"}, "who": true, "plain": {}, "more": {}}}),
                json!({"properties": {
                    "value": {"type": "number", "writeOnly": true}, "who": {"x-trusted": true}, "plain": {}, "more": {}
                }}),
            ),
            (json!({"properties": {"plain": true}}), json!({"properties": {"plain": true}, "writeOnly": true})),
            (json!({"properties": []}), json!({"properties": [], "writeOnly": true})),
            (json!({"$ref": "#/$defs/x"}), json!({"$ref": "#/$defs/x", "writeOnly": true})),
            (json!(true), json!(true)),
        ] {
            assert_eq!(with_marks(&own, &catalog()), expected, "{own}");
        }
        let open = json!({"properties": {"value": {}}});
        assert_eq!(with_marks(&open, &open), open);
    }

    #[test]
    fn arguments_that_only_the_catalog_names_may_be_bound() {
        let own = json!({"properties": {"plain": {"type": "number"}}, "required": ["plain"]});
        let whole = with_other_arguments(&own, &catalog());
        assert_eq!(whole["properties"]["plain"], json!({"type": "number"}));
        assert_eq!(whole["properties"]["who"], json!({"x-trusted": true}));
        assert_eq!(whole["required"], json!(["plain"]));
        assert_eq!(with_other_arguments(&json!({}), &catalog())["properties"], catalog()["properties"]);
    }
}
