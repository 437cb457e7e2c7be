//! The usage of owners, from the functions or from their keys.

use super::codec::AnswerParts;
use super::connection::Pool;
use super::keyspace::{Keyspace, lex_range};
use crate::domain::ids::Owner;
use crate::domain::quota::{Counts, Over, Own, QuotaKind, QuotaUsage};
use crate::store::{Recount, Standing, StoreError, keys};

fn usage(part: &mut AnswerParts) -> Result<QuotaUsage, StoreError> {
    Ok(Counts { documents: part.number()?, bytes: part.number()?, sessions: part.number()?, jobs: part.number()? })
}

/// Reads the answer of the function `usage`.
pub fn standing(mut answer: AnswerParts) -> Result<Standing, StoreError> {
    let used = usage(&mut answer.nested()?)?;
    let Some(line) = answer.optional()? else { return Ok(Standing { used, own: Own::default() }) };
    let own = Own::decode(&line).ok_or_else(|| answer.unexpected(keys::QUOTA, &String::from_utf8_lossy(&line)))?;
    Ok(Standing { used, own })
}

/// Implements [`crate::store::Accounts::kept`]: what `usage` in `functions/prelude/kept.lua` computes, by plain
/// commands, since a call of a function costs ten times as much.
pub async fn of_each(pool: &Pool, space: &Keyspace, owners: &[Owner]) -> Result<Vec<QuotaUsage>, StoreError> {
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
        let mut counts = parts.nested()?;
        let (bytes, tally) = (counts.optional()?, counts.optional()?);
        let bytes = bytes.or(tally).map_or(Ok(0), |count| parts.parse::<i64>(&count))?;
        let bytes = u64::try_from(bytes).unwrap_or_default();
        found.push(Counts { documents, bytes, sessions: parts.number()?, jobs: parts.number()? });
    }
    Ok(found)
}

/// Reads the answer of the function `recount`.
pub fn recount(mut answer: AnswerParts) -> Result<Recount, StoreError> {
    match answer.text()?.as_str() {
        "more" => Ok(Recount::More),
        "done" => Ok(Recount::Done { was: usage(&mut answer.nested()?)?, is: usage(&mut answer.nested()?)? }),
        other => Err(answer.unexpected("`more` or `done`", other)),
    }
}

/// Reads the answer of a function that reached a quota.
pub fn over(answer: &mut AnswerParts) -> Result<Over, StoreError> {
    let number = answer.number()?;
    let kind = usize::try_from(number).ok().and_then(|at| QuotaKind::ALL.get(at.checked_sub(1)?).copied());
    let kind = kind.ok_or_else(|| answer.unexpected("the number of a quota", &number.to_string()))?;
    Ok(Over { kind, used: answer.number()?, adds: answer.number()?, allowed: answer.number()? })
}
