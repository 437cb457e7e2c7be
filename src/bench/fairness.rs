//! `bench fairness`: how long tasks of many owners wait while one owner submits very many.

use super::{BenchError, Percentiles};
use crate::bus::LiveSubject;
use crate::domain::agent::AgentConfig;
use crate::domain::authority::Authority;
use crate::domain::event::Completion;
use crate::domain::ids::{AgentId, Owner, OwnerPart};
use crate::domain::message::{Address, InKind, Message};
use crate::venue::Venue;
use crate::venue::agents;
use futures::{StreamExt, TryStreamExt, stream};
use serde::Serialize;
use serde_json::json;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Publishes of the one owner that wait for their acknowledgement at the same time.
const WINDOW: usize = 256;

/// Without a completion for so long, the run is stuck.
const PATIENCE: Duration = Duration::from_mins(2);

/// Owners in all: making more takes longer than anybody measures.
const MOST: usize = 100_000;

/// The agent of each owner.
const AGENT: &str = "bench";

/// Who submits how much.
#[derive(Debug, Clone, Copy)]
pub struct Crowd {
    /// Owners that submit `rate` tasks per second together.
    pub owners: usize,
    /// Tasks of one owner more, as fast as the queue takes them.
    pub backlog: usize,
    /// Tasks per second of all others together.
    pub rate: u32,
    /// How long they submit, once without the one owner and once beside it.
    pub time: Duration,
    /// How long the model takes for each task.
    pub model: Duration,
}

impl Crowd {
    /// What the scripted model says.
    pub fn rules(&self) -> String {
        format!("[[rule]]\nthen = {{ text = \"done\", delay_ms = {} }}\n", self.model.as_millis())
    }

    /// Why it can't be measured.
    pub fn problem(&self) -> Option<String> {
        if !(1..=MOST).contains(&self.owners) {
            return Some(format!("`--owners`: expected 1 to {MOST}, got {}", self.owners));
        }
        (self.backlog == 0 || self.rate == 0 || self.time.is_zero())
            .then(|| "expected at least one task, one task per second and one second".to_owned())
    }
}

/// What `bench fairness` found.
#[derive(Debug, Clone, Serialize)]
pub struct FairnessReport {
    /// Owners beside the one.
    pub owners: usize,
    /// Their tasks per second, together.
    pub rate: u32,
    /// While nobody else submits.
    pub alone: TaskWaits,
    /// While one owner submits very many.
    pub beside: TaskWaits,
    /// How many times the wait `alone` that `beside` is, at the 99th percentile.
    pub p99_ratio: f64,
    /// Tasks of the one owner that the queue took meanwhile.
    pub backlog_published: usize,
    /// Those of them that ended.
    pub backlog_ended: usize,
}

/// What tasks wait for.
#[derive(Debug, Clone, Serialize)]
pub struct TaskWaits {
    /// From publish to the queue's acknowledgement.
    pub publish: Percentiles,
    /// From there to completion, without the model's time.
    pub wait: Percentiles,
}

/// Measures it. A worker must be running in this process.
pub async fn fairness(venue: &Arc<Venue>, owner: &Owner, crowd: Crowd) -> Result<FairnessReport, BenchError> {
    let config = json!({
        "systemPrompt": "You answer with what you are asked.",
        "model": {"provider": "scripted", "name": "bench"},
        "concurrency": 1024,
        "mailbox": crowd.backlog,
        "defaultTools": false,
    });
    let config = AgentConfig::parse(&config).map_err(|e| BenchError::Stuck(e.to_string()))?;
    let others: Vec<Owner> = (0..crowd.owners).map(|n| user(owner, &format!("fair-{n}"))).collect();
    let one = user(owner, "greedy");
    let making = others
        .iter()
        .chain([&one])
        .map(async |owner| agents::apply(venue, owner, &agent(), &config, true, &Authority::unlimited()).await);
    stream::iter(making).buffer_unordered(WINDOW).try_collect::<Vec<_>>().await?;

    let alone = others_wait(venue, &others, crowd).await?;
    let (published, ended) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let beside = tokio::select! {
        beside = others_wait(venue, &others, crowd) => beside?,
        Err(error) = greed(venue, &one, crowd, &published, &ended) => return Err(error),
    };
    let p99_ratio = beside.wait.p99_ms / alone.wait.p99_ms;
    Ok(FairnessReport {
        owners: crowd.owners,
        rate: crowd.rate,
        alone,
        beside,
        p99_ratio,
        backlog_published: published.into_inner(),
        backlog_ended: ended.into_inner(),
    })
}

fn agent() -> AgentId {
    AgentId::new(AGENT).expect("a legal id")
}

fn user(of: &Owner, name: &str) -> Owner {
    Owner::new(of.tenant().clone(), OwnerPart::new(name).expect("a legal name"))
}

fn task(owner: &Owner, id: &str, inbox: &str) -> Message {
    Message {
        to: Address::In { owner: owner.clone(), agent: agent(), kind: InKind::Task },
        id: Some(id.to_owned()),
        body: json!({"input": {"id": id}, "replyTo": inbox}),
    }
}

/// Submits their tasks at an even rate, whatever becomes of them, and waits for all.
async fn others_wait(venue: &Arc<Venue>, others: &[Owner], crowd: Crowd) -> Result<TaskWaits, BenchError> {
    let run = crate::ingress::fresh_id();
    let inbox = format!("_INBOX.bench.{run}");
    let mut completions = venue.bus.listen(&LiveSubject::Reply(inbox.clone())).await?;
    let tasks = usize::try_from(u64::from(crowd.rate) * crowd.time.as_secs()).unwrap_or(usize::MAX);
    let publishing = async {
        let mut each = tokio::time::interval(Duration::from_secs(1) / crowd.rate);
        let mut publishes = tokio::task::JoinSet::new();
        for n in 0..tasks {
            each.tick().await;
            let (venue, id) = (Arc::clone(venue), format!("{run}-{n}"));
            let message = task(&others[n % others.len()], &id, &inbox);
            publishes.spawn(async move {
                let at = Instant::now();
                venue.bus.publish(&message).await.map(|()| (id, at, Instant::now()))
            });
        }
        let (mut taken, mut times) = (HashMap::with_capacity(tasks), Vec::with_capacity(tasks));
        while let Some(published) = publishes.join_next().await {
            let (id, before, after) = published.map_err(|e| BenchError::Stuck(e.to_string()))??;
            times.push(after.duration_since(before));
            taken.insert(id, after);
        }
        Ok::<_, BenchError>((taken, times))
    };
    let receiving = async {
        let mut ended = Vec::with_capacity(tasks);
        while ended.len() < tasks {
            let next = tokio::time::timeout(PATIENCE, completions.next()).await;
            let Ok(Some(body)) = next else {
                let ended = ended.len();
                return Err(BenchError::Stuck(format!("{ended} of {tasks} tasks ended, then none for {PATIENCE:?}")));
            };
            if let Ok(completion) = serde_json::from_slice::<Completion>(&body) {
                ended.push((completion.id.to_string(), Instant::now()));
            }
        }
        Ok(ended)
    };
    let ((taken, times), ended) = tokio::try_join!(publishing, receiving)?;
    let wait = |(id, at): &(String, Instant)| Some(at.duration_since(*taken.get(id)?).saturating_sub(crowd.model));
    let wait = Percentiles::of(ended.iter().filter_map(wait).collect());
    Ok(TaskWaits { publish: Percentiles::of(times), wait })
}

/// Submits the one owner's tasks as fast as the queue takes them, and counts those that end. Is never over but by an
/// error.
async fn greed(
    venue: &Arc<Venue>,
    one: &Owner,
    crowd: Crowd,
    published: &AtomicUsize,
    ended: &AtomicUsize,
) -> Result<(), BenchError> {
    let run = crate::ingress::fresh_id();
    let inbox = format!("_INBOX.bench.{run}");
    let mut completions = venue.bus.listen(&LiveSubject::Reply(inbox.clone())).await?;
    let publishing = stream::iter(0..crowd.backlog)
        .map(|n| task(one, &format!("{run}-{n}"), &inbox))
        .map(async |message| venue.bus.publish(&message).await)
        .buffer_unordered(WINDOW)
        .try_for_each(async |()| {
            published.fetch_add(1, Ordering::Relaxed);
            Ok(())
        });
    let counting = async {
        while completions.next().await.is_some() {
            ended.fetch_add(1, Ordering::Relaxed);
        }
    };
    tokio::join!(async { publishing.await.map_err(BenchError::from) }, counting).0?;
    std::future::pending().await
}
