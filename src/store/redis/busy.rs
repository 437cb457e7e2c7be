//! How many sessions wait for a turn or run one, a figure for the choice of the number of workers.

use super::codec::AnswerParts;
use super::connection::Pool;
use super::keyspace::Keyspace;
use crate::domain::ids::Owner;
use crate::store::StoreError;
use redis::{Cmd, Value};

/// Most owners counted per shard: with more, it is clear that more workers are needed.
const OWNERS_PER_SHARD: isize = 1_000;
/// Commands sent in one pipeline.
const AT_ONCE: usize = 256;

/// Implements [`crate::store::Inspect::busy_sessions`]. Each owner is counted at its own moment.
pub(super) async fn count_sessions(pool: &Pool, keys: &Keyspace) -> Result<u64, StoreError> {
    let due = |shard| key_cmd("ZRANGE", &keys.due(shard)).arg(0).arg(OWNERS_PER_SHARD - 1).clone();
    let mut bases = Vec::new();
    for mut owners in run_all(pool, keys.shards().iter().map(due).collect()).await? {
        while !owners.is_empty() {
            // An invalid token keeps no other owner from being counted; the audit names it.
            bases.extend(Owner::from_token(&owners.text()?).ok().map(|owner| keys.owner(&owner)));
        }
    }
    let agents = bases.iter().map(|base| key_cmd("SMEMBERS", &format!("{base}:waiting"))).collect();
    let mut counts: Vec<Cmd> = bases.iter().map(|base| key_cmd("ZCARD", &format!("{base}:due"))).collect();
    for (base, mut waiting) in bases.iter().zip(run_all(pool, agents).await?) {
        while !waiting.is_empty() {
            counts.push(key_cmd("ZCARD", &format!("{base}:waiting:{}", waiting.text()?)));
        }
    }
    let mut all = 0;
    for mut count in run_all(pool, counts).await? {
        all += count.number()?;
    }
    Ok(all)
}

fn key_cmd(name: &str, key: &str) -> Cmd {
    let mut cmd = redis::cmd(name);
    cmd.arg(key);
    cmd
}

async fn run_all(pool: &Pool, cmds: Vec<Cmd>) -> Result<Vec<AnswerParts>, StoreError> {
    let mut answers = Vec::with_capacity(cmds.len());
    for some in cmds.chunks(AT_ONCE) {
        for answer in pool.run_each(some).await {
            let parts = match answer? {
                Value::Array(list) | Value::Set(list) => Value::Array(list),
                one => Value::Array(vec![one]),
            };
            answers.push(AnswerParts::new(pool.store(), parts)?);
        }
    }
    Ok(answers)
}
