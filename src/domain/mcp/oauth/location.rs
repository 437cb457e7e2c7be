//! Where metadata is, and which URLs of a login may be used (RFC 9728, RFC 8414, Discovery of `OpenID` Connect).

use crate::limits::MCP_URL_BYTES;

/// Path of the metadata of a server, before the server's own path.
const RESOURCE_METADATA: &str = "/.well-known/oauth-protected-resource";
/// Path of the metadata of a login server.
const SERVER_METADATA: &str = "/.well-known/oauth-authorization-server";
/// Path of the same for `OpenID` Connect.
const OPENID_METADATA: &str = "/.well-known/openid-configuration";

/// Path of the page of this machine to which a login comes back.
pub const REDIRECT_PATH: &str = "/callback";

/// Path of the description of this venue as a client, below its public URL.
pub const CLIENT_METADATA_PATH: &str = "/client-metadata.json";

/// Hosts of this machine.
const LOOPBACK: [&str; 3] = ["127.0.0.1", "[::1]", "localhost"];

/// The parts of a URL `http(s)://HOST[:PORT][/PATH][?QUERY]`.
#[derive(Debug, Clone, PartialEq, Eq)]
struct UrlParts<'u> {
    scheme: &'static str,
    /// Host and port in lower case, without the port of the scheme.
    authority: String,
    /// Path with its slash, or nothing.
    path: &'u str,
    query: Option<&'u str>,
}

impl<'u> UrlParts<'u> {
    /// Splits a URL; `None` if it is none of HTTP, or has credentials, a fragment or characters that no URL has.
    fn parse(url: &'u str) -> Option<Self> {
        if url.len() > MCP_URL_BYTES || !url.bytes().all(|byte| byte.is_ascii_graphic()) || url.contains('#') {
            return None;
        }
        let (scheme, rest) = url.split_once("://")?;
        let (scheme, port) = match scheme.to_ascii_lowercase().as_str() {
            "https" => ("https", ":443"),
            "http" => ("http", ":80"),
            _ => return None,
        };
        let (authority, rest) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        let authority = authority.to_ascii_lowercase();
        if authority.is_empty() || authority.contains(['@', '\\']) {
            return None;
        }
        let authority = authority.strip_suffix(port).map_or(authority.clone(), str::to_owned);
        let (path, query) = match rest.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (rest, None),
        };
        Some(Self { scheme, authority, path, query })
    }

    fn origin(&self) -> String {
        format!("{}://{}", self.scheme, self.authority)
    }

    /// Returns the path without the slash at its end.
    fn bare_path(&self) -> &'u str {
        self.path.strip_suffix('/').unwrap_or(self.path)
    }
}

/// Returns the places of a server's metadata in the order in which they are tried, for a refusal that names none.
pub fn resource_metadata_urls(server: &str) -> Vec<String> {
    let Some(parts) = UrlParts::parse(server) else { return Vec::new() };
    let (origin, path) = (parts.origin(), parts.bare_path());
    let query = parts.query.map(|query| format!("?{query}")).unwrap_or_default();
    let mut urls = vec![format!("{origin}{RESOURCE_METADATA}{path}{query}"), format!("{origin}{RESOURCE_METADATA}")];
    urls.dedup();
    urls
}

/// Returns the places of a login server's metadata in the order in which they are tried.
pub fn issuer_metadata_urls(issuer: &str) -> Vec<String> {
    let Some(parts) = UrlParts::parse(issuer) else { return Vec::new() };
    let (origin, path) = (parts.origin(), parts.bare_path());
    let mut urls = vec![
        format!("{origin}{SERVER_METADATA}{path}"),
        format!("{origin}{OPENID_METADATA}{path}"),
        format!("{origin}{path}{OPENID_METADATA}"),
    ];
    urls.dedup();
    urls
}

/// Whether a text can be an issuer: a URL without a query.
pub fn is_issuer(text: &str) -> bool {
    UrlParts::parse(text).is_some_and(|parts| parts.query.is_none())
}

/// Whether what a server's metadata calls its resource covers the URL at which the server is called.
pub fn is_resource_of(resource: &str, server: &str) -> bool {
    let (Some(resource), Some(server)) = (UrlParts::parse(resource), UrlParts::parse(server)) else { return false };
    let below = server.path.strip_prefix(resource.bare_path());
    resource.origin() == server.origin()
        && below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        && (resource.query.is_none() || resource.query == server.query)
}

/// Whether two URLs are of one scheme, host and port.
pub fn is_same_origin(one: &str, other: &str) -> bool {
    UrlParts::parse(one).zip(UrlParts::parse(other)).is_some_and(|(one, other)| one.origin() == other.origin())
}

/// Whether a URL may be used in a login at a server: over TLS, if the server itself is.
pub fn is_usable_url(url: &str, server: &str) -> bool {
    let (Some(url), Some(server)) = (UrlParts::parse(url), UrlParts::parse(server)) else { return false };
    url.scheme == "https" || server.scheme == "http"
}

/// Whether a URL is a page of this machine to which a login may come back.
pub fn is_loopback_redirect(url: &str) -> bool {
    let Some(parts) = UrlParts::parse(url) else { return false };
    let Some((host, port)) = parts.authority.rsplit_once(':') else { return false };
    parts.scheme == "http"
        && LOOPBACK.contains(&host)
        && port.parse::<u16>().is_ok_and(|port| port > 0)
        && parts.path == REDIRECT_PATH
        && parts.query.is_none()
}

/// Returns the URL of the description of a venue as a client, which is its client id; `None` without a public URL that
/// login servers could ask.
pub fn client_metadata_url(public: &str) -> Option<String> {
    let parts = UrlParts::parse(public).filter(|parts| parts.scheme == "https" && parts.query.is_none())?;
    Some(format!("{}{}{CLIENT_METADATA_PATH}", parts.origin(), parts.bare_path()))
}

/// Returns the pages of this machine in the description of a venue as a client. The port of each login is another one,
/// which login servers must allow (RFC 8252, section 7.3).
pub fn loopback_redirects() -> Vec<String> {
    LOOPBACK.map(|host| format!("http://{host}{REDIRECT_PATH}")).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_of_a_server_is_looked_for_in_order() {
        let root = "https://h/.well-known/oauth-protected-resource";
        for (server, expected) in [
            ("https://h", vec![root.to_owned()]),
            ("https://H:443/", vec![root.to_owned()]),
            ("https://h/mcp", vec![format!("{root}/mcp"), root.to_owned()]),
            ("https://h/a/mcp/", vec![format!("{root}/a/mcp"), root.to_owned()]),
            ("https://h/mcp?k=1", vec![format!("{root}/mcp?k=1"), root.to_owned()]),
            ("ftp://h", vec![]),
        ] {
            assert_eq!(resource_metadata_urls(server), expected, "{server}");
        }
    }

    #[test]
    fn metadata_of_a_login_server_is_looked_for_in_order() {
        assert_eq!(
            issuer_metadata_urls("https://as.example"),
            [
                "https://as.example/.well-known/oauth-authorization-server",
                "https://as.example/.well-known/openid-configuration"
            ]
        );
        assert_eq!(
            issuer_metadata_urls("http://as.example:81/one/"),
            [
                "http://as.example:81/.well-known/oauth-authorization-server/one",
                "http://as.example:81/.well-known/openid-configuration/one",
                "http://as.example:81/one/.well-known/openid-configuration"
            ]
        );
        assert!(issuer_metadata_urls("https://u@as.example").is_empty());
    }

    #[test]
    fn a_resource_covers_its_own_server_alone() {
        for (resource, server, expected) in [
            ("https://h/mcp", "https://h/mcp", true),
            ("https://h", "https://h/mcp", true),
            ("https://h/", "https://h/mcp", true),
            ("https://H:443/mcp", "https://h/mcp", true),
            ("https://h/mcp/", "https://h/mcp", true),
            ("https://h/mc", "https://h/mcp", false),
            ("https://h/mcp/x", "https://h/mcp", false),
            ("https://h.evil/mcp", "https://h/mcp", false),
            ("http://h/mcp", "https://h/mcp", false),
            ("https://h:8443/mcp", "https://h/mcp", false),
            ("https://h/mcp?a", "https://h/mcp", false),
            ("https://h/mcp?a", "https://h/mcp?a", true),
            ("https://evil@h/mcp", "https://h/mcp", false),
            ("https://h/mcp#a", "https://h/mcp", false),
            ("", "https://h/mcp", false),
        ] {
            assert_eq!(is_resource_of(resource, server), expected, "{resource} {server}");
        }
    }

    #[test]
    fn urls_of_a_login_are_never_worse_than_the_server() {
        for (url, server, expected) in [
            ("https://as/token", "https://h", true),
            ("http://as/token", "https://h", false),
            ("http://as/token", "http://h", true),
            ("javascript:alert(1)", "http://h", false),
            ("file:///etc/passwd", "http://h", false),
            ("https://as/\n", "http://h", false),
            ("https://a@as/", "http://h", false),
        ] {
            assert_eq!(is_usable_url(url, server), expected, "{url} {server}");
        }
        assert!(is_issuer("https://as/x") && !is_issuer("https://as/x?y") && !is_issuer("as"));
    }

    #[test]
    fn a_login_comes_back_to_this_machine_alone() {
        for (url, expected) in [
            ("http://127.0.0.1:8765/callback", true),
            ("http://[::1]:8765/callback", true),
            ("http://localhost:1/callback", true),
            ("http://127.0.0.1/callback", false),
            ("http://127.0.0.1:0/callback", false),
            ("https://127.0.0.1:8765/callback", false),
            ("http://127.0.0.1.evil:8765/callback", false),
            ("http://evil:8765/callback", false),
            ("http://127.0.0.1:8765/callback?x", false),
            ("http://127.0.0.1:8765/other", false),
        ] {
            assert_eq!(is_loopback_redirect(url), expected, "{url}");
        }
        assert_eq!(
            client_metadata_url("https://v.example/").as_deref(),
            Some("https://v.example/client-metadata.json")
        );
        assert_eq!(client_metadata_url("http://v.example"), None);
    }
}
