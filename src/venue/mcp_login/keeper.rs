//! Stored logins: read, written, deleted.

use super::place::{LoginPlace, LoginTools, sealed_login_name};
use crate::domain::mcp::oauth::client::OauthClient;
use crate::domain::mcp::oauth::record::{LoginSecrets, ServerLogin};
use crate::domain::mcp::oauth::scope::missing_scopes;
use crate::domain::mcp::oauth::token::TokenGrant;
use crate::domain::secret::PlainSecret;
use crate::domain::time::Millis;
use crate::store::{DocWrite, Edit};
use crate::venue::failure::OpError;

/// A stored login with its tokens in the clear.
#[derive(Debug, Clone)]
pub(crate) struct HeldToken {
    pub(crate) login: ServerLogin,
    pub(super) secrets: LoginSecrets,
}

/// Servers and client of a login: where its tokens come from, and which server gets them.
pub(super) struct LoginTerms {
    /// URL of the server that gets the token.
    pub(super) url: String,
    pub(super) issuer: String,
    /// Identifier of the server at the login server.
    pub(super) resource: String,
    pub(super) token_url: String,
    pub(super) client: OauthClient,
    /// Scopes that were asked for.
    pub(super) asked: Vec<String>,
}

impl HeldToken {
    /// Makes the login of a first grant, in the name of `by`.
    pub(super) fn new(
        terms: LoginTerms,
        by: &str,
        client_secret: Option<PlainSecret>,
        grant: TokenGrant,
        now: Millis,
    ) -> Self {
        let LoginTerms { url, issuer, resource, token_url, client, asked } = terms;
        let login = ServerLogin {
            url,
            issuer,
            resource,
            token_url,
            client,
            scopes: asked.clone(),
            asked,
            lacking: Vec::new(),
            by: by.to_owned(),
            since: now,
            until: None,
            is_renewable: false,
            claimed: None,
            refused: None,
            sealed: None,
        };
        let secrets = LoginSecrets { access: grant.access.clone(), refresh: None, client_secret };
        Self { login, secrets }.with_grant(grant, now)
    }

    /// Returns the token that goes with requests.
    pub(super) const fn access(&self) -> &PlainSecret {
        &self.secrets.access
    }

    /// Returns the same login with other tokens, from `now` on.
    pub(super) fn with_grant(mut self, grant: TokenGrant, now: Millis) -> Self {
        self.secrets.access = grant.access;
        // A login server that gives no new one leaves the old one.
        self.secrets.refresh = grant.refresh.or(self.secrets.refresh);
        self.login.is_renewable |= self.secrets.refresh.is_some();
        self.login.until = grant.life.map(|life| now.plus(life));
        self.login.claimed = None;
        if let Some(scopes) = grant.scopes {
            self.login.scopes = scopes;
        }
        self
    }
}

/// Returns the login at a server; `None` if there is none for it as it is configured now: credentials of one login server go
/// to no other.
pub(crate) async fn load_login(tools: LoginTools<'_>, place: &LoginPlace<'_>) -> Result<Option<ServerLogin>, OpError> {
    let login: Option<ServerLogin> = tools.store.get(&place.keeper(), &place.doc_key()).await?;
    Ok(login.filter(|login| is_of_place(login, place)))
}

/// Whether a login is of a server as it is configured now.
pub(super) fn is_of_place(login: &ServerLogin, place: &LoginPlace<'_>) -> bool {
    let auth = place.auth();
    let is_same = |wanted: Option<&String>, found: &String| wanted.is_none_or(|wanted| wanted == found);
    login.url == place.settings.url
        && is_same(auth.and_then(|auth| auth.issuer.as_ref()), &login.issuer)
        && is_same(auth.and_then(|auth| auth.client_id.as_ref()), &login.client.id)
        && (!place.is_of_machine() || has_allowed_scopes(login, place))
}

/// Whether a token of the venue itself has no scope but those that the configuration names, if it names some.
fn has_allowed_scopes(login: &ServerLogin, place: &LoginPlace<'_>) -> bool {
    let configured = place.auth().and_then(|auth| auth.scopes.as_deref());
    configured.is_none_or(|configured| missing_scopes(&login.asked, configured).is_empty())
}

/// Opens the tokens of a login; `None` if they count no longer.
///
/// # Errors
/// No key of this process opens them.
pub(super) fn open(
    tools: LoginTools<'_>,
    place: &LoginPlace<'_>,
    login: ServerLogin,
) -> Result<Option<HeldToken>, OpError> {
    let Some(sealed) = &login.sealed else { return Ok(None) };
    let opened = tools.vault.unseal(&place.keeper(), &sealed_login_name(&place.doc_key()), sealed);
    let opened = opened.map_err(|error| place.wants_login(&format!("has a login that can't be used: {error}")))?;
    Ok(LoginSecrets::from_text(&opened.value).map(|secrets| HeldToken { login, secrets }))
}

/// Seals the tokens of a login.
pub(super) fn seal(tools: LoginTools<'_>, place: &LoginPlace<'_>, held: &HeldToken) -> Result<ServerLogin, OpError> {
    let name = sealed_login_name(&place.doc_key());
    let sealed = tools.vault.seal_unlisted(&place.keeper(), &name, &held.secrets.to_text(), tools.clock.now())?;
    Ok(ServerLogin { sealed: Some(sealed), ..held.login.clone() })
}

/// Changes the stored login. `change` gets what is stored, and returns what replaces it, `None` for nothing; and its answer.
pub(super) async fn change_login<T>(
    tools: LoginTools<'_>,
    place: &LoginPlace<'_>,
    change: impl Fn(Option<ServerLogin>) -> Result<LoginChange<T>, OpError>,
) -> Result<T, OpError> {
    let (owner, key) = (place.keeper(), place.doc_key());
    let attempt = || async {
        let (login, version) = tools.store.get_versioned::<ServerLogin>(&owner, &key).await?;
        let LoginChange { login, answer } = change(login.filter(|login| is_of_place(login, place)))?;
        let Some(login) = login else { return Ok(Edit::without_writes(answer)) };
        Ok(Edit::write([DocWrite::json(key.as_str(), &login).at_version(version)], answer))
    };
    tools.store.edit(tools.clock.now(), &owner, "login", &place.key.name, attempt).await
}

/// A decision about a stored login.
pub(super) struct LoginChange<T> {
    /// Login that replaces it; `None`: it stays as it is.
    pub(super) login: Option<ServerLogin>,
    pub(super) answer: T,
}

impl<T> LoginChange<T> {
    /// Leaves the login as it is.
    pub(super) const fn without_change(answer: T) -> Self {
        Self { login: None, answer }
    }
}

/// Stores a login in place of any other, and returns it as it is stored.
pub(super) async fn store_login(
    tools: LoginTools<'_>,
    place: &LoginPlace<'_>,
    held: &HeldToken,
) -> Result<ServerLogin, OpError> {
    let login = seal(tools, place, held)?;
    change_login(tools, place, |_| Ok(LoginChange { login: Some(login.clone()), answer: () })).await?;
    Ok(login)
}

/// Deletes the login at a server; `false` if there was none.
pub(crate) async fn delete_login(tools: LoginTools<'_>, place: &LoginPlace<'_>) -> Result<bool, OpError> {
    let (owner, key) = (place.keeper(), place.doc_key());
    let attempt = || async {
        let doc = tools.store.doc(&owner, &key).await?;
        if doc.value.is_none() {
            return Ok(Edit::without_writes(false));
        }
        Ok(Edit::write([DocWrite::delete(key.as_str()).at_version(doc.version)], true))
    };
    tools.store.edit(tools.clock.now(), &owner, "login", &place.key.name, attempt).await
}
