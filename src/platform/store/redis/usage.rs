//! The usage of owners, from the functions or from their keys.

use super::codec::AnswerParts;
use super::connection::Pool;
use super::keyspace::{Keyspace, lex_range};
use crate::domain::ids::Owner;
use crate::domain::quota::{OwnLimits, QuotaCounts, QuotaExceeded, QuotaKind, QuotaUsage};
use crate::store::{OwnerUsage, Recount, StoreError, keys};

fn usage(part: &mut AnswerParts) -> Result<QuotaUsage, StoreError> {
    Ok(QuotaCounts { documents: part.number()?, bytes: part.number()?, sessions: part.number()?, jobs: part.number()? })
}

/// Reads the answer of the function `usage`.
pub fn read_usage(mut answer: AnswerParts) -> Result<OwnerUsage, StoreError> {
    let used = usage(&mut answer.read_nested()?)?;
    let Some(line) = answer.optional()? else { return Ok(OwnerUsage { used, operator_quota: OwnLimits::default() }) };
    let own = OwnLimits::decode(&line)
        .ok_or_else(|| answer.unexpected_error(keys::QUOTA, &String::from_utf8_lossy(&line)))?;
    Ok(OwnerUsage { used, operator_quota: own })
}

/// Implements [`crate::store::Accounts::usages`]: what `usage` in `functions/prelude/kept.lua` computes, by plain
/// commands, since a call of a function costs ten times as much.
pub async fn usages(pool: &Pool, space: &Keyspace, owners: &[Owner]) -> Result<Vec<QuotaUsage>, StoreError> {
    let command = |name: &str, key: String| {
        let mut cmd = redis::cmd(name);
        cmd.arg(key);
        cmd
    };
    let (from, to) = lex_range(keys::JOB_LIST, None, false);
    let ask = |owner: &Owner| {
        let base = space.owner(owner);
        let (documents, mut bytes) = (format!("{base}:keys"), command("HMGET", format!("{base}:count")));
        bytes.arg("bytes").arg("tally");
        let mut jobs = command("ZLEXCOUNT", documents.clone());
        jobs.arg(&from).arg(&to);
        [command("ZCARD", documents), bytes, command("ZCARD", format!("{base}:sessions")), jobs]
    };
    let asked: Vec<_> = owners.iter().flat_map(ask).collect();
    let answers = pool.run_each(&asked).await.into_iter().collect::<Result<Vec<_>, _>>()?;
    let mut parts = AnswerParts::new(pool.store(), redis::Value::Array(answers))?;
    let mut found = Vec::with_capacity(owners.len());
    while !parts.is_empty() {
        let documents = parts.number()?;
        let mut counts = parts.read_nested()?;
        let (bytes, tally) = (counts.optional()?, counts.optional()?);
        let bytes = bytes.or(tally).map_or(Ok(0), |count| parts.parse::<i64>(&count))?;
        let bytes = u64::try_from(bytes).unwrap_or_default();
        found.push(QuotaCounts { documents, bytes, sessions: parts.number()?, jobs: parts.number()? });
    }
    Ok(found)
}

/// Reads the answer of the function `recount`.
pub fn read_recount(mut answer: AnswerParts) -> Result<Recount, StoreError> {
    match answer.text()?.as_str() {
        "more" => Ok(Recount::More),
        "done" => Ok(Recount::Done {
            stored: usage(&mut answer.read_nested()?)?,
            counted: usage(&mut answer.read_nested()?)?,
        }),
        other => Err(answer.unexpected_error("`more` or `done`", other)),
    }
}

/// Reads the answer of a function that reached a quota.
pub fn read_over(answer: &mut AnswerParts) -> Result<QuotaExceeded, StoreError> {
    let number = answer.number()?;
    let kind = usize::try_from(number).ok().and_then(|at| QuotaKind::ALL.get(at.checked_sub(1)?).copied());
    let kind = kind.ok_or_else(|| answer.unexpected_error("the number of a quota", &number.to_string()))?;
    Ok(QuotaExceeded { kind, used: answer.number()?, adds: answer.number()?, allowed: answer.number()? })
}
