//! Rewrites JSON5 as JSON, which is then read as usual.

use std::fmt::Write;
use std::str::Chars;

/// Rewrites a text as JSON with the same value. `None` if it is no JSON5, or has a number that JSON can't write. The
/// reader of the JSON text checks the order of brackets, commas and colons.
pub(super) fn to_json(text: &str) -> Option<String> {
    let mut rewriter = Rewriter { rest: text, out: String::with_capacity(text.len()) };
    rewriter.run()?;
    Some(rewriter.out)
}

struct Rewriter<'t> {
    rest: &'t str,
    out: String,
}

impl Rewriter<'_> {
    fn run(&mut self) -> Option<()> {
        loop {
            self.skip_blank()?;
            let Some(first) = self.rest.chars().next() else { return Some(()) };
            match first {
                '{' | '}' | '[' | ']' | ':' => {
                    self.rest = &self.rest[1..];
                    self.out.push(first);
                }
                ',' => self.write_comma()?,
                '"' | '\'' => self.write_string(first)?,
                _ => self.write_word()?,
            }
        }
    }

    /// Writes a comma. A comma before a closing bracket is dropped, unless no value stands before it.
    fn write_comma(&mut self) -> Option<()> {
        self.rest = &self.rest[1..];
        self.skip_blank()?;
        if !self.rest.starts_with(['}', ']']) {
            self.out.push(',');
            return Some(());
        }
        (!self.out.is_empty() && !self.out.ends_with(['{', '[', ',', ':'])).then_some(())
    }

    fn write_string(&mut self, quote: char) -> Option<()> {
        let mut chars = self.rest[1..].chars();
        self.out.push('"');
        loop {
            match chars.next()? {
                '\\' => escape(&mut chars, &mut self.out)?,
                '\n' | '\r' => return None,
                c if c == quote => break,
                c => push_char(&mut self.out, c),
            }
        }
        self.out.push('"');
        self.rest = chars.as_str();
        Some(())
    }

    /// Writes a name of a member, a number, or a word of JSON.
    fn write_word(&mut self) -> Option<()> {
        let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '$' | '.' | '+' | '-');
        let end = self.rest.find(|c| !is_part(c)).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        self.skip_blank()?;
        if self.rest.starts_with(':') {
            let is_name = !word.starts_with(|c: char| c.is_numeric()) && !word.contains(['.', '+', '-']);
            is_name.then(|| self.out.extend(["\"", word, "\""]))?;
            return (!word.is_empty()).then_some(());
        }
        match word {
            "true" | "false" | "null" => self.out.push_str(word),
            _ => number(word, &mut self.out)?,
        }
        // A space keeps two adjacent words apart.
        self.out.push(' ');
        Some(())
    }

    /// Skips white space and comments; `None` if a comment has no end.
    fn skip_blank(&mut self) -> Option<()> {
        loop {
            self.rest = self.rest.trim_start_matches(|c: char| c.is_whitespace() || c == '\u{feff}');
            if let Some(comment) = self.rest.strip_prefix("/*") {
                self.rest = comment.split_once("*/")?.1;
            } else if let Some(comment) = self.rest.strip_prefix("//") {
                self.rest = comment.find(['\n', '\r', '\u{2028}', '\u{2029}']).map_or("", |end| &comment[end..]);
            } else {
                return Some(());
            }
        }
    }
}

/// Writes a character of a JSON string.
fn push_char(out: &mut String, c: char) {
    match c {
        '"' | '\\' => out.extend(['\\', c]),
        c if c < ' ' => {
            // Writing to a `String` never fails.
            let _ = write!(out, "\\u{:04x}", u32::from(c));
        }
        c => out.push(c),
    }
}

/// Writes the character behind a backslash.
fn escape(chars: &mut Chars<'_>, out: &mut String) -> Option<()> {
    match chars.next()? {
        c @ ('b' | 'f' | 'n' | 'r' | 't' | 'u') => out.extend(['\\', c]),
        'v' => push_char(out, '\u{b}'),
        '0' if !chars.as_str().starts_with(|c: char| c.is_ascii_digit()) => push_char(out, '\0'),
        '0'..='9' => return None,
        'x' => {
            let [high, low] = [chars.next()?.to_digit(16)?, chars.next()?.to_digit(16)?];
            push_char(out, char::from(u8::try_from(high * 16 + low).ok()?));
        }
        '\r' => {
            if chars.as_str().starts_with('\n') {
                chars.next();
            }
        }
        '\n' | '\u{2028}' | '\u{2029}' => {}
        c => push_char(out, c),
    }
    Some(())
}

/// Writes a number with the forms that JSON lacks: a plus, a point at its beginning or end, hexadecimal digits.
fn number(word: &str, out: &mut String) -> Option<()> {
    let digits = word.strip_prefix(['+', '-']).unwrap_or(word);
    if word.starts_with('-') {
        out.push('-');
    }
    if let Some(hexadecimal) = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        let is_legal = hexadecimal.bytes().all(|byte| byte.is_ascii_hexdigit());
        let value = u64::from_str_radix(hexadecimal, 16).ok().filter(|_| is_legal)?;
        out.push_str(&value.to_string());
        return Some(());
    }
    // The reader of the JSON text finds other invalid numbers.
    digits.starts_with(|c: char| c.is_ascii_digit() || c == '.').then_some(())?;
    let (mantissa, exponent) = match digits.find(['e', 'E']) {
        Some(at) => digits.split_at(at),
        None => (digits, ""),
    };
    match mantissa.split_once('.') {
        None => out.push_str(mantissa),
        Some(("", "")) => return None,
        Some(("", fraction)) => out.extend(["0.", fraction]),
        Some((whole, "")) => out.push_str(whole),
        Some((whole, fraction)) => out.extend([whole, ".", fraction]),
    }
    out.push_str(exponent);
    Some(())
}
