//! Answers to an admission: what became of the event, and the lease request with its grant.

use super::args::Args;
use super::codec::AnswerParts;
use super::millis::millis;
use super::usage;
use crate::domain::dead::Attempt;
use crate::domain::job::{ErrorCode, JobResult};
use crate::domain::limits::ATTEMPTS_KEPT;
use crate::domain::time::Millis;
use crate::store::{Admit, Grant, Intake, Lease, LeaseOutcome, LeaseRequest, Refusal, StoreError};

/// Reads what became of the event.
pub fn read_intake(part: &mut AnswerParts) -> Result<Intake, StoreError> {
    Ok(match part.text()?.as_str() {
        "nothing" => Intake::Nothing,
        "new" => Intake::New,
        "duplicate" => Intake::Duplicate,
        "conflict" => Intake::Conflict,
        "unknown" => Intake::Refused(Refusal::UnknownAgent),
        "terminated" => Intake::Refused(Refusal::Terminated),
        "busy" => Intake::Refused(Refusal::Busy),
        "replaces" => Intake::ReplaceRunning,
        "full" => {
            let limit = u32::try_from(part.number()?).unwrap_or(u32::MAX);
            Intake::Refused(Refusal::MailboxFull { limit })
        }
        "over" => Intake::Refused(Refusal::Quota(usage::read_over(part)?)),
        other => return Err(part.unexpected_error("an intake", other)),
    })
}

/// Adds a lease request, or that there is none.
pub fn add_lease_request(args: &mut Args, request: Option<&LeaseRequest>) {
    let Some(request) = request else {
        args.flag(false);
        return;
    };
    // The function fills in the verdict.
    let dead = serde_json::to_vec(&JobResult::failure(ErrorCode::Dead, "{verdict}")).unwrap_or_default();
    args.flag(true)
        .bytes(&request.token)
        .bytes(&request.worker)
        .number(millis(request.ttl))
        .number(u64::from(request.mailbox_limit.max(1)))
        .number(u64::from(request.crash_limit))
        .bytes(dead)
        .number(ATTEMPTS_KEPT as u64)
        .number(u64::from(request.owner_cap));
}

/// An answer that can't be decoded, and the lease that it grants.
pub struct UnreadableGrant {
    /// The lease, held until it is released.
    pub lease: Option<Box<Lease>>,
    /// What is wrong with the answer.
    pub error: StoreError,
}

impl From<StoreError> for UnreadableGrant {
    fn from(error: StoreError) -> Self {
        Self { lease: None, error }
    }
}

/// Reads what became of the lease request.
pub fn read_outcome(part: &mut AnswerParts, request: &Admit) -> Result<LeaseOutcome, UnreadableGrant> {
    Ok(match part.text()?.as_str() {
        "none" => LeaseOutcome::NotAsked,
        "lease" => LeaseOutcome::Busy(part.millis()?),
        "empty" => LeaseOutcome::Empty,
        "waiting" => LeaseOutcome::Waiting,
        "suspended" => LeaseOutcome::Suspended,
        "backoff" => LeaseOutcome::Backoff(part.millis()?),
        "run" => {
            let epoch = part.number()?;
            let lease = Lease { owner: request.owner.clone(), session: request.session.clone(), epoch };
            let granted =
                grant(part, &lease).map_err(|error| UnreadableGrant { lease: Some(Box::new(lease)), error })?;
            LeaseOutcome::Run(Box::new(granted))
        }
        other => return Err(part.unexpected_error("a lease outcome", other).into()),
    })
}

fn grant(part: &mut AnswerParts, lease: &Lease) -> Result<Grant, StoreError> {
    let (until, versions, version) = (part.millis()?, part.versions()?, part.number()?);
    let last = read_last_commit(part)?;
    let (state, checkpoint) = (part.optional()?, part.optional()?);
    let mut calls = part.read_nested()?.read_pairs(|pair| Ok((pair.parse_next()?, pair.bytes()?)))?;
    calls.sort_by_key(|(index, _): &(u32, _)| *index);
    Ok(Grant {
        lease: lease.clone(),
        until,
        versions,
        version,
        last_commit: last,
        state,
        checkpoint,
        calls,
        mailbox: part.mailbox()?,
        arrivals: part.number()?,
        attempts: read_attempts(part)?,
    })
}

/// Reads `epoch turn` of the last commit, or an empty text before the first.
fn read_last_commit(part: &mut AnswerParts) -> Result<Option<(u64, u64)>, StoreError> {
    let text = part.text()?;
    let pair = |(epoch, turn): (&str, &str)| Some((epoch.parse().ok()?, turn.parse().ok()?));
    match text.split_once(' ').and_then(pair) {
        None if !text.is_empty() => Err(part.unexpected_error("epoch and turn of a commit", &text)),
        last => Ok(last),
    }
}

/// Reads lines of `epoch turn lapsed job worker`; the worker's name may have blanks.
fn read_attempts(part: &mut AnswerParts) -> Result<Vec<Attempt>, StoreError> {
    let text = part.text()?;
    let attempt = |line: &str| {
        let mut words = line.splitn(5, ' ');
        let mut number = || words.next()?.parse().ok();
        let (epoch, turn, lapsed) = (number()?, number()?, Millis(number()?));
        let job = match words.next()? {
            "-" => None,
            job => Some(job.parse().ok()?),
        };
        Some(Attempt { worker: words.next()?.to_owned(), epoch, turn, lapsed, job })
    };
    text.lines().map(|line| attempt(line).ok_or_else(|| part.unexpected_error("a crash", line))).collect()
}
