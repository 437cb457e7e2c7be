//! Host and origin of a request to `/mcp`, where tokens are needed; without tokens the guard checks both.

use crate::http::HttpOptions;
use crate::http::origin::is_loopback;
use crate::http::problem::Problem;
use axum::http::{HeaderMap, header};

/// Checks the host of a request, where `http.public` names one, and the origin of a browser's page.
pub(super) fn check(options: &HttpOptions, headers: &HeaderMap) -> Result<(), Problem> {
    if !options.auth.is_required() {
        return Ok(());
    }
    let public = options.public.as_deref().and_then(place_of);
    check_places(public, headers)
}

fn check_places(public: Option<&str>, headers: &HeaderMap) -> Result<(), Problem> {
    let mut hosts = headers.get_all(header::HOST).iter();
    let host = hosts.next().and_then(|host| host.to_str().ok());
    if hosts.next().is_some() {
        return Err(Problem::forbidden("expected one `Host` header"));
    }
    if let Some(public) = public {
        let host = host.unwrap_or_default();
        if !is_loopback(host) && !without_port(host).eq_ignore_ascii_case(public) {
            return Err(Problem::forbidden(format!(
                "host `{host}` is not allowed: expected `{public}` (`http.public`)"
            )));
        }
    }
    for origin in headers.get_all(header::ORIGIN) {
        let origin = origin.to_str().unwrap_or("?");
        let place = place_of(origin).unwrap_or_default();
        let own = public.or(host.map(without_port)).unwrap_or_default();
        if !is_loopback(place) && !place.eq_ignore_ascii_case(own) {
            let text =
                format!("origin `{origin}` is not allowed: expected a page of `{own}`, or a client that is no page");
            return Err(Problem::forbidden(text));
        }
    }
    Ok(())
}

/// Returns a host without the port that its scheme has anyway: some proxies name it.
fn without_port(host: &str) -> &str {
    [":443", ":80"].into_iter().find_map(|port| host.strip_suffix(port)).unwrap_or(host)
}

/// Returns host and port of a URL with `http` or `https`, without the port that its scheme has anyway.
fn place_of(url: &str) -> Option<&str> {
    let (rest, port) = match (url.strip_prefix("https://"), url.strip_prefix("http://")) {
        (Some(rest), _) => (rest, ":443"),
        (None, Some(rest)) => (rest, ":80"),
        (None, None) => return None,
    };
    let place = rest.split('/').next().unwrap_or(rest);
    Some(place.strip_suffix(port).unwrap_or(place))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_public_host_and_its_pages_pass() {
        let public = place_of("https://trellis.example:443/x");
        assert_eq!(public, Some("trellis.example"));
        for (public, entries, is_allowed) in [
            (public, vec![("host", "trellis.example")], true),
            (public, vec![("host", "trellis.example:443")], true),
            (public, vec![("host", "trellis.example:8443")], false),
            (public, vec![("host", "trellis.example"), ("host", "evil.example")], false),
            (public, vec![], false),
            (public, vec![("host", "127.0.0.1:8420")], true),
            (public, vec![("host", "evil.example")], false),
            (public, vec![("host", "trellis.example"), ("origin", "https://Trellis.example")], true),
            (public, vec![("host", "trellis.example"), ("origin", "http://localhost:3000")], true),
            (public, vec![("host", "trellis.example"), ("origin", "https://evil.example")], false),
            (public, vec![("host", "trellis.example"), ("origin", "null")], false),
            (None, vec![("host", "any.example:8420")], true),
            (None, vec![("host", "any.example:8420"), ("origin", "http://any.example:8420")], true),
            (None, vec![("host", "any.example:443"), ("origin", "https://any.example")], true),
            (None, vec![("host", "any.example:8420"), ("origin", "https://evil.example")], false),
        ] {
            let mut headers = HeaderMap::new();
            for (name, value) in &entries {
                headers.append(*name, value.parse().unwrap());
            }
            assert_eq!(check_places(public, &headers).is_ok(), is_allowed, "{public:?} {entries:?}");
        }
    }
}
