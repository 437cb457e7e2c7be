//! `auth.*`: names and keys as lists in one text, and settings that belong together.

use super::values::{duration, parse, path};
use crate::config::layers::ConfigLayers;
use crate::config::settings::{AuthConfig, AuthMode, Config, DidKeys};
use crate::domain::ids::did::DidKey;
use crate::domain::token::TokenSubject;
use std::time::Duration;

/// Longest leeway; a larger difference means that a clock is wrong.
const LONGEST_LEEWAY: Duration = Duration::from_mins(5);

pub(super) fn read(l: &mut ConfigLayers) -> AuthConfig {
    AuthConfig {
        mode: parse(l, "auth.mode", "`none` or `jwt`", |text| match text {
            "none" => Some(AuthMode::None),
            "jwt" => Some(AuthMode::Jwt),
            _ => None,
        }),
        audience: parse(l, "auth.audience", "names with commas between such as `did:web:trellis.example`", |text| {
            list(text, |name| (!name.chars().any(|c| c.is_whitespace() || c.is_control())).then(|| name.to_owned()))
        }),
        jwks: path(l, "auth.jwks"),
        did_keys: parse(l, "auth.did_keys", "`did:key:z6Mk…` with commas between, or `*`", |text| {
            if text.trim() == "*" { Some(DidKeys::All) } else { list(text, DidKey::parse).map(DidKeys::Only) }
        }),
        operators: parse(l, "auth.operators", "`tenant/user` or `did:key:z6Mk…` with commas between", |text| {
            list(text, |name| TokenSubject::parse(name).ok())
        }),
        authorization_servers: parse(
            l,
            "auth.authorization_servers",
            "URLs with commas between such as `https://login.example`",
            |text| list(text, server_url),
        ),
        leeway: duration(l, "auth.leeway", Duration::ZERO..=LONGEST_LEEWAY),
    }
}

/// Reads the URL of a server: a scheme, a host, perhaps a path, without `/` at its end, credentials, query and fragment.
pub(super) fn server_url(text: &str) -> Option<String> {
    let text = text.trim_end_matches('/');
    let is_plain =
        text.bytes().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'@' | b'?' | b'#' | b'"' | b'\\'));
    let place = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"))?;
    (is_plain && !place.is_empty() && !place.starts_with('/')).then(|| text.to_owned())
}

/// Parses a list separated by commas; `None` if an element is illegal.
fn list<T>(text: &str, read: impl Fn(&str) -> Option<T>) -> Option<Vec<T>> {
    if text.trim().is_empty() {
        return Some(Vec::new());
    }
    text.split(',').map(str::trim).map(|one| Some(one).filter(|one| !one.is_empty()).and_then(&read)).collect()
}

pub(super) fn check_combinations(config: &Config, clash: &mut impl FnMut([&str; 2], bool, String)) {
    let auth = &config.auth;
    let keys = |one: &TokenSubject| matches!(one, TokenSubject::Key(_));
    let nobody = auth.jwks.is_none() && auth.did_keys == DidKeys::default() && !auth.operators.iter().any(keys);
    clash(
        ["auth.jwks", "auth.mode"],
        auth.mode == AuthMode::Jwt && nobody,
        "with `auth.mode = \"jwt\"` and no key nobody could come in; expected `auth.jwks`, `auth.did_keys`, or a \
         `did:key:…` in `auth.operators`"
            .to_owned(),
    );
    clash(
        ["auth.audience", "http.listen"],
        auth.mode == AuthMode::Jwt && auth.audience.is_empty() && !config.http.listen.ip().is_loopback(),
        format!(
            "an API beyond this machine needs a name that tokens are made for; expected e.g. \
             `auth.audience = \"did:web:trellis.example\"` with `http.listen = \"{}\"`",
            config.http.listen
        ),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_urls_without_credentials_and_query() {
        let own = |text: &str| Some(text.to_owned());
        for (text, expected) in [
            ("https://t.example/", own("https://t.example")),
            ("http://t.example:80/a/", own("http://t.example:80/a")),
            ("t.example", None),
            ("https://", None),
            ("https:///a", None),
            ("ftp://t.example", None),
            ("https://u:p@t.example", None),
            ("https://t.example?x", None),
            ("https://t.example/\"", None),
        ] {
            assert_eq!(server_url(text), expected, "{text}");
        }
        assert_eq!(list("https://a, http://b/x/", server_url), Some(vec!["https://a".into(), "http://b/x".into()]));
        assert_eq!(list("https://a,,http://b", server_url), None);
    }
}
