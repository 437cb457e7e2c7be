//! One request for tokens.

use super::client_key::{configured_key, sign_client};
use super::place::{ClientKey, LoginPlace, LoginRequest, LoginTools};
use crate::domain::ids::secret::SecretName;
use crate::domain::mcp::oauth::client::{ClientAuthMethod, OauthClient, basic_credentials};
use crate::domain::mcp::oauth::request::GrantForm;
use crate::domain::mcp::oauth::token::{TokenGrant, TokenRefusal};
use crate::domain::secret::{Mask, PlainSecret};
use crate::venue::failure::OpError;
use crate::venue::outbound::send::header_value;
use reqwest::header;

/// Who asks for tokens, and where.
pub(super) struct TokenRequester<'a> {
    pub(super) client: &'a OauthClient,
    /// Secret of a client that was registered for the login.
    pub(super) registered: Option<&'a PlainSecret>,
    pub(super) issuer: &'a str,
    pub(super) token_url: &'a str,
}

/// Why there are no tokens.
pub(super) enum TokenFailure {
    /// The login server takes the code or the refresh token no more.
    Grant(OpError),
    /// Any other reason.
    Other(OpError),
}

impl From<OpError> for TokenFailure {
    fn from(error: OpError) -> Self {
        Self::Other(error)
    }
}

impl From<TokenFailure> for OpError {
    fn from(failure: TokenFailure) -> Self {
        match failure {
            TokenFailure::Grant(error) | TokenFailure::Other(error) => error,
        }
    }
}

/// Asks for tokens. Errors show nothing secret of the request, even if the login server repeats it.
pub(super) async fn request_token(
    tools: LoginTools<'_>,
    place: &LoginPlace<'_>,
    form: GrantForm,
    requester: &TokenRequester<'_>,
) -> Result<TokenGrant, TokenFailure> {
    let TokenRequester { client, registered, issuer, token_url } = requester;
    let key = match (configured_key(tools, place, token_url).await?, registered) {
        (Some(ClientKey::Secret(secret)), _) => Some(secret),
        (Some(ClientKey::Private(key)), _) => Some(sign_client(&key, client, issuer, tools.clock.now().0 / 1_000)?),
        (None, Some(secret)) => Some((*secret).clone()),
        (None, None) => None,
    };
    let form = form.with_client(client, key.as_ref().map(PlainSecret::reveal));
    let mut request = LoginRequest::post(form.encode().as_bytes().to_vec(), "application/x-www-form-urlencoded");
    let mut mask = Mask::default();
    form.add_to_mask(&mut mask);
    if let Some(key) = &key {
        mask.add(&SecretName::new("client").expect("a word is a name"), key);
        if client.method == ClientAuthMethod::Basic {
            let mut value = header_value(&format!("Basic {}", basic_credentials(&client.id, key.reveal())))?;
            value.set_sensitive(true);
            request.headers.insert(header::AUTHORIZATION, value);
        }
    }
    let answer = place.fetch(token_url, request).await?;
    TokenGrant::read(answer.status, &answer.body).map_err(|refusal: TokenRefusal| {
        // The texts of errors are cut: what is to be masked must be whole.
        let masked = mask.text(&String::from_utf8_lossy(&answer.body)).into_owned();
        let refusal = TokenGrant::read(answer.status, masked.as_bytes()).err().unwrap_or(refusal);
        let error = place.upstream(&refusal);
        if refusal.is_of_grant() { TokenFailure::Grant(error) } else { TokenFailure::Other(error) }
    })
}
