//! The login of one call: the token that goes with it, and what follows a refusal.

use super::keeper::{HeldToken, LoginChange, change_login, store_login};
use super::machine::request_machine_token;
use super::place::{LoginPlace, LoginTools};
use super::renew::{RenewalCause, can_renew, current_token, renew_token};
use crate::domain::ids::secret::SecretName;
use crate::domain::mcp::oauth::challenge::BearerChallenge;
use crate::domain::mcp::oauth::scope::{ScopeSources, missing_scopes, parse_scopes, select_scopes};
use crate::domain::secret::Mask;
use crate::domain::visible::quote_foreign;
use crate::venue::failure::OpError;
use crate::venue::outbound::send::header_value;
use reqwest::header::{AUTHORIZATION, HeaderMap};
use zeroize::Zeroizing;

/// The login of one call.
pub(crate) struct PeerLogin<'a> {
    tools: LoginTools<'a>,
    place: LoginPlace<'a>,
    held: Option<HeldToken>,
}

impl<'a> PeerLogin<'a> {
    /// Loads the login for a call.
    ///
    /// # Errors
    /// Somebody must log in again: the call must not be sent.
    pub(crate) async fn open(tools: LoginTools<'a>, place: LoginPlace<'a>) -> Result<Self, OpError> {
        let held = current_token(tools, &place).await?;
        Ok(Self { tools, place, held })
    }

    /// Adds the token to the headers of requests, if there is one.
    pub(crate) fn add_to(&self, headers: &mut HeaderMap) -> Result<(), OpError> {
        self.held.as_ref().map_or(Ok(()), |held| add_token(held, headers))
    }

    /// Adds the token to what is masked in answers.
    pub(crate) fn add_to_mask(&self, mask: &mut Mask) {
        if let Some(held) = &self.held {
            mask.add(&shown_name(), held.access());
        }
    }

    /// Returns the token for one more try after a refusal.
    ///
    /// # Errors
    /// No other token can be got: the error says who must do what.
    pub(crate) async fn token_after(&self, status: u16, challenge: Option<&str>) -> Result<PeerToken, OpError> {
        let said = challenge.map(|text| format!(" ({})", quote_foreign(text))).unwrap_or_default();
        let found = challenge.and_then(BearerChallenge::read).unwrap_or_default();
        let refused = format!("wants another login: status {status}{said}");
        let held = match (&self.held, found.is_about_scopes()) {
            (Some(held), true) => self.token_with_scopes(held, &found, &refused).await?,
            (_, _) if status == 403 => {
                return Err(OpError::Denied(format!("the {} refuses: status 403{said}", self.place.shown)));
            }
            (None, _) if self.place.is_of_machine() => {
                let held = request_machine_token(self.tools, &self.place, &found, &[]).await.map_err(OpError::from)?;
                store_login(self.tools, &self.place, &held).await?;
                held
            }
            (Some(held), false) if can_renew(&self.place, held) => {
                let cause = RenewalCause::Refused { challenge: found, refused };
                renew_token(self.tools, &self.place, held.clone(), cause, None).await?
            }
            (Some(_) | None, _) => return Err(self.place.wants_login(&refused)),
        };
        Ok(PeerToken(held))
    }

    /// Returns the error of a refusal of a token that is new.
    pub(crate) fn refusal_of_new(&self, status: u16) -> OpError {
        self.place.wants_login(&format!("wants another login: status {status}, with a new token too"))
    }

    /// Returns a token with the scopes that a call lacked. A person must log in for them: they are noted for that login.
    async fn token_with_scopes(
        &self,
        held: &HeldToken,
        challenge: &BearerChallenge,
        refused: &str,
    ) -> Result<HeldToken, OpError> {
        let wanted = parse_scopes(challenge.scope.as_deref().unwrap_or_default());
        let wanted = wanted.map_err(|error| self.place.upstream(&format!("the scopes that it wants: {error}")))?;
        let missing = missing_scopes(&wanted, &held.login.asked);
        if missing.is_empty() {
            // Another login would ask for the same: it would be refused again, and again.
            return Err(OpError::Denied(format!(
                "the {} {refused}; the last login has asked for these scopes already, so another one changes nothing",
                self.place.shown
            )));
        }
        if self.place.is_of_machine() {
            if self.place.auth().is_some_and(|auth| auth.scopes.is_some()) {
                return Err(OpError::Denied(format!(
                    "the {} {refused}; it wants the scopes `{}` too, and `auth.scopes` of its configuration hasn't them",
                    self.place.shown,
                    missing.join(" ")
                )));
            }
            let cause = RenewalCause::MoreScopes(challenge.clone());
            return renew_token(self.tools, &self.place, held.clone(), cause, None).await;
        }
        change_login(self.tools, &self.place, |stored| {
            let Some(mut stored) = stored else { return Ok(LoginChange::without_change(())) };
            if missing_scopes(&missing, &stored.lacking).is_empty() {
                return Ok(LoginChange::without_change(()));
            }
            stored.lacking.clone_from(&missing);
            Ok(LoginChange { login: Some(stored), answer: () })
        })
        .await?;
        Err(self.place.wants_login(&format!("{refused}; it wants the scopes `{}` too", missing.join(" "))))
    }
}

/// A token for one more try.
pub(crate) struct PeerToken(HeldToken);

impl PeerToken {
    /// Adds the token to the headers of requests.
    pub(crate) fn add_to(&self, headers: &mut HeaderMap) -> Result<(), OpError> {
        add_token(&self.0, headers)
    }

    /// Adds the token to what is masked in answers.
    pub(crate) fn add_to_mask(&self, mask: &mut Mask) {
        mask.add(&shown_name(), self.0.access());
    }
}

/// Returns the name that replaces tokens in answers.
fn shown_name() -> SecretName {
    SecretName::new("login").expect("a word is a name")
}

fn add_token(held: &HeldToken, headers: &mut HeaderMap) -> Result<(), OpError> {
    let text = Zeroizing::new(format!("Bearer {}", held.access().reveal()));
    let mut value = header_value(&text)?;
    value.set_sensitive(true);
    headers.insert(AUTHORIZATION, value);
    Ok(())
}

/// Returns the scopes to ask for after a refusal.
pub(super) fn challenged_scopes(
    place: &LoginPlace<'_>,
    challenge: &BearerChallenge,
    of_resource: Option<&[String]>,
    earlier: &[String],
    of_issuer: Option<&[String]>,
) -> Result<Vec<String>, OpError> {
    let wrong = |error: &dyn std::fmt::Display| place.upstream(&format!("its scopes: {error}"));
    let challenged = challenge.scope.as_deref().map(parse_scopes).transpose().map_err(|error| wrong(&error))?;
    let configured = place.auth().and_then(|auth| auth.scopes.as_deref());
    // What a refusal for lack of scopes wants comes to those that the configuration names.
    let lacked = challenged.as_deref().filter(|_| challenge.is_about_scopes()).unwrap_or_default();
    let earlier: Vec<String> = earlier.iter().chain(lacked).cloned().collect();
    let sources =
        ScopeSources { configured, challenged: challenged.as_deref(), of_resource, earlier: &earlier, of_issuer };
    select_scopes(&sources).map_err(|error| wrong(&error))
}
