//! `v/ops/approval/*`: what agents wait for, and the answers of people. No turn can answer.

use super::lattice::number;
use crate::domain::approval::{Approval, Verdict};
use crate::domain::authority::ResourcePath;
use crate::domain::decode;
use crate::domain::ids::JobId;
use crate::domain::lattice::Namespace;
use crate::domain::limits::LIST_PAGE;
use crate::venue::approvals;
use crate::venue::operation::{
    Effect, Invocation, Need, OpError, Output, Site, UntypedOperation as Operation, UntypedSpec as Spec,
};
use async_trait::async_trait;
use serde_json::{Map, Value, json};
use std::sync::Arc;

#[derive(Clone, Copy)]
enum Verb {
    List,
    Approve,
    Reject,
    Answer,
}

struct ApprovalOperation(Verb);

/// The operations of this group.
pub fn operations() -> Vec<Arc<dyn Operation>> {
    let verbs = [Verb::List, Verb::Approve, Verb::Reject, Verb::Answer];
    verbs.into_iter().map(|verb| Arc::new(ApprovalOperation(verb)) as Arc<dyn Operation>).collect()
}

impl Verb {
    fn spec(self) -> Spec {
        let text = |about: &str| json!({"type": "string", "description": about});
        let id = || text("as `approval/list` shows it");
        let digest = || text("what the answer is about, as it was shown; refused when it is something else by now");
        let (path, description, properties, required, effect) = match self {
            Self::List => (
                "v/ops/approval/list",
                "What agents are waiting for: calls to approve and questions to answer, the newest first.",
                json!({
                    "all": {"type": "boolean", "description": "those that are answered too"},
                    "offset": {"type": "integer", "minimum": 0}, "limit": {"type": "integer", "minimum": 1}
                }),
                vec![],
                Effect::Read,
            ),
            Self::Approve => (
                "v/ops/approval/approve",
                "Approve a call, perhaps with other arguments or fewer sections of the caller's context.",
                json!({
                    "id": id(), "digest": digest(),
                    "arguments": {"type": "object", "description": "in the place of those that are shown"},
                    "scopes": {"type": "array", "items": {"type": "string"}, "description": "only these of its sections"}
                }),
                vec!["id"],
                Effect::Idempotent,
            ),
            Self::Reject => (
                "v/ops/approval/reject",
                "Reject a call, or decline to answer.",
                json!({"id": id(), "digest": digest(), "reason": text("for the agent")}),
                vec!["id"],
                Effect::Idempotent,
            ),
            Self::Answer => (
                "v/ops/approval/answer",
                "Answer an agent's questions.",
                json!({
                    "id": id(), "digest": digest(),
                    "answers": {"type": "object", "description": "an answer for each question, by its id"}
                }),
                vec!["id", "answers"],
                Effect::Idempotent,
            ),
        };
        let input =
            json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false});
        Spec { path, description, input, effect }
    }

    /// The answer that the arguments give.
    fn verdict(self, arguments: &Value) -> Option<Verdict> {
        match self {
            Self::List => None,
            Self::Approve => Some(Verdict::Approved {
                arguments: arguments.get("arguments").cloned(),
                scopes: arguments.get("scopes").and_then(|scopes| decode::typed(scopes.clone()).ok()),
            }),
            Self::Reject => Some(Verdict::Rejected { reason: arguments["reason"].as_str().map(str::to_owned) }),
            Self::Answer => {
                let answers: Map<String, Value> = arguments["answers"].as_object().cloned().unwrap_or_default();
                Some(Verdict::Answered { answers })
            }
        }
    }
}

#[async_trait]
impl Operation for ApprovalOperation {
    fn spec(&self) -> Spec {
        self.0.spec()
    }

    fn needs(&self, _arguments: &Value) -> Result<Vec<Need>, OpError> {
        // For an answer it is asked when its job is known.
        let list = matches!(self.0, Verb::List)
            .then(|| Need { ability: "crud/read", resource: ResourcePath::all(Namespace::Jobs) });
        Ok(list.into_iter().collect())
    }

    async fn invoke(&self, call: &Invocation<'_>, arguments: Value) -> Result<Output, OpError> {
        if call.caller.is_agent() || matches!(call.site, Site::Turn(_)) {
            return Err(OpError::Denied(format!("`{}` is for people; no agent may call it", self.0.spec().path)));
        }
        let Some(verdict) = self.0.verdict(&arguments) else {
            let (offset, limit) =
                (number(&arguments, "offset", 0), number(&arguments, "limit", LIST_PAGE).clamp(1, LIST_PAGE));
            let page = approvals::list(call.venue, &call.caller.owner, arguments["all"] == true, offset, limit).await?;
            let next = (offset < page.next && page.next < page.total).then_some(page.next);
            let items: Vec<_> = page.items.iter().map(|approval| approvals::seen_by(call.caller, approval)).collect();
            return Ok(json!({"items": items, "total": page.total, "offset": offset, "next": next}).into());
        };
        let id = JobId::new(arguments["id"].as_str().unwrap_or_default());
        let id = id.map_err(|error| OpError::Invalid(format!("`id`: {error}")))?;
        let digest = arguments["digest"].as_str();
        let decided: Approval = approvals::decide(call.venue, call.caller, &id, verdict, digest).await?;
        Ok(approvals::seen_by(call.caller, &decided).into())
    }
}
