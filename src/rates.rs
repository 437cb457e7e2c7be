//! Rate limits in the store: one document per limit, shared by all workers of the venue.

use crate::domain::chat::ModelSettings;
use crate::domain::rate::{self, Call, Limit, Meter, Wait};
use crate::store::{Change, DocWrite, Expect, StoreError, Written, decode, keys};
use crate::venue::{Venue, venue_owner};
use bytes::Bytes;
use std::time::Duration;

/// Tries of a booking that others get in the way of.
const TRIES: u32 = 64;
/// Pause after all of them.
const PAUSE: Duration = Duration::from_millis(200);

/// The limits of a venue's models.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rates {
    /// Of providers and models.
    pub limits: Vec<Limit>,
    /// How long a call runs at most: after it, it counts as lost.
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
    let busy = || Wait { until: now.plus(PAUSE), reason: "many calls begin at once".into() };
    Ok(match booked {
        Some(Ok(())) => Ok(Booked { limits, call }),
        Some(Err(wait)) => Err(wait),
        None => Err(busy()),
    })
}

/// The call has ended, with so many tokens used.
pub async fn settle(venue: &Venue, booked: Booked<'_>, used: u64) -> Result<(), StoreError> {
    let Booked { limits, call } = booked;
    let now = venue.now();
    let settled = change(venue, &limits, |meters| {
        rate::settle(&limits, meters, &call, used, now);
        Ok(())
    });
    if settled.await?.is_none() {
        tracing::debug!(
            id = call.id,
            "a model call is not settled: others were always faster; it counts as it was booked"
        );
    }
    Ok(())
}

/// Changes all meters, or none; a call that waits changes them when it is the first in line. `None`:
/// others were always faster.
async fn change(
    venue: &Venue,
    limits: &[&Limit],
    edit: impl Fn(&mut [Meter]) -> Result<(), Wait>,
) -> Result<Option<Result<(), Wait>>, StoreError> {
    if limits.is_empty() {
        return Ok(Some(Ok(())));
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
