//! Ends a person's login: the code of the answer becomes tokens.

use super::keeper::{HeldToken, LoginTerms, store_login};
use super::place::{LoginPlace, LoginTools, sealed_login_name};
use super::token_request::{TokenRequester, request_token};
use crate::domain::ids::Owner;
use crate::domain::mcp::oauth::record::{BegunLogin, LoginSecrets, ServerLogin, state_hash};
use crate::domain::mcp::oauth::request::GrantForm;
use crate::domain::secret::PlainSecret;
use crate::domain::visible::quote_foreign;
use crate::store::{DocKey, DocWrite, Edit, keys};
use crate::venue::failure::OpError;

/// The answer of a login server, as it came back with the person.
pub(crate) struct LoginAnswer {
    pub(crate) state: String,
    pub(crate) code: Option<PlainSecret>,
    /// Login server that has answered, as it says.
    pub(crate) iss: Option<String>,
    /// Refusal of the login server or of the person.
    pub(crate) error: Option<String>,
}

/// Ends a login of an owner in the name of `by`. It ends once: whatever comes of it, its state counts no longer.
pub(crate) async fn finish_login(
    tools: LoginTools<'_>,
    place: &LoginPlace<'_>,
    owner: &Owner,
    by: &str,
    answer: &LoginAnswer,
) -> Result<ServerLogin, OpError> {
    let (key, now) = (keys::mcp_begun_login(&state_hash(&answer.state)), tools.clock.now());
    let begun = take(tools, place, owner, &key).await?;
    begun
        .check_answer(&place.key.name, place.key.agent.as_ref(), answer.iss.as_deref(), now)
        .map_err(|error| OpError::Denied(format!("the login at the {}: {error}", place.shown)))?;
    if begun.url != place.settings.url {
        return Err(OpError::Conflict(format!(
            "the {} has another URL since the login began; begin again",
            place.shown
        )));
    }
    if let Some(error) = &answer.error {
        return Err(OpError::Denied(format!(
            "the login at the {}: its login server refuses: {}",
            place.shown,
            quote_foreign(error)
        )));
    }
    let code = answer.code.as_ref().ok_or_else(|| OpError::Invalid("`code`: expected it, or `error`".to_owned()))?;
    let opened = tools.vault.unseal(owner, &sealed_login_name(&key), &begun.sealed)?;
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
    let BegunLogin { url, issuer, resource, token_url, client, asked, .. } = begun;
    let terms = LoginTerms { url, issuer, resource, token_url, client, asked };
    let held = HeldToken::new(terms, by, secrets.client_secret, grant, now);
    store_login(tools, place, &held).await
}

/// Takes a begun login out of the owner's documents.
async fn take(
    tools: LoginTools<'_>,
    place: &LoginPlace<'_>,
    owner: &Owner,
    key: &DocKey,
) -> Result<BegunLogin, OpError> {
    let attempt = || async {
        let (begun, version) = tools.store.get_versioned::<BegunLogin>(owner, key).await?;
        let Some(begun) = begun else {
            return Err(OpError::NotFound(format!(
                "no login with this `state` waits for an answer: it has ended, or somebody else began it; run {}",
                place.command()
            )));
        };
        Ok(Edit::write([DocWrite::delete(key.as_str()).at_version(version)], begun))
    };
    tools.store.edit(tools.clock.now(), owner, "login", &place.key.name, attempt).await
}
