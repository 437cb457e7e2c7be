//! One form of a secret, found in texts under any mixture of the usual escapes.
//!
//! A needle is a sequence of units; each unit has one or more characters that match it. A text may hold each of them as
//! it is, percent-encoded, or escaped as in JSON or HTML, once or twice. Matching keeps the set of reachable positions,
//! so no text can make it slow.

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{GeneralPurpose, GeneralPurposeConfig};

/// Result of a match at one position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NeedleMatch {
    /// No match begins here.
    No,
    /// A match begins here and ends at this position.
    To(usize),
    /// A match would begin here if the text continued.
    Begun,
}

/// Characters that may separate two units.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum UnitSeparator {
    Nothing,
    /// Line ends, as in wrapped base64.
    Lines,
    /// One of `:`, `-` and a space after every second unit, as between the bytes of a fingerprint.
    Bytes,
}

/// One form of a secret.
#[derive(Clone)]
pub(super) struct Needle {
    units: Vec<Vec<char>>,
    between: UnitSeparator,
    /// Whether the characters before and after a match hold bits of the secret, too.
    before: bool,
    after: bool,
}

impl Needle {
    /// Makes the needle of the text itself, in either case.
    pub(super) fn text(text: &str) -> Self {
        let units = text.chars().map(|c| both_cases(c, &[])).collect();
        Self { units, between: UnitSeparator::Nothing, before: false, after: false }
    }

    /// Makes the needle of the bytes as hexadecimal digits.
    pub(super) fn hex(bytes: &[u8]) -> Self {
        let units = hex::encode(bytes).chars().map(|c| both_cases(c, &[])).collect();
        Self { units, between: UnitSeparator::Bytes, before: false, after: false }
    }

    /// Makes the needle of the bytes in base64, with `offset` bytes before them in their first group of three.
    pub(super) fn base64(bytes: &[u8], offset: usize) -> Self {
        let mut padded = vec![0; offset];
        padded.extend_from_slice(bytes);
        let text =
            GeneralPurpose::new(&STANDARD, GeneralPurposeConfig::new().with_encode_padding(false)).encode(&padded);
        // A character has six bits: characters that share bits with a neighbour are unknown.
        let from = (offset * 8).div_ceil(6);
        let to = padded.len() * 8 / 6;
        let url_safe = |c: char| match c {
            '+' => vec!['+', '-'],
            '/' => vec!['/', '_'],
            c => vec![c],
        };
        let units = text[from..to].chars().map(url_safe).collect();
        Self { units, between: UnitSeparator::Lines, before: offset > 0, after: !(padded.len() * 8).is_multiple_of(6) }
    }

    /// Whether a match can begin with this byte.
    pub(super) fn begins_with(&self, byte: u8) -> bool {
        let first = self.units.first().map_or(&[][..], Vec::as_slice);
        matches!(byte, b'%' | b'\\' | b'&')
            || first.iter().any(|c| {
                let mut buffer = [0; 4];
                c.encode_utf8(&mut buffer).as_bytes().first() == Some(&byte) || (*c == ' ' && byte == b'+')
            })
    }

    /// Matches `text` at the position `at`.
    pub(super) fn match_at(&self, text: &[u8], at: usize) -> NeedleMatch {
        let mut places = vec![at];
        let mut begun = false;
        for (index, unit) in self.units.iter().enumerate() {
            let mut next = Vec::new();
            for place in &places {
                let mut from = vec![*place];
                if index > 0 {
                    self.add_separators(index, text, &mut from);
                }
                for place in from {
                    begun |= place >= text.len();
                    for c in unit {
                        begun |= step(*c, text, place, &mut next);
                    }
                }
            }
            next.sort_unstable();
            next.dedup();
            places = next;
            if places.is_empty() {
                return if begun { NeedleMatch::Begun } else { NeedleMatch::No };
            }
        }
        NeedleMatch::To(places.last().map_or(at, |end| self.match_end(text, *end)))
    }

    /// Returns the position from which a match at `at` is replaced.
    pub(super) fn match_start(&self, text: &[u8], at: usize) -> usize {
        if self.before && at > 0 && is_base64(text[at - 1]) { at - 1 } else { at }
    }

    fn match_end(&self, text: &[u8], mut end: usize) -> usize {
        if self.after && text.get(end).is_some_and(|byte| is_base64(*byte)) {
            end += 1;
        }
        if self.between == UnitSeparator::Lines {
            while text.get(end) == Some(&b'=') {
                end += 1;
            }
        }
        end
    }

    /// Adds the positions behind the separators that may precede unit `index`.
    fn add_separators(&self, index: usize, text: &[u8], places: &mut Vec<usize>) {
        match self.between {
            UnitSeparator::Nothing => {}
            UnitSeparator::Bytes => {
                if index.is_multiple_of(2) && text.get(places[0]).is_some_and(|b| b": -".contains(b)) {
                    places.push(places[0] + 1);
                }
            }
            UnitSeparator::Lines => {
                let mut at = places[0];
                // A line end is at most `\r
                // `, each of them escaped or not.
                for _ in 0..2 {
                    let mut next = Vec::new();
                    for end in ['\r', '\n'] {
                        step(end, text, at, &mut next);
                    }
                    let Some(behind) = next.into_iter().max() else { break };
                    places.push(behind);
                    at = behind;
                }
            }
        }
    }
}

/// Returns a character in both cases, and others of the same meaning.
fn both_cases(c: char, others: &[char]) -> Vec<char> {
    let mut all = vec![c];
    for other in [c.to_ascii_lowercase(), c.to_ascii_uppercase()].iter().chain(others) {
        if !all.contains(other) {
            all.push(*other);
        }
    }
    all
}

const fn is_base64(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'-' | b'_')
}

/// Adds the positions behind `c` at `at`, in every form. Returns whether the end of the text cuts one of them off.
fn step(c: char, text: &[u8], at: usize, next: &mut Vec<usize>) -> bool {
    let Some(rest) = text.get(at..) else { return false };
    let mut buffer = [0; 4];
    let bytes = c.encode_utf8(&mut buffer).as_bytes();
    let mut begun = false;
    let mut literal = |form: &[u8]| {
        if rest.starts_with(form) {
            next.push(at + form.len());
        } else {
            begun |= form.starts_with(rest);
        }
    };
    literal(bytes);
    match rest.first() {
        Some(b'+') if c == ' ' => literal(b"+"),
        Some(b'%') => {
            for percent in ["%", "%25"] {
                let upper = bytes.iter().map(|byte| format!("{percent}{byte:02X}")).collect::<Vec<_>>().concat();
                match_ignoring_case(rest, at, upper.as_bytes(), next, &mut begun);
            }
        }
        Some(b'&') => {
            let named = match c {
                '&' => "&amp;",
                '<' => "&lt;",
                '>' => "&gt;",
                '"' => "&quot;",
                '\'' => "&apos;",
                _ => "",
            };
            let code = u32::from(c);
            for form in [named.to_owned(), format!("&#{code};"), format!("&#0{code};"), format!("&#x{code:x};")] {
                if !form.is_empty() {
                    match_ignoring_case(rest, at, form.as_bytes(), next, &mut begun);
                }
            }
        }
        Some(b'\\') => begun |= match_backslash(c, rest, at, next),
        _ => {}
    }
    begun
}

fn match_ignoring_case(rest: &[u8], at: usize, form: &[u8], next: &mut Vec<usize>, begun: &mut bool) {
    let common = rest.len().min(form.len());
    if rest[..common].eq_ignore_ascii_case(&form[..common]) {
        if common == form.len() {
            next.push(at + common);
        } else {
            *begun = true;
        }
    }
}

/// Matches backslash escapes; a text inside a text has several backslashes.
fn match_backslash(c: char, rest: &[u8], at: usize, next: &mut Vec<usize>) -> bool {
    let run = rest.iter().take(9).take_while(|byte| **byte == b'\\').count();
    if c == '\\' {
        next.extend([2, 4, 8].into_iter().filter(|length| *length <= run).map(|length| at + length));
    }
    let behind = &rest[run..];
    let mut begun = behind.is_empty();
    let letter = match c {
        '\n' => Some('n'),
        '\r' => Some('r'),
        '\t' => Some('t'),
        '\u{8}' => Some('b'),
        '\u{c}' => Some('f'),
        '"' | '/' | '\'' => Some(c),
        _ => None,
    };
    let mut units = [0; 2];
    let code = c.encode_utf16(&mut units).iter().map(|unit| format!("u{unit:04x}")).collect::<Vec<_>>().concat();
    // In a surrogate pair, the backslashes precede each half.
    let code = match code.split_at_checked(5) {
        Some((first, second)) if !second.is_empty() => format!("{first}{}{second}", "\\".repeat(run)),
        _ => code,
    };
    for form in letter.map(String::from).into_iter().chain([code, format!("x{:02x}", u32::from(c))]) {
        match_ignoring_case(behind, at + run, form.as_bytes(), next, &mut begun);
    }
    begun
}
