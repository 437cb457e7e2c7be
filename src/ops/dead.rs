//! `v/ops/dead/*`: tasks that killed too many workers.

use crate::domain::authority::ResourcePath;
use crate::domain::ids::JobId;
use crate::domain::lattice::Namespace;
use crate::domain::reader::JobVisibility;
use crate::venue::dead_letters;
use crate::venue::ingress::redrive::{RedriveError, redrive};
use crate::venue::jobs;
use crate::venue::notifications::hooks;
use crate::venue::operation::{Effect, Invocation, Need, OpError, OpOutput, Operation, RegisteredOperation, operation};
use crate::venue::strays::{self, StrayOwner};
use crate::view::dead::{DeadLetterPage, DeadLetterView, RedriveView, UnreadablePage};
use schemars::JsonSchema;
use serde::Deserialize;

/// Unreadable messages that are listed with the dead letters.
const STRAYS: usize = 50;

/// Most dead letters of one page.
const PAGE: usize = 500;

/// Returns the operations of this group.
pub fn operations() -> Vec<RegisteredOperation> {
    vec![operation::<ListDeadLetters>(), operation::<ShowDeadLetter>(), operation::<RedriveTask>()]
}

/// Tasks that killed too many workers, the last to die first; messages whose subject meant nothing; and notifications that a
/// webhook was not given.
#[derive(Deserialize, JsonSchema)]
struct ListDeadLetters {
    #[serde(default)]
    offset: usize,
    limit: Option<usize>,
}

impl Operation for ListDeadLetters {
    const PATH: &'static str = "v/ops/dead/list";
    const EFFECT: Effect = Effect::Read;

    fn needs(&self) -> Result<Vec<Need>, OpError> {
        Need::only("crud/read", ResourcePath::whole_namespace(Namespace::Jobs))
    }

    async fn run(self, call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        let (venue, owner) = (call.venue, &call.caller.owner);
        let (offset, limit) = (self.offset, self.limit.unwrap_or(50).min(PAGE));
        let page = dead_letters::list(venue, owner, offset, limit).await?;
        let whose = match call.require_operator::<Self>("") {
            Ok(()) => StrayOwner::OneOrNone(owner),
            Err(_) => StrayOwner::One(owner),
        };
        let (strays, unreadable) = strays::list(venue, whose, STRAYS).await?;
        Ok(OpOutput::of(&DeadLetterPage {
            items: page.items.iter().map(DeadLetterView::from).collect(),
            total: page.total,
            offset,
            limit,
            next: page.next_offset(offset),
            unreadable: UnreadablePage { total: unreadable, items: strays },
            undelivered: hooks::views(venue, owner).await?.list_undelivered(),
        }))
    }
}

/// A dead task with its input.
#[derive(Deserialize, JsonSchema)]
struct ShowDeadLetter {
    /// id of the dead job
    id: JobId,
}

impl Operation for ShowDeadLetter {
    const PATH: &'static str = "v/ops/dead/show";
    const EFFECT: Effect = Effect::Read;

    fn needs(&self) -> Result<Vec<Need>, OpError> {
        Need::only("crud/read", ResourcePath::job(&self.id))
    }

    async fn run(self, call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        let (venue, owner, id) = (call.venue, &call.caller.owner, self.id);
        let head = jobs::head(venue, owner, &id).await?;
        let visibility = head.map_or(JobVisibility::Nothing, |head| call.caller.reader().visibility(&head));
        let Some((letter, _)) = dead_letters::get(venue, owner, &id).await? else {
            return Err(OpError::NotFound(no_letter_text(&id, visibility)));
        };
        let whole = visibility == JobVisibility::Whole;
        let shown = if whole { DeadLetterView::with_input(&letter) } else { DeadLetterView::without_input(&letter) };
        Ok(OpOutput::of(&shown))
    }
}

/// Says that a job is no dead letter; of one that the caller may not see, that it doesn't exist.
fn no_letter_text(id: &JobId, visibility: JobVisibility) -> String {
    if visibility == JobVisibility::Nothing {
        return format!("no job `{id}`; `trellis dead list` shows the dead letters");
    }
    format!(
        "job `{id}` is no dead letter: only a task that killed too many workers is; `trellis job get {id}` shows how it stands"
    )
}

/// Drive a task that failed again, whatever its code: as a new job in the same session. Twice is once.
#[derive(Deserialize, JsonSchema)]
struct RedriveTask {
    /// id of the failed job
    id: JobId,
}

impl Operation for RedriveTask {
    const PATH: &'static str = "v/ops/dead/redrive";
    const EFFECT: Effect = Effect::Idempotent;

    fn needs(&self) -> Result<Vec<Need>, OpError> {
        Need::only("job/redrive", ResourcePath::job(&self.id))
    }

    async fn run(self, call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        let (job, already) =
            redrive(call.venue, &call.caller.owner, &self.id).await.map_err(|error| match error.into_store() {
                Ok(error) => OpError::Store(error),
                Err(error @ RedriveError::Unknown(_)) => OpError::NotFound(error.to_string()),
                Err(error @ (RedriveError::Submit(_) | RedriveError::Refused { .. } | RedriveError::Store(_))) => {
                    OpError::Conflict(error.to_string())
                }
            })?;
        Ok(OpOutput::of(&RedriveView { job, redrive_of: self.id, duplicate: already }))
    }
}
