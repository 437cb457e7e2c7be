//! The challenge of a refusal: `WWW-Authenticate` with the scheme `Bearer` (RFC 6750, RFC 9728).

/// What a server wants of a client that it refuses.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BearerChallenge {
    /// URL of the server's metadata.
    pub resource_metadata: Option<String>,
    /// Scopes that the request needs, with blanks between.
    pub scope: Option<String>,
    /// Code of the error, such as `insufficient_scope`.
    pub error: Option<String>,
}

impl BearerChallenge {
    /// Reads the first challenge of the scheme `Bearer` in the text of the header; `None` if there is none.
    pub fn read(header: &str) -> Option<Self> {
        let mut found: Option<Self> = None;
        let mut is_bearer = false;
        for item in split_list(header) {
            let (head, rest) = item.split_at(item.find([' ', '\t', '=']).unwrap_or(item.len()));
            let mut parameter = item;
            if !rest.trim_start().starts_with('=') {
                if found.is_some() {
                    break;
                }
                is_bearer = head.eq_ignore_ascii_case("bearer");
                found = is_bearer.then(Self::default);
                parameter = rest.trim_start();
            }
            if let (Some(challenge), true) = (&mut found, is_bearer) {
                challenge.add(parameter);
            }
        }
        found
    }

    /// Adds a parameter `name=value`; the first one of a name counts.
    fn add(&mut self, parameter: &str) {
        let Some((name, value)) = parameter.split_once('=') else { return };
        let place = match name.trim().to_ascii_lowercase().as_str() {
            "resource_metadata" => &mut self.resource_metadata,
            "scope" => &mut self.scope,
            "error" => &mut self.error,
            _ => return,
        };
        if place.is_none() {
            *place = Some(unquote(value.trim()));
        }
    }

    /// Whether the token lacks scopes.
    pub fn is_about_scopes(&self) -> bool {
        self.error.as_deref() == Some("insufficient_scope")
    }
}

/// Returns the items between commas that stand in no quotes.
fn split_list(text: &str) -> Vec<&str> {
    let (mut items, mut start, mut is_quoted, mut is_escaped) = (Vec::new(), 0, false, false);
    for (at, sign) in text.char_indices() {
        match sign {
            _ if is_escaped => is_escaped = false,
            '\\' if is_quoted => is_escaped = true,
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => {
                items.push(text[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    items.push(text[start..].trim());
    items.retain(|item| !item.is_empty());
    items
}

/// Returns the text of a token or of a quoted string.
fn unquote(value: &str) -> String {
    let Some(inner) = value.strip_prefix('"') else { return value.to_owned() };
    let mut text = String::with_capacity(inner.len());
    let mut signs = inner.chars();
    while let Some(sign) = signs.next() {
        match sign {
            '"' => break,
            '\\' => text.extend(signs.next()),
            other => text.push(other),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(header: &str) -> Option<[Option<String>; 3]> {
        BearerChallenge::read(header).map(|found| [found.resource_metadata, found.scope, found.error])
    }

    fn texts(parts: [&str; 3]) -> [Option<String>; 3] {
        parts.map(|part| Some(part.to_owned()).filter(|part| !part.is_empty()))
    }

    #[test]
    fn a_challenge_is_read_in_all_its_forms() {
        for (header, expected) in [
            ("Bearer", Some(texts(["", "", ""]))),
            (r#"Bearer resource_metadata="https://h/m", scope="a b""#, Some(texts(["https://h/m", "a b", ""]))),
            (r#"bearer error=insufficient_scope,scope = "a""#, Some(texts(["", "a", "insufficient_scope"]))),
            (r#"Basic realm="x, Bearer scope=\"no\"", Bearer scope="yes""#, Some(texts(["", "yes", ""]))),
            (r#"Bearer scope="a", Basic realm="b", scope="c""#, Some(texts(["", "a", ""]))),
            (r#"Bearer scope="a", scope="b""#, Some(texts(["", "a", ""]))),
            (r#"Bearer scope="a, b\"c", error="x""#, Some(texts(["", "a, b\"c", "x"]))),
            (r#"Bearer scope="open"#, Some(texts(["", "open", ""]))),
            (r#"Bearer SCOPE="a""#, Some(texts(["", "a", ""]))),
            (", ,Bearer scope=a, ", Some(texts(["", "a", ""]))),
            ("Basic realm=x", None),
            ("Bearers scope=x", None),
            ("scope=x", None),
            ("", None),
        ] {
            assert_eq!(read(header), expected, "{header}");
        }
    }
}
