//! Texts and values with `{argument}` in them, which the arguments of a call fill in. `{{` and `}}` stand for braces.

use crate::visible::quote_foreign;
use serde_json::{Map, Value};
use std::collections::BTreeSet;

/// Name that stands for all arguments as one map.
pub const ALL_ARGUMENTS: &str = "*";

/// Rule that a text with arguments breaks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TemplateRule {
    /// A brace has no partner.
    #[error("a brace without its partner; write `{{{{` or `}}}}` for a brace")]
    Unpaired,
    /// The braces hold no name.
    #[error("expected the name of an argument in braces, got `{}`", quote_foreign(.found))]
    Name {
        /// Text between the braces.
        found: String,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum ArgumentPiece {
    Text(String),
    Argument(String),
}

/// A text with arguments in it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TextTemplate(Vec<ArgumentPiece>);

impl TextTemplate {
    /// Parses a text.
    pub fn parse(text: &str) -> Result<Self, TemplateRule> {
        let (mut pieces, mut literal, mut rest) = (Vec::new(), String::new(), text);
        while let Some(at) = rest.find(['{', '}']) {
            literal.push_str(&rest[..at]);
            let (brace, after) = rest[at..].split_at(1);
            if let Some(after) = after.strip_prefix(brace) {
                literal.push_str(brace);
                rest = after;
                continue;
            }
            let (name, after) = after.split_once('}').filter(|_| brace == "{").ok_or(TemplateRule::Unpaired)?;
            if name.trim().is_empty() || name.contains(['{', '\n', '\r']) {
                return Err(TemplateRule::Name { found: name.to_owned() });
            }
            if !literal.is_empty() {
                pieces.push(ArgumentPiece::Text(std::mem::take(&mut literal)));
            }
            pieces.push(ArgumentPiece::Argument(name.to_owned()));
            rest = after;
        }
        literal.push_str(rest);
        if !literal.is_empty() {
            pieces.push(ArgumentPiece::Text(literal));
        }
        Ok(Self(pieces))
    }

    /// Adds the names of its arguments.
    pub fn add_names(&self, names: &mut BTreeSet<String>) {
        names.extend(self.0.iter().filter_map(|piece| match piece {
            ArgumentPiece::Argument(name) => Some(name.clone()),
            ArgumentPiece::Text(_) => None,
        }));
    }

    /// Whether it has an argument.
    pub fn has_arguments(&self) -> bool {
        self.0.iter().any(|piece| matches!(piece, ArgumentPiece::Argument(_)))
    }

    /// Returns the name of the argument if the text is that argument alone.
    pub fn only_argument(&self) -> Option<&str> {
        match self.0.as_slice() {
            [ArgumentPiece::Argument(name)] => Some(name),
            _ => None,
        }
    }

    /// Returns the bytes of the text with arguments of these sizes, before they are encoded.
    pub fn filled_bytes(&self, size_of: &dyn Fn(&str) -> usize) -> usize {
        let bytes = self.0.iter().map(|piece| match piece {
            ArgumentPiece::Text(literal) => literal.len(),
            ArgumentPiece::Argument(name) => size_of(name),
        });
        bytes.sum()
    }

    /// Returns the text with the arguments as `insert` writes them.
    pub fn try_fill<E>(&self, mut insert: impl FnMut(&str) -> Result<String, E>) -> Result<String, E> {
        let mut text = String::new();
        for piece in &self.0 {
            match piece {
                ArgumentPiece::Text(literal) => text.push_str(literal),
                ArgumentPiece::Argument(name) => text.push_str(&insert(name)?),
            }
        }
        Ok(text)
    }

    /// Returns the text with the arguments as plain texts, each after `escape`; an absent one is empty.
    pub fn fill(&self, arguments: &Map<String, Value>, escape: impl Fn(&str) -> String) -> String {
        let mut text = String::new();
        for piece in &self.0 {
            match piece {
                ArgumentPiece::Text(literal) => text.push_str(literal),
                ArgumentPiece::Argument(name) => text.push_str(&escape(&argument_text(arguments, name))),
            }
        }
        text
    }
}

/// Returns an argument as a text.
fn argument_text(arguments: &Map<String, Value>, name: &str) -> String {
    if name == ALL_ARGUMENTS {
        return Value::Object(arguments.clone()).to_string();
    }
    arguments.get(name).map(value_text).unwrap_or_default()
}

/// Returns a value as a text: a text as it is, nothing for null, anything else as JSON.
pub fn value_text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => value.to_string(),
    }
}

/// A value with arguments in its texts. A text that is one argument alone becomes that argument with its type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ValueTemplate {
    /// A text with arguments.
    Text(TextTemplate),
    /// A map; a key whose argument is absent is left out.
    Map(Vec<(String, Self)>),
    /// A list; an element whose argument is absent is left out.
    List(Vec<Self>),
    /// A value without arguments.
    Literal(Value),
}

impl ValueTemplate {
    /// Parses the texts of a value.
    pub fn parse(value: &Value) -> Result<Self, TemplateRule> {
        Ok(match value {
            Value::String(text) => Self::Text(TextTemplate::parse(text)?),
            Value::Array(items) => Self::List(items.iter().map(Self::parse).collect::<Result<_, _>>()?),
            Value::Object(map) => {
                let entry = |(key, inner): (&String, &Value)| Ok::<_, TemplateRule>((key.clone(), Self::parse(inner)?));
                Self::Map(map.iter().map(entry).collect::<Result<_, _>>()?)
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => Self::Literal(value.clone()),
        })
    }

    /// Adds the names of its arguments.
    pub fn add_names(&self, names: &mut BTreeSet<String>) {
        match self {
            Self::Text(text) => text.add_names(names),
            Self::Map(entries) => entries.iter().for_each(|(_, inner)| inner.add_names(names)),
            Self::List(items) => items.iter().for_each(|inner| inner.add_names(names)),
            Self::Literal(_) => {}
        }
    }

    /// Returns the bytes of the value with arguments of these sizes, before they are encoded.
    pub fn filled_bytes(&self, size_of: &dyn Fn(&str) -> usize) -> usize {
        match self {
            Self::Text(text) => text.filled_bytes(size_of),
            Self::Map(entries) => entries.iter().map(|(key, inner)| key.len() + inner.filled_bytes(size_of)).sum(),
            Self::List(items) => items.iter().map(|inner| inner.filled_bytes(size_of)).sum(),
            Self::Literal(value) => value.to_string().len(),
        }
    }

    /// Returns the value with the arguments; `None` if it is an argument that is absent.
    pub fn fill(&self, arguments: &Map<String, Value>) -> Option<Value> {
        Some(match self {
            Self::Text(text) => match text.only_argument() {
                Some(ALL_ARGUMENTS) => Value::Object(arguments.clone()),
                Some(name) => arguments.get(name)?.clone(),
                None => text.fill(arguments, str::to_owned).into(),
            },
            Self::Map(entries) => {
                let filled = entries.iter().filter_map(|(key, inner)| Some((key.clone(), inner.fill(arguments)?)));
                Value::Object(filled.collect())
            }
            Self::List(items) => items.iter().filter_map(|inner| inner.fill(arguments)).collect::<Vec<_>>().into(),
            Self::Literal(value) => value.clone(),
        })
    }
}

/// Escapes a text for XML.
pub fn escape_xml(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&apos;"),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn map(value: Value) -> Map<String, Value> {
        let Value::Object(map) = value else { panic!("expected a map, got {value}") };
        map
    }

    #[test]
    fn braces_hold_names_and_pairs_stand_for_braces() {
        let arguments = map(json!({"id": 7, "a b": "x", "on": true, "none": null, "list": [1]}));
        for (text, expected) in [
            ("plain", "plain"),
            ("{id}", "7"),
            ("<{a b}|{on}|{none}|{absent}|{list}>", "<x|true|||[1]>"),
            ("{{id}} {{{id}}}", "{id} {7}"),
            ("", ""),
        ] {
            let template = TextTemplate::parse(text).unwrap();
            assert_eq!(template.fill(&arguments, str::to_owned), expected, "{text}");
        }
        for (text, rule) in [
            ("{id", TemplateRule::Unpaired),
            ("id}", TemplateRule::Unpaired),
            ("{id}}", TemplateRule::Unpaired),
            ("{}", TemplateRule::Name { found: String::new() }),
            ("{ }", TemplateRule::Name { found: " ".into() }),
            ("{a{b}", TemplateRule::Name { found: "a{b".into() }),
        ] {
            assert_eq!(TextTemplate::parse(text), Err(rule), "{text}");
        }
    }

    #[test]
    fn a_value_keeps_the_types_of_its_arguments() {
        let arguments = map(json!({"n": 7, "items": [{"a": 1}], "text": "x"}));
        for (template, expected) in [
            (json!("{n}"), Some(json!(7))),
            (json!("{absent}"), None),
            (json!("n={n}"), Some(json!("n=7"))),
            (json!("{*}"), Some(Value::Object(arguments.clone()))),
            (
                json!({"order": {"n": "{n}", "gone": "{absent}", "items": "{items}"}, "list": ["{text}", "{absent}", 1, null]}),
                Some(json!({"order": {"n": 7, "items": [{"a": 1}]}, "list": ["x", 1, null]})),
            ),
            (json!({"fixed": true}), Some(json!({"fixed": true}))),
        ] {
            assert_eq!(ValueTemplate::parse(&template).unwrap().fill(&arguments), expected, "{template}");
        }
    }

    #[test]
    fn texts_are_encoded_for_their_place() {
        assert_eq!(escape_xml("<a href=\"x\">&'"), "&lt;a href=&quot;x&quot;&gt;&amp;&apos;");
    }
}
