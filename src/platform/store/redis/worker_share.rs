//! The owners that this worker sweeps: its shards, and what is due in them.

use super::args::Args;
use super::codec::AnswerParts;
use super::connection::Pool;
use super::keyspace::Keyspace;
use super::millis::millis;
use crate::domain::ids::Owner;
use crate::domain::shard::{Shard, Shards, Share};
use crate::domain::time::Millis;
use crate::store::{DueOwners, StoreError};
use parking_lot::Mutex;
use std::time::Duration;

/// Longest time without a report after which a worker counts as gone, however seldom it sweeps.
const LAPSE: Duration = Duration::from_secs(30);

/// The share of a worker, which stays the same until workers come or go.
#[derive(Default)]
pub struct WorkerShare(Mutex<KnownWorkers>);

#[derive(Default)]
struct KnownWorkers {
    live: Vec<String>,
    worker: String,
    share: Share,
}

/// The owners that a worker asks for in one sweep.
pub struct DueQuery<'w> {
    /// Time of the venue; the server's time counts where the server answers.
    pub now: Millis,
    /// Name of the worker.
    pub worker: &'w str,
    /// Time from now within which an owner must be due.
    pub horizon: Duration,
    /// Most owners of a shard.
    pub limit: u32,
}

impl WorkerShare {
    /// Returns the worker's share among live workers; `None`: they aren't known, and the last known ones count.
    fn share(&self, shards: Shards, live: Option<Vec<String>>, worker: &str) -> Share {
        let mut known = self.0.lock();
        let mut live = live.unwrap_or_else(|| known.live.clone());
        live.sort_unstable();
        if known.live != live || known.worker != worker {
            let share = Share::new(shards, &live, worker);
            *known = KnownWorkers { live, worker: worker.to_owned(), share };
        }
        known.share.clone()
    }

    /// Returns the shards that this worker sweeps.
    pub fn shards(&self) -> Vec<Shard> {
        self.0.lock().share.shards().to_vec()
    }

    /// Implements [`crate::store::Store::due_owners`]; `beat` has the first arguments of its function.
    pub async fn due(
        &self,
        pool: &Pool,
        keys: &Keyspace,
        beat: Args,
        query: DueQuery<'_>,
    ) -> Result<DueOwners, StoreError> {
        let DueQuery { now, worker, horizon, limit } = query;
        let (now, live) = match report_alive(pool, beat, worker, horizon).await {
            Ok((now, live)) => (now, Some(live)),
            // The node of a cluster with the list of workers is away; the shards of the other nodes are read.
            Err(error) if pool.is_cluster() && error.is_transient() => {
                tracing::debug!(%error, "which workers live isn't known");
                (now, None)
            }
            Err(error) => return Err(error),
        };
        let share = self.share(keys.shards(), live, worker);
        let until = now.plus(horizon);
        let ask = |shard: &Shard| {
            let mut cmd = redis::cmd("ZRANGEBYSCORE");
            cmd.arg(keys.due(*shard)).arg("-inf").arg(until.0).arg("WITHSCORES").arg("LIMIT").arg(0).arg(limit);
            cmd
        };
        let asked: Vec<_> = share.shards().iter().map(ask).collect();
        let mut due = DueOwners::default();
        for (shard, answer) in share.shards().iter().zip(pool.run_each(&asked).await) {
            let answer = match answer {
                Err(error) if pool.is_cluster() && error.is_transient() => {
                    tracing::debug!(%error, %shard, "not swept; it comes again");
                    continue;
                }
                answer => answer?,
            };
            let (mut answer, mut overdue) = (AnswerParts::new(pool.store(), answer)?, 0);
            while !answer.is_empty() {
                let (owner, at) = (answer.text()?, Millis(answer.parse_next()?));
                // An invalid owner keeps no other from being swept.
                let Ok(owner) = Owner::from_token(&owner) else { continue };
                overdue += u32::from(at <= now);
                due.owners.push((owner, at.elapsed_since(now)));
            }
            due.more |= overdue == limit;
        }
        due.owners.sort_by_key(|(_, wait)| *wait);
        due.share = share;
        Ok(due)
    }
}

/// Reports this worker as alive; returns the server's time and the live workers.
async fn report_alive(
    pool: &Pool,
    mut beat: Args,
    worker: &str,
    horizon: Duration,
) -> Result<(Millis, Vec<String>), StoreError> {
    beat.bytes(worker).number(millis((horizon + horizon / 2).min(LAPSE)));
    let mut answer = AnswerParts::new(pool.store(), pool.run_now(beat.cmd()).await?)?;
    let now = Millis(answer.parse_next()?);
    let (mut live, mut workers) = (answer.read_nested()?, Vec::new());
    while !live.is_empty() {
        workers.push(live.text()?);
    }
    Ok((now, workers))
}
