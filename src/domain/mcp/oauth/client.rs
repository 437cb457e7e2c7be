//! The client that a login server knows: how it is registered, and how it shows who it is.

use super::location::loopback_redirects;
use super::metadata::MetadataError;
use crate::decode;
use crate::headers::is_value;
use crate::limits::{MCP_CLIENT_ID_BYTES, MCP_TOKEN_BYTES};
use crate::percent::percent_encode;
use crate::secret::PlainSecret;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde::{Deserialize, Serialize};

/// How a client shows who it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ClientAuthMethod {
    /// By its id alone: the proof is that of the code (PKCE).
    #[serde(rename = "none")]
    Public,
    /// By a secret in the header `Authorization`.
    #[serde(rename = "client_secret_basic")]
    Basic,
    /// By a secret in the form.
    #[serde(rename = "client_secret_post")]
    Post,
    /// By a signed token.
    #[serde(rename = "private_key_jwt")]
    PrivateKey,
}

impl ClientAuthMethod {
    /// Returns the name in metadata.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Public => "none",
            Self::Basic => "client_secret_basic",
            Self::Post => "client_secret_post",
            Self::PrivateKey => "private_key_jwt",
        }
    }

    fn from_name(name: &str) -> Option<Self> {
        [Self::Public, Self::Basic, Self::Post, Self::PrivateKey].into_iter().find(|method| method.as_str() == name)
    }

    /// Returns the method that a client asks for when it is registered; login servers that name none take `Basic`.
    pub fn for_registration(supported: Option<&[String]>) -> Self {
        let Some(supported) = supported else { return Self::Basic };
        let is_supported = |method: &Self| supported.iter().any(|name| name == method.as_str());
        [Self::Public, Self::Basic, Self::Post].into_iter().find(is_supported).unwrap_or(Self::Public)
    }

    /// Returns the method for a client with a secret; `None` if the login server takes no secrets.
    pub fn for_secret(supported: Option<&[String]>) -> Option<Self> {
        let Some(supported) = supported else { return Some(Self::Basic) };
        [Self::Basic, Self::Post].into_iter().find(|method| supported.iter().any(|name| name == method.as_str()))
    }
}

/// A client as a login server knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OauthClient {
    /// Id of the client.
    pub id: String,
    /// Authentication method at the login server.
    pub method: ClientAuthMethod,
}

/// Description of a client, in a registration or in a document of its own (RFC 7591).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ClientMetadata {
    /// URL of the document; absent in a registration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_id: Option<String>,
    /// Name that a person sees when asked for consent.
    pub client_name: String,
    /// Pages to which a login may come back.
    pub redirect_uris: Vec<String>,
    /// Grants that the client uses.
    pub grant_types: [&'static str; 2],
    /// Answers that it takes.
    pub response_types: [&'static str; 1],
    /// Authentication method at the endpoint of tokens.
    pub token_endpoint_auth_method: ClientAuthMethod,
    /// Kind of the client: a program of a person, whose pages are of the person's machine.
    pub application_type: &'static str,
}

impl ClientMetadata {
    fn new(venue: &str, redirect_uris: Vec<String>, method: ClientAuthMethod) -> Self {
        Self {
            client_id: None,
            client_name: format!("Trellis ({venue})"),
            redirect_uris,
            grant_types: ["authorization_code", "refresh_token"],
            response_types: ["code"],
            token_endpoint_auth_method: method,
            application_type: "native",
        }
    }

    /// Returns the registration of a client for one login.
    pub fn for_registration(venue: &str, redirect: &str, method: ClientAuthMethod) -> Self {
        Self::new(venue, vec![redirect.to_owned()], method)
    }

    /// Returns the document at a URL that is the id of the client.
    pub fn at_url(venue: &str, url: String) -> Self {
        Self { client_id: Some(url), ..Self::new(venue, loopback_redirects(), ClientAuthMethod::Public) }
    }
}

/// Answer to a registration.
#[derive(Deserialize)]
struct RegistrationAnswer {
    client_id: String,
    client_secret: Option<String>,
    token_endpoint_auth_method: Option<String>,
}

/// A client that a login server has registered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegisteredClient {
    /// Id and method.
    pub client: OauthClient,
    /// Secret, if it has one.
    pub secret: Option<PlainSecret>,
}

impl RegisteredClient {
    /// Reads the answer to a registration that asked for a method.
    pub fn read(body: &[u8], asked: ClientAuthMethod) -> Result<Self, MetadataError> {
        let wrong = |reason: String| MetadataError::Unreadable { what: "registration", reason };
        let answer = decode::lenient_json(body).and_then(decode::into_type::<RegistrationAnswer>);
        let answer = answer.map_err(|error| wrong(error.to_string()))?;
        let id = answer.client_id;
        if id.is_empty() || id.len() > MCP_CLIENT_ID_BYTES || id.contains(char::is_control) {
            return Err(wrong(format!("`client_id`: expected 1 to {MCP_CLIENT_ID_BYTES} printable characters")));
        }
        let secret = answer.client_secret.filter(|secret| !secret.is_empty());
        if secret.as_ref().is_some_and(|secret| secret.len() > MCP_TOKEN_BYTES || !is_value(secret)) {
            return Err(wrong(format!(
                "`client_secret`: expected at most {MCP_TOKEN_BYTES} printable ASCII characters"
            )));
        }
        let secret = secret.map(PlainSecret::new).transpose();
        let secret = secret.map_err(|error| wrong(format!("`client_secret`: {error}")))?;
        let method = match answer.token_endpoint_auth_method {
            Some(name) => {
                ClientAuthMethod::from_name(&name).filter(|method| *method != ClientAuthMethod::PrivateKey).ok_or_else(
                    || wrong("`token_endpoint_auth_method`: a method that this venue doesn't have".to_owned()),
                )?
            }
            None if secret.is_none() => ClientAuthMethod::Public,
            None => asked,
        };
        if method != ClientAuthMethod::Public && secret.is_none() {
            return Err(wrong(format!("`client_secret`: expected one for `{}`", method.as_str())));
        }
        Ok(Self { client: OauthClient { id, method }, secret })
    }
}

/// Returns id and secret as the header `Authorization` has them behind `Basic `.
pub fn basic_credentials(id: &str, secret: &str) -> String {
    BASE64_STANDARD.encode(format!("{}:{}", percent_encode(id), percent_encode(secret)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: &str, asked: ClientAuthMethod) -> Result<(String, ClientAuthMethod, bool), String> {
        let found = RegisteredClient::read(body.as_bytes(), asked).map_err(|error| error.to_string())?;
        Ok((found.client.id, found.client.method, found.secret.is_some()))
    }

    #[test]
    fn the_method_is_one_that_both_sides_have() {
        use ClientAuthMethod::{Basic, Post, Public};
        let list = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        for (supported, asked, with_secret) in [
            (None, Basic, Some(Basic)),
            (Some(list(&["client_secret_post", "client_secret_basic"])), Basic, Some(Basic)),
            (Some(list(&["client_secret_post"])), Post, Some(Post)),
            (Some(list(&["none"])), Public, None),
            (Some(list(&["tls_client_auth"])), Public, None),
        ] {
            let supported = supported.as_deref();
            assert_eq!(ClientAuthMethod::for_registration(supported), asked, "{supported:?}");
            assert_eq!(ClientAuthMethod::for_secret(supported), with_secret, "{supported:?}");
        }
    }

    #[test]
    fn a_registration_is_read_with_its_method() {
        use ClientAuthMethod::{Basic, Post, Public};
        let secret = r#""client_secret":"12345678""#;
        assert_eq!(read(r#"{"client_id":"a"}"#, Basic), Ok(("a".into(), Public, false)));
        assert_eq!(read(&format!(r#"{{"client_id":"a",{secret}}}"#), Post), Ok(("a".into(), Post, true)));
        assert_eq!(read(&format!(r#"{{"client_id":"a",{secret}}}"#), Public), Ok(("a".into(), Public, true)));
        let basic = r#""token_endpoint_auth_method":"client_secret_basic""#;
        assert_eq!(read(&format!(r#"{{"client_id":"a",{secret},{basic}}}"#), Post), Ok(("a".into(), Basic, true)));
        for (body, part) in [
            (format!(r#"{{"client_id":"a",{basic}}}"#), "expected one for `client_secret_basic`"),
            (r#"{"client_id":""}"#.to_owned(), "`client_id`"),
            (r#"{"client_id":"a\n"}"#.to_owned(), "`client_id`"),
            (r#"{"client_id":"a","client_secret":"short"}"#.to_owned(), "`client_secret`"),
            (r#"{"client_id":"a","token_endpoint_auth_method":"x"}"#.to_owned(), "doesn't have"),
            ("<html>".to_owned(), "registration"),
        ] {
            let error = read(&body, Basic).unwrap_err();
            assert!(error.contains(part) && !error.contains("short"), "{body}: {error}");
        }
        assert_eq!(basic_credentials("a:b", "c d"), BASE64_STANDARD.encode("a%3Ab:c%20d"));
    }
}
