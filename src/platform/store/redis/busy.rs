//! How many sessions wait for a turn or run one, a figure for the choice of the number of workers.

use super::codec::AnswerParts;
use super::connection::Pool;
use super::keyspace::Keyspace;
use crate::domain::gate::{Gate, GateStatus};
use crate::domain::ids::Owner;
use crate::domain::time::Millis;
use crate::store::{StoreError, keys};
use redis::{Cmd, Value};

/// Most owners counted per shard: with more, it is clear that more workers are needed.
const OWNERS_PER_SHARD: isize = 1_000;
/// Commands sent in one pipeline.
const AT_ONCE: usize = 256;

/// Implements [`crate::store::StoreInspection::busy_sessions`]. Each owner is counted at its own moment.
pub(super) async fn count_sessions(pool: &Pool, space: &Keyspace, until: Millis) -> Result<u64, StoreError> {
    let due = |shard| key_cmd("ZRANGE", &space.due(shard)).arg(0).arg(OWNERS_PER_SHARD - 1).clone();
    let mut bases = Vec::new();
    for mut owners in run_all(pool, space.shards().iter().map(due).collect()).await? {
        while !owners.is_empty() {
            // An invalid token keeps no other owner from being counted; the audit names it.
            bases.extend(Owner::from_token(&owners.text()?).ok().map(|owner| space.owner(&owner)));
        }
    }
    let agents = bases.iter().map(|base| key_cmd("SMEMBERS", &format!("{base}:waiting"))).collect();
    let due = |base| key_cmd("ZCOUNT", &format!("{base}:due")).arg("-inf").arg(until.0).clone();
    let mut counts: Vec<Cmd> = bases.iter().map(due).collect();
    let (mut queues, mut gates) = (Vec::new(), Vec::new());
    for (base, mut waiting) in bases.iter().zip(run_all(pool, agents).await?) {
        while !waiting.is_empty() {
            let agent = waiting.text()?;
            queues.push(key_cmd("ZCARD", &format!("{base}:waiting:{agent}")));
            gates.push(key_cmd("HGET", &format!("{base}:doc")).arg(keys::agent_gate_of(&agent)).clone());
        }
    }
    for (queue, gate) in queues.into_iter().zip(run_all(pool, gates).await?) {
        let docs = gate.stored_docs(1)?;
        let gate = docs.first().and_then(|doc| Gate::decode(doc.value.as_ref()?));
        // No worker runs the sessions of a suspended agent.
        if gate.is_none_or(|gate| gate.status != GateStatus::Suspended) {
            counts.push(queue);
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
