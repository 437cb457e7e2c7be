//! The client of a login: the configured one, else the URL of the venue's description, else one that is registered for it.

use super::client_key::configured_key;
use super::discover::LoginMetadata;
use super::place::{ClientKey, LoginPlace, LoginRequest, LoginTools};
use crate::domain::mcp::oauth::client::{ClientAuthMethod, ClientMetadata, OauthClient, RegisteredClient};
use crate::domain::mcp::oauth::metadata::MetadataError;
use crate::domain::visible::quote_foreign;
use crate::venue::failure::OpError;

/// The venue as login servers see it.
#[derive(Clone, Copy)]
pub(crate) struct VenueClient<'a> {
    /// Name of the venue.
    pub(crate) name: &'a str,
    /// URL of its description; `None` without a public URL.
    pub(crate) url: Option<&'a str>,
}

/// Chooses the client of a person's login that comes back to `redirect`.
pub(super) async fn choose_client(
    tools: LoginTools<'_>,
    place: &LoginPlace<'_>,
    found: &LoginMetadata,
    redirect: &str,
    venue: VenueClient<'_>,
) -> Result<RegisteredClient, OpError> {
    if let Some(client) = configured_client(tools, place, found).await? {
        return Ok(RegisteredClient { client, secret: None });
    }
    if let (true, Some(url)) = (found.issuer.client_id_metadata_document_supported, venue.url) {
        let client = OauthClient { id: url.to_owned(), method: ClientAuthMethod::Public };
        return Ok(RegisteredClient { client, secret: None });
    }
    let Some(url) = &found.issuer.registration_endpoint else {
        return Err(place.upstream(&format!(
            "its login server `{}` registers no clients by itself: register one there, with the redirect \
             `http://127.0.0.1/callback`, and set `auth` with its `issuer` and `clientId`",
            found.issuer.issuer
        )));
    };
    let asked = ClientAuthMethod::for_registration(found.issuer.token_endpoint_auth_methods_supported.as_deref());
    let body = serde_json::to_vec(&ClientMetadata::for_registration(venue.name, redirect, asked));
    let body = body.map_err(|error| OpError::Failed(error.to_string()))?;
    let answer = place.fetch(url, LoginRequest::post(body, "application/json")).await?;
    if !matches!(answer.status, 200 | 201) {
        let said = String::from_utf8_lossy(&answer.body).chars().take(300).collect::<String>();
        let said = quote_foreign(&said);
        return Err(place.upstream(&format!(
            "its login server registers no client: status {} {said}; register one there and set `auth` with its `issuer` \
             and `clientId`",
            answer.status
        )));
    }
    RegisteredClient::read(&answer.body, asked).map_err(|error| place.upstream(&error))
}

/// Returns the client of the configuration, with the method that its key and the login server have in common.
pub(super) async fn configured_client(
    tools: LoginTools<'_>,
    place: &LoginPlace<'_>,
    found: &LoginMetadata,
) -> Result<Option<OauthClient>, OpError> {
    let Some(id) = place.auth().and_then(|auth| auth.client_id.clone()) else { return Ok(None) };
    let token_url = found.issuer.token_url().map_err(|error: MetadataError| place.upstream(&error))?;
    let supported = found.issuer.token_endpoint_auth_methods_supported.as_deref();
    let method = match configured_key(tools, place, token_url).await? {
        None => ClientAuthMethod::Public,
        Some(ClientKey::Private(_)) => ClientAuthMethod::PrivateKey,
        Some(ClientKey::Secret(_)) => ClientAuthMethod::for_secret(supported).ok_or_else(|| {
            let names = supported.unwrap_or_default().join(", ");
            place.upstream(&format!("its login server takes no client secret, but {}", quote_foreign(&names)))
        })?,
    };
    Ok(Some(OauthClient { id, method }))
}
