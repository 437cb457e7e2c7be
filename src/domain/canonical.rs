//! Canonical JSON after RFC 8785: equal values have equal bytes.

use crate::bytes;
use crate::decode;
use serde::Serialize;
use serde_json::Value;
use serde_json::ser::{Formatter, Serializer};
use std::cell::RefCell;
use std::cmp::Ordering;
use std::io::{self, Write};
use std::ops::Range;

/// Returns the canonical form of a value. Objects in order are written once; the members of others are sorted in the
/// output.
///
/// # Panics
/// If the value is no JSON, such as a map whose keys are lists.
pub fn canonical(value: &(impl Serialize + ?Sized)) -> Vec<u8> {
    let out = RefCell::default();
    write(&out, value).expect("what is hashed is JSON");
    out.into_inner()
}

/// Appends the canonical form of a text, which may be large.
pub fn text(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    let mut rest = text.as_bytes();
    while let Some(at) = bytes::position(rest, |byte| byte < 0x20 || byte == b'"' || byte == b'\\') {
        let (plain, behind) = rest.split_at(at);
        out.extend_from_slice(plain);
        match behind[0] {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            0x08 => out.extend_from_slice(b"\\b"),
            0x0c => out.extend_from_slice(b"\\f"),
            control => out.extend_from_slice(format!("\\u{control:04x}").as_bytes()),
        }
        rest = &behind[1..];
    }
    out.extend_from_slice(rest);
    out.push(b'"');
}

fn write(out: &RefCell<Vec<u8>>, value: &(impl Serialize + ?Sized)) -> serde_json::Result<()> {
    value.serialize(&mut Serializer::with_formatter(SharedBuffer(out), CanonicalFormatter { out, objects: Vec::new() }))
}

struct SharedBuffer<'o>(&'o RefCell<Vec<u8>>);

impl Write for SharedBuffer<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Formatter that reads back what it wrote. The escapes of `serde_json` are those of the RFC: the short ones, and
/// `\u00xx` in small letters.
struct CanonicalFormatter<'o> {
    out: &'o RefCell<Vec<u8>>,
    /// Objects that are open, outermost first.
    objects: Vec<OpenObject>,
}

#[derive(Default)]
struct OpenObject {
    members: Vec<MemberSpan>,
    out_of_order: bool,
}

/// Position of a member in the output: its key in quotes, and its end.
struct MemberSpan {
    key: Range<usize>,
    end: usize,
}

impl CanonicalFormatter<'_> {
    fn position(&self) -> usize {
        self.out.borrow().len()
    }

    fn number<W: Write + ?Sized>(writer: &mut W, number: f64) -> io::Result<()> {
        writer.write_all(self::number(number).as_bytes())
    }
}

#[expect(clippy::cast_precision_loss, reason = "every number of the form is a double, the nearest one")]
impl Formatter for CanonicalFormatter<'_> {
    fn write_i64<W: Write + ?Sized>(&mut self, writer: &mut W, value: i64) -> io::Result<()> {
        Self::number(writer, value as f64)
    }

    fn write_u64<W: Write + ?Sized>(&mut self, writer: &mut W, value: u64) -> io::Result<()> {
        Self::number(writer, value as f64)
    }

    fn write_i128<W: Write + ?Sized>(&mut self, writer: &mut W, value: i128) -> io::Result<()> {
        Self::number(writer, value as f64)
    }

    fn write_u128<W: Write + ?Sized>(&mut self, writer: &mut W, value: u128) -> io::Result<()> {
        Self::number(writer, value as f64)
    }

    fn write_f32<W: Write + ?Sized>(&mut self, writer: &mut W, value: f32) -> io::Result<()> {
        Self::number(writer, value.into())
    }

    fn write_f64<W: Write + ?Sized>(&mut self, writer: &mut W, value: f64) -> io::Result<()> {
        Self::number(writer, value)
    }

    fn write_raw_fragment<W: Write + ?Sized>(&mut self, _writer: &mut W, fragment: &str) -> io::Result<()> {
        Ok(write(self.out, &decode::read_stored::<Value>(fragment.as_bytes())?)?)
    }

    fn begin_object<W: Write + ?Sized>(&mut self, writer: &mut W) -> io::Result<()> {
        self.objects.push(OpenObject::default());
        writer.write_all(b"{")
    }

    fn begin_object_key<W: Write + ?Sized>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        if !first {
            writer.write_all(b",")?;
        }
        let here = self.position();
        let object = self.objects.last_mut().expect("a key stands in an object");
        object.members.push(MemberSpan { key: here..here, end: here });
        Ok(())
    }

    fn end_object_key<W: Write + ?Sized>(&mut self, _writer: &mut W) -> io::Result<()> {
        let here = self.position();
        let object = self.objects.last_mut().expect("a key stands in an object");
        let Some((last, before)) = object.members.split_last_mut() else { return Ok(()) };
        last.key.end = here;
        if let Some(before) = before.last() {
            let out = self.out.borrow();
            object.out_of_order |= by_utf16(&out[before.key.clone()], &out[last.key.clone()]) == Ordering::Greater;
        }
        Ok(())
    }

    fn end_object_value<W: Write + ?Sized>(&mut self, _writer: &mut W) -> io::Result<()> {
        let here = self.position();
        if let Some(member) = self.objects.last_mut().and_then(|object| object.members.last_mut()) {
            member.end = here;
        }
        Ok(())
    }

    fn end_object<W: Write + ?Sized>(&mut self, writer: &mut W) -> io::Result<()> {
        let mut object = self.objects.pop().unwrap_or_default();
        if object.out_of_order {
            let mut out = self.out.borrow_mut();
            let from = object.members[0].key.start;
            object.members.sort_by(|a, b| by_utf16(&out[a.key.clone()], &out[b.key.clone()]));
            let mut sorted = Vec::with_capacity(out.len() - from);
            for (at, member) in object.members.iter().enumerate() {
                if at > 0 {
                    sorted.push(b',');
                }
                sorted.extend_from_slice(&out[member.key.start..member.end]);
            }
            out.truncate(from);
            out.append(&mut sorted);
        }
        writer.write_all(b"}")
    }
}

/// Compares keys in quotes, as they are written, by their UTF-16 units.
fn by_utf16(a: &[u8], b: &[u8]) -> Ordering {
    let is_plain = |key: &[u8]| key.iter().all(|byte| byte.is_ascii() && *byte != b'\\');
    let inner = |key: &[u8]| key.len().saturating_sub(1);
    if is_plain(a) && is_plain(b) {
        return a[1..inner(a)].cmp(&b[1..inner(b)]);
    }
    let units = |key| decode::read_stored::<String>(key).unwrap_or_default().encode_utf16().collect::<Vec<_>>();
    units(a).cmp(&units(b))
}

/// Returns a number as ECMAScript writes a double; an integer that no double equals is rounded to the nearest.
fn number(value: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    let sign = if value < 0.0 { "-" } else { "" };
    // These are the shortest digits that read back as the same number.
    let shortest = format!("{:e}", value.abs());
    let (mantissa, exponent) = shortest.split_once('e').unwrap_or((&shortest, "0"));
    let digits = mantissa.replace('.', "");
    let count = i32::try_from(digits.len()).unwrap_or(i32::MAX);
    let point = exponent.parse::<i32>().unwrap_or(0) + 1;
    let zeros = |many: i32| "0".repeat(usize::try_from(many).unwrap_or(0));
    let at = usize::try_from(point).unwrap_or(0);
    match point {
        _ if (count..=21).contains(&point) => format!("{sign}{digits}{}", zeros(point - count)),
        1..=21 => format!("{sign}{}.{}", &digits[..at], &digits[at..]),
        -5..=0 => format!("{sign}0.{}{digits}", zeros(-point)),
        _ => {
            let (first, rest) = digits.split_at(1);
            let rest = if rest.is_empty() { String::new() } else { format!(".{rest}") };
            format!("{sign}{first}{rest}e{:+}", point - 1)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(json: &str, expected: &str) {
        let value: Value = serde_json::from_str(json).unwrap();
        assert_eq!(String::from_utf8(canonical(&value)).unwrap(), expected, "{json}");
    }

    #[test]
    fn the_examples_of_the_rfc_are_canonicalised() {
        check(
            r#"{"numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
                "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/", "literals": [null, true, false]}"#,
            "{\"literals\":[null,true,false],\"numbers\":[333333333.3333333,1e+30,4.5,0.002,1e-27],\
             \"string\":\"€$\\u000f\\nA'B\\\"\\\\\\\\\\\"/\"}",
        );
        check(
            r#"{"\u20ac": "Euro Sign", "\r": "Carriage Return", "\ufb33": "Hebrew Letter Dalet With Dagesh",
                "1": "One", "\ud83d\ude00": "Emoji: Grinning Face", "\u0080": "Control", "\u00f6": "o"}"#,
            "{\"\\r\":\"Carriage Return\",\"1\":\"One\",\"\u{80}\":\"Control\",\"ö\":\"o\",\"€\":\"Euro Sign\",\
             \"😀\":\"Emoji: Grinning Face\",\"\u{fb33}\":\"Hebrew Letter Dalet With Dagesh\"}",
        );
    }

    #[test]
    fn members_are_in_order_at_every_depth_whatever_serialises_them() {
        #[derive(Serialize)]
        struct Seen {
            z: f32,
            b: Vec<Value>,
            a: Option<Box<Seen>>,
            #[serde(skip_serializing_if = "Option::is_none")]
            c: Option<i128>,
        }
        let inner = Seen { z: 0.5, b: vec![json!({"y": [{"2": 2, "10": 1}], "x": 1.0})], a: None, c: Some(-7) };
        let outer = Seen { z: f32::NAN, b: Vec::new(), a: Some(Box::new(inner)), c: None };
        let expected = r#"{"a":{"a":null,"b":[{"x":1,"y":[{"10":1,"2":2}]}],"c":-7,"z":0.5},"b":[],"z":null}"#;
        assert_eq!(String::from_utf8(canonical(&outer)).unwrap(), expected);
        check(expected, expected);
        check(r#"{"aa": 1, "a": 2, "": 3, "a\"": 4, "a!": 5}"#, r#"{"":3,"a":2,"a!":5,"a\"":4,"aa":1}"#);
    }

    #[test]
    fn a_text_alone_is_written_as_inside_a_value() {
        let all: String = (0..0x3000).filter_map(char::from_u32).collect();
        for given in ["", "a", "\"", "\n", "a\\b\u{7f}é\u{2028}", &all, &all.repeat(2)] {
            let mut out = b"before".to_vec();
            text(&mut out, given);
            assert_eq!(out, [b"before".as_slice(), &canonical(given)].concat(), "{given:?}");
        }
    }

    #[test]
    fn numbers_are_written_as_ecmascript_writes_them() {
        for (json, expected) in [
            ("0", "0"),
            ("-0.0", "0"),
            ("1.0", "1"),
            ("-12", "-12"),
            ("100", "100"),
            ("9007199254740993", "9007199254740992"),
            ("18446744073709551615", "18446744073709552000"),
            ("1e20", "100000000000000000000"),
            ("1e21", "1e+21"),
            ("123456789012345680000", "123456789012345680000"),
            ("0.000001", "0.000001"),
            ("0.0000001", "1e-7"),
            ("1.5e-9", "1.5e-9"),
            ("5e-324", "5e-324"),
            ("1.7976931348623157e308", "1.7976931348623157e+308"),
            ("0.1", "0.1"),
            ("123.456", "123.456"),
        ] {
            check(json, expected);
        }
    }
}
