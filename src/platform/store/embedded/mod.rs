//! Store over fjall: one writer thread, group commit, fsync.
//!
//! Every change is a request to the writer thread. It drains its channel and applies the requests in order (each all or
//! nothing; later ones see the earlier) to a group in memory. The flusher thread writes the group as one atomic batch,
//! makes it durable with one fsync and then answers; meanwhile the writer applies the next group. Reads use the state
//! after the last durable group.
//!
//! ```text
//! admit, commit, … ─▶ channel ─▶ writer: apply, apply, … ─▶ flusher: batch, fsync ─▶ answers
//! read, scan, …    ─▶ snapshot of the last durable group
//! ```
//!
//! `layout` lists every key and record.
//!
//! [In memory](EmbeddedStore::in_memory) there is neither thread nor disk: each call runs on its caller's thread.

mod admit;
mod backup;
mod capacity;
mod clock;
mod counts;
mod docs;
mod finish;
mod flusher;
mod folder;
mod follow_clock;
mod forget;
mod head;
mod health;
mod index;
mod keyspace_maps;
pub(crate) mod layout;
mod lease;
mod mailbox;
mod memory;
mod open;
mod outbox;
mod owners;
mod reads;
mod reclaim;
mod session_changes;
mod settings;
mod sweep;
mod turn;
pub(crate) mod tx;
pub(crate) mod view;
mod writer;
mod writes;

use super::large::note_read;
use super::{
    Accounts, AdmissionOutcome, Admit, Amend, AmendOutcome, BackendSetting, BackupOutcome, Checkpoint, Commit,
    CommitOutcome, Doc, DocKey, DocPage, DocWrite, DocumentStore, DueOwners, Fill, FillLevel, FinishOutcome,
    ForgetOutcome, ForgetRequest, JobFinish, Lease, LeaseCheck, LeaseUse, MailboxEntry, NewJob, OutboxEntry,
    OwnerRegistration, OwnerUsage, ParkOutcome, Recount, ReleaseOutcome, SessionFacts, SessionSnapshot,
    SetSessionOutcome, Store, StoreError, StoreInspection, SweepResult, Window, WriteOutcome,
};
use crate::domain::ids::{AgentId, JobId, Owner, OwnerPart, SessionKey};
use crate::domain::quota::{Quota, QuotaUsage};
use crate::domain::time::Millis;
use async_trait::async_trait;
use clock::SeenClock;
use finish::FinishRequest;
use folder::StoreFolder;
use memory::MemoryStore;
use parking_lot::Mutex;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;
use tx::Tx;
use view::{DurableState, StoreFault};

pub use memory::MemorySnapshot;
pub use open::StoreOpenError;

/// Most documents read on the caller's thread: a change of threads costs more than reading their few blocks, mostly
/// from cache.
const READ_AT_ONCE: usize = 8;

/// The store of one process: in a folder of this machine, or in memory.
pub struct EmbeddedStore {
    name: Arc<str>,
    place: StorePlace,
    /// Fullness as last measured.
    level: FillLevel,
    /// The machine's clock as last read, if leases are kept when it is set.
    seen: Option<Mutex<SeenClock>>,
}

/// Where the records of the store lie.
enum StorePlace {
    Folder(Box<StoreFolder>),
    Memory(MemoryStore),
}

impl EmbeddedStore {
    /// Whether another process holds the store in `dir`.
    pub fn is_held(dir: &Path) -> bool {
        open::is_held(dir)
    }

    /// Opens or creates the store in `dir` and locks the folder for this process.
    ///
    /// Leases of the previous process have then lapsed unreleased (a crash counts), and every session with work is due
    /// at once. Fails with [`StoreOpenError::Store`] if the folder or its database can't be used, for example because
    /// another process, which the error names, holds it; with [`StoreOpenError::Format`], and without a change, if this
    /// build can't work on the store.
    pub fn open(dir: &Path) -> Result<Arc<Self>, StoreOpenError> {
        Self::in_folder(dir, None, None)
    }

    /// [`EmbeddedStore::open`] with a limit in bytes on disk: from 80 % on no new work is admitted. Its callers use the
    /// machine's clock: holders keep their leases when that is set forward.
    pub fn open_within(dir: &Path, limit: Option<u64>) -> Result<Arc<Self>, StoreOpenError> {
        let seen = SeenClock::read();
        Self::in_folder(dir, limit, Some(Mutex::new(seen)))
    }

    fn in_folder(dir: &Path, limit: Option<u64>, seen: Option<Mutex<SeenClock>>) -> Result<Arc<Self>, StoreOpenError> {
        let name: Arc<str> = format!("embedded:{}", dir.display()).into();
        let folder = StoreFolder::open(dir, &name, limit, Box::new(health::free_bytes))?;
        Ok(Arc::new(Self { name, place: StorePlace::Folder(Box::new(folder)), level: FillLevel::default(), seen }))
    }

    /// Whether a store exists in this folder.
    pub fn exists(dir: &Path) -> bool {
        open::database_path(dir).exists()
    }

    /// Returns an empty store in memory, with the same rules as one in a folder.
    pub fn in_memory() -> Arc<Self> {
        let place = StorePlace::Memory(MemoryStore::default());
        Arc::new(Self { name: "embedded:memory".into(), place, level: FillLevel::default(), seen: None })
    }

    /// Returns a snapshot of the records in memory for [`EmbeddedStore::restore`]; `None` for a folder.
    pub fn snapshot(&self) -> Option<MemorySnapshot> {
        match &self.place {
            StorePlace::Folder(_) => None,
            StorePlace::Memory(memory) => Some(memory.snapshot()),
        }
    }

    /// Replaces the records in memory by a snapshot: all changes since are lost, acknowledged or not. A folder isn't
    /// changed. Fails if a record of the snapshot can't be decoded.
    pub fn restore(&self, snapshot: &MemorySnapshot) -> Result<(), StoreError> {
        match &self.place {
            StorePlace::Folder(_) => Ok(()),
            StorePlace::Memory(memory) => memory.restore(snapshot).map_err(|e| e.into_store_error(&self.name)),
        }
    }

    /// Returns `embedded:<folder>`, as in errors.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the counter of groups that were made durable, each by one fsync.
    pub fn fsyncs(&self) -> Arc<AtomicU64> {
        match &self.place {
            StorePlace::Folder(folder) => folder.fsyncs(),
            StorePlace::Memory(_) => Arc::default(),
        }
    }

    /// Applies `request` on the writer; returns when it is durable. After an error nothing of the request is stored.
    pub(crate) async fn call<T: Send + 'static>(
        &self,
        request: impl FnOnce(&mut Tx<'_>) -> Result<T, StoreFault> + Send + 'static,
    ) -> Result<T, StoreError> {
        match &self.place {
            StorePlace::Folder(folder) => folder.requests().call(request).await,
            StorePlace::Memory(memory) => memory.apply(request).map_err(|e| e.into_store_error(&self.name)),
        }
    }

    /// [`EmbeddedStore::call`] for changes that are not urgent: it returns when they are durable too, but lets them wait
    /// some milliseconds for the fsync of others.
    pub(crate) async fn call_deferred<T: Send + 'static>(
        &self,
        request: impl FnOnce(&mut Tx<'_>) -> Result<T, StoreFault> + Send + 'static,
    ) -> Result<T, StoreError> {
        match &self.place {
            StorePlace::Folder(folder) => folder.requests().call_deferred(request).await,
            StorePlace::Memory(_) => self.call(request).await,
        }
    }

    /// Reads a few records from the last durable state, on this thread.
    pub(crate) fn query_now<T>(
        &self,
        read: impl FnOnce(&DurableState) -> Result<T, StoreFault>,
    ) -> Result<T, StoreError> {
        let found = match &self.place {
            StorePlace::Folder(folder) => read(&folder.durable()),
            StorePlace::Memory(memory) => memory.query(read),
        };
        found.map_err(|e| e.into_store_error(&self.name))
    }

    /// Reads from the last durable state, off the async threads.
    pub(crate) async fn query<T: Send + 'static>(
        &self,
        read: impl FnOnce(&DurableState) -> Result<T, StoreFault> + Send + 'static,
    ) -> Result<T, StoreError> {
        let StorePlace::Folder(folder) = &self.place else { return self.query_now(read) };
        let state = folder.durable();
        let outcome = tokio::task::spawn_blocking(move || read(&state)).await;
        let stopped =
            |e: tokio::task::JoinError| StoreError::Unavailable { store: self.name.to_string(), reason: e.to_string() };
        outcome.map_err(stopped)?.map_err(|e| e.into_store_error(&self.name))
    }
}

#[async_trait]
impl Store for EmbeddedStore {
    async fn admit(&self, now: Millis, request: &Admit) -> Result<AdmissionOutcome, StoreError> {
        self.follow_clock(now).await?;
        let request = request.clone();
        self.call(move |tx| admit::admit(tx, now, &request)).await
    }

    async fn renew(&self, now: Millis, lease: &Lease, ttl: Duration) -> Result<LeaseCheck, StoreError> {
        self.follow_clock(now).await?;
        let lease = lease.clone();
        self.call(move |tx| turn::renew(tx, now, &lease, ttl)).await
    }

    async fn checkpoint(&self, now: Millis, lease: &Lease, write: &Checkpoint) -> Result<LeaseCheck, StoreError> {
        let (lease, write) = (lease.clone(), write.clone());
        self.call(move |tx| turn::checkpoint(tx, now, &lease, &write)).await
    }

    async fn commit(&self, now: Millis, lease: &Lease, commit: &Commit) -> Result<CommitOutcome, StoreError> {
        let (lease, commit) = (lease.clone(), commit.clone());
        self.call(move |tx| turn::commit(tx, now, &lease, &commit)).await
    }

    async fn release(&self, now: Millis, lease: &Lease, then: LeaseUse) -> Result<ReleaseOutcome, StoreError> {
        let lease = lease.clone();
        self.call(move |tx| turn::release(tx, now, &lease, then)).await
    }

    async fn remove_published(&self, owner: &Owner, ids: &[String]) -> Result<(), StoreError> {
        let (owner, ids) = (owner.token(), ids.to_vec());
        self.call_deferred(move |tx| outbox::remove(tx, &owner, &ids)).await
    }

    async fn finish(
        &self,
        now: Millis,
        owner: &Owner,
        session: &SessionKey,
        finish: &JobFinish,
        open: Option<&NewJob>,
        outbox: &[OutboxEntry],
    ) -> Result<FinishOutcome, StoreError> {
        let (session, finish) = (session.clone(), finish.clone());
        let request = FinishRequest { session, finish, open: open.cloned(), outbox: outbox.to_vec() };
        let owner = owner.clone();
        self.call(move |tx| finish::finish(tx, now, &owner, &request)).await
    }

    async fn set_job_paused(
        &self,
        now: Millis,
        owner: &Owner,
        session: &SessionKey,
        job: &JobId,
        pause: bool,
    ) -> Result<ParkOutcome, StoreError> {
        let (owner, session, job) = (owner.clone(), session.clone(), job.clone());
        self.call(move |tx| finish::set_paused(tx, now, &owner, &session, &job, pause)).await
    }

    async fn set_session(
        &self,
        now: Millis,
        owner: &Owner,
        session: &SessionKey,
        snapshot: Option<&SessionSnapshot>,
        checks: &[DocWrite],
    ) -> Result<SetSessionOutcome, StoreError> {
        let (owner, session, snapshot, checks) = (owner.clone(), session.clone(), snapshot.cloned(), checks.to_vec());
        let set = move |tx: &mut Tx<'_>| session_changes::set(tx, now, &owner, &session, snapshot.as_ref(), &checks);
        self.call(set).await
    }

    async fn amend(
        &self,
        now: Millis,
        owner: &Owner,
        session: &SessionKey,
        amend: &Amend,
    ) -> Result<AmendOutcome, StoreError> {
        let (owner, session, amend) = (owner.clone(), session.clone(), amend.clone());
        self.call(move |tx| session_changes::amend(tx, now, &owner, &session, &amend)).await
    }

    async fn forget(&self, now: Millis, owner: &Owner, forget: &ForgetRequest) -> Result<ForgetOutcome, StoreError> {
        let (owner, forget) = (owner.clone(), forget.clone());
        self.call(move |tx| forget::forget(tx, now, &owner, &forget)).await
    }

    async fn sweep(&self, now: Millis, owner: &Owner, grace: Duration, limit: u32) -> Result<SweepResult, StoreError> {
        self.follow_clock(now).await?;
        let (token, owner) = (owner.token(), owner.clone());
        let owner_token = token.clone();
        let swept = match self.call(move |tx| sweep::sweep(tx, now, &owner, grace, limit)).await {
            Ok(swept) => swept,
            Err(error) => {
                // A damaged owner must not delay the others: it is swept after them.
                self.call(move |tx| sweep::reschedule(tx, now, &owner_token)).await?;
                return Err(error);
            }
        };
        let first = self.query(move |state| sweep::first_documents(state, &owner_token)).await?;
        let next = sweep::earliest(swept.next, sweep::next_due(&first, now));
        self.call(move |tx| sweep::finish(tx, &token, next)).await?;
        Ok(SweepResult { first, next, ..swept })
    }

    async fn due_owners(
        &self,
        now: Millis,
        _worker: &str,
        horizon: Duration,
        limit: u32,
    ) -> Result<DueOwners, StoreError> {
        self.follow_clock(now).await?;
        // All shards belong to this process.
        self.call(move |tx| sweep::due_owners(tx, now, horizon, limit)).await
    }

    async fn sign_off(&self, _worker: &str) -> Result<(), StoreError> {
        Ok(())
    }
}

#[async_trait]
impl DocumentStore for EmbeddedStore {
    async fn read(&self, owner: &Owner, keys: &[DocKey]) -> Result<Vec<Doc>, StoreError> {
        if keys.len() <= READ_AT_ONCE {
            return Ok(note_read(self.query_now(|state| reads::read(state, owner, keys))?).await);
        }
        let (owner, keys) = (owner.clone(), keys.to_vec());
        Ok(note_read(self.query(move |state| reads::read(state, &owner, &keys)).await?).await)
    }

    async fn scan(
        &self,
        owner: &Owner,
        prefix: &str,
        after: Option<&str>,
        reverse: bool,
        limit: usize,
    ) -> Result<Vec<(DocKey, Doc)>, StoreError> {
        let owner = owner.clone();
        let scan = reads::Scan { prefix: prefix.to_owned(), after: after.map(str::to_owned), reverse, limit };
        Ok(note_read(self.query(move |state| reads::scan(state, &owner, &scan)).await?).await)
    }

    async fn page(&self, owner: &Owner, prefix: &str, window: Window) -> Result<DocPage, StoreError> {
        let (owner, prefix) = (owner.clone(), prefix.to_owned());
        Ok(note_read(self.query(move |state| reads::page(state, &owner, &prefix, window)).await?).await)
    }

    async fn write(&self, now: Millis, owner: &Owner, writes: &[DocWrite]) -> Result<WriteOutcome, StoreError> {
        let (owner, writes) = (owner.clone(), writes.to_vec());
        self.call(move |tx| finish::write(tx, now, &owner, &writes)).await
    }

    async fn write_within(
        &self,
        now: Millis,
        owner: &Owner,
        writes: &[DocWrite],
        quota: &Quota,
    ) -> Result<WriteOutcome, StoreError> {
        let (owner, writes, quota) = (owner.clone(), writes.to_vec(), *quota);
        self.call(move |tx| finish::write_within(tx, now, &owner, &writes, &quota)).await
    }
}

#[async_trait]
impl Accounts for EmbeddedStore {
    async fn usage(&self, owner: &Owner) -> Result<OwnerUsage, StoreError> {
        self.query_now(|state| counts::owner_usage(state, &owner.token()))
    }

    async fn usages(&self, owners: &[Owner]) -> Result<Vec<QuotaUsage>, StoreError> {
        let owners: Vec<String> = owners.iter().map(Owner::token).collect();
        self.query(move |state| owners.iter().map(|owner| counts::usage(state, owner)).collect()).await
    }

    async fn recount(&self, owner: &Owner, mend: bool) -> Result<Recount, StoreError> {
        let owner = owner.token();
        if !mend {
            return self.query(move |state| counts::compare(state, &owner)).await;
        }
        self.call(move |tx| counts::mend(tx, &owner)).await
    }

    async fn register_owner(&self, owner: &Owner, most: u64) -> Result<OwnerRegistration, StoreError> {
        let owner = owner.clone();
        self.call(move |tx| owners::register_within(tx, &owner, most)).await
    }

    async fn tenant_users(&self, tenant: &OwnerPart) -> Result<u64, StoreError> {
        let tenant = tenant.clone();
        self.query(move |state| owners::count_users(state, &tenant)).await
    }

    async fn fill(&self, now: Duration) -> Result<Fill, StoreError> {
        Ok(self.level.measure(now, &self.name, self.measure_size()).await)
    }
}

#[async_trait]
impl StoreInspection for EmbeddedStore {
    async fn owners(&self, after: Option<&Owner>, limit: usize) -> Result<Vec<Owner>, StoreError> {
        let after = after.cloned();
        self.query(move |state| reads::owners(state, after.as_ref(), limit)).await
    }

    async fn sessions(
        &self,
        owner: &Owner,
        agent: Option<&AgentId>,
        after: Option<&SessionKey>,
        limit: usize,
    ) -> Result<Vec<SessionFacts>, StoreError> {
        let (owner, agent, after) = (owner.clone(), agent.cloned(), after.cloned());
        let found = self.query(move |state| reads::sessions(state, &owner, agent.as_ref(), after.as_ref(), limit));
        Ok(note_read(found.await?).await)
    }

    async fn pending_events(&self, owner: &Owner, session: &SessionKey) -> Result<Vec<MailboxEntry>, StoreError> {
        let (owner, session) = (owner.clone(), session.clone());
        self.query(move |state| reads::mail(state, &owner, &session)).await
    }

    async fn outbox(&self, owner: &Owner) -> Result<Vec<OutboxEntry>, StoreError> {
        let owner = owner.token();
        self.call(move |tx| outbox::list(tx, &owner)).await
    }

    async fn time(&self) -> Result<Option<Millis>, StoreError> {
        Ok(None)
    }

    /// An embedded store has one history: every acknowledged change is on the disk.
    async fn history(&self) -> Result<Vec<String>, StoreError> {
        Ok(Vec::new())
    }

    async fn backup(&self, name: &str) -> Result<BackupOutcome, StoreError> {
        let StorePlace::Folder(folder) = &self.place else {
            let reason = "it lies in memory; only a store in a folder can be copied".to_owned();
            return Err(StoreError::Unavailable { store: self.name.to_string(), reason });
        };
        let (to, state, store) = (folder.backups.join(name), folder.durable(), self.name.clone());
        let copied = tokio::task::spawn_blocking(move || backup::copy(&state, &to, &store)).await;
        let died = |e: tokio::task::JoinError| {
            StoreFault::Record(format!("the backup was not made: {e}")).into_store_error(&self.name)
        };
        copied.map_err(died)?
    }

    async fn busy_sessions(&self, until: Millis) -> Result<u64, StoreError> {
        self.call(move |tx| capacity::count_busy(tx, until)).await
    }

    async fn settings(&self) -> Result<Vec<BackendSetting>, StoreError> {
        let setting =
            |name: &str, value: &str| BackendSetting { name: name.into(), value: value.into(), problem: None };
        Ok(vec![
            self.size_setting().await,
            setting("store", &self.name),
            self.durability_setting(),
            self.disk_setting(),
        ])
    }
}
