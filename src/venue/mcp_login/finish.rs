//! Ends a person's login: the code of the answer becomes tokens.

use super::keeper::{HeldToken, store_login};
use super::place::{LoginPlace, LoginTools, sealed_login_name};
use super::token_request::{TokenRequester, request_token};
use crate::domain::ids::Owner;
use crate::domain::mcp::oauth::record::{BegunLogin, LoginSecrets, ServerLogin, state_hash};
use crate::domain::mcp::oauth::request::GrantForm;
use crate::domain::secret::PlainSecret;
use crate::domain::visible::quote_foreign;
use crate::store::{DocWrite, Edit, keys};
use crate::venue::failure::OpError;

/// The answer of a login server, as it came back with the person.
pub(crate) struct LoginReply<'a> {
    /// Owner who asks.
    pub(crate) owner: &'a Owner,
    /// Name of the person in records.
    pub(crate) by: &'a str,
    pub(crate) state: &'a str,
    pub(crate) code: Option<&'a PlainSecret>,
    /// Login server that has answered, as it says.
    pub(crate) iss: Option<&'a str>,
    /// Refusal of the login server or of the person.
    pub(crate) error: Option<&'a str>,
}

/// Ends a login. It ends once: whatever comes of it, its state counts no longer.
pub(crate) async fn finish_login(
    tools: LoginTools<'_>,
    place: &LoginPlace<'_>,
    reply: &LoginReply<'_>,
) -> Result<ServerLogin, OpError> {
    let begun = take(tools, place, reply).await?;
    let (key, now) = (keys::mcp_begun_login(&state_hash(reply.state)), tools.clock.now());
    begun
        .check_answer(&place.key.name, place.key.agent.as_ref(), reply.iss, now)
        .map_err(|error| OpError::Denied(format!("the login at the {}: {error}", place.shown)))?;
    if begun.url != place.settings.url {
        return Err(OpError::Conflict(format!(
            "the {} has another URL since the login began; begin again",
            place.shown
        )));
    }
    if let Some(error) = reply.error {
        return Err(OpError::Denied(format!(
            "the login at the {}: its login server refuses: {}",
            place.shown,
            quote_foreign(error)
        )));
    }
    let code = reply.code.ok_or_else(|| OpError::Invalid("`code`: expected it, or `error`".to_owned()))?;
    let opened = tools.vault.unseal(reply.owner, &sealed_login_name(&key), &begun.sealed)?;
    let secrets = LoginSecrets::from_text(&opened.value)
        .ok_or_else(|| OpError::Conflict("the login was begun by a newer build; begin again".to_owned()))?;
    let form = GrantForm::of_code(code.reveal(), secrets.access.reveal(), &begun.redirect, &begun.resource);
    let requester = TokenRequester {
        client: &begun.client,
        registered: secrets.client_secret.as_ref(),
        issuer: &begun.issuer,
        token_url: &begun.token_url,
    };
    let grant = request_token(tools, place, form, &requester).await.map_err(OpError::from)?;
    let login = ServerLogin {
        url: begun.url,
        issuer: begun.issuer,
        resource: begun.resource,
        token_url: begun.token_url,
        client: begun.client,
        scopes: begun.asked.clone(),
        asked: begun.asked,
        lacking: Vec::new(),
        by: reply.by.to_owned(),
        since: now,
        until: None,
        is_renewable: false,
        claimed: None,
        refused: None,
        sealed: None,
    };
    let secrets = LoginSecrets { access: grant.access.clone(), refresh: None, ..secrets };
    let held = HeldToken { login, secrets }.with_grant(grant, now);
    store_login(tools, place, &held).await
}

/// Takes the login with this state out of the owner's documents.
async fn take(tools: LoginTools<'_>, place: &LoginPlace<'_>, reply: &LoginReply<'_>) -> Result<BegunLogin, OpError> {
    let key = keys::mcp_begun_login(&state_hash(reply.state));
    let attempt = || async {
        let (begun, version) = tools.store.get_versioned::<BegunLogin>(reply.owner, &key).await?;
        let Some(begun) = begun else {
            return Err(OpError::NotFound(format!(
                "no login with this `state` waits for an answer: it has ended, or somebody else began it; run {}",
                place.command()
            )));
        };
        Ok(Edit::write([DocWrite::delete(key.as_str()).at_version(version)], begun))
    };
    tools.store.edit(tools.clock.now(), reply.owner, "login", &place.key.name, attempt).await
}
