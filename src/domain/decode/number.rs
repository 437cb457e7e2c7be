//! Checks the numbers of a JSON text as they are written: each is exact as a value, or refused.
//!
//! The JSON reader returns a float for a whole number beyond 64 bits, with other digits than were sent, and zero for a
//! number that is closer to zero than any float. The original literal of such a float is found in the text.

use crate::visible::beginning;
use serde_json::{Number, Value};
use std::str;

/// Absolute value from which on a float may be a rounded whole number: 2^63.
const SUSPECT: f64 = 9_223_372_036_854_775_808.0;

/// Reason for refusing a whole number beyond 64 bits.
const TOO_LARGE: &str = "is larger than 64 bits hold: write it as a text";

/// Most bytes of a number that an error shows.
const SHOWN_BYTES: usize = 48;

/// Parses a single number; `None` also for one that would lose digits.
pub fn parse_number(text: &str) -> Option<Number> {
    if check_literal(text).is_some() { None } else { text.parse().ok() }
}

/// Returns the error for the first number of a value that may have been rounded from a whole number beyond 64 bits, for
/// readers that do so, such as that of YAML. `None` if there is no such number.
pub fn rounded_number(value: &Value) -> Option<String> {
    match value {
        Value::Number(number) => {
            let float = number.as_f64().filter(|float| number.is_f64() && float.abs() >= SUSPECT)?;
            Some(number_error(Some(&float.to_string()), TOO_LARGE))
        }
        Value::Array(items) => items.iter().find_map(rounded_number),
        Value::Object(fields) => fields.values().find_map(rounded_number),
        Value::Null | Value::Bool(_) | Value::String(_) => None,
    }
}

/// Whether a float may stand for a number beyond 64 bits.
pub(super) fn is_suspect(float: f64) -> bool {
    float.abs() >= SUSPECT || float == 0.0
}

/// Returns why a number literal can't be read exactly; `None` if it can.
pub(super) fn check_literal(literal: &str) -> Option<&'static str> {
    if is_too_large(literal) {
        Some(TOO_LARGE)
    } else if is_too_small(literal) {
        Some("is closer to zero than 64 bits hold: write 0, or write it as a text")
    } else {
        None
    }
}

/// Whether a literal has digits other than zero and is read as zero.
fn is_too_small(literal: &str) -> bool {
    let mantissa = literal.split(['e', 'E']).next().unwrap_or_default();
    mantissa.bytes().any(|byte| matches!(byte, b'1'..=b'9')) && literal.parse::<f64>().is_ok_and(|float| float == 0.0)
}

/// Whether a literal is a whole number, without a point or an exponent, that neither i64 nor u64 holds.
fn is_too_large(literal: &str) -> bool {
    let digits = literal.strip_prefix('-').unwrap_or(literal);
    let is_whole = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_whole && literal.parse::<i64>().is_err() && literal.parse::<u64>().is_err()
}

/// Writes the error for a number and a reason of [`check_literal`]; without `shown` the number is a secret.
pub(super) fn number_error(shown: Option<&str>, reason: &str) -> String {
    let number = shown.map_or_else(|| "a number".to_owned(), |text| format!("number {text}"));
    format!("{} {reason}", beginning(number, SHOWN_BYTES))
}

/// Iterates over the number literals of a JSON text. The text must be valid JSON as far as it is read.
pub(super) struct Literals<'b> {
    rest: &'b [u8],
    passed: usize,
}

impl<'b> Literals<'b> {
    pub(super) const fn new(bytes: &'b [u8]) -> Self {
        Self { rest: bytes, passed: 0 }
    }

    /// Returns the literal with this index, counted from 0. Indexes must grow from call to call.
    pub(super) fn nth_literal(&mut self, index: usize) -> Option<&'b str> {
        let ahead = index.checked_sub(self.passed)?;
        self.passed = index + 1;
        self.nth(ahead)
    }

    fn skip_string(&mut self) {
        let mut is_escaped = false;
        let end = self.rest.iter().position(|byte| {
            let ends = *byte == b'"' && !is_escaped;
            is_escaped = *byte == b'\\' && !is_escaped;
            ends
        });
        self.rest = end.map_or(&[], |end| &self.rest[end + 1..]);
    }
}

impl<'b> Iterator for Literals<'b> {
    type Item = &'b str;

    fn next(&mut self) -> Option<&'b str> {
        loop {
            let start = self.rest.iter().position(|byte| matches!(byte, b'"' | b'-' | b'0'..=b'9'))?;
            let is_string = self.rest[start] == b'"';
            self.rest = &self.rest[start + usize::from(is_string)..];
            if is_string {
                self.skip_string();
                continue;
            }
            let is_part = |byte: &u8| matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E');
            let end = self.rest.iter().position(|byte| !is_part(byte)).unwrap_or(self.rest.len());
            let (literal, rest) = self.rest.split_at(end);
            self.rest = rest;
            return str::from_utf8(literal).ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_are_found_outside_of_strings() {
        let check = |text: &str, expected: &[&str]| {
            assert_eq!(Literals::new(text.as_bytes()).collect::<Vec<_>>(), expected, "{text}");
        };
        check(r#"[1, -2.5e+3 ,{"a1": 3,"b": "4 \" 5", "c\\": true}, null, "\\\\", 6]"#, &["1", "-2.5e+3", "3", "6"]);
        check("12", &["12"]);
        check(r#""1"#, &[]);
        check("", &[]);
    }

    #[test]
    fn only_numbers_that_lose_all_digits_are_too_small() {
        for (text, expected) in [
            ("0", false),
            ("-0.000", false),
            ("0e-400", false),
            ("5e-324", false),
            ("1e-400", true),
            ("-0.1E-400", true),
            ("1e-324", true),
            ("", false),
        ] {
            assert_eq!(is_too_small(text), expected, "{text}");
            assert!(!expected || is_suspect(text.parse().unwrap()), "{text}");
        }
    }

    #[test]
    fn only_whole_numbers_beyond_64_bits_are_too_large() {
        for (text, expected) in [
            ("0", false),
            ("-0", false),
            ("18446744073709551615", false),
            ("18446744073709551616", true),
            ("-9223372036854775808", false),
            ("-9223372036854775809", true),
            ("123456789012345678901234567890", true),
            ("123456789012345678901234567890.0", false),
            ("1e30", false),
            ("-", false),
            ("", false),
        ] {
            assert_eq!(is_too_large(text), expected, "{text}");
            assert!(!expected || is_suspect(text.parse().unwrap()), "{text}");
        }
    }

    #[test]
    fn a_number_that_stands_alone_is_exact_or_none() {
        for (text, expected) in [
            ("7", Some("7")),
            ("-0.5", Some("-0.5")),
            ("18446744073709551615", Some("18446744073709551615")),
            ("18446744073709551616", None),
            ("1e400", None),
            ("1e-400", None),
            ("x", None),
        ] {
            assert_eq!(parse_number(text).map(|number| number.to_string()).as_deref(), expected, "{text}");
        }
    }
}
