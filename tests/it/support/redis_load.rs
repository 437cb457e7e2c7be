//! A load of writes on Redis while its nodes fail: one event after the other is admitted to a session of each owner.

use bytes::Bytes;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use trellis::domain::ids::{EventId, Owner, SessionKey, sha256_hex};
use trellis::domain::time::Millis;
use trellis::store::redis::RedisStore;
use trellis::store::{
    Accounts, Admit, DocWrite, DocumentStore, EventKind, Intake, NewEvent, Recount, Store, StoreError, StoreInspection,
    keys,
};

const NOW: Millis = Millis(1_767_225_600_000);
/// Pause before a call is made again.
const PAUSE: Duration = Duration::from_millis(50);
/// Longest time after the loss of a node until calls succeed again: the others find out and elect a primary, and open
/// calls end.
const FAILOVER_LIMIT: Duration = Duration::from_mins(1);

/// A running load: one task for each owner, which writes until it is stopped.
pub struct Load {
    store: Arc<RedisStore>,
    tasks: JoinSet<()>,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    stopped: AtomicBool,
    /// Owners, each with the number of its acknowledged events: `e0`, `e1`, …
    acknowledged: Vec<(Owner, AtomicU32)>,
    /// Errors after which calls were made again.
    errors: Mutex<Vec<String>>,
}

/// A stopped load, whose acknowledged events can be checked.
pub struct StoppedLoad {
    store: Arc<RedisStore>,
    shared: Arc<Shared>,
    /// Errors after which calls were made again.
    pub errors: Vec<String>,
}

fn session() -> SessionKey {
    SessionKey { agent: "clerk".parse().unwrap(), session: "main".parse().unwrap() }
}

fn event(n: u32) -> NewEvent {
    let id = format!("e{n}");
    NewEvent {
        body_hash: sha256_hex(id.as_bytes()),
        id: EventId::new(&id).unwrap(),
        kind: EventKind::Message,
        job: None,
        order: format!("{n:06}"),
        body: Bytes::from(vec![b'x'; 300]),
        open: None,
        finish: None,
        outbox: Vec::new(),
        quota: None,
        may_replace: false,
    }
}

async fn admit(store: &RedisStore, owner: &Owner, n: u32) -> Result<Intake, StoreError> {
    let request = Admit { owner: owner.clone(), session: session(), event: Some(event(n)), lease: None };
    store.admit(NOW, &request).await.map(|admitted| admitted.intake)
}

/// Makes a call again until it is answered: a failover takes time, and so do replicas that must confirm and come back.
/// Panics with `what` at an error that isn't transient, or after [`FAILOVER_LIMIT`].
async fn retry<T>(what: &str, call: impl AsyncFn() -> Result<T, StoreError>) -> T {
    let end = Instant::now() + FAILOVER_LIMIT;
    loop {
        match call().await {
            Ok(answer) => return answer,
            Err(error) if error.is_transient() && Instant::now() < end => tokio::time::sleep(PAUSE).await,
            Err(error) => panic!("{what}: {error}"),
        }
    }
}

impl Load {
    /// Starts a load on so many owners, each with an agent `clerk` that takes any number of messages.
    pub async fn start(store: Arc<RedisStore>, owners: usize) -> Self {
        let owners: Vec<Owner> = (0..owners).map(|n| format!("acme/u{n}").parse().unwrap()).collect();
        for owner in &owners {
            let gate = DocWrite::put(keys::agent_gate(&session().agent), "ACTIVE 8 1000000 queue");
            store.write(NOW, owner, &[gate]).await.unwrap();
        }
        let acknowledged = owners.iter().map(|owner| (owner.clone(), AtomicU32::new(0))).collect();
        let shared = Arc::new(Shared { acknowledged, ..Shared::default() });
        let mut tasks = JoinSet::new();
        for (index, owner) in owners.into_iter().enumerate() {
            let (store, shared) = (Arc::clone(&store), Arc::clone(&shared));
            tasks.spawn(async move { shared.write(&store, &owner, index).await });
        }
        Self { store, tasks, shared }
    }

    pub fn owners(&self) -> Vec<Owner> {
        self.shared.acknowledged.iter().map(|(owner, _)| owner.clone()).collect()
    }

    /// Waits until `more` further events of every owner are acknowledged; panics after [`FAILOVER_LIMIT`].
    pub async fn wait_for_progress(&self, more: u32) {
        let counts =
            || self.shared.acknowledged.iter().map(|(_, count)| count.load(Ordering::Relaxed)).collect::<Vec<_>>();
        let (before, end) = (counts(), Instant::now() + FAILOVER_LIMIT);
        while counts().iter().zip(&before).any(|(now, before)| now - before < more) {
            let errors = || self.shared.errors.lock().last().cloned();
            assert!(Instant::now() < end, "no progress: {before:?}, now {:?}; {:?}", counts(), errors());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Stops the load, once each task's open call has ended.
    pub async fn stop(mut self) -> StoppedLoad {
        self.shared.stopped.store(true, Ordering::Relaxed);
        while let Some(ended) = self.tasks.join_next().await {
            ended.unwrap();
        }
        let errors = self.shared.errors.lock().clone();
        StoppedLoad { store: Arc::clone(&self.store), shared: Arc::clone(&self.shared), errors }
    }
}

impl Shared {
    /// Writes events of one owner, at `index` in the list of owners, until the load is stopped.
    async fn write(&self, store: &RedisStore, owner: &Owner, index: usize) {
        for n in 0.. {
            while !self.stopped.load(Ordering::Relaxed) {
                match admit(store, owner, n).await {
                    // A call whose answer was lost is made again.
                    Ok(Intake::New | Intake::Duplicate) => break,
                    Ok(other) => panic!("{owner} e{n}: {other:?}"),
                    Err(error) => {
                        assert!(error.is_transient(), "{owner} e{n}: {error}");
                        self.errors.lock().push(error.to_string());
                        tokio::time::sleep(PAUSE).await;
                    }
                }
            }
            if self.stopped.load(Ordering::Relaxed) {
                return;
            }
            self.acknowledged[index].1.store(n + 1, Ordering::Relaxed);
        }
    }
}

impl StoppedLoad {
    /// Panics unless each acknowledged event is stored, and the stored counters are those of a recount.
    pub async fn assert_nothing_lost(&self) {
        for (owner, count) in &self.shared.acknowledged {
            let count = count.load(Ordering::Relaxed);
            let sessions = async || self.store.sessions(owner, None, None, 10).await;
            let facts = retry("the sessions", sessions).await;
            let arrivals = facts[0].arrivals;
            assert!(arrivals == u64::from(count) || arrivals == u64::from(count) + 1, "{owner}: {arrivals} of {count}");
            for n in 0..count {
                let again = retry("an admission", async || admit(&self.store, owner, n).await).await;
                assert_eq!(again, Intake::Duplicate, "{owner} e{n} is lost");
            }
            let (stored, counted) = loop {
                let recount = async || self.store.recount(owner, false).await;
                match retry("a recount", recount).await {
                    Recount::More => {}
                    Recount::Done { stored, counted } => break (stored, counted),
                }
            };
            assert_eq!(stored, counted, "{owner}");
        }
    }
}
