//! Texts of a schema that people and models read, and that no check uses.

use serde_json::Value;

/// Keywords whose value is such a text.
const TEXTS: [&str; 3] = ["title", "description", "$comment"];

/// Keywords whose value is data: what looks like a keyword in it is none.
const DATA: [&str; 4] = ["const", "enum", "default", "examples"];

/// Keywords whose value has a schema under each name, which may be that of a keyword.
const NAMED: [&str; 6] =
    ["properties", "patternProperties", "dependentSchemas", "dependencies", "$defs", "definitions"];

/// Replaces each title, description and comment of a schema and of all schemas in it.
pub fn edit_annotations(schema: &mut Value, edit: &impl Fn(&str) -> String) {
    match schema {
        Value::Object(fields) => {
            for (key, inner) in fields {
                match (key.as_str(), inner) {
                    (key, Value::String(text)) if TEXTS.contains(&key) => *text = edit(text),
                    (key, _) if DATA.contains(&key) => {}
                    (key, Value::Object(named)) if NAMED.contains(&key) => {
                        named.values_mut().for_each(|inner| edit_annotations(inner, edit));
                    }
                    (_, inner) => edit_annotations(inner, edit),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|inner| edit_annotations(inner, edit)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::edit_annotations;
    use serde_json::json;

    #[test]
    fn texts_at_any_place_are_edited_and_data_are_kept() {
        let mut schema = json!({
            "title": "a", "description": "a", "$comment": "a", "format": "a", "pattern": "a",
            "properties": {
                "title": {"description": "a", "default": {"title": "a"}},
                "default": {"title": "a"},
                "description": {"enum": ["a", {"description": "a"}], "const": {"title": "a"}},
            },
            "required": ["title"],
            "anyOf": [{"items": {"description": "a"}}, {"not": {"title": "a", "examples": [{"title": "a"}]}}],
            "$defs": {"enum": {"description": "a"}},
        });
        edit_annotations(&mut schema, &|text: &str| text.to_uppercase());
        let expected = json!({
            "title": "A", "description": "A", "$comment": "A", "format": "a", "pattern": "a",
            "properties": {
                "title": {"description": "A", "default": {"title": "a"}},
                "default": {"title": "A"},
                "description": {"enum": ["a", {"description": "a"}], "const": {"title": "a"}},
            },
            "required": ["title"],
            "anyOf": [{"items": {"description": "A"}}, {"not": {"title": "A", "examples": [{"title": "a"}]}}],
            "$defs": {"enum": {"description": "A"}},
        });
        assert_eq!(schema, expected);
    }
}
