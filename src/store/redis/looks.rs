//! Which owners this worker looks at: its shards, and what is due in them.

use super::args::Args;
use super::codec::AnswerParts;
use super::connection::Pool;
use super::keyspace::Keyspace;
use super::millis;
use crate::domain::shard::{Shard, Shards};
use crate::domain::time::Millis;
use crate::store::{DueOwners, StoreError};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

/// A worker that is silent for so long is gone, however seldom it sweeps.
const LAPSE: Duration = Duration::from_secs(30);

/// The share of a worker, which stays the same until workers come or go.
#[derive(Default)]
pub struct Looks(Mutex<Share>);

#[derive(Default)]
struct Share {
    live: Vec<String>,
    worker: String,
    shards: Arc<[Shard]>,
}

impl Looks {
    fn share(&self, shards: Shards, mut live: Vec<String>, worker: &str) -> Arc<[Shard]> {
        live.sort_unstable();
        let mut share = self.0.lock();
        if share.live != live || share.worker != worker {
            let found = shards.share(&live, worker).into();
            *share = Share { live, worker: worker.to_owned(), shards: found };
        }
        Arc::clone(&share.shards)
    }

    /// [`crate::store::Store::due`]. `beat` has the first arguments of its function.
    pub async fn due(
        &self,
        pool: &Pool,
        keys: &Keyspace,
        mut beat: Args,
        (worker, horizon, limit): (&str, Duration, u32),
    ) -> Result<DueOwners, StoreError> {
        beat.bytes(worker).number(millis((horizon + horizon / 2).min(LAPSE)));
        let mut answer = AnswerParts::new(pool.store(), pool.run(beat.cmd(), beat.again()).await?)?;
        let now = Millis(answer.parsed()?);
        let mut live = answer.nested()?;
        let mut workers = Vec::new();
        while !live.is_empty() {
            workers.push(live.text()?);
        }
        let shards = self.share(keys.shards(), workers, worker);
        let until = now.plus(horizon);
        let ask = |shard: &Shard| {
            let mut cmd = redis::cmd("ZRANGEBYSCORE");
            cmd.arg(keys.due(*shard)).arg("-inf").arg(until.0).arg("WITHSCORES").arg("LIMIT").arg(0).arg(limit);
            cmd
        };
        let asked: Vec<_> = shards.iter().map(ask).collect();
        let mut due = DueOwners::default();
        let mut answers = AnswerParts::new(pool.store(), pool.run_all(&asked).await?)?;
        while !answers.is_empty() {
            let (mut answer, mut overdue) = (answers.nested()?, 0);
            while !answer.is_empty() {
                let (owner, at) = (answer.owner()?, Millis(answer.parsed()?));
                overdue += u32::from(at <= now);
                due.owners.push((owner, at.since(now)));
            }
            due.more |= overdue == limit;
        }
        due.owners.sort_by_key(|(_, wait)| *wait);
        Ok(due)
    }
}
