//! `v/ops/approval/*`: list approvals and answer them. No turn can answer.

use crate::domain::approval::ApprovalVerdict;
use crate::domain::authority::ResourcePath;
use crate::domain::ids::JobId;
use crate::domain::lattice::Namespace;
use crate::domain::limits::LIST_PAGE;
use crate::venue::approvals;
use crate::venue::notifications;
use crate::venue::operation::{Effect, Invocation, Need, OpError, OpOutput, Operation, RegisteredOperation, operation};
use crate::view::approval::ApprovalPage;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

/// Returns the operations of this group.
pub fn operations() -> Vec<RegisteredOperation> {
    vec![
        operation::<ListApprovals>(),
        operation::<ApproveCall>(),
        operation::<RejectCall>(),
        operation::<AnswerQuestions>(),
        operation::<Respond>(),
    ]
}

/// Answers an approval; the capability is checked when its job is known.
async fn decide<T: Operation>(
    call: &Invocation<'_>,
    id: &JobId,
    digest: Option<&str>,
    verdict: ApprovalVerdict,
) -> Result<OpOutput, OpError> {
    call.refuse_agents::<T>("people")?;
    let decided = approvals::decide(call.venue, call.caller, id, verdict, digest).await?;
    notifications::send_soon(call.venue, &call.caller.owner).await;
    Ok(OpOutput::of(&approvals::view_for(call.caller, &decided)))
}

/// What agents are waiting for: calls to approve and questions to answer, the newest first.
#[derive(Deserialize, JsonSchema)]
struct ListApprovals {
    /// those that are answered too
    #[serde(default)]
    all: bool,
    #[serde(default)]
    offset: usize,
    #[schemars(range(min = 1))]
    limit: Option<usize>,
}

impl Operation for ListApprovals {
    const PATH: &'static str = "v/ops/approval/list";
    const EFFECT: Effect = Effect::Read;

    fn needs(&self) -> Result<Vec<Need>, OpError> {
        Need::only("crud/read", ResourcePath::whole_namespace(Namespace::Jobs))
    }

    async fn run(self, call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        call.refuse_agents::<Self>("people")?;
        let (offset, limit) = (self.offset, self.limit.unwrap_or(LIST_PAGE).clamp(1, LIST_PAGE));
        let page = approvals::list(call.venue, &call.caller.owner, self.all, offset, limit).await?;
        let items = page.items.iter().map(|approval| approvals::view_for(call.caller, approval)).collect();
        Ok(OpOutput::of(&ApprovalPage { items, total: page.total, offset, next: page.next_offset(offset) }))
    }
}

/// Approve a call, perhaps with other arguments or fewer sections of the caller's context.
#[derive(Deserialize, JsonSchema)]
struct ApproveCall {
    /// as `approval/list` shows it
    id: JobId,
    /// what the answer is about, as it was shown; refused when it is something else by now
    digest: Option<String>,
    /// in the place of those that are shown
    #[schemars(with = "Option<Map<String, Value>>")]
    arguments: Option<Value>,
    /// only these of its sections
    scopes: Option<Vec<String>>,
}

impl Operation for ApproveCall {
    const PATH: &'static str = "v/ops/approval/approve";
    const EFFECT: Effect = Effect::Idempotent;

    fn needs(&self) -> Result<Vec<Need>, OpError> {
        Need::none()
    }

    async fn run(self, call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        let Self { id, digest, arguments, scopes } = self;
        decide::<Self>(call, &id, digest.as_deref(), ApprovalVerdict::Approved { arguments, scopes }).await
    }
}

/// Reject a call, or decline to answer.
#[derive(Deserialize, JsonSchema)]
struct RejectCall {
    /// as `approval/list` shows it
    id: JobId,
    /// what the answer is about, as it was shown; refused when it is something else by now
    digest: Option<String>,
    /// for the agent
    reason: Option<String>,
}

impl Operation for RejectCall {
    const PATH: &'static str = "v/ops/approval/reject";
    const EFFECT: Effect = Effect::Idempotent;

    fn needs(&self) -> Result<Vec<Need>, OpError> {
        Need::none()
    }

    async fn run(self, call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        let verdict = ApprovalVerdict::Rejected { reason: self.reason };
        decide::<Self>(call, &self.id, self.digest.as_deref(), verdict).await
    }
}

/// Answer an agent's questions.
#[derive(Deserialize, JsonSchema)]
struct AnswerQuestions {
    /// as `approval/list` shows it
    id: JobId,
    /// what the answer is about, as it was shown; refused when it is something else by now
    digest: Option<String>,
    /// an answer for each question, by its id
    answers: Map<String, Value>,
}

impl Operation for AnswerQuestions {
    const PATH: &'static str = "v/ops/approval/answer";
    const EFFECT: Effect = Effect::Idempotent;

    fn needs(&self) -> Result<Vec<Need>, OpError> {
        Need::none()
    }

    async fn run(self, call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        let verdict = ApprovalVerdict::Answered { answers: self.answers };
        decide::<Self>(call, &self.id, self.digest.as_deref(), verdict).await
    }
}

/// Answer an agent's questions as Covia's clients do, with `outcome` answer and `answers`; or decline, with `outcome` reject, which
/// rejects a call, too. A call is approved by `approval/approve` alone.
#[derive(Deserialize, JsonSchema)]
struct Respond {
    /// as `hitl/list` shows it
    id: JobId,
    outcome: RespondOutcome,
    /// an answer for each question, by its id
    answers: Option<Map<String, Value>>,
    /// for the agent, with a rejection
    comment: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum RespondOutcome {
    Answer,
    Reject,
}

impl Operation for Respond {
    const PATH: &'static str = "v/ops/hitl/respond";
    const EFFECT: Effect = Effect::Idempotent;

    fn needs(&self) -> Result<Vec<Need>, OpError> {
        Need::none()
    }

    async fn run(self, call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        let verdict = match (self.outcome, self.answers) {
            (RespondOutcome::Answer, _) if self.comment.is_some() => {
                return Err(OpError::Invalid(
                    "`comment`: an answer has none; leave it out, or answer a question with it".into(),
                ));
            }
            (RespondOutcome::Answer, Some(answers)) => ApprovalVerdict::Answered { answers },
            (RespondOutcome::Answer, None) => {
                return Err(OpError::Invalid(
                    "`answers`: missing; a call is approved by `v/ops/approval/approve`".into(),
                ));
            }
            (RespondOutcome::Reject, None) => ApprovalVerdict::Rejected { reason: self.comment },
            (RespondOutcome::Reject, Some(_)) => {
                return Err(OpError::Invalid("`answers`: a rejection has none, leave them out".into()));
            }
        };
        decide::<Self>(call, &self.id, None, verdict).await
    }
}
