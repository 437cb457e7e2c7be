//! The nearest right form of a value that somebody wrote by hand, found by trying it.

use super::{Wrong, number, takes, typed};
use crate::visible::{beginning, is_secret_name};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// Values in data of which forms are tried: each try reads all of it again.
const PARTS: usize = 2_000;

/// Bytes of a form that is proposed, as it stands in JSON.
const HINT_BYTES: usize = 200;

/// [`typed`]; of a value of another type than is expected the error proposes the nearest form that fits.
pub fn proposed<T: DeserializeOwned>(value: &Value) -> Result<T, Wrong> {
    typed(value.clone()).map_err(|wrong: Wrong| wrong.proposing::<T>(value))
}

impl Wrong {
    /// The same with the nearest form that fits, where reading `value` as a `T` said it.
    #[must_use]
    pub fn proposing<T: DeserializeOwned>(mut self, value: &Value) -> Self {
        self.fact.hint = hint::<T>(value, &self);
        self
    }
}

fn hint<T: DeserializeOwned>(value: &Value, wrong: &Wrong) -> Option<String> {
    wrong.fact.found.as_ref()?;
    if !takes(value, &mut PARTS.clone()) {
        return None;
    }
    let found = value.pointer(&wrong.pointer).filter(|found| !has_secret(&wrong.pointer, found))?;
    let fits = |form: &Value| {
        let mut whole = value.clone();
        let Some(place) = whole.pointer_mut(&wrong.pointer) else { return false };
        *place = form.clone();
        typed::<T>(whole).err().is_none_or(|other| !other.pointer.starts_with(&wrong.pointer))
    };
    forms(found, &wrong.fact.keys).into_iter().find(fits).map(|form| beginning(form.to_string(), HINT_BYTES))
}

/// A value is one that nobody shows, or has one in it.
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

/// What may have been meant: the same under a key, in a list, or written as another type.
fn forms(found: &Value, keys: &[&str]) -> Vec<Value> {
    let other = match found {
        Value::String(text) => match text.to_lowercase().as_str() {
            "yes" | "on" | "true" => Some(json!(true)),
            "no" | "off" | "false" => Some(json!(false)),
            text => number(text).map(Value::Number),
        },
        Value::Number(_) | Value::Bool(_) => Some(found.to_string().into()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    };
    let list = (!found.is_array()).then(|| json!([found]));
    let keyed = keys.iter().map(|key| json!({*key: found}));
    keyed.chain(other).chain(list).collect()
}
