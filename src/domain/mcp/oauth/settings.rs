//! Settings of a login: `auth` of a server in an agent file. Those of a venue have the same parts.

use super::location::is_issuer;
use super::scope::{ScopeError, check_scopes};
use crate::chat::HeaderText;
use crate::headers::is_value;
use crate::ids::secret::SecretName;
use crate::limits::MCP_CLIENT_ID_BYTES;
use serde::{Deserialize, Serialize};

/// Who logs in at a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LoginGrant {
    /// A person, in a browser.
    #[default]
    Login,
    /// The venue, with credentials of its own.
    ClientCredentials,
}

/// How a token for a server is got, where the server's metadata doesn't say all of it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LoginSettings {
    /// Who logs in.
    #[serde(default, skip_serializing_if = "is_login")]
    pub grant: LoginGrant,
    /// Login server that knows the client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issuer: Option<String>,
    /// Id of a client that was registered by hand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_id: Option<String>,
    /// Secret of that client, as a secret of the owner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_secret: Option<HeaderText>,
    /// Private key of that client in PEM, as a secret of the owner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub private_key: Option<HeaderText>,
    /// Scopes to ask for, in place of those that the server names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scopes: Option<Vec<String>>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it")]
fn is_login(grant: &LoginGrant) -> bool {
    *grant == LoginGrant::Login
}

/// Which keys of the client are given, wherever they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ClientKeys {
    /// Whether there is a client secret.
    pub has_secret: bool,
    /// Whether there is a private key.
    pub has_private: bool,
}

/// Rule that the settings of a login break; the text begins with the key below the server.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LoginSettingsError {
    /// A header of the server is its credential already.
    #[error("`auth`: expected either it or the header `Authorization`, got both: a login sets that header")]
    Header,
    /// The issuer is no URL.
    #[error(
        "`auth.issuer`: expected the URL of the login server as its metadata has it, such as `https://login.example.com`"
    )]
    Issuer,
    /// The client id is no text for a URL.
    #[error("`auth.clientId`: expected 1 to {MCP_CLIENT_ID_BYTES} printable ASCII characters")]
    ClientId,
    /// A client is known to one login server alone, and none is named.
    #[error(
        "`auth.clientId`: expected `issuer` beside it, the login server that knows this client: `issuer = \"https://login.example.com\"`"
    )]
    NoIssuer,
    /// A key needs the client that it is of.
    #[error("`auth.{key}`: expected `clientId` beside it, the client that the login server knows by this key")]
    NoClient {
        /// Key of the settings.
        key: &'static str,
    },
    /// Two keys are given.
    #[error("`auth.privateKey`: expected one of it and `clientSecret`, got both")]
    TwoKeys,
    /// A person's login uses no private key.
    #[error(
        "`auth.privateKey`: expected `grant = \"client_credentials\"` beside it; a person's login takes a `clientSecret`"
    )]
    PrivateKey,
    /// A machine's login needs a key.
    #[error("`auth.grant`: `client_credentials` expects `clientId`, and `clientSecret` or `privateKey`, beside it")]
    NoKey,
    /// A key stands in the configuration itself.
    #[error("`auth.{key}`: expected a secret, `{{\"$secret\": \"s/NAME\"}}`, without a prefix")]
    Plain {
        /// Key of the settings.
        key: &'static str,
    },
    /// The scopes are not legal.
    #[error("`auth.scopes`: {0}")]
    Scopes(#[from] ScopeError),
}

impl LoginSettings {
    /// Checks the settings of an agent's server.
    pub fn check(&self) -> Result<(), LoginSettingsError> {
        for (key, text) in [("clientSecret", &self.client_secret), ("privateKey", &self.private_key)] {
            let is_plain = |text: &HeaderText| !matches!(text, HeaderText::Secret { prefix, .. } if prefix.is_empty());
            if text.as_ref().is_some_and(is_plain) {
                return Err(LoginSettingsError::Plain { key });
            }
        }
        let (has_secret, has_private) = (self.client_secret.is_some(), self.private_key.is_some());
        self.check_with(ClientKeys { has_secret, has_private })
    }

    /// Checks the settings of a server whose client has these keys.
    pub fn check_with(&self, keys: ClientKeys) -> Result<(), LoginSettingsError> {
        if self.issuer.as_deref().is_some_and(|issuer| !is_issuer(issuer)) {
            return Err(LoginSettingsError::Issuer);
        }
        if let Some(id) = &self.client_id {
            if id.is_empty() || id.len() > MCP_CLIENT_ID_BYTES || !is_value(id) {
                return Err(LoginSettingsError::ClientId);
            }
            if self.issuer.is_none() {
                return Err(LoginSettingsError::NoIssuer);
            }
        }
        let ClientKeys { has_secret, has_private } = keys;
        for (key, is_given) in [("clientSecret", has_secret), ("privateKey", has_private)] {
            if is_given && self.client_id.is_none() {
                return Err(LoginSettingsError::NoClient { key });
            }
        }
        if has_secret && has_private {
            return Err(LoginSettingsError::TwoKeys);
        }
        match self.grant {
            LoginGrant::Login if has_private => return Err(LoginSettingsError::PrivateKey),
            LoginGrant::ClientCredentials if !has_secret && !has_private => return Err(LoginSettingsError::NoKey),
            LoginGrant::Login | LoginGrant::ClientCredentials => {}
        }
        Ok(check_scopes(self.scopes.as_deref().unwrap_or_default())?)
    }

    /// Returns the secrets of the owner that the client shows.
    pub fn secrets(&self) -> impl Iterator<Item = &SecretName> {
        [&self.client_secret, &self.private_key].into_iter().flatten().filter_map(HeaderText::secret)
    }

    /// Whether the venue logs in by itself.
    pub fn is_of_machine(&self) -> bool {
        self.grant == LoginGrant::ClientCredentials
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode;
    use serde_json::{Value, json};

    fn read(value: Value) -> Result<LoginSettings, String> {
        let settings: LoginSettings = decode::into_type(value).map_err(|error| error.to_string())?;
        settings.check().map(|()| settings).map_err(|error| error.to_string())
    }

    #[test]
    fn illegal_logins_are_named_with_what_to_write() {
        let (issuer, key) = ("https://as.example", json!({"$secret": "s/KEY"}));
        for (value, part) in [
            (json!({}), None),
            (json!({"scopes": ["a"], "issuer": issuer}), None),
            (json!({"issuer": issuer, "clientId": "c"}), None),
            (json!({"issuer": issuer, "clientId": "c", "clientSecret": key}), None),
            (json!({"grant": "client_credentials", "issuer": issuer, "clientId": "c", "clientSecret": key}), None),
            (json!({"grant": "client_credentials", "issuer": issuer, "clientId": "c", "privateKey": key}), None),
            (json!({"grant": "password"}), Some("grant")),
            (json!({"clientId": "c"}), Some("expected `issuer` beside it")),
            (json!({"issuer": "as.example"}), Some("`auth.issuer`: expected the URL")),
            (json!({"issuer": "https://as.example?x"}), Some("`auth.issuer`: expected the URL")),
            (json!({"issuer": issuer, "clientId": "a\nb"}), Some("`auth.clientId`: expected 1 to")),
            (json!({"clientSecret": key}), Some("`auth.clientSecret`: expected `clientId` beside it")),
            (json!({"issuer": issuer, "clientId": "c", "clientSecret": "plain"}), Some("expected a secret")),
            (
                json!({"issuer": issuer, "clientId": "c", "clientSecret": {"$secret": "s/K", "prefix": "x"}}),
                Some("without a prefix"),
            ),
            (json!({"issuer": issuer, "clientId": "c", "privateKey": key}), Some("`grant = \"client_credentials\"`")),
            (json!({"grant": "client_credentials"}), Some("`client_credentials` expects `clientId`")),
            (
                json!({"issuer": issuer, "clientId": "c", "clientSecret": key, "privateKey": key}),
                Some("expected one of it and `clientSecret`"),
            ),
            (json!({"scopes": ["a b"]}), Some("`auth.scopes`: expected scopes")),
        ] {
            let shown = value.to_string();
            match (read(value), part) {
                (Ok(_), None) => {}
                (Err(error), Some(part)) => assert!(error.contains(part), "{shown}: {error}"),
                (found, _) => panic!("{shown}: {found:?}"),
            }
        }
    }
}
