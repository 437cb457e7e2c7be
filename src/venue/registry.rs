//! Registry of workers: each worker registers itself, and an operator's order to drain stands in its record.
//!
//! The order is in the store and not in a message: whoever may publish on some subject of the queue, as a tenant may,
//! can't give one. It takes an operator of the API, or the store's own password.

use super::{Venue, venue_owner};
use crate::domain::time::Millis;
use crate::domain::worker_registry::{DrainOrder, DrainTarget, FleetState, WorkerRecord};
use crate::store::{DocWrite, Edit, Store, StoreError, keys};
use crate::venue::failure::OpError;
pub use crate::venue::fleet_cache::FleetCache;
use crate::view::worker::{WorkerView, WorkersView};
use std::sync::Arc;

/// Registers a worker with its current state. Returns the order that was given since it began. A worker that is leaving
/// doesn't replace another one that has begun under its name.
///
/// After it: the worker is in the registry. A crash before it: the registry is as it was.
pub async fn register(venue: &Venue, me: &WorkerRecord) -> Result<Option<DrainOrder>, StoreError> {
    let (owner, key) = (venue_owner(), keys::worker(&me.name));
    let attempt = || async {
        let (before, version) = venue.store.get_versioned::<WorkerRecord>(&owner, &key).await?;
        if me.leaving && before.as_ref().is_some_and(|before| !before.is_same_process(me)) {
            return Ok(Edit::without_writes(None));
        }
        // An older order was meant for another worker of this name.
        let drain = before.as_ref().and_then(|before| before.drain.clone()).filter(|drain| drain.at >= me.since);
        let kept = before.map(|before| before.kept).unwrap_or_default();
        let now = WorkerRecord { drain: drain.clone(), kept, ..me.clone() };
        Ok::<_, StoreError>(Edit::write([DocWrite::json(key.as_str(), &now).at_version(version)], drain))
    };
    let signed = venue.store.edit(venue.now(), &owner, "worker", &me.name, attempt).await;
    venue.fleet.clear();
    signed
}

/// Returns the order to a worker, if there is one.
pub async fn read_order(venue: &Venue, me: &WorkerRecord) -> Result<Option<DrainOrder>, StoreError> {
    let found = venue.store.get::<WorkerRecord>(&venue_owner(), &keys::worker(&me.name)).await?;
    Ok(found.and_then(|found| found.drain).filter(|drain| drain.at >= me.since))
}

/// Removes a worker that has ended. The record of another worker under its name stays.
pub async fn unregister(venue: &Venue, me: &WorkerRecord) -> Result<(), StoreError> {
    let (owner, key) = (venue_owner(), keys::worker(&me.name));
    let attempt = || async {
        let (found, version) = venue.store.get_versioned::<WorkerRecord>(&owner, &key).await?;
        if !found.is_some_and(|found| found.is_same_process(me)) {
            return Ok(Edit::without_writes(()));
        }
        Ok::<_, StoreError>(Edit::write([DocWrite::delete(key.as_str()).at_version(version)], ()))
    };
    let struck = venue.store.edit(venue.now(), &owner, "worker", &me.name, attempt).await;
    venue.fleet.clear();
    struck
}

/// Returns all registered workers by name. Deletes records that are past their retention.
pub async fn list_workers(venue: &Venue) -> Result<Vec<WorkerRecord>, StoreError> {
    let now = venue.now();
    let (workers, gone) = read_workers(&*venue.store, now).await?;
    if !gone.is_empty() {
        venue.store.write(now, &venue_owner(), &gone).await?;
    }
    Ok(workers)
}

/// Returns all registered workers by name, and the deletions of records that are past their retention.
async fn read_workers(store: &dyn Store, now: Millis) -> Result<(Vec<WorkerRecord>, Vec<DocWrite>), StoreError> {
    let owner = venue_owner();
    let (mut workers, mut gone) = (Vec::new(), Vec::new());
    let mut docs = store.docs(&owner, keys::WORKERS);
    while let Some(page) = docs.records::<WorkerRecord>().await? {
        for (key, worker) in page {
            if worker.is_expired(now) {
                gone.push(DocWrite::delete(key));
            } else {
                workers.push(worker);
            }
        }
    }
    Ok((workers, gone))
}

/// Returns the state of the live workers together, at most a second old; changes by this process are in it at once.
pub async fn fleet_state(venue: &Venue) -> Result<Arc<FleetState>, StoreError> {
    let now = venue.clock.steady();
    if let Some(fleet) = venue.fleet.get(now) {
        return Ok(fleet);
    }
    let fleet = Arc::new(FleetState::new(&list_workers(venue).await?, venue.now()));
    venue.fleet.set(now, Arc::clone(&fleet));
    Ok(fleet)
}

/// Returns the registry as operators see it. Deletes records that are past their retention.
pub async fn workers_view(venue: &Venue) -> Result<WorkersView, StoreError> {
    Ok(make_view(&list_workers(venue).await?, venue.now()))
}

/// Returns the registry like [`workers_view`] from a store alone, and changes nothing.
pub async fn stored_workers_view(store: &dyn Store, now: Millis) -> Result<WorkersView, StoreError> {
    Ok(make_view(&read_workers(store, now).await?.0, now))
}

fn make_view(workers: &[WorkerRecord], now: Millis) -> WorkersView {
    WorkersView { workers: workers.iter().map(|worker| WorkerView::new(worker, now)).collect() }
}

/// Orders workers to drain: each takes nothing new, finishes or hands back what it has, and ends, as with SIGTERM.
/// Returns their names.
///
/// After it: they read the order with their next sweep. Repeated, the first order stands.
pub async fn drain(venue: &Venue, whom: &DrainTarget, by: &str) -> Result<Vec<String>, OpError> {
    let names = whom.resolve(&list_workers(venue).await?, venue.now());
    let names = names.map_err(|error| OpError::NotFound(error.to_string()))?;
    let owner = venue_owner();
    for name in &names {
        let key = keys::worker(name);
        let attempt = || async {
            let (found, version) = venue.store.get_versioned::<WorkerRecord>(&owner, &key).await?;
            let writes = match found {
                Some(found) if found.drain.is_none() => {
                    // By the worker's own clock the order must not be older than its beginning.
                    let drain = DrainOrder { at: venue.now().max(found.since), by: by.to_owned() };
                    vec![
                        DocWrite::json(key.as_str(), &WorkerRecord { drain: Some(drain), ..found }).at_version(version),
                    ]
                }
                // The worker has an order already, or has ended meanwhile.
                Some(_) | None => Vec::new(),
            };
            Ok::<_, StoreError>(Edit::write(writes, ()))
        };
        venue.store.edit(venue.now(), &owner, "worker", name, attempt).await?;
    }
    Ok(names)
}
