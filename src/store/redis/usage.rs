//! What an owner keeps, as the functions say it.

use super::codec::AnswerParts;
use crate::domain::quota::{Counts, Over, Own, QuotaKind, QuotaUsage};
use crate::store::{Recount, Standing, StoreError, keys};

fn usage(part: &mut AnswerParts) -> Result<QuotaUsage, StoreError> {
    Ok(Counts { documents: part.number()?, bytes: part.number()?, sessions: part.number()?, jobs: part.number()? })
}

/// Answer of the function `usage`.
pub fn standing(mut answer: AnswerParts) -> Result<Standing, StoreError> {
    let used = usage(&mut answer.nested()?)?;
    let Some(line) = answer.optional()? else { return Ok(Standing { used, own: Own::default() }) };
    let own = Own::decode(&line).ok_or_else(|| answer.unexpected(keys::QUOTA, &String::from_utf8_lossy(&line)))?;
    Ok(Standing { used, own })
}

/// Answer of the function `recount`.
pub fn recount(mut answer: AnswerParts) -> Result<Recount, StoreError> {
    match answer.text()?.as_str() {
        "more" => Ok(Recount::More),
        "done" => Ok(Recount::Done { was: usage(&mut answer.nested()?)?, is: usage(&mut answer.nested()?)? }),
        other => Err(answer.unexpected("`more` or `done`", other)),
    }
}

/// Answer of a function that found no room for something.
pub fn over(answer: &mut AnswerParts) -> Result<Over, StoreError> {
    let number = answer.number()?;
    let kind = usize::try_from(number).ok().and_then(|at| QuotaKind::ALL.get(at.checked_sub(1)?).copied());
    let kind = kind.ok_or_else(|| answer.unexpected("the number of a quota", &number.to_string()))?;
    Ok(Over { kind, used: answer.number()?, adds: answer.number()?, allowed: answer.number()? })
}
