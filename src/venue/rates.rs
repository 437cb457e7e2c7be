//! Rate limits in the store: one document per limit, shared by all workers of the venue.

use crate::domain::chat::ModelSettings;
use crate::domain::ids::{Owner, SessionKey};
use crate::domain::rate::{self, Limit, Meter, RatedCall, Wait};
use crate::store::{DocWrite, Edit, StoreError, keys};
use crate::venue::{Venue, venue_owner};
use std::convert::Infallible;
use std::time::Duration;

/// Pause after a booking that others got in the way of.
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
    call: RatedCall,
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
    let call = RatedCall { id, tokens, until: now.plus(rates.hold) };
    let booked = change(venue, &limits, |meters| rate::book(&limits, meters, &call, now)).await?;
    Ok(booked.map(|()| Booked { limits, call }))
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
    let Ok(told) = settled.await? else {
        tracing::debug!(
            id = call.id,
            "a model call is not settled: others were always faster; it counts as it was booked"
        );
        return Ok(());
    };
    for id in told {
        if let Some((owner, session)) = of(&id) {
            venue.wake(&owner, &session).await;
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

/// Changes all meters, or none; a call that waits changes them when it is the first in line. Where others were
/// always faster, it is to wait.
async fn change<T: Default>(
    venue: &Venue,
    limits: &[&Limit],
    change: impl Fn(&mut [Meter]) -> Result<T, Wait>,
) -> Result<Result<T, Wait>, StoreError> {
    if limits.is_empty() {
        return Ok(Ok(T::default()));
    }
    let (store, owner, now) = (&*venue.store, venue_owner(), venue.now());
    let names: Vec<_> = limits.iter().map(|limit| keys::rate(&limit.of)).collect();
    let attempt = || async {
        let docs = store.read(&owner, &names).await?;
        let meters = names.iter().zip(&docs).map(|(key, doc)| Ok(doc.decode(key)?.unwrap_or_default()));
        let mut meters: Vec<Meter> = meters.collect::<Result<_, StoreError>>()?;
        let before = meters.clone();
        let changed = change(&mut meters);
        if meters == before {
            return Ok(Edit::nothing(changed));
        }
        let writes = names.iter().zip(docs).zip(&meters);
        let writes = writes.map(|((key, doc), meter)| DocWrite::json(key.as_str(), meter).at(doc.version));
        Ok(Edit::write(writes.collect::<Vec<_>>(), changed))
    };
    match store.edit(now, &owner, ("the meters of", &limits[0].of), attempt).await {
        Err(StoreError::Contended { .. }) => {
            Ok(Err(Wait { until: now.plus(PAUSE), reason: "many calls begin at once".into(), told: false }))
        }
        changed => changed,
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
            assert_eq!(of(&id(&owner, &key, 7)), Some((owner, key)));
        }
        assert_eq!((of(""), of("a/b/c"), of("/////")), (None, None, None));
    }
}
