//! Renewal of tokens: by one process of the fleet at a time, before they end.

use super::detached::DetachedLogin;
use super::keeper::{HeldToken, LoginChange, change_login, load_login, open, seal};
use super::machine::request_machine_token;
use super::place::{LoginPlace, LoginTools};
use super::token_request::{TokenFailure, TokenRequester, request_token};
use crate::domain::limits::{MCP_RENEWAL_CLAIM, MCP_RENEWAL_WAIT, MCP_TOKEN_KEEP_TIME};
use crate::domain::mcp::oauth::challenge::BearerChallenge;
use crate::domain::mcp::oauth::record::ServerLogin;
use crate::domain::mcp::oauth::request::GrantForm;
use crate::domain::secret::PlainSecret;
use crate::process::retry::{AttemptFailure, RetryPolicy, retry};
use crate::venue::failure::OpError;
use std::time::Duration;
use tokio::task::JoinError;

/// Pause between two looks at a login that another process renews.
const LOOK_PAUSE: Duration = Duration::from_millis(200);

/// Tries to store a new token.
const KEEP_TRIES: RetryPolicy = RetryPolicy::with_steady_waits(Duration::from_millis(250), MCP_TOKEN_KEEP_TIME);

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
    renew_token(tools, place, held, RenewalCause::Due, usable).await.map(Some)
}

/// Whether a token can be renewed without a person.
pub(super) fn can_renew(place: &LoginPlace<'_>, held: &HeldToken) -> bool {
    place.is_of_machine() || held.secrets.refresh.is_some()
}

/// Why a token is replaced.
#[derive(Debug, Clone)]
pub(super) enum RenewalCause {
    /// It ends soon.
    Due,
    /// The server refuses it, in these words.
    Refused { challenge: BearerChallenge, refused: String },
    /// The server wants more scopes, and the venue itself gets the token.
    MoreScopes(BearerChallenge),
}

/// Claim of the right to renew a token.
enum RenewalClaim {
    /// This process renews the token that is stored now.
    Own(Box<HeldToken>),
    /// Another process does.
    Taken,
    /// Another process has done it.
    Renewed(Box<HeldToken>),
    /// The server has refused the token before this one, too.
    TooSoon,
    /// The login is over.
    Over,
}

/// Renews a token, or takes the one that another process gets. `usable` is a token that will do while that takes time.
pub(super) async fn renew_token(
    tools: LoginTools<'_>,
    place: &LoginPlace<'_>,
    held: HeldToken,
    cause: RenewalCause,
    usable: Option<HeldToken>,
) -> Result<HeldToken, OpError> {
    let mut waited = Duration::ZERO;
    let claimed = loop {
        match claim(tools, place, held.access(), &cause).await? {
            RenewalClaim::Own(stored) => break *stored,
            RenewalClaim::Renewed(newer) => return Ok(*newer),
            RenewalClaim::Over => return Err(place.wants_login("wants another login: the last one has ended")),
            RenewalClaim::TooSoon => {
                let why =
                    if let RenewalCause::Refused { refused, .. } = &cause { refused } else { "refuses a new token" };
                return Err(
                    place.wants_login(&format!("{why}; its token was replaced a moment ago for the same reason"))
                );
            }
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
    };
    let detached = DetachedLogin::new(tools, place);
    let renewal =
        tokio::spawn(async move { renew_claimed(detached.tools(), &detached.login_place(), claimed, &cause).await });
    let stopped = |error: JoinError| Err(OpError::Failed(format!("the renewal of a token stopped: {error}")).into());
    match renewal.await.unwrap_or_else(stopped) {
        Ok(renewed) => Ok(renewed),
        Err(TokenFailure::Grant(error)) => Err(place.wants_login(&format!("wants another login: {error}"))),
        Err(TokenFailure::Other(error)) => usable.ok_or(error),
    }
}

/// Renews a token that this process has claimed, and stores what came of it.
async fn renew_claimed(
    tools: LoginTools<'_>,
    place: &LoginPlace<'_>,
    held: HeldToken,
    cause: &RenewalCause,
) -> Result<HeldToken, TokenFailure> {
    match replace_token(tools, place, &held, cause).await {
        Ok(renewed) => {
            keep_renewed(tools, place, held.access(), &renewed).await;
            Ok(renewed)
        }
        Err(TokenFailure::Grant(error)) => {
            finish_claim(tools, place, held.access(), None).await?;
            Err(TokenFailure::Grant(error))
        }
        Err(TokenFailure::Other(error)) => {
            let unclaimed = HeldToken { login: ServerLogin { claimed: None, ..held.login.clone() }, ..held.clone() };
            finish_claim(tools, place, held.access(), Some(&unclaimed)).await?;
            Err(TokenFailure::Other(error))
        }
    }
}

/// Asks the login server for a token in place of another one.
async fn replace_token(
    tools: LoginTools<'_>,
    place: &LoginPlace<'_>,
    held: &HeldToken,
    cause: &RenewalCause,
) -> Result<HeldToken, TokenFailure> {
    let login = &held.login;
    if let (true, RenewalCause::Refused { challenge, .. } | RenewalCause::MoreScopes(challenge)) =
        (place.is_of_machine(), cause)
    {
        let found = request_machine_token(tools, place, challenge, &login.asked).await?;
        return Ok(HeldToken { login: ServerLogin { refused: login.refused, ..found.login }, ..found });
    }
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
    let grant = request_token(tools, place, form, &requester).await?;
    Ok(held.clone().with_grant(grant, tools.clock.now()))
}

/// Stores a new token, with retries: the login server takes the one before no more.
async fn keep_renewed(tools: LoginTools<'_>, place: &LoginPlace<'_>, known: &PlainSecret, renewed: &HeldToken) {
    let once = || async {
        finish_claim(tools, place, known, Some(renewed)).await.map_err(|error| match error {
            OpError::Store(error) if error.is_transient() => AttemptFailure::Transient(error.into()),
            error => AttemptFailure::Permanent(error),
        })
    };
    let kept: Result<(), OpError> = retry(KEEP_TRIES, "the store, for a renewed token", once).await;
    if let Err(error) = kept {
        tracing::error!(
            server = %place.key.name, %error,
            "a renewed token is not stored: when it ends, somebody must log in again"
        );
    }
}

/// Claims the right to renew a token, unless another process has it or has used it.
async fn claim(
    tools: LoginTools<'_>,
    place: &LoginPlace<'_>,
    known: &PlainSecret,
    cause: &RenewalCause,
) -> Result<RenewalClaim, OpError> {
    let now = tools.clock.now();
    change_login(tools, place, |stored| {
        let Some(stored) = stored else { return Ok(LoginChange::without_change(RenewalClaim::Over)) };
        let Some(mut held) = open(tools, place, stored)? else {
            return Ok(LoginChange::without_change(RenewalClaim::Over));
        };
        if held.access() != known {
            return Ok(LoginChange::without_change(RenewalClaim::Renewed(Box::new(held))));
        }
        if held.login.is_claimed(now) {
            return Ok(LoginChange::without_change(RenewalClaim::Taken));
        }
        if matches!(cause, RenewalCause::Refused { .. }) {
            if held.login.is_just_replaced(now) {
                return Ok(LoginChange::without_change(RenewalClaim::TooSoon));
            }
            held.login.refused = Some(now);
        }
        held.login.claimed = Some(now.plus(MCP_RENEWAL_CLAIM));
        Ok(LoginChange { login: Some(held.login.clone()), answer: RenewalClaim::Own(Box::new(held)) })
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
