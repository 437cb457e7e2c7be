//! The list of workers as it is kept: each signs it, and an operator's order to leave stands there.
//!
//! The order lies in the store and not in a message: whoever may publish on some subject of the queue, as a tenant may,
//! can't give one. It takes an operator of the API, or the store's own password.

use super::{Venue, venue_owner};
use crate::domain::roll::{DrainOrder, FleetState, Whom, WorkerRecord};
use crate::store::{DocWrite, Edit, StoreError, keys};
use crate::venue::failure::OpError;
use serde_json::{Value, json};

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
    venue.store.edit(venue.now(), &owner, ("worker", &me.name), attempt).await
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
    venue.store.edit(venue.now(), &owner, ("worker", &me.name), attempt).await
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

/// What those that live say together.
pub async fn fleet(venue: &Venue) -> Result<FleetState, StoreError> {
    Ok(FleetState::new(&all(venue).await?, venue.now()))
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
