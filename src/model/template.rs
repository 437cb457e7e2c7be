//! Templates such as `{{input.name}}` in a rule's texts and arguments.

use crate::model::facts::RequestFacts;
use crate::model::json5;
use serde_json::Value;

/// Reason why a template has no value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// The template's name is unknown.
    #[error("unknown template `{{{{{0}}}}}`, expected `input`, `tool_result`, `call` or `turn`")]
    Unknown(String),
    /// The braces are not closed.
    #[error("template without `}}}}` in `{0}`")]
    Open(String),
    /// The value is not in this request.
    #[error("template `{{{{{0}}}}}` has no value in this request")]
    Missing(String),
}

/// Fills a text: a string is inserted unchanged, any other value as JSON.
pub fn fill_text(text: &str, facts: &RequestFacts, call: u64) -> Result<String, TemplateError> {
    let mut filled = String::with_capacity(text.len());
    for piece in pieces(text)? {
        match piece {
            TemplatePiece::Plain(plain) => filled.push_str(plain),
            TemplatePiece::Name(name) => match lookup(name, facts, call)? {
                Value::String(text) => filled.push_str(&text),
                other => filled.push_str(&other.to_string()),
            },
        }
    }
    Ok(filled)
}

/// Fills every string inside a value; a string that is a single template becomes its value, with its type.
pub fn fill_value(value: &Value, facts: &RequestFacts, call: u64) -> Result<Value, TemplateError> {
    Ok(match value {
        Value::String(text) => match pieces(text)?.as_slice() {
            [TemplatePiece::Name(name)] => lookup(name, facts, call)?,
            _ => Value::String(fill_text(text, facts, call)?),
        },
        Value::Array(items) => {
            Value::Array(items.iter().map(|item| fill_value(item, facts, call)).collect::<Result<_, _>>()?)
        }
        Value::Object(map) => Value::Object(
            map.iter()
                .map(|(key, item)| Ok((key.clone(), fill_value(item, facts, call)?)))
                .collect::<Result<_, TemplateError>>()?,
        ),
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    })
}

/// Checks that every template of a text has a known name.
pub fn check_text(text: &str) -> Result<(), TemplateError> {
    for piece in pieces(text)? {
        if let TemplatePiece::Name(name) = piece {
            let (root, path) = split(name);
            match (root, path) {
                ("input" | "tool_result", _) | ("call" | "turn", None) => {}
                _ => return Err(TemplateError::Unknown(name.to_owned())),
            }
        }
    }
    Ok(())
}

/// Checks every string inside a value with [`check_text`].
pub fn check_value(value: &Value) -> Result<(), TemplateError> {
    match value {
        Value::String(text) => check_text(text),
        Value::Array(items) => items.iter().try_for_each(check_value),
        Value::Object(map) => map.values().try_for_each(check_value),
        Value::Null | Value::Bool(_) | Value::Number(_) => Ok(()),
    }
}

enum TemplatePiece<'t> {
    Plain(&'t str),
    Name(&'t str),
}

fn pieces(text: &str) -> Result<Vec<TemplatePiece<'_>>, TemplateError> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some((plain, tail)) = rest.split_once("{{") {
        let (name, after) = tail.split_once("}}").ok_or_else(|| TemplateError::Open(text.to_owned()))?;
        if !plain.is_empty() {
            found.push(TemplatePiece::Plain(plain));
        }
        found.push(TemplatePiece::Name(name.trim()));
        rest = after;
    }
    if !rest.is_empty() {
        found.push(TemplatePiece::Plain(rest));
    }
    Ok(found)
}

fn split(name: &str) -> (&str, Option<&str>) {
    name.split_once('.').map_or((name, None), |(root, path)| (root, Some(path)))
}

fn lookup(name: &str, facts: &RequestFacts, call: u64) -> Result<Value, TemplateError> {
    let missing = || TemplateError::Missing(name.to_owned());
    let (root, path) = split(name);
    let whole = match root {
        "input" => facts.input.clone(),
        "tool_result" => {
            let (_, text) = facts.tool.as_ref().ok_or_else(missing)?;
            match path {
                None => Value::String(text.clone()),
                Some(_) => json5::read(text).ok_or_else(missing)?,
            }
        }
        "call" => Value::from(call),
        "turn" => Value::String(facts.turn_name.clone()),
        _ => return Err(TemplateError::Unknown(name.to_owned())),
    };
    path.map_or(Some(&whole), |path| follow(&whole, path)).cloned().ok_or_else(missing)
}

/// Follows a path like `a.0.b` into maps by key and lists by index.
fn follow<'v>(value: &'v Value, path: &str) -> Option<&'v Value> {
    path.split('.').try_fold(value, |value, step| match value {
        Value::Object(map) => map.get(step),
        Value::Array(items) => items.get(step.parse::<usize>().ok()?),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn facts() -> RequestFacts {
        RequestFacts {
            model: "m".into(),
            agent: "clerk".into(),
            turn_name: "o/clerk/s/3".into(),
            turn: 1,
            last_role: "user",
            user_text: String::new(),
            last_text: String::new(),
            tool: Some(("get".into(), "{total: 12.5, lines: [{sku: \"A\"}]}".into())),
            input: json!({"id": 7, "who": {"name": "Ann"}, "tags": ["x", "y"]}),
            prompt: String::new(),
            prompt_tokens: 0,
        }
    }

    #[test]
    fn texts_and_arguments_are_filled() {
        let table = [
            ("plain", json!("plain")),
            ("{{input.id}}", json!(7)),
            ("no {{ input.id }}!", json!("no 7!")),
            ("{{input.who.name}} {{input.tags.1}}", json!("Ann y")),
            ("{{input.who}}", json!({"name": "Ann"})),
            ("is {{input.who}}", json!("is {\"name\":\"Ann\"}")),
            ("{{tool_result.total}}", json!(12.5)),
            ("{{tool_result.lines.0.sku}}", json!("A")),
            ("{{tool_result}}", json!("{total: 12.5, lines: [{sku: \"A\"}]}")),
            ("{{call}}", json!(42)),
            ("t {{turn}}", json!("t o/clerk/s/3")),
        ];
        for (text, expected) in table {
            assert_eq!(check_text(text), Ok(()), "{text}");
            assert_eq!(fill_value(&json!([text]), &facts(), 42), Ok(json!([expected])), "{text}");
        }
    }

    #[test]
    fn placeholders_without_a_value_are_named() {
        let missing = |name: &str| Err(TemplateError::Missing(name.into()));
        assert_eq!(fill_text("{{input.nope}}", &facts(), 1), missing("input.nope"));
        assert_eq!(fill_text("{{input.id.x}}", &facts(), 1), missing("input.id.x"));
        assert_eq!(fill_text("{{tool_result.nope}}", &facts(), 1), missing("tool_result.nope"));
        assert_eq!(check_text("{{inptu}}"), Err(TemplateError::Unknown("inptu".into())));
        assert_eq!(check_text("{{call.x}}"), Err(TemplateError::Unknown("call.x".into())));
        assert_eq!(check_value(&json!({"a": ["{{x"]})), Err(TemplateError::Open("{{x".into())));
    }
}
