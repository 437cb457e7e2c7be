//! What a venue stores and does: agents, jobs, approvals, resources, spending. Operations, HTTP and turns call it; it
//! writes documents of the store and messages of outboxes. It runs no turn.
//!
//! [`operation`] says what an operation is, and has the catalogue of them. Submissions come in through [`ingress`],
//! messages go out through [`outbox`], and [`upkeep`] audits, repairs and deletes.
//!
//! [`Venue`] is what every role holds: the store, the bus, the clock and the key, built once by `app`.

// Calls of operations, and what goes to other servers.
pub mod operation;
pub mod failure;
pub mod request_call;
pub mod outbound;
pub mod places;
mod pinned;
pub mod mcp_client;
pub mod mcp_login;
pub mod mcp;
pub mod a2a_client;
pub mod a2a_agents;
pub mod outside_tools;
pub mod declared;

// Agents, jobs, and what is asked of people and others.
pub mod agents;
pub mod jobs;
pub mod job_view;
pub mod waits;
pub mod outcomes;
pub mod open_calls;
pub mod dead_letters;
pub mod child_jobs;
pub mod operation_jobs;
pub mod remote_tasks;
pub mod external;
pub mod approvals;
pub mod timers;
pub mod ingress;
pub mod direct;
pub mod outbox;
mod relay;
pub mod notices;
pub mod notifications;

// The same for programs that speak the Agent2Agent protocol.
pub mod a2a;
pub mod key_rotation;

// Values, and what a turn saw of them.
pub mod workspace;
pub mod tree;
pub mod assets;
pub mod resources;
pub mod context;
pub mod ledger;
pub mod erase;

// Authority.
pub mod auth;
pub mod policy;
pub mod revocation_reach;
pub mod secrets;

// Money and room.
pub mod spending;
pub mod rates;
pub mod quotas;
mod meters;

// The fleet, its store and its upkeep.
pub mod registry;
pub mod census;
pub mod clocks;
pub mod workload;
pub mod local_worker;
mod fleet_cache;
mod owners;
pub mod identity;
pub mod history;
pub mod store_format;
pub mod own_records;
pub mod strays;
pub mod upkeep;

use crate::bus::Bus;
use crate::domain::authority::grant::Boundary;
use crate::domain::cap::SpendSettings;
use crate::domain::ids::{AgentId, Owner, SessionKey};
use crate::domain::lattice::layout::Scope;
use crate::domain::limits::END_BYTES;
use crate::domain::message::BusMessage;
use crate::domain::quota::{Quota, QuotaSettings, QuotaUsage};
use crate::domain::time::Millis;
use crate::process::clock::Clock;
use crate::process::telemetry::Metrics;
use crate::process::tracer::Tracer;
use crate::store::ack_log::AckLogReport;
pub use crate::store::keys::{is_reserved, venue_owner};
use crate::store::{DocWrite, Fill, OwnerUsage, Store, StoreError, Window, WriteOutcome};
use crate::venue::operation::{Catalog, CatalogView};
use crate::venue::secrets::Vault;
use crate::venue::workspace::Workspace;
use bytes::Bytes;
use context::PromptCache;
use history::History;
pub use owners::tenant_owner;
use std::sync::Arc;

/// Document with the key that job ids are derived with.
const KEY_DOC: &str = "key";
/// Document with the copy of that key.
const KEY_COPY: &str = "key.copy";
/// Owners whose jobs are counted before a key is made.
const KEY_OWNERS: usize = 500;
/// Hexadecimal digits of a complete key.
const KEY_DIGITS: usize = 64;

/// The shared parts of a process.
pub struct Venue {
    /// Store of all durable state.
    pub store: Arc<dyn Store>,
    /// The queue, through which messages go.
    pub bus: Arc<dyn Bus>,
    /// Clock of the process, set by the store's.
    pub clock: Clock,
    /// Name shown in prompts and on `status`.
    pub name: String,
    /// Key of job ids, the same for every process on the same store.
    pub key: Vec<u8>,
    /// Catalogue of the operations.
    pub catalog: Catalog,
    /// Keys that seal secrets.
    pub secrets: Vault,
    /// Namespaces of resources at and above which a request is granted nothing.
    pub boundaries: Vec<Boundary>,
    /// Caps on spending, and prices.
    pub spend: SpendSettings,
    /// Quotas of owners.
    pub quota: QuotaSettings,
    /// Cache for prompts.
    pub prompts: PromptCache,
    /// Counters of model calls for their rate limits.
    pub meters: meters::Meters,
    /// The worker of this process, if it has one.
    pub local: local_worker::LocalWorker,
    /// Cached list of workers.
    pub fleet: fleet_cache::FleetCache,
    /// History of the store: whether it still has what it acknowledged.
    pub history: History,
    /// Counters of the process.
    pub metrics: Arc<Metrics>,
    /// Spans of traces, if they are on.
    pub tracer: Tracer,
}

impl Venue {
    /// Returns the current time.
    pub fn now(&self) -> Millis {
        self.clock.now()
    }

    /// Returns the current time, and the date of the day that spending counts by.
    pub fn day(&self) -> (Millis, String) {
        let now = self.now();
        (now, self.spend.zone.day(now).date)
    }

    /// Returns the operations that calls of an owner may name now.
    pub fn catalog_view(&self, owner: &Owner) -> CatalogView {
        self.catalog.for_owner(owner, self.now())
    }

    /// Returns the operations that calls of an agent may name now.
    pub fn catalog_of_agent(&self, owner: &Owner, agent: &AgentId) -> CatalogView {
        self.catalog.for_agent(owner, Some(agent), self.now())
    }

    /// Returns how full the store is, and sets the metric of it.
    pub async fn store_fill(&self) -> Fill {
        let fill = self.store.fill(self.clock.steady()).await.unwrap_or_default();
        let percent = fill.percent().and_then(|percent| u32::try_from(percent).ok()).unwrap_or(0);
        self.metrics.store_fill.set(f64::from(percent) / 100.0);
        fill
    }

    /// Returns the quota of an owner for whom operators have set none.
    pub async fn quota(&self) -> Quota {
        self.quota.for_store(self.store_fill().await.limit)
    }

    /// Returns the tree of an owner; writes there must fit its quota.
    pub async fn workspace(&self, owner: &Owner, scope: Scope) -> Workspace {
        Workspace::new(Arc::clone(&self.store), owner.clone(), scope).with_quota(self.quota().await)
    }

    /// Writes documents for an owner, within the quota.
    pub async fn write_within_quota(&self, owner: &Owner, writes: &[DocWrite]) -> Result<WriteOutcome, StoreError> {
        self.store.write_within(self.now(), owner, writes, &self.quota().await).await
    }

    /// Writes one of the venue's own documents under `prefix`, and deletes the oldest above `most`.
    pub async fn keep_newest(&self, prefix: &str, most: usize, new: DocWrite) -> Result<(), StoreError> {
        let owner = venue_owner();
        let window = Window { reverse: false, skip: 0, limit: 0, values: false };
        let kept = self.store.page(&owner, prefix, window).await?.total;
        let mut writes = vec![new];
        if kept >= most {
            let old = self.store.scan(&owner, prefix, None, false, kept + 1 - most).await?;
            writes.extend(old.into_iter().map(|(key, _)| DocWrite::delete(key)));
        }
        self.store.write(self.now(), &owner, &writes).await?;
        Ok(())
    }

    /// Checks that an owner's quota has room for `adds`. For what several writes make: concurrent writes may exceed the
    /// quota by as much as they add.
    pub async fn check_room(&self, owner: &Owner, adds: QuotaUsage) -> Result<(), StoreError> {
        let OwnerUsage { used, operator_quota: own } = self.store.usage(owner).await?;
        self.quota().await.with_own(own).check_room(&used, &adds).map_err(StoreError::Over)
    }

    /// Checks that an owner's quota has room for a result, a reason or an answer of so many bytes, which ends accepted
    /// work. Up to [`END_BYTES`] it always has.
    pub async fn check_end_room(&self, owner: &Owner, bytes: usize) -> Result<(), StoreError> {
        if bytes <= END_BYTES {
            return Ok(());
        }
        self.check_room(owner, QuotaUsage { bytes: bytes as u64, ..QuotaUsage::default() }).await
    }

    /// Returns the quota for a write of such a result, reason or answer; `None` up to [`END_BYTES`].
    pub async fn quota_to_end(&self, bytes: usize) -> Option<Quota> {
        if bytes <= END_BYTES { None } else { Some(self.quota().await) }
    }

    /// Compares the last acknowledged changes with the store, if its generation is another; see
    /// [`AckLogStore::compare`](crate::store::ack_log::AckLogStore::compare). Then caches that depend on versions of
    /// documents are cleared.
    pub async fn compare_history(&self) -> Result<Option<AckLogReport>, StoreError> {
        let Some(tail) = self.history.tail() else { return Ok(None) };
        let found = tail.compare(self.now(), || {
            self.history.note_change();
            self.prompts.clear();
        });
        found.await
    }

    /// Wakes a worker for a session that is due; a wake that fails is left to the sweep, with a log line.
    pub async fn wake(&self, owner: &Owner, session: &SessionKey) {
        self.publish_wake(owner, session, &BusMessage::wake(owner, session)).await;
    }

    /// Wakes a worker like [`Venue::wake`], and says that more sessions of the owner are due.
    pub async fn wake_of_many(&self, owner: &Owner, session: &SessionKey) {
        self.publish_wake(owner, session, &BusMessage::wake_of_many(owner, session)).await;
    }

    async fn publish_wake(&self, owner: &Owner, session: &SessionKey, wake: &BusMessage) {
        if let Err(error) = self.bus.publish(wake).await {
            tracing::debug!(%owner, %session, %error, "wake not published; the sweep will find the session");
        }
    }
}

/// Returns the store's key of job ids; `None` if there is none yet. If the key is missing or damaged, its copy is used.
pub async fn load_key(store: &dyn Store) -> Result<Option<Vec<u8>>, StoreError> {
    Ok(read_key(store).await?.map(|(key, _)| key))
}

/// Returns the key, and whether both documents have it.
async fn read_key(store: &dyn Store) -> Result<Option<(Vec<u8>, bool)>, StoreError> {
    let owner = venue_owner();
    let read = async |place: &str| match store.doc(&owner, place).await {
        Ok(doc) => Ok(Ok(doc.value)),
        Err(error) if error.is_transient() => Err(error),
        Err(error) => Ok(Err(error)),
    };
    let is_whole = |key: &Bytes| key.len() == KEY_DIGITS && key.iter().all(u8::is_ascii_hexdigit);
    let (key, copy) = (read(KEY_DOC).await?, read(KEY_COPY).await?);
    let is_same = matches!((&key, &copy), (Ok(Some(key)), Ok(Some(copy))) if key == copy);
    let copy = copy.ok().flatten().filter(is_whole);
    match (key, copy) {
        // A key without a copy was made by a build that wrote none.
        (Ok(Some(key)), None) => Ok(Some((key.to_vec(), false))),
        (Ok(Some(key)), Some(_)) if is_whole(&key) => Ok(Some((key.to_vec(), is_same))),
        (Ok(_) | Err(_), Some(copy)) => Ok(Some((copy.to_vec(), false))),
        (Ok(None), None) => Ok(None),
        (Err(error), None) => Err(error),
    }
}

/// Whether one of the first owners has jobs.
async fn any_jobs(store: &dyn Store) -> Result<bool, StoreError> {
    let mut owners = store.owners(None, KEY_OWNERS).await?;
    owners.retain(|owner| !is_reserved(owner));
    Ok(!owners.is_empty() && store.usages(&owners).await?.iter().any(|kept| kept.jobs > 0))
}

/// Returns the store's key of job ids; made on first use, and then the same for all processes.
pub async fn load_or_make_key(store: &dyn Store, now: Millis) -> Result<Vec<u8>, StoreError> {
    let owner = venue_owner();
    if let Some((key, is_at_both)) = read_key(store).await? {
        let written = [KEY_DOC, KEY_COPY].map(|place| DocWrite::put(place, key.clone()));
        // A full store takes nothing new, and a worker must be able to start with it.
        if !is_at_both && let Err(error) = store.write(now, &owner, &written).await {
            tracing::warn!(%error, "the venue's key is not written again");
        }
        return Ok(key);
    }
    if any_jobs(store).await? && read_key(store).await?.is_none() {
        let reason = "the venue's key is gone, and owners have jobs: with another key, messages that are delivered again \
                      would be other jobs and run twice; restore a backup of the store";
        return Err(StoreError::Corrupt { store: "documents".into(), record: None, reason: reason.into() });
    }
    let fresh = format!("{}{}", uuid::Uuid::now_v7().simple(), uuid::Uuid::new_v4().simple());
    // A conflict means that another process has made the key.
    store
        .write(now, &owner, &[DocWrite::put(KEY_DOC, fresh.clone()).at_version(0), DocWrite::put(KEY_COPY, fresh)])
        .await?;
    load_key(store).await?.ok_or_else(|| StoreError::Corrupt {
        store: "documents".into(),
        record: None,
        reason: "the venue key is missing after it was written".into(),
    })
}
