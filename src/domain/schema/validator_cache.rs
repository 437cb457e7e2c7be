//! Caches the schemas that were used last as compiled validators. A reply may call one tool a thousand times, and
//! compiling costs a hundred times as much as a check.

use super::{SchemaError, shorten_error};
use jsonschema::{PatternOptions, Validator};
use serde_json::Value;
use std::cell::RefCell;
use std::rc::Rc;

/// Most validators in the cache of each thread, enough for the tools of one or two turns.
const CACHED_MAX: usize = 16;

/// Most bytes of a cached schema. A larger one is compiled each time, so the cache stays small.
const CACHED_BYTES_MAX: usize = 2 * 1024;

/// Most bytes of the compiled patterns of one schema together; each has an equal share. The library gives as many to
/// each pattern, and a schema has room for thousands.
const PATTERNS_BYTES_MAX: usize = 10 * 1024 * 1024;

thread_local! {
    /// Validators with their schema's text, the last used at the end.
    static LAST: RefCell<Vec<(Vec<u8>, Rc<Validator>)>> = const { RefCell::new(Vec::new()) };
}

/// Returns the validator of `schema`, whose text is `text`.
pub(super) fn validator(schema: &Value, text: Vec<u8>) -> Result<Rc<Validator>, SchemaError> {
    // A pattern of a few letters may take megabytes when compiled.
    if text.len() > CACHED_BYTES_MAX || has_patterns(schema) {
        return compile(schema).map(Rc::new);
    }
    LAST.with_borrow_mut(|last| {
        let entry = match last.iter().position(|(known, _)| *known == text) {
            Some(at) => last.remove(at),
            None => (text, Rc::new(compile(schema)?)),
        };
        let validator = Rc::clone(&entry.1);
        if last.len() == CACHED_MAX {
            last.remove(0);
        }
        last.push(entry);
        Ok(validator)
    })
}

/// Compiles a schema that others may have written: references lead into the schema itself alone. How long a check takes
/// depends on the value, too: see [`super::cost()`].
pub fn compile(schema: &Value) -> Result<Validator, SchemaError> {
    // Patterns run in linear time; a backtracking engine could be made to run for ever.
    let patterns = PatternOptions::regex().size_limit(PATTERNS_BYTES_MAX / count_patterns(schema).max(1));
    let options = jsonschema::options().offline().with_pattern_options(patterns);
    options.build(schema).map_err(|error| SchemaError::NotASchema {
        at: error.instance_path().to_string(),
        reason: shorten_error(&error),
    })
}

/// Whether a schema has patterns; a name or a value may look like one.
pub fn has_patterns(schema: &Value) -> bool {
    count_patterns(schema) > 0
}

/// Returns the number of patterns in a schema, or more: a name or a value may look like one.
fn count_patterns(schema: &Value) -> usize {
    match schema {
        Value::Object(map) => {
            let own = map.iter().map(|(key, inner)| match (key.as_str(), inner) {
                ("pattern", Value::String(_)) => 1,
                ("patternProperties", Value::Object(patterns)) => patterns.len(),
                _ => 0,
            });
            own.sum::<usize>() + map.values().map(count_patterns).sum::<usize>()
        }
        Value::Array(items) => items.iter().map(count_patterns).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::super::find_misfits;
    use super::{CACHED_MAX, LAST, compile};
    use serde_json::{Value, json};

    fn cached_schemas() -> usize {
        LAST.with_borrow(Vec::len)
    }

    #[test]
    fn each_schema_checks_by_its_own_rules_however_many_are_kept() {
        for round in 0..2 {
            for least in 0..CACHED_MAX * 2 {
                let schema = json!({"minimum": least});
                let fits = |value: usize| find_misfits(&schema, &json!(value), 1).unwrap().0.is_empty();
                assert!(fits(least) && (least == 0 || !fits(least - 1)), "{least} in round {round}");
                assert!(cached_schemas() <= CACHED_MAX);
            }
        }
    }

    #[test]
    fn only_small_schemas_without_patterns_are_cached_once() {
        LAST.with_borrow_mut(Vec::clear);
        for _ in 0..3 {
            find_misfits(&json!({"type": "string"}), &json!(1), 1).unwrap();
        }
        assert_eq!(cached_schemas(), 1);
        find_misfits(&json!({"description": "x".repeat(3_000)}), &json!(1), 1).unwrap();
        find_misfits(&json!({"pattern": "x{9}"}), &json!(1), 1).unwrap();
        find_misfits(&json!({"type": "no type"}), &json!(1), 1).unwrap_err();
        assert_eq!(cached_schemas(), 1);
    }

    #[test]
    fn patterns_of_a_schema_share_its_room() {
        let pattern = |n: usize, letters: usize| format!("^.{{{letters}}}{n}$");
        for (count, letters, fits) in [(1, 1_000, true), (20, 3, true), (300, 1_000, false)] {
            let all = |part: fn(String) -> (String, Value)| -> serde_json::Map<String, Value> {
                (0..count).map(|n| part(pattern(n, letters))).collect()
            };
            let values = json!({"properties": all(|pattern| (pattern.clone(), json!({"pattern": pattern})))});
            let names = json!({"patternProperties": all(|pattern| (pattern, json!({})))});
            for schema in [values, names] {
                let compiled = compile(&schema).map(drop);
                assert_eq!(compiled.is_ok(), fits, "{count} of {letters}: {compiled:?}");
            }
        }
    }
}
