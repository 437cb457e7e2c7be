//! A store that remembers the last acknowledged changes, for a server that comes back without them.
//!
//! Redis answers before its replicas have a change and, if configured so, before its disk has it: when a replica takes
//! over or a server restarts, the last acknowledged changes can be missing. Each process knows its own changes of the
//! last seconds. Events are submitted again under their ids, so that those still there stay as they are. Turns and
//! documents can't be made again without a model or a person, so they are reported.

use super::{
    Admit, Admitted, Change, Commit, Committed, DocKey, DocWrite, EventKind, Finished, Forget, Forgotten, Intake,
    JobFinish, KnownHistory, Layer, Lease, NewJob, OutboxEntry, OutsideWrite, Store, StoreError, keys,
};
use crate::domain::ids::{JobId, Owner, SessionKey};
use crate::domain::quota::Quota;
use crate::domain::tail::Loss;
use crate::domain::time::Millis;
use bytes::Bytes;
use futures::{StreamExt, stream};
use parking_lot::Mutex;
use std::collections::{HashSet, VecDeque};
use std::fmt::{Display, Formatter};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

/// Age after which a change is on every replica, or was lost with more than one server.
const SPAN: Duration = Duration::from_secs(15);
/// Age while a server is away, since it may have been cut off for longer.
const LONG: Duration = Duration::from_mins(2);
/// Wait of a job's end for its job to be submitted again by the process that has it.
const JOB_WAIT: Duration = Duration::from_secs(10);
/// Most changes remembered; the oldest go first.
const MOST: usize = 20_000;
/// Most bytes of remembered changes.
const BYTES: usize = 32 << 20;
/// Bytes of an entry beside its texts, estimated.
const FIXED: usize = 500;
/// Concurrent calls of a comparison.
const AT_ONCE: usize = 16;

/// A store that remembers its last acknowledged changes.
pub struct TailStore {
    inner: Arc<dyn Store>,
    tail: Mutex<Tail>,
    history: KnownHistory,
    /// Changes to compare, each with the time since which it waits.
    pending: Mutex<Vec<(Arc<Acknowledged>, Millis)>>,
}

/// The result of a comparison with the store.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Compared {
    /// Whether the history is another since the last comparison.
    pub is_another: bool,
    /// Missing changes, in the order of their acknowledgement.
    pub losses: Vec<Loss>,
    /// Number of changes that couldn't be compared yet; the next call compares them.
    pub left: usize,
}

/// The remembered changes, newest last.
#[derive(Default)]
struct Tail {
    kept: VecDeque<Arc<Acknowledged>>,
    bytes: usize,
}

#[derive(Debug)]
struct Acknowledged {
    at: Millis,
    owner: Owner,
    what: What,
}

#[derive(Debug)]
enum What {
    /// An event, which is submitted again.
    Event(Box<Admit>),
    /// The end of a job, which is finished again.
    End { session: SessionKey, finish: JobFinish, open: Option<NewJob>, outbox: Vec<OutboxEntry> },
    /// A turn, compared by the hash of its record.
    Turn { session: SessionKey, turn: u64, record: u64 },
    /// A document written or (`None`) deleted outside turns, by the hash of its value, and its version if it is known.
    Document { key: DocKey, value: Option<u64>, version: Option<u64> },
}

/// State of an acknowledged change in the store: present, restored, lost, or not known yet.
enum Look {
    There,
    PutBack,
    /// Lost, with what the store has instead.
    Lost(String),
    /// Not known yet, with the reason.
    Unknown(String),
}

impl What {
    fn bytes(&self) -> usize {
        let head = |open: &Option<NewJob>| open.as_ref().map_or(0, |open| open.head.len());
        let messages = |outbox: &[OutboxEntry]| outbox.iter().map(|entry| entry.message.len()).sum::<usize>();
        FIXED
            + match self {
                Self::Event(admit) => admit.event.as_ref().map_or(0, |event| {
                    let result = event.finish.as_ref().map_or(0, |finish| finish.result.len());
                    event.body.len() + head(&event.open) + result + messages(&event.outbox)
                }),
                Self::End { finish, open, outbox, .. } => finish.result.len() + head(open) + messages(outbox),
                Self::Turn { .. } | Self::Document { .. } => 0,
            }
    }

    /// Returns the job that the change created.
    fn opens(&self) -> Option<&JobId> {
        let open = match self {
            Self::Event(admit) => admit.event.as_ref()?.open.as_ref(),
            Self::End { open, .. } => open.as_ref(),
            Self::Turn { .. } | Self::Document { .. } => None,
        };
        open.map(|open| &open.job)
    }

    /// Returns the name of the kind, as in the journal.
    const fn kind(&self) -> &'static str {
        match self {
            Self::Event(_) => "events",
            Self::End { .. } => "ends of jobs",
            Self::Turn { .. } => "turns",
            Self::Document { .. } => "documents",
        }
    }

    const fn is_event(&self) -> bool {
        matches!(self, Self::Event(_))
    }
}

/// The change in words, with its id.
impl Display for What {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Event(admit) => {
                let id = admit.event.as_ref().map_or("", |event| event.id.as_str());
                write!(f, "event `{id}` of `{}`", admit.session)
            }
            Self::End { finish, .. } => write!(f, "job `{}` was {}", finish.job, finish.status.as_str()),
            Self::Turn { session, turn, .. } => write!(f, "turn {turn} of `{session}`"),
            Self::Document { key, value: Some(_), .. } => write!(f, "`{key}` was written"),
            Self::Document { key, value: None, .. } => write!(f, "`{key}` was deleted"),
        }
    }
}

impl Tail {
    fn push(&mut self, new: Acknowledged) {
        self.bytes += new.what.bytes();
        self.kept.push_back(Arc::new(new));
        self.drop_while(|tail, _| tail.kept.len() > MOST || tail.bytes > BYTES);
    }

    fn drop_while(&mut self, is_over: impl Fn(&Self, &Acknowledged) -> bool) {
        while let Some(oldest) = self.kept.front().cloned()
            && is_over(self, &oldest)
        {
            self.bytes -= oldest.what.bytes();
            self.kept.pop_front();
        }
    }

    fn keep(&mut self, is_kept: impl Fn(&Arc<Acknowledged>) -> bool) {
        self.kept.retain(|one| is_kept(one));
        self.bytes = self.kept.iter().map(|one| one.what.bytes()).sum();
    }

    /// Returns the changes without documents that were overwritten later, also by the creation of a job.
    fn current(&self) -> Vec<Arc<Acknowledged>> {
        let mut written = HashSet::new();
        let mut found = Vec::with_capacity(self.kept.len());
        for one in self.kept.iter().rev() {
            if let What::Document { key, .. } = &one.what
                && !written.insert((&one.owner, key.clone()))
            {
                continue;
            }
            if let Some(job) = one.what.opens() {
                written.insert((&one.owner, keys::job_head(job)));
            }
            found.push(Arc::clone(one));
        }
        found.reverse();
        found
    }
}

/// Returns a hash by which this process recognises a value.
fn mark(value: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

impl TailStore {
    /// Remembers what `inner` acknowledges.
    pub fn new(inner: Arc<dyn Store>) -> Self {
        Self { inner, tail: Mutex::default(), history: KnownHistory::default(), pending: Mutex::default() }
    }

    /// Compares the remembered changes with the store if its history is another since the last call, and restores or
    /// reports missing ones. `None`: the history is the same and nothing is left to compare.
    ///
    /// `is_another` is called before the comparison. Call this every second: it also drops old changes.
    pub async fn compare(&self, now: Millis, is_another: impl FnOnce()) -> Result<Option<Compared>, StoreError> {
        let names = self.inner.history().await?;
        let mut compared = Compared { is_another: self.history.is_another(&names), ..Compared::default() };
        if compared.is_another {
            is_another();
            let mut pending = self.pending.lock();
            let known: HashSet<_> = pending.iter().map(|(one, _)| Arc::as_ptr(one)).collect();
            let new = self.tail.lock().current().into_iter().filter(|one| !known.contains(&Arc::as_ptr(one)));
            pending.extend(new.map(|one| (one, now)));
        }
        let span = if self.history.is_whole(&names) { SPAN } else { LONG };
        self.history.know(names);
        self.tail.lock().drop_while(|_, oldest| oldest.at.plus(span) < now);
        // Changes stay pending until they are compared: the comparison may be interrupted.
        let pending = self.pending.lock().clone();
        if pending.is_empty() && !compared.is_another {
            return Ok(None);
        }
        // Jobs come before their ends.
        let (events, others): (Vec<_>, Vec<_>) = pending.into_iter().partition(|(one, _)| one.what.is_event());
        let mut left = Vec::new();
        for some in [events, others] {
            left.extend(self.look_at(now, some, &mut compared).await);
        }
        compared.left = left.len();
        *self.pending.lock() = left;
        compared.losses.sort_by_key(|loss| loss.acknowledged);
        Ok(Some(compared))
    }

    /// Compares changes with the store; returns those that can't be compared yet.
    async fn look_at(
        &self,
        now: Millis,
        some: Vec<(Arc<Acknowledged>, Millis)>,
        compared: &mut Compared,
    ) -> Vec<(Arc<Acknowledged>, Millis)> {
        let looks: Vec<_> = some.iter().map(|(one, since)| self.look(now, one, *since)).collect();
        let found: Vec<Look> = stream::iter(looks).buffered(AT_ONCE).collect().await;
        let (mut left, mut told) = (Vec::new(), HashSet::new());
        for ((one, since), look) in some.into_iter().zip(found) {
            let lost = match look {
                Look::There => continue,
                Look::Unknown(_) if since.plus(LONG) > now => {
                    left.push((one, since));
                    continue;
                }
                Look::PutBack => None,
                Look::Lost(why) | Look::Unknown(why) => Some(why),
            };
            let (owner, acknowledged, what) = (one.owner.clone(), one.at, one.what.to_string());
            let kind = one.what.kind().to_owned();
            compared.losses.push(Loss { owner, acknowledged, kind, what, lost });
            // Reported changes aren't reported again; restored ones may be lost again with the next server.
            if matches!(one.what, What::Turn { .. } | What::Document { .. }) {
                told.insert(Arc::as_ptr(&one));
            }
        }
        if !told.is_empty() {
            self.tail.lock().keep(|one| !told.contains(&Arc::as_ptr(one)));
        }
        left
    }

    async fn look(&self, now: Millis, one: &Acknowledged, since: Millis) -> Look {
        self.try_look(now, one, since).await.unwrap_or_else(|error| {
            if error.is_transient() { Look::Unknown(error.to_string()) } else { Look::Lost(error.to_string()) }
        })
    }

    async fn try_look(&self, now: Millis, one: &Acknowledged, since: Millis) -> Result<Look, StoreError> {
        let lost = |how: &str| Look::Lost(how.to_owned());
        let doc = async |key: &str| self.inner.doc(&one.owner, key).await;
        Ok(match &one.what {
            // If the result were admitted before its job exists, it would be served as an unsolicited one.
            What::Event(admit) if let Some(job) = self.lacks(&one.owner, admit).await? => {
                let unknown = format!("the store doesn't know the job `{job}` of which it is the result");
                if since.plus(JOB_WAIT) > now { Look::Unknown(unknown) } else { Look::Lost(unknown) }
            }
            // Uses the time of then: deletions since are newer.
            What::Event(admit) => match self.inner.admit(one.at, admit).await?.intake {
                Intake::Duplicate | Intake::Nothing => Look::There,
                Intake::New => Look::PutBack,
                Intake::Refused(refusal) => Look::Lost(refusal.to_string()),
                Intake::Conflict => lost("another event has its id"),
                Intake::Replaces => lost("another task is in its place"),
            },
            What::End { session, finish, open, outbox } => {
                let unknown = "the store doesn't know the job".to_owned();
                match self.inner.finish(one.at, &one.owner, session, finish, open.as_ref(), outbox).await? {
                    Finished::Already(_) => Look::There,
                    Finished::Done => Look::PutBack,
                    // Another process may be about to submit the job again.
                    Finished::Unknown if since.plus(JOB_WAIT) > now => Look::Unknown(unknown),
                    Finished::Unknown => Look::Lost(unknown),
                }
            }
            What::Turn { session, turn, record } => match doc(&keys::turn(session, *turn)).await?.value {
                Some(bytes) if mark(&bytes) == *record => Look::There,
                Some(_) => lost("another was run in its place, or it was erased"),
                None => lost("its session is as before it, or gone"),
            },
            What::Document { key, value, version } => {
                let there = doc(key).await?;
                match version {
                    _ if there.value.as_ref().map(|bytes| mark(bytes)) == *value => Look::There,
                    Some(version) if there.version > *version => Look::There,
                    Some(_) => lost("it is as before or otherwise"),
                    None if value.is_none() => lost("it is there again"),
                    None => lost("unless somebody else has changed it since"),
                }
            }
        })
    }

    /// Returns the job of a result if the store doesn't know it.
    async fn lacks<'a>(&self, owner: &Owner, admit: &'a Admit) -> Result<Option<&'a JobId>, StoreError> {
        let result = admit.event.as_ref().filter(|event| event.kind == EventKind::Result);
        let Some(job) = result.and_then(|event| event.job.as_ref()) else { return Ok(None) };
        let head = self.inner.doc(owner, &keys::job_head(job)).await?;
        Ok(head.value.is_none().then_some(job))
    }

    fn note(&self, at: Millis, owner: &Owner, what: What) {
        self.tail.lock().push(Acknowledged { at, owner: owner.clone(), what });
    }
}

impl Layer for TailStore {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    async fn admit(&self, now: Millis, request: &Admit) -> Result<Admitted, StoreError> {
        let admitted = self.inner.admit(now, request).await?;
        // A duplicate may be the repetition of a call whose answer was lost.
        if matches!(admitted.intake, Intake::New | Intake::Duplicate) && request.event.is_some() {
            self.note(now, &request.owner, What::Event(Box::new(Admit { lease: None, ..request.clone() })));
        }
        Ok(admitted)
    }

    async fn commit(&self, now: Millis, lease: &Lease, commit: &Commit) -> Result<Committed, StoreError> {
        let committed = self.inner.commit(now, lease, commit).await?;
        if matches!(committed, Committed::Done(_)) {
            let (session, turn) = (lease.session.clone(), commit.turn);
            let key = keys::turn(&session, turn);
            // A commit without a model call leaves no record; its events are settled again.
            let record = commit.writes.iter().find(|write| write.key == key).and_then(value);
            if let Some(record) = record {
                self.note(now, &lease.owner, What::Turn { session, turn, record: mark(record) });
            }
        }
        Ok(committed)
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
        let finished = self.inner.finish(now, owner, session, finish, open, outbox).await?;
        if finished == Finished::Done || finished == Finished::Already(finish.status) {
            let (session, finish, outbox) = (session.clone(), finish.clone(), outbox.to_vec());
            self.note(now, owner, What::End { session, finish, open: open.cloned(), outbox });
        }
        Ok(finished)
    }

    async fn write(&self, now: Millis, owner: &Owner, writes: &[DocWrite]) -> Result<OutsideWrite, StoreError> {
        let written = self.inner.write(now, owner, writes).await?;
        self.written(now, owner, writes, &written);
        Ok(written)
    }

    async fn write_within(
        &self,
        now: Millis,
        owner: &Owner,
        writes: &[DocWrite],
        quota: &Quota,
    ) -> Result<OutsideWrite, StoreError> {
        let written = self.inner.write_within(now, owner, writes, quota).await?;
        self.written(now, owner, writes, &written);
        Ok(written)
    }

    /// An event whose id is free again isn't submitted again, and the remembered end of a job goes with the job.
    async fn forget(&self, now: Millis, owner: &Owner, forget: &Forget) -> Result<Forgotten, StoreError> {
        let forgotten = self.inner.forget(now, owner, forget).await?;
        let jobs: HashSet<JobId> = forget.documents.iter().filter_map(|key| keys::job_of_head(key)).collect();
        if forgotten == Forgotten::Done && !(forget.events.is_empty() && jobs.is_empty()) {
            let is_forgotten = |what: &What| match what {
                What::Event(admit) => admit.event.as_ref().is_some_and(|event| forget.events.contains(&event.id)),
                What::End { finish, .. } => jobs.contains(&finish.job),
                What::Turn { .. } | What::Document { .. } => false,
            };
            self.tail.lock().keep(|one| one.owner != *owner || !is_forgotten(&one.what));
        }
        if forgotten == Forgotten::Done
            && forget.asked
            && let Some(key) = forget.documents.first().cloned()
        {
            self.note(now, owner, What::Document { key, value: None, version: None });
        }
        Ok(forgotten)
    }
}

impl TailStore {
    fn written(&self, now: Millis, owner: &Owner, writes: &[DocWrite], written: &OutsideWrite) {
        if *written != OutsideWrite::Done {
            return;
        }
        for write in writes.iter().filter(|write| keys::is_of_people(&write.key) && write.change != Change::Check) {
            let (key, version) = (write.key.clone(), write.expect.next_version());
            let value = value(write).map(|bytes| mark(bytes));
            self.note(now, owner, What::Document { key, value, version });
        }
    }
}

fn value(write: &DocWrite) -> Option<&Bytes> {
    match &write.change {
        Change::Put(bytes) => Some(bytes),
        Change::Delete | Change::Check => None,
    }
}
