//! A store that remembers the last acknowledged changes, for a server that comes back without them.
//!
//! Redis answers before its replicas have a change and, if configured so, before its disk has it: when a replica takes
//! over or a server restarts, the last acknowledged changes can be missing. Each process knows its own changes of the
//! last seconds. Events are submitted again under their ids, so that those still there stay as they are. Turns and
//! documents can't be made again without a model or a person, so they are reported.

use super::{
    AdmissionOutcome, Admit, Commit, CommitOutcome, DocEffect, DocKey, DocWrite, EventKind, FinishOutcome,
    ForgetOutcome, ForgetRequest, Intake, JobFinish, KnownHistory, Layer, Lease, NewJob, OutboxEntry, Store,
    StoreError, WriteOutcome, keys,
};
use crate::domain::ids::{JobId, Owner, SessionKey};
use crate::domain::journal::JournaledChange;
use crate::domain::losses::Loss;
use crate::domain::quota::Quota;
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
const REPLICATION_SPAN: Duration = Duration::from_secs(15);
/// Age while a server is away, since it may have been cut off for longer.
const OUTAGE_SPAN: Duration = Duration::from_mins(2);
/// Wait of a job's end for its job to be submitted again by the process that has it.
const JOB_WAIT: Duration = Duration::from_secs(10);
/// Time after another history of a cluster, at which all is compared once more. Until all nodes know of a new primary, a
/// read may still be answered by the old one, which lacks nothing.
const CLUSTER_SETTLING: Duration = Duration::from_secs(5);
/// Most changes remembered; the oldest go first.
const MOST: usize = 20_000;
/// Most bytes of remembered changes.
const BYTES: usize = 32 << 20;
/// Bytes of an entry beside its texts, estimated.
const FIXED: usize = 500;
/// Concurrent calls of a comparison.
const AT_ONCE: usize = 16;

/// A store that remembers its last acknowledged changes.
pub struct AckLogStore {
    inner: Arc<dyn Store>,
    tail: Mutex<AckLog>,
    history: KnownHistory,
    /// Changes to compare, each with the time since which it waits.
    pending: Mutex<Vec<(Arc<AckLogEntry>, Millis)>>,
    /// Time at which all changes are compared once more.
    second_look: Mutex<Option<Millis>>,
}

/// The result of a comparison with the store.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AckLogReport {
    /// Whether the history is another since the last comparison.
    pub is_another: bool,
    /// Missing changes, in the order of their acknowledgement.
    pub losses: Vec<Loss>,
    /// Number of changes that couldn't be compared yet; the next call compares them.
    pub left: usize,
}

/// The remembered changes, newest last.
#[derive(Default)]
struct AckLog {
    kept: VecDeque<Arc<AckLogEntry>>,
    bytes: usize,
}

#[derive(Debug)]
struct AckLogEntry {
    at: Millis,
    owner: Owner,
    what: AckedChange,
}

#[derive(Debug)]
enum AckedChange {
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
enum AckComparison {
    There,
    PutBack,
    /// Lost, with what the store has instead.
    Lost(String),
    /// Not known yet, with the reason.
    Unknown(String),
}

impl AckedChange {
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
    fn opened_job(&self) -> Option<&JobId> {
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

    /// Returns the change by which the store is asked later whether it has it again. Of a written document only the
    /// journal knows enough, and another event may have the id of a lost one.
    fn to_journaled(&self) -> Option<JournaledChange> {
        match self {
            Self::End { finish, .. } => Some(JournaledChange::End { job: finish.job.clone(), status: finish.status }),
            Self::Document { key, value: None, .. } => {
                Some(JournaledChange::Deletion { key: key.clone(), events: Vec::new() })
            }
            Self::Event(_) | Self::Turn { .. } | Self::Document { value: Some(_), .. } => None,
        }
    }

    const fn is_event(&self) -> bool {
        matches!(self, Self::Event(_))
    }
}

/// The change in words, with its id.
impl Display for AckedChange {
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

impl AckLog {
    fn push(&mut self, new: AckLogEntry) {
        self.bytes += new.what.bytes();
        self.kept.push_back(Arc::new(new));
        self.drop_while(|tail, _| tail.kept.len() > MOST || tail.bytes > BYTES);
    }

    fn drop_while(&mut self, is_over: impl Fn(&Self, &AckLogEntry) -> bool) {
        while let Some(oldest) = self.kept.front().cloned()
            && is_over(self, &oldest)
        {
            self.bytes -= oldest.what.bytes();
            self.kept.pop_front();
        }
    }

    fn retain(&mut self, is_kept: impl Fn(&Arc<AckLogEntry>) -> bool) {
        self.kept.retain(|one| is_kept(one));
        self.bytes = self.kept.iter().map(|one| one.what.bytes()).sum();
    }

    /// Returns the changes without documents that were overwritten later, also by the creation of a job.
    fn current_changes(&self) -> Vec<Arc<AckLogEntry>> {
        let mut written = HashSet::new();
        let mut found = Vec::with_capacity(self.kept.len());
        for one in self.kept.iter().rev() {
            if let AckedChange::Document { key, .. } = &one.what
                && !written.insert((&one.owner, key.clone()))
            {
                continue;
            }
            if let Some(job) = one.what.opened_job() {
                written.insert((&one.owner, keys::job_head(job)));
            }
            found.push(Arc::clone(one));
        }
        found.reverse();
        found
    }
}

/// Returns a hash by which this process recognises a value.
fn value_hash(value: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

impl AckLogStore {
    /// Remembers what `inner` acknowledges.
    pub fn new(inner: Arc<dyn Store>) -> Self {
        Self {
            inner,
            tail: Mutex::default(),
            history: KnownHistory::default(),
            pending: Mutex::default(),
            second_look: Mutex::default(),
        }
    }

    /// Compares the remembered changes with the store if its history is another since the last call, and restores or
    /// reports missing ones. `None`: the history is the same and nothing is left to compare.
    ///
    /// `is_another` is called before the comparison. Call this every second: it also drops old changes.
    pub async fn compare(&self, now: Millis, is_another: impl FnOnce()) -> Result<Option<AckLogReport>, StoreError> {
        let names = self.inner.history().await?;
        let mut compared = AckLogReport { is_another: self.history.is_another(&names), ..AckLogReport::default() };
        if compared.is_another {
            is_another();
            *self.second_look.lock() = (names.len() > 1).then(|| now.plus(CLUSTER_SETTLING));
        }
        let is_settled = self.second_look.lock().take_if(|due| *due <= now).is_some();
        if compared.is_another || is_settled {
            let mut pending = self.pending.lock();
            let known: HashSet<_> = pending.iter().map(|(one, _)| Arc::as_ptr(one)).collect();
            let new = self.tail.lock().current_changes().into_iter().filter(|one| !known.contains(&Arc::as_ptr(one)));
            pending.extend(new.map(|one| (one, now)));
        }
        let span = if self.history.is_whole(&names) { REPLICATION_SPAN } else { OUTAGE_SPAN };
        self.history.note_names(names);
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
            left.extend(self.compare_all(now, some, &mut compared).await);
        }
        compared.left = left.len();
        *self.pending.lock() = left;
        compared.losses.sort_by_key(|loss| loss.acknowledged);
        Ok(Some(compared))
    }

    /// Compares changes with the store; returns those that can't be compared yet.
    async fn compare_all(
        &self,
        now: Millis,
        some: Vec<(Arc<AckLogEntry>, Millis)>,
        compared: &mut AckLogReport,
    ) -> Vec<(Arc<AckLogEntry>, Millis)> {
        let looks: Vec<_> = some.iter().map(|(one, since)| self.compare_one(now, one, *since)).collect();
        let found: Vec<AckComparison> = stream::iter(looks).buffered(AT_ONCE).collect().await;
        let (mut left, mut told) = (Vec::new(), HashSet::new());
        for ((one, since), look) in some.into_iter().zip(found) {
            let lost = match look {
                AckComparison::There => continue,
                AckComparison::Unknown(_) if since.plus(OUTAGE_SPAN) > now => {
                    left.push((one, since));
                    continue;
                }
                AckComparison::PutBack => None,
                AckComparison::Lost(why) | AckComparison::Unknown(why) => Some(why),
            };
            let (owner, acknowledged, what) = (one.owner.clone(), one.at, one.what.to_string());
            let kind = one.what.kind().to_owned();
            let change = one.what.to_journaled();
            compared.losses.push(Loss { owner, acknowledged, kind, what, lost, change });
            // Reported changes aren't reported again; restored ones may be lost again with the next server.
            if matches!(one.what, AckedChange::Turn { .. } | AckedChange::Document { .. }) {
                told.insert(Arc::as_ptr(&one));
            }
        }
        if !told.is_empty() {
            self.tail.lock().retain(|one| !told.contains(&Arc::as_ptr(one)));
        }
        left
    }

    async fn compare_one(&self, now: Millis, one: &AckLogEntry, since: Millis) -> AckComparison {
        self.try_compare(now, one, since).await.unwrap_or_else(|error| {
            if error.is_transient() {
                AckComparison::Unknown(error.to_string())
            } else {
                AckComparison::Lost(error.to_string())
            }
        })
    }

    async fn try_compare(&self, now: Millis, one: &AckLogEntry, since: Millis) -> Result<AckComparison, StoreError> {
        let lost = |how: &str| AckComparison::Lost(how.to_owned());
        let doc = async |key: &str| self.inner.doc(&one.owner, key).await;
        Ok(match &one.what {
            // If the result were admitted before its job exists, it would be served as an unsolicited one.
            AckedChange::Event(admit) if let Some(job) = self.find_missing_job(&one.owner, admit).await? => {
                let unknown = format!("the store doesn't know the job `{job}` of which it is the result");
                if since.plus(JOB_WAIT) > now { AckComparison::Unknown(unknown) } else { AckComparison::Lost(unknown) }
            }
            // Uses the time of then: deletions since are newer.
            AckedChange::Event(admit) => match self.inner.admit(one.at, admit).await?.intake {
                Intake::Duplicate | Intake::Nothing => AckComparison::There,
                Intake::New => AckComparison::PutBack,
                Intake::Refused(refusal) => AckComparison::Lost(refusal.to_string()),
                Intake::Conflict => lost("another event has its id"),
                Intake::ReplaceRunning => lost("another task is in its place"),
            },
            AckedChange::End { session, finish, open, outbox } => {
                let unknown = "the store doesn't know the job".to_owned();
                match self.inner.finish(one.at, &one.owner, session, finish, open.as_ref(), outbox).await? {
                    FinishOutcome::Already(_) => AckComparison::There,
                    FinishOutcome::Done => AckComparison::PutBack,
                    // Another process may be about to submit the job again.
                    FinishOutcome::Unknown if since.plus(JOB_WAIT) > now => AckComparison::Unknown(unknown),
                    FinishOutcome::Unknown => AckComparison::Lost(unknown),
                }
            }
            AckedChange::Turn { session, turn, record } => match doc(&keys::turn(session, *turn)).await?.value {
                Some(bytes) if value_hash(&bytes) == *record => AckComparison::There,
                Some(_) => lost("another was run in its place, or it was erased"),
                None => lost("its session is as before it, or gone"),
            },
            AckedChange::Document { key, value, version } => {
                let there = doc(key).await?;
                match version {
                    _ if there.value.as_ref().map(|bytes| value_hash(bytes)) == *value => AckComparison::There,
                    Some(version) if there.version > *version => AckComparison::There,
                    Some(_) => lost("it is as before or otherwise"),
                    None if value.is_none() => lost("it is there again"),
                    None => lost("unless somebody else has changed it since"),
                }
            }
        })
    }

    /// Returns the job of a result if the store doesn't know it.
    async fn find_missing_job<'a>(&self, owner: &Owner, admit: &'a Admit) -> Result<Option<&'a JobId>, StoreError> {
        let result = admit.event.as_ref().filter(|event| event.kind == EventKind::Result);
        let Some(job) = result.and_then(|event| event.job.as_ref()) else { return Ok(None) };
        let head = self.inner.doc(owner, &keys::job_head(job)).await?;
        Ok(head.value.is_none().then_some(job))
    }

    fn note(&self, at: Millis, owner: &Owner, what: AckedChange) {
        self.tail.lock().push(AckLogEntry { at, owner: owner.clone(), what });
    }
}

impl Layer for AckLogStore {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    async fn admit(&self, now: Millis, request: &Admit) -> Result<AdmissionOutcome, StoreError> {
        let admitted = self.inner.admit(now, request).await?;
        // A duplicate may be the repetition of a call whose answer was lost.
        if matches!(admitted.intake, Intake::New | Intake::Duplicate) && request.event.is_some() {
            self.note(now, &request.owner, AckedChange::Event(Box::new(Admit { lease: None, ..request.clone() })));
        }
        Ok(admitted)
    }

    async fn commit(&self, now: Millis, lease: &Lease, commit: &Commit) -> Result<CommitOutcome, StoreError> {
        let committed = self.inner.commit(now, lease, commit).await?;
        if matches!(committed, CommitOutcome::Done(_)) {
            let (session, turn) = (lease.session.clone(), commit.turn);
            let key = keys::turn(&session, turn);
            // A commit without a model call leaves no record; its events are settled again.
            let record = commit.writes.iter().find(|write| write.key == key).and_then(put_bytes);
            if let Some(record) = record {
                self.note(now, &lease.owner, AckedChange::Turn { session, turn, record: value_hash(record) });
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
    ) -> Result<FinishOutcome, StoreError> {
        let finished = self.inner.finish(now, owner, session, finish, open, outbox).await?;
        if finished == FinishOutcome::Done || finished == FinishOutcome::Already(finish.status) {
            let (session, finish, outbox) = (session.clone(), finish.clone(), outbox.to_vec());
            self.note(now, owner, AckedChange::End { session, finish, open: open.cloned(), outbox });
        }
        Ok(finished)
    }

    async fn write(&self, now: Millis, owner: &Owner, writes: &[DocWrite]) -> Result<WriteOutcome, StoreError> {
        let written = self.inner.write(now, owner, writes).await?;
        self.note_writes(now, owner, writes, &written);
        Ok(written)
    }

    async fn write_within(
        &self,
        now: Millis,
        owner: &Owner,
        writes: &[DocWrite],
        quota: &Quota,
    ) -> Result<WriteOutcome, StoreError> {
        let written = self.inner.write_within(now, owner, writes, quota).await?;
        self.note_writes(now, owner, writes, &written);
        Ok(written)
    }

    /// An event whose id is free again isn't submitted again, and the remembered end of a job goes with the job.
    async fn forget(&self, now: Millis, owner: &Owner, forget: &ForgetRequest) -> Result<ForgetOutcome, StoreError> {
        let forgotten = self.inner.forget(now, owner, forget).await?;
        let jobs: HashSet<JobId> = forget.documents.iter().filter_map(|key| keys::job_of_head(key)).collect();
        if forgotten == ForgetOutcome::Done && !(forget.events.is_empty() && jobs.is_empty()) {
            let is_forgotten = |what: &AckedChange| match what {
                AckedChange::Event(admit) => {
                    admit.event.as_ref().is_some_and(|event| forget.events.contains(&event.id))
                }
                AckedChange::End { finish, .. } => jobs.contains(&finish.job),
                AckedChange::Turn { .. } | AckedChange::Document { .. } => false,
            };
            self.tail.lock().retain(|one| one.owner != *owner || !is_forgotten(&one.what));
        }
        if forgotten == ForgetOutcome::Done
            && forget.requested_by_user
            && let Some(key) = forget.documents.first().cloned()
        {
            self.note(now, owner, AckedChange::Document { key, value: None, version: None });
        }
        Ok(forgotten)
    }
}

impl AckLogStore {
    fn note_writes(&self, now: Millis, owner: &Owner, writes: &[DocWrite], written: &WriteOutcome) {
        if *written != WriteOutcome::Done {
            return;
        }
        for write in
            writes.iter().filter(|write| keys::is_user_document(&write.key) && write.change != DocEffect::Check)
        {
            let (key, version) = (write.key.clone(), write.expect.next_version());
            let value = put_bytes(write).map(|bytes| value_hash(bytes));
            self.note(now, owner, AckedChange::Document { key, value, version });
        }
    }
}

fn put_bytes(write: &DocWrite) -> Option<&Bytes> {
    match &write.change {
        DocEffect::Put(bytes) => Some(bytes),
        DocEffect::Delete | DocEffect::Check => None,
    }
}
