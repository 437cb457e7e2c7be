//! A store that remembers what it acknowledged last, for when its server is found without it.
//!
//! Redis answers before its replicas have a change, and, set so, before its disk has it: when a replica takes over or a
//! server comes back, the tail of what was acknowledged can be missing. Each process knows its own part of the last
//! seconds. What only came in is put in again, under the ids that it had, so that what is there stays as it is; of what
//! was made of it, nobody but a model or a person knows how to make it again, so it is told.

use super::{
    Admit, Admitted, Change, Commit, Committed, DocKey, DocWrite, Expect, Finished, Forget, Forgotten, Intake,
    JobFinish, KnownHistory, Layer, Lease, NewJob, OutboxEntry, OutsideWrite, Store, StoreError, keys,
};
use crate::domain::ids::{Owner, SessionKey};
use crate::domain::quota::Quota;
use crate::domain::tail::Loss;
use crate::domain::time::Millis;
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use parking_lot::Mutex;
use std::collections::{HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

/// Older than the newest by more than this, nothing is remembered: replicas are behind by less, or of no use.
const SPAN: Duration = Duration::from_secs(15);
/// What is remembered at most, the newest.
const MOST: usize = 20_000;
/// Bytes of the bodies among it.
const BYTES: usize = 32 << 20;
/// Calls at a time while it is compared.
const AT_ONCE: usize = 16;

/// Remembers the last acknowledged changes of a store.
pub struct TailStore {
    inner: Arc<dyn Store>,
    tail: Mutex<Tail>,
    /// As it was when the tail was compared last.
    history: KnownHistory,
    /// By a comparison that didn't come to its end.
    found: Mutex<Vec<Loss>>,
}

/// The newest last.
#[derive(Default)]
struct Tail {
    kept: VecDeque<Arc<Acknowledged>>,
    bytes: usize,
}

struct Acknowledged {
    at: Millis,
    owner: Owner,
    what: What,
}

enum What {
    /// Put in again.
    Event(Box<Admit>),
    /// Ended again.
    End { session: SessionKey, finish: JobFinish, open: Option<NewJob>, outbox: Vec<OutboxEntry> },
    /// A turn, by its record.
    Turn { session: SessionKey, turn: u64, record: u64 },
    /// What somebody wrote outside turns; `None` of what was deleted. Its version where that is known.
    Document { key: DocKey, value: Option<u64>, version: Option<u64> },
}

impl What {
    fn bytes(&self) -> usize {
        match self {
            Self::Event(admit) => admit.event.as_ref().map_or(0, |event| event.body.len()),
            Self::End { finish, .. } => finish.result.len(),
            Self::Turn { .. } | Self::Document { .. } => 0,
        }
    }
}

impl Tail {
    fn push(&mut self, new: Acknowledged) {
        let now = new.at;
        self.bytes += new.what.bytes();
        self.kept.push_back(Arc::new(new));
        while let Some(oldest) = self.kept.front()
            && (self.kept.len() > MOST || self.bytes > BYTES || oldest.at.plus(SPAN) < now)
        {
            self.bytes -= oldest.what.bytes();
            self.kept.pop_front();
        }
    }

    fn keep(&mut self, is_kept: impl Fn(&Arc<Acknowledged>) -> bool) {
        self.kept.retain(|one| is_kept(one));
        self.bytes = self.kept.iter().map(|one| one.what.bytes()).sum();
    }
}

/// Without documents that were written again later.
fn current(kept: &[Arc<Acknowledged>]) -> Vec<&Acknowledged> {
    let mut written = HashSet::new();
    let mut found = Vec::with_capacity(kept.len());
    for one in kept.iter().rev() {
        if let What::Document { key, .. } = &one.what
            && !written.insert((&one.owner, key))
        {
            continue;
        }
        found.push(&**one);
    }
    found.reverse();
    found
}

/// Of a value, to know it again in this process.
fn mark(value: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

impl TailStore {
    /// Remembers what `inner` acknowledges.
    pub fn new(inner: Arc<dyn Store>) -> Self {
        Self { inner, tail: Mutex::default(), history: KnownHistory::default(), found: Mutex::default() }
    }

    /// Whether the store's history is another since the last call, so that what it said before may not be so: `None`
    /// when not, else what of the tail was found missing, and what became of it.
    ///
    /// `is_another` is called before anything else is. After an error it is compared by the next call.
    pub async fn compare(&self, now: Millis, is_another: impl FnOnce()) -> Result<Option<Vec<Loss>>, StoreError> {
        let history = self.inner.history().await?;
        if !self.history.is_another(&history) {
            self.history.know(history);
            return Ok(None);
        }
        is_another();
        let kept: Vec<_> = self.tail.lock().kept.iter().cloned().collect();
        let looks: Vec<_> = current(&kept).into_iter().map(|one| self.look(now, one)).collect();
        stream::iter(looks).buffered(AT_ONCE).try_collect::<()>().await?;
        // What was told of once isn't told of again; what was put back may be lost with the next server.
        let told: HashSet<*const Acknowledged> = kept.iter().map(Arc::as_ptr).collect();
        self.tail
            .lock()
            .keep(|one| matches!(one.what, What::Event(_) | What::End { .. }) || !told.contains(&Arc::as_ptr(one)));
        self.history.know(history);
        let mut found = std::mem::take(&mut *self.found.lock());
        found.sort_by_key(|loss| loss.acknowledged);
        Ok(Some(found))
    }

    async fn look(&self, now: Millis, one: &Acknowledged) -> Result<(), StoreError> {
        let found = match &one.what {
            What::Event(admit) => self.admit_again(now, admit).await?,
            What::End { session, finish, open, outbox } => {
                let ended = self.inner.finish(now, &one.owner, session, finish, open.as_ref(), outbox).await?;
                let what = || format!("job `{}` was {}", finish.job, finish.status.as_str());
                match ended {
                    Finished::Already(_) => None,
                    Finished::Done => Some((what(), None)),
                    Finished::Unknown => Some((what(), Some("the store doesn't know the job".to_owned()))),
                }
            }
            What::Turn { session, turn, record } => {
                let what = || format!("turn {turn} of `{session}`");
                match self.inner.doc(&one.owner, &keys::turn(session, *turn)).await?.value {
                    Some(bytes) if mark(&bytes) == *record => None,
                    Some(_) => Some((what(), Some("another was run in its place".to_owned()))),
                    None => Some((what(), Some("its session is as before it".to_owned()))),
                }
            }
            What::Document { key, value, version } => {
                let there = self.inner.doc(&one.owner, key).await?;
                let is_it = there.value.as_ref().map(|bytes| mark(bytes)) == *value;
                let did = if value.is_some() { "written" } else { "deleted" };
                let stands = match version {
                    Some(version) if there.version > *version => None,
                    Some(_) => Some("it is as before or otherwise".to_owned()),
                    None => Some("unless somebody else has changed it since".to_owned()),
                };
                stands.filter(|_| !is_it).map(|stands| (format!("`{key}` was {did}"), Some(stands)))
            }
        };
        let loss = |(what, lost)| Loss { owner: one.owner.clone(), acknowledged: one.at, what, lost };
        self.found.lock().extend(found.map(loss));
        Ok(())
    }

    async fn admit_again(&self, now: Millis, admit: &Admit) -> Result<Option<(String, Option<String>)>, StoreError> {
        let lost = match self.inner.admit(now, admit).await {
            Ok(Admitted { intake, .. }) => match intake {
                Intake::New => None,
                Intake::Refused(refusal) => Some(refusal.to_string()),
                Intake::Conflict => Some("another event has its id".to_owned()),
                Intake::Replaces => Some("another task is in its place".to_owned()),
                Intake::Duplicate | Intake::Nothing => return Ok(None),
            },
            Err(StoreError::Over(over)) => Some(over.to_string()),
            Err(error) => return Err(error),
        };
        let id = admit.event.as_ref().map(|event| event.id.to_string()).unwrap_or_default();
        Ok(Some((format!("event `{id}` of `{}`", admit.session), lost)))
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
        if admitted.intake == Intake::New {
            self.note(now, &request.owner, What::Event(Box::new(Admit { lease: None, ..request.clone() })));
        }
        Ok(admitted)
    }

    async fn commit(&self, now: Millis, lease: &Lease, commit: &Commit) -> Result<Committed, StoreError> {
        let committed = self.inner.commit(now, lease, commit).await?;
        if matches!(committed, Committed::Done(_)) {
            let (session, turn) = (lease.session.clone(), commit.turn);
            let key = keys::turn(&session, turn);
            // One that settles events without a model leaves no record, and is settled again.
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
        if finished == Finished::Done {
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

    /// An event whose id is free again isn't put in again.
    async fn forget(&self, now: Millis, owner: &Owner, forget: &Forget) -> Result<Forgotten, StoreError> {
        let forgotten = self.inner.forget(now, owner, forget).await?;
        if forgotten == Forgotten::Done && !forget.events.is_empty() {
            let is_forgotten = |what: &What| matches!(what, What::Event(admit) if admit.event.as_ref().is_some_and(|e| forget.events.contains(&e.id)));
            self.tail.lock().keep(|one| one.owner != *owner || !is_forgotten(&one.what));
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
            let version = match write.expect {
                Expect::Version(before) => Some(before + 1),
                Expect::Any => None,
            };
            let (key, value) = (write.key.clone(), value(write).map(|bytes| mark(bytes)));
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
