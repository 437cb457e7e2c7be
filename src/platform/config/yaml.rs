//! YAML texts: their values, and the positions of keys.

use super::position::FilePosition;
use crate::domain::decode;
use serde::Deserializer;
use serde::de::{Deserialize, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use serde_saphyr::{Options, Spanned};
use std::fmt;

/// Advice of the library about a duplicate key.
const LIBRARY_ADVICE: &str = ", set DuplicateKeyPolicy in Options if acceptable";

/// Reason why a text is no value in YAML.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum YamlError {
    /// The text is not YAML.
    #[error("{reason}")]
    Syntax {
        /// Text of the parser, with line and column.
        reason: String,
    },
    /// A number may have been rounded from one beyond 64 bits.
    #[error("{reason}")]
    RoundedNumber {
        /// Text with the number.
        reason: String,
    },
}

/// Parses YAML 1.2: only `true` and `false` are booleans, so that a country `no` stays a text.
pub fn parse(text: &str) -> Result<Value, YamlError> {
    // Options of the library are of no use to the author of the text.
    let malformed =
        |error: serde_saphyr::Error| YamlError::Syntax { reason: error.to_string().replace(LIBRARY_ADVICE, "") };
    let value = serde_saphyr::from_str_with_options(text, options()).map_err(malformed)?;
    decode::rounded_number(&value).map_or(Ok(value), |reason| Err(YamlError::RoundedNumber { reason }))
}

/// Returns the position of the key or element at the end of these steps; if a step is missing, of the last one found.
pub fn locate(text: &str, steps: &[&str]) -> Option<FilePosition> {
    let root: YamlNode = serde_saphyr::from_str_with_options(text, options()).ok()?;
    let (mut node, mut found) = (&root, None);
    for step in steps {
        let next = match node {
            YamlNode::Map(entries) => {
                let entry = entries.iter().find(|(key, _)| key.value == *step);
                entry.map(|(key, value)| (key.referenced, value))
            }
            YamlNode::List(items) => {
                let item = step.parse().ok().and_then(|at: usize| items.get(at));
                item.map(|item| (item.referenced, &item.value))
            }
            YamlNode::Scalar => None,
        };
        let Some((place, inner)) = next else { break };
        (node, found) = (inner, Some(place));
    }
    let place = found?;
    Some(FilePosition::new(usize::try_from(place.line()).ok()?, usize::try_from(place.column()).ok()?))
}

/// Returns options with errors of one line: the text itself may contain a credential.
fn options() -> Options {
    serde_saphyr::options! { strict_booleans: true, with_snippet: false }
}

/// A value with the positions of its keys and elements, without its content.
enum YamlNode {
    Scalar,
    List(Vec<Spanned<YamlNode>>),
    Map(Vec<(Spanned<String>, YamlNode)>),
}

impl<'de> Deserialize<'de> for YamlNode {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(NodeVisitor)
    }
}

struct NodeVisitor;

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = YamlNode;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any YAML value")
    }

    fn visit_unit<E>(self) -> Result<YamlNode, E> {
        Ok(YamlNode::Scalar)
    }

    fn visit_bool<E>(self, _: bool) -> Result<YamlNode, E> {
        Ok(YamlNode::Scalar)
    }

    fn visit_i64<E>(self, _: i64) -> Result<YamlNode, E> {
        Ok(YamlNode::Scalar)
    }

    fn visit_u64<E>(self, _: u64) -> Result<YamlNode, E> {
        Ok(YamlNode::Scalar)
    }

    fn visit_i128<E>(self, _: i128) -> Result<YamlNode, E> {
        Ok(YamlNode::Scalar)
    }

    fn visit_u128<E>(self, _: u128) -> Result<YamlNode, E> {
        Ok(YamlNode::Scalar)
    }

    fn visit_f64<E>(self, _: f64) -> Result<YamlNode, E> {
        Ok(YamlNode::Scalar)
    }

    fn visit_str<E>(self, _: &str) -> Result<YamlNode, E> {
        Ok(YamlNode::Scalar)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<YamlNode, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(YamlNode::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<YamlNode, A::Error> {
        let mut map = Vec::new();
        while let Some(entry) = entries.next_entry()? {
            map.push(entry);
        }
        Ok(YamlNode::Map(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::position::check_position;

    fn check(text: &str, steps: &[&str], expected: Option<&str>) {
        check_position(locate(text, steps), expected, (text, steps));
    }

    #[test]
    fn a_key_has_a_line_and_a_column() {
        let text = "a: 1\nb:\n  ü: \"x\"\n  cd: yes\nl:\n  - 1\n  - {e: 2}\n  - f: [3]\n    g: ~\n";
        check(text, &["a"], Some("line 1, column 1"));
        check(text, &["b", "cd"], Some("line 4, column 3"));
        check(text, &["l", "1", "e"], Some("line 7, column 6"));
        check(text, &["l", "2", "g"], Some("line 9, column 5"));
        check(text, &["b", "none"], Some("line 2, column 1"));
        check(text, &["none"], None);
        check("a: [", &["a"], None);
    }

    #[test]
    fn an_error_in_an_alias_points_to_its_use() {
        let text = "base: &base\n  wrong: 1\nuse:\n  inner: *base\n";
        check(text, &["use", "inner"], Some("line 4, column 3"));
    }

    #[test]
    fn an_error_is_one_line_with_its_place() {
        for (text, line) in
            [("a: 1\nb: [1,\nc: }\n", "line "), ("a: 1\na: 2\n", "duplicate mapping key: a at line 2, column 1")]
        {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(line) && !error.contains('\n'), "{error}");
        }
        let rounded = parse("a: 123456789012345678901234567890").unwrap_err().to_string();
        assert!(rounded.contains("larger than 64 bits hold"), "{rounded}");
    }
}
