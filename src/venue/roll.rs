//! The list of workers as it is kept: each signs it, and an operator's order to leave stands there.
//!
//! The order lies in the store and not in a message: whoever may publish on some subject of the queue, as a tenant may,
//! can't give one. It takes an operator of the API, or the store's own password.

use super::{Venue, venue_owner};
use crate::domain::roll::{DrainOrder, FleetState, Whom, WorkerRecord};
use crate::store::{DocWrite, Edit, StoreError, keys};
use crate::venue::failure::OpError;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// Age at which the list of workers is read again.
const FLEET_AGE: Duration = Duration::from_secs(1);

/// What the list of workers said last, and when it was read.
#[derive(Default)]
pub struct FleetCache(Mutex<Option<(Duration, Arc<FleetState>)>>);

impl FleetCache {
    fn clear(&self) {
        *self.0.lock() = None;
    }
}

/// A worker says what it is and does now. Returns the order that was given since it began. One that is leaving doesn't
/// take the place of another that has begun under its name.
///
/// After it: it is on the list. A crash before it: it is as it was.
pub async fn sign(venue: &Venue, me: &WorkerRecord) -> Result<Option<DrainOrder>, StoreError> {
    let (owner, key) = (venue_owner(), keys::worker(&me.name));
    let attempt = || async {
        let (before, version) = venue.store.versioned::<WorkerRecord>(&owner, &key).await?;
        if me.leaving && before.as_ref().is_some_and(|before| !before.is_of(me)) {
            return Ok(Edit::nothing(None));
        }
        // What was ordered before it began was meant for another of its name.
        let drain = before.as_ref().and_then(|before| before.drain.clone()).filter(|drain| drain.at >= me.since);
        let kept = before.map(|before| before.kept).unwrap_or_default();
        let now = WorkerRecord { drain: drain.clone(), kept, ..me.clone() };
        Ok::<_, StoreError>(Edit::write([DocWrite::json(key.as_str(), &now).at(version)], drain))
    };
    let signed = venue.store.edit(venue.now(), &owner, ("worker", &me.name), attempt).await;
    venue.fleet.clear();
    signed
}

/// The order to a worker, where there is one.
pub async fn order_to(venue: &Venue, me: &WorkerRecord) -> Result<Option<DrainOrder>, StoreError> {
    let found = venue.store.get::<WorkerRecord>(&venue_owner(), &keys::worker(&me.name)).await?;
    Ok(found.and_then(|found| found.drain).filter(|drain| drain.at >= me.since))
}

/// A worker has ended. What another has said that has begun under its name stays.
pub async fn strike(venue: &Venue, me: &WorkerRecord) -> Result<(), StoreError> {
    let (owner, key) = (venue_owner(), keys::worker(&me.name));
    let attempt = || async {
        let (found, version) = venue.store.versioned::<WorkerRecord>(&owner, &key).await?;
        if !found.is_some_and(|found| found.is_of(me)) {
            return Ok(Edit::nothing(()));
        }
        Ok::<_, StoreError>(Edit::write([DocWrite::delete(key.as_str()).at(version)], ()))
    };
    let struck = venue.store.edit(venue.now(), &owner, ("worker", &me.name), attempt).await;
    venue.fleet.clear();
    struck
}

/// All that are on the list, by name. Those that nobody needs to know of any more are struck off.
pub async fn all(venue: &Venue) -> Result<Vec<WorkerRecord>, StoreError> {
    let (owner, now) = (venue_owner(), venue.now());
    let (mut workers, mut gone) = (Vec::new(), Vec::new());
    let mut docs = venue.store.docs(&owner, keys::WORKERS);
    while let Some(page) = docs.next().await? {
        for (key, doc) in page {
            match doc.decode::<WorkerRecord>(&key)? {
                Some(worker) if worker.is_forgotten(now) => gone.push(DocWrite::delete(key)),
                worker => workers.extend(worker),
            }
        }
    }
    if !gone.is_empty() {
        venue.store.write(now, &owner, &gone).await?;
    }
    Ok(workers)
}

/// What those that live say together, as of a second ago at most; what this process signs or strikes is in it at once.
pub async fn fleet(venue: &Venue) -> Result<Arc<FleetState>, StoreError> {
    let now = venue.clock.steady();
    let known = venue.fleet.0.lock().clone();
    if let Some((_, fleet)) = known.filter(|(read, _)| now.checked_sub(*read).is_some_and(|age| age < FLEET_AGE)) {
        return Ok(fleet);
    }
    let fleet = Arc::new(FleetState::new(&all(venue).await?, venue.now()));
    *venue.fleet.0.lock() = Some((now, Arc::clone(&fleet)));
    Ok(fleet)
}

/// The list as operators see it.
pub async fn list(venue: &Venue) -> Result<Value, StoreError> {
    let now = venue.now();
    Ok(json!({"workers": all(venue).await?.iter().map(|worker| worker.to_json(now)).collect::<Vec<_>>()}))
}

/// Orders workers to leave: each takes nothing new, ends or hands back what it has, and ends, as with SIGTERM. Returns
/// their names.
///
/// After it: they read the order with their next sweep. Repeated, the first order stands.
pub async fn drain(venue: &Venue, whom: &Whom, by: &str) -> Result<Vec<String>, OpError> {
    let names = whom.among(&all(venue).await?, venue.now()).map_err(OpError::NotFound)?;
    let owner = venue_owner();
    for name in &names {
        let key = keys::worker(name);
        let attempt = || async {
            let (found, version) = venue.store.versioned::<WorkerRecord>(&owner, &key).await?;
            let writes = match found {
                Some(found) if found.drain.is_none() => {
                    // By its own clock it has begun before.
                    let drain = DrainOrder { at: venue.now().max(found.since), by: by.to_owned() };
                    vec![DocWrite::json(key.as_str(), &WorkerRecord { drain: Some(drain), ..found }).at(version)]
                }
                // It was told already, or has ended meanwhile.
                Some(_) | None => Vec::new(),
            };
            Ok::<_, StoreError>(Edit::write(writes, ()))
        };
        venue.store.edit(venue.now(), &owner, ("worker", name), attempt).await?;
    }
    Ok(names)
}
