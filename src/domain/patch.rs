//! Merges and selections of JSON: RFC 7396 merge patches, RFC 6901 pointers, paths without a namespace.

use crate::lattice::value;
use serde::Deserialize;
use serde_json::{Map, Value};

/// Applies `patch` to `target` (RFC 7396): maps are merged key by key, null removes a key, any other value replaces.
pub fn merge(target: &mut Value, patch: Value) {
    let Value::Object(patch) = patch else {
        *target = patch;
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Value::Object(map) = target else { return };
    for (key, change) in patch {
        if change.is_null() {
            map.shift_remove(&key);
        } else {
            merge(map.entry(key).or_insert(Value::Null), change);
        }
    }
}

/// A place inside a value: its keys and indexes.
///
/// A text that begins with `/` is a JSON pointer (`~1` is `/`, `~0` is `~`, empty keys are keys); any other text is
/// keys between slashes (`lines/0/price`); an array is a list of keys. An empty text is the whole value.
#[derive(Debug, Clone, Deserialize)]
#[serde(try_from = "Value")]
pub struct Selector(Vec<String>);

/// Why a value selects no place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SelectorError {
    /// The value has none of the forms.
    #[error("expected a JSON pointer, a path or an array of keys, got `{0}`")]
    Form(Value),
    /// An element of the array is neither a key nor an index.
    #[error("expected keys and indexes, got `{0}`")]
    Key(Value),
    /// A key of a JSON pointer has a wrong escape.
    #[error("illegal JSON pointer key `{0}`: expected `0` or `1` after `~`")]
    Escape(String),
}

impl TryFrom<Value> for Selector {
    type Error = SelectorError;

    fn try_from(selector: Value) -> Result<Self, SelectorError> {
        let keys: Result<Vec<String>, SelectorError> = match selector {
            Value::String(text) if text.is_empty() => Ok(Vec::new()),
            Value::String(text) => match text.strip_prefix('/') {
                Some(pointer) => pointer.split('/').map(unescape_key).collect(),
                None => Ok(text.trim_end_matches('/').split('/').map(str::to_owned).collect()),
            },
            Value::Array(keys) => {
                let key = |key| match key {
                    Value::String(text) => Ok(text),
                    Value::Number(number) => Ok(number.to_string()),
                    other => Err(SelectorError::Key(other)),
                };
                keys.into_iter().map(key).collect()
            }
            other => Err(SelectorError::Form(other)),
        };
        keys.map(Self)
    }
}

impl Selector {
    /// Returns the selected part of a value.
    pub fn select<'v>(&self, value: &'v Value) -> Option<&'v Value> {
        value::get(value, &self.0)
    }
}

fn unescape_key(key: &str) -> Result<String, SelectorError> {
    let mut out = String::with_capacity(key.len());
    let mut parts = key.split('~');
    out.push_str(parts.next().unwrap_or_default());
    for part in parts {
        let (escape, rest) = part.split_at_checked(1).unwrap_or_default();
        out.push(match escape {
            "0" => '~',
            "1" => '/',
            _ => return Err(SelectorError::Escape(key.to_owned())),
        });
        out.push_str(rest);
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// The table of RFC 7396, appendix A.
    #[test]
    fn merge_patches_are_those_of_the_rfc() {
        for (target, patch, expected) in [
            (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "b"}), json!({"b": "c"}), json!({"a": "b", "b": "c"})),
            (json!({"a": "b"}), json!({"a": null}), json!({})),
            (json!({"a": "b", "b": "c"}), json!({"a": null}), json!({"b": "c"})),
            (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "c"}), json!({"a": ["b"]}), json!({"a": ["b"]})),
            (json!({"a": {"b": "c"}}), json!({"a": {"b": "d", "c": null}}), json!({"a": {"b": "d"}})),
            (json!({"a": [{"b": "c"}]}), json!({"a": [1]}), json!({"a": [1]})),
            (json!(["a", "b"]), json!(["c", "d"]), json!(["c", "d"])),
            (json!({"a": "b"}), json!(["c"]), json!(["c"])),
            (json!({"a": "foo"}), json!(null), json!(null)),
            (json!({"a": "foo"}), json!("bar"), json!("bar")),
            (json!({"e": null}), json!({"a": 1}), json!({"e": null, "a": 1})),
            (json!([1, 2]), json!({"a": "b", "c": null}), json!({"a": "b"})),
            (json!({}), json!({"a": {"bb": {"ccc": null}}}), json!({"a": {"bb": {}}})),
        ] {
            let mut value = target.clone();
            merge(&mut value, patch.clone());
            assert_eq!(value, expected, "{target} with {patch}");
        }
    }

    /// The table of RFC 6901, section 5, and the other forms.
    #[test]
    fn a_place_is_a_pointer_a_path_or_keys() {
        let value = json!({
            "foo": ["bar", "baz"], "": 0, "a/b": 1, "c%d": 2, "e^f": 3, "m~n": 8, " ": 7,
            "lines": [{"price": 9}], "none": null
        });
        for (selector, expected) in [
            (json!(""), Some(value.clone())),
            (json!("/foo"), Some(json!(["bar", "baz"]))),
            (json!("/foo/0"), Some(json!("bar"))),
            (json!("/"), Some(json!(0))),
            (json!("/a~1b"), Some(json!(1))),
            (json!("/c%d"), Some(json!(2))),
            (json!("/m~0n"), Some(json!(8))),
            (json!("/ "), Some(json!(7))),
            (json!("lines/0/price"), Some(json!(9))),
            (json!("lines/0/price/"), Some(json!(9))),
            (json!(["lines", 0, "price"]), Some(json!(9))),
            (json!(["a/b"]), Some(json!(1))),
            (json!("none"), Some(json!(null))),
            (json!("foo/00"), None),
            (json!("foo/2"), None),
            (json!("lines/-"), None),
        ] {
            let found = Selector::try_from(selector.clone()).unwrap().select(&value).cloned();
            assert_eq!(found, expected, "{selector}");
        }
        for (selector, part) in [
            (json!("/a~2b"), "after `~`"),
            (json!("/a~"), "after `~`"),
            (json!(7), "got `7`"),
            (json!([{}]), "got `{}`"),
        ] {
            assert!(Selector::try_from(selector.clone()).unwrap_err().to_string().contains(part), "{selector}");
        }
    }
}
