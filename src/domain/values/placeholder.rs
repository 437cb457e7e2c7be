//! `${key}` and `{{key}}` in texts: one pass, and inserted text is not expanded again.
//!
//! `\${` and `\{{` stand for the characters themselves. Braces without a key (`${}`, `{{#each}}`, `${a b}`) are no
//! placeholder and stay unchanged.

use crate::limits::{PLACEHOLDER_BYTES, PLACEHOLDERS_BYTES};
use crate::render::{RenderOptions, render};
use crate::values::mapping::KEY_BYTES;
use crate::values::resolver::FoundValue;
use crate::values::{Tier, path_of_key};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::ops::Range;

/// A text with its placeholders replaced.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ExpandedText {
    /// Text after the replacement.
    pub text: String,
    /// Keys that had a value, each once, in the order of the text.
    pub used: Vec<UsedKey>,
    /// Keys without a value, each once: nothing is inserted for them.
    pub missed: Vec<String>,
    /// Keys whose values were cut to the limit.
    pub cut: Vec<CutKey>,
    /// Ranges of the inserted values in the text, in bytes.
    #[serde(skip)]
    pub inserted: Vec<Range<usize>>,
}

/// A key that had a value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsedKey {
    /// Key as in its placeholder, with dots.
    pub key: String,
    /// Tier of the value.
    pub tier: Tier,
    /// Bytes of the value; 0 in records that don't hold it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub bytes: usize,
    /// Place in the tier, `a/b`, where the dots of the key don't give it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
}

impl UsedKey {
    /// Returns the path of the value, for a user; `None` if the tier has no path.
    pub fn path(&self, user: &str) -> Option<String> {
        path_of_key(&self.key, self.tier, self.at.as_deref(), user)
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_zero(bytes: &usize) -> bool {
    *bytes == 0
}

/// A key whose value was longer than the limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CutKey {
    /// Key as in its placeholder, with dots.
    pub key: String,
    /// Bytes of the value.
    pub bytes: usize,
    /// Bytes that were inserted.
    pub given: usize,
}

/// Placeholders without a value where the configuration says `strictPlaceholders`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no value for the placeholders {}", .keys.iter().map(MissedKey::to_string).collect::<Vec<_>>().join(", "))]
pub struct UnresolvedPlaceholders {
    /// Keys without a value.
    pub keys: Vec<MissedKey>,
}

/// A key without a value, and the text in which it occurs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissedKey {
    /// Key as in its placeholder, with dots.
    pub key: String,
    /// Part of the configuration, e.g. `context/plan`; empty for a text alone.
    pub place: String,
}

impl fmt::Display for MissedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, place } = self;
        if place.is_empty() { write!(f, "`{key}`") } else { write!(f, "`{key}` in `{place}`") }
    }
}

impl ExpandedText {
    /// Returns itself, or an error if `strict` and a key had no value.
    pub fn check(self, strict: bool) -> Result<Self, UnresolvedPlaceholders> {
        if strict && !self.missed.is_empty() {
            let missed = self.missed.into_iter().map(|key| MissedKey { key, place: String::new() });
            return Err(UnresolvedPlaceholders { keys: missed.collect() });
        }
        Ok(self)
    }
}

/// A piece of a text: plain text or the key of a placeholder.
#[derive(Debug, PartialEq, Eq)]
enum TextPiece<'t> {
    Text(&'t str),
    Key(&'t str),
}

/// Whether a text may have placeholders or escapes of one.
pub fn has_any(text: &str) -> bool {
    text.contains("${") || text.contains("{{")
}

/// Returns the keys of a text's placeholders, in order.
pub fn keys(text: &str) -> Vec<&str> {
    let pieces = pieces(text).into_iter();
    pieces.filter_map(|piece| if let TextPiece::Key(key) = piece { Some(key) } else { None }).collect()
}

/// Returns a text in which nothing is a placeholder: what looks like one stands for itself.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for (at, c) in text.char_indices() {
        let rest = &text[at..];
        if rest.starts_with("${") || placeholder(rest).is_some() {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

/// Replaces the placeholders of a text; each key is looked up once. A value inserts at most [`PLACEHOLDER_BYTES`], all
/// of them together at most [`PLACEHOLDERS_BYTES`].
pub fn expand<'v>(text: &str, lookup: &impl Fn(&str) -> Option<Cow<'v, InsertedText>>) -> ExpandedText {
    let mut out = ExpandedText { text: String::with_capacity(text.len()), ..ExpandedText::default() };
    let mut known: HashMap<&str, Option<(Cow<'v, InsertedText>, bool)>> = HashMap::new();
    let mut left = PLACEHOLDERS_BYTES;
    for piece in pieces(text) {
        let key = match piece {
            TextPiece::Text(text) => {
                out.text.push_str(text);
                continue;
            }
            TextPiece::Key(key) => key,
        };
        let given = known.entry(key).or_insert_with(|| {
            let found = lookup(key);
            match &found {
                Some(given) => {
                    let (tier, bytes, at) = (given.tier, given.text.len(), given.at.clone());
                    out.used.push(UsedKey { key: key.to_owned(), tier, bytes, at });
                }
                None => out.missed.push(key.to_owned()),
            }
            found.map(|given| (given, false))
        });
        let Some((given, reported)) = given else { continue };
        let inserted = head(&given.text, left);
        out.inserted.push(out.text.len()..out.text.len() + inserted.len());
        out.text.push_str(inserted);
        left -= inserted.len();
        if inserted.len() < given.bytes && !std::mem::replace(reported, true) {
            out.cut.push(CutKey { key: key.to_owned(), bytes: given.bytes, given: inserted.len() });
        }
    }
    out
}

/// Text that a value inserts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InsertedText {
    /// Text of at most [`PLACEHOLDER_BYTES`].
    pub text: String,
    /// Bytes of the whole value.
    pub bytes: usize,
    /// Tier of the value.
    pub tier: Tier,
    /// Place in the tier, `a/b`, where the dots of its key don't give it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
}

impl InsertedText {
    /// Makes the text of a value that a key has found.
    pub fn from_found(key: &str, found: &FoundValue) -> Self {
        let place: Vec<_> = found.place.iter().map(|segment| segment.replace('/', "\\/")).collect();
        let place = place.join("/");
        let is_else = found.tier.root("").is_some() && place != key.replace('.', "/");
        Self { at: is_else.then_some(place), ..Self::new(&found.value, found.tier) }
    }

    /// Returns the path of a key's value, for a user; `None` if the tier has no path.
    pub fn path(&self, key: &str, user: &str) -> Option<String> {
        path_of_key(key, self.tier, self.at.as_deref(), user)
    }

    /// Makes the text of a value: text as it is, other values as JSON; a long map or list is summarised.
    pub fn new(value: &Value, tier: Tier) -> Self {
        let mut text = match value {
            Value::String(text) => text.clone(),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => value.to_string(),
        };
        let bytes = text.len();
        if bytes > PLACEHOLDER_BYTES {
            // The beginning of JSON is not JSON, a summary of the whole is.
            if value.is_object() || value.is_array() {
                text = render(value, RenderOptions { budget: PLACEHOLDER_BYTES, pretty: false });
            }
            text.truncate(head(&text, PLACEHOLDER_BYTES).len());
        }
        Self { text, bytes, tier, at: None }
    }
}

/// Returns the longest beginning of `text` within `limit` bytes that splits no character.
fn head(text: &str, limit: usize) -> &str {
    let end = (0..=limit.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    &text[..end]
}

fn pieces(text: &str) -> Vec<TextPiece<'_>> {
    let mut pieces = Vec::new();
    let (mut from, mut at) = (0, 0);
    while let Some(found) = text[at..].find(['$', '{', '\\']) {
        at += found;
        let rest = &text[at..];
        if let Some(escaped) = rest.strip_prefix('\\')
            && (escaped.starts_with("${") || placeholder(escaped).is_some())
        {
            // The backslash is dropped, and both characters of the opening are skipped.
            pieces.push(TextPiece::Text(&text[from..at]));
            from = at + 1;
            at += 3;
        } else if let Some((key, length)) = placeholder(rest) {
            pieces.push(TextPiece::Text(&text[from..at]));
            pieces.push(TextPiece::Key(key));
            at += length;
            from = at;
        } else {
            at += 1;
        }
    }
    pieces.push(TextPiece::Text(&text[from..]));
    pieces.retain(|piece| *piece != TextPiece::Text(""));
    pieces
}

/// Returns the key of the placeholder that `text` begins with, and the placeholder's length.
fn placeholder(text: &str) -> Option<(&str, usize)> {
    let (open, close) = if text.starts_with("${") {
        ("${", "}")
    } else if text.starts_with("{{") {
        ("{{", "}}")
    } else {
        return None;
    };
    // The search ends where no key can reach, so that a text of many openings is read once.
    let inner = head(&text[open.len()..], KEY_BYTES + 8);
    let end = inner.find(close)?;
    let key = inner[..end].trim_matches(' ');
    is_key(key).then(|| (key, open.len() + end + close.len()))
}

fn is_key(key: &str) -> bool {
    key.len() <= KEY_BYTES
        && key.starts_with(|c: char| c.is_alphanumeric() || c == '_')
        && key.chars().all(|c| c.is_alphanumeric() || "_.-".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn lookup(key: &str) -> Option<Cow<'static, InsertedText>> {
        value(key).map(|(value, tier)| Cow::Owned(InsertedText::new(&value, tier)))
    }

    fn value(key: &str) -> Option<(Value, Tier)> {
        match key {
            "name" => Some((json!("Ada"), Tier::User)),
            "user.name" => Some((json!("Ada L."), Tier::User)),
            "sly" => Some((json!("${name} {{name}}"), Tier::Session)),
            "object" => Some((json!({"a": [1, "x"]}), Tier::Project)),
            "n" => Some((json!(1.5), Tier::Agent)),
            "empty" => Some((json!(""), Tier::Fallback)),
            "long" => Some((json!("ä".repeat(PLACEHOLDER_BYTES)), Tier::Session)),
            "large" => {
                Some((json!({"items": (0..50_000).map(|n| json!({"n": n})).collect::<Vec<_>>()}), Tier::Project))
            }
            _ => None,
        }
    }

    fn check(text: &str, expected: &str) {
        assert_eq!(expand(text, &lookup).text, expected, "{text}");
    }

    #[test]
    fn both_forms_are_replaced() {
        check("Hi ${name}, {{name}}!", "Hi Ada, Ada!");
        check("${ name }{{ user.name }}", "AdaAda L.");
        check("${n} ${empty}|", "1.5 |");
    }

    #[test]
    fn objects_are_inserted_as_json() {
        check("${object}", r#"{"a":[1,"x"]}"#);
    }

    #[test]
    fn inserted_text_is_not_expanded_again() {
        check("${sly}", "${name} {{name}}");
        check("$${name}", "$Ada");
        check("{{{name}}}", "{Ada}");
    }

    #[test]
    fn an_escaped_text_stands_for_itself() {
        for text in ["${name} {{name}} {{ user.name }}", "{\"a\": {\"b\": 1}}", "$ {{}} ${", "{{{name}}}"] {
            check(&escape(text), text);
        }
    }

    #[test]
    fn escaped_openings_are_literal() {
        check(r"\${name}", "${name}");
        check(r"\{{name}} \x \\", r"{{name}} \x \\");
        check(r"\${", "${");
        check(r"\${name} ${name}", "${name} Ada");
    }

    #[test]
    fn text_without_a_key_is_unchanged() {
        for text in [
            "${}",
            "${ }",
            "{{}}",
            "{{#each x}}",
            "${a b}",
            "${name",
            "{{name}",
            "$name",
            "{name}",
            "$",
            "{",
            "\\",
            "${\n}",
        ] {
            check(text, text);
        }
        assert!(expand("${}", &lookup).missed.is_empty());
        let long = format!("${{{}}}", "k".repeat(KEY_BYTES + 1));
        check(&long, &long);
    }

    #[test]
    fn a_miss_is_empty_and_reported_once() {
        let expanded = expand("a${no}b{{no}}c${none}${name}${name}", &lookup);
        assert_eq!(expanded.text, "abcAdaAda");
        assert_eq!(expanded.missed, ["no", "none"]);
        assert_eq!(expanded.used, [UsedKey { key: "name".into(), tier: Tier::User, bytes: 3, at: None }]);
    }

    #[test]
    fn strict_placeholders_turn_a_miss_into_an_error() {
        let expanded = || expand("${no} ${none}", &lookup);
        assert!(expanded().check(false).is_ok());
        assert_eq!(expanded().check(true).unwrap_err().to_string(), "no value for the placeholders `no`, `none`");
        assert!(expand("${name}", &lookup).check(true).is_ok());
    }

    #[test]
    fn a_huge_value_is_cut_and_reported() {
        let expanded = expand("<${long}>", &lookup);
        assert_eq!(expanded.text.len(), PLACEHOLDER_BYTES + 2);
        let cut = CutKey { key: "long".into(), bytes: 2 * PLACEHOLDER_BYTES, given: PLACEHOLDER_BYTES };
        assert_eq!(expanded.cut, [cut]);
        let expanded = expand("${large}", &lookup);
        assert!(expanded.text.len() <= PLACEHOLDER_BYTES && expanded.text.ends_with('}'), "{}", expanded.text.len());
        assert_eq!(expanded.cut.len(), 1);
    }

    #[test]
    fn many_placeholders_together_stay_within_the_limit() {
        let expanded = expand(&"${long}".repeat(1_000), &lookup);
        assert!(expanded.text.len() <= PLACEHOLDERS_BYTES, "{}", expanded.text.len());
        assert_eq!((expanded.used.len(), expanded.cut.len()), (1, 1));
    }

    #[test]
    fn the_keys_of_a_text_can_be_listed() {
        assert_eq!(keys(r"${a} {{b.c}} \${d} ${}"), ["a", "b.c"]);
        assert!(has_any("x ${a}") && has_any("{{b}}") && !has_any("$5 {a}"));
    }
}
