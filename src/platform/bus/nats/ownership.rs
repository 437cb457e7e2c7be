//! The store that the queue belongs to, in the metadata of its inbound stream.

use super::BusOpenError;
use super::options::NatsOptions;
use crate::domain::identity::BusOwner;
use async_nats::jetstream::stream::Config;
use std::collections::HashMap;

/// Names of the metadata entries.
const STORE: &str = "trellis-store";
const VENUE: &str = "trellis-venue";
const PREFIX: &str = "trellis-store-prefix";

/// Characters of each entry that are shown: anyone who may change streams may have written them.
const SHOWN: usize = 100;

/// Returns the metadata by which a stream names its store.
pub(super) fn metadata(owner: &BusOwner) -> HashMap<String, String> {
    let BusOwner { store, venue, prefix } = owner.clone();
    [(STORE, store), (VENUE, venue), (PREFIX, prefix)].map(|(name, value)| (name.to_owned(), value)).into()
}

/// Returns the store that a stream belongs to; `None` if an earlier version created it.
pub(super) fn owner_of(found: &Config) -> Option<BusOwner> {
    let text = |name: &str| Some(found.metadata.get(name)?.chars().take(SHOWN).collect());
    Some(BusOwner {
        store: text(STORE)?,
        venue: text(VENUE).unwrap_or_default(),
        prefix: text(PREFIX).unwrap_or_default(),
    })
}

/// Checks that a stream belongs to this store, or to none yet.
pub(super) fn check(bus: &str, found: &Config, options: &NatsOptions) -> Result<(), BusOpenError> {
    let (Some(owner), Some(own)) = (owner_of(found), &options.owner) else { return Ok(()) };
    if owner.store == own.store {
        return Ok(());
    }
    if options.adopt {
        tracing::warn!("NATS at `{bus}`: `venue.adopt` is set: stream `{}` belonged to {owner}", found.name);
        return Ok(());
    }
    let (bus, stream) = (bus.to_owned(), found.name.clone());
    Err(BusOpenError::ForeignStore { bus, stream, owner: Box::new(owner), own: Box::new(own.clone()) })
}
