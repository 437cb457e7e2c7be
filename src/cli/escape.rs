//! Escaping of data for terminals: characters that control a terminal, are hidden or turn text around are shown as
//! codes.
//!
//! Texts of agents, tools and strangers are printed; a terminal would obey escape sequences in them.

use std::borrow::Cow;
use std::fmt::Write;

/// Colours and weights of this program; every other escape sequence is escaped.
const STYLES: [&str; 6] = ["\x1b[0m", "\x1b[1m", "\x1b[2m", "\x1b[31m", "\x1b[32m", "\x1b[33m"];

/// Whether a character is invisible, or changes how its neighbours are shown.
const fn is_invisible(c: char) -> bool {
    matches!(
        c,
        '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}' // control characters, C0 and C1
        | '\u{ad}' | '\u{61c}' | '\u{180e}' // soft hyphen, Arabic mark, vowel separator
        | '\u{200b}'..='\u{200f}' // zero width, direction marks
        | '\u{2028}'..='\u{202e}' // line and paragraph ends, direction overrides
        | '\u{2060}'..='\u{206f}' // invisible operators, isolates
        | '\u{feff}' | '\u{fff9}'..='\u{fffb}' // byte order mark, annotations
        | '\u{e0000}'..='\u{e007f}' // tags: a second text that nobody sees
    )
}

/// Escapes a text for a terminal; lines, tabs and this program's styles stay.
pub(crate) fn escape_text(text: &str) -> Cow<'_, str> {
    escape_with(text, |rest| STYLES.iter().copied().find(|style| rest.starts_with(style)), |c| matches!(c, '\n' | '\t'))
}

/// Escapes a text for a terminal; lines and tabs stay, styles don't.
pub(crate) fn escape_styles(text: &str) -> Cow<'_, str> {
    escape_with(text, |_| None, |c| matches!(c, '\n' | '\t'))
}

/// Escapes the begin of every style in a foreign text.
pub(crate) fn escape_data(text: &str) -> Cow<'_, str> {
    escape_with(text, |_| None, |c| c != '\u{1b}' && c != '\u{9b}')
}

/// Escapes a cell of a table to one line.
pub(crate) fn cell(text: &str) -> Cow<'_, str> {
    escape_with(text, |_| None, |_| false)
}

/// Escapes JSON for a terminal: the value stays the same, invisible characters become escapes.
pub(crate) fn json(text: &str) -> Cow<'_, str> {
    if !text.chars().any(|c| is_invisible(c) && c != '\n') {
        return text.into();
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_invisible(c) && c != '\n' {
            // Such characters occur only inside strings of JSON.
            for unit in c.encode_utf16(&mut [0; 2]) {
                let _ = write!(out, "\\u{unit:04x}");
            }
        } else {
            out.push(c);
        }
    }
    out.into()
}

fn escape_with(text: &str, style: impl Fn(&str) -> Option<&'static str>, kept: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.chars().any(|c| is_invisible(c) && !kept(c)) {
        return text.into();
    }
    let mut out = String::with_capacity(text.len() + 16);
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        if let Some(style) = style(rest) {
            out.push_str(style);
            rest = &rest[style.len()..];
            continue;
        }
        match c {
            '\n' if !kept(c) => out.push_str("\\n"),
            '\t' if !kept(c) => out.push_str("\\t"),
            c if is_invisible(c) && !kept(c) => out.extend(c.escape_unicode()),
            c => out.push(c),
        }
        rest = &rest[c.len_utf8()..];
    }
    out.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminal_control_characters_are_shown_as_codes() {
        for (text, on_terminal, in_cell) in [
            ("plain ünï 文 🙂\tx\ny", "plain ünï 文 🙂\tx\ny", "plain ünï 文 🙂\\tx\\ny"),
            ("\x1b[2J\x1b]0;title\x07", "\\u{1b}[2J\\u{1b}]0;title\\u{7}", "\\u{1b}[2J\\u{1b}]0;title\\u{7}"),
            ("a\rb\x08\x7f\u{9b}31m", "a\\u{d}b\\u{8}\\u{7f}\\u{9b}31m", "a\\u{d}b\\u{8}\\u{7f}\\u{9b}31m"),
            ("\u{202e}gnp.exe\u{2066}", "\\u{202e}gnp.exe\\u{2066}", "\\u{202e}gnp.exe\\u{2066}"),
            (
                "pay\u{200b}pal\u{feff}\u{e0041}",
                "pay\\u{200b}pal\\u{feff}\\u{e0041}",
                "pay\\u{200b}pal\\u{feff}\\u{e0041}",
            ),
            ("\x1b[31mred\x1b[0m", "\x1b[31mred\x1b[0m", "\\u{1b}[31mred\\u{1b}[0m"),
            ("\x1b[31;5mblink", "\\u{1b}[31;5mblink", "\\u{1b}[31;5mblink"),
        ] {
            assert_eq!(escape_text(text), on_terminal);
            assert_eq!(cell(text), in_cell);
            assert_eq!(escape_styles(text), on_terminal.replace('\x1b', "\\u{1b}"));
        }
        assert_eq!(escape_data("a\x1b[31mb\u{200b}\n"), "a\\u{1b}[31mb\u{200b}\n");
        assert_eq!(escape_data("a\u{200b}\n"), "a\u{200b}\n");
    }

    #[test]
    fn json_stays_the_same_value() {
        for text in ["\u{1b}[2J", "\u{9b}\u{202e}x", "\u{e0041}\u{feff}", "\\u200b \\ \" 🙂", "\n\r\u{7f}"] {
            let value = serde_json::json!({"k": [text]});
            let written = json(&serde_json::to_string_pretty(&value).unwrap()).into_owned();
            assert!(written.chars().all(|c| c == '\n' || !is_invisible(c)), "{written}");
            assert_eq!(serde_json::from_str::<serde_json::Value>(&written).unwrap(), value);
        }
    }
}
