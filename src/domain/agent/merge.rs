//! Patches of maps: the keys of a patch replace those of the map, `null` removes a key.

use serde_json::{Map, Value};

/// Merges the first level of keys.
pub fn shallow(into: &mut Value, patch: &Map<String, Value>) {
    merge(into, patch, false);
}

/// Merges maps within maps, too; lists are replaced as values.
pub fn deep(into: &mut Value, patch: &Map<String, Value>) {
    merge(into, patch, true);
}

fn merge(into: &mut Value, patch: &Map<String, Value>, deep: bool) {
    let Value::Object(map) = into else { return };
    for (key, value) in patch {
        match (map.get_mut(key), value) {
            (_, Value::Null) => {
                map.shift_remove(key);
            }
            (Some(inner @ Value::Object(_)), Value::Object(patch)) if deep => merge(inner, patch, true),
            (_, value) => {
                map.insert(key.clone(), value.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_patch_replaces_and_null_removes() {
        let was = json!({"a": 1, "model": {"name": "x", "temperature": 1}, "tools": ["t"]});
        for (is_deep, patch, expected) in [
            (false, json!({"a": 2}), json!({"a": 2, "model": {"name": "x", "temperature": 1}, "tools": ["t"]})),
            (false, json!({"a": null, "tools": null}), json!({"model": {"name": "x", "temperature": 1}})),
            (false, json!({"model": {"name": "y"}}), json!({"a": 1, "model": {"name": "y"}, "tools": ["t"]})),
            (
                true,
                json!({"model": {"name": "y", "temperature": null}, "tools": []}),
                json!({"a": 1, "model": {"name": "y"}, "tools": []}),
            ),
            (true, json!({}), was.clone()),
        ] {
            let mut got = was.clone();
            let patch_map = patch.as_object().unwrap();
            if is_deep {
                deep(&mut got, patch_map);
            } else {
                shallow(&mut got, patch_map);
            }
            assert_eq!(got, expected, "{patch}");
        }
    }
}
