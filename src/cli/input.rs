//! Values on the command line: text, JSON, `@file` and `-` for stdin.

use super::exit::Failure;
use crate::config::files::{read_text_file, without_mark};
use crate::domain::authority::grant::{self, GrantError};
use crate::domain::decode::{self, DataError};
use clap::builder::RangedU64ValueParser;
use serde_json::Value;
use std::io::Read;
use std::path::Path;
use std::time::Duration;

/// Longest input in bytes; the server has lower limits, with better errors.
const INPUT_BYTES_MAX: u64 = 64 << 20;

/// Returns the text of an argument: itself, that of the file after `@`, or stdin for `-`.
pub(crate) fn text(argument: &str) -> Result<String, Failure> {
    if argument == "-" {
        return read("stdin", std::io::stdin().lock());
    }
    match argument.strip_prefix('@') {
        Some(path) => file(Path::new(path)),
        None => Ok(argument.to_owned()),
    }
}

/// Returns the parser of how many entries of a list are shown: one at least.
pub(crate) fn list_limit() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..)
}

/// Reason why a text is refused as a duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected a duration as `30s`, `2m` or `1h 30m`")]
pub(crate) struct DurationArgumentError;

/// Parses a duration with its units. The library's own errors name bytes of the text.
pub(crate) fn duration(text: &str) -> Result<Duration, DurationArgumentError> {
    humantime::parse_duration(text).map_err(|_| DurationArgumentError)
}

/// Reads the text of a file.
pub(crate) fn file(path: &Path) -> Result<String, Failure> {
    let name = format!("file `{}`", path.display());
    read_text_file(path, INPUT_BYTES_MAX).map_err(|e| Failure::usage(format!("{name} can't be read: {e}")))
}

fn read(name: &str, from: impl Read) -> Result<String, Failure> {
    let mut text = String::new();
    from.take(INPUT_BYTES_MAX + 1)
        .read_to_string(&mut text)
        .map_err(|e| Failure::usage(format!("{name} can't be read: {e}")))?;
    if text.len() as u64 > INPUT_BYTES_MAX {
        return Err(Failure::usage(format!("{name} is too long, expected at most {INPUT_BYTES_MAX} bytes")));
    }
    Ok(without_mark(text))
}

/// Advice of an error about malformed JSON, for a command that has the flag `--text`.
const TEXT_FLAG: &str = "; `--text` sends it as text";
/// The same for a command without this flag that takes texts.
const TEXT_QUOTES: &str = "; in quotes (`'\"…\"'`) it is a text";

/// Returns the value of an argument of a command that has the flag `--text`: JSON if it looks like JSON, else text; with
/// `as_text` always text.
pub(crate) fn value(argument: &str, as_text: bool) -> Result<Value, Failure> {
    if as_text { text(argument).map(Value::String) } else { parse(argument, TEXT_FLAG) }
}

/// Returns the value of an argument of a command without `--text`: JSON if it looks like JSON, else text.
pub(crate) fn json_or_text(argument: &str) -> Result<Value, Failure> {
    parse(argument, TEXT_QUOTES)
}

/// Returns the value of an argument that must be a map or a list, which its reader checks: read as by [`json_or_text`],
/// without the advice to make a text of it.
pub(crate) fn map_or_list(argument: &str) -> Result<Value, Failure> {
    parse(argument, "")
}

/// Reads the text of an argument, and parses it as [`interpret`] does; its error names where the text comes from.
fn parse(argument: &str, advice: &str) -> Result<Value, Failure> {
    let text = text(argument)?;
    let source = match argument {
        "-" => "stdin".to_owned(),
        _ => argument.strip_prefix('@').map_or("the argument".to_owned(), |path| format!("file `{path}`")),
    };
    interpret(&text, &source, advice)
}

/// Parses a text as JSON. A text that begins like an object, an array or a string must be JSON, so that a typing error
/// is not sent as text; its error ends with `advice`. Numbers, `true`, `false` and `null` are JSON, everything else is
/// text.
fn interpret(text: &str, source: &str, advice: &str) -> Result<Value, Failure> {
    match decode::json(text.as_bytes()) {
        Ok(value) => Ok(value),
        Err(error) if text.trim_start().starts_with(['{', '[', '"']) => {
            Err(Failure::usage(format!("malformed JSON in {source}: {error}{advice}")))
        }
        Err(error) if is_whole_number(text) => {
            Err(Failure::usage(format!("malformed JSON in {source}: {error}{TEXT_QUOTES}")))
        }
        // The newline that ends a file or `echo` is no part of the text.
        Err(_) => Ok(Value::String(text.strip_suffix('\n').unwrap_or(text).to_owned())),
    }
}

/// Whether a text is a whole number as JSON writes it, of any size.
fn is_whole_number(text: &str) -> bool {
    let text = text.trim();
    let digits = text.strip_prefix('-').unwrap_or(text);
    !digits.is_empty()
        && digits.bytes().all(|byte| byte.is_ascii_digit())
        && (digits == "0" || !digits.starts_with('0'))
}

/// Reason why an argument `KEY=VALUE` is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PairArgumentError {
    /// The argument has no `=`, or no key before it.
    #[error("expected `KEY=VALUE`")]
    Form,
    /// The value is a whole number that JSON can't hold.
    #[error("`{key}`: {error}")]
    Number {
        /// Key of the value.
        key: String,
        /// Reason why the number is refused.
        error: DataError,
    },
}

/// Parses `KEY=VALUE` of `--context`: the value is JSON if it parses, else text.
pub(crate) fn pair(argument: &str) -> Result<(String, Value), PairArgumentError> {
    match argument.split_once('=') {
        Some((key, value)) if !key.is_empty() => match decode::lenient_json(value.as_bytes()) {
            Ok(value) => Ok((key.to_owned(), value)),
            Err(error) if is_whole_number(value) => Err(PairArgumentError::Number { key: key.to_owned(), error }),
            Err(_) => Ok((key.to_owned(), Value::String(value.to_owned()))),
        },
        Some(_) | None => Err(PairArgumentError::Form),
    }
}

/// Reason why a `--grant` is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum GrantArgumentError {
    /// The capability is not JSON.
    #[error("not JSON: {0}")]
    Json(DataError),
    /// The grant breaks a rule.
    #[error(transparent)]
    Grant(#[from] GrantError),
}

/// Parses a `--grant`: the name of a resource namespace, or a capability as JSON.
pub(crate) fn grant(text: &str) -> Result<Value, GrantArgumentError> {
    let value = if text.starts_with('{') {
        decode::json(text.as_bytes()).map_err(GrantArgumentError::Json)?
    } else {
        Value::String(text.to_owned())
    };
    grant::parse(std::slice::from_ref(&value), &[])?;
    Ok(value)
}

/// Returns the grants of a submission; `None` if there are none.
pub(crate) fn grants(given: &[Value]) -> Option<Vec<Value>> {
    (!given.is_empty()).then(|| given.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_duration_has_units_and_its_error_an_example() {
        for (text, seconds) in [("30s", Some(30)), ("2m", Some(120)), ("1h 30m", Some(5_400)), ("0s", Some(0))] {
            assert_eq!(duration(text).ok().map(|found| found.as_secs()), seconds, "{text}");
        }
        for text in ["abc", "", "5", "5 parsecs", "99999999999999999999s", "-1s"] {
            assert!(duration(text).unwrap_err().to_string().contains("`30s`"), "{text}");
        }
    }

    #[test]
    fn a_pair_has_a_key_and_json_or_text() {
        for (given, expected) in [
            ("a=b", Ok(("a", json!("b")))),
            ("a=[1]", Ok(("a", json!([1])))),
            ("a={x", Ok(("a", json!("{x")))),
            ("a=b=c", Ok(("a", json!("b=c")))),
            ("a=", Ok(("a", json!("")))),
            ("a=0123456789012345678901234567890", Ok(("a", json!("0123456789012345678901234567890")))),
            ("a", Err("expected `KEY=VALUE`")),
            ("=b", Err("expected `KEY=VALUE`")),
        ] {
            let expected = expected.map(|(key, value)| (key.to_owned(), value)).map_err(str::to_owned);
            assert_eq!(pair(given).map_err(|error| error.to_string()), expected, "{given}");
        }
    }

    #[test]
    fn json_where_it_looks_like_json_text_elsewhere() {
        for (text, expected) in [
            (r#"{"a": 1}"#, json!({"a": 1})),
            (" [1]\n", json!([1])),
            (r#""quoted""#, json!("quoted")),
            ("42", json!(42)),
            ("null", json!(null)),
            ("Say hello", json!("Say hello")),
            ("two\nlines\n", json!("two\nlines")),
            ("", json!("")),
        ] {
            assert_eq!(interpret(text, "x", TEXT_FLAG), Ok(expected), "{text}");
        }
        for number in ["123456789012345678901234567890", "-123456789012345678901234567890\n"] {
            let error = interpret(number, "the argument", TEXT_FLAG).unwrap_err();
            assert!(error.text.contains("64 bits") && error.text.contains("in quotes"), "{error}");
            let error = pair(&format!("a={number}")).unwrap_err();
            assert!(error.to_string().contains("64 bits"), "{number}: {error}");
        }
        let error = value(r#"{"a": "#, false).unwrap_err();
        assert!(error.text.starts_with("malformed JSON in the argument: EOF"), "{error}");
        assert!(error.text.ends_with("; `--text` sends it as text"), "{error}");
    }

    #[test]
    fn commands_without_a_text_flag_advise_none() {
        let error = json_or_text(r#"{"a": "#).unwrap_err();
        assert!(error.text.starts_with("malformed JSON in the argument: EOF"), "{error}");
        assert!(error.text.ends_with(r#"; in quotes (`'"…"'`) it is a text"#), "{error}");
        let error = map_or_list(r#"{"a": "#).unwrap_err();
        assert!(error.text.starts_with("malformed JSON in the argument: EOF"), "{error}");
        assert!(!error.text.contains("text"), "{error}");
    }
}
