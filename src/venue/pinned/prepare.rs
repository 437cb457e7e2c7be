//! Publishes what the places offer that a turn may use, before it begins. What is approved comes from the store: only the
//! first use of a place waits for the place itself, and later it is asked in the background.

use super::find::WantedPlace;
use super::pins;
use crate::domain::agent::entry::ContextEntry;
use crate::domain::agent::tool::ToolEntry;
use crate::domain::agent::{AgentConfig, AgentRecord};
use crate::domain::ids::Owner;
use crate::domain::ids::secret::SecretName;
use crate::domain::lattice::catalog::SourceName;
use crate::domain::limits::{PLACE_CHANGE_PAUSE, PLACE_PIN_AGE, PLACE_PUBLISHED, PLACE_RETRY};
use crate::domain::mcp::name::ServerName;
use crate::domain::place_pin::PlacePin;
use crate::store::StoreError;
use crate::venue::Venue;
use crate::venue::failure::OpError;
use crate::venue::operation::{Publication, PublicationError, PublicationKey, RuntimeOperation};
use crate::venue::places::{KnownPlace, PlaceEndpoint, PlaceKey, Places};
use crate::venue::venue_owner;
use futures::future::join_all;
use reqwest::Url;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Version of the publication of a place of which nothing is known.
const NOTHING: &str = "nothing";

/// Pause between two looks at the places that all owners share.
const WATCH_PAUSE: Duration = Duration::from_secs(30);

/// A kind of places whose description a person approves.
pub(crate) trait PinnedPlace: PlaceEndpoint {
    /// What is approved of a place.
    type Pin: PlacePin<Settings = Self::Settings> + Serialize + DeserializeOwned + Send + Sync;

    /// Name of the kind in texts.
    const WHAT: &'static str;
    /// Group of the operations in the catalogue.
    const GROUP: &'static str;
    /// Key of an agent's configuration that lists its own.
    const SETTING: &'static str;
    /// Word for what a place offers.
    const OFFER: &'static str;

    /// Returns the places of the process.
    fn places(venue: &Venue) -> &Places<Self>;

    /// Returns those that an agent declares.
    fn list_declared(config: &AgentConfig) -> &[Self::Settings];

    /// Returns the name of the place in the path of an operation.
    fn name_in(path: &str) -> Option<ServerName>;

    /// Returns the key of the document with what is approved.
    fn doc_key(key: &PlaceKey) -> String;

    /// Returns the secrets of the owner that settings have.
    fn secrets_of(settings: &Self::Settings) -> Vec<&SecretName>;

    /// Returns the URL in settings.
    fn url_of(settings: &Self::Settings) -> &str;

    /// Returns the URL that is asked.
    fn place_url(&self) -> &Url;

    /// Whether this process may ask the place.
    fn may_ask(&self) -> bool {
        true
    }

    /// Returns how often the place has announced to this process that it is another one than before.
    fn announced_changes(&self) -> u64 {
        0
    }

    /// Reads from what is approved how requests to the place are made, for example its protocol revision.
    fn learn(&self, _pin: &Self::Pin) {}

    /// Whether what is approved says all that the settings want to know.
    fn is_enough(_pin: &Self::Pin, _settings: &Self::Settings) -> bool {
        true
    }

    /// Asks the place what it is, and compares that with what is approved.
    fn ask(
        venue: &Venue,
        key: &PlaceKey,
        known: &KnownPlace<Self>,
    ) -> impl Future<Output = Result<Self::Pin, OpError>> + Send;

    /// Returns the operations of a place by what is approved, and the facts to keep of it; `None` if this process offers
    /// none.
    fn operations(
        venue: &Venue,
        source: &SourceName,
        key: &PlaceKey,
        known: &KnownPlace<Self>,
        pin: &Self::Pin,
    ) -> Option<(Vec<RuntimeOperation>, Self::Facts)>;
}

/// When a place itself is asked.
#[derive(Clone, Copy)]
enum Asking<'v> {
    /// Never: what is stored counts.
    Never,
    /// When nothing is stored.
    FirstUse,
    /// When nothing is stored, and in the background when what is stored is old.
    WhenOld(&'v Arc<Venue>),
}

/// Publishes what the places of one kind offer that a turn of an agent may use: those that it declares, and those of the
/// venue that its configuration, or its session by `found`, names. One that fails costs the turn its own tools alone.
///
/// # Errors
/// The store can't be read.
pub(crate) async fn prepare_turn<E: PinnedPlace>(
    venue: &Arc<Venue>,
    owner: &Owner,
    agent: &AgentRecord,
    found: &[String],
) -> Result<(), StoreError> {
    prepare_places(venue, &wanted_places::<E>(venue, owner, agent, found), Asking::WhenOld(venue)).await
}

/// Publishes the same for somebody who only looks: no place is asked.
///
/// # Errors
/// The store can't be read.
pub(crate) async fn prepare_preview<E: PinnedPlace>(
    venue: &Venue,
    owner: &Owner,
    agent: &AgentRecord,
    found: &[String],
) -> Result<(), StoreError> {
    prepare_places(venue, &wanted_places::<E>(venue, owner, agent, found), Asking::Never).await
}

fn wanted_places<E: PinnedPlace>(
    venue: &Venue,
    owner: &Owner,
    agent: &AgentRecord,
    found: &[String],
) -> Vec<WantedPlace<E>> {
    let (config, declared) = (&agent.config, E::list_declared(&agent.config));
    let mut wanted: Vec<_> = declared.iter().map(|own| WantedPlace::of_agent(owner, agent, own)).collect();
    let entries = config.context.iter().filter_map(|entry| match entry {
        ContextEntry::Full(full) => full.op.as_deref(),
        ContextEntry::Short(_) => None,
    });
    let tools = config.tools.iter().filter_map(ToolEntry::operation);
    let named = tools.chain(entries).chain(found.iter().map(String::as_str));
    let named: BTreeSet<_> = named.filter_map(E::name_in).collect();
    let of_venue = named.iter().filter(|name| declared.iter().all(|own| E::name_of(own) != *name));
    let of_venue = of_venue.filter_map(|name| E::places(venue).find(name));
    wanted.extend(of_venue.map(|place| WantedPlace::of_venue(owner, place)));
    wanted
}

async fn prepare_places<E: PinnedPlace>(
    venue: &Venue,
    wanted: &[WantedPlace<E>],
    asking: Asking<'_>,
) -> Result<(), StoreError> {
    join_all(wanted.iter().map(|place| prepare_place(venue, place, asking))).await.into_iter().collect()
}

/// Returns why the place that a path names couldn't be asked last; `None` if it could, or if the path names none.
pub(crate) fn absence_reason<E: PinnedPlace>(
    venue: &Venue,
    owner: &Owner,
    agent: &AgentRecord,
    path: &str,
) -> Option<String> {
    let name = E::name_in(path)?;
    let declared = E::list_declared(&agent.config).iter().find(|own| *E::name_of(own) == name);
    let wanted = match declared {
        Some(own) => WantedPlace::<E>::of_agent(owner, agent, own),
        None => WantedPlace::of_venue(owner, E::places(venue).find(&name)?),
    };
    let (_, reason) = E::places(venue).find_known(&wanted.key)?.state().failure?;
    Some(format!("{} `{name}` can't be asked: {reason}", E::WHAT))
}

fn place_in_path<E: PinnedPlace>(venue: &Venue, owner: &Owner, path: &str) -> Option<WantedPlace<E>> {
    let place = E::name_in(path).and_then(|name| E::places(venue).find(&name))?;
    Some(WantedPlace::of_venue(owner, place))
}

/// Publishes what the venue's place offers that a path names, for a caller outside turns.
///
/// # Errors
/// The store can't be read.
pub(crate) async fn prepare_path<E: PinnedPlace>(venue: &Venue, owner: &Owner, path: &str) -> Result<(), StoreError> {
    match place_in_path::<E>(venue, owner, path) {
        Some(place) => prepare_place(venue, &place, Asking::FirstUse).await,
        None => Ok(()),
    }
}

/// Publishes what is stored of the venue's place that a path names, for a caller outside turns: a place is asked by those
/// who may call it. Returns whether there is such a place.
///
/// # Errors
/// The store can't be read.
pub(crate) async fn prepare_stored<E: PinnedPlace>(
    venue: &Venue,
    owner: &Owner,
    path: &str,
) -> Result<bool, StoreError> {
    let Some(place) = place_in_path::<E>(venue, owner, path) else { return Ok(false) };
    prepare_place(venue, &place, Asking::Never).await?;
    Ok(true)
}

/// Keeps what the places offer that all owners share published, until the process ends.
pub(crate) async fn watch<E: PinnedPlace>(venue: Arc<Venue>, ending: CancellationToken) {
    let shared = E::places(&venue).of_venue().filter(|place| place.is_shared);
    let wanted: Vec<_> = shared.map(|place| WantedPlace::<E>::of_venue(&venue_owner(), place)).collect();
    if wanted.is_empty() {
        return;
    }
    loop {
        if let Err(error) = prepare_places(&venue, &wanted, Asking::WhenOld(&venue)).await {
            tracing::debug!(kind = E::WHAT, %error, "what is approved of shared places isn't read yet");
        }
        let pause = venue.clock.wait_until(venue.clock.steady() + WATCH_PAUSE);
        if ending.run_until_cancelled(pause).await.is_none() {
            return;
        }
    }
}

/// Publishes what a place offers by what is approved.
async fn prepare_place<E: PinnedPlace>(
    venue: &Venue,
    wanted: &WantedPlace<E>,
    asking: Asking<'_>,
) -> Result<(), StoreError> {
    let WantedPlace { key, settings, .. } = wanted;
    let known = match wanted.find_known(venue) {
        Ok(known) => known,
        Err(error) => {
            tracing::warn!(name = %key.name, %error, "{} can't be used", E::WHAT);
            publish_nothing::<E>(venue, key);
            return Ok(());
        }
    };
    let asking = if known.endpoint.may_ask() { asking } else { Asking::Never };
    let (now, state) = (venue.clock.steady(), known.state());
    let is_newer_than = |at: Option<Duration>, age: Duration| at.is_some_and(|at| now.saturating_sub(at) < age);
    let has_failed = is_newer_than(state.failure.as_ref().map(|(at, _)| *at), PLACE_RETRY);
    // However often a place announces changes, it is believed at most once in this time.
    let has_changed = matches!(asking, Asking::WhenOld(_))
        && known.endpoint.announced_changes() != state.seen_changes
        && !is_newer_than(state.asked, PLACE_CHANGE_PAUSE)
        && !has_failed;
    if !has_changed && is_newer_than(state.read, PLACE_PIN_AGE) {
        return Ok(());
    }
    match pins::load::<E>(venue, key, settings).await?.filter(|pin| E::is_enough(pin, settings)) {
        Some(pin) => {
            publish(venue, key, &known, &pin);
            if let Asking::WhenOld(venue) = asking
                && (has_changed || state.due.is_none_or(|due| now >= due))
                && !has_failed
                && known.claim()
            {
                refresh_in_background(venue, key, &known);
            }
        }
        None if matches!(asking, Asking::Never) => {
            publish_nothing::<E>(venue, key);
            return Ok(());
        }
        None if has_failed => publish_nothing::<E>(venue, key),
        None => match refresh(venue, key, &known).await {
            Ok(_) => {}
            Err(OpError::Store(error)) if error.is_transient() => return Err(error),
            Err(error) => {
                note_failure(venue, key, &known, &error);
                publish_nothing::<E>(venue, key);
            }
        },
    }
    known.change(|state| state.read = Some(venue.clock.steady()));
    Ok(())
}

fn note_failure<E: PinnedPlace>(venue: &Venue, key: &PlaceKey, known: &KnownPlace<E>, error: &OpError) {
    tracing::warn!(name = %key.name, %error, "what the {} offers isn't known", E::WHAT);
    known.change(|state| state.failure = Some((venue.clock.steady(), error.to_string())));
}

/// Asks a place without making anybody wait. The caller has claimed it.
fn refresh_in_background<E: PinnedPlace>(venue: &Arc<Venue>, key: &PlaceKey, known: &Arc<KnownPlace<E>>) {
    let (venue, key, known) = (Arc::clone(venue), key.clone(), Arc::clone(known));
    tokio::spawn(async move {
        if let Err(error) = refresh(&venue, &key, &known).await {
            note_failure(&venue, &key, &known, &error);
        }
        known.release();
    });
}

/// Asks a place what it is, compares that with what is approved, and publishes the latter.
///
/// # Errors
/// The place doesn't say it, or the store fails.
pub(crate) async fn refresh<E: PinnedPlace>(
    venue: &Venue,
    key: &PlaceKey,
    known: &KnownPlace<E>,
) -> Result<E::Pin, OpError> {
    known.note_asked(venue.clock.steady(), known.endpoint.announced_changes());
    let pin = E::ask(venue, key, known).await?;
    publish(venue, key, known, &pin);
    Ok(pin)
}

/// Publishes what a place offers by what is approved. What can't be published is left out.
pub(crate) fn publish<E: PinnedPlace>(venue: &Venue, key: &PlaceKey, known: &KnownPlace<E>, pin: &E::Pin) {
    known.endpoint.learn(pin);
    if let Err(error) = try_publish(venue, key, known, pin) {
        tracing::warn!(name = %key.name, %error, "what the {} offers can't be used", E::WHAT);
        known.change(|state| state.failure = Some((venue.clock.steady(), error.to_string())));
        publish_nothing::<E>(venue, key);
    }
}

fn try_publish<E: PinnedPlace>(
    venue: &Venue,
    key: &PlaceKey,
    known: &KnownPlace<E>,
    pin: &E::Pin,
) -> Result<(), PublicationError> {
    let now = venue.now();
    let Ok(source) = SourceName::in_group(E::GROUP, key.name.as_str()) else { return Ok(()) };
    let version = pin.version(known.endpoint.place_settings());
    let (shown, expires) = ((version.clone(), pin.change_hash()), Some(now.plus(PLACE_PUBLISHED)));
    let place = PublicationKey { owner: key.owner.as_ref(), agent: key.agent.as_ref(), source: &source };
    if known.state().published.as_ref() == Some(&shown) && venue.catalog.renew(place, &version, expires, now) {
        return Ok(());
    }
    let Some((operations, facts)) = E::operations(venue, &source, key, known, pin) else { return Ok(()) };
    let (owner, agent) = (key.owner.clone(), key.agent.clone());
    venue.catalog.publish(Publication { source, owner, agent, version, expires, operations }, now)?;
    known.change(|state| {
        state.published = Some(shown);
        state.facts = facts;
    });
    Ok(())
}

/// Publishes that a place of an agent offers nothing for now. Neither what it had under other settings, nor what a place of
/// the venue has that has its name, may be taken for it.
fn publish_nothing<E: PinnedPlace>(venue: &Venue, key: &PlaceKey) {
    let Ok(source) = SourceName::in_group(E::GROUP, key.name.as_str()) else { return };
    if key.agent.is_none() {
        return;
    }
    let (now, version) = (venue.now(), NOTHING.to_owned());
    let expires = Some(now.plus(PLACE_PUBLISHED));
    let place = PublicationKey { owner: key.owner.as_ref(), agent: key.agent.as_ref(), source: &source };
    if venue.catalog.renew(place, NOTHING, expires, now) {
        return;
    }
    venue.catalog.withdraw_at(place);
    let (owner, agent, source) = (key.owner.clone(), key.agent.clone(), source.clone());
    let nothing = Publication { source, owner, agent, version, expires, operations: Vec::new() };
    if let Err(error) = venue.catalog.publish(nothing, now) {
        tracing::warn!(name = %key.name, %error, "the name of the {} isn't kept for its agent", E::WHAT);
    }
}
