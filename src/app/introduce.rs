//! Checks at the start that a process fits its store: format, names, key.

use super::backends::{open_store, store_name};
use super::{AppError, Role};
use crate::config::{BusUrl, Config};
use crate::domain::identity::{BusOwner, VenueNames, store_id};
use crate::process::clock::Clock;
use crate::process::retry::{AttemptFailure, retry};
use crate::process::telemetry::Metrics;
use crate::store::Store;
use crate::venue;
use crate::venue::identity::{self, NameCheckError, NameRule};
use crate::venue::store_format::{self, FormatCheckError};
use std::sync::Arc;

impl From<FormatCheckError> for AppError {
    fn from(error: FormatCheckError) -> Self {
        match error {
            FormatCheckError::Format(error) => error.into(),
            FormatCheckError::Store(error) => error.into(),
        }
    }
}

impl From<NameCheckError> for AppError {
    fn from(error: NameCheckError) -> Self {
        match error {
            NameCheckError::Mismatch(error) => error.into(),
            NameCheckError::Store(error) => error.into(),
        }
    }
}

/// Checks that this build and its settings fit the store. Returns the store's key; `None` if it has none yet and
/// nothing may be written.
pub(super) async fn check_store_identity(
    config: &Config,
    role: Role,
    store: &dyn Store,
    clock: &Clock,
) -> Result<Option<Vec<u8>>, AppError> {
    let (patience, place) = (role.patience(), format!("store `{}`", store_name(config)));
    let stays = matches!(role, Role::Up | Role::Worker | Role::Serve);
    let fits = || async { store_format::compare_format(store, clock.now(), stays).await.map_err(AttemptFailure::from) };
    retry(patience, &place, fits).await?;
    let names = names(config);
    let then = match (stays, config.venue.adopt) {
        (true, true) => Some(NameRule::Adopt),
        (true, false) => Some(NameRule::Register),
        // A command must not fail before a process has adopted the names.
        (false, true) => None,
        (false, false) => Some(NameRule::Compare),
    };
    if let Some(then) = then {
        let agrees =
            || async { identity::compare_names(store, clock.now(), &names, then).await.map_err(AttemptFailure::from) };
        retry(patience, &place, agrees).await?;
    }
    let key = || async {
        let key = if role == Role::Doctor {
            venue::load_key(store).await
        } else {
            venue::load_or_make_key(store, clock.now()).await.map(Some)
        };
        key.map_err(AttemptFailure::from)
    };
    Ok(retry(patience, &place, key).await?)
}

/// Opens the configured store alone, to read what needs no queue.
pub async fn open_store_to_read(config: &Config, clock: &Clock) -> Result<Arc<dyn Store>, AppError> {
    let role = Role::Doctor;
    let opened = open_store(config, role, &Arc::new(Metrics::new())).await?;
    check_store_identity(config, role, &*opened.store, clock).await?;
    Ok(opened.store)
}

fn names(config: &Config) -> VenueNames {
    let bus_prefix = match &config.bus.url {
        BusUrl::Nats(_) => Some(config.bus.prefix.clone()),
        BusUrl::Embedded => None,
    };
    VenueNames { venue: config.venue.name.clone(), bus_prefix }
}

/// Returns how the store with this key is named on its queue.
pub(super) fn bus_owner(config: &Config, key: &[u8]) -> BusOwner {
    BusOwner { store: store_id(key), venue: config.venue.name.clone(), prefix: config.store.prefix.clone() }
}
