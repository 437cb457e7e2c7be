//! Renewal of tokens: by one process of the fleet at a time, before they end.

use super::keeper::{HeldToken, LoginChange, change_login, load_login, open, seal};
use super::place::{LoginPlace, LoginTools};
use super::token_request::{TokenFailure, TokenRequester, request_token};
use crate::domain::limits::{MCP_RENEWAL_CLAIM, MCP_RENEWAL_WAIT};
use crate::domain::mcp::oauth::record::ServerLogin;
use crate::domain::mcp::oauth::request::GrantForm;
use crate::domain::secret::PlainSecret;
use crate::venue::failure::OpError;
use std::time::Duration;

/// Pause between two looks at a login that another process renews.
const LOOK_PAUSE: Duration = Duration::from_millis(200);

/// Returns the token for calls of a server, renewed if it is due; `None` if nobody has logged in.
///
/// # Errors
/// The token has ended and can't be renewed: somebody must log in.
pub(super) async fn current_token(tools: LoginTools<'_>, place: &LoginPlace<'_>) -> Result<Option<HeldToken>, OpError> {
    let Some(login) = load_login(tools, place).await? else { return Ok(None) };
    let Some(held) = open(tools, place, login)? else {
        if place.is_of_machine() {
            return Ok(None);
        }
        return Err(place.wants_login("wants another login: its login server takes the last one no more"));
    };
    let now = tools.clock.now();
    if !held.login.is_due(now) {
        return Ok(Some(held));
    }
    if !can_renew(place, &held) {
        return match (held.login.has_ended(now), place.is_of_machine()) {
            (false, _) => Ok(Some(held)),
            (true, true) => Ok(None),
            (true, false) => Err(place.wants_login("wants another login: the last one has ended")),
        };
    }
    let usable = (!held.login.has_ended(now)).then(|| held.clone());
    renew_token(tools, place, held, usable).await.map(Some)
}

/// Whether a token can be renewed without a person.
pub(super) fn can_renew(place: &LoginPlace<'_>, held: &HeldToken) -> bool {
    place.is_of_machine() || held.secrets.refresh.is_some()
}

/// Claim of the right to renew a token.
enum RenewalClaim {
    /// This process renews it.
    Own,
    /// Another process does.
    Taken,
    /// Another process has done it.
    Renewed(Box<HeldToken>),
    /// The login is over.
    Over,
}

/// Renews a token, or takes the one that another process gets. `usable` is a token that will do while that takes time.
pub(super) async fn renew_token(
    tools: LoginTools<'_>,
    place: &LoginPlace<'_>,
    held: HeldToken,
    usable: Option<HeldToken>,
) -> Result<HeldToken, OpError> {
    let mut waited = Duration::ZERO;
    loop {
        match claim(tools, place, held.access()).await? {
            RenewalClaim::Own => break,
            RenewalClaim::Renewed(newer) => return Ok(*newer),
            RenewalClaim::Over => return Err(place.wants_login("wants another login: the last one has ended")),
            RenewalClaim::Taken => {}
        }
        if let Some(usable) = usable {
            return Ok(usable);
        }
        if waited >= MCP_RENEWAL_WAIT {
            return Err(OpError::Timeout(format!("another process renews the token for the {}", place.shown)));
        }
        tokio::time::sleep(LOOK_PAUSE).await;
        waited += LOOK_PAUSE;
    }
    let login = &held.login;
    let form = match &held.secrets.refresh {
        Some(refresh) if !place.is_of_machine() => GrantForm::of_renewal(refresh.reveal(), &login.resource),
        Some(_) | None => GrantForm::of_machine(&login.asked, &login.resource),
    };
    let requester = TokenRequester {
        client: &login.client,
        registered: held.secrets.client_secret.as_ref(),
        issuer: &login.issuer,
        token_url: &login.token_url,
    };
    match request_token(tools, place, form, &requester).await {
        Ok(grant) => {
            let before = held.access().clone();
            let renewed = held.with_grant(grant, tools.clock.now());
            finish_claim(tools, place, &before, Some(&renewed)).await?;
            Ok(renewed)
        }
        Err(TokenFailure::Grant(error)) => {
            finish_claim(tools, place, held.access(), None).await?;
            Err(place.wants_login(&format!("wants another login: {error}")))
        }
        Err(TokenFailure::Other(error)) => {
            let unclaimed = HeldToken { login: ServerLogin { claimed: None, ..login.clone() }, ..held.clone() };
            finish_claim(tools, place, held.access(), Some(&unclaimed)).await?;
            usable.ok_or(error)
        }
    }
}

/// Claims the right to renew a token, unless another process has it or has used it.
async fn claim(tools: LoginTools<'_>, place: &LoginPlace<'_>, known: &PlainSecret) -> Result<RenewalClaim, OpError> {
    let now = tools.clock.now();
    change_login(tools, place, |stored| {
        let Some(stored) = stored else { return Ok(LoginChange::without_change(RenewalClaim::Over)) };
        let Some(held) = open(tools, place, stored)? else {
            return Ok(LoginChange::without_change(RenewalClaim::Over));
        };
        if held.access() != known {
            return Ok(LoginChange::without_change(RenewalClaim::Renewed(Box::new(held))));
        }
        if held.login.is_claimed(now) {
            return Ok(LoginChange::without_change(RenewalClaim::Taken));
        }
        let login = ServerLogin { claimed: Some(now.plus(MCP_RENEWAL_CLAIM)), ..held.login };
        Ok(LoginChange { login: Some(login), answer: RenewalClaim::Own })
    })
    .await
}

/// Stores what came of a renewal, `None` for a login that counts no longer; unless somebody has logged in or out meanwhile.
async fn finish_claim(
    tools: LoginTools<'_>,
    place: &LoginPlace<'_>,
    known: &PlainSecret,
    renewed: Option<&HeldToken>,
) -> Result<(), OpError> {
    let sealed = renewed.map(|renewed| seal(tools, place, renewed)).transpose()?;
    change_login(tools, place, |stored| {
        let Some(stored) = stored else { return Ok(LoginChange::without_change(())) };
        let over = ServerLogin { sealed: None, is_renewable: false, claimed: None, ..stored.clone() };
        let is_known = open(tools, place, stored)?.is_some_and(|held| held.access() == known);
        let login = is_known.then(|| sealed.clone().unwrap_or(over));
        Ok(LoginChange { login, answer: () })
    })
    .await
}
