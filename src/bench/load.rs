//! Load of tasks: agents that answer at once, tasks for them, and the times of their completions.

use super::{BenchError, BenchPlan, user};
use crate::bus::{Bus, LiveSubject};
use crate::domain::authority::Authority;
use crate::domain::event::Completion;
use crate::domain::ids::{AgentId, Owner};
use crate::domain::job::JobStatus;
use crate::domain::message::{BusMessage, InboundKind, MessageAddress};
use crate::venue::Venue;
use crate::venue::agents;
use futures::{StreamExt, TryStreamExt, stream};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Publishes that are unacknowledged at the same time.
const UNACKNOWLEDGED_MAX: usize = 256;

/// Time without a completion after which the run fails.
const STALL_LIMIT: Duration = Duration::from_mins(1);

/// Returns the name of the `n`th agent.
pub(super) fn agent(n: usize) -> AgentId {
    AgentId::new(format!("bench-{n}")).expect("a legal id")
}

/// Returns the owner of the `n`th agent.
pub(super) fn nth_owner(owner: &Owner, owners: usize, n: usize) -> Owner {
    if owners < 2 { owner.clone() } else { user(owner, &format!("bench-{}", n % owners)) }
}

/// Creates the agents of a plan.
pub(super) async fn agents(venue: &Venue, owner: &Owner, plan: &BenchPlan) -> Result<(), BenchError> {
    let config = plan.shape.agent(plan.tasks)?;
    for n in 0..plan.agents {
        agents::apply(
            venue,
            &nth_owner(owner, plan.owners, n),
            &agent(n),
            &config,
            false,
            &Authority::without_limits(),
        )
        .await?;
    }
    Ok(())
}

/// Publishes tasks through the queue and waits for all completions, one task at a time if `one_by_one`. Returns the
/// time of each from publish to completion.
pub(super) async fn run(
    venue: &Arc<Venue>,
    owner: &Owner,
    run: &str,
    plan: &BenchPlan,
    one_by_one: bool,
) -> Result<Vec<Duration>, BenchError> {
    let &BenchPlan { tasks, agents, owners, shape, .. } = plan;
    let inbox = format!("_INBOX.bench.{run}");
    let mut completions = venue.bus.listen(&LiveSubject::Reply(inbox.clone())).await?;
    let mut started: HashMap<String, Instant> = HashMap::with_capacity(tasks);
    let message = |n: usize| BusMessage {
        to: MessageAddress::In {
            owner: nth_owner(owner, owners, n % agents),
            agent: agent(n % agents),
            kind: InboundKind::Task,
        },
        id: Some(format!("{run}-{n}")),
        body: shape.submission(n, &format!("{run}-{n}"), &inbox),
        trace: None,
    };
    let mut times = Vec::with_capacity(tasks);
    if one_by_one {
        for n in 0..tasks {
            let at = Instant::now();
            venue.bus.publish(&message(n)).await?;
            started.insert(format!("{run}-{n}"), at);
            receive(&mut completions, &mut started, &mut times, n + 1).await?;
        }
        return Ok(times);
    }
    let mut arrived: Vec<(String, Instant)> = Vec::with_capacity(tasks);
    let receiving = async {
        while arrived.len() < tasks {
            let next = tokio::time::timeout(STALL_LIMIT, completions.next()).await;
            let Ok(Some(body)) = next else {
                return Err(BenchError::TimedOut(format!(
                    "{} of {tasks} tasks completed, then none for {STALL_LIMIT:?}",
                    arrived.len()
                )));
            };
            if let Ok(completion) = serde_json::from_slice::<Completion>(&body) {
                let at = Instant::now();
                arrived.push((complete(completion)?, at));
            }
        }
        Ok(())
    };
    let (published, received) = tokio::join!(publish_all(&*venue.bus, tasks, message), receiving);
    received?;
    started.extend(published?.into_iter().map(|(n, at)| (format!("{run}-{n}"), at)));
    times.extend(arrived.iter().filter_map(|(id, at)| Some(at.duration_since(*started.get(id)?))));
    Ok(times)
}

/// Publishes messages, many at a time. Returns the number of each with the time at which it was sent.
async fn publish_all(
    bus: &dyn Bus,
    count: usize,
    message: impl Fn(usize) -> BusMessage,
) -> Result<Vec<(usize, Instant)>, BenchError> {
    let publish = |n| {
        let message = message(n);
        async move {
            let at = Instant::now();
            bus.publish(&message).await.map(|()| (n, at))
        }
    };
    let published = stream::iter(0..count).map(publish).buffer_unordered(UNACKNOWLEDGED_MAX);
    Ok(published.try_collect().await?)
}

async fn receive(
    completions: &mut (impl futures::Stream<Item = bytes::Bytes> + Unpin),
    started: &mut HashMap<String, Instant>,
    times: &mut Vec<Duration>,
    until: usize,
) -> Result<(), BenchError> {
    while times.len() < until {
        let next = tokio::time::timeout(STALL_LIMIT, completions.next()).await;
        let Ok(Some(body)) = next else {
            return Err(BenchError::TimedOut(format!("a task has not completed within {STALL_LIMIT:?}")));
        };
        if let Ok(completion) = serde_json::from_slice::<Completion>(&body)
            && let Some(at) = started.remove(completion.id.as_str())
        {
            times.push(at.elapsed());
            complete(completion)?;
        }
    }
    Ok(())
}

/// Returns the event of a task that completed; other ends say nothing about how fast tasks are.
fn complete(Completion { id, result, .. }: Completion) -> Result<String, BenchError> {
    if result.status == JobStatus::Complete {
        return Ok(id.to_string());
    }
    let error = result.error.unwrap_or_default();
    Err(BenchError::TimedOut(format!("task `{id}` is {}: {error}", result.status.as_str())))
}
