//! Rate limits in the store: one document per limit, shared by all workers of the venue.

use crate::domain::chat::ModelSettings;
use crate::domain::ids::{Owner, SessionKey};
use crate::domain::rate::{Meter, RateLimit, RateWait, RatedCall};
use crate::domain::wait::WaitCause;
use crate::store::{StoreError, keys};
pub use crate::venue::meters::Meters;
use crate::venue::meters::{MeterStep, Metering};
use crate::venue::own_records;
use crate::venue::{Venue, venue_owner};
use std::convert::Infallible;
use std::time::Duration;

/// Pause after a booking that failed because of others.
const PAUSE: Duration = Duration::from_millis(200);

/// Shortest pause between two renewals.
const SHORTEST: Duration = Duration::from_millis(10);

/// Rate limits of a venue's models.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RateSettings {
    /// Limits of providers and models.
    pub limits: Vec<RateLimit>,
    /// Time after which a call that isn't renewed counts as lost: that of a session's lease, after which another worker
    /// repeats the call of a killed one.
    pub hold: Duration,
}

/// A booked model call.
#[derive(Debug)]
pub struct BookedCall {
    limits: Vec<RateLimit>,
    call: RatedCall,
}

/// Why a call isn't booked.
#[derive(Debug, Clone, thiserror::Error)]
pub enum BookingError {
    /// The limits have no room for the call now.
    #[error("{}", .0.reason)]
    OverLimit(RateWait),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Books a call of a model, of at most so many tokens, under the name `id`.
///
/// After it: the call counts until it is settled, or lost with its worker. A crash before it, or an error: nothing
/// counts.
pub async fn book(
    venue: &Venue,
    rates: &RateSettings,
    model: &ModelSettings,
    id: String,
    tokens: u64,
) -> Result<BookedCall, BookingError> {
    let limits: Vec<_> = rates.limits.iter().filter(|limit| limit.covers(model)).cloned().collect();
    let now = venue.now();
    let call = RatedCall { id, tokens, until: now.plus(rates.hold) };
    let booked = change_meters(venue, &limits, MeterStep::Book(call.clone())).await;
    let place = BookedCall { limits, call };
    match booked {
        Ok(_nobody) => Ok(place),
        Err(BookingError::OverLimit(wait)) => Err(BookingError::OverLimit(wait)),
        Err(BookingError::Store(error)) => {
            // The call may be booked all the same, but isn't made.
            if let Err(error) = settle(venue, place, 0).await {
                tracing::debug!(%error, "a model call that is not made may count until it is lost");
            }
            Err(error.into())
        }
    }
}

/// Renews the booking of a running call three times per `hold`, until the future is dropped.
pub async fn renew_booking(venue: &Venue, booked: &BookedCall, hold: Duration) -> Infallible {
    let limits: Vec<_> = booked.limits.iter().filter(|limit| limit.concurrency.is_some()).cloned().collect();
    if limits.is_empty() {
        return std::future::pending().await;
    }
    let id = &booked.call.id;
    loop {
        tokio::time::sleep((hold / 3).max(SHORTEST)).await;
        let until = venue.now().plus(hold);
        let renewed = change_meters(venue, &limits, MeterStep::Renew { id: id.clone(), until }).await;
        if let Err(BookingError::Store(error)) = renewed {
            tracing::debug!(id, %error, "the place of a model call is not renewed; others may take it");
        }
    }
}

/// Settles a call that has ended, with the tokens that it used.
pub async fn settle(venue: &Venue, booked: BookedCall, used: u64) -> Result<(), StoreError> {
    let BookedCall { limits, call } = booked;
    let limits: Vec<_> = limits.into_iter().filter(RateLimit::is_held_while_running).collect();
    let id = call.id.clone();
    let told = match change_meters(venue, &limits, MeterStep::Settle { call, used }).await {
        Ok(told) => told,
        Err(BookingError::OverLimit(_)) => {
            tracing::debug!(id, "a model call is not settled: others were always faster; it counts as it was booked");
            return Ok(());
        }
        Err(BookingError::Store(error)) => return Err(error),
    };
    for id in told {
        if let Some((owner, session)) = parse_call_id(&id) {
            venue.wake(&owner, &session).await;
        }
    }
    Ok(())
}

/// Returns the name of a call, after its turn.
pub fn call_id(owner: &Owner, session: &SessionKey, turn: u64) -> String {
    format!("{}/{}/{turn}", owner.token(), session.token())
}

/// Returns the owner and session in the name of a call.
fn parse_call_id(id: &str) -> Option<(Owner, SessionKey)> {
    let (place, _turn) = id.rsplit_once('/')?;
    let (at, _) = place.match_indices('/').nth(1)?;
    Some((Owner::from_token(&place[..at]).ok()?, SessionKey::from_token(&place[at + 1..]).ok()?))
}

/// Changes all meters or none, together with the changes of other calls of the same provider. If other processes were
/// always faster, the call has to wait.
async fn change_meters(venue: &Venue, limits: &[RateLimit], step: MeterStep) -> Result<Vec<String>, BookingError> {
    let Some(first) = limits.first() else { return Ok(Vec::new()) };
    let provider = first.of.split('/').next().unwrap_or_default();
    let (now, meters): (_, Vec<_>) = (venue.now(), limits.iter().map(|limit| keys::rate(&limit.of)).collect());
    let owner = venue_owner();
    let change = || {
        let metering = Metering { limits: limits.to_vec(), meters: meters.clone(), now, step: step.clone() };
        venue.meters.apply(&venue.store, now, &owner, provider, metering)
    };
    match own_records::change_or_reset::<Meter, _, _>(venue, &owner, &meters, change).await {
        Err(StoreError::Contended { .. }) => {
            let (reason, cause) = ("many calls begin at once".into(), WaitCause::ProviderLimit);
            Err(BookingError::OverLimit(RateWait { until: now.plus(PAUSE), reason, told: false, cause }))
        }
        Err(error) => Err(error.into()),
        Ok(changed) => changed.map_err(BookingError::OverLimit),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_call_says_whose_it_is() {
        for (owner, agent, session) in [("acme/ann", "clerk", "s1"), ("a%b/c.d", "x.y", "ü*1")] {
            let owner: Owner = owner.parse().unwrap();
            let key = SessionKey { agent: agent.parse().unwrap(), session: session.parse().unwrap() };
            assert_eq!(parse_call_id(&call_id(&owner, &key, 7)), Some((owner, key)));
        }
        assert_eq!((parse_call_id(""), parse_call_id("a/b/c"), parse_call_id("/////")), (None, None, None));
    }
}
