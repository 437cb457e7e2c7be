//! Origin and host of a request, by which pages of other sites are kept out.

use super::problem::Problem;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, header};
use std::net::IpAddr;

/// Header with the site of a browser's request; see Fetch Metadata Request Headers.
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Checks the origin of a request. Without authentication everybody who can reach the API may use it, so a web page
/// must not: its requests have its own origin, or (after DNS rebinding) its own host name.
pub(super) fn check_origin(authority: Option<&Authority>, headers: &HeaderMap) -> Result<(), Problem> {
    let mut hosts = headers.get_all(header::HOST).iter();
    let host = hosts.next().and_then(|value| value.to_str().ok());
    let (Some(host), None) = (host, hosts.next()) else {
        return Err(Problem::forbidden("expected one `Host` header"));
    };
    for host in authority.map(Authority::as_str).into_iter().chain([host]) {
        if !is_loopback(host) {
            return Err(Problem::forbidden(format!(
                "host `{host}` is not allowed: without authentication only a loopback name or address is"
            )));
        }
    }
    // Some requests of forms and links have no `Origin`; newer browsers send their site instead.
    if headers.get_all(SEC_FETCH_SITE).iter().any(|site| site.as_bytes() == b"cross-site")
        && headers.get(header::ORIGIN).is_none()
    {
        return Err(Problem::forbidden(
            "a request that a page of another site makes (`Sec-Fetch-Site: cross-site`) is not allowed without authentication",
        ));
    }
    for origin in headers.get_all(header::ORIGIN) {
        let origin = origin.to_str().unwrap_or("?");
        let place = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
        if !place.is_some_and(is_loopback) {
            return Err(Problem::forbidden(format!(
                "origin `{origin}` is not allowed: without authentication only pages of a loopback address are"
            )));
        }
    }
    Ok(())
}

/// Whether a host is `localhost`, `127.…` or `[::1]`, with any port.
pub(super) fn is_loopback(authority: &str) -> bool {
    let Ok(authority) = authority.parse::<Authority>() else { return false };
    let host = authority.host();
    if authority.as_str().contains('@') {
        return false;
    }
    if host.trim_end_matches('.').eq_ignore_ascii_case("localhost") {
        return true;
    }
    // `[::1].evil` has the host `[::1]` and a rest that is no port.
    let rest = authority.as_str().strip_prefix(host);
    if !rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(':')) {
        return false;
    }
    let address = host.trim_start_matches('[').trim_end_matches(']');
    address.parse::<IpAddr>().is_ok_and(|ip| ip.to_canonical().is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_names_and_addresses_pass() {
        for (authority, expected) in [
            ("localhost", true),
            ("[::1].evil", false),
            ("[::1]evil:80", false),
            ("LOCALHOST:8420", true),
            ("localhost.:8420", true),
            ("127.0.0.1:8420", true),
            ("127.9.9.9", true),
            ("[::1]:8420", true),
            ("[::ffff:127.0.0.1]", true),
            ("evil.example", false),
            ("127.0.0.1.evil.example:8420", false),
            ("localhost.evil.example", false),
            ("evil.example@127.0.0.1", false),
            ("10.0.0.1:8420", false),
            ("0.0.0.0:8420", false),
            ("[::]:8420", false),
            ("", false),
        ] {
            assert_eq!(is_loopback(authority), expected, "{authority:?}");
        }
    }

    fn headers(entries: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in entries {
            map.append(*name, value.parse().unwrap());
        }
        map
    }

    #[test]
    fn a_page_of_another_origin_is_refused_with_the_reason() {
        let check = |entries: &[_]| check_origin(None, &headers(entries)).map_err(|p| p.detail);
        assert_eq!(check(&[("host", "127.0.0.1:1")]), Ok(()));
        assert_eq!(check(&[("host", "127.0.0.1:1"), ("origin", "http://localhost:3000")]), Ok(()));
        for (entries, part) in [
            (vec![], "expected one `Host`"),
            (vec![("host", "localhost"), ("host", "localhost")], "expected one `Host`"),
            (vec![("host", "rebound.example:8420")], "host `rebound.example:8420`"),
            (vec![("host", "localhost"), ("origin", "https://evil.example")], "origin `https://evil.example`"),
            (vec![("host", "localhost"), ("origin", "null")], "origin `null`"),
            (vec![("host", "localhost"), ("sec-fetch-site", "cross-site")], "`Sec-Fetch-Site: cross-site`"),
        ] {
            let error = check(&entries).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
        let absolute: Authority = "evil.example".parse().unwrap();
        assert!(check_origin(Some(&absolute), &headers(&[("host", "localhost")])).is_err());
    }
}
