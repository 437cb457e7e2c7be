//! Owners whose sessions get one event after the other, and what was acknowledged of it.

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
/// Before a call is made again.
const PAUSE: Duration = Duration::from_millis(50);
/// After a node is lost: the others find out, elect, and the calls on their way end.
const PATIENCE: Duration = Duration::from_mins(1);

/// One task for each owner.
pub struct Load {
    store: Arc<RedisStore>,
    tasks: JoinSet<()>,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    stopped: AtomicBool,
    done: Vec<(Owner, AtomicU32)>,
    errors: Mutex<Vec<String>>,
}

/// What there is at the end.
pub struct Seen {
    store: Arc<RedisStore>,
    shared: Arc<Shared>,
    /// Why calls had to be made again.
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

/// Makes a call again until it is answered: a failover, or replicas that must confirm and are on their way back, take
/// their time.
async fn patiently<T>(what: &str, call: impl AsyncFn() -> Result<T, StoreError>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        match call().await {
            Ok(answer) => return answer,
            Err(error) if error.is_transient() && Instant::now() < end => tokio::time::sleep(PAUSE).await,
            Err(error) => panic!("{what}: {error}"),
        }
    }
}

impl Load {
    pub async fn start(store: Arc<RedisStore>, owners: usize) -> Self {
        let owners: Vec<Owner> = (0..owners).map(|n| format!("acme/u{n}").parse().unwrap()).collect();
        for owner in &owners {
            let gate = DocWrite::put(keys::agent_gate(&session().agent), "ACTIVE 8 1000000 queue");
            store.write(NOW, owner, &[gate]).await.unwrap();
        }
        let done = owners.iter().map(|owner| (owner.clone(), AtomicU32::new(0))).collect();
        let shared = Arc::new(Shared { done, ..Shared::default() });
        let mut tasks = JoinSet::new();
        for (at, owner) in owners.into_iter().enumerate() {
            let (store, shared) = (Arc::clone(&store), Arc::clone(&shared));
            tasks.spawn(async move { shared.write(&store, &owner, at).await });
        }
        Self { store, tasks, shared }
    }

    pub fn owners(&self) -> Vec<Owner> {
        self.shared.done.iter().map(|(owner, _)| owner.clone()).collect()
    }

    /// Waits until every owner has so many more.
    pub async fn goes_on(&self, more: u32) {
        let counts = || self.shared.done.iter().map(|(_, count)| count.load(Ordering::Relaxed)).collect::<Vec<_>>();
        let (before, end) = (counts(), Instant::now() + PATIENCE);
        while counts().iter().zip(&before).any(|(now, before)| now - before < more) {
            let errors = || self.shared.errors.lock().last().cloned();
            assert!(Instant::now() < end, "it doesn't go on: {before:?}, now {:?}; {:?}", counts(), errors());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    pub async fn stop(mut self) -> Seen {
        self.shared.stopped.store(true, Ordering::Relaxed);
        while let Some(ended) = self.tasks.join_next().await {
            ended.unwrap();
        }
        let errors = self.shared.errors.lock().clone();
        Seen { store: Arc::clone(&self.store), shared: Arc::clone(&self.shared), errors }
    }
}

impl Shared {
    async fn write(&self, store: &RedisStore, owner: &Owner, at: usize) {
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
            self.done[at].1.store(n + 1, Ordering::Relaxed);
        }
    }
}

impl Seen {
    /// Everything that was acknowledged is there, and what is counted is what is there.
    pub async fn is_whole(&self) {
        for (owner, count) in &self.shared.done {
            let count = count.load(Ordering::Relaxed);
            let sessions = async || self.store.sessions(owner, None, None, 10).await;
            let facts = patiently("the sessions", sessions).await;
            let arrivals = facts[0].arrivals;
            assert!(arrivals == u64::from(count) || arrivals == u64::from(count) + 1, "{owner}: {arrivals} of {count}");
            for n in 0..count {
                let again = patiently("an admission", async || admit(&self.store, owner, n).await).await;
                assert_eq!(again, Intake::Duplicate, "{owner} e{n} is lost");
            }
            let (was, is) = loop {
                let recount = async || self.store.recount(owner, false).await;
                match patiently("a recount", recount).await {
                    Recount::More => {}
                    Recount::Done { stored: was, counted: is } => break (was, is),
                }
            };
            assert_eq!(was, is, "{owner}");
        }
    }
}
