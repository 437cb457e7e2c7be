//! A worker that dies at a chosen store call: after it, nothing that it does reaches anything.

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use serde_json::Value;
use std::future::pending;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use trellis::bus::{Bus, BusError, Delivery, Live, Message, Settle};
use trellis::domain::chat::{ModelRequest, Reply};
use trellis::domain::ids::{AgentId, Owner, SessionKey};
use trellis::domain::time::Millis;
use trellis::model::{LiveText, Model, ModelError};
use trellis::store::faulty::FaultyStore;
use trellis::store::{
    Admit, Admitted, After, Checkpoint, Commit, Committed, Doc, DocKey, DocWrite, Finished, Held, JobFinish, Lease,
    NewJob, OutboxEntry, Page, Released, SessionFacts, Setting, Store, StoreError, Swept, Window, Written,
};

/// What happened in a run, in order, whoever did it.
#[derive(Debug, Clone, PartialEq)]
pub enum Trace {
    /// The model was asked: `owner/agent/session/turn`.
    Asked(String),
    /// Its reply was recorded.
    Recorded(String),
    /// A message with an id was published.
    Published { id: String, body: Value },
}

pub type Log = Arc<Mutex<Vec<Trace>>>;

/// The store that everybody shares; it notes recorded replies.
pub struct Watched {
    pub inner: Arc<dyn Store>,
    pub log: Log,
}

macro_rules! watched {
    ($($name:ident($($arg:ident: $type:ty),*) -> $out:ty;)*) => {
        #[async_trait]
        impl Store for Watched {
            $(async fn $name(&self, $($arg: $type),*) -> Result<$out, StoreError> {
                self.inner.$name($($arg),*).await
            })*

            async fn checkpoint(&self, now: Millis, lease: &Lease, write: &Checkpoint) -> Result<Held, StoreError> {
                let held = self.inner.checkpoint(now, lease, write).await?;
                if write.reply.is_some() && held != Held::Fenced {
                    let turn = format!("{}/{}/{}", lease.owner, lease.session, write.turn);
                    self.log.lock().unwrap().push(Trace::Recorded(turn));
                }
                Ok(held)
            }
        }
    };
}

watched! {
    admit(now: Millis, request: &Admit) -> Admitted;
    renew(now: Millis, lease: &Lease, ttl: Duration) -> Held;
    commit(now: Millis, lease: &Lease, commit: &Commit) -> Committed;
    release(now: Millis, lease: &Lease, then: After) -> Released;
    published(owner: &Owner, ids: &[String]) -> ();
    read(owner: &Owner, keys: &[DocKey]) -> Vec<Doc>;
    scan(owner: &Owner, prefix: &str, after: Option<&str>, reverse: bool, limit: usize) -> Vec<(DocKey, Doc)>;
    page(owner: &Owner, prefix: &str, window: Window) -> Page;
    write(now: Millis, owner: &Owner, writes: &[DocWrite]) -> Written;
    finish(now: Millis, owner: &Owner, session: &SessionKey, finish: &JobFinish, open: Option<&NewJob>,
        outbox: &[OutboxEntry]) -> Finished;
    sweep(now: Millis, owner: &Owner, grace: Duration, limit: u32) -> Swept;
    owners(after: Option<&Owner>, limit: usize) -> Vec<Owner>;
    sessions(owner: &Owner, agent: Option<&AgentId>, after: Option<&SessionKey>, limit: usize) -> Vec<SessionFacts>;
    outbox(owner: &Owner) -> Vec<OutboxEntry>;
    settings() -> Vec<Setting>;
}

/// The death of one worker: it has happened as soon as its store has failed a call.
#[derive(Clone)]
pub struct Life(pub Option<Arc<FaultyStore>>);

impl Life {
    pub fn is_over(&self) -> bool {
        self.0.as_ref().is_some_and(|store| !store.hits().is_empty())
    }

    /// Never returns to the dead.
    async fn go_on(&self) {
        if self.is_over() {
            pending::<()>().await;
        }
    }
}

/// One worker's line to the queue.
pub struct Line {
    pub inner: Arc<dyn Bus>,
    pub life: Life,
    pub log: Log,
}

struct Settled {
    inner: Arc<dyn Settle>,
    life: Life,
}

#[async_trait]
impl Settle for Settled {
    async fn ack(&self) {
        self.life.go_on().await;
        self.inner.ack().await;
    }

    async fn nak(&self, delay: Duration) {
        self.life.go_on().await;
        self.inner.nak(delay).await;
    }

    async fn progress(&self) {
        self.life.go_on().await;
        self.inner.progress().await;
    }
}

#[async_trait]
impl Bus for Line {
    async fn receive(&self, max: usize) -> Result<Vec<Delivery>, BusError> {
        self.life.go_on().await;
        let received = self.inner.receive(max).await?;
        self.life.go_on().await;
        let mine = |delivery: Delivery| Delivery {
            settle: Arc::new(Settled { inner: delivery.settle, life: self.life.clone() }),
            ..delivery
        };
        Ok(received.into_iter().map(mine).collect())
    }

    async fn publish(&self, message: &Message) -> Result<(), BusError> {
        self.life.go_on().await;
        self.inner.publish(message).await?;
        if let Some(id) = message.id.clone() {
            let body = serde_json::to_value(message).unwrap();
            self.log.lock().unwrap().push(Trace::Published { id, body });
        }
        Ok(())
    }

    async fn signal(&self, to: &Live, body: Bytes) -> Result<(), BusError> {
        self.life.go_on().await;
        self.inner.signal(to, body).await
    }

    async fn listen(&self, from: &Live) -> Result<BoxStream<'static, Bytes>, BusError> {
        self.inner.listen(from).await
    }

    async fn in_transit(&self) -> Result<Vec<String>, BusError> {
        self.inner.in_transit().await
    }

    async fn settings(&self) -> Result<Vec<Setting>, BusError> {
        self.inner.settings().await
    }
}

/// One worker's line to the model, which all workers share.
pub struct Voice {
    pub inner: Arc<dyn Model>,
    pub life: Life,
    pub log: Log,
}

#[async_trait]
impl Model for Voice {
    async fn complete(&self, request: &ModelRequest, live: &LiveText) -> Result<Reply, ModelError> {
        self.life.go_on().await;
        self.log.lock().unwrap().push(Trace::Asked(request.turn.clone()));
        self.inner.complete(request, live).await
    }
}
