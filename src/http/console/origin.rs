//! Origin of the console's forms: only its own pages may change something.

use axum::http::{HeaderMap, header};

/// Whether a request was made by a page of the address that it was sent to. `public` is the address under which clients
/// know the API. Without an `Origin`, only `Sec-Fetch-Site: same-origin` proves it.
pub(super) fn is_same_origin(headers: &HeaderMap, public: &str) -> bool {
    let mut origins = headers.get_all(header::ORIGIN).iter();
    let Some(origin) = origins.next() else {
        return headers.get("sec-fetch-site").is_some_and(|site| site.as_bytes() == b"same-origin");
    };
    let (Ok(origin), None) = (origin.to_str(), origins.next()) else { return false };
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let place = origin.strip_prefix("https://").or_else(|| origin.strip_prefix("http://"));
    origin == public || place.is_some() && place == host
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pages_of_the_same_origin_pass() {
        for (entries, expected) in [
            (&[("host", "h:1"), ("origin", "http://h:1")][..], true),
            (&[("host", "h:1"), ("origin", "https://h:1")], true),
            (&[("host", "inner:1"), ("origin", "https://public.example")], true),
            (&[("host", "h:1"), ("sec-fetch-site", "same-origin")], true),
            (&[("host", "h:1"), ("origin", "http://h:2")], false),
            (&[("host", "h:1"), ("origin", "null"), ("sec-fetch-site", "same-origin")], false),
            (&[("host", "h:1"), ("origin", "http://h:1"), ("origin", "http://evil")], false),
            (&[("host", "h:1"), ("sec-fetch-site", "same-site")], false),
            (&[("host", "h:1")], false),
            (&[("origin", "ftp://h:1")], false),
        ] {
            let mut headers = HeaderMap::new();
            for (name, value) in entries {
                headers.append(*name, value.parse().unwrap());
            }
            assert_eq!(is_same_origin(&headers, "https://public.example"), expected, "{entries:?}");
        }
    }
}
