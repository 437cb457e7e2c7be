//! The proxy of outgoing calls: `models.proxy` and `http_client.proxy`.

use super::mask::mask_value;
use crate::domain::visible::check_line;
use hyper::Uri;
use hyper_util::client::proxy::matcher::Matcher;
use reqwest::Url;
use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

/// Hosts called without a proxy: on another machine these names would mean the proxy itself.
const LOOPBACK: &str = "localhost,127.0.0.0/8,::1";
/// Names of the variables that are read; the first that is set counts.
const HTTP: [&str; 2] = ["HTTP_PROXY", "http_proxy"];
const HTTPS: [&str; 2] = ["HTTPS_PROXY", "https_proxy"];
const ALL: [&str; 2] = ["ALL_PROXY", "all_proxy"];
const NO: [&str; 2] = ["NO_PROXY", "no_proxy"];
/// Set for programs that a web server starts: their `HTTP_PROXY` is a header of the request.
const CGI: &str = "REQUEST_METHOD";

/// The proxies of calls to `http://` and `https://` URLs. They are never shown with their login.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ProxySettings {
    /// Proxy for `http://` URLs.
    pub http: Option<Url>,
    /// Proxy for `https://` URLs.
    pub https: Option<Url>,
    /// Hosts that are called without it, separated by commas as in `NO_PROXY`.
    pub exceptions: String,
}

/// Reason why a setting names no proxy. It shows no part of a URL that may be a password.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProxyError {
    /// Name of the variable that has the URL; `None` if the setting has it.
    pub variable: Option<String>,
    /// Reason without the name of the variable.
    pub fault: ProxyFault,
}

impl fmt::Display for ProxyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.variable {
            Some(name) => write!(f, "`{name}`: {}", self.fault),
            None => self.fault.fmt(f),
        }
    }
}

impl std::error::Error for ProxyError {}

/// Reason why a URL is no proxy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProxyFault {
    /// The text is not a URL.
    #[error("{reason}")]
    Syntax {
        /// Text of the parser.
        reason: String,
    },
    /// The proxy speaks another protocol.
    #[error("only proxies at `http://` and `https://` are spoken to")]
    Scheme,
    /// Something follows host and port, maybe the rest of a password.
    #[error("a proxy has no path; `/`, `?`, `#` and `@` of a password are written `%2F`, `%3F`, `%23` and `%40`")]
    Path,
    /// The client would ignore the URL.
    #[error("the client can't use it")]
    Unusable,
}

impl fmt::Debug for ProxySettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = |url: &Option<Url>| url.as_ref().map(|url| mask_value("proxy", url.as_str()));
        f.debug_struct("ProxySettings")
            .field("http", &place(&self.http))
            .field("https", &place(&self.https))
            .field("exceptions", &self.exceptions)
            .finish()
    }
}

impl ProxySettings {
    /// Parses `none`, `environment` (the variables `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY` and `NO_PROXY`, in capitals
    /// or not) or a URL.
    pub fn parse(text: &str, exceptions: &str, variables: &BTreeMap<String, String>) -> Result<Self, ProxyError> {
        let (http, https, others) = match text {
            "none" => return Ok(Self::default()),
            "environment" => {
                let all = first_variable(&ALL, variables);
                let one = |names| first_variable(names, variables).or(all);
                let is_cgi = variables.contains_key(CGI);
                let http = if is_cgi { one(&HTTP[1..]) } else { one(&HTTP) };
                let read = |given: Option<(&str, &str)>| {
                    let parse = |(name, text): (&str, &str)| {
                        let named = |fault| ProxyError { variable: Some(name.to_owned()), fault };
                        parse_variable(text).map_err(named)
                    };
                    given.map(parse).transpose()
                };
                (read(http)?, read(one(&HTTPS))?, first_variable(&NO, variables).map_or("", |(_, text)| text))
            }
            url => {
                let url = proxy_url(url).map_err(|fault| ProxyError { variable: None, fault })?;
                (Some(url.clone()), Some(url), "")
            }
        };
        let exceptions = [LOOPBACK, others, exceptions].into_iter().filter(|list| !list.trim().is_empty());
        Ok(Self { http, https, exceptions: exceptions.collect::<Vec<_>>().join(",") })
    }

    /// Returns the rules by which the client chooses a proxy for a URL.
    pub fn matcher(&self) -> Matcher {
        let text = |url: &Option<Url>| url.as_ref().map(Url::to_string).unwrap_or_default();
        Matcher::builder().http(text(&self.http)).https(text(&self.https)).no(self.exceptions.as_str()).build()
    }
}

/// Whether each exception can match a host: a network has no more bits than its addresses, and no host has a blank or
/// an invisible character. The client ignores invalid ones silently.
pub fn check_exceptions(text: &str) -> bool {
    text.split(',').map(str::trim).all(|exception| {
        let is_network = |(address, bits): (&str, &str)| {
            let most = match address.parse() {
                Ok(IpAddr::V4(_)) => 32,
                Ok(IpAddr::V6(_)) => 128,
                Err(_) => return false,
            };
            bits.bytes().all(|digit| digit.is_ascii_digit()) && bits.parse::<u8>().is_ok_and(|bits| bits <= most)
        };
        !exception.contains(char::is_whitespace)
            && check_line(exception).is_ok()
            && exception.split_once('/').is_none_or(is_network)
    })
}

/// Returns the first of these variables that is set, with its name; an empty one counts as not set.
fn first_variable<'v>(names: &[&'v str], variables: &'v BTreeMap<String, String>) -> Option<(&'v str, &'v str)> {
    let set = names.iter().find_map(|name| Some((*name, variables.get(*name)?.trim())));
    set.filter(|(_, text)| !text.is_empty())
}

/// Parses a proxy of the environment, which may lack the scheme.
fn parse_variable(text: &str) -> Result<Url, ProxyFault> {
    if text.contains("://") { proxy_url(text) } else { proxy_url(&format!("http://{text}")) }
}

fn proxy_url(text: &str) -> Result<Url, ProxyFault> {
    let url = Url::parse(text).map_err(|error| ProxyFault::Syntax { reason: error.to_string() })?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(ProxyFault::Scheme);
    }
    if !matches!(url.path(), "" | "/") || url.query().is_some() || url.fragment().is_some() {
        return Err(ProxyFault::Path);
    }
    // The client would silently ignore a URL that it can't parse.
    let matcher = Matcher::builder().all(url.to_string()).build();
    match matcher.intercept(&Uri::from_static("http://example.com/")) {
        Some(_) => Ok(url),
        None => Err(ProxyFault::Unusable),
    }
}
