//! Trace context of the W3C as it comes in with a submission and goes out with a call: hostile values are dropped.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

/// Header of the trace context, in lower case: NATS clients compare names by case.
pub const TRACEPARENT: &str = "traceparent";

/// Longest value of `traceparent` that is read, in bytes. Version 00 has 55; later versions may append fields.
const LONGEST: usize = 128;

/// Bytes of the fields of version 00, with which the value of every version begins.
const FIELDS: usize = 55;

/// Place of a span in a trace. Neither id is zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceParent {
    trace: u128,
    span: u64,
    sampled: bool,
}

impl TraceParent {
    /// Returns the place named by two ids; `None` if one of them is zero, which the Trace Context refuses.
    pub const fn new(trace: u128, span: u64, sampled: bool) -> Option<Self> {
        if trace == 0 || span == 0 {
            return None;
        }
        Some(Self { trace, span, sampled })
    }

    /// Reads the value of a `traceparent` header; `None` if it is invalid, upon which a new trace begins. Of a later
    /// version the fields of version 00 are read.
    pub fn parse(value: &str) -> Option<Self> {
        let bytes = value.as_bytes();
        if bytes.len() < FIELDS || bytes.len() > LONGEST || [2, 35, 52].iter().any(|&at| bytes[at] != b'-') {
            return None;
        }
        let version = read_hex(&bytes[..2])?;
        let has_fitting_end = match version {
            0 => bytes.len() == FIELDS,
            0xff => false,
            _ => bytes.get(FIELDS).is_none_or(|&next| next == b'-'),
        };
        if !has_fitting_end {
            return None;
        }
        let span = u64::try_from(read_hex(&bytes[36..52])?).ok()?;
        let flags = read_hex(&bytes[53..FIELDS])?;
        Self::new(read_hex(&bytes[3..35])?, span, flags & 1 == 1)
    }

    /// Reads all `traceparent` values of one message; `None` unless there is exactly one and it is valid.
    pub fn parse_only<'a>(values: impl IntoIterator<Item = &'a str>) -> Option<Self> {
        let mut values = values.into_iter();
        let first = values.next()?;
        if values.next().is_some() {
            return None;
        }
        Self::parse(first)
    }

    /// Returns the id of the trace.
    pub const fn trace_id(self) -> u128 {
        self.trace
    }

    /// Returns the id of the span.
    pub const fn span_id(self) -> u64 {
        self.span
    }

    /// Reports whether the caller recorded the span. It is a caller's word: it never forces a trace to be recorded here.
    pub const fn is_sampled(self) -> bool {
        self.sampled
    }
}

/// Reads lower-case hexadecimal digits, at most 32 of them.
fn read_hex(digits: &[u8]) -> Option<u128> {
    digits.iter().try_fold(0_u128, |sum, digit| {
        let value = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        Some((sum << 4) | u128::from(value))
    })
}

impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{:032x}-{:016x}-{:02x}", self.trace, self.span, u8::from(self.sampled))
    }
}

impl Serialize for TraceParent {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for TraceParent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text)
            .ok_or_else(|| serde::de::Error::custom("expected a `traceparent` of the W3C's Trace Context"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALID: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_valid_trace_context_is_read_and_written_alike() {
        let read = TraceParent::parse(VALID).unwrap();
        assert_eq!(read.trace_id(), 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736);
        assert_eq!(read.span_id(), 0x00f0_67aa_0ba9_02b7);
        assert!(read.is_sampled());
        assert_eq!(read.to_string(), VALID);
        let json = serde_json::to_string(&read).unwrap();
        assert_eq!(serde_json::from_str::<TraceParent>(&json).unwrap(), read);
    }

    #[test]
    fn the_sampled_bit_alone_is_read_from_the_flags() {
        let with = |flags: &str| TraceParent::parse(&format!("{}{flags}", &VALID[..53])).unwrap();
        for (flags, sampled) in [("00", false), ("01", true), ("02", false), ("03", true), ("ff", true)] {
            assert_eq!(with(flags).is_sampled(), sampled, "{flags}");
        }
    }

    #[test]
    fn a_later_version_is_read_by_the_known_fields() {
        let later = VALID.replacen("00", "cc", 1);
        let read = TraceParent::parse(VALID);
        assert_eq!(TraceParent::parse(&later), read);
        assert_eq!(TraceParent::parse(&format!("{later}-what-comes")), read);
        assert_eq!(TraceParent::parse(&format!("{later}.what")), None);
    }

    #[test]
    fn a_hostile_trace_context_is_dropped() {
        let zero_trace = format!("00-{}-00f067aa0ba902b7-01", "0".repeat(32));
        let zero_span = format!("00-4bf92f3577b34da6a3ce929d0e0e4736-{}-01", "0".repeat(16));
        let long = format!("cc{}-{}", &VALID[2..], "a".repeat(1 << 20));
        let multibyte = "é".repeat(30);
        let cases: [&str; 15] = [
            "",
            "00",
            &VALID[..54],
            &format!("{VALID}-00"),
            &VALID.to_uppercase(),
            &VALID.replacen("00", "ff", 1),
            &VALID.replace('-', "_"),
            &VALID.replace('4', "g"),
            &VALID.replace('4', "+"),
            &format!(" {VALID}"),
            &format!("{VALID}\n"),
            &zero_trace,
            &zero_span,
            &long,
            &multibyte,
        ];
        for case in cases {
            assert_eq!(TraceParent::parse(case), None, "{case:.80}");
            let json = serde_json::to_string(case).unwrap();
            assert!(serde_json::from_str::<TraceParent>(&json).is_err(), "{case:.80}");
        }
    }

    #[test]
    fn two_trace_contexts_in_one_message_are_none() {
        assert_eq!(TraceParent::parse_only([VALID]), TraceParent::parse(VALID));
        assert_eq!(TraceParent::parse_only([VALID, VALID]), None);
        assert_eq!(TraceParent::parse_only([]), None);
    }
}
