//! Hosts that HTTP operations may call: a list of patterns.

/// One pattern: `host`, `host:port`, `*.domain`, `*`, `[v6]:port`. A pattern without a port matches only the port of
/// the scheme.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostRule {
    host: String,
    port: Option<u16>,
}

/// A text that is no pattern of hosts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected hosts such as `api.example.com`, `*.example.com` or `10.0.0.7:8080`, got `{found}`")]
pub struct HostRuleError {
    /// Text that was given.
    pub found: String,
}

impl HostRule {
    /// Reads one pattern.
    pub fn parse(text: &str) -> Result<Self, HostRuleError> {
        let wrong = || HostRuleError { found: text.to_owned() };
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, Some(port.parse::<u16>().map_err(|_| wrong())?)),
            Some(_) | None => (text, None),
        };
        let name = host.strip_prefix("*.").unwrap_or(host);
        let legal = name == "*" && host == "*"
            || (name.starts_with('[') && name.ends_with(']') && !name.contains(['*', '/']))
            || (!name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'.'));
        if legal && port != Some(0) { Ok(Self { host: host.to_ascii_lowercase(), port }) } else { Err(wrong()) }
    }

    /// Reads a list with commas between; an empty text is an empty list.
    pub fn list(text: &str) -> Result<Vec<Self>, HostRuleError> {
        text.split(',').map(str::trim).filter(|part| !part.is_empty()).map(Self::parse).collect()
    }

    /// Whether it names a port.
    pub const fn names_port(&self) -> bool {
        self.port.is_some()
    }

    /// Whether it matches every host, or every name of a top-level domain.
    pub fn is_broad(&self) -> bool {
        self.host == "*" || self.host.strip_prefix("*.").is_some_and(|domain| !domain.contains('.'))
    }

    /// Whether it matches the host (lower case, as in a URL) and the port of a URL. `default` is the port of the URL's
    /// scheme.
    pub fn permits(&self, host: &str, port: u16, default: u16) -> bool {
        let host = host.trim_end_matches('.');
        let named = match self.host.strip_prefix("*.") {
            Some(domain) => host.strip_suffix(domain).is_some_and(|rest| rest.len() > 1 && rest.ends_with('.')),
            None => self.host == "*" || self.host == host,
        };
        named && port == self.port.unwrap_or(default)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_permits_what_it_names_and_nothing_beside_it() {
        for (rule, host, port, permitted) in [
            ("api.example.com", "api.example.com", 443, true),
            ("API.example.com", "api.example.com", 443, true),
            ("api.example.com", "api.example.com.", 443, true),
            ("api.example.com", "api.example.com", 8443, false),
            ("api.example.com", "evil.api.example.com", 443, false),
            ("api.example.com", "api.example.com.evil.org", 443, false),
            ("api.example.com:8443", "api.example.com", 8443, true),
            ("api.example.com:8443", "api.example.com", 443, false),
            ("*.example.com", "a.b.example.com", 443, true),
            ("*.example.com", "example.com", 443, false),
            ("*.example.com", "evilexample.com", 443, false),
            ("*", "anything.org", 443, true),
            ("*", "anything.org", 22, false),
            ("127.0.0.1:80", "127.0.0.1", 80, true),
            ("[::1]:8080", "[::1]", 8080, true),
        ] {
            assert_eq!(HostRule::parse(rule).unwrap().permits(host, port, 443), permitted, "{rule} {host}:{port}");
        }
    }

    #[test]
    fn what_is_no_rule_is_refused() {
        for text in ["https://x", "x/y", "x:y", "x:0", "x:99999", "a.*.b", "**", "*.", "a b", "*x", "user@x"] {
            assert!(HostRule::parse(text).is_err(), "{text}");
        }
        assert_eq!(HostRule::list(" a.b , *.c,, ").unwrap().len(), 2);
        assert_eq!(HostRule::list("").unwrap(), []);
    }
}
