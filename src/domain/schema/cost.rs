//! How much work a schema makes of a value: references can multiply it without end.

use super::weight::keyword_steps;
use crate::limits::{SCHEMA_CHECKS, SCHEMA_DEPTH};
use serde_json::{Map, Value};
use std::collections::HashMap;

/// Why a check would take too long.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SchemaCostError {
    /// A schema applies itself to the same value.
    #[error("the reference `{reference}` leads back to itself without going deeper into the value")]
    Circle {
        /// The reference as written.
        reference: String,
    },
    /// A reference leads out of the schema, and nothing is fetched.
    #[error("the reference `{reference}` can't be followed, expected one into the same schema (`#/…`)")]
    Foreign {
        /// The reference as written.
        reference: String,
    },
    /// A pointer leads nowhere.
    #[error("the reference `{reference}` leads to nothing")]
    Dangling {
        /// The reference as written.
        reference: String,
    },
    /// A keyword names parts of a schema without a pointer.
    #[error("`{keyword}` is not supported, expected references into the same schema (`#/…`)")]
    Keyword {
        /// The unsupported keyword.
        keyword: &'static str,
    },
    /// Too many schemas apply inside one another.
    #[error("checking this value goes more than {SCHEMA_DEPTH} schemas deep; use a simpler schema or a flatter value")]
    Depth,
    /// The check takes too many steps.
    #[error("checking this value takes more than {SCHEMA_CHECKS} steps; use a simpler schema or a smaller value")]
    Steps,
}

/// Keywords that name parts of a schema without a pointer.
const NAMED_PARTS: [&str; 6] =
    ["$anchor", "$dynamicAnchor", "$dynamicRef", "$recursiveAnchor", "$recursiveRef", "$vocabulary"];
/// Keywords with one schema for the same value.
const SAME_VALUE_KEYWORDS: [&str; 4] = ["not", "if", "then", "else"];
/// Keywords with several schemas for the same value.
const SAME_VALUE_LISTS: [&str; 5] = ["allOf", "anyOf", "oneOf", "dependentSchemas", "dependencies"];
/// Keywords with a schema for each element or entry.
const ELEMENT_KEYWORDS: [&str; 6] =
    ["items", "additionalItems", "unevaluatedItems", "contains", "additionalProperties", "unevaluatedProperties"];

/// Returns the most checks that a validator would make. More than [`SCHEMA_CHECKS`] of them, or more than
/// [`SCHEMA_DEPTH`] inside one another, are an error.
pub fn cost(schema: &Value, value: &Value) -> Result<u64, SchemaCostError> {
    let mut counter = CheckCounter { root: schema, known: HashMap::new(), listed: 0 };
    counter.checks(schema, value, None, 0).map(|work| work.checks)
}

#[derive(Clone, Copy)]
struct CheckWork {
    checks: u64,
    /// Most levels of schemas inside one another.
    height: usize,
}

/// A schema and a value by their addresses; both outlive the count.
type SchemaValuePair = (*const Value, *const Value);

struct CheckCounter<'v> {
    root: &'v Value,
    /// Work of each pair; `None` while it is being counted.
    known: HashMap<SchemaValuePair, Option<CheckWork>>,
    /// Pairs that were listed so far. Each is a check at least, so that a list that is too long is never made.
    listed: u64,
}

impl<'v> CheckCounter<'v> {
    fn checks(
        &mut self,
        schema: &'v Value,
        value: &'v Value,
        from: Option<&str>,
        depth: usize,
    ) -> Result<CheckWork, SchemaCostError> {
        let Value::Object(keywords) = schema else { return Ok(CheckWork { checks: 1, height: 1 }) };
        let pair: SchemaValuePair = (schema, value);
        match self.known.get(&pair) {
            Some(Some(work)) if depth + work.height > SCHEMA_DEPTH => return Err(SchemaCostError::Depth),
            Some(Some(work)) => return Ok(*work),
            Some(None) => return Err(SchemaCostError::Circle { reference: from.unwrap_or("#").to_owned() }),
            None => {}
        }
        if depth >= SCHEMA_DEPTH {
            return Err(SchemaCostError::Depth);
        }
        if self.known.len() as u64 >= SCHEMA_CHECKS {
            return Err(SchemaCostError::Steps);
        }
        self.known.insert(pair, None);
        let is_root = std::ptr::eq(schema, self.root);
        if let Some(keyword) = NAMED_PARTS.into_iter().find(|keyword| keywords.contains_key(*keyword)) {
            return Err(SchemaCostError::Keyword { keyword });
        }
        if !is_root && keywords.get("$id").is_some_and(Value::is_string) {
            return Err(SchemaCostError::Keyword { keyword: "$id" });
        }
        let own = keyword_steps(keywords, value).saturating_add(1 + keywords.len() as u64);
        let names = self.name_checks(keywords, value, depth)?;
        let mut work = CheckWork { checks: own.saturating_add(names.checks), height: 1 + names.height };
        if work.checks > SCHEMA_CHECKS {
            return Err(SchemaCostError::Steps);
        }
        let applied = self.applied_schemas(keywords, value)?;
        self.listed += applied.len() as u64;
        for (part, inner, reference) in applied {
            let below = self.checks(part, inner, reference.or(from), depth + 1)?;
            work.checks += below.checks;
            work.height = work.height.max(1 + below.height);
            if work.checks > SCHEMA_CHECKS {
                return Err(SchemaCostError::Steps);
            }
        }
        self.known.insert(pair, Some(work));
        Ok(work)
    }

    /// Returns the schemas that apply, each with its value and the reference that leads to it.
    fn applied_schemas(
        &self,
        keywords: &'v Map<String, Value>,
        value: &'v Value,
    ) -> Result<Vec<AppliedSchema<'v>>, SchemaCostError> {
        let mut applied: Vec<AppliedSchema<'v>> = Vec::new();
        if let Some(Value::String(reference)) = keywords.get("$ref") {
            applied.push((self.target(reference)?, value, Some(reference)));
        }
        applied.extend(SAME_VALUE_KEYWORDS.iter().filter_map(|keyword| Some((keywords.get(*keyword)?, value, None))));
        for part in SAME_VALUE_LISTS.iter().filter_map(|keyword| keywords.get(*keyword)) {
            applied.extend(elements(part).map(|part| (part, value, None)));
        }
        match value {
            Value::Object(map) => {
                let properties = keywords.get("properties").and_then(Value::as_object);
                applied.extend(
                    properties.into_iter().flatten().filter_map(|(name, part)| Some((part, map.get(name)?, None))),
                );
                let patterns = || keywords.get("patternProperties").into_iter().flat_map(elements);
                let pairs = (patterns().count() as u64).saturating_mul(map.len() as u64);
                if self.listed.saturating_add(pairs) > SCHEMA_CHECKS {
                    return Err(SchemaCostError::Steps);
                }
                applied.extend(patterns().flat_map(|part| map.values().map(move |inner| (part, inner, None))));
            }
            Value::Array(items) => {
                for keyword in ["prefixItems", "items"] {
                    let parts = keywords.get(keyword).and_then(Value::as_array).into_iter().flatten();
                    applied.extend(parts.zip(items).map(|(part, inner)| (part, inner, None)));
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
        for part in ELEMENT_KEYWORDS.iter().filter_map(|keyword| keywords.get(*keyword)).filter(|part| part.is_object())
        {
            applied.extend(elements(value).map(|inner| (part, inner, None)));
        }
        Ok(applied)
    }

    /// Returns the checks that `propertyNames` makes of the names of a map, each as long as the longest.
    fn name_checks(
        &self,
        keywords: &Map<String, Value>,
        value: &Value,
        depth: usize,
    ) -> Result<CheckWork, SchemaCostError> {
        let none = CheckWork { checks: 0, height: 0 };
        let (Some(part), Value::Object(map)) = (keywords.get("propertyNames"), value) else { return Ok(none) };
        let Some(longest) = map.keys().max_by_key(|name| name.len()) else { return Ok(none) };
        // No part of a schema goes deeper into a text, so the names need none of the pairs that are known here.
        let name = Value::String(longest.clone());
        let mut counter = CheckCounter { root: self.root, known: HashMap::new(), listed: 0 };
        let each = counter.checks(part, &name, None, depth + 1)?;
        Ok(CheckWork { checks: each.checks.saturating_mul(map.len() as u64), ..each })
    }

    fn target(&self, reference: &str) -> Result<&'v Value, SchemaCostError> {
        let pointer = reference.strip_prefix('#').filter(|rest| rest.is_empty() || rest.starts_with('/'));
        let pointer = pointer.ok_or_else(|| SchemaCostError::Foreign { reference: reference.to_owned() })?;
        let found = percent_decoded(pointer).and_then(|pointer| self.root.pointer(&pointer));
        found.ok_or_else(|| SchemaCostError::Dangling { reference: reference.to_owned() })
    }
}

/// Decodes the text of a URI's fragment; `None` if it isn't UTF-8 or has a broken escape.
pub(crate) fn percent_decoded(text: &str) -> Option<String> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte == b'%' {
            let pair = [bytes.next()?, bytes.next()?];
            out.push(u8::from_str_radix(std::str::from_utf8(&pair).ok()?, 16).ok()?);
        } else {
            out.push(byte);
        }
    }
    String::from_utf8(out).ok()
}

type AppliedSchema<'v> = (&'v Value, &'v Value, Option<&'v str>);

/// Iterates over the elements of an array or the values of a map.
fn elements(value: &Value) -> Box<dyn Iterator<Item = &Value> + '_> {
    match value {
        Value::Array(items) => Box::new(items.iter()),
        Value::Object(map) => Box::new(map.values()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Box::new(std::iter::empty()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn tree(depth: usize) -> Value {
        (0..depth).fold(json!({}), |inner, _| json!({"next": inner}))
    }

    #[test]
    fn recursion_into_the_value_is_fine() {
        let list = json!({"properties": {"next": {"$ref": "#"}}, "type": "object"});
        assert!(cost(&list, &tree(100)).unwrap() < 1_000);
        let wide = json!({"type": "array", "items": {"type": "integer"}});
        assert!(cost(&wide, &(0..10_000).collect()).unwrap() < 50_000);
        let escaped = json!({"$ref": "#/$defs/a~1b%25", "$defs": {"a/b%": {"type": "string"}}});
        assert!(cost(&escaped, &json!("x")).is_ok());
    }

    #[test]
    fn endless_schemas_are_refused() {
        for schema in [
            json!({"$ref": "#"}),
            json!({"allOf": [{"$ref": "#"}]}),
            json!({"$ref": "#/$defs/a", "$defs": {"a": {"anyOf": [{"not": {"$ref": "#/$defs/a"}}]}}}),
        ] {
            assert!(matches!(cost(&schema, &json!({})), Err(SchemaCostError::Circle { .. })), "{schema}");
        }
        let twice = json!({"properties": {"next": {"allOf": [{"$ref": "#"}, {"$ref": "#"}]}}});
        assert!(cost(&twice, &tree(5)).is_ok());
        assert_eq!(cost(&twice, &tree(60)), Err(SchemaCostError::Steps));
        let chain = (0..40).map(|n| {
            let next = json!({"$ref": format!("#/$defs/{}", n + 1)});
            (n.to_string(), json!({"allOf": [next, next]}))
        });
        let mut chain: Map<String, Value> = chain.collect();
        chain.insert("40".into(), json!(true));
        assert_eq!(cost(&json!({"$ref": "#/$defs/0", "$defs": chain}), &json!(1)), Err(SchemaCostError::Steps));
    }

    /// Each pattern applies to each entry, which a list of all pairs would need gigabytes for.
    #[test]
    fn patterns_times_entries_are_never_listed() {
        let patterns: Map<String, Value> = (0..4_000).map(|n| (format!("p{n}"), json!({"$ref": "#"}))).collect();
        let entries = |count: usize| Value::Object((0..count).map(|n| (format!("k{n}"), json!({}))).collect());
        let schema = json!({"patternProperties": patterns});
        assert_eq!(cost(&schema, &entries(40_000)), Err(SchemaCostError::Steps));
        assert!(cost(&schema, &entries(20)).is_ok());
        // Lists inside one another count together.
        let nested = (0..60).fold(json!({}), |inner, _| {
            let mut map = entries(200);
            map["next"] = inner;
            map
        });
        assert_eq!(cost(&schema, &nested), Err(SchemaCostError::Steps));
    }

    /// One request of 900 KB with such a schema took 24 GB, one of 10 KB a processor for minutes.
    #[test]
    fn patterns_of_names_and_long_texts_are_counted() {
        let patterns: Vec<Value> = (0..1_900).map(|n| json!({"pattern": format!("x{n}$")})).collect();
        let map: Map<String, Value> = (0..24_000).map(|n| (format!("name-{n}"), json!(1))).collect();
        let few: Map<String, Value> = map.iter().take(20).map(|(name, value)| (name.clone(), value.clone())).collect();
        for names in [json!({"allOf": patterns}), json!({"not": {"anyOf": patterns}})] {
            let schema = json!({"propertyNames": names});
            assert_eq!(cost(&schema, &Value::Object(map.clone())), Err(SchemaCostError::Steps));
            assert!(cost(&schema, &Value::Object(few.clone())).is_ok());
        }
        let text = json!("ab".repeat(5_000));
        assert_eq!(cost(&json!({"pattern": "^[ab]*a[ab]{10000}$"}), &text), Err(SchemaCostError::Steps));
        assert_eq!(cost(&json!({"allOf": patterns}), &json!("ab".repeat(400_000))), Err(SchemaCostError::Steps));
        assert!(cost(&json!({"pattern": "^[a-z]{1,64}(-[a-z]{1,64}){0,9}$"}), &text).is_ok());
        let ids: Value = (0..10_000).map(|n| json!(format!("123e4567-e89b-12d3-a456-{n:012}"))).collect();
        let id = "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$";
        assert!(cost(&json!({"items": {"pattern": id}}), &ids).is_ok());
        let names: Vec<String> = (0..5_000).map(|n| format!("k{n}")).collect();
        let lists: Value = (0..40_000).map(|_| json!("z")).collect();
        assert_eq!(cost(&json!({"items": {"enum": names}}), &lists), Err(SchemaCostError::Steps));
        // Names that the root's own rules apply to.
        assert!(cost(&json!({"propertyNames": {"$ref": "#"}, "maxLength": 9}), &json!({"a": {}})).is_ok());
    }

    #[test]
    fn no_stack_is_used_up() {
        let chain = |length: usize| {
            let step = |n: usize| (n.to_string(), json!({"$ref": format!("#/$defs/{}", n + 1)}));
            let mut steps: Map<String, Value> = (0..length).map(step).collect();
            steps.insert(length.to_string(), json!({"properties": {"next": {"$ref": "#/$defs/0"}}}));
            json!({"$ref": "#/$defs/0", "$defs": steps})
        };
        assert!(cost(&chain(20), &tree(5)).is_ok());
        assert_eq!(cost(&chain(1_500), &tree(120)), Err(SchemaCostError::Depth));
        // The deepest that is permitted can be checked.
        let list = json!({"properties": {"next": {"$ref": "#"}}});
        let deepest = (1..1_000).take_while(|depth| cost(&list, &tree(*depth)).is_ok()).count();
        assert!(deepest > 120, "{deepest}");
        let mut schema = list.clone();
        schema["maxProperties"] = json!(0);
        assert!(!crate::schema::find_misfits(&list, &tree(deepest), 10).unwrap().1);
        assert_eq!(crate::schema::find_misfits(&schema, &tree(deepest), 10).unwrap().0.len(), 10);
    }

    #[test]
    fn parts_are_found_by_pointer_only() {
        for schema in [
            json!({"$dynamicRef": "#node"}),
            json!({"properties": {"a": {"$id": "https://example.com/a"}}}),
            json!({"$ref": "other.json#/a"}),
            json!({"$ref": "#name"}),
        ] {
            assert!(cost(&schema, &json!({"a": 1})).is_err(), "{schema}");
        }
        let own = json!({"$id": "https://example.com/a", "properties": {"$id": {"type": "string"}}});
        assert!(cost(&own, &json!({"$id": "x"})).is_ok());
    }
}
