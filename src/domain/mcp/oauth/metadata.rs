//! Metadata of servers and of login servers: which can be used (RFC 9728, RFC 8414).

use super::location::{is_issuer, is_resource_of, is_same_origin, is_usable_url};
use super::scope::check_scopes;
use crate::decode;
use crate::limits::MCP_ISSUERS;
use crate::visible::quote_foreign;
use serde::Deserialize;

/// Method of the proof of a code that is left once plain ones are refused.
const S256: &str = "S256";

/// Why metadata can't be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MetadataError {
    /// The answer is no legal metadata.
    #[error("its {what} can't be read: {reason}")]
    Unreadable {
        /// Kind of the answer.
        what: &'static str,
        /// Reason of the failure.
        reason: String,
    },
    /// The metadata is of another server.
    #[error("its metadata is of {}, expected the server's own URL; no login begins there", quote_foreign(.found))]
    OtherResource {
        /// What it names as its resource.
        found: String,
    },
    /// No login server is named.
    #[error("its metadata names no login server (`authorization_servers`)")]
    NoIssuer,
    /// The configured login server isn't among those that the server names.
    #[error(
        "it takes tokens of {}, and `auth.issuer` is `{expected}`: the credentials of one login server go to no other",
        quote_foreign(.found)
    )]
    OtherIssuer {
        /// Login servers that the server names.
        found: String,
        /// Login server of the configuration.
        expected: String,
    },
    /// A login server says that it is another one.
    #[error("the metadata of the login server `{expected}` says that it is {}; it isn't used", quote_foreign(.found))]
    FalseIssuer {
        /// Issuer that its metadata names.
        found: String,
        /// Login server that was asked.
        expected: String,
    },
    /// A URL in the metadata can't be used.
    #[error(
        "`{key}` of its login server: expected an `https://` URL, got {}; nothing was opened", quote_foreign(.found)
    )]
    Url {
        /// Key of the metadata.
        key: &'static str,
        /// URL that it has.
        found: String,
    },
    /// A URL is missing.
    #[error("its login server has no `{key}`")]
    NoUrl {
        /// Key of the metadata.
        key: &'static str,
    },
    /// Nothing would show that an answer is of another login server.
    #[error(
        "the login server `{issuer}` sends people to a page of another host, {}, and its answers don't say whose they are \
         (RFC 9207): no login begins, unless the configuration says that the login server is right: `auth.issuer`",
        quote_foreign(.page)
    )]
    OtherPage {
        /// Login server whose page it is.
        issuer: String,
        /// URL of its page.
        page: String,
    },
    /// Codes would not be protected.
    #[error(
        "its login server doesn't say that it proves codes by S256 (`code_challenge_methods_supported`), so that a stolen \
         code would count; no login begins"
    )]
    NoProof,
}

fn read<T: serde::de::DeserializeOwned>(what: &'static str, body: &[u8]) -> Result<T, MetadataError> {
    let value = decode::lenient_json(body).and_then(decode::into_type);
    value.map_err(|error| MetadataError::Unreadable { what, reason: error.to_string() })
}

fn check_list(what: &'static str, scopes: Option<&[String]>) -> Result<(), MetadataError> {
    check_scopes(scopes.unwrap_or_default())
        .map_err(|error| MetadataError::Unreadable { what, reason: format!("`scopes_supported`: {error}") })
}

/// What a server says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ResourceMetadata {
    /// Identifier of the server, which goes to the login server as it stands.
    pub resource: String,
    #[serde(default)]
    authorization_servers: Vec<String>,
    /// Scopes that requests to the server need.
    pub scopes_supported: Option<Vec<String>>,
}

impl ResourceMetadata {
    /// Reads the metadata of the server at a URL.
    pub fn read(body: &[u8], server: &str) -> Result<Self, MetadataError> {
        let found: Self = read("metadata", body)?;
        if !is_resource_of(&found.resource, server) {
            return Err(MetadataError::OtherResource { found: found.resource });
        }
        check_list("metadata", found.scopes_supported.as_deref())?;
        Ok(found)
    }

    /// Returns the login server to use: the configured one, if the server names it, else the first.
    pub fn issuer(&self, configured: Option<&str>, server: &str) -> Result<&str, MetadataError> {
        let named = &self.authorization_servers[..self.authorization_servers.len().min(MCP_ISSUERS)];
        let issuer = match configured {
            None => named.first().ok_or(MetadataError::NoIssuer)?,
            Some(expected) => named
                .iter()
                .find(|issuer| *issuer == expected)
                .ok_or_else(|| MetadataError::OtherIssuer { found: named.join(", "), expected: expected.to_owned() })?,
        };
        if !is_issuer(issuer) || !is_usable_url(issuer, server) {
            return Err(MetadataError::Url { key: "authorization_servers", found: issuer.clone() });
        }
        Ok(issuer)
    }
}

/// What a login server says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct IssuerMetadata {
    /// Identifier of the login server.
    pub issuer: String,
    /// URL that a person opens.
    pub authorization_endpoint: Option<String>,
    /// URL of tokens.
    pub token_endpoint: Option<String>,
    /// URL of registrations.
    pub registration_endpoint: Option<String>,
    /// Scopes that it knows.
    pub scopes_supported: Option<Vec<String>>,
    #[serde(default)]
    code_challenge_methods_supported: Vec<String>,
    /// How clients may show who they are.
    pub token_endpoint_auth_methods_supported: Option<Vec<String>>,
    /// Whether its answers say that they are of it (RFC 9207).
    #[serde(default)]
    pub authorization_response_iss_parameter_supported: bool,
    /// Whether the id of a client may be the URL of its description.
    #[serde(default)]
    pub client_id_metadata_document_supported: bool,
}

impl IssuerMetadata {
    /// Reads the metadata of the login server `expected`, for a server at a URL. The identifiers are compared as they
    /// stand.
    pub fn read(body: &[u8], expected: &str, server: &str) -> Result<Self, MetadataError> {
        let mut found: Self = read("login server's metadata", body)?;
        if found.issuer != expected {
            return Err(MetadataError::FalseIssuer { found: found.issuer, expected: expected.to_owned() });
        }
        // Only `offline_access` of it is looked for: a long list is no reason to refuse the login server.
        if check_list("login server's metadata", found.scopes_supported.as_deref()).is_err() {
            found.scopes_supported = None;
        }
        for (key, url) in [
            ("authorization_endpoint", &found.authorization_endpoint),
            ("token_endpoint", &found.token_endpoint),
            ("registration_endpoint", &found.registration_endpoint),
        ] {
            if let Some(url) = url.as_ref().filter(|url| !is_usable_url(url, server)) {
                return Err(MetadataError::Url { key, found: url.clone() });
            }
        }
        Ok(found)
    }

    /// Returns the URL of tokens.
    pub fn token_url(&self) -> Result<&str, MetadataError> {
        self.token_endpoint.as_deref().ok_or(MetadataError::NoUrl { key: "token_endpoint" })
    }

    /// Returns the URL that a person opens. A login server that doesn't prove codes gets nobody; nor does one that sends people
    /// to another host's page and doesn't mark its answers, unless the configuration names it.
    pub fn page_url(&self, is_configured: bool) -> Result<&str, MetadataError> {
        if !self.code_challenge_methods_supported.iter().any(|method| method == S256) {
            return Err(MetadataError::NoProof);
        }
        let page = self.authorization_endpoint.as_deref();
        let page = page.ok_or(MetadataError::NoUrl { key: "authorization_endpoint" })?;
        let is_known = self.authorization_response_iss_parameter_supported || is_configured;
        if !is_known && !is_same_origin(page, &self.issuer) {
            return Err(MetadataError::OtherPage { issuer: self.issuer.clone(), page: page.to_owned() });
        }
        Ok(page)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    const SERVER: &str = "https://h/mcp";

    fn issuer_of(metadata: &Value, configured: Option<&str>) -> Result<String, String> {
        let read = ResourceMetadata::read(metadata.to_string().as_bytes(), SERVER);
        let read = read.map_err(|error| error.to_string())?;
        read.issuer(configured, SERVER).map(str::to_owned).map_err(|error| error.to_string())
    }

    fn page_of(change: &Value) -> Result<String, String> {
        let mut metadata = json!({
            "issuer": "https://as/one", "authorization_endpoint": "https://as/go", "token_endpoint": "https://as/token",
            "code_challenge_methods_supported": ["plain", "S256"], "more": [[1]]
        });
        metadata.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        let read = IssuerMetadata::read(metadata.to_string().as_bytes(), "https://as/one", SERVER);
        let read = read.map_err(|error| error.to_string())?;
        read.page_url(false).map(str::to_owned).map_err(|error| error.to_string())
    }

    fn check(found: Result<String, String>, expected: Result<&str, &str>) {
        match (found, expected) {
            (Ok(found), Ok(expected)) => assert_eq!(found, expected),
            (Err(error), Err(part)) => assert!(error.contains(part), "{error}"),
            (found, expected) => panic!("{found:?}, expected {expected:?}"),
        }
    }

    #[test]
    fn a_server_names_its_login_servers() {
        let servers = |list: Value| json!({"resource": SERVER, "authorization_servers": list});
        let two = servers(json!(["https://as", "https://other"]));
        check(issuer_of(&two, None), Ok("https://as"));
        check(issuer_of(&two, Some("https://other")), Ok("https://other"));
        check(issuer_of(&two, Some("https://as/")), Err("it takes tokens of "));
        check(issuer_of(&servers(json!([])), None), Err("names no login server"));
        check(issuer_of(&json!({"resource": SERVER}), None), Err("names no login server"));
        check(issuer_of(&servers(json!(["http://as"])), None), Err("expected an `https://` URL"));
        check(issuer_of(&servers(json!(["javascript:x"])), None), Err("expected an `https://` URL"));
        check(issuer_of(&json!({"resource": "https://evil/mcp"}), None), Err("its metadata is of "));
        check(issuer_of(&json!([]), None), Err("its metadata can't be read"));
        let long = json!({"resource": SERVER, "scopes_supported": ["x".repeat(1 << 20)]});
        check(issuer_of(&long, None), Err("`scopes_supported`"));
    }

    #[test]
    fn a_login_server_is_the_one_that_was_asked() {
        check(page_of(&json!({})), Ok("https://as/go"));
        for issuer in ["https://as/one/", "https://AS/one", "https://as:443/one", "https://as", "https://evil/one"] {
            check(page_of(&json!({"issuer": issuer})), Err("says that it is"));
        }
        check(page_of(&json!({"code_challenge_methods_supported": ["plain"]})), Err("proves codes by S256"));
        check(page_of(&json!({"code_challenge_methods_supported": null})), Err("can't be read"));
        check(page_of(&json!({"authorization_endpoint": null})), Err("has no `authorization_endpoint`"));
        check(page_of(&json!({"authorization_endpoint": "javascript:alert(1)"})), Err("nothing was opened"));
        check(page_of(&json!({"token_endpoint": "http://as/token"})), Err("`token_endpoint`"));
        let other = json!({"authorization_endpoint": "https://honest/go"});
        check(page_of(&other), Err("sends people to a page of another host"));
        let mut marked = other.clone();
        marked["authorization_response_iss_parameter_supported"] = true.into();
        check(page_of(&marked), Ok("https://honest/go"));
        let read = json!({
            "issuer": "https://as/one", "authorization_endpoint": "https://honest/go",
            "code_challenge_methods_supported": ["S256"]
        });
        let read = IssuerMetadata::read(read.to_string().as_bytes(), "https://as/one", SERVER).unwrap();
        assert_eq!(read.page_url(true), Ok("https://honest/go"));
        check(page_of(&json!({"scopes_supported": ["a b"]})), Ok("https://as/go"));
    }
}
