//! What is stored of logins: those that people have begun, and the tokens that came of them.

use super::client::OauthClient;
use crate::decode;
use crate::ids::{AgentId, sha256_hex};
use crate::limits::{MCP_REFUSAL_PAUSE, MCP_TOKEN_MARGIN};
use crate::mcp::name::ServerName;
use crate::secret::{PlainSecret, SecretRecord};
use crate::time::Millis;
use crate::visible::quote_foreign;
use serde::{Deserialize, Serialize};

/// A login at a server: for whom it is, and the tokens, sealed. Its credentials go to the login server of its issuer and to
/// no other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServerLogin {
    /// URL of the server that gets the token.
    pub url: String,
    /// Login server that gave the tokens.
    pub issuer: String,
    /// Identifier of the server at the login server.
    pub resource: String,
    /// URL that renews the token.
    pub token_url: String,
    /// Client that the login server knows.
    pub client: OauthClient,
    /// Scopes that were asked for.
    pub asked: Vec<String>,
    /// Scopes that were given.
    pub scopes: Vec<String>,
    /// Scopes that a call lacked since.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lacking: Vec<String>,
    /// Who logged in.
    pub by: String,
    /// Time of the login.
    pub since: Millis,
    /// Time at which the token ends; `None` if the login server has named none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Millis>,
    /// Whether the token can be renewed without a person.
    pub is_renewable: bool,
    /// End of the time for which one process alone renews the token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claimed: Option<Millis>,
    /// Time at which a token was last replaced because the server refused it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<Millis>,
    /// Tokens; `None` once they count no longer.
    pub sealed: Option<SecretRecord>,
}

impl ServerLogin {
    /// Whether the token should be renewed by now.
    pub fn is_due(&self, now: Millis) -> bool {
        self.until.is_some_and(|until| until <= now.plus(MCP_TOKEN_MARGIN))
    }

    /// Whether the token has ended.
    pub fn has_ended(&self, now: Millis) -> bool {
        self.until.is_some_and(|until| until <= now)
    }

    /// Whether a process renews the token now.
    pub fn is_claimed(&self, now: Millis) -> bool {
        self.claimed.is_some_and(|until| until > now)
    }

    /// Whether a refused token was replaced a short time ago: a server that refuses each token would have the login server
    /// asked with each call.
    pub fn is_just_replaced(&self, now: Millis) -> bool {
        self.refused.is_some_and(|at| now < at.plus(MCP_REFUSAL_PAUSE))
    }
}

/// The values of a login that nobody sees.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct LoginSecrets {
    /// Token that goes with requests; the verifier of a login that has begun.
    pub access: PlainSecret,
    /// Token that renews it.
    pub refresh: Option<PlainSecret>,
    /// Secret of a client that was registered for the login.
    pub client_secret: Option<PlainSecret>,
}

/// The same as it is sealed.
#[derive(Serialize)]
struct SealedParts<'a> {
    access: &'a str,
    refresh: Option<&'a str>,
    client_secret: Option<&'a str>,
}

impl LoginSecrets {
    /// Returns the text to seal.
    pub fn to_text(&self) -> PlainSecret {
        let parts = SealedParts {
            access: self.access.reveal(),
            refresh: self.refresh.as_ref().map(PlainSecret::reveal),
            client_secret: self.client_secret.as_ref().map(PlainSecret::reveal),
        };
        let text = serde_json::to_string(&parts).expect("texts are JSON");
        PlainSecret::new(text).expect("the parts are bounded, and a map is longer than the shortest secret")
    }

    /// Reads the text that was sealed; `None` if a build wrote it that knew more.
    pub fn from_text(text: &PlainSecret) -> Option<Self> {
        decode::read_stored(text.reveal().as_bytes()).ok()
    }
}

/// A login that a person has begun and hasn't ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BegunLogin {
    /// Name of the server.
    pub server: ServerName,
    /// Agent that declares it; `None` for one of the venue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentId>,
    /// URL of the server.
    pub url: String,
    /// Login server that the person was sent to.
    pub issuer: String,
    /// Whether its answer must say that it is of it.
    pub has_issuer_mark: bool,
    /// Identifier of the server at the login server.
    pub resource: String,
    /// URL that gives the tokens.
    pub token_url: String,
    /// Client that the login server knows.
    pub client: OauthClient,
    /// Page to which the login comes back.
    pub redirect: String,
    /// Scopes that were asked for.
    pub asked: Vec<String>,
    /// Time at which it is too late.
    pub until: Millis,
    /// Verifier of the code, and the secret of a client that was registered for it.
    pub sealed: SecretRecord,
}

/// Why the answer to a login isn't taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LoginAnswerError {
    /// The answer comes too late.
    #[error("the login has taken too long; begin again")]
    Late,
    /// The answer is of another server's login.
    #[error("the login was begun for another server")]
    OtherServer,
    /// The answer doesn't say who gave it.
    #[error("the answer of the login server `{expected}` doesn't say that it is of it (`iss`), so its code isn't used")]
    NoIssuer {
        /// Login server that the person was sent to.
        expected: String,
    },
    /// The answer says that another login server gave it.
    #[error("the answer is of {}, expected `{expected}`; its code isn't used", quote_foreign(.found))]
    OtherIssuer {
        /// Login server that the answer names.
        found: String,
        /// Login server that the person was sent to.
        expected: String,
    },
}

impl BegunLogin {
    /// Checks the answer to a login: `iss` is compared as it stands (RFC 9207).
    pub fn check_answer(
        &self,
        server: &ServerName,
        agent: Option<&AgentId>,
        iss: Option<&str>,
        now: Millis,
    ) -> Result<(), LoginAnswerError> {
        if self.until <= now {
            return Err(LoginAnswerError::Late);
        }
        if self.server != *server || self.agent.as_ref() != agent {
            return Err(LoginAnswerError::OtherServer);
        }
        let expected = || self.issuer.clone();
        match iss {
            None if self.has_issuer_mark => Err(LoginAnswerError::NoIssuer { expected: expected() }),
            Some(found) if found != self.issuer => {
                Err(LoginAnswerError::OtherIssuer { found: found.to_owned(), expected: expected() })
            }
            None | Some(_) => Ok(()),
        }
    }
}

/// Returns the name under which a begun login is stored: its state itself is known to whoever has the URL.
pub fn state_hash(state: &str) -> String {
    sha256_hex(state.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::super::client::ClientAuthMethod;
    use super::*;
    use serde_json::json;

    fn secret(text: &str) -> PlainSecret {
        PlainSecret::new(text.to_owned()).unwrap()
    }

    fn begun_login() -> BegunLogin {
        let sealed = json!({
            "key": "k", "nonce": "", "sealed": "", "hosts": [], "created": 1, "updated": 1, "version": 1
        });
        BegunLogin {
            server: ServerName::new("hub").unwrap(),
            agent: None,
            url: "https://h/mcp".into(),
            issuer: "https://as".into(),
            has_issuer_mark: false,
            resource: "https://h/mcp".into(),
            token_url: "https://as/token".into(),
            client: OauthClient { id: "me".into(), method: ClientAuthMethod::Public },
            redirect: "http://127.0.0.1:1/callback".into(),
            asked: Vec::new(),
            until: Millis(1_000),
            sealed: serde_json::from_value(sealed).unwrap(),
        }
    }

    #[test]
    fn an_answer_is_of_the_login_that_was_begun() {
        let (hub, other) = (ServerName::new("hub").unwrap(), ServerName::new("other").unwrap());
        let marked = || BegunLogin { has_issuer_mark: true, ..begun_login() };
        let evil = LoginAnswerError::OtherIssuer { found: "https://as/".into(), expected: "https://as".into() };
        for (login, server, iss, now, expected) in [
            (begun_login(), &hub, None, 999, Ok(())),
            (begun_login(), &hub, Some("https://as"), 1, Ok(())),
            (marked(), &hub, Some("https://as"), 1, Ok(())),
            (marked(), &hub, None, 1, Err(LoginAnswerError::NoIssuer { expected: "https://as".into() })),
            (begun_login(), &hub, Some("https://as/"), 1, Err(evil.clone())),
            (marked(), &hub, Some("https://as/"), 1, Err(evil)),
            (begun_login(), &other, None, 1, Err(LoginAnswerError::OtherServer)),
            (begun_login(), &hub, None, 1_000, Err(LoginAnswerError::Late)),
        ] {
            assert_eq!(login.check_answer(server, None, iss, Millis(now)), expected, "{iss:?}");
        }
        let agent = AgentId::new("a").unwrap();
        let other = begun_login().check_answer(&hub, Some(&agent), None, Millis(1));
        assert_eq!(other, Err(LoginAnswerError::OtherServer));
    }

    #[test]
    fn secrets_come_back_as_they_were_sealed() {
        let secrets =
            LoginSecrets { access: secret("access-\"1\""), refresh: Some(secret("refresh-12")), client_secret: None };
        assert_eq!(LoginSecrets::from_text(&secrets.to_text()), Some(secrets));
        assert_eq!(LoginSecrets::from_text(&secret("no JSON of a login")), None);
    }
}
