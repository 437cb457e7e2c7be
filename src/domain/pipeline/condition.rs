//! Conditions of `when`, `until` and `{{#if}}`: paths of the State that are compared with each other or with literals.
//!
//! ```text
//! condition  = all { "||" all }
//! all        = comparison { "&&" comparison }
//! comparison = operand [ ("==" | "!=" | ">=" | "<=" | ">" | "<") operand ]
//! operand    = "{{" path "}}" | quoted text | true | false | null | number | bare text
//! ```

use super::path::{StatePath, get};
use crate::visible::quote_foreign;
use serde_json::{Map, Value};

/// Comparisons of one condition at most.
const COMPARISONS: usize = 64;

/// Operators, the longer ones first: `>=` is not `>`.
const OPERATORS: [(&str, Operator); 6] = [
    ("==", Operator::Equal),
    ("!=", Operator::Different),
    (">=", Operator::AtLeast),
    ("<=", Operator::AtMost),
    (">", Operator::Above),
    ("<", Operator::Below),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operator {
    Equal,
    Different,
    AtLeast,
    AtMost,
    Above,
    Below,
}

#[derive(Debug, Clone, PartialEq)]
enum Operand {
    Path(StatePath),
    Literal(Value),
}

#[derive(Debug, Clone, PartialEq)]
struct Comparison {
    left: Operand,
    right: Option<(Operator, Operand)>,
}

/// A condition that was parsed: one of the lists holds if all of its comparisons do.
#[derive(Debug, Clone, PartialEq)]
pub struct Condition(Vec<Vec<Comparison>>);

/// Why a text is no condition.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConditionError {
    /// Nothing stands on a side of an operator, or in the whole text.
    #[error("expected `{{{{path}}}}` or a literal on each side, got `{}`", quote_foreign(.0))]
    Empty(String),
    /// The text between braces is no path.
    #[error("`{}` is no path: expected names with dots between them", quote_foreign(.0))]
    Path(String),
    /// Braces stand beside something else.
    #[error("`{}`: expected a `{{{{path}}}}` alone on its side; there are comparisons and no other expressions", quote_foreign(.0))]
    Mixed(String),
    /// A literal alone never changes.
    #[error("`{}` names nothing of the State: expected a `{{{{path}}}}`", quote_foreign(.0))]
    Constant(String),
    /// There are too many comparisons.
    #[error("expected at most {COMPARISONS} comparisons")]
    TooLong,
}

impl Condition {
    /// Parses the condition of `when` or `until`.
    pub fn parse(text: &str) -> Result<Self, ConditionError> {
        Self::parse_with(text, parse_operand)
    }

    /// Parses the condition of a block `{{#if …}}`, whose left side is a path without braces.
    pub fn parse_block(text: &str) -> Result<Self, ConditionError> {
        let bare_path = |text: &str| match StatePath::parse(text) {
            Some(path) => Ok(Operand::Path(path)),
            None => Err(ConditionError::Path(text.to_owned())),
        };
        Self::parse_with(text, bare_path)
    }

    fn parse_with(text: &str, left: impl Fn(&str) -> Result<Operand, ConditionError>) -> Result<Self, ConditionError> {
        let mut any = Vec::new();
        let mut count = 0;
        for part in split_outside(text, "||") {
            let mut all = Vec::new();
            for part in split_outside(part, "&&") {
                count += 1;
                if count > COMPARISONS {
                    return Err(ConditionError::TooLong);
                }
                all.push(parse_comparison(part.trim(), &left)?);
            }
            any.push(all);
        }
        Ok(Self(any))
    }

    /// Whether the condition holds for these values. A path without a value is null.
    pub fn is_met(&self, values: &Map<String, Value>) -> bool {
        self.0.iter().any(|all| all.iter().all(|comparison| comparison.is_met(values)))
    }

    /// Iterates over the paths that it reads.
    pub fn paths(&self) -> impl Iterator<Item = &StatePath> {
        self.0.iter().flatten().flat_map(Comparison::operands).filter_map(|operand| match operand {
            Operand::Path(path) => Some(path),
            Operand::Literal(_) => None,
        })
    }
}

impl Comparison {
    fn operands(&self) -> impl Iterator<Item = &Operand> {
        std::iter::once(&self.left).chain(self.right.as_ref().map(|(_, right)| right))
    }

    fn is_met(&self, values: &Map<String, Value>) -> bool {
        let left = self.left.value(values);
        let Some((operator, right)) = &self.right else { return is_truthy(left) };
        let right = right.value(values);
        let numbers = || Some((to_number(left)?, to_number(right)?));
        match operator {
            Operator::Equal => is_equal(left, right),
            Operator::Different => !is_equal(left, right),
            Operator::AtLeast => numbers().is_some_and(|(left, right)| left >= right),
            Operator::AtMost => numbers().is_some_and(|(left, right)| left <= right),
            Operator::Above => numbers().is_some_and(|(left, right)| left > right),
            Operator::Below => numbers().is_some_and(|(left, right)| left < right),
        }
    }
}

impl Operand {
    fn value<'v>(&'v self, values: &'v Map<String, Value>) -> &'v Value {
        match self {
            Self::Path(path) => get(values, path).unwrap_or(&Value::Null),
            Self::Literal(value) => value,
        }
    }
}

/// Whether a value counts as true: anything but null, false, 0 and an empty text.
fn is_truthy(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(flag) => *flag,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(_) | Value::Object(_) => true,
    }
}

/// Whether two values are the same, of the same type; `1` and `1.0` are.
fn is_equal(left: &Value, right: &Value) -> bool {
    match (left.as_f64(), right.as_f64()) {
        (Some(left), Some(right)) => left.total_cmp(&right).is_eq(),
        _ => left == right,
    }
}

fn to_number(value: &Value) -> Option<f64> {
    match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.trim().parse().ok(),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

fn parse_comparison(
    text: &str,
    left: impl Fn(&str) -> Result<Operand, ConditionError>,
) -> Result<Comparison, ConditionError> {
    let Some((at, operator, length)) = find_operator(text) else {
        return match left(non_empty(text, text)?)? {
            Operand::Literal(Value::Bool(flag)) => Ok(Comparison { left: Operand::Literal(flag.into()), right: None }),
            Operand::Literal(_) => Err(ConditionError::Constant(text.to_owned())),
            path @ Operand::Path(_) => Ok(Comparison { left: path, right: None }),
        };
    };
    let (before, after) = (text[..at].trim(), text[at + length..].trim());
    let left = left(non_empty(before, text)?)?;
    let right = parse_operand(non_empty(after, text)?)?;
    Ok(Comparison { left, right: Some((operator, right)) })
}

fn non_empty<'t>(side: &'t str, whole: &str) -> Result<&'t str, ConditionError> {
    if side.is_empty() { Err(ConditionError::Empty(whole.to_owned())) } else { Ok(side) }
}

fn parse_operand(text: &str) -> Result<Operand, ConditionError> {
    if let Some(inner) = text.strip_prefix("{{").and_then(|rest| rest.strip_suffix("}}")) {
        if inner.contains(['{', '}']) {
            return Err(ConditionError::Mixed(text.to_owned()));
        }
        let path = StatePath::parse(inner).ok_or_else(|| ConditionError::Path(inner.trim().to_owned()))?;
        return Ok(Operand::Path(path));
    }
    for quote in ['"', '\''] {
        let inner = text.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote));
        if let Some(inner) = inner.filter(|inner| !inner.contains(quote)) {
            return Ok(Operand::Literal(inner.into()));
        }
    }
    if text.contains("{{") || text.contains("}}") {
        return Err(ConditionError::Mixed(text.to_owned()));
    }
    let literal = match text {
        "true" => Value::Bool(true),
        "false" => Value::Bool(false),
        "null" => Value::Null,
        text => parse_number(text).unwrap_or_else(|| text.into()),
    };
    Ok(Operand::Literal(literal))
}

/// Returns the number that a text writes; `None` if it is none.
pub(super) fn parse_number(text: &str) -> Option<Value> {
    if let Ok(whole) = text.parse::<i64>() {
        return Some(whole.into());
    }
    let number = text.parse::<f64>().ok().and_then(serde_json::Number::from_f64)?;
    Some(Value::Number(number))
}

/// Returns the place, the kind and the length of the first operator outside of braces and quotes.
fn find_operator(text: &str) -> Option<(usize, Operator, usize)> {
    plain_places(text).find_map(|at| {
        let rest = &text[at..];
        let found = OPERATORS.iter().find(|(sign, _)| rest.starts_with(sign));
        found.map(|(sign, operator)| (at, *operator, sign.len()))
    })
}

fn split_outside<'t>(text: &'t str, sign: &str) -> Vec<&'t str> {
    let mut parts = Vec::new();
    let mut from = 0;
    for at in plain_places(text) {
        if at >= from && text[at..].starts_with(sign) {
            parts.push(&text[from..at]);
            from = at + sign.len();
        }
    }
    parts.push(&text[from..]);
    parts
}

/// Iterates over the places of the characters outside of braces and quotes. A quote that is never closed is a character.
fn plain_places(text: &str) -> impl Iterator<Item = usize> {
    let mut until = 0;
    text.char_indices().filter_map(move |(at, c)| {
        if at < until {
            return None;
        }
        let rest = &text[at..];
        if rest.starts_with("{{") {
            until = rest.find("}}").map_or(text.len(), |end| at + end + 2);
            return None;
        }
        if matches!(c, '"' | '\'')
            && let Some(end) = rest[1..].find(c)
        {
            until = at + end + 2;
            return None;
        }
        Some(at)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn values() -> Map<String, Value> {
        let values = json!({
            "language": "en", "city": "new york", "score": 0.8, "count": "12", "done": true, "zero": 0, "empty": "",
            "none": null, "list": [], "editor": {"approved": true, "marks": [3, 5]}, "one": 1, "sign": "a && b"
        });
        values.as_object().unwrap().clone()
    }

    #[test]
    fn conditions_compare_paths_and_literals() {
        for (text, expected) in [
            ("{{language}}", true),
            ("{{empty}}", false),
            ("{{zero}}", false),
            ("{{none}}", false),
            ("{{missing.deep}}", false),
            ("{{list}}", true),
            ("{{language}} == en", true),
            ("{{language}} != en", false),
            ("{{language}}=='en'", true),
            ("{{ language }} == \"de\"", false),
            ("{{city}} == new york", true),
            ("{{editor.approved}} == true", true),
            ("{{editor.approved}} == \"true\"", false),
            ("{{editor.marks.1}} == 5", true),
            ("{{missing}} == null", true),
            ("{{missing}} != null", false),
            ("{{one}} == 1.0", true),
            ("{{score}} >= 0.8", true),
            ("{{score}} > 0.8", false),
            ("{{count}} < 13", true),
            ("{{count}} <= 11", false),
            ("{{none}} < 5", false),
            ("{{language}} > 5", false),
            ("{{score}} < {{count}}", true),
            ("{{done}} == true && {{score}} >= 0.8", true),
            ("{{done}} == false && {{score}} >= 0.8 || {{language}} == en", true),
            ("{{done}} == false || {{zero}}", false),
            ("{{sign}} == \"a && b\"", true),
            ("{{sign}} == 'x || y' || {{done}}", true),
            ("true", true),
            ("false", false),
        ] {
            assert_eq!(Condition::parse(text).unwrap().is_met(&values()), expected, "{text}");
        }
    }

    #[test]
    fn a_block_compares_a_bare_path() {
        for (text, expected) in [
            ("language", true),
            ("empty", false),
            ("language == en", true),
            ("language != en", false),
            ("editor.approved == true", true),
        ] {
            assert_eq!(Condition::parse_block(text).unwrap().is_met(&values()), expected, "{text}");
        }
        assert!(Condition::parse_block("a b").is_err());
    }

    #[test]
    fn what_is_no_comparison_is_refused() {
        for (text, expected) in [
            ("", "on each side"),
            ("{{a}} ==", "on each side"),
            ("== 1", "on each side"),
            ("{{a}} && ", "on each side"),
            ("{{a b}} == 1", "`a b` is no path"),
            ("{{a}} + 1 == 2", "comparisons and no other expressions"),
            ("{{a}}{{b}}", "comparisons and no other expressions"),
            ("language", "names nothing of the State"),
            ("{{ __proto__[0] }}", "is no path"),
        ] {
            let error = Condition::parse(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
        assert_eq!(Condition::parse(&"{{a}} && ".repeat(100)), Err(ConditionError::TooLong));
    }

    #[test]
    fn the_paths_of_a_condition_are_known() {
        let condition = Condition::parse("{{a.b}} == 1 || {{c}} > {{d}}").unwrap();
        let heads: Vec<_> = condition.paths().map(StatePath::head).collect();
        assert_eq!(heads, ["a", "c", "d"]);
    }
}
