//! Proposes the nearest right form of a value that was written by hand, by trying forms.

use super::{DataError, into_type, number::parse_number, subtract_parts};
use crate::visible::{beginning, is_secret_name};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// Most values of data for which forms are tried, because each try reads all of it again.
const PARTS: usize = 2_000;

/// Most bytes of a proposed form in JSON.
const HINT_BYTES: usize = 200;

/// Reads a typed value by [`into_type`]; for a value of the wrong type the error proposes the nearest form that fits.
pub fn typed_with_hint<T: DeserializeOwned>(value: &Value) -> Result<T, DataError> {
    into_type(value.clone()).map_err(|wrong: DataError| wrong.with_hint::<T>(value))
}

impl DataError {
    /// Adds the nearest form that fits to the error of reading `value` as a `T`.
    #[must_use]
    pub fn with_hint<T: DeserializeOwned>(mut self, value: &Value) -> Self {
        self.fact.hint = find_hint::<T>(value, &self);
        self
    }
}

fn find_hint<T: DeserializeOwned>(value: &Value, wrong: &DataError) -> Option<String> {
    wrong.fact.found.as_ref()?;
    if !subtract_parts(value, &mut PARTS.clone()) {
        return None;
    }
    let found = value.pointer(&wrong.pointer).filter(|found| !has_secret(&wrong.pointer, found))?;
    let fits = |form: &Value| {
        let mut whole = value.clone();
        let Some(place) = whole.pointer_mut(&wrong.pointer) else { return false };
        *place = form.clone();
        into_type::<T>(whole).err().is_none_or(|other| !other.pointer.starts_with(&wrong.pointer))
    };
    candidate_forms(found, &wrong.fact.keys).into_iter().find(fits).map(|form| beginning(form.to_string(), HINT_BYTES))
}

/// Whether a value is or contains a secret.
fn has_secret(pointer: &str, value: &Value) -> bool {
    if pointer.split('/').any(is_secret_name) {
        return true;
    }
    match value {
        Value::Object(map) => map.iter().any(|(key, inner)| has_secret(key, inner)),
        Value::Array(items) => items.iter().any(|inner| has_secret("", inner)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// Returns the forms that may be right: the value under a key, in a list, or as another type.
fn candidate_forms(found: &Value, keys: &[&str]) -> Vec<Value> {
    let other = match found {
        Value::String(text) => match text.to_lowercase().as_str() {
            "yes" | "on" | "true" => Some(json!(true)),
            "no" | "off" | "false" => Some(json!(false)),
            text => parse_number(text).map(Value::Number),
        },
        Value::Number(_) | Value::Bool(_) => Some(found.to_string().into()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    };
    let list = (!found.is_array()).then(|| json!([found]));
    let keyed = keys.iter().map(|key| json!({*key: found}));
    keyed.chain(other).chain(list).collect()
}
