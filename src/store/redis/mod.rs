//! Store over Redis Functions: one function per method.
//!
//! `keyspace` has the layout of every key.
//!
//! The functions are in Redis libraries named after a hash of their source (`trellis_<hash>`), so that builds side by
//! side don't replace each other's. They persist until no process uses them, see `libraries`.
//!
//! Methods that finish work may run at the server's memory limit (`allow-oom`); those that accept new work,
//! [`Store::admit`] with an event and [`DocumentStore::write`] that puts something, are refused there.

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
mod looks;
mod options;
mod plain;
mod put;
mod registry;
mod sentinel;
mod servers;
mod settings;
mod topology;
mod usage;
mod wire;

use crate::domain::ids::{AgentId, JobId, Owner, SessionKey};
use crate::domain::limits::GRANT_EVENTS;
use crate::domain::quota::{Quota, QuotaUsage};
use crate::domain::time::Millis;
use crate::store::large::note_read;
use crate::store::{
    Accounts, Admit, Admitted, After, Amend, Amended, Amendment, BackedUp, BackendSetting, Checkpoint, Commit,
    Committed, Doc, DocKey, DocWrite, DocumentStore, DueOwners, Fill, FillLevel, Finished, Forget, Forgotten, Inspect,
    JobFinish, Lease, LeaseCheck, MailboxEntry, NewJob, OutboxEntry, OutsideWrite, Page, Parked, Recount, Released,
    Seat, Seated, SessionFacts, Standing, Store, StoreError, Swept, Window, keys,
};
use args::Args;
use async_trait::async_trait;
use codec::AnswerParts;
use connection::{Again, Pool};
use grant::Unread;
use keyspace::{Keyspace, lex_range};
use libraries::LibraryLooks;
use looks::Looks;
pub use options::{RedisOptions, ServerOrInjected};
use registry::Registered;
pub use servers::{FORM as URL_FORM, RedisTls, Servers};
use std::sync::Arc;
use std::time::Duration;

/// Backoff of a session whose grant this build can't decode: another build may.
const UNREAD: Duration = Duration::from_secs(5);

/// The store over Redis, its connections and its key names.
pub struct RedisStore {
    pool: Pool,
    keys: Keyspace,
    clock: ServerOrInjected,
    registered: Registered,
    level: FillLevel,
    looks: Looks,
    library_looks: LibraryLooks,
}

impl RedisStore {
    /// Connects and loads the functions. Retries no longer than the driver's own attempts (about two seconds); the
    /// caller may.
    pub async fn open(options: RedisOptions) -> Result<Arc<Self>, StoreError> {
        let pool = Pool::new(&options)?;
        if options.prefix.contains(['{', '}']) {
            let reason = format!("illegal prefix `{}`: braces would change the hash tag", options.prefix);
            return Err(StoreError::Corrupt { store: pool.store().to_owned(), reason });
        }
        let reached = if options.reads_only { pool.ping().await } else { pool.load_everywhere().await };
        if let Err(error) = reached {
            let why = pool.why_unreachable(&options).await;
            return Err(why.map_or(error, |reason| StoreError::Unavailable { store: pool.store().to_owned(), reason }));
        }
        let keys = Keyspace::new(options.prefix, options.shards);
        agree::shards(&pool, &keys, options.reads_only).await?;
        Ok(Arc::new(Self {
            pool,
            keys,
            clock: options.clock,
            registered: Registered::default(),
            level: FillLevel::default(),
            looks: Looks::default(),
            library_looks: LibraryLooks::default(),
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
    fn timed(&self, method: &str, owner: &Owner, now: Millis) -> Args {
        let mut args = self.args(method, owner);
        self.clock(&mut args, now);
        args
    }

    fn clock(&self, args: &mut Args, now: Millis) {
        match self.clock {
            ServerOrInjected::Server => args.bytes(""),
            ServerOrInjected::Injected => args.number(now.0),
        };
    }

    fn fenced(&self, method: &str, lease: &Lease, now: Millis) -> Args {
        let mut args = self.timed(method, &lease.owner, now);
        args.bytes(lease.session.token()).number(lease.epoch);
        args
    }

    async fn answer(&self, args: &Args) -> Result<redis::Value, StoreError> {
        if args.changes() {
            self.pool.change(args.cmd(), args.again()).await
        } else {
            self.pool.run(args.cmd(), args.again()).await
        }
    }

    async fn call(&self, args: &Args) -> Result<AnswerParts, StoreError> {
        AnswerParts::new(self.pool.store(), self.answer(args).await?)
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[async_trait]
impl Store for RedisStore {
    async fn admit(&self, now: Millis, request: &Admit) -> Result<Admitted, StoreError> {
        // A wake adds nothing new: it passes at the memory limit.
        let method = if request.event.is_some() { "admit" } else { "grant" };
        let mut args = self.timed(method, &request.owner, now);
        args.bytes(request.session.token()).flag(request.event.is_some());
        if let Some(event) = &request.event {
            args.event(event);
        }
        grant::ask(&mut args, request.lease.as_ref());
        let mut answer = self.call(&args).await?;
        let intake = grant::intake(&mut answer.nested()?)?;
        match grant::outcome(&mut answer.nested()?, request) {
            Ok(lease) => Ok(Admitted { intake, lease }),
            Err(Unread { lease, error }) => {
                if let Some(lease) = lease {
                    // No holder would release it, and a lease that lapses counts as a crash.
                    let then = After::Release { arrivals: u64::MAX, due: Some(now.plus(UNREAD)), backoff: true };
                    self.release(now, &lease, then).await?;
                }
                Err(error)
            }
        }
    }

    async fn renew(&self, now: Millis, lease: &Lease, ttl: Duration) -> Result<LeaseCheck, StoreError> {
        let mut args = self.fenced("renew", lease, now);
        args.number(millis(ttl));
        self.call(&args).await?.held()
    }

    async fn checkpoint(&self, now: Millis, lease: &Lease, write: &Checkpoint) -> Result<LeaseCheck, StoreError> {
        let mut args = self.fenced("checkpoint", lease, now);
        args.number(write.turn)
            .option(write.reply.as_ref())
            .calls(&write.calls)
            .jobs(&write.open)
            .outbox(&write.outbox)
            .writes(&write.writes);
        self.call(&args).await?.held()
    }

    async fn commit(&self, now: Millis, lease: &Lease, commit: &Commit) -> Result<Committed, StoreError> {
        let mut args = self.fenced("commit", lease, now);
        args.number(commit.turn)
            .texts(&commit.consume)
            .writes(&commit.writes)
            .status(commit.status.as_ref())
            .finishes(&commit.finish)
            .outbox(&commit.outbox)
            .bytes(&commit.state)
            .option(commit.unless_cancelled.as_ref().map(JobId::as_str))
            .after(commit.then);
        let mut answer = self.call(&args).await?;
        match answer.text()?.as_str() {
            "done" => Ok(Committed::Done(answer.after()?)),
            "fenced" => Ok(Committed::Fenced),
            "cancelled" => Ok(Committed::Cancelled),
            "conflict" => Ok(Committed::Conflict(answer.conflicts()?)),
            other => Err(answer.unexpected("an outcome of a commit", other)),
        }
    }

    async fn release(&self, now: Millis, lease: &Lease, then: After) -> Result<Released, StoreError> {
        let mut args = self.fenced("release", lease, now);
        args.after(then);
        let mut answer = self.call(&args).await?;
        match answer.text()?.as_str() {
            "done" => Ok(Released::Done(answer.after()?)),
            "fenced" => Ok(Released::Fenced),
            other => Err(answer.unexpected("`done` or `fenced`", other)),
        }
    }

    async fn published(&self, owner: &Owner, ids: &[String]) -> Result<(), StoreError> {
        let mut args = self.args("published", owner);
        for id in ids {
            args.bytes(id);
        }
        self.answer(&args).await.map(drop)
    }

    async fn finish(
        &self,
        now: Millis,
        owner: &Owner,
        session: &SessionKey,
        finish: &JobFinish,
        open: Option<&NewJob>,
        outbox: &[OutboxEntry],
    ) -> Result<Finished, StoreError> {
        let args = |known: bool| {
            let mut args = self.timed("finish", owner, now);
            args.flag(known).bytes(session.token()).finish(finish);
            args.jobs(open.map_or(&[], std::slice::from_ref)).outbox(outbox);
            args
        };
        let (outcome, mut answer) = self.call_registered(owner, open.is_some(), args).await?;
        match outcome.as_str() {
            "done" => Ok(Finished::Done),
            "unknown" => Ok(Finished::Unknown),
            "already" => Ok(Finished::Already(answer.status()?)),
            other => Err(answer.unexpected("an outcome of `finish`", other)),
        }
    }

    async fn park(
        &self,
        now: Millis,
        owner: &Owner,
        session: &SessionKey,
        job: &JobId,
        pause: bool,
    ) -> Result<Parked, StoreError> {
        let mut args = self.timed("park", owner, now);
        args.bytes(session.token()).bytes(job.as_str()).flag(pause);
        let mut answer = self.call(&args).await?;
        match answer.text()?.as_str() {
            "done" => Ok(Parked::Done),
            "unknown" => Ok(Parked::Unknown),
            "already" => Ok(Parked::Already(answer.status()?)),
            other => Err(answer.unexpected("an outcome of `park`", other)),
        }
    }

    async fn seat(
        &self,
        now: Millis,
        owner: &Owner,
        session: &SessionKey,
        seat: Option<&Seat>,
        checks: &[DocWrite],
    ) -> Result<Seated, StoreError> {
        let args = |known: bool| {
            let mut args = self.timed("seat", owner, now);
            args.flag(known).bytes(session.token()).writes(checks).flag(seat.is_some());
            if let Some(seat) = seat {
                args.number(seat.version).bytes(&seat.state).quota(seat.within.as_ref());
            }
            args
        };
        let (outcome, mut answer) = self.call_registered(owner, seat.is_some(), args).await?;
        match outcome.as_str() {
            "done" => Ok(Seated::Done),
            "taken" => Ok(Seated::Taken),
            "changed" => Ok(Seated::Changed),
            "held" => Ok(Seated::Held(answer.millis()?)),
            "over" => Err(StoreError::Over(usage::over(&mut answer)?)),
            other => Err(answer.unexpected("an outcome of `seat`", other)),
        }
    }

    async fn amend(
        &self,
        now: Millis,
        owner: &Owner,
        session: &SessionKey,
        amend: &Amend,
    ) -> Result<Amended, StoreError> {
        let mut args = self.timed("amend", owner, now);
        args.bytes(session.token()).number(amend.version).option(amend.was.as_ref());
        match &amend.then {
            Amendment::State(state) => args.option(Some(state)).number(0),
            Amendment::Gone { arrivals } => args.option(None::<&[u8]>).number(*arrivals),
        };
        args.writes(&amend.writes);
        let mut answer = self.call(&args).await?;
        match answer.text()?.as_str() {
            "done" => Ok(Amended::Done),
            "held" => Ok(Amended::Held),
            "stirred" => Ok(Amended::Stirred),
            other => Err(answer.unexpected("an outcome of `amend`", other)),
        }
    }

    async fn forget(&self, now: Millis, owner: &Owner, forget: &Forget) -> Result<Forgotten, StoreError> {
        let mut args = self.timed("forget", owner, now);
        args.texts(&forget.documents).events(&forget.events).resting(&forget.sessions);
        args.texts(&forget.lost.iter().map(SessionKey::token).collect::<Vec<_>>());
        let mut answer = self.call(&args).await?;
        match answer.text()?.as_str() {
            "done" => Ok(Forgotten::Done),
            "stirred" => Ok(Forgotten::Stirred(answer.session()?)),
            other => Err(answer.unexpected("`done` or `stirred`", other)),
        }
    }

    async fn sweep(&self, now: Millis, owner: &Owner, grace: Duration, limit: u32) -> Result<Swept, StoreError> {
        let mut args = self.timed("sweep", owner, now);
        args.number(millis(grace)).number(u64::from(limit));
        for prefix in keys::SWEPT {
            let (from, to) = lex_range(prefix, None, false);
            args.bytes(&from).bytes(&to);
        }
        self.call(&args).await?.swept()
    }

    async fn due(&self, now: Millis, worker: &str, horizon: Duration, limit: u32) -> Result<DueOwners, StoreError> {
        let mut args = Args::new("due", &self.keys.workers());
        self.clock(&mut args, now);
        let due = match self.looks.due(&self.pool, &self.keys, args, (now, worker, horizon, limit)).await {
            Err(error) if !error.is_transient() => {
                self.mend_lists().await?;
                return Err(error);
            }
            due => due?,
        };
        if let Err(error) = self.list_again(&due.owners, now).await {
            tracing::debug!(%error, "the list of owners is not looked at; it comes again");
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
        let answer = self.pool.run(&args::read(&self.keys.documents(owner), keys), Again::Yes).await?;
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
        Ok(note_read(self.call(&args).await?.each(|part| Ok((part.text()?, part.doc()?)))?).await)
    }

    async fn page(&self, owner: &Owner, prefix: &str, window: Window) -> Result<Page, StoreError> {
        if self.pool.reads_only() {
            return plain::page(&self.pool, &self.keys, owner, prefix, window).await;
        }
        let (from, to) = lex_range(prefix, None, window.reverse);
        let mut args = self.args("page", owner);
        args.bytes(from).bytes(to).flag(window.reverse).flag(window.values);
        args.number(window.skip as u64).number(window.limit as u64);
        Ok(note_read(self.call(&args).await?.page(window.values)?).await)
    }

    async fn write(&self, now: Millis, owner: &Owner, writes: &[DocWrite]) -> Result<OutsideWrite, StoreError> {
        self.put(now, owner, writes, None).await
    }

    async fn write_within(
        &self,
        now: Millis,
        owner: &Owner,
        writes: &[DocWrite],
        quota: &Quota,
    ) -> Result<OutsideWrite, StoreError> {
        self.put(now, owner, writes, Some(quota)).await
    }
}

#[async_trait]
impl Accounts for RedisStore {
    async fn usage(&self, owner: &Owner) -> Result<Standing, StoreError> {
        usage::standing(self.call(&self.args("usage", owner)).await?)
    }

    async fn kept(&self, owners: &[Owner]) -> Result<Vec<QuotaUsage>, StoreError> {
        usage::of_each(&self.pool, &self.keys, owners).await
    }

    async fn recount(&self, owner: &Owner, mend: bool) -> Result<Recount, StoreError> {
        let mut args = self.args("recount", owner);
        args.flag(mend);
        usage::recount(self.call(&args).await?)
    }

    async fn fill(&self, now: Duration) -> Result<Fill, StoreError> {
        Ok(self.level.of(now, self.pool.store(), settings::fill(&self.pool)).await)
    }
}

#[async_trait]
impl Inspect for RedisStore {
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

    async fn mail(&self, owner: &Owner, session: &SessionKey) -> Result<Vec<MailboxEntry>, StoreError> {
        let mut args = self.args("mail", owner);
        args.bytes(session.token()).number(u64::from(GRANT_EVENTS));
        self.call(&args).await?.mailbox()
    }

    async fn outbox(&self, owner: &Owner) -> Result<Vec<OutboxEntry>, StoreError> {
        let mut entries = self.call(&self.args("outbox", owner)).await?.each(AnswerParts::outbox_entry)?;
        entries.sort_by_key(|(number, _)| *number);
        Ok(entries.into_iter().map(|(_, entry)| entry).collect())
    }

    async fn busy_sessions(&self) -> Result<u64, StoreError> {
        busy::sessions(&self.pool, &self.keys).await
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
        self.registered.know(&history);
        self.pool.barrier.note_history(&history);
        Ok(history)
    }

    async fn backup(&self, _name: &str) -> Result<BackedUp, StoreError> {
        Ok(BackedUp::OnServers)
    }
}
