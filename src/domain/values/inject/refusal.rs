//! Error texts of refused calls, without the values that are filled in.

use super::Injection;
use serde_json::Value;

/// Bytes below which a value may be part of other words: it is replaced only where it stands alone in backticks.
const WORD_BYTES: usize = 4;

impl Injection {
    /// The text of a refusal, in which each filled in value stands as the argument that it fills. `spellings` gives the
    /// other forms in which texts show a value, such as the host of a URL.
    pub fn without_values(&self, text: String, spellings: impl Fn(&str) -> Vec<String>) -> String {
        let mut values: Vec<(&str, &str)> = Vec::new();
        for (argument, value) in &self.values {
            collect_texts(argument, value, &mut values);
        }
        let mut hidden: Vec<(&str, String)> = Vec::new();
        for (argument, value) in values {
            hidden.push((argument, value.to_owned()));
            hidden.extend(spellings(value).into_iter().filter(|text| !text.is_empty()).map(|text| (argument, text)));
        }
        // A value may contain a shorter one.
        hidden.sort_by_key(|(_, value)| std::cmp::Reverse(value.len()));
        hidden.into_iter().fold(text, |text, (argument, value)| {
            if value.len() >= WORD_BYTES {
                text.replace(&value, &value_of(argument))
            } else {
                text.replace(&format!("`{value}`"), &value_of(argument))
            }
        })
    }

    /// What a result shows in the place of a filled in argument; `None`: the model gave it.
    pub fn placeholder(&self, argument: &str) -> Option<String> {
        self.values.contains_key(argument).then(|| value_of(argument))
    }
}

fn value_of(argument: &str) -> String {
    format!("(the value of {argument})")
}

fn collect_texts<'v>(argument: &'v str, value: &'v Value, found: &mut Vec<(&'v str, &'v str)>) {
    match value {
        Value::String(text) if !text.is_empty() => found.push((argument, text)),
        Value::Array(items) => items.iter().for_each(|item| collect_texts(argument, item, found)),
        Value::Object(map) => map.values().for_each(|item| collect_texts(argument, item, found)),
        Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_refusal_names_the_argument_in_the_place_of_its_value() {
        let Value::Object(values) =
            json!({"path": "w/acme-7", "agentId": "bo", "to": ["w/acme"], "n": 7, "url": "HTTP://acme.example/x"})
        else {
            panic!()
        };
        let injection = Injection { values, ..Injection::default() };
        for (text, expected) in [
            ("requires crud/read on w/acme-7/x", "requires crud/read on (the value of path)/x"),
            ("requires crud/read on w/acme", "requires crud/read on (the value of to)"),
            ("no agent `bo`: about to stop", "no agent (the value of agentId): about to stop"),
            ("expected 7 words", "expected 7 words"),
            ("host `acme.example` is unknown", "host `(the value of url)` is unknown"),
        ] {
            let host = |value: &str| value.contains("://").then(|| "acme.example".to_owned()).into_iter().collect();
            assert_eq!(injection.without_values(text.to_owned(), host), expected);
        }
    }
}
