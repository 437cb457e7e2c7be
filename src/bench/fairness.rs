//! `bench fairness`: measures how long tasks of many owners wait while one owner submits very many.

use super::{BenchError, Percentiles, user};
use crate::bus::LiveSubject;
use crate::domain::agent::AgentConfig;
use crate::domain::authority::Authority;
use crate::domain::event::Completion;
use crate::domain::ids::{AgentId, Owner};
use crate::domain::message::{BusMessage, InboundKind, MessageAddress};
use crate::venue::Venue;
use crate::venue::agents;
use futures::{StreamExt, TryStreamExt, stream};
use serde::Serialize;
use serde_json::json;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Publishes of the one owner that are unacknowledged at the same time.
const UNACKNOWLEDGED_MAX: usize = 256;

/// Time without a completion after which the run fails.
const STALL_LIMIT: Duration = Duration::from_mins(2);

/// Owners at most: creating more takes longer than a measurement should.
const OWNERS_MAX: usize = 100_000;

/// Name of the agent of each owner.
const AGENT: &str = "bench";

/// Load of `bench fairness`.
#[derive(Debug, Clone, Copy)]
pub struct FairnessLoad {
    /// Owners that together submit `rate` tasks per second.
    pub owners: usize,
    /// Tasks of one additional owner, as fast as the queue accepts them.
    pub backlog: usize,
    /// Tasks per second of all other owners together.
    pub rate: u32,
    /// Time that they submit, once without the one owner and once beside it.
    pub time: Duration,
    /// Time that the model takes for each task.
    pub model: Duration,
}

impl FairnessLoad {
    /// Returns the rules of the scripted model.
    pub fn rules(&self) -> String {
        format!("[[rule]]\nthen = {{ text = \"done\", delay_ms = {} }}\n", self.model.as_millis())
    }

    /// Returns why this load can't be measured.
    pub fn find_problem(&self) -> Option<String> {
        if !(1..=OWNERS_MAX).contains(&self.owners) {
            return Some(format!("`--owners`: expected 1 to {OWNERS_MAX}, got {}", self.owners));
        }
        (self.backlog == 0 || self.rate == 0 || self.time.is_zero())
            .then(|| "expected at least one task, one task per second and one second".to_owned())
    }
}

/// Result of `bench fairness`.
#[derive(Debug, Clone, Serialize)]
pub struct FairnessReport {
    /// Owners beside the one owner.
    pub owners: usize,
    /// Tasks per second of these owners together.
    pub rate: u32,
    /// Waits while nobody else submits.
    pub alone: TaskWaits,
    /// Waits while one owner submits very many tasks.
    pub beside: TaskWaits,
    /// Ratio of the 99th percentiles of the waits, `beside` to `alone`.
    pub p99_ratio: f64,
    /// Tasks of the one owner that the queue accepted meanwhile.
    pub backlog_published: usize,
    /// Tasks of the one owner that ended meanwhile.
    pub backlog_ended: usize,
}

/// Waiting times of tasks.
#[derive(Debug, Clone, Serialize)]
pub struct TaskWaits {
    /// Time from publish to the queue's acknowledgement.
    pub publish: Percentiles,
    /// Time from the acknowledgement to the completion, without the model's time.
    pub wait: Percentiles,
}

/// Measures the waits. A worker must be running in this process.
pub async fn fairness(venue: &Arc<Venue>, owner: &Owner, crowd: FairnessLoad) -> Result<FairnessReport, BenchError> {
    let config = json!({
        "systemPrompt": "You answer with what you are asked.",
        "model": {"provider": "scripted", "name": "bench"},
        "concurrency": 1024,
        "mailbox": crowd.backlog,
        "defaultTools": false,
    });
    let config = AgentConfig::parse(&config).map_err(|e| BenchError::TimedOut(e.to_string()))?;
    let others: Vec<Owner> = (0..crowd.owners).map(|n| user(owner, &format!("fair-{n}"))).collect();
    let one = user(owner, "greedy");
    let making = others
        .iter()
        .chain([&one])
        .map(async |owner| agents::apply(venue, owner, &agent(), &config, true, &Authority::without_limits()).await);
    stream::iter(making).buffer_unordered(UNACKNOWLEDGED_MAX).try_collect::<Vec<_>>().await?;

    let alone = measure_other_waits(venue, &others, crowd).await?;
    let (published, ended) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let beside = tokio::select! {
        beside = measure_other_waits(venue, &others, crowd) => beside?,
        Err(error) = submit_backlog(venue, &one, crowd, &published, &ended) => return Err(error),
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

fn task(owner: &Owner, id: &str, inbox: &str) -> BusMessage {
    BusMessage {
        to: MessageAddress::In { owner: owner.clone(), agent: agent(), kind: InboundKind::Task },
        id: Some(id.to_owned()),
        body: json!({"input": {"id": id}, "replyTo": inbox}),
        trace: None,
    }
}

/// Submits the owners' tasks at an even rate, whatever their delay, and waits for all of them.
async fn measure_other_waits(
    venue: &Arc<Venue>,
    others: &[Owner],
    crowd: FairnessLoad,
) -> Result<TaskWaits, BenchError> {
    let run = crate::venue::ingress::fresh_id();
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
            let (id, before, after) = published.map_err(|e| BenchError::TimedOut(e.to_string()))??;
            times.push(after.duration_since(before));
            taken.insert(id, after);
        }
        Ok::<_, BenchError>((taken, times))
    };
    let receiving = async {
        let mut ended = Vec::with_capacity(tasks);
        while ended.len() < tasks {
            let next = tokio::time::timeout(STALL_LIMIT, completions.next()).await;
            let Ok(Some(body)) = next else {
                let ended = ended.len();
                return Err(BenchError::TimedOut(format!(
                    "{ended} of {tasks} tasks ended, then none for {STALL_LIMIT:?}"
                )));
            };
            if let Ok(completion) = serde_json::from_slice::<Completion>(&body) {
                ended.push((completion.id.to_string(), Instant::now()));
            }
        }
        Ok(ended)
    };
    let ((taken, times), ended) = tokio::try_join!(publishing, receiving)?;
    let wait = |(id, at): &(String, Instant)| Some(at.duration_since(*taken.get(id)?).saturating_sub(crowd.model));
    let wait = Percentiles::from_times(ended.iter().filter_map(wait).collect());
    Ok(TaskWaits { publish: Percentiles::from_times(times), wait })
}

/// Submits the one owner's tasks as fast as the queue accepts them, and counts those that end. Returns only an error.
async fn submit_backlog(
    venue: &Arc<Venue>,
    one: &Owner,
    crowd: FairnessLoad,
    published: &AtomicUsize,
    ended: &AtomicUsize,
) -> Result<(), BenchError> {
    let run = crate::venue::ingress::fresh_id();
    let inbox = format!("_INBOX.bench.{run}");
    let mut completions = venue.bus.listen(&LiveSubject::Reply(inbox.clone())).await?;
    let publishing = stream::iter(0..crowd.backlog)
        .map(|n| task(one, &format!("{run}-{n}"), &inbox))
        .map(async |message| venue.bus.publish(&message).await)
        .buffer_unordered(UNACKNOWLEDGED_MAX)
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
