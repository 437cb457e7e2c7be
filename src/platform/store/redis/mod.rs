//! Store over Redis Functions: one function per method. `keyspace` has the layout of every key.
//!
//! The functions are in Redis libraries named after a hash of their source (`trellis_<hash>`), so that builds side by
//! side don't replace each other's. They persist until no process uses them, see `libraries`.
//!
//! Methods that finish work may run at the server's memory limit (`allow-oom`); those that accept new work,
//! [`Store::admit`] with an event and [`DocumentStore::write`] that puts something, are refused there.

mod accounts;
mod agree;
mod args;
mod attempts;
mod barrier;
mod busy;
mod codec;
mod connection;
mod failure;
mod grant;
mod keyspace;
mod libraries;
mod millis;
mod worker_share;
mod options;
mod plain_reads;
mod put;
mod registry;
mod sentinel;
mod servers;
mod settings;
mod topology;
mod usage;
mod server_connection;

use crate::domain::ids::{AgentId, JobId, Owner, SessionKey};
use crate::domain::limits::GRANT_EVENTS;
use crate::domain::quota::Quota;
use crate::domain::time::Millis;
use crate::store::large::note_read;
use crate::store::{
    AdmissionOutcome, Admit, Amend, AmendOutcome, Amendment, BackendSetting, BackupOutcome, Checkpoint, Commit,
    CommitOutcome, Doc, DocKey, DocPage, DocWrite, DocumentStore, DueOwners, FillLevel, FinishOutcome, ForgetOutcome,
    ForgetRequest, JobFinish, Lease, LeaseCheck, LeaseUse, MailboxEntry, NewJob, OutboxEntry, ParkOutcome,
    ReleaseOutcome, SessionFacts, SessionSnapshot, SetSessionOutcome, Store, StoreError, StoreInspection, SweepResult,
    Window, WriteOutcome, keys,
};
use args::Args;
use async_trait::async_trait;
use codec::AnswerParts;
use connection::{Pool, Repeatability};
use grant::UnreadableGrant;
use keyspace::{Keyspace, lex_range};
use libraries::LibraryReports;
use millis::millis;
pub use options::{RedisOptions, ServerOrInjected};
use registry::RegisteredOwners;
pub use servers::{RedisTls, Servers, ServersUrlError, URL_FORM};
use std::{sync::Arc, time::Duration};
use worker_share::{DueQuery, WorkerShare};

/// Backoff of a session whose grant this build can't decode: another build may.
const UNREADABLE_BACKOFF: Duration = Duration::from_secs(5);

/// The store over Redis, its connections and its key names.
pub struct RedisStore {
    pool: Pool,
    keys: Keyspace,
    clock: ServerOrInjected,
    registered: RegisteredOwners,
    level: FillLevel,
    /// The shards of owners that this process sweeps.
    share: WorkerShare,
    library_reports: LibraryReports,
}

impl RedisStore {
    /// Connects and loads the functions. Retries no longer than the driver's own attempts (about two seconds); the
    /// caller may. Fails with [`StoreError::Corrupt`] if the prefix has braces, or the keys are of another number of
    /// shards.
    pub async fn open(options: RedisOptions) -> Result<Arc<Self>, StoreError> {
        let pool = Pool::new(&options)?;
        if options.prefix.contains(['{', '}']) {
            let reason = format!("illegal prefix `{}`: braces would change the hash tag", options.prefix);
            return Err(StoreError::Corrupt { store: pool.store().to_owned(), record: None, reason });
        }
        let reached = if options.reads_only { pool.ping().await } else { pool.load_everywhere().await };
        if let Err(error) = reached {
            let why = pool.why_unreachable(&options).await;
            return Err(why.map_or(error, |reason| StoreError::Unavailable { store: pool.store().to_owned(), reason }));
        }
        let keys = Keyspace::new(options.prefix, options.shards);
        agree::check_shards(&pool, &keys, options.reads_only).await?;
        Ok(Arc::new(Self {
            pool,
            keys,
            clock: options.clock,
            registered: RegisteredOwners::default(),
            level: FillLevel::default(),
            share: WorkerShare::default(),
            library_reports: LibraryReports::default(),
        }))
    }

    /// Whether several primaries divide the shards; each can lose its last changes by itself.
    pub const fn is_cluster(&self) -> bool {
        self.pool.is_cluster()
    }

    /// Sets the check that calls after a broken connection wait for.
    pub fn set_check(&self, check: std::sync::Weak<dyn crate::store::HistoryCheck>) {
        self.pool.barrier.set_check(check);
    }

    fn args(&self, method: &str, owner: &Owner) -> Args {
        Args::new(method, &self.keys.owner(owner))
    }

    /// Returns the arguments of a method with a clock.
    fn timed_args(&self, method: &str, owner: &Owner, now: Millis) -> Args {
        let mut args = self.args(method, owner);
        args.clock(self.clock, now);
        args
    }

    /// Returns the arguments of a method of a lease's holder: clock, session and epoch.
    fn fenced_args(&self, method: &str, lease: &Lease, now: Millis) -> Args {
        let mut args = self.timed_args(method, &lease.owner, now);
        args.bytes(lease.session.token()).number(lease.epoch);
        args
    }

    async fn run_args(&self, args: &Args) -> Result<redis::Value, StoreError> {
        if args.changes_records() {
            self.pool.change(args.cmd(), args.repeatability()).await
        } else {
            self.pool.run(args.cmd(), args.repeatability()).await
        }
    }

    async fn call(&self, args: &Args) -> Result<AnswerParts, StoreError> {
        AnswerParts::new(self.pool.store(), self.run_args(args).await?)
    }
}

#[async_trait]
impl Store for RedisStore {
    async fn admit(&self, now: Millis, request: &Admit) -> Result<AdmissionOutcome, StoreError> {
        // A wake adds nothing new: it passes at the memory limit.
        let method = if request.event.is_some() { "admit" } else { "grant" };
        let mut args = self.timed_args(method, &request.owner, now);
        args.bytes(request.session.token()).flag(request.event.is_some());
        if let Some(event) = &request.event {
            args.event(event);
        }
        grant::add_lease_request(&mut args, request.lease.as_ref());
        let mut answer = self.call(&args).await?;
        let intake = grant::read_intake(&mut answer.read_nested()?)?;
        match grant::read_outcome(&mut answer.read_nested()?, request) {
            Ok(lease) => Ok(AdmissionOutcome { intake, lease }),
            Err(UnreadableGrant { lease, error }) => {
                if let Some(lease) = lease {
                    // No holder would release it, and a lease that lapses counts as a crash.
                    let then = LeaseUse::Release {
                        arrivals: u64::MAX,
                        due: Some(now.plus(UNREADABLE_BACKOFF)),
                        backoff: true,
                    };
                    self.release(now, &lease, then).await?;
                }
                Err(error)
            }
        }
    }

    async fn renew(&self, now: Millis, lease: &Lease, ttl: Duration) -> Result<LeaseCheck, StoreError> {
        let mut args = self.fenced_args("renew", lease, now);
        args.number(millis(ttl));
        self.call(&args).await?.lease_check()
    }

    async fn checkpoint(&self, now: Millis, lease: &Lease, write: &Checkpoint) -> Result<LeaseCheck, StoreError> {
        let mut args = self.fenced_args("checkpoint", lease, now);
        args.number(write.turn)
            .option(write.reply.as_ref())
            .calls(&write.calls)
            .jobs(&write.open)
            .outbox(&write.outbox)
            .writes(&write.writes);
        self.call(&args).await?.lease_check()
    }

    async fn commit(&self, now: Millis, lease: &Lease, commit: &Commit) -> Result<CommitOutcome, StoreError> {
        let mut args = self.fenced_args("commit", lease, now);
        args.number(commit.turn)
            .texts(&commit.consume)
            .writes(&commit.writes)
            .status(commit.status.as_ref())
            .finishes(&commit.finish)
            .outbox(&commit.outbox)
            .bytes(&commit.state)
            .option(commit.unless_cancelled.as_ref().map(JobId::as_str))
            .lease_after(commit.after_commit);
        let mut answer = self.call(&args).await?;
        match answer.text()?.as_str() {
            "done" => Ok(CommitOutcome::Done(answer.continuation()?)),
            "fenced" => Ok(CommitOutcome::Fenced),
            "cancelled" => Ok(CommitOutcome::Cancelled),
            "conflict" => Ok(CommitOutcome::Conflict(answer.conflicts()?)),
            other => Err(answer.unexpected_error("an outcome of a commit", other)),
        }
    }

    async fn release(&self, now: Millis, lease: &Lease, then: LeaseUse) -> Result<ReleaseOutcome, StoreError> {
        let mut args = self.fenced_args("release", lease, now);
        args.lease_after(then);
        let mut answer = self.call(&args).await?;
        match answer.text()?.as_str() {
            "done" => Ok(ReleaseOutcome::Done(answer.continuation()?)),
            "fenced" => Ok(ReleaseOutcome::Fenced),
            other => Err(answer.unexpected_error("`done` or `fenced`", other)),
        }
    }

    async fn remove_published(&self, owner: &Owner, ids: &[String]) -> Result<(), StoreError> {
        let mut args = self.args("published", owner);
        for id in ids {
            args.bytes(id);
        }
        self.run_args(&args).await.map(drop)
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
        let args = |known: bool| {
            let mut args = self.timed_args("finish", owner, now);
            args.flag(known).bytes(session.token()).finish(finish);
            args.jobs(open.map_or(&[], std::slice::from_ref)).outbox(outbox);
            args
        };
        let (outcome, mut answer) = self.call_registered(owner, open.is_some(), args).await?;
        match outcome.as_str() {
            "done" => Ok(FinishOutcome::Done),
            "unknown" => Ok(FinishOutcome::Unknown),
            "already" => Ok(FinishOutcome::Already(answer.status()?)),
            other => Err(answer.unexpected_error("an outcome of `finish`", other)),
        }
    }

    async fn set_job_paused(
        &self,
        now: Millis,
        owner: &Owner,
        session: &SessionKey,
        job: &JobId,
        pause: bool,
    ) -> Result<ParkOutcome, StoreError> {
        let mut args = self.timed_args("set_job_paused", owner, now);
        args.bytes(session.token()).bytes(job.as_str()).flag(pause);
        let mut answer = self.call(&args).await?;
        match answer.text()?.as_str() {
            "done" => Ok(ParkOutcome::Done),
            "unknown" => Ok(ParkOutcome::Unknown),
            "already" => Ok(ParkOutcome::Already(answer.status()?)),
            other => Err(answer.unexpected_error("an outcome of `set_job_paused`", other)),
        }
    }

    async fn set_session(
        &self,
        now: Millis,
        owner: &Owner,
        session: &SessionKey,
        snapshot: Option<&SessionSnapshot>,
        checks: &[DocWrite],
    ) -> Result<SetSessionOutcome, StoreError> {
        let args = |known: bool| {
            let mut args = self.timed_args("set_session", owner, now);
            args.flag(known).bytes(session.token()).writes(checks).flag(snapshot.is_some());
            if let Some(snapshot) = snapshot {
                args.number(snapshot.version).bytes(&snapshot.state).quota(snapshot.quota.as_ref());
            }
            args
        };
        let (outcome, mut answer) = self.call_registered(owner, snapshot.is_some(), args).await?;
        match outcome.as_str() {
            "done" => Ok(SetSessionOutcome::Done),
            "taken" => Ok(SetSessionOutcome::Taken),
            "changed" => Ok(SetSessionOutcome::Changed),
            "held" => Ok(SetSessionOutcome::Held(answer.millis()?)),
            "over" => Err(StoreError::Over(usage::read_over(&mut answer)?)),
            other => Err(answer.unexpected_error("an outcome of `set_session`", other)),
        }
    }

    async fn amend(
        &self,
        now: Millis,
        owner: &Owner,
        session: &SessionKey,
        amend: &Amend,
    ) -> Result<AmendOutcome, StoreError> {
        let mut args = self.timed_args("amend", owner, now);
        args.bytes(session.token()).number(amend.version).option(amend.expected_state.as_ref());
        match &amend.amendment {
            Amendment::State(state) => args.option(Some(state)).number(0),
            Amendment::Remove { arrivals } => args.option(None::<&[u8]>).number(*arrivals),
        };
        args.writes(&amend.writes);
        let mut answer = self.call(&args).await?;
        match answer.text()?.as_str() {
            "done" => Ok(AmendOutcome::Done),
            "held" => Ok(AmendOutcome::Held),
            "changed" => Ok(AmendOutcome::Changed),
            other => Err(answer.unexpected_error("an outcome of `amend`", other)),
        }
    }

    async fn forget(&self, now: Millis, owner: &Owner, forget: &ForgetRequest) -> Result<ForgetOutcome, StoreError> {
        let mut args = self.timed_args("forget", owner, now);
        args.texts(&forget.documents).events(&forget.events).resting_sessions(&forget.sessions);
        args.texts(&forget.sessions_with_losses.iter().map(SessionKey::token).collect::<Vec<_>>());
        let mut answer = self.call(&args).await?;
        match answer.text()?.as_str() {
            "done" => Ok(ForgetOutcome::Done),
            "changed" => Ok(ForgetOutcome::Changed(answer.session()?)),
            other => Err(answer.unexpected_error("`done` or `changed`", other)),
        }
    }

    async fn sweep(&self, now: Millis, owner: &Owner, grace: Duration, limit: u32) -> Result<SweepResult, StoreError> {
        let mut args = self.timed_args("sweep", owner, now);
        args.number(millis(grace)).number(u64::from(limit));
        for prefix in keys::SWEPT {
            let (from, to) = lex_range(prefix, None, false);
            args.bytes(&from).bytes(&to);
        }
        self.call(&args).await?.sweep_result()
    }

    async fn due_owners(
        &self,
        now: Millis,
        worker: &str,
        horizon: Duration,
        limit: u32,
    ) -> Result<DueOwners, StoreError> {
        let mut args = Args::new("due", &self.keys.workers());
        args.clock(self.clock, now);
        let query = DueQuery { now, worker, horizon, limit };
        let due = match self.share.due(&self.pool, &self.keys, args, query).await {
            Err(error) if !error.is_transient() => {
                self.mend_lists().await?;
                return Err(error);
            }
            due => due?,
        };
        if let Err(error) = self.relist_owners(&due.owners, now).await {
            tracing::debug!(%error, "the list of owners isn't repaired now; the next sweep tries again");
        }
        Ok(due)
    }

    async fn sign_off(&self, worker: &str) -> Result<(), StoreError> {
        let mut gone = redis::cmd("ZREM");
        gone.arg(self.keys.workers()).arg(worker);
        self.pool.run_now(&gone).await.map(drop)
    }
}

#[async_trait]
impl DocumentStore for RedisStore {
    async fn read(&self, owner: &Owner, keys: &[DocKey]) -> Result<Vec<Doc>, StoreError> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let answer = self.pool.run(&args::read(&self.keys.documents(owner), keys), Repeatability::Yes).await?;
        Ok(note_read(AnswerParts::new(self.pool.store(), answer)?.stored_docs(keys.len())?).await)
    }

    async fn scan(
        &self,
        owner: &Owner,
        prefix: &str,
        after: Option<&str>,
        reverse: bool,
        limit: usize,
    ) -> Result<Vec<(DocKey, Doc)>, StoreError> {
        let (from, to) = lex_range(prefix, after, reverse);
        let mut args = self.args("scan", owner);
        args.bytes(from).bytes(to).flag(reverse).number(limit as u64);
        Ok(note_read(self.call(&args).await?.read_each(|part| Ok((part.text()?, part.doc()?)))?).await)
    }

    async fn page(&self, owner: &Owner, prefix: &str, window: Window) -> Result<DocPage, StoreError> {
        if self.pool.reads_only() {
            return plain_reads::page(&self.pool, &self.keys, owner, prefix, window).await;
        }
        let (from, to) = lex_range(prefix, None, window.reverse);
        let mut args = self.args("page", owner);
        args.bytes(from).bytes(to).flag(window.reverse).flag(window.values);
        args.number(window.skip as u64).number(window.limit as u64);
        Ok(note_read(self.call(&args).await?.page(window.values)?).await)
    }

    async fn write(&self, now: Millis, owner: &Owner, writes: &[DocWrite]) -> Result<WriteOutcome, StoreError> {
        self.put(now, owner, writes, None).await
    }

    async fn write_within(
        &self,
        now: Millis,
        owner: &Owner,
        writes: &[DocWrite],
        quota: &Quota,
    ) -> Result<WriteOutcome, StoreError> {
        self.put(now, owner, writes, Some(quota)).await
    }
}

#[async_trait]
impl StoreInspection for RedisStore {
    async fn owners(&self, after: Option<&Owner>, limit: usize) -> Result<Vec<Owner>, StoreError> {
        self.registered_owners(after, limit).await
    }

    async fn sessions(
        &self,
        owner: &Owner,
        agent: Option<&AgentId>,
        after: Option<&SessionKey>,
        limit: usize,
    ) -> Result<Vec<SessionFacts>, StoreError> {
        Ok(note_read(self.listed_sessions(owner, agent, after, limit).await?).await)
    }

    async fn pending_events(&self, owner: &Owner, session: &SessionKey) -> Result<Vec<MailboxEntry>, StoreError> {
        let mut args = self.args("mail", owner);
        args.bytes(session.token()).number(u64::from(GRANT_EVENTS));
        self.call(&args).await?.mailbox()
    }

    async fn outbox(&self, owner: &Owner) -> Result<Vec<OutboxEntry>, StoreError> {
        let mut entries = self.call(&self.args("outbox", owner)).await?.read_each(AnswerParts::outbox_entry)?;
        entries.sort_by_key(|(number, _)| *number);
        Ok(entries.into_iter().map(|(_, entry)| entry).collect())
    }

    async fn busy_sessions(&self, until: Millis) -> Result<u64, StoreError> {
        busy::count_sessions(&self.pool, &self.keys, until).await
    }

    async fn settings(&self) -> Result<Vec<BackendSetting>, StoreError> {
        settings::read(&self.pool).await
    }

    async fn time(&self) -> Result<Option<Millis>, StoreError> {
        settings::time(&self.pool, self.clock).await
    }

    async fn history(&self) -> Result<Vec<String>, StoreError> {
        self.tidy_libraries().await;
        let history = settings::history(&self.pool).await;
        self.registered.note_history(&history);
        self.pool.barrier.note_history(&history);
        Ok(history)
    }

    async fn backup(&self, _name: &str) -> Result<BackupOutcome, StoreError> {
        Ok(BackupOutcome::OnServers)
    }
}
