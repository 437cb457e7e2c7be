//! Rate limits in the store: one document per limit, shared by all workers of the venue.

use crate::domain::chat::ModelSettings;
use crate::domain::ids::{Owner, SessionKey};
use crate::domain::message::Message;
use crate::domain::rate::{self, Call, Limit, Meter, Wait};
use crate::store::{Change, DocWrite, Expect, StoreError, Written, decode, keys};
use crate::venue::{Venue, venue_owner};
use bytes::Bytes;
use std::convert::Infallible;
use std::time::Duration;

/// Tries of a booking that others get in the way of.
const TRIES: u32 = 64;
/// Pause after all of them.
const PAUSE: Duration = Duration::from_millis(200);

/// Shortest pause between two renewals.
const SHORTEST: Duration = Duration::from_millis(10);

/// The limits of a venue's models.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rates {
    /// Of providers and models.
    pub limits: Vec<Limit>,
    /// A call that isn't renewed for so long counts as lost: the lease of a session, after which the call of a killed
    /// worker is made again.
    pub hold: Duration,
}

/// A call that may be made.
#[derive(Debug)]
pub struct Booked<'r> {
    limits: Vec<&'r Limit>,
    call: Call,
}

/// Books a call of a model, of at most so many tokens, under the name `id`.
///
/// After it: the call counts until it is settled, or lost with its worker. A crash before it: nothing
/// counts.
pub async fn book<'r>(
    venue: &Venue,
    rates: &'r Rates,
    model: &ModelSettings,
    id: String,
    tokens: u64,
) -> Result<Result<Booked<'r>, Wait>, StoreError> {
    let limits: Vec<_> = rates.limits.iter().filter(|limit| limit.covers(model)).collect();
    let now = venue.now();
    let call = Call { id, tokens, until: now.plus(rates.hold) };
    let booked = change(venue, &limits, |meters| rate::book(&limits, meters, &call, now)).await?;
    let busy = || Wait { until: now.plus(PAUSE), reason: "many calls begin at once".into(), told: false };
    Ok(match booked {
        Some(Ok(())) => Ok(Booked { limits, call }),
        Some(Err(wait)) => Err(wait),
        None => Err(busy()),
    })
}

/// Renews the place of a call that runs, three times per hold, until it is dropped.
pub async fn keep(venue: &Venue, booked: &Booked<'_>, hold: Duration) -> Infallible {
    let Booked { limits, call } = booked;
    if limits.iter().all(|limit| limit.concurrency.is_none() && limit.tokens.is_none()) {
        return std::future::pending().await;
    }
    loop {
        tokio::time::sleep((hold / 3).max(SHORTEST)).await;
        let until = venue.now().plus(hold);
        let renewed = change(venue, limits, |meters| {
            rate::renew(meters, &call.id, until);
            Ok(())
        });
        if let Err(error) = renewed.await {
            tracing::debug!(id = call.id, %error, "the place of a model call is not renewed; others may take it");
        }
    }
}

/// The call has ended, with so many tokens used.
pub async fn settle(venue: &Venue, booked: Booked<'_>, used: u64) -> Result<(), StoreError> {
    let Booked { limits, call } = booked;
    let now = venue.now();
    let settled = change(venue, &limits, |meters| Ok(rate::settle(&limits, meters, &call, used, now)));
    let Some(Ok(told)) = settled.await? else {
        tracing::debug!(
            id = call.id,
            "a model call is not settled: others were always faster; it counts as it was booked"
        );
        return Ok(());
    };
    for id in told {
        let Some((owner, session)) = of(&id) else { continue };
        if let Err(error) = venue.bus.publish(&Message::wake(&owner, &session)).await {
            tracing::debug!(%session, %error, "wake not published; the sweep will");
        }
    }
    Ok(())
}

/// The name of a call, after its turn.
pub fn id(owner: &Owner, session: &SessionKey, turn: u64) -> String {
    format!("{}/{}/{turn}", owner.token(), session.token())
}

/// Whose it is.
fn of(id: &str) -> Option<(Owner, SessionKey)> {
    let (place, _turn) = id.rsplit_once('/')?;
    let (at, _) = place.match_indices('/').nth(1)?;
    Some((Owner::from_token(&place[..at]).ok()?, SessionKey::from_token(&place[at + 1..]).ok()?))
}

/// Changes all meters, or none; a call that waits changes them when it is the first in line. `None`:
/// others were always faster.
async fn change<T: Default>(
    venue: &Venue,
    limits: &[&Limit],
    edit: impl Fn(&mut [Meter]) -> Result<T, Wait>,
) -> Result<Option<Result<T, Wait>>, StoreError> {
    if limits.is_empty() {
        return Ok(Some(Ok(T::default())));
    }
    let owner = venue_owner();
    let names: Vec<_> = limits.iter().map(|limit| keys::rate(&limit.of)).collect();
    for attempt in 0..TRIES {
        if attempt > 0 {
            // Others are at it: not all of them again at the same moment.
            tokio::time::sleep(Duration::from_millis(u64::from(attempt % 7))).await;
        }
        let docs = venue.store.read(&owner, &names).await?;
        let mut meters = Vec::with_capacity(names.len());
        for (key, doc) in names.iter().zip(&docs) {
            let meter = doc.value.as_ref().map(|bytes| decode(key, bytes)).transpose()?;
            meters.push(meter.unwrap_or_default());
        }
        let before = meters.clone();
        let edited = edit(&mut meters);
        if meters == before {
            return Ok(Some(edited));
        }
        let write = |((key, doc), meter): ((&String, &crate::store::Doc), &Meter)| DocWrite {
            key: key.clone(),
            expect: Expect::Version(doc.version),
            change: Change::Put(Bytes::from(serde_json::to_vec(meter).expect("meters serialise"))),
        };
        let writes: Vec<_> = names.iter().zip(&docs).zip(&meters).map(write).collect();
        if venue.store.write(venue.now(), &owner, &writes).await? == Written::Done {
            return Ok(Some(edited));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_call_says_whose_it_is() {
        for (owner, agent, session) in [("acme/ann", "clerk", "s1"), ("a%b/c.d", "x.y", "ü*1")] {
            let owner: Owner = owner.parse().unwrap();
            let key = SessionKey { agent: agent.parse().unwrap(), session: session.parse().unwrap() };
            assert_eq!(of(&id(&owner, &key, 7)), Some((owner, key)));
        }
        assert_eq!((of(""), of("a/b/c"), of("/////")), (None, None, None));
    }
}
