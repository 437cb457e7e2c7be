//! The link of a process to the simulated queue.

use super::plan::{FaultKind, Server};
use super::queue::{Queue, Queued};
use super::world::{Link, Lost};
use async_trait::async_trait;
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::{BoxStream, StreamExt, unfold};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::{sleep, timeout};
use trellis::bus::{
    Acknowledge, Alarm, Alarms, Bus, BusError, CompletedJob, Delivery, LiveFeed, LivePiece, LiveSubject, RingingAlarm,
    Signal, WhenEmpty, Witness,
};
use trellis::domain::event::Completion;
use trellis::domain::generation::GenerationMark;
use trellis::domain::ids::{JobId, Owner};
use trellis::domain::message::{BusMessage, MessageAddress};
use trellis::domain::timer::TimerId;
use trellis::store::BackendSetting;

/// How long a request for messages waits for the first.
const POLL: Duration = Duration::from_secs(2);

/// The queue as one process sees it.
#[derive(Clone)]
pub struct FarQueue {
    pub server: Arc<Queue>,
    pub link: Arc<Link>,
}

fn unavailable(_: Lost) -> BusError {
    BusError::Unavailable { bus: "simulated".into(), reason: "no answer".into() }
}

impl FarQueue {
    /// There and, when it has been done, back.
    async fn call<T>(&self, act: impl FnOnce(&Queue) -> T) -> Result<T, BusError> {
        self.link.transmit(Server::Queue).await.map_err(unavailable)?;
        let done = act(&self.server);
        self.link.transmit(Server::Queue).await.map_err(unavailable)?;
        Ok(done)
    }

    /// Waits at the server until something is ready, or until then.
    async fn taken(&self, max: usize, when_empty: WhenEmpty) -> Vec<(u64, Queued)> {
        let queue = &self.server;
        let end = queue.clock.steady() + POLL;
        loop {
            let mut changed = pin!(queue.changed.notified());
            changed.as_mut().enable();
            if self.link.is_dead() {
                return std::future::pending().await;
            }
            let taken = queue.take(max);
            let now = queue.clock.steady();
            if !taken.is_empty() || now >= end || max == 0 || when_empty == WhenEmpty::Return {
                return taken;
            }
            let next = queue.next().map_or(end, |next| next.min(end));
            let _ = timeout(next.saturating_sub(now), changed).await;
        }
    }

    fn is_mute(&self) -> bool {
        let world = &self.link.world;
        let mute = world.plan.active(world.now()).any(|kind| kind == FaultKind::Mute);
        if mute {
            world.count_fault("mute");
        }
        mute
    }

    fn heard<T: Send + 'static>(
        &self,
        hear: impl Fn(LiveSubject, Bytes) -> Option<T> + Send + Sync + Copy + 'static,
    ) -> BoxStream<'static, T> {
        let (live, link) = (self.server.live.subscribe(), Arc::clone(&self.link));
        unfold((live, link), move |(mut live, link)| async move {
            loop {
                match live.recv().await {
                    Ok((subject, body)) => {
                        link.wait_until_running().await;
                        if let Some(heard) = hear(subject, body) {
                            return Some((heard, (live, link)));
                        }
                    }
                    Err(RecvError::Lagged(_)) => {}
                    Err(RecvError::Closed) => return None,
                }
            }
        })
        .boxed()
    }
}

/// Of one delivery.
struct Settlement {
    queue: FarQueue,
    sequence: u64,
    delivered: u64,
}

impl Settlement {
    /// What is lost on the way isn't done; nobody learns of that.
    async fn tell(&self, act: impl FnOnce(&Queue)) {
        let _ = self.queue.call(act).await;
    }
}

#[async_trait]
impl Acknowledge for Settlement {
    async fn ack(&self) {
        self.tell(|queue| queue.ack(self.sequence)).await;
    }

    async fn nak(&self, delay: Duration) {
        self.tell(|queue| queue.put_off(self.sequence, self.delivered, delay)).await;
    }

    async fn progress(&self) {
        self.tell(|queue| queue.put_off(self.sequence, self.delivered, queue.ack_wait)).await;
    }
}

/// Of one alarm.
struct Answered {
    queue: FarQueue,
    sequence: u64,
}

#[async_trait]
impl Acknowledge for Answered {
    async fn ack(&self) {
        let _ = self.queue.call(|queue| queue.rung(self.sequence)).await;
    }

    async fn nak(&self, delay: Duration) {
        let _ = self.queue.call(|queue| queue.ring_again(self.sequence, delay)).await;
    }

    async fn progress(&self) {
        self.nak(self.queue.server.ack_wait).await;
    }
}

impl trellis::bus::QueueWatch for FarQueue {}

#[async_trait]
impl LiveFeed for FarQueue {
    async fn follow(&self, job: &JobId, after: Option<u64>) -> Result<BoxStream<'static, LivePiece>, BusError> {
        let (queue, job) = (Arc::clone(&self.server), job.clone());
        let after = after.filter(|after| *after <= queue.pieces()).unwrap_or_default();
        let pieces = unfold((queue, job, after), |(queue, job, after)| async move {
            let piece = loop {
                let mut changed = pin!(queue.changed.notified());
                changed.as_mut().enable();
                match queue.piece(&job, after) {
                    Some(piece) => break piece,
                    None => changed.await,
                }
            };
            let after = piece.sequence;
            Some((piece, (queue, job, after)))
        });
        Ok(pieces.boxed())
    }

    async fn last_piece(&self, job: &JobId) -> Result<Option<u64>, BusError> {
        Ok(self.server.last_piece(job))
    }
}

#[async_trait]
impl Bus for FarQueue {
    async fn receive(&self, max: usize, when_empty: WhenEmpty) -> Result<Vec<Delivery>, BusError> {
        self.link.transmit(Server::Queue).await.map_err(unavailable)?;
        let taken = self.taken(max, when_empty).await;
        self.link.transmit(Server::Queue).await.map_err(unavailable)?;
        let deliver = |(sequence, queued): (u64, Queued)| {
            let Queued { owner, agent, kind, id, body, published, delivered, .. } = queued;
            let shown = (&self.link.name, id.as_deref().unwrap_or("-"));
            self.link.world.note(format_args!("{} gets {} {kind:?} of {agent}: {}", shown.0, sequence, shown.1));
            let settle = Arc::new(Settlement { queue: self.clone(), sequence, delivered });
            let authorization = None;
            Delivery {
                owner,
                agent,
                kind,
                id,
                authorization,
                trace: None,
                body,
                sequence,
                delivered,
                published,
                settle,
            }
        };
        Ok(taken.into_iter().map(deliver).collect())
    }

    async fn publish(&self, message: &BusMessage) -> Result<(), BusError> {
        self.call(|queue| queue.publish(message)).await
    }

    fn has_outside_listeners(&self, to: &MessageAddress) -> bool {
        !matches!(to, MessageAddress::Reply(_))
    }

    async fn signal(&self, to: &LiveSubject, body: Bytes) -> Result<(), BusError> {
        let mute = self.is_mute();
        let say = |queue: &Queue| {
            if let LiveSubject::Job(job) = to {
                queue.say(job, &body);
            }
            if !mute {
                let _ = queue.live.send((to.clone(), body.clone()));
            }
        };
        self.call(say).await
    }

    async fn listen(&self, from: &LiveSubject) -> Result<BoxStream<'static, Bytes>, BusError> {
        let (subject, all) = (from.clone(), self.heard(|subject, body| Some((subject, body))));
        Ok(all.filter_map(move |(of, body)| std::future::ready((of == subject).then_some(body))).boxed())
    }

    async fn job_end(&self, owner: &Owner, job: &JobId) -> Result<BoxFuture<'static, ()>, BusError> {
        let (mut told, link) = (self.server.told.subscribe(), Arc::clone(&self.link));
        let (owner, job) = (owner.clone(), job.to_string());
        Ok(Box::pin(async move {
            loop {
                let said = told.recv().await;
                link.wait_until_running().await;
                match said {
                    Ok(BusMessage { to: MessageAddress::Out { owner: of, job: ended, .. }, .. })
                        if of == owner && ended == job =>
                    {
                        return;
                    }
                    Ok(_) | Err(RecvError::Lagged(_)) => {}
                    Err(RecvError::Closed) => return std::future::pending().await,
                }
            }
        }))
    }

    async fn listen_control(&self) -> Result<BoxStream<'static, Signal>, BusError> {
        Ok(self.heard(|subject, body| match subject {
            LiveSubject::Control(owner) => Some(Signal { owner, body }),
            LiveSubject::Job(_) | LiveSubject::Reply(_) => None,
        }))
    }

    fn live_feed(&self) -> &dyn LiveFeed {
        self
    }

    async fn in_transit(&self) -> Result<Vec<String>, BusError> {
        self.call(Queue::in_transit).await
    }

    async fn settings(&self) -> Result<Vec<BackendSetting>, BusError> {
        Ok(vec![BackendSetting { name: "bus".into(), value: "simulated".into(), problem: None }])
    }

    fn witness(&self) -> Option<&dyn Witness> {
        Some(self)
    }

    fn alarms(&self) -> Option<&dyn Alarms> {
        Some(self)
    }
}

#[async_trait]
impl Alarms for FarQueue {
    async fn set(&self, alarm: &Alarm) -> Result<(), BusError> {
        self.call(|queue| queue.set(alarm)).await
    }

    async fn clear(&self, owner: &Owner, timer: &TimerId) -> Result<(), BusError> {
        self.call(|queue| queue.clear(owner, timer)).await
    }

    async fn listen_ringing(&self) -> Result<BoxStream<'static, RingingAlarm>, BusError> {
        self.link.transmit(Server::Queue).await.map_err(unavailable)?;
        let ringing = unfold(self.clone(), |queue| async move {
            let server = Arc::clone(&queue.server);
            loop {
                queue.link.wait_until_running().await;
                let mut changed = pin!(server.changed.notified());
                changed.as_mut().enable();
                match server.ring() {
                    Ok((sequence, alarm)) => {
                        // The connection is over with it, and it rings again after the ack wait.
                        queue.link.transmit(Server::Queue).await.ok()?;
                        let settle = Arc::new(Answered { queue: queue.clone(), sequence });
                        return Some((RingingAlarm { alarm, settle }, queue));
                    }
                    Err(Some(next)) => {
                        let wait = next.saturating_sub(server.clock.steady());
                        let _ = timeout(wait.max(Duration::from_millis(1)), changed).await;
                    }
                    Err(None) => drop(timeout(Duration::from_secs(30), changed).await),
                }
            }
        });
        Ok(ringing.boxed())
    }
}

#[async_trait]
impl Witness for FarQueue {
    async fn mark(&self) -> Result<Option<GenerationMark>, BusError> {
        self.call(Queue::mark).await
    }

    async fn write_mark(&self, mark: &GenerationMark) -> Result<(), BusError> {
        self.call(|queue| queue.leave(*mark)).await
    }

    async fn completed_jobs(&self) -> Result<Vec<CompletedJob>, BusError> {
        let all = self.call(Queue::completed).await?;
        let of = |message: BusMessage| match message.to {
            MessageAddress::Out { owner, agent, job } => {
                Some(CompletedJob { owner, agent, job: JobId::new(&job).ok()? })
            }
            _ => None,
        };
        Ok(all.into_iter().filter_map(of).collect())
    }

    async fn completion(&self, of: &CompletedJob) -> Result<Option<Completion>, BusError> {
        let all = self.call(Queue::completed).await?;
        let told = |message: &BusMessage| match &message.to {
            MessageAddress::Out { owner, job, .. } => *owner == of.owner && *job == of.job.to_string(),
            _ => false,
        };
        Ok(all.into_iter().rev().find(told).and_then(|message| serde_json::from_value(message.body).ok()))
    }

    async fn forget(&self, of: &CompletedJob, _age: Duration) -> Result<(), BusError> {
        self.call(|queue| queue.forget(&of.job)).await
    }
}

/// Sends until it is accepted.
pub async fn send(bus: &FarQueue, message: &BusMessage) {
    while bus.publish(message).await.is_err() {
        sleep(Duration::from_millis(200)).await;
    }
}
