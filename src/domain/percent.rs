//! Percent-encoding: bytes that may not stand as they are become `%XX`.

use std::fmt::Write;

/// Encodes every byte of a text that isn't plain.
pub fn encode_unless(text: &str, is_plain: impl Fn(u8) -> bool) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if is_plain(byte) {
            encoded.push(char::from(byte));
        } else {
            // Writing into a text doesn't fail.
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

/// Encodes a text as a part of a path or of a form: all but letters, digits, `-`, `.`, `_` and `~`.
pub fn percent_encode(text: &str) -> String {
    encode_unless(text, |byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_unreserved_characters_stay() {
        assert_eq!(percent_encode("a/b c?d#é%2e~._-"), "a%2Fb%20c%3Fd%23%C3%A9%252e~._-");
    }
}
