//! Tokens that the venue gets with its own credentials, without a person.

use super::client_choice::configured_client;
use super::discover::discover;
use super::keeper::{HeldToken, LoginTerms};
use super::peer_login::challenged_scopes;
use super::place::{LoginPlace, LoginTools};
use super::token_request::{TokenFailure, TokenRequester, request_token};
use crate::domain::mcp::oauth::challenge::BearerChallenge;
use crate::domain::mcp::oauth::request::GrantForm;
use crate::venue::failure::OpError;

/// Gets a token for what a server wants; `earlier` are scopes of the last one. It isn't stored yet.
pub(super) async fn request_machine_token(
    tools: LoginTools<'_>,
    place: &LoginPlace<'_>,
    challenge: &BearerChallenge,
    earlier: &[String],
) -> Result<HeldToken, TokenFailure> {
    let found = discover(place, Some(challenge)).await?;
    let client = configured_client(tools, place, &found).await?;
    let client = client.ok_or_else(|| OpError::Invalid("`auth`: expected `clientId`".to_owned()))?;
    let token_url = found.issuer.token_url().map_err(|error| place.upstream(&error))?;
    let asked = challenged_scopes(place, challenge, found.resource.scopes_supported.as_deref(), earlier, None)?;
    let form = GrantForm::of_machine(&asked, &found.resource.resource);
    let issuer = &found.issuer.issuer;
    let requester = TokenRequester { client: &client, registered: None, issuer, token_url };
    let grant = request_token(tools, place, form, &requester).await?;
    let terms = LoginTerms {
        url: place.settings.url.clone(),
        issuer: issuer.clone(),
        resource: found.resource.resource.clone(),
        token_url: token_url.to_owned(),
        client: client.clone(),
        asked,
    };
    let mut held = HeldToken::new(terms, "the venue", None, grant, tools.clock.now());
    held.login.is_renewable = true;
    Ok(held)
}
