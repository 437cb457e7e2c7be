//! Names of HTTP headers that no caller of an outgoing request may set.

/// Headers of the connection, in lower case: a caller who set them would change where a request ends or who answers it.
const CONNECTION_HEADERS: [&str; 11] = [
    "host",
    "content-length",
    "transfer-encoding",
    "connection",
    "keep-alive",
    "upgrade",
    "te",
    "trailer",
    "expect",
    "proxy-authorization",
    "accept-encoding",
];

/// Whether a header belongs to the connection and not to the caller, in upper or lower case.
pub fn is_of_connection(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    CONNECTION_HEADERS.contains(&name.as_str()) || name.starts_with("proxy-")
}

/// Whether a text is a header's name: a token of RFC 9110.
pub fn is_name(text: &str) -> bool {
    let is_token = |c: u8| c.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&c);
    !text.is_empty() && text.bytes().all(is_token)
}

/// Whether a text is legal as a header's value: one line of printable ASCII.
pub fn is_value(text: &str) -> bool {
    text.bytes().all(|c| matches!(c, b' '..=b'~' | b'\t'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_the_connection_are_known_in_any_case() {
        for (name, expected) in [
            ("Host", true),
            ("CONTENT-LENGTH", true),
            ("proxy-x", true),
            ("Keep-Alive", true),
            ("x-host", false),
            ("authorization", false),
        ] {
            assert_eq!(is_of_connection(name), expected, "{name}");
        }
    }

    #[test]
    fn a_header_stays_on_its_line() {
        for (text, name, value) in [
            ("X-Team", true, true),
            ("x_y.z~1", true, true),
            ("", false, true),
            ("a b", false, true),
            ("a:b", false, true),
            ("a\r\nb", false, false),
            ("ü", false, false),
            ("\u{7f}", false, false),
        ] {
            assert_eq!((is_name(text), is_value(text)), (name, value), "{text:?}");
        }
    }
}
