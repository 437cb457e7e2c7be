//! Keys of what is spent: budgets, rate limits, accounts of caps, and what jobs and sessions have used.

use crate::domain::ids::{JobId, SessionKey, encode_token};
use crate::domain::time::Millis;

/// Returns the key of what a job has used.
pub fn job_spend(job: &JobId) -> String {
    format!("j/{job}/u")
}

/// Prefix of the accounts of budgets.
pub const BUDGETS: &str = "b/";

/// Returns the key of a budget's account.
pub fn account(name: &str) -> String {
    format!("{BUDGETS}{name}")
}

/// Prefix of the meters of rate limits.
const RATES: &str = "rate/";

/// Returns the key of the meter of a provider's or model's rate limit.
pub fn rate(of: &str) -> String {
    format!("{RATES}{}", crate::domain::ids::encode_token(of))
}

/// What follows `g/<agent>/` in the keys of what is spent under the caps of sessions.
pub const SESSION_CAPS: &str = "spend/";

/// Returns the key of what is spent under a session's cap.
pub fn session_cap(session: &SessionKey) -> String {
    format!("g/{}/{SESSION_CAPS}{}", session.agent.token(), session.session.token())
}

/// Returns the key of the record of what a session without a task waits for.
pub fn session_wait(session: &SessionKey) -> String {
    format!("g/{}/wait/{}", session.agent.token(), session.session.token())
}

/// Prefix of what is spent under the caps of an owner's days.
pub const OWNER_CAPS: &str = "cap/";

/// Returns the key of what is spent under the cap of an owner's day, `date` as `YYYY-MM-DD`; in a tenant's own owner: of
/// the tenant's day.
pub fn owner_cap(date: &str) -> String {
    format!("{OWNER_CAPS}{date}")
}

/// Returns the key of what is spent under the cap of a user's day.
pub fn user_cap(date: &str, user: &str) -> String {
    format!("{OWNER_CAPS}{date}/{}", encode_token(user))
}

/// Prefix of what is spent under the caps of models' days.
pub const MODEL_CAPS: &str = "cap.of/";

/// Returns the key of what is spent under the cap of a provider's or model's day.
pub fn model_cap(date: &str, of: &str) -> String {
    format!("{MODEL_CAPS}{date}/{}", encode_token(of))
}

/// Prefix of what sessions have used per day.
pub const SESSION_DAYS: &str = "day/";

/// Returns the prefix of what sessions have used on one day.
pub fn session_days(date: &str) -> String {
    format!("{SESSION_DAYS}{date}/")
}

/// Returns the key of what a session has used on a day; `since` is the time of its first use that day.
pub fn session_day(date: &str, session: &SessionKey, since: Millis) -> String {
    format!("{}{}/{:016}", session_days(date), session.token(), since.0)
}

/// Returns the session in a key of [`session_day`].
pub fn session_of_day(key: &str) -> Option<SessionKey> {
    let (_date, place) = key.strip_prefix(SESSION_DAYS)?.split_once('/')?;
    SessionKey::from_token(place.rsplit_once('/')?.0).ok()
}

/// Whether accepted work needs this document to go on: accounts, turn counts, records of waits, and what workers read
/// at start. These documents are small, and are written even at the store's memory limit.
pub fn is_needed_by_work(key: &str) -> bool {
    let is_wait = || key.starts_with("j/") && key.ends_with("/w") && key.matches('/').count() == 2;
    let is_of_workers = [super::FORMAT, super::NAMES].contains(&key) || key.starts_with(super::WORKERS);
    is_account_or_meter(key) || key.starts_with(super::ORIGINS) || is_wait() || is_of_workers
}

/// Whether a document is an account or a meter: small, and needed by running work.
fn is_account_or_meter(key: &str) -> bool {
    key.starts_with(RATES) || is_spending(key)
}

/// Whether a document says what is spent under a budget or a cap.
pub fn is_spending(key: &str) -> bool {
    let is_session_book = || {
        let mut parts = key.split('/');
        (parts.next(), parts.nth(1)) == (Some("g"), Some("spend"))
    };
    [BUDGETS, OWNER_CAPS, MODEL_CAPS].iter().any(|prefix| key.starts_with(prefix)) || is_session_book()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn day_keys_name_their_session_and_sort_by_day() {
        let session = SessionKey { agent: "a.b".parse().unwrap(), session: "ü*1".parse().unwrap() };
        let key = session_day("2026-11-22", &session, Millis(5));
        assert_eq!(session_of_day(&key), Some(session));
        assert!(key.starts_with(&session_days("2026-11-22")) && key < session_days("2026-11-23"));
        assert_eq!((session_of_day("day/2026-11-22"), session_of_day("x")), (None, None));
        assert_eq!(model_cap("2026-11-22", "openai/gpt-4o"), "cap.of/2026-11-22/openai%2Fgpt-4o");
    }
}
