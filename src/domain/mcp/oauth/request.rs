//! What is asked of a login server: the URL that a person opens, and the forms for tokens.

use super::client::{ClientAuthMethod, OauthClient};
use super::scope::wants_offline;
use crate::ids::secret::SecretName;
use crate::percent::percent_encode;
use crate::secret::{Mask, PlainSecret};
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};
use std::fmt;
use zeroize::Zeroizing;

/// Type of a client's signed token (RFC 7523).
const JWT_BEARER: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";

/// A login that a person is asked for.
#[derive(Debug, Clone, Copy)]
pub struct AuthorizationRequest<'a> {
    /// URL of the login server.
    pub endpoint: &'a str,
    /// Id of the client.
    pub client: &'a str,
    /// Page to which the login comes back.
    pub redirect: &'a str,
    /// Server for which the tokens are.
    pub resource: &'a str,
    /// Scopes to ask for; none are those that the login server gives by itself.
    pub scopes: &'a [String],
    /// Text by which the answer is recognised.
    pub state: &'a str,
    /// Text that proves who asked.
    pub verifier: &'a str,
}

impl AuthorizationRequest<'_> {
    /// Returns the URL that a person opens.
    pub fn url(&self) -> String {
        let scopes = self.scopes.join(" ");
        let proof = proof_of(self.verifier);
        let mut pairs = vec![
            ("response_type", "code"),
            ("client_id", self.client),
            ("redirect_uri", self.redirect),
            ("state", self.state),
            ("code_challenge", &proof),
            ("code_challenge_method", "S256"),
            ("resource", self.resource),
        ];
        if !scopes.is_empty() {
            pairs.push(("scope", &scopes));
        }
        if wants_offline(self.scopes) {
            pairs.push(("prompt", "consent"));
        }
        let sign = if self.endpoint.contains('?') { '&' } else { '?' };
        format!("{}{sign}{}", self.endpoint, encode_pairs(&pairs))
    }
}

/// Returns what a verifier is compared with (RFC 7636, S256).
fn proof_of(verifier: &str) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(verifier))
}

fn encode_pairs(pairs: &[(&str, &str)]) -> String {
    let pairs: Vec<String> = pairs.iter().map(|(key, value)| format!("{key}={}", percent_encode(value))).collect();
    pairs.join("&")
}

/// A form that is posted for a token. It is never printed: it holds codes and secrets.
pub struct GrantForm(Vec<(&'static str, Zeroizing<String>)>);

impl fmt::Debug for GrantForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(key, _)| key)).finish()
    }
}

impl GrantForm {
    fn new(pairs: &[(&'static str, &str)]) -> Self {
        Self(pairs.iter().map(|(key, value)| (*key, Zeroizing::new((*value).to_owned()))).collect())
    }

    /// Makes the form for the code of a login.
    pub fn of_code(code: &str, verifier: &str, redirect: &str, resource: &str) -> Self {
        Self::new(&[
            ("grant_type", "authorization_code"),
            ("code", code),
            ("redirect_uri", redirect),
            ("code_verifier", verifier),
            ("resource", resource),
        ])
    }

    /// Makes the form that renews a token.
    pub fn of_renewal(refresh: &str, resource: &str) -> Self {
        Self::new(&[("grant_type", "refresh_token"), ("refresh_token", refresh), ("resource", resource)])
    }

    /// Makes the form of a machine.
    pub fn of_machine(scopes: &[String], resource: &str) -> Self {
        let mut form = Self::new(&[("grant_type", "client_credentials"), ("resource", resource)]);
        if !scopes.is_empty() {
            form.add("scope", scopes.join(" "));
        }
        form
    }

    /// Adds what is secret in the form to what is masked in answers.
    pub fn add_to_mask(&self, mask: &mut Mask) {
        let name = SecretName::new("login").expect("a word is a name");
        let is_secret = |key: &str| matches!(key, "code" | "code_verifier" | "refresh_token" | "client_assertion");
        for (_, value) in self.0.iter().filter(|(key, _)| is_secret(key)) {
            // What is shorter than any secret can't be told from other text.
            if let Ok(secret) = PlainSecret::new(value.as_str().to_owned()) {
                mask.add(&name, &secret);
            }
        }
    }

    fn add(&mut self, key: &'static str, value: String) {
        self.0.push((key, Zeroizing::new(value)));
    }

    /// Adds who the client is. Its id is named with every method: the official Python SDK looks the client up by the form
    /// before it reads the header. `key` is its secret, or its signed token.
    #[must_use]
    pub fn with_client(mut self, client: &OauthClient, key: Option<&str>) -> Self {
        self.add("client_id", client.id.clone());
        match (client.method, key) {
            (ClientAuthMethod::PrivateKey, Some(token)) => {
                self.add("client_assertion_type", JWT_BEARER.to_owned());
                self.add("client_assertion", token.to_owned());
            }
            (ClientAuthMethod::Post, Some(secret)) => self.add("client_secret", secret.to_owned()),
            (ClientAuthMethod::Basic | ClientAuthMethod::Public, _) | (_, None) => {}
        }
        self
    }

    /// Returns the body of the request.
    pub fn encode(&self) -> Zeroizing<String> {
        let pairs: Vec<(&str, &str)> = self.0.iter().map(|(key, value)| (*key, value.as_str())).collect();
        Zeroizing::new(encode_pairs(&pairs))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_url_of_a_login_has_its_proof_and_its_server() {
        // The verifier and its proof are the example of RFC 7636.
        let request = AuthorizationRequest {
            endpoint: "https://as/go",
            client: "https://v/client-metadata.json",
            redirect: "http://127.0.0.1:9/callback",
            resource: "https://h/mcp",
            scopes: &[],
            state: "s",
            verifier: "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk",
        };
        let url = request.url();
        let rest = "response_type=code&client_id=https%3A%2F%2Fv%2Fclient-metadata.json\
            &redirect_uri=http%3A%2F%2F127.0.0.1%3A9%2Fcallback&state=s\
            &code_challenge=E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM&code_challenge_method=S256\
            &resource=https%3A%2F%2Fh%2Fmcp";
        assert_eq!(url, format!("https://as/go?{rest}"));
        let scopes = ["a".to_owned(), "offline_access".to_owned()];
        let url = AuthorizationRequest { endpoint: "https://as/go?x=1", scopes: &scopes, ..request }.url();
        assert_eq!(url, format!("https://as/go?x=1&{rest}&scope=a%20offline_access&prompt=consent"));
    }

    #[test]
    fn a_form_names_the_client_as_its_method_does() {
        let client = |method| OauthClient { id: "me".to_owned(), method };
        let form = || GrantForm::of_machine(&["a".to_owned()], "https://h");
        let begin = "grant_type=client_credentials&resource=https%3A%2F%2Fh&scope=a";
        for (method, key, rest) in [
            (ClientAuthMethod::Public, None, "&client_id=me"),
            (ClientAuthMethod::Basic, Some("k&k"), "&client_id=me"),
            (ClientAuthMethod::Post, Some("k&k"), "&client_id=me&client_secret=k%26k"),
            (
                ClientAuthMethod::PrivateKey,
                Some("t"),
                "&client_id=me&client_assertion_type=urn%3Aietf%3Aparams%3Aoauth%3Aclient-assertion-type%3Ajwt-bearer&client_assertion=t",
            ),
        ] {
            let form = form().with_client(&client(method), key);
            assert_eq!(*form.encode(), format!("{begin}{rest}"));
            assert!(!format!("{form:?}").contains("k&k"));
        }
        let form = GrantForm::of_renewal("r", "https://h").encode();
        assert_eq!(*form, "grant_type=refresh_token&refresh_token=r&resource=https%3A%2F%2Fh");
    }
}
