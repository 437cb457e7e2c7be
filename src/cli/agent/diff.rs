//! Differences of two configurations, key by key.

use serde::Serialize;
use serde_json::Value;

/// A changed key: its dotted path, and its values before and after; `null` if absent.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct KeyChange {
    #[serde(rename = "key")]
    path: String,
    before: Value,
    after: Value,
}

impl KeyChange {
    /// Formats the change as one line.
    pub(crate) fn line(&self) -> String {
        let shown = |value: &Value| if value.is_null() { "(none)".to_owned() } else { value.to_string() };
        format!("  {}: {} -> {}", self.path, shown(&self.before), shown(&self.after))
    }
}

/// Returns every key that differs; maps are compared key by key, lists as a whole.
pub(crate) fn diff(before: &Value, after: &Value) -> Vec<KeyChange> {
    let mut changes = Vec::new();
    compare("", before, after, &mut changes);
    changes
}

fn compare(path: &str, before: &Value, after: &Value, changes: &mut Vec<KeyChange>) {
    let (Value::Object(old), Value::Object(new)) = (before, after) else {
        if before != after {
            changes.push(KeyChange { path: path.to_owned(), before: before.clone(), after: after.clone() });
        }
        return;
    };
    let keys = old.keys().chain(new.keys().filter(|key| !old.contains_key(*key)));
    for key in keys {
        let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        let of = |map: &serde_json::Map<String, Value>| map.get(key).cloned().unwrap_or_default();
        compare(&path, &of(old), &of(new), changes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn keys_that_differ_are_named_with_their_path() {
        let before = json!({"a": 1, "m": {"x": 1, "y": [1]}, "gone": true});
        for (after, expected) in [
            (before.clone(), vec![]),
            (
                json!({"a": 2, "m": {"x": 1, "y": [1, 2]}, "new": "t"}),
                vec!["  a: 1 -> 2", "  m.y: [1] -> [1,2]", "  gone: true -> (none)", "  new: (none) -> \"t\""],
            ),
            (json!({"a": 1, "m": 3, "gone": true}), vec![r#"  m: {"x":1,"y":[1]} -> 3"#]),
        ] {
            let lines: Vec<_> = diff(&before, &after).iter().map(KeyChange::line).collect();
            assert_eq!(lines, expected, "{after}");
        }
    }
}
