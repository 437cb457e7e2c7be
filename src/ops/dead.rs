//! `v/ops/dead/*`: tasks that killed too many workers.

use crate::domain::authority::ResourcePath;
use crate::domain::ids::JobId;
use crate::domain::lattice::Namespace;
use crate::domain::reader::{HIDDEN, JobSight};
use crate::domain::session::WITHHELD;
use crate::ingress::SubmitError;
use crate::ingress::redrive::{RedriveError, redrive};
use crate::venue::dead;
use crate::venue::jobs;
use crate::venue::operation::{Effect, Invocation, Need, OpError, Operation, Output, Spec};
use crate::venue::strays;
use async_trait::async_trait;
use serde_json::{Value, json};
use std::sync::Arc;

/// Messages that nobody got that are listed beside the dead letters.
const STRAYS: usize = 50;

/// Dead letters of one page at most.
const PAGE: usize = 500;

#[derive(Clone, Copy)]
enum Verb {
    List,
    Show,
    Redrive,
}

struct Dead(Verb);

/// The operations of this group.
pub fn operations() -> Vec<Arc<dyn Operation>> {
    [Verb::List, Verb::Show, Verb::Redrive].into_iter().map(|verb| Arc::new(Dead(verb)) as Arc<dyn Operation>).collect()
}

fn job_id(arguments: &Value) -> Result<JobId, OpError> {
    JobId::new(arguments["id"].as_str().unwrap_or_default()).map_err(|error| OpError::Invalid(format!("`id`: {error}")))
}

#[async_trait]
impl Operation for Dead {
    fn spec(&self) -> Spec {
        let by_job = || {
            let id = json!({"id": {"type": "string", "description": "the job"}});
            json!({"type": "object", "properties": id, "required": ["id"], "additionalProperties": false})
        };
        let (path, description, input, effect) = match self.0 {
            Verb::List => {
                let count = json!({"type": "integer", "minimum": 0});
                let input = json!({
                    "type": "object", "properties": {"offset": count, "limit": count}, "additionalProperties": false
                });
                (
                    "v/ops/dead/list",
                    "Tasks that killed too many workers, the last to die first; and messages whose subject meant nothing.",
                    input,
                    Effect::Read,
                )
            }
            Verb::Show => ("v/ops/dead/show", "A dead task with its input.", by_job(), Effect::Read),
            Verb::Redrive => (
                "v/ops/dead/redrive",
                "Drive a task that failed again, whatever its code: as a new job in the same session. Twice is once.",
                by_job(),
                Effect::Idempotent,
            ),
        };
        Spec { path, description, input, effect }
    }

    fn needs(&self, arguments: &Value) -> Result<Vec<Need>, OpError> {
        let need = match self.0 {
            Verb::List => Need { ability: "crud/read", resource: ResourcePath::all(Namespace::Jobs) },
            Verb::Show => Need { ability: "crud/read", resource: ResourcePath::job(&job_id(arguments)?) },
            Verb::Redrive => Need { ability: "job/redrive", resource: ResourcePath::job(&job_id(arguments)?) },
        };
        Ok(vec![need])
    }

    async fn invoke(&self, call: &Invocation<'_>, arguments: Value) -> Result<Output, OpError> {
        let (venue, owner) = (call.venue, &call.caller.owner);
        let number = |key: &str| arguments[key].as_u64().and_then(|n| usize::try_from(n).ok());
        match self.0 {
            Verb::List => {
                let (offset, limit) = (number("offset").unwrap_or(0), number("limit").unwrap_or(50).min(PAGE));
                let page = dead::list(venue, owner, offset, limit).await?;
                let items: Vec<_> = page.items.iter().map(|letter| letter.to_json(false)).collect();
                let next = (offset < page.next && page.next < page.total).then_some(page.next);
                let (strays, unreadable) = strays::list(venue, Some(owner), STRAYS).await?;
                Ok(json!({
                    "items": items, "total": page.total, "offset": offset, "limit": limit, "next": next,
                    "unreadable": {"total": unreadable, "items": strays},
                })
                .into())
            }
            Verb::Show => {
                let id = job_id(&arguments)?;
                let found = dead::get(venue, owner, &id).await?;
                let (letter, _) =
                    found.ok_or_else(|| OpError::NotFound(RedriveError::Unknown(id.clone()).to_string()))?;
                let head = jobs::head(venue, owner, &id).await?;
                let whole = head.is_some_and(|head| call.caller.reader().sees(&head) == JobSight::Whole);
                let mut shown = letter.to_json(whole);
                if !whole {
                    shown[HIDDEN] = WITHHELD.into();
                }
                Ok(shown.into())
            }
            Verb::Redrive => {
                let id = job_id(&arguments)?;
                let (job, already) = redrive(venue, owner, &id).await.map_err(|error| match error {
                    RedriveError::Unknown(_) => OpError::NotFound(error.to_string()),
                    RedriveError::Store(error) | RedriveError::Submit(SubmitError::Store(error)) => {
                        OpError::Store(error)
                    }
                    RedriveError::Submit(_) | RedriveError::Not { .. } => OpError::Conflict(error.to_string()),
                })?;
                Ok(json!({"job": job, "redriveOf": id, "duplicate": already}).into())
            }
        }
    }
}
