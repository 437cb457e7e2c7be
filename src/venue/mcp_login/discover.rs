//! What a server and its login server say of logins there.

use super::place::{LoginPlace, LoginRequest};
use crate::domain::mcp::oauth::challenge::BearerChallenge;
use crate::domain::mcp::oauth::location::{issuer_metadata_urls, resource_metadata_urls};
use crate::domain::mcp::oauth::metadata::{IssuerMetadata, ResourceMetadata};
use crate::venue::failure::OpError;

/// What is said of a server that perhaps takes keys and no logins.
const NO_METADATA: &str =
    "it has no metadata of logins (RFC 9728); a key of it goes into `headers`, `key_env` or `secret`";

/// Metadata of a server and of its login server.
pub(super) struct LoginMetadata {
    pub(super) resource: ResourceMetadata,
    pub(super) issuer: IssuerMetadata,
}

/// Asks the server for its login server, and that for its URLs. The place that a refusal names is the only one that is asked.
pub(super) async fn discover(
    place: &LoginPlace<'_>,
    challenge: Option<&BearerChallenge>,
) -> Result<LoginMetadata, OpError> {
    let server = &place.settings.url;
    let named = challenge.and_then(|challenge| challenge.resource_metadata.clone());
    let urls = named.map_or_else(|| resource_metadata_urls(server), |url| vec![url]);
    let body = fetch_first(place, &urls, NO_METADATA).await?;
    let resource = ResourceMetadata::read(&body, server).map_err(|error| place.upstream(&error))?;
    let configured = place.auth().and_then(|auth| auth.issuer.as_deref());
    let issuer = resource.issuer(configured, server).map_err(|error| place.upstream(&error))?;
    let urls = issuer_metadata_urls(issuer);
    let body = fetch_first(place, &urls, "its login server has no metadata (RFC 8414)").await?;
    let issuer = IssuerMetadata::read(&body, issuer, server).map_err(|error| place.upstream(&error))?;
    Ok(LoginMetadata { resource, issuer })
}

/// Returns the first body that comes with status 200. A URL that may not be asked ends the search.
async fn fetch_first(place: &LoginPlace<'_>, urls: &[String], missing: &str) -> Result<Vec<u8>, OpError> {
    let mut seen = Vec::new();
    for url in urls {
        let answer = place.fetch(url, LoginRequest::get()).await?;
        if answer.status == 200 {
            return Ok(answer.body.to_vec());
        }
        seen.push(answer.status.to_string());
    }
    Err(place.upstream(&format!("{missing}; the places for it answer with status {}", seen.join(", "))))
}
