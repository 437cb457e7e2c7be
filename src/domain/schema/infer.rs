//! Infers a schema from samples: what all of them have in common, without guesses.

use crate::limits::INFER_PROPERTIES;
use serde_json::{Map, Value, json};
use std::collections::HashMap;

/// Returns a JSON Schema that every sample fits: types, properties (required if all samples have them), and items of
/// arrays. Enumerations, formats and bounds are not inferred. An object with more than [`INFER_PROPERTIES`] different
/// keys counts as a map whose entries share one schema.
pub fn infer<'v>(samples: impl IntoIterator<Item = &'v Value>) -> Value {
    let mut facts = SampleFacts::default();
    for sample in samples {
        facts.add(sample);
    }
    facts.schema()
}

/// Facts about one place of the samples.
#[derive(Default)]
struct SampleFacts {
    /// Type names in the order of their first occurrence.
    types: Vec<&'static str>,
    /// Number of values that are objects.
    objects: usize,
    /// Properties of those objects by key, in the order of their first occurrence.
    properties: Vec<(String, Property)>,
    /// Index into `properties` by key.
    indices: HashMap<String, usize>,
    /// Facts about the items of all arrays together; `None` if no value is an array.
    items: Option<Box<SampleFacts>>,
}

/// One property of the objects at one place.
#[derive(Default)]
struct Property {
    /// Number of objects that have it.
    count: usize,
    values: SampleFacts,
}

impl SampleFacts {
    fn add(&mut self, value: &Value) {
        self.add_type(match value {
            Value::Null => "null",
            Value::Bool(_) => "boolean",
            Value::Number(number) if number.is_f64() => "number",
            Value::Number(_) => "integer",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        });
        match value {
            Value::Array(items) => {
                let facts = self.items.get_or_insert_default();
                for item in items {
                    facts.add(item);
                }
            }
            Value::Object(map) => {
                self.objects += 1;
                for (key, value) in map {
                    self.add_property(key, value);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    fn add_type(&mut self, name: &'static str) {
        if !self.types.contains(&name) {
            self.types.push(name);
        }
    }

    fn add_property(&mut self, key: &str, value: &Value) {
        let index = *self.indices.entry(key.to_owned()).or_insert_with(|| {
            self.properties.push((key.to_owned(), Property::default()));
            self.properties.len() - 1
        });
        let property = &mut self.properties[index].1;
        property.count += 1;
        property.values.add(value);
    }

    /// Adds the facts about another place, as if its values stood here.
    fn join(&mut self, other: Self) {
        other.types.into_iter().for_each(|name| self.add_type(name));
        self.objects += other.objects;
        for (key, property) in other.properties {
            if let Some(index) = self.indices.get(&key) {
                let known = &mut self.properties[*index].1;
                known.count += property.count;
                known.values.join(property.values);
            } else {
                self.indices.insert(key.clone(), self.properties.len());
                self.properties.push((key, property));
            }
        }
        match (&mut self.items, other.items) {
            (Some(items), Some(more)) => items.join(*more),
            (items @ None, more) => *items = more,
            (Some(_), None) => {}
        }
    }

    /// Makes the schema that all values of the place fit.
    fn schema(self) -> Value {
        let mut schema = Map::new();
        let decimal = self.types.contains(&"number");
        let types: Vec<_> = self.types.iter().filter(|name| !(decimal && **name == "integer")).collect();
        match types.as_slice() {
            [] => {}
            [one] => drop(schema.insert("type".into(), json!(one))),
            several => drop(schema.insert("type".into(), json!(several))),
        }
        if self.properties.len() > INFER_PROPERTIES {
            let mut entry = Self::default();
            self.properties.into_iter().for_each(|(_, property)| entry.join(property.values));
            schema.insert("additionalProperties".into(), entry.schema());
        } else if self.objects > 0 {
            let always = |(_, property): &&(String, Property)| property.count == self.objects;
            let required: Vec<_> = self.properties.iter().filter(always).map(|(key, _)| key.clone()).collect();
            let properties: Map<_, _> =
                self.properties.into_iter().map(|(key, property)| (key, property.values.schema())).collect();
            schema.insert("properties".into(), properties.into());
            if !required.is_empty() {
                schema.insert("required".into(), required.into());
            }
        }
        if let Some(items) = self.items {
            schema.insert("items".into(), items.schema());
        }
        schema.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::find_misfits;

    #[test]
    fn a_schema_says_what_all_samples_have_in_common() {
        for (samples, expected) in [
            (json!([1, 2]), json!({"type": "integer"})),
            (json!([1, 2.5]), json!({"type": "number"})),
            (json!([1.0]), json!({"type": "number"})),
            (json!(["open", "open", null]), json!({"type": ["string", "null"]})),
            (json!([1, "x", 2.5]), json!({"type": ["string", "number"]})),
            (json!([[]]), json!({"type": "array", "items": {}})),
            (json!([[1], ["x"]]), json!({"type": "array", "items": {"type": ["integer", "string"]}})),
            (json!([{}]), json!({"type": "object", "properties": {}})),
            (
                json!([{"id": 1, "tags": ["a"]}, {"id": 2, "note": null}]),
                json!({
                    "type": "object",
                    "properties": {
                        "id": {"type": "integer"},
                        "tags": {"type": "array", "items": {"type": "string"}},
                        "note": {"type": "null"}
                    },
                    "required": ["id"]
                }),
            ),
            (
                json!([{"a": {"x": 1}}, {"a": {"y": 1}}, 7]),
                json!({
                    "type": ["object", "integer"],
                    "properties": {
                        "a": {
                            "type": "object",
                            "properties": {"x": {"type": "integer"}, "y": {"type": "integer"}}
                        }
                    },
                    "required": ["a"]
                }),
            ),
            (json!([]), json!({})),
        ] {
            let schema = infer(samples.as_array().unwrap());
            assert_eq!(schema, expected, "{samples}");
            for sample in samples.as_array().unwrap() {
                assert_eq!(find_misfits(&schema, sample, 1).unwrap().0, [], "{sample} in {schema}");
            }
        }
    }

    #[test]
    fn an_object_with_very_many_keys_is_a_map() {
        let entry = |n: usize| if n.is_multiple_of(2) { json!({"n": n}) } else { json!({"n": 0.5, "m": ["x"]}) };
        let map: Map<_, _> = (0..=INFER_PROPERTIES).map(|n| (format!("k{n}"), entry(n))).collect();
        let expected = json!({
            "type": "object",
            "additionalProperties": {
                "type": "object",
                "properties": {"n": {"type": "number"}, "m": {"type": "array", "items": {"type": "string"}}},
                "required": ["n"]
            }
        });
        assert_eq!(infer([&Value::Object(map)]), expected);
    }
}
