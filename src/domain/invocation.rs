//! Operations that callers have invoked: each is a job, and a worker runs it.
//!
//! ```text
//! waits ──take──▶ runs ──▶ ended
//!   ▲              │ its worker is gone
//!   └── may be repeated ──┴── may not: OUTCOME_UNKNOWN
//! ```
//!
//! Before the operation begins, the worker that takes it is recorded. The record tells that it was begun, so that an
//! operation which must not be repeated never is.

use crate::a2a::task::RemoteTask;
use crate::authority::Authority;
use crate::authority::envelope::Envelope;
use crate::authority::trail::Trail;
use crate::call::PublishedVersion;
use crate::canonical::canonical;
use crate::ids::{AgentId, EventId, JobId, Owner, SessionId, SessionKey, hmac_hex};
use crate::job::{ErrorCode, JobHead, JobResult};
use crate::mcp::pending::PendingToolCall;
use crate::principal::Principal;
use crate::priority::Priority;
use crate::time::Millis;
use crate::unknown_fields::UnknownFields;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::time::Duration;

/// Agent and session in the head of a job that no agent serves.
pub const NO_AGENT: &str = "_venue";

/// Prefix of the session's name in the head of a job without a session: a wake for it means the job.
const PREFIX: &str = "op-";

/// Returns a mark of an operation's input, with the parts that only the operation may see: equal inputs have equal
/// marks, and without the venue's key a mark reveals nothing.
pub fn input_mark(venue_key: &[u8], owner: &Owner, op: &str, input: &Value) -> String {
    hmac_hex(venue_key, &canonical(&json!(["hidden", owner, op, input])))
}

/// Record of an invoked operation until it has ended. The head of its job holds its path and its input.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InvokedOperation {
    /// Id of the job.
    pub job: JobId,
    /// Idempotency key of the run: a second run under the same key has no further effect.
    pub key: EventId,
    /// Caller that invoked it.
    pub asker: OperationCaller,
    /// Time of the next look at it, by which the index is sorted.
    pub due: Millis,
    /// Number of workers that have begun it.
    #[serde(default)]
    pub begun: u32,
    /// Claim of the worker that runs it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub taken: Option<OperationClaim>,
    /// Catalogue path of an operation that a worker has begun and that must not be repeated; it is needed when the job
    /// is deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub once_operation: Option<String>,
    /// The published operation that it runs, as the caller could name it; absent for compiled operations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub published: Option<PublishedVersion>,
    /// What is known of a task of an agent elsewhere, if the job stands for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote: Option<Box<RemoteTask>>,
    /// The call of another server's tool that the job stands for, if it stands for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call: Option<Box<PendingToolCall>>,
    /// Fields that a newer build wrote.
    #[serde(flatten)]
    pub kept: UnknownFields,
}

/// Caller of an operation with its authority at that time: the run may do no more.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct OperationCaller {
    /// Name for records.
    pub name: String,
    /// Whether the caller is an operator.
    #[serde(default)]
    pub operator: bool,
    /// Authority of the caller.
    #[serde(default)]
    pub authority: Authority,
    /// Envelope of the request that the caller acted for.
    #[serde(default)]
    pub envelope: Envelope,
    /// Principal to whom the caller's ids belong.
    #[serde(default)]
    pub principal: Principal,
    /// Owner that the caller's token names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_owner: Option<Owner>,
}

/// Claim of one worker to run an operation until a time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OperationClaim {
    /// Name of the worker.
    pub worker: String,
    /// Random text that tells this claim from every other.
    pub token: String,
    /// Expiry of the claim.
    pub until: Millis,
}

/// Next step for an invoked operation.
#[derive(Debug, Clone, PartialEq)]
pub enum InvokedStep {
    /// A worker has claimed it until this time.
    Later(Millis),
    /// A worker may take it.
    Take,
    /// It ends with this result.
    Over(JobResult),
}

impl InvokedOperation {
    /// Makes the record of an operation that no worker has begun.
    pub fn new(job: JobId, key: EventId, asker: OperationCaller, now: Millis) -> Self {
        Self {
            job,
            key,
            asker,
            due: now,
            begun: 0,
            taken: None,
            once_operation: None,
            published: None,
            remote: None,
            tool_call: None,
            kept: UnknownFields::default(),
        }
    }

    /// Returns the next step at `now`. `limit` is the number of workers that it may kill.
    pub fn next_step(&self, now: Millis, op: &str, may_be_repeated: bool, limit: u32) -> InvokedStep {
        match &self.taken {
            Some(taken) if now < taken.until => InvokedStep::Later(taken.until),
            Some(taken) if !may_be_repeated => InvokedStep::Over(unknown_outcome(op, &taken.worker)),
            Some(taken) if self.begun >= limit => {
                match self.goes_on_elsewhere() {
                    // One more worker only stops that.
                    true if self.begun == limit => InvokedStep::Take,
                    // The last of the workers may have sent the message.
                    _ if self.may_have_effect(false) => InvokedStep::Over(unknown_outcome(op, &taken.worker)),
                    _ => InvokedStep::Over(dead_end(op, self.begun)),
                }
            }
            Some(_) | None => InvokedStep::Take,
        }
    }

    /// Returns the end of an operation that was taken only to stop what goes on elsewhere, since `limit` workers died of it.
    pub fn end_if_only_stopped(&self, op: &str, limit: u32) -> Option<JobResult> {
        (self.begun > limit).then(|| dead_end(op, limit))
    }

    /// Whether another server may have done something of which nobody learns if the job ends now, without an answer.
    /// `is_cancelled`: the server has taken the cancellation of its task.
    pub fn may_have_effect(&self, is_cancelled: bool) -> bool {
        self.remote.as_ref().is_some_and(|remote| remote.may_have_effect(is_cancelled))
            || self.tool_call.as_ref().is_some_and(|call| call.may_have_effect(is_cancelled))
    }

    /// Whether a task elsewhere or a question to a person is to be stopped when the job ends.
    fn goes_on_elsewhere(&self) -> bool {
        self.tool_call.is_some() || self.remote.as_ref().is_some_and(|remote| remote.task.is_some())
    }

    /// Gives this worker the claim, for the time of `lease`.
    #[must_use]
    pub fn take(self, now: Millis, worker: &str, token: &str, lease: Duration) -> Self {
        let until = now.plus(lease);
        let by = OperationClaim { worker: worker.to_owned(), token: token.to_owned(), until };
        Self { due: until, begun: self.begun.saturating_add(1), taken: Some(by), ..self }
    }

    /// Renews the claim, for the time of `lease`.
    #[must_use]
    pub fn renew(self, now: Millis, lease: Duration) -> Self {
        let until = now.plus(lease);
        Self { due: until, taken: self.taken.map(|taken| OperationClaim { until, ..taken }), ..self }
    }

    /// Releases the claim until the next look at `due`. The worker that releases it survived, so it isn't counted.
    #[must_use]
    pub fn release(self, due: Millis) -> Self {
        Self { due, begun: self.begun.saturating_sub(1), taken: None, once_operation: None, ..self }
    }

    /// Moves the next look to `due`.
    #[must_use]
    pub fn postpone(self, due: Millis) -> Self {
        Self { due, ..self }
    }

    /// Whether the claim with this token is in force.
    pub fn is_claimed_by(&self, token: &str) -> bool {
        self.taken.as_ref().is_some_and(|taken| taken.token == token)
    }
}

/// Returns the result of an operation that so many workers have died of.
fn dead_end(op: &str, begun: u32) -> JobResult {
    JobResult::failure(ErrorCode::Dead, format!("`{op}` was begun by {begun} workers, and each of them died"))
}

/// Returns the result of an operation that was begun, must not be repeated, and whose outcome is unknown.
pub fn unknown_outcome(op: &str, worker: &str) -> JobResult {
    let text = format!(
        "outcome unknown: worker `{worker}` began `{op}` and did not end it; it may or may not have happened; \
         check before invoking it again"
    );
    JobResult::failure(ErrorCode::OutcomeUnknown, text)
}

/// Returns the session in the head of a job that no session serves.
pub fn session(job: &JobId) -> SessionKey {
    let agent = AgentId::new(NO_AGENT).expect("a legal id");
    SessionKey { agent, session: SessionId::new(format!("{PREFIX}{job}")).expect("hex digits are a legal id") }
}

/// Makes the head of a job that no session serves, so far in nobody's name.
pub fn job_head(id: JobId, event: EventId, op: &str, input: Value, created: Millis) -> JobHead {
    let SessionKey { agent, session } = session(&id);
    JobHead {
        id,
        event,
        op: Some(op.to_owned()),
        agent,
        session,
        caller: None,
        input,
        hidden: None,
        created,
        parent: None,
        reply_to: None,
        redrive_of: None,
        priority: Priority::Normal,
        principal: None,
        request: None,
        bound: None,
        ignored: Vec::new(),
        under: Trail::default(),
    }
}

/// Returns the job of a name that [`session`] made.
pub fn job_of_session(session: &SessionKey) -> Option<JobId> {
    let job = session.session.as_str().strip_prefix(PREFIX)?;
    JobId::new(job).ok().filter(|_| session.agent.as_str() == NO_AGENT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::a2a::card::{RemoteBinding, RemoteInterface};
    use crate::a2a::message::RemoteMessage;

    const T: Millis = Millis(1_000);
    const LEASE: Duration = Duration::from_millis(30);

    fn job() -> JobId {
        JobId::new(&"0f".repeat(16)).unwrap()
    }

    fn invoked() -> InvokedOperation {
        let asker = OperationCaller {
            name: "t/u".into(),
            operator: false,
            authority: Authority::without_limits(),
            envelope: Envelope::default(),
            principal: Principal::ANYBODY,
            token_owner: None,
        };
        InvokedOperation::new(job(), EventId::new("k").unwrap(), asker, T)
    }

    fn due_or_error(
        invoked: &InvokedOperation,
        now: u64,
        may_be_repeated: bool,
    ) -> Result<Option<Millis>, Option<ErrorCode>> {
        match invoked.next_step(Millis(now), "v/ops/x", may_be_repeated, 2) {
            InvokedStep::Later(until) => Ok(Some(until)),
            InvokedStep::Take => Ok(None),
            InvokedStep::Over(result) => Err(result.error_code),
        }
    }

    #[test]
    fn after_a_crash_only_repeatable_runs_are_repeated() {
        let once = invoked().take(T, "w1", "a", LEASE);
        let twice = once.clone().take(Millis(2_000), "w2", "b", LEASE);
        let (unknown, dead) = (Err(Some(ErrorCode::OutcomeUnknown)), Err(Some(ErrorCode::Dead)));
        for (invoked, now, repeatable, otherwise) in [
            (invoked(), 0, Ok(None), Ok(None)),
            (invoked(), 5_000, Ok(None), Ok(None)),
            (once.clone(), 1_029, Ok(Some(Millis(1_030))), Ok(Some(Millis(1_030)))),
            (once.clone(), 1_030, Ok(None), unknown),
            (once.clone().renew(Millis(1_020), LEASE), 1_049, Ok(Some(Millis(1_050))), Ok(Some(Millis(1_050)))),
            (once.clone().renew(Millis(1_020), LEASE), 1_050, Ok(None), unknown),
            (twice.clone(), 2_029, Ok(Some(Millis(2_030))), Ok(Some(Millis(2_030)))),
            (twice.clone(), 2_030, dead, unknown),
            (twice.release(Millis(2_010)), 2_010, Ok(None), Ok(None)),
        ] {
            assert_eq!(due_or_error(&invoked, now, true), repeatable, "{invoked:?} at {now}");
            assert_eq!(due_or_error(&invoked, now, false), otherwise, "{invoked:?} at {now}");
        }
        assert!(once.is_claimed_by("a") && !once.is_claimed_by("b") && !invoked().is_claimed_by("a"));
    }

    #[test]
    fn a_message_that_may_have_left_is_unknown_after_crashes() {
        let interface = RemoteInterface { url: "https://h/a".into(), binding: RemoteBinding::JsonRpc, tenant: None };
        let fresh = RemoteTask::new(interface, &RemoteMessage::default(), T);
        let sending = RemoteTask { sending: Some(T), ..fresh.clone() };
        let known = RemoteTask { task: Some("t".into()), ..sending.clone() };
        for (remote, code) in [(fresh, ErrorCode::Dead), (sending, ErrorCode::OutcomeUnknown), (known, ErrorCode::Dead)]
        {
            let begun = InvokedOperation { remote: Some(Box::new(remote)), ..invoked() };
            let once = begun.take(T, "w1", "a", LEASE);
            assert_eq!(due_or_error(&once, 2_000, true), Ok(None), "{code:?}");
            let twice = once.take(Millis(2_000), "w2", "b", LEASE);
            assert_eq!(twice.end_if_only_stopped("v/ops/x", 2), None);
            let has_task = twice.remote.as_ref().unwrap().task.is_some();
            let expected = if has_task { Ok(None) } else { Err(Some(code)) };
            assert_eq!(due_or_error(&twice, 3_000, true), expected, "{code:?}");
            let thrice = twice.take(Millis(3_000), "w3", "c", LEASE);
            assert!(thrice.end_if_only_stopped("v/ops/x", 2).is_some(), "the task is cancelled, and not asked for");
            let last = if has_task { ErrorCode::OutcomeUnknown } else { code };
            assert_eq!(due_or_error(&thrice, 4_000, true), Err(Some(last)), "who stops it may die, too");
        }
    }

    #[test]
    fn a_run_is_due_when_it_must_be_checked_next() {
        let taken = invoked().take(T, "w", "a", LEASE);
        assert_eq!((taken.due, taken.begun), (Millis(1_030), 1));
        assert_eq!(taken.clone().renew(Millis(1_010), LEASE).due, Millis(1_040));
        let back = taken.release(Millis(1_500));
        assert_eq!((back.due, back.begun, back.taken.is_none()), (Millis(1_500), 0, true));
    }

    #[test]
    fn the_session_of_an_unserved_job_is_recognised() {
        let key = session(&job());
        assert_eq!(job_of_session(&key), Some(job()));
        for (agent, session) in
            [("_venue", "_venue"), ("clerk", key.session.as_str()), ("_venue", "op-x"), ("_venue", "s-0")]
        {
            let other = SessionKey { agent: agent.parse().unwrap(), session: session.parse().unwrap() };
            assert_eq!(job_of_session(&other), None, "{other}");
        }
    }

    #[test]
    fn a_record_reads_back() {
        let published = Some(PublishedVersion { path: "v/ops/shop/order".into(), version: "v1".into() });
        let taken = InvokedOperation { published, ..invoked().take(T, "w", "a", LEASE) };
        let text = serde_json::to_string(&taken).unwrap();
        assert_eq!(serde_json::from_str::<InvokedOperation>(&text).unwrap(), taken, "{text}");
    }
}
