//! Masks credentials where configuration is shown.

use crate::domain::visible::{beginning, is_secret_name};

const HIDDEN: &str = "***";

/// Most bytes of a value in an error.
const ERROR_VALUE_BYTES: usize = 400;

/// Start of the login of Sentinels in `store.url`.
const SENTINEL_LOGIN: &str = "?sentinel_";

/// Returns `url` without its user and password, and without everything behind the path; comma-separated URLs are masked
/// one by one. (A comma may be in a password, and between the hosts of one URL.)
pub fn mask_url(url: &str) -> String {
    let one = |url: &str| match url.split_once("://") {
        Some((scheme, rest)) if scheme.starts_with("redis") => format!("{scheme}://{}", redis_place(rest)),
        Some((scheme, rest)) => format!("{scheme}://{}", without_query(&mask_login(rest), &['?', '#'])),
        None => url.to_owned(),
    };
    let mut urls: Vec<String> = Vec::new();
    for part in url.split(',') {
        match urls.last_mut() {
            Some(before) if !part.contains("://") => *before = format!("{before},{part}"),
            _ => urls.push(part.to_owned()),
        }
    }
    urls.iter().map(|url| one(url)).collect::<Vec<_>>().join(",")
}

/// Returns what follows the scheme, without user and password.
fn mask_login(rest: &str) -> String {
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    // A password may contain an unescaped `/`, so the last `@` counts if the authority has none.
    match rest[..end].rfind('@').or_else(|| rest.rfind('@')) {
        Some(at) => format!("{HIDDEN}{}", &rest[at..]),
        None => format!("{}{}", mask_ports(&rest[..end]), &rest[end..]),
    }
}

/// Masks hosts with their ports, separated by `,`: text behind a `:` that is no port is a password whose host is
/// missing.
fn mask_ports(text: &str) -> String {
    let host = |host: &str| match host.rsplit_once(':') {
        Some((name, port)) if port.parse::<u16>().is_err() && !name.starts_with('[') => format!("{name}:{HIDDEN}"),
        Some(_) | None => host.to_owned(),
    };
    text.split(',').map(host).collect::<Vec<_>>().join(",")
}

/// Masks a URL of Redis: the Sentinels' login is at the end, and may be misspelled.
fn redis_place(rest: &str) -> String {
    let login = rest.find(SENTINEL_LOGIN);
    if login.is_some_and(|login| rest[login..].contains('@')) {
        return HIDDEN.to_owned();
    }
    without_query(&mask_login(rest), &['?', '#', '&', ';'])
}

fn without_query(place: &str, ends: &[char]) -> String {
    match place.find(ends) {
        Some(end) => format!("{}?{HIDDEN}", &place[..end]),
        None => place.to_owned(),
    }
}

/// Returns the value of `key` as it may be shown: keys named `…key`, `…secret`, `…token` and `…password` are hidden,
/// URLs lose their credentials, also misspelt ones.
pub fn mask_value(key: &str, value: &str) -> String {
    if (is_secret_name(key) || key.ends_with("key")) && !value.is_empty() {
        return HIDDEN.to_owned();
    }
    let is_url = ["url", "proxy"].iter().any(|name| key.ends_with(name));
    if let Some((_, place)) = value.rsplit_once('@').filter(|_| is_url && !has_scheme(value)) {
        return format!("{HIDDEN}@{place}");
    }
    if value.contains("://") { mask_url(value) } else { value.to_owned() }
}

/// [`mask_value`] on one line of an error: control characters are escaped, and the length is limited.
pub(super) fn error_value(key: &str, value: &str) -> String {
    let masked = mask_value(key, value);
    let escape = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
    beginning(masked.chars().map(escape).collect(), ERROR_VALUE_BYTES)
}

/// Whether a scheme is where [`mask_url`] expects it.
fn has_scheme(url: &str) -> bool {
    let is_scheme = |scheme: &str| scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
    url.starts_with("embedded:") || url.split_once("://").is_some_and(|(scheme, _)| is_scheme(scheme))
}
