//! Allowed destinations of a secret: the hosts that it was bound to when it was set.

use crate::hosts::{HostRule, HostRuleError};
use serde::{Deserialize, Serialize};

/// Number of hosts of one secret at most.
const HOSTS: usize = 32;

/// Hosts that a secret may be sent to; empty = none yet.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "Vec<String>", into = "Vec<String>")]
pub struct Binding {
    hosts: Vec<String>,
    rules: Vec<HostRule>,
}

/// Destination of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Destination {
    /// Whether TLS is used.
    pub https: bool,
    /// Host as in the URL: lower case, brackets around an IPv6 address.
    pub host: String,
    /// Number of the port.
    pub port: u16,
}

impl Destination {
    /// Returns what binds a secret to this destination: its host, over plain http with its port.
    pub fn host_rule(&self) -> String {
        if self.https { self.host.clone() } else { format!("{}:{}", self.host, self.port) }
    }

    /// Returns `scheme://host:port`, for messages.
    pub fn origin(&self) -> String {
        format!("{}://{}:{}", if self.https { "https" } else { "http" }, self.host, self.port)
    }
}

/// Reason why hosts bind no secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BindingError {
    /// The list of hosts is too long.
    #[error("expected at most {HOSTS} hosts, got {found}")]
    TooMany {
        /// Number of hosts that were given.
        found: usize,
    },
    /// A text of the list is no pattern of hosts.
    #[error(transparent)]
    Rule(#[from] HostRuleError),
    /// A pattern matches every host, or every name of a top-level domain.
    #[error(
        "`{host}` is no binding: expected the hosts that the secret is for, such as `api.example.com` or \
         `*.example.com`"
    )]
    Broad {
        /// Pattern that was given.
        host: String,
    },
}

impl Binding {
    /// Reads host rules. A rule for every host, or for every name of a top-level domain, binds to nothing and is
    /// refused.
    pub fn parse(hosts: &[String]) -> Result<Self, BindingError> {
        if hosts.len() > HOSTS {
            return Err(BindingError::TooMany { found: hosts.len() });
        }
        let mut binding = Self::default();
        for host in hosts {
            let rule = HostRule::parse(host)?;
            if rule.is_broad() {
                return Err(BindingError::Broad { host: host.clone() });
            }
            if !binding.rules.contains(&rule) {
                binding.hosts.push(host.to_ascii_lowercase());
                binding.rules.push(rule);
            }
        }
        Ok(binding)
    }

    /// Returns the hosts in lower case, in the order given.
    pub fn hosts(&self) -> &[String] {
        &self.hosts
    }

    /// Whether the secret may be sent there. Without TLS the rule must name the port, as a sign that somebody decided
    /// it.
    pub fn permits(&self, to: &Destination) -> bool {
        let default = if to.https { 443 } else { 80 };
        self.rules.iter().any(|rule| (to.https || rule.names_port()) && rule.permits(&to.host, to.port, default))
    }
}

impl TryFrom<Vec<String>> for Binding {
    type Error = BindingError;
    fn try_from(hosts: Vec<String>) -> Result<Self, BindingError> {
        Self::parse(&hosts)
    }
}

impl From<Binding> for Vec<String> {
    fn from(binding: Binding) -> Self {
        binding.hosts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bound(hosts: &[&str]) -> Result<Binding, BindingError> {
        Binding::parse(&hosts.iter().map(|host| (*host).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn a_secret_goes_where_it_is_bound_and_nowhere_else() {
        for (hosts, https, host, port, permitted) in [
            (&["api.example.com"][..], true, "api.example.com", 443, true),
            (&["api.example.com"], true, "api.example.com", 8443, false),
            (&["api.example.com"], true, "evil.example.com", 443, false),
            (&["api.example.com"], true, "api.example.com.evil.org", 443, false),
            (&["api.example.com"], false, "api.example.com", 80, false),
            (&["api.example.com:80"], false, "api.example.com", 80, true),
            (&["10.0.0.7:8080"], false, "10.0.0.7", 8080, true),
            (&["10.0.0.7:8080"], true, "10.0.0.7", 8080, true),
            (&["[::1]:8080"], false, "[::1]", 8080, true),
            (&["*.example.com"], true, "a.example.com", 443, true),
            (&["*.example.com"], true, "example.com", 443, false),
            (&["a.example", "b.example"], true, "b.example", 443, true),
            (&[], true, "api.example.com", 443, false),
        ] {
            let to = Destination { https, host: host.to_owned(), port };
            assert_eq!(bound(hosts).unwrap().permits(&to), permitted, "{hosts:?} {to:?}");
        }
    }

    #[test]
    fn a_binding_without_a_place_is_refused() {
        for hosts in [&["*"][..], &["*:443"], &["*.com"], &["https://a.b"], &["a b"], &["a", "*"]] {
            assert!(bound(hosts).is_err(), "{hosts:?}");
        }
        assert!(Binding::parse(&vec!["a.b".to_owned(); 33]).is_err());
        assert_eq!(bound(&["A.b", "a.b"]).unwrap().hosts(), ["a.b"]);
    }
}
