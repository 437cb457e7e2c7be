//! URL of a declared call: scheme, host and port are fixed, and arguments stand in its path, each encoded.

use super::template::{TemplateRule, TextTemplate};
use crate::lattice::value::type_name;
use crate::limits::DECLARED_URL_BYTES;
use crate::percent::percent_encode;
use crate::visible::quote_foreign;
use serde_json::{Map, Value};
use std::collections::BTreeSet;

/// Rule that the URL of a declaration breaks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UrlTemplateRule {
    /// The URL has another scheme than those of HTTP.
    #[error("expected `http://` or `https://` and a host")]
    Scheme,
    /// The host is missing, or has characters that no host has.
    #[error("expected a host without a user, with a port below 65536 or none, got `{}`", quote_foreign(.found))]
    Host {
        /// Text in the place of the host.
        found: String,
    },
    /// An argument stands in the host or beside it.
    #[error("the host is fixed: arguments stand in the path, behind a `/`")]
    ArgumentInHost,
    /// An argument stands in the query.
    #[error("arguments of the query stand in `query`")]
    ArgumentInQuery,
    /// The URL has a character that is read differently by different programs.
    #[error("expected visible characters of ASCII without `\\` and `#`, got {found:?}")]
    Character {
        /// The first such character.
        found: char,
    },
    /// A part of the path is `.` or `..`.
    #[error("`.` and `..` are no parts of a path")]
    Dots,
    /// The URL is too long.
    #[error("expected at most {DECLARED_URL_BYTES} bytes, got {bytes}")]
    Long {
        /// Bytes of the URL.
        bytes: usize,
    },
    /// A part with arguments is malformed.
    #[error(transparent)]
    Template(#[from] TemplateRule),
}

/// Why arguments make no URL; the texts are for the model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UrlFault {
    /// The argument is missing or empty.
    #[error("argument `{}` is part of the URL: expected a value that isn't empty", quote_foreign(.name))]
    Empty {
        /// Name of the argument.
        name: String,
    },
    /// The argument is no text, number or boolean.
    #[error("argument `{}` is part of the URL: expected a text, a number or a boolean, got {found}", quote_foreign(.name))]
    Type {
        /// Name of the argument.
        name: String,
        /// Type of its value.
        found: &'static str,
    },
    /// The argument would lead to another path.
    #[error("argument `{}` is part of the URL: `.` and `..` are no parts of it", quote_foreign(.name))]
    Dots {
        /// Name of the argument.
        name: String,
    },
    /// The URL would be too long.
    #[error("the URL would have {bytes} bytes, expected at most {DECLARED_URL_BYTES}")]
    Long {
        /// Bytes of the URL.
        bytes: usize,
    },
}

/// A URL with arguments in its path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UrlTemplate {
    /// Scheme, host and port.
    origin: String,
    /// Parts of the path between its slashes.
    segments: Vec<TextTemplate>,
    /// Query with its `?`; empty without one.
    query: String,
}

impl UrlTemplate {
    /// Parses the URL of a declaration.
    pub fn parse(text: &str) -> Result<Self, UrlTemplateRule> {
        if text.len() > DECLARED_URL_BYTES {
            return Err(UrlTemplateRule::Long { bytes: text.len() });
        }
        // Programs disagree about these, and so about where the host ends.
        if let Some(found) = text.chars().find(|c| !c.is_ascii_graphic() || matches!(c, '\\' | '#')) {
            return Err(UrlTemplateRule::Character { found });
        }
        let scheme = ["https://", "http://"].into_iter().find(|scheme| text.starts_with(scheme));
        let scheme = scheme.ok_or(UrlTemplateRule::Scheme)?;
        let rest = &text[scheme.len()..];
        let (host, rest) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        if host.contains(['{', '}']) {
            return Err(UrlTemplateRule::ArgumentInHost);
        }
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | ':' | '[' | ']' | '_');
        let port = host.rsplit_once(':').filter(|_| !host.ends_with(']')).map(|(_, port)| port);
        let has_port = port.is_none_or(|port| port.parse::<u16>().is_ok());
        if host.is_empty() || host.starts_with(':') || !has_port || !host.chars().all(is_plain) {
            return Err(UrlTemplateRule::Host { found: host.to_owned() });
        }
        let (path, query) = rest.split_at(rest.find('?').unwrap_or(rest.len()));
        if query.contains(['{', '}']) {
            return Err(UrlTemplateRule::ArgumentInQuery);
        }
        let segments = path.strip_prefix('/').unwrap_or(path).split('/');
        let segments = segments.map(|segment| {
            if is_dots(segment) {
                return Err(UrlTemplateRule::Dots);
            }
            Ok(TextTemplate::parse(segment)?)
        });
        let segments = segments.collect::<Result<_, _>>()?;
        Ok(Self { origin: format!("{scheme}{host}"), segments, query: query.to_owned() })
    }

    /// Returns scheme, host and port.
    pub fn origin(&self) -> &str {
        &self.origin
    }

    /// Returns the names of the arguments in the path.
    pub fn names(&self) -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        self.segments.iter().for_each(|segment| segment.add_names(&mut names));
        names
    }

    /// Returns the bytes of the path with arguments of these sizes, before they are encoded.
    pub fn filled_bytes(&self, size_of: &dyn Fn(&str) -> usize) -> usize {
        self.segments.iter().map(|segment| segment.filled_bytes(size_of)).sum()
    }

    /// Returns the URL with the arguments, each encoded.
    pub fn fill(&self, arguments: &Map<String, Value>) -> Result<String, UrlFault> {
        let mut url = self.origin.clone();
        for segment in &self.segments {
            let filled = segment.try_fill(|name| encoded_argument(arguments, name))?;
            // Together, arguments may make what none of them is alone; some servers decode slashes in a part.
            let mut parts = filled.split("%2F").flat_map(|part| part.split("%5C"));
            if segment.has_arguments() && parts.any(is_dots) {
                let mut names = BTreeSet::new();
                segment.add_names(&mut names);
                return Err(UrlFault::Dots { name: names.into_iter().collect::<Vec<_>>().join(", ") });
            }
            url.push('/');
            url.push_str(&filled);
        }
        url.push_str(&self.query);
        if url.len() > DECLARED_URL_BYTES {
            return Err(UrlFault::Long { bytes: url.len() });
        }
        Ok(url)
    }

    /// Returns the path up to the first part with an argument, as the most general URL that calls go to.
    pub fn fixed_part(&self) -> String {
        let mut url = self.origin.clone();
        for segment in self.segments.iter().take_while(|segment| !segment.has_arguments()) {
            url.push('/');
            url.push_str(&segment.fill(&Map::new(), str::to_owned));
        }
        url
    }
}

/// Whether a part of a path means the same or the upper folder, also with its dots encoded.
fn is_dots(segment: &str) -> bool {
    let plain = segment.to_ascii_lowercase().replace("%2e", ".");
    plain == "." || plain == ".."
}

/// Returns an argument encoded for a path. One that a server could decode to another path is refused.
fn encoded_argument(arguments: &Map<String, Value>, name: &str) -> Result<String, UrlFault> {
    let text = match arguments.get(name) {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(value @ (Value::Bool(_) | Value::Number(_))) => value.to_string(),
        Some(value @ (Value::Array(_) | Value::Object(_))) => {
            return Err(UrlFault::Type { name: name.to_owned(), found: type_name(value) });
        }
    };
    if text.is_empty() {
        return Err(UrlFault::Empty { name: name.to_owned() });
    }
    if text.contains(['/', '\\']) && text.split(['/', '\\']).any(is_dots) {
        return Err(UrlFault::Dots { name: name.to_owned() });
    }
    Ok(percent_encode(&text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn fill(url: &str, arguments: Value) -> Result<String, String> {
        let Value::Object(arguments) = arguments else { panic!("expected a map") };
        UrlTemplate::parse(url).unwrap().fill(&arguments).map_err(|error| error.to_string())
    }

    #[test]
    fn arguments_are_encoded_and_stay_in_their_part_of_the_path() {
        for (url, arguments, expected) in [
            ("https://a.example/o/{id}", json!({"id": "x y/z?q#f"}), "https://a.example/o/x%20y%2Fz%3Fq%23f"),
            ("https://a.example/o/{id}/r?v=1", json!({"id": 7}), "https://a.example/o/7/r?v=1"),
            (
                "http://127.0.0.1:8080/{a}-{b}.json",
                json!({"a": true, "b": "é"}),
                "http://127.0.0.1:8080/true-%C3%A9.json",
            ),
            ("https://a.example", json!({}), "https://a.example/"),
            ("https://a.example/{id}", json!({"id": "...."}), "https://a.example/...."),
            ("https://a.example/{id}", json!({"id": "@evil.example"}), "https://a.example/%40evil.example"),
        ] {
            assert_eq!(fill(url, arguments).as_deref(), Ok(expected), "{url}");
        }
        for (url, arguments, part) in [
            ("https://a.example/o/{id}", json!({}), "expected a value that isn't empty"),
            ("https://a.example/o/{id}", json!({"id": ""}), "expected a value that isn't empty"),
            ("https://a.example/o/{id}", json!({"id": ["x"]}), "got array"),
            ("https://a.example/o/{id}", json!({"id": ".."}), "`.` and `..` are no parts of it"),
            ("https://a.example/o/{id}", json!({"id": "."}), "`.` and `..` are no parts of it"),
            ("https://a.example/o/{id}", json!({"id": "a/../../admin"}), "`.` and `..` are no parts of it"),
            ("https://a.example/o/{id}", json!({"id": "a\\..\\b"}), "`.` and `..` are no parts of it"),
            ("https://a.example/o/.{id}", json!({"id": "."}), "`.` and `..` are no parts of it"),
            ("https://a.example/o/%2e{id}", json!({"id": "."}), "`.` and `..` are no parts of it"),
            ("https://a.example/o/{id}{n}{n}", json!({"id": "x/", "n": "."}), "`.` and `..` are no parts of it"),
            ("https://a.example/o/{id}", json!({"id": "x".repeat(9_000)}), "expected at most 8192"),
        ] {
            let error = fill(url, arguments).unwrap_err();
            assert!(error.contains(part), "{url}: {error}");
        }
    }

    #[test]
    fn a_template_never_leaves_its_host() {
        for (url, part) in [
            ("https://{host}/o", "the host is fixed"),
            ("https://a.example{path}", "the host is fixed"),
            ("https://a.example:{port}/o", "the host is fixed"),
            ("{url}", "expected `http://` or `https://`"),
            ("//a.example/o", "expected `http://` or `https://`"),
            ("file:///etc/{x}", "expected `http://` or `https://`"),
            ("https:///o", "expected a host"),
            ("https://user@a.example/o", "without a user"),
            ("https://a.example:65536/o", "a port below 65536"),
            ("https://a.example:/o", "a port below 65536"),
            ("https://a.example\\{x}", "without `\\` and `#`"),
            ("https://a.example/o#{x}", "without `\\` and `#`"),
            ("https://a.example/ o", "without `\\` and `#`"),
            ("https://\u{e9}.example/o", "visible characters of ASCII"),
            ("https://a.example/o?id={id}", "stand in `query`"),
            ("https://a.example/../{id}", "are no parts of a path"),
            ("https://a.example/%2E%2e/{id}", "are no parts of a path"),
            ("https://a.example/{id", "a brace without its partner"),
        ] {
            let error = UrlTemplate::parse(url).unwrap_err().to_string();
            assert!(error.contains(part), "{url}: {error}");
        }
    }

    #[test]
    fn the_fixed_part_ends_before_the_first_argument() {
        for (url, expected) in [
            ("https://a.example/v1/o/{id}/r", "https://a.example/v1/o"),
            ("https://a.example/{id}", "https://a.example"),
            ("https://a.example/v1?x=1", "https://a.example/v1"),
        ] {
            assert_eq!(UrlTemplate::parse(url).unwrap().fixed_part(), expected, "{url}");
        }
    }
}
