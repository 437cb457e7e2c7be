//! A worker that dies at a chosen store call: after it, nothing that it does reaches anything.

use crate::support::watched_store::Watch;
use async_trait::async_trait;
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use serde_json::{Value, json};
use std::future::pending;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use trellis::bus::{Acknowledge, Alarms, Bus, BusError, Delivery, LiveFeed, LiveSubject, Signal, WhenEmpty};
use trellis::domain::chat::{ModelRequest, Reply};
use trellis::domain::ids::{JobId, Owner};
use trellis::domain::message::{BusMessage, InboundKind, MessageAddress};
use trellis::model::{LiveText, Model, ModelError};
use trellis::store::faulty::FaultyStore;
use trellis::store::{BackendSetting, Checkpoint, Lease, LeaseCheck};
use trellis::venue::secrets::OpenedSecret;

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

/// The store that everybody shares notes recorded replies.
#[async_trait]
impl Watch for Log {
    async fn checkpointed(&self, lease: &Lease, write: &Checkpoint, held: &LeaseCheck) {
        if write.reply.is_some() && *held != LeaseCheck::Fenced {
            let turn = format!("{}/{}/{}", lease.owner, lease.session, write.turn);
            self.lock().unwrap().push(Trace::Recorded(turn));
        }
    }
}

/// The death of one worker: it has happened as soon as its store has failed a call.
#[derive(Clone)]
pub struct Life(pub Option<Arc<FaultyStore>>);

impl Life {
    pub fn is_over(&self) -> bool {
        self.0.as_ref().is_some_and(|store| !store.injected_faults().is_empty())
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
    inner: Arc<dyn Acknowledge>,
    life: Life,
}

#[async_trait]
impl Acknowledge for Settled {
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

/// An external worker that is at every job at once; what it says of it.
fn done_at_once(message: &BusMessage) -> Option<BusMessage> {
    let MessageAddress::Job { owner, agent, .. } = &message.to else { return None };
    let (job, token) = (&message.body["job"], &message.body["token"]);
    let body = json!({"job": job, "token": token, "status": "COMPLETE", "output": {"did": message.body["input"]}});
    let to = MessageAddress::In { owner: owner.clone(), agent: agent.clone(), kind: InboundKind::Result };
    Some(BusMessage { to, id: None, body, trace: None })
}

impl trellis::bus::QueueWatch for Line {}

#[async_trait]
impl Bus for Line {
    async fn receive(&self, max: usize, when_empty: WhenEmpty) -> Result<Vec<Delivery>, BusError> {
        self.life.go_on().await;
        let received = self.inner.receive(max, when_empty).await?;
        self.life.go_on().await;
        let mine = |delivery: Delivery| Delivery {
            settle: Arc::new(Settled { inner: delivery.settle, life: self.life.clone() }),
            ..delivery
        };
        Ok(received.into_iter().map(mine).collect())
    }

    async fn publish(&self, message: &BusMessage) -> Result<(), BusError> {
        self.life.go_on().await;
        match done_at_once(message) {
            Some(answer) => self.inner.publish(&answer).await?,
            None => self.inner.publish(message).await?,
        }
        if let Some(id) = message.id.clone() {
            let body = serde_json::to_value(message).unwrap();
            self.log.lock().unwrap().push(Trace::Published { id, body });
        }
        Ok(())
    }

    /// All of it is to be seen after a crash, on the embedded queue as well.
    fn has_outside_listeners(&self, _to: &MessageAddress) -> bool {
        true
    }

    async fn signal(&self, to: &LiveSubject, body: Bytes) -> Result<(), BusError> {
        self.life.go_on().await;
        self.inner.signal(to, body).await
    }

    async fn listen(&self, from: &LiveSubject) -> Result<BoxStream<'static, Bytes>, BusError> {
        self.inner.listen(from).await
    }

    async fn job_end(&self, owner: &Owner, job: &JobId) -> Result<BoxFuture<'static, ()>, BusError> {
        self.inner.job_end(owner, job).await
    }

    async fn listen_control(&self) -> Result<BoxStream<'static, Signal>, BusError> {
        self.inner.listen_control().await
    }

    fn live_feed(&self) -> &dyn LiveFeed {
        self.inner.live_feed()
    }

    async fn in_transit(&self) -> Result<Vec<String>, BusError> {
        self.inner.in_transit().await
    }

    async fn settings(&self) -> Result<Vec<BackendSetting>, BusError> {
        self.inner.settings().await
    }

    fn alarms(&self) -> Option<&dyn Alarms> {
        None
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
    async fn complete(
        &self,
        request: &ModelRequest,
        secrets: &[OpenedSecret],
        live: &LiveText,
    ) -> Result<Reply, ModelError> {
        self.life.go_on().await;
        self.log.lock().unwrap().push(Trace::Asked(request.turn.clone()));
        self.inner.complete(request, secrets, live).await
    }
}
