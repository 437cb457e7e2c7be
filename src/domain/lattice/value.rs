//! Reads and changes of parts of one JSON value.

use crate::decode;
use serde_json::{Map, Value};

/// Reason why a change is impossible.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChangeError {
    /// The array has no such element.
    #[error("index `{index}` is out of range of an array of {len}")]
    OutOfRange {
        /// Segment that names the element.
        index: String,
        /// Number of elements.
        len: usize,
    },
    /// The place to append to is no array.
    #[error("expected an array to append to, got {found}")]
    NotAnArray {
        /// Name of the type that was found.
        found: &'static str,
    },
    /// The path of a write is too short: it needs a collection and a key.
    #[error("expected at least two segments to write to, got `{path}`")]
    TooShort {
        /// Path of the write.
        path: String,
    },
}

/// Returns the name of a value's JSON type, as `list` and error texts show it.
pub const fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "map",
    }
}

/// Returns the index of an array's element that `segment` names, in its canonical spelling.
pub fn index_of(segment: &str) -> Option<usize> {
    let canonical = segment == "0" || (!segment.starts_with('0') && segment.bytes().all(|b| b.is_ascii_digit()));
    if canonical { segment.parse().ok() } else { None }
}

/// Returns the value under `segments`: of a map by key, of an array by index; `None` in any other value.
pub fn get<'v>(value: &'v Value, segments: &[String]) -> Option<&'v Value> {
    segments.iter().try_fold(value, |value, segment| match value {
        Value::Object(map) => map.get(segment),
        Value::Array(items) => items.get(index_of(segment)?),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    })
}

/// Moves the value under `segments` out, without a copy.
pub fn take(value: Value, segments: &[String]) -> Option<Value> {
    segments.iter().try_fold(value, |value, segment| match value {
        Value::Object(mut map) => map.swap_remove(segment),
        Value::Array(mut items) => {
            let index = index_of(segment).filter(|index| *index < items.len())?;
            Some(items.swap_remove(index))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    })
}

/// Returns the values exactly `depth` steps below a value: 1 = its entries or elements.
pub fn values_at_depth(value: &Value, depth: usize) -> Vec<&Value> {
    let mut level = vec![value];
    for _ in 0..depth {
        level = level
            .into_iter()
            .flat_map(|value| -> Box<dyn Iterator<Item = &Value>> {
                match value {
                    Value::Object(map) => Box::new(map.values()),
                    Value::Array(items) => Box::new(items.iter()),
                    Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Box::new(std::iter::empty()),
                }
            })
            .collect();
    }
    level
}

/// Writes `new` under `segments`, making maps on the way and replacing scalars; siblings stay. Returns whether a value
/// was there before.
pub fn set(value: &mut Value, segments: &[String], new: Value) -> Result<bool, ChangeError> {
    let Some((segment, rest)) = segments.split_first() else {
        *value = new;
        return Ok(true);
    };
    if let Value::Array(items) = value {
        let len = items.len();
        let slot = index_of(segment).and_then(|i| items.get_mut(i));
        let slot = slot.ok_or_else(|| ChangeError::OutOfRange { index: segment.clone(), len })?;
        return set(slot, rest, new);
    }
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    let Value::Object(map) = value else { return Ok(false) };
    if let Some(slot) = map.get_mut(segment) {
        set(slot, rest, new)
    } else {
        let mut fresh = Value::Null;
        set(&mut fresh, rest, new)?;
        map.insert(segment.clone(), fresh);
        Ok(false)
    }
}

/// Removes the value under `segments`; an element of an array becomes null. Returns whether it existed.
pub fn remove(value: &mut Value, segments: &[String]) -> bool {
    let Some((last, parents)) = segments.split_last() else { return false };
    let mut slot = value;
    for segment in parents {
        let next = match slot {
            Value::Object(map) => map.get_mut(segment),
            Value::Array(items) => index_of(segment).and_then(|i| items.get_mut(i)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
        };
        let Some(next) = next else { return false };
        slot = next;
    }
    match slot {
        Value::Object(map) => map.shift_remove(last).is_some(),
        Value::Array(items) => match index_of(last).and_then(|i| items.get_mut(i)) {
            Some(item) => {
                *item = Value::Null;
                true
            }
            None => false,
        },
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// Appends to the array under `segments`, making it when absent; returns the index of the new element.
pub fn append(value: &mut Value, segments: &[String], item: Value) -> Result<usize, ChangeError> {
    match get(value, segments) {
        None => {
            set(value, segments, Value::Array(vec![item]))?;
            Ok(0)
        }
        Some(Value::Array(items)) => {
            let mut items = items.clone();
            items.push(item);
            let index = items.len() - 1;
            set(value, segments, Value::Array(items))?;
            Ok(index)
        }
        Some(other) => Err(ChangeError::NotAnArray { found: type_name(other) }),
    }
}

/// Returns the stored form of a written value: a text that parses as a JSON object or array is parsed, any other value
/// stays.
pub fn normalise(value: Value) -> Value {
    if let Value::String(text) = &value {
        let start = text.trim_start();
        if (start.starts_with('{') || start.starts_with('['))
            && let Ok(parsed) = decode::lenient_json(text.as_bytes())
        {
            return parsed;
        }
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn segments(path: &str) -> Vec<String> {
        path.split('/').filter(|s| !s.is_empty()).map(str::to_owned).collect()
    }

    #[test]
    fn paths_navigate_maps_and_arrays() {
        let value = json!({"a": [1, {"b": null}], "0": "zero"});
        for (path, expected) in [
            ("a/0", Some(json!(1))),
            ("a/1/b", Some(json!(null))),
            ("0", Some(json!("zero"))),
            ("a/01", None),
            ("a/-1", None),
            ("a/2", None),
            ("a/0/x", None),
        ] {
            assert_eq!(get(&value, &segments(path)).cloned(), expected, "{path}");
        }
    }

    #[test]
    fn levels_below_a_value_are_counted() {
        let value = json!({"a": [1, {"x": [2, 3]}], "b": {"c": 4}, "d": 5});
        for (depth, count) in [(1, 3), (2, 3), (3, 1), (4, 2), (5, 0)] {
            assert_eq!(values_at_depth(&value, depth).len(), count, "{depth}");
        }
    }

    #[test]
    fn writes_make_maps_replace_scalars_and_keep_siblings() {
        for (before, path, after) in [
            (json!({}), "a/b", json!({"a": {"b": 9}})),
            (json!({"a": 1, "c": 2}), "a/b", json!({"a": {"b": 9}, "c": 2})),
            (json!({"a": [1, 2]}), "a/1", json!({"a": [1, 9]})),
            (json!("text"), "a", json!({"a": 9})),
        ] {
            let mut value = before.clone();
            set(&mut value, &segments(path), json!(9)).unwrap();
            assert_eq!(value, after, "{before} {path}");
        }
        let mut value = json!([1]);
        assert_eq!(
            set(&mut value, &segments("1"), json!(9)),
            Err(ChangeError::OutOfRange { index: "1".into(), len: 1 })
        );
    }

    #[test]
    fn deleting_is_idempotent_and_nulls_array_elements() {
        let mut value = json!({"a": [1, 2], "b": 1});
        assert!(remove(&mut value, &segments("a/0")));
        assert!(remove(&mut value, &segments("b")));
        assert!(!remove(&mut value, &segments("b")));
        assert_eq!(value, json!({"a": [null, 2]}));
    }

    #[test]
    fn append_makes_the_array_and_refuses_others() {
        let mut value = json!({"s": "x"});
        assert_eq!(append(&mut value, &segments("l"), json!(1)), Ok(0));
        assert_eq!(append(&mut value, &segments("l"), json!(2)), Ok(1));
        assert_eq!(append(&mut value, &segments("s"), json!(1)), Err(ChangeError::NotAnArray { found: "string" }));
        assert_eq!(value, json!({"s": "x", "l": [1, 2]}));
    }

    #[test]
    fn text_that_is_json_is_stored_parsed() {
        for (given, stored) in [
            (json!("{\"a\":1}"), json!({"a": 1})),
            (json!(" [1]"), json!([1])),
            (json!("{broken"), json!("{broken")),
            (json!("12"), json!("12")),
            (json!(null), json!(null)),
        ] {
            assert_eq!(normalise(given.clone()), stored, "{given}");
        }
    }
}
