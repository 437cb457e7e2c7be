//! Begins a person's login: finds the login server, the client and the scopes, and keeps what the answer is checked by.

use super::client_choice::{VenueClient, choose_client};
use super::discover::{LoginMetadata, discover};
use super::keeper::load_login;
use super::peer_login::challenged_scopes;
use super::place::{LoginPlace, LoginTools, sealed_login_name};
use crate::domain::ids::Owner;
use crate::domain::limits::{MCP_BEGUN_LOGIN_TIME, MCP_BEGUN_LOGINS};
use crate::domain::mcp::oauth::challenge::BearerChallenge;
use crate::domain::mcp::oauth::location::is_loopback_redirect;
use crate::domain::mcp::oauth::record::{BegunLogin, LoginSecrets, state_hash};
use crate::domain::mcp::oauth::request::AuthorizationRequest;
use crate::domain::secret::PlainSecret;
use crate::store::{DocKey, DocWrite, Edit, keys};
use crate::venue::failure::OpError;
use crate::view::mcp_login::McpLoginPageView;
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;

/// Random bytes of a state and of a verifier.
const RANDOM_BYTES: usize = 32;

/// What a login begins with.
pub(crate) struct LoginStart<'a> {
    /// Owner who asks.
    pub(crate) owner: &'a Owner,
    /// Page to which the login comes back.
    pub(crate) redirect: &'a str,
    /// What the server says without a token.
    pub(crate) challenge: Option<BearerChallenge>,
    /// The venue as login servers see it.
    pub(crate) venue: VenueClient<'a>,
}

/// Begins a login: returns the page that the person opens, and when it is too late.
pub(crate) async fn begin_login(
    tools: LoginTools<'_>,
    place: &LoginPlace<'_>,
    start: &LoginStart<'_>,
) -> Result<McpLoginPageView, OpError> {
    if place.is_of_machine() {
        return Err(OpError::Invalid(format!(
            "the {} has `auth.grant = \"client_credentials\"`: the venue logs in there by itself",
            place.shown
        )));
    }
    if !is_loopback_redirect(start.redirect) {
        return Err(OpError::Invalid(
            "`redirect`: expected a page of the person's own machine, `http://127.0.0.1:PORT/callback`".to_owned(),
        ));
    }
    // A login server keeps each client that is registered with it: one that can't be used isn't.
    find_room(tools, start.owner).await?;
    let found = discover(place, start.challenge.as_ref()).await?;
    let is_configured = place.auth().is_some_and(|auth| auth.issuer.is_some());
    let page = found.issuer.page_url(is_configured).map_err(|error| place.upstream(&error))?;
    let token_url = found.issuer.token_url().map_err(|error| place.upstream(&error))?;
    let asked = scopes_to_ask(tools, place, &found, start).await?;
    let registered = choose_client(tools, place, &found, start.redirect, start.venue).await?;
    let (state, verifier) = (random_text()?, random_text()?);
    let url = AuthorizationRequest {
        endpoint: page,
        client: &registered.client.id,
        redirect: start.redirect,
        resource: &found.resource.resource,
        scopes: &asked,
        state: &state,
        verifier: &verifier,
    }
    .url();
    let key = keys::mcp_begun_login(&state_hash(&state));
    let verifier = PlainSecret::new(verifier).map_err(|error| OpError::Failed(error.to_string()))?;
    let secrets = LoginSecrets { access: verifier, refresh: None, client_secret: registered.secret };
    let now = tools.clock.now();
    let name = sealed_login_name(&key);
    let sealed = tools.vault.seal_unlisted(start.owner, &name, &secrets.to_text(), now)?;
    let until = now.plus(MCP_BEGUN_LOGIN_TIME);
    let begun = BegunLogin {
        server: place.key.name.clone(),
        agent: place.key.agent.clone(),
        url: place.settings.url.clone(),
        issuer: found.issuer.issuer.clone(),
        has_issuer_mark: found.issuer.authorization_response_iss_parameter_supported,
        resource: found.resource.resource.clone(),
        token_url: token_url.to_owned(),
        client: registered.client,
        redirect: start.redirect.to_owned(),
        asked,
        until,
        sealed,
    };
    keep(tools, start.owner, &key, &begun).await?;
    Ok(McpLoginPageView { url, until })
}

/// Returns the scopes to ask for: with those of the last login at the same login server, and those that a call lacked since.
async fn scopes_to_ask(
    tools: LoginTools<'_>,
    place: &LoginPlace<'_>,
    found: &LoginMetadata,
    start: &LoginStart<'_>,
) -> Result<Vec<String>, OpError> {
    let before = load_login(tools, place).await?.filter(|login| login.issuer == found.issuer.issuer);
    let earlier: Vec<String> =
        before.iter().flat_map(|login| login.asked.iter().chain(&login.lacking)).cloned().collect();
    let challenge = start.challenge.clone().unwrap_or_default();
    let of_resource = found.resource.scopes_supported.as_deref();
    let of_issuer = found.issuer.scopes_supported.as_deref();
    challenged_scopes(place, &challenge, of_resource, &earlier, of_issuer)
}

/// Returns random bytes of the system as a text for a URL.
fn random_text() -> Result<String, OpError> {
    let mut bytes = [0; RANDOM_BYTES];
    getrandom::fill(&mut bytes)
        .map_err(|error| OpError::Failed(format!("no random bytes from the system: {error}")))?;
    Ok(BASE64_URL_SAFE_NO_PAD.encode(bytes))
}

/// Checks that an owner may begin another login, and returns the keys of those that are too old.
async fn find_room(tools: LoginTools<'_>, owner: &Owner) -> Result<Vec<DocKey>, OpError> {
    let (now, mut open, mut old) = (tools.clock.now(), 0, Vec::new());
    let mut known = tools.store.docs(owner, keys::MCP_BEGUN_LOGINS);
    while let Some(page) = known.records::<BegunLogin>().await? {
        for (key, login) in page {
            if login.until <= now {
                old.push(key);
            } else {
                open += 1;
            }
        }
    }
    if open >= MCP_BEGUN_LOGINS {
        return Err(OpError::Limit(format!(
            "expected at most {MCP_BEGUN_LOGINS} logins that have begun and not ended; each ends by itself after {} minutes",
            MCP_BEGUN_LOGIN_TIME.as_secs() / 60
        )));
    }
    Ok(old)
}

/// Stores a begun login, and deletes those of the owner that are too old.
async fn keep(tools: LoginTools<'_>, owner: &Owner, key: &str, begun: &BegunLogin) -> Result<(), OpError> {
    let now = tools.clock.now();
    let attempt = || async {
        let mut writes: Vec<_> = find_room(tools, owner).await?.into_iter().map(DocWrite::delete).collect();
        writes.push(DocWrite::json(key, begun));
        Ok(Edit::write(writes, ()))
    };
    tools.store.edit(now, owner, "login", &begun.server, attempt).await
}
