//! Schemas without the arguments that a model doesn't see.

use serde_json::Value;

/// Removes arguments from `properties`, `default` and `examples`, and optional ones from `required`, also inside `allOf`,
/// `anyOf` and `oneOf`.
pub(super) fn remove_arguments(schema: &mut Value, hidden: &[&str], optional: &[&str]) {
    let Value::Object(map) = schema else { return };
    let remove = |value: &mut Value| {
        if let Value::Object(map) = value {
            map.retain(|name, _| !hidden.contains(&name.as_str()));
        }
    };
    for (key, value) in map.iter_mut() {
        match (key.as_str(), value) {
            ("properties" | "default", value) => remove(value),
            ("required", Value::Array(names)) => {
                names.retain(|name| !name.as_str().is_some_and(|name| optional.contains(&name)));
            }
            ("examples", Value::Array(examples)) => examples.iter_mut().for_each(remove),
            ("allOf" | "anyOf" | "oneOf", Value::Array(parts)) => {
                for part in parts {
                    remove_arguments(part, hidden, optional);
                }
            }
            _ => {}
        }
    }
}
