//! The simulated store: the embedded store's own rules in memory, checked by code that knows nothing of them, and the
//! store as each process sees it.

use super::plan::Server;
use super::server_clock::OwnClock;
use super::world::{Link, Sabotage, World};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use trellis::domain::ids::{Owner, SessionKey};
use trellis::domain::time::Millis;
use trellis::store::embedded::{EmbeddedStore, MemorySnapshot};
use trellis::store::{
    AdmissionOutcome, Admit, Checkpoint, Commit, CommitOutcome, DocWrite, ForgetRequest, Layer, Lease, LeaseCheck,
    LeaseOutcome, Store, StoreError, StoreMethod, WriteOutcome, keys,
};

/// What is known of a session by what the store has said.
#[derive(Debug, Default, Clone)]
struct Watched {
    /// The highest epoch ever granted.
    granted: u64,
    /// Whether each grant was told of a recorded reply, by epoch: the turn whose reply it has.
    told: BTreeMap<u64, u64>,
    /// Turns that were committed, by the epoch that did.
    turns: BTreeMap<u64, u64>,
    /// The turn whose reply is recorded.
    recorded: u64,
}

/// The server, with its watch.
pub struct ServerStore {
    pub inner: Arc<dyn Store>,
    /// Those inside of it.
    rules: Arc<EmbeddedStore>,
    world: Arc<World>,
    sessions: Mutex<BTreeMap<SessionKey, Watched>>,
    /// Changes when something is lost.
    run: AtomicU64,
}

/// Everything of it at one moment.
pub struct Kept {
    image: MemorySnapshot,
    sessions: BTreeMap<SessionKey, Watched>,
}

/// A number for anything that can be shown.
fn mark(of: &impl std::fmt::Debug) -> u64 {
    let mut hasher = DefaultHasher::new();
    format!("{of:?}").hash(&mut hasher);
    hasher.finish()
}

impl ServerStore {
    pub fn new(world: &Arc<World>) -> Arc<Self> {
        let (rules, sessions) = (EmbeddedStore::in_memory(), Mutex::default());
        let inner = Arc::new(OwnClock { store: Arc::clone(&rules), world: Arc::clone(world) });
        Arc::new(Self { inner, rules, world: Arc::clone(world), sessions, run: AtomicU64::new(0) })
    }

    pub fn keep(&self) -> Kept {
        let image = self.rules.snapshot().expect("it is in memory");
        Kept { image, sessions: self.sessions.lock().unwrap().clone() }
    }

    /// What was acknowledged since is lost, but for what was said by leases: the holders are still there.
    pub fn set_back(&self, kept: &Kept) {
        self.rules.restore(&kept.image).unwrap();
        let mut sessions = self.sessions.lock().unwrap();
        let now = std::mem::take(&mut *sessions);
        *sessions = kept.sessions.clone();
        for (key, known) in now {
            sessions.entry(key).or_default().granted = known.granted;
        }
        self.run.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether a holder of this epoch, or of a later one, was told of the recorded reply of this turn.
    pub fn was_told(&self, session: &SessionKey, turn: u64) -> bool {
        let sessions = self.sessions.lock().unwrap();
        sessions.get(session).is_some_and(|known| known.told.get(&known.granted) == Some(&turn))
    }

    fn granted(&self, session: &SessionKey, epoch: u64, recorded: bool, turn: u64) {
        let mut sessions = self.sessions.lock().unwrap();
        let known = sessions.entry(session.clone()).or_default();
        if recorded {
            known.told.insert(epoch, turn);
        } else if known.recorded == turn && !known.turns.contains_key(&turn) {
            self.world.record_violation(format!(
                "the recorded reply of {session}/{turn} isn't handed out with epoch {epoch}"
            ));
        }
        known.granted = known.granted.max(epoch);
    }

    /// What was admitted before is as new.
    async fn forget(&self, now: Millis, request: &Admit) -> Result<(), StoreError> {
        if let (Some(Sabotage::AdmitAgain), Some(event)) = (self.world.sabotage, &request.event) {
            let forget = ForgetRequest { events: vec![event.id.clone()], ..ForgetRequest::default() };
            self.inner.forget(now, &request.owner, &forget).await?;
        }
        Ok(())
    }

    fn committed(&self, lease: &Lease, turn: u64) {
        let mut sessions = self.sessions.lock().unwrap();
        let known = sessions.entry(lease.session.clone()).or_default();
        if let Some(epoch) = known.turns.get(&turn) {
            if *epoch != lease.epoch {
                let (session, other) = (&lease.session, lease.epoch);
                self.world
                    .record_violation(format!("turn {turn} of {session} is committed by epoch {epoch} and by {other}"));
            }
            return;
        }
        if lease.epoch < known.granted {
            let (session, epoch, granted) = (&lease.session, lease.epoch, known.granted);
            self.world.record_violation(format!(
                "turn {turn} of {session} is committed by {epoch}, which {granted} has fenced"
            ));
        }
        let expected = known.turns.last_key_value().map_or(turn, |(last, _)| last + 1);
        if turn != expected {
            self.world.record_violation(format!(
                "turn {turn} of {} is committed after {}",
                lease.session,
                expected - 1
            ));
        }
        known.turns.insert(turn, lease.epoch);
    }

    fn checked(&self, lease: &Lease, write: &Checkpoint) {
        let mut sessions = self.sessions.lock().unwrap();
        let known = sessions.entry(lease.session.clone()).or_default();
        if write.reply.is_some() {
            known.recorded = write.turn;
            known.told.insert(lease.epoch, write.turn);
        }
    }
}

impl Layer for ServerStore {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    async fn admit(&self, now: Millis, request: &Admit) -> Result<AdmissionOutcome, StoreError> {
        self.forget(now, request).await?;
        let mut answer = self.inner.admit(now, request).await?;
        if let (Some(Sabotage::ForgetReply), LeaseOutcome::Run(grant)) = (self.world.sabotage, &mut answer.lease) {
            grant.checkpoint = None;
        }
        let event = request.event.as_ref().map_or("-", |event| event.id.as_str());
        let (session, intake) = (&request.session, &answer.intake);
        match &answer.lease {
            LeaseOutcome::Run(grant) => {
                let (epoch, recorded, turn) = (grant.lease.epoch, grant.checkpoint.is_some(), grant.version + 1);
                self.world.note(format_args!("  admit {event} {session} {intake:?} granted {epoch}, turn {turn}"));
                self.granted(session, epoch, recorded, turn);
            }
            other => self.world.note(format_args!("  admit {event} {session} {intake:?} {other:?}")),
        }
        Ok(answer)
    }

    async fn checkpoint(&self, now: Millis, lease: &Lease, write: &Checkpoint) -> Result<LeaseCheck, StoreError> {
        let answer = self.inner.checkpoint(now, lease, write).await?;
        let (session, epoch, turn) = (&lease.session, lease.epoch, write.turn);
        self.world.note(format_args!("  checkpoint {session}/{turn} {epoch} {answer:?} {:x}", mark(write)));
        if matches!(answer, LeaseCheck::Held { .. }) {
            self.checked(lease, write);
        }
        Ok(answer)
    }

    async fn commit(&self, now: Millis, lease: &Lease, commit: &Commit) -> Result<CommitOutcome, StoreError> {
        let mut answer = self.inner.commit(now, lease, commit).await?;
        if answer == CommitOutcome::Fenced && self.world.sabotage == Some(Sabotage::NoFence) {
            let epoch = self.sessions.lock().unwrap().get(&lease.session).map_or(0, |known| known.granted);
            answer = self.inner.commit(now, &Lease { epoch, ..lease.clone() }, commit).await?;
        }
        if let (Some(Sabotage::DropOutbox), Some(first)) = (self.world.sabotage, commit.outbox.first()) {
            self.inner.remove_published(&lease.owner, std::slice::from_ref(&first.id)).await?;
        }
        let how = match &answer {
            CommitOutcome::Done(_) => "done",
            CommitOutcome::Fenced => "fenced",
            CommitOutcome::Conflict(_) => "conflict",
            CommitOutcome::Cancelled => "cancelled",
        };
        let (session, epoch, turn) = (&lease.session, lease.epoch, commit.turn);
        self.world.note(format_args!("  commit {session}/{turn} {epoch} {how} {:x}", mark(commit)));
        if matches!(answer, CommitOutcome::Done(_)) {
            self.committed(lease, commit.turn);
        }
        Ok(answer)
    }

    async fn write(&self, now: Millis, owner: &Owner, writes: &[DocWrite]) -> Result<WriteOutcome, StoreError> {
        let marks = self.world.sabotage == Some(Sabotage::DropMarks);
        let kept: Vec<_> =
            writes.iter().filter(|write| !marks || !write.key.starts_with(keys::ANSWERS_DUE)).cloned().collect();
        self.inner.write(now, owner, &kept).await
    }

    async fn history(&self) -> Result<Vec<String>, StoreError> {
        Ok(vec![format!("run {}", self.run.load(Ordering::Relaxed))])
    }
}

/// The store as one process sees it.
pub struct FarStore {
    pub server: Arc<ServerStore>,
    pub link: Arc<Link>,
}

impl Layer for FarStore {
    fn inner(&self) -> &dyn Store {
        &*self.server
    }

    async fn around<T: Send, F: Future<Output = Result<T, StoreError>> + Send>(
        &self,
        method: StoreMethod,
        call: impl Fn() -> F + Send + Sync,
    ) -> Result<T, StoreError> {
        let lost = |at: &str| StoreError::Unavailable {
            store: "simulated".into(),
            reason: format!("`{}`: the {at} is lost", method.name),
        };
        self.link.transmit(Server::Store).await.map_err(|_| lost("request"))?;
        self.link.world.note(format_args!("{} {}", self.link.name, method.name));
        let answer = call().await;
        self.link.transmit(Server::Store).await.map_err(|_| lost("answer"))?;
        answer
    }

    /// How full it is, nobody asks a server for.
    async fn fill(&self, now: Duration) -> Result<trellis::store::Fill, StoreError> {
        trellis::store::Accounts::fill(&*self.server, now).await
    }
}
