//! Places elsewhere that configurations name, servers of tools and agents: those of the venue, and what a process knows of
//! each in use.

use crate::domain::ids::{AgentId, Owner};
use crate::domain::mcp::name::ServerName;
use crate::venue::venue_owner;
use parking_lot::Mutex;
use quick_cache::sync::Cache;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Places of one kind about which something is kept; it can be found out again.
const KNOWN: usize = 10_000;

/// Connection settings of a place, made from its configuration: where it is and with which headers it is asked.
pub trait PlaceEndpoint: Send + Sync + Sized + 'static {
    /// Settings of the place, in the configuration of an agent or of the venue.
    type Settings: Clone + PartialEq + Send + Sync;
    /// Reason why it can't be asked with its settings.
    type Error: std::fmt::Display;
    /// Facts that are kept of it besides the state of every place.
    type Facts: Clone + Default + Send;

    /// Makes the endpoint of a place that an agent of this venue names.
    ///
    /// # Errors
    /// The settings can't be used.
    fn open(settings: Self::Settings) -> Result<Self, Self::Error>;

    /// Returns the settings of the place.
    fn place_settings(&self) -> &Self::Settings;

    /// Returns the name in the settings of a place.
    fn name_of(settings: &Self::Settings) -> &ServerName;
}

/// A place that the venue's configuration names.
pub struct VenuePlace<E> {
    /// Endpoint that its requests go to.
    pub endpoint: Arc<E>,
    /// Whether all owners see the same: no header has a secret of the owner.
    pub is_shared: bool,
}

/// The places of one kind that a process knows.
pub struct Places<E: PlaceEndpoint> {
    own: BTreeMap<ServerName, VenuePlace<E>>,
    known: Cache<PlaceKey, Arc<KnownPlace<E>>>,
}

impl<E: PlaceEndpoint> Default for Places<E> {
    fn default() -> Self {
        Self::new(Vec::new())
    }
}

/// A place in use, with those who may call it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct PlaceKey {
    /// Owner of the agent that has declared it, or whose secrets are used; `None` if all owners share it.
    pub(crate) owner: Option<Owner>,
    /// Agent that has declared it; `None` for one of the venue.
    pub(crate) agent: Option<AgentId>,
    /// Name of the place.
    pub(crate) name: ServerName,
}

/// What this process knows of a place in use.
pub(crate) struct KnownPlace<E: PlaceEndpoint> {
    /// Endpoint that its requests go to.
    pub(crate) endpoint: Arc<E>,
    state: Mutex<PlaceState<E::Facts>>,
    is_asked: AtomicBool,
}

/// Times and results, on the steady clock of the process.
#[derive(Debug, Clone, Default)]
pub(crate) struct PlaceState<F> {
    /// When what is approved was last read.
    pub(crate) read: Option<Duration>,
    /// What was published last: versions of what is approved and of the change that waits.
    pub(crate) published: Option<(String, Option<String>)>,
    /// Time of the last request for the place's description.
    pub(crate) asked: Option<Duration>,
    /// Number of changes that the place had announced when it was last asked.
    pub(crate) seen_changes: u64,
    /// Time from which the description is old and requested again.
    pub(crate) due: Option<Duration>,
    /// Time and reason of the last failure, if nothing has succeeded since.
    pub(crate) failure: Option<(Duration, String)>,
    /// Facts of this kind of places.
    pub(crate) facts: F,
}

impl PlaceKey {
    /// Returns the owner in whose documents what is approved is kept.
    pub(crate) fn keeper(&self) -> Owner {
        self.owner.clone().unwrap_or_else(venue_owner)
    }
}

impl<E: PlaceEndpoint> Places<E> {
    /// Makes the places of a venue.
    pub fn new(own: impl IntoIterator<Item = VenuePlace<E>>) -> Self {
        let by_name = |place: VenuePlace<E>| (E::name_of(place.endpoint.place_settings()).clone(), place);
        Self { own: own.into_iter().map(by_name).collect(), known: Cache::new(KNOWN) }
    }

    /// Returns the places that the venue's configuration names.
    pub fn of_venue(&self) -> impl Iterator<Item = &VenuePlace<E>> {
        self.own.values()
    }

    /// Returns a place that the venue's configuration names.
    pub(crate) fn find(&self, name: &ServerName) -> Option<&VenuePlace<E>> {
        self.own.get(name)
    }

    /// Returns what is known of a place in use; nothing, if its settings have changed. `make` makes its endpoint.
    pub(crate) fn open_known(
        &self,
        key: &PlaceKey,
        settings: &E::Settings,
        make: impl FnOnce() -> Result<Arc<E>, E::Error>,
    ) -> Result<Arc<KnownPlace<E>>, E::Error> {
        if let Some(known) = self.known.get(key).filter(|known| known.endpoint.place_settings() == settings) {
            return Ok(known);
        }
        let (endpoint, state) = (make()?, Mutex::default());
        let known = Arc::new(KnownPlace { endpoint, state, is_asked: AtomicBool::new(false) });
        self.known.insert(key.clone(), Arc::clone(&known));
        Ok(known)
    }

    /// Returns what is known of a place, if it is in use.
    pub(crate) fn find_known(&self, key: &PlaceKey) -> Option<Arc<KnownPlace<E>>> {
        self.known.get(key)
    }
}

impl<E: PlaceEndpoint> KnownPlace<E> {
    /// Returns a copy of what is known.
    pub(crate) fn state(&self) -> PlaceState<E::Facts> {
        self.state.lock().clone()
    }

    /// Changes what is known.
    pub(crate) fn change(&self, change: impl FnOnce(&mut PlaceState<E::Facts>)) {
        change(&mut self.state.lock());
    }

    /// Records that the place has answered what it is, which is old from `due` on.
    pub(crate) fn note_answer(&self, due: Duration) {
        self.change(|state| {
            state.due = Some(due);
            state.failure = None;
        });
    }

    /// Records that the place is asked now. `seen_changes` is the number of changes that it has announced so far.
    pub(crate) fn note_asked(&self, now: Duration, seen_changes: u64) {
        self.change(|state| {
            state.asked = Some(now);
            state.seen_changes = seen_changes;
        });
    }

    /// Claims the right to ask the place in the background; `false` if another task has it.
    pub(crate) fn claim(&self) -> bool {
        !self.is_asked.swap(true, Ordering::AcqRel)
    }

    /// Gives the right back.
    pub(crate) fn release(&self) {
        self.is_asked.store(false, Ordering::Release);
    }
}
