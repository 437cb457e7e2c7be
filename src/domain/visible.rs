//! Invisible characters: two names that look the same shall be the same.

use std::fmt::Write;

/// The rule for names, paths and grants, as an error states it.
pub const RULE: &str = "characters that can't be seen are not allowed";

/// Returns the first invisible character: zero-width, direction and format characters, separators of lines, the byte
/// order mark. Joiners and variation selectors are part of scripts and emoji, and are allowed between characters that
/// aren't ASCII.
pub fn first_hidden(text: &str) -> Option<char> {
    with_neighbours(text).find(|(before, c, after)| is_hidden_between(*before, *c, *after)).map(|(_, c, _)| c)
}

/// Returns each character of a text with those beside it.
fn with_neighbours(text: &str) -> impl Iterator<Item = (Option<char>, char, Option<char>)> {
    let mut before = None;
    let mut rest = text.chars().peekable();
    std::iter::from_fn(move || {
        let c = rest.next()?;
        Some((before.replace(c), c, rest.peek().copied()))
    })
}

fn is_hidden_between(before: Option<char>, c: char, after: Option<char>) -> bool {
    let is_of_script = |beside: Option<char>| beside.is_some_and(|c| !c.is_ascii());
    match c {
        '\u{200c}' | '\u{200d}' => !(is_of_script(before) && is_of_script(after)),
        '\u{fe00}'..='\u{fe0f}' => !is_of_script(before),
        c => is_unseen(c) || matches!(c, '\u{2028}' | '\u{2029}'),
    }
}

/// Returns a text with each hidden character, and each control character but tab and line break, as `⟨U+202E⟩`.
pub fn reveal_hidden(text: &str) -> String {
    reveal(text, |shown, c| write!(shown, "⟨U+{:04X}⟩", u32::from(c)))
}

/// Returns a JSON text with the same characters as escapes, `\u202e`: it still means the same value.
pub fn escape_hidden_json(json: &str) -> String {
    let escape = |shown: &mut String, c: char| {
        c.encode_utf16(&mut [0; 2]).iter().try_for_each(|unit| write!(shown, "\\u{unit:04x}"))
    };
    reveal(json, escape)
}

fn reveal(text: &str, replace: impl Fn(&mut String, char) -> std::fmt::Result) -> String {
    let mut shown = String::with_capacity(text.len());
    for (before, c, after) in with_neighbours(text) {
        let is_control = c.is_control() && !matches!(c, '\n' | '\t');
        if is_control || is_hidden_between(before, c, after) {
            replace(&mut shown, c).expect("a text in memory takes everything");
        } else {
            shown.push(c);
        }
    }
    shown
}

/// Checks a name that people give and read in lists: one line of visible characters. Blanks are allowed.
pub fn check_line(name: &str) -> Result<(), &'static str> {
    if name.chars().any(|c| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}')) {
        return Err("control characters and line breaks are not allowed");
    }
    if first_hidden(name).is_some() { Err(RULE) } else { Ok(()) }
}

/// Whether a character takes no visible place in a line: Unicode's `Default_Ignorable_Code_Point` as a whole, the marks
/// of annotations, and the blank of Braille.
pub const fn is_unseen(c: char) -> bool {
    matches!(
        c,
        '\u{ad}'
            | '\u{34f}'
            | '\u{61c}'
            | '\u{115f}'
            | '\u{1160}'
            | '\u{17b4}'
            | '\u{17b5}'
            | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}'
            | '\u{202a}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{2800}'
            | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}'
            | '\u{feff}'
            | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}'
            | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}'
    )
}

/// Bytes of an error's text in JSON at most.
const ERROR_BYTES: usize = 2048;

/// Cuts the text of an error, which may contain a caller's text of any length.
pub fn cut_error(text: String) -> String {
    beginning(text, ERROR_BYTES)
}

/// Cuts a text to `bytes` bytes inside a JSON text, and marks the cut.
pub fn beginning(mut text: String, bytes: usize) -> String {
    let size = |c: char| match c {
        '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 2,
        '\0'..='\u{1f}' => 6,
        c => c.len_utf8(),
    };
    let (mut used, mut end) = (0, 0);
    for (at, c) in text.char_indices() {
        used += size(c);
        if used > bytes {
            text.truncate(end);
            text.push('…');
            break;
        }
        if used + '…'.len_utf8() <= bytes {
            end = at + c.len_utf8();
        }
    }
    text
}

/// Returns at most `bytes` bytes of a text, and marks the cut.
pub fn cut_at(text: &str, bytes: usize) -> String {
    if text.len() <= bytes { text.to_owned() } else { format!("{}…", &text[..text.floor_char_boundary(bytes)]) }
}

/// Whether the name of a key or a header means a secret or a token: its value is never quoted.
pub fn is_secret_name(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let whole = ["authorization", "proxy-authorization", "cookie", "headers", "ucans", "prf", "jwt", "passwd"]
        .contains(&name.as_str());
    let ends = ["secret", "token", "password", "credential", "credentials"];
    let keys = ["api", "private", "secret", "access"];
    let key = name.strip_suffix("key").map(|of| of.trim_end_matches(['_', '-']));
    whole
        || ends.iter().any(|end| name.ends_with(end))
        || key.is_some_and(|of| keys.iter().any(|end| of.ends_with(end)))
}

/// Returns a caller's text for a message: short, and harmless in a terminal or a log.
pub fn quote_foreign(text: &str) -> String {
    const CHARACTERS: usize = 80;
    let mut rest = text.chars();
    let shown: String = rest.by_ref().take(CHARACTERS).flat_map(char::escape_debug).collect();
    if rest.next().is_some() { shown + "…" } else { shown }
}

/// Returns names in backticks with commas between, or `none`.
pub(crate) fn quote_names<T: AsRef<str>>(names: &[T]) -> String {
    if names.is_empty() {
        return "none".to_owned();
    }
    names.iter().map(|name| format!("`{}`", name.as_ref())).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::{cut_error, escape_hidden_json, first_hidden, is_secret_name, quote_foreign, reveal_hidden};

    #[test]
    fn an_error_has_no_more_than_two_kilobytes_also_in_json() {
        assert_eq!(cut_error("short".into()), "short");
        assert_eq!(cut_error("x".repeat(2048)), "x".repeat(2048));
        for text in ["x".repeat(300_000), "é".repeat(300_000), format!("x{}", "𝔘".repeat(9_000))] {
            let told = cut_error(text.clone());
            assert!(told.len() <= 2048 && told.len() > 2040 && told.ends_with('…'), "{}", told.len());
            assert!(text.starts_with(told.trim_end_matches('…')));
        }
        for text in ["\"", "\\", "\n", "\u{1}", "\u{7f}", "é\u{c}"].map(|text| text.repeat(9_000)) {
            let json = serde_json::to_string(&cut_error(text)).unwrap();
            assert!(json.len() <= 2050 && json.len() > 2034, "{}", json.len());
        }
    }

    #[test]
    fn names_of_secrets_are_known_by_their_ends() {
        for name in ["Authorization", "apiKey", "api_key", "private-key", "accessKey", "jwt", "clientSecret", "ucans"] {
            assert!(is_secret_name(name), "{name}");
        }
        for name in ["tokens", "key", "keys", "monkey", "value", "idempotency", "secretive"] {
            assert!(!is_secret_name(name), "{name}");
        }
    }

    #[test]
    fn foreign_text_is_shown_short_without_control_characters() {
        for (text, expected) in [("a b/ü", "a b/ü"), ("a\u{1b}[31m\n", "a\\u{1b}[31m\\n"), ("", "")] {
            assert_eq!(quote_foreign(text), expected);
        }
        assert_eq!(quote_foreign(&"é".repeat(80)), "é".repeat(80));
        assert_eq!(quote_foreign(&"é".repeat(50_000)), "é".repeat(80) + "…");
    }

    #[test]
    fn hidden_characters_are_shown_by_their_numbers() {
        for (text, expected) in [
            ("plain\n\tünï", "plain\n\tünï"),
            ("a\u{202e}b", "a⟨U+202E⟩b"),
            ("a\u{200b}\u{feff}", "a⟨U+200B⟩⟨U+FEFF⟩"),
            ("a\u{2028}b\u{1b}[0m", "a⟨U+2028⟩b⟨U+001B⟩[0m"),
            ("\u{e0041}", "⟨U+E0041⟩"),
            ("👨\u{200d}👩", "👨\u{200d}👩"),
        ] {
            assert_eq!(reveal_hidden(text), expected);
        }
    }

    #[test]
    fn an_escaped_json_text_means_the_same_value() {
        let value = serde_json::json!({"a\u{200b}": "pay \u{202e}001 \u{e0041} \u{7f}"});
        let escaped = escape_hidden_json(&value.to_string());
        assert_eq!(escaped, r#"{"a\u200b":"pay \u202e001 \udb40\udc41 \u007f"}"#);
        assert_eq!(serde_json::from_str::<serde_json::Value>(&escaped).unwrap(), value);
    }

    #[test]
    fn invisible_characters_are_found_and_scripts_kept() {
        for (text, found) in [
            ("plain", None),
            ("ünï", None),
            ("میخواهم", None),
            ("می\u{200c}خواهم", None),
            ("👨\u{200d}👩", None),
            ("❤\u{fe0f}", None),
            ("ven\u{200b}dor", Some('\u{200b}')),
            ("ven\u{200d}dor", Some('\u{200d}')),
            ("ven\u{fe0f}dor", Some('\u{fe0f}')),
            ("é\u{200d}", Some('\u{200d}')),
            ("\u{feff}w", Some('\u{feff}')),
            ("a\u{2028}b", Some('\u{2028}')),
            ("a\u{202e}b", Some('\u{202e}')),
            ("a\u{ad}b", Some('\u{ad}')),
            ("a\u{e0041}", Some('\u{e0041}')),
        ] {
            assert_eq!(first_hidden(text), found, "{text:?}");
        }
    }
}
