//! `v/ops/scheduler/*`: Covia's names for timers that send something to an agent once.

use super::timer::{self, Trigger};
use crate::domain::authority::ResourcePath;
use crate::domain::decode;
use crate::domain::lattice::Namespace;
use crate::domain::lattice::catalog::catalog_path;
use crate::domain::limits::LIST_PAGE;
use crate::domain::timer::{Timer, TimerId, TimerKind, TimerPhase};
use crate::venue::ingress;
use crate::venue::operation::{
    Effect, Invocation, Need, OpError, OpOutput, Operation, RegisteredOperation, Site, operation,
};
use crate::venue::timers;
use crate::view::scheduler::{
    ScheduleCancellationView, ScheduleTriggerView, ScheduledPage, ScheduledRowView, ScheduledView,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

const REQUEST: &str = "v/ops/agent/request";
const MESSAGE: &str = "v/ops/agent/message";

/// Returns the operations of this group.
pub fn operations() -> Vec<RegisteredOperation> {
    vec![
        operation::<ScheduleOperation>(),
        operation::<ListScheduled>(),
        operation::<CancelScheduled>(),
        operation::<TriggerScheduled>(),
    ]
}

/// Run `v/ops/agent/request` or `v/ops/agent/message` once at a time, `time` or `after`. Returns its `handle`.
#[derive(Deserialize, JsonSchema)]
struct ScheduleOperation {
    /// v/ops/agent/request or v/ops/agent/message
    operation: String,
    /// its arguments: agentId, input or message, sessionId, priority, context
    input: Map<String, Value>,
    /// milliseconds since 1970
    time: Option<u64>,
    /// milliseconds from now
    after: Option<u64>,
}

impl ScheduleOperation {
    /// Returns the timer to set.
    fn trigger(&self) -> Result<Trigger, OpError> {
        let path = catalog_path(&self.operation);
        let (kind, content) = match path.as_str() {
            REQUEST => ("task", "input"),
            MESSAGE => ("message", "message"),
            _ => {
                return Err(OpError::Invalid(format!(
                    "`operation`: expected `{REQUEST}` or `{MESSAGE}`, got `{path}`: at a time this venue sends to agents; \
                     give an agent the task to call it"
                )));
            }
        };
        let known = ["agentId", content, "sessionId", "priority", "context"];
        if let Some(other) = self.input.keys().find(|key| !known.contains(&key.as_str())) {
            return Err(OpError::Invalid(format!(
                "`input.{other}`: what is scheduled has `{}`, got another key",
                known.join("`, `")
            )));
        }
        let mut said = self.input.clone();
        let sent = said.shift_remove(content);
        said.insert("input".into(), sent.ok_or_else(|| OpError::Invalid(format!("`input.{content}`: missing")))?);
        said.insert("kind".into(), kind.into());
        for (key, time) in [("at", self.time), ("after", self.after)] {
            said.extend(time.map(|time| (key.to_owned(), Value::from(time))));
        }
        decode::into_type(Value::Object(said)).map_err(|wrong| OpError::Invalid(format!("`input`: {wrong}")))
    }
}

impl Operation for ScheduleOperation {
    const PATH: &'static str = "v/ops/scheduler/schedule";
    const EFFECT: Effect = Effect::Idempotent;

    fn needs(&self) -> Result<Vec<Need>, OpError> {
        self.trigger()?.needs()
    }

    async fn run(self, call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        let timer = timer::set_timer(call, &self.trigger()?.request(call)?).await?;
        Ok(OpOutput::of(&ScheduledView { handle: timer.id, time: timer.next }))
    }
}

/// What is scheduled, the next first: `handle`, `op` and `time` of each.
#[derive(Deserialize, JsonSchema)]
struct ListScheduled {
    #[serde(default)]
    offset: usize,
}

fn row_view(timer: Timer) -> ScheduledRowView {
    let op = match timer.kind {
        TimerKind::Task => REQUEST,
        TimerKind::Message => MESSAGE,
    };
    ScheduledRowView { handle: timer.id, op: op.to_owned(), time: timer.next, agent_id: timer.agent }
}

impl Operation for ListScheduled {
    const PATH: &'static str = "v/ops/scheduler/list";
    const EFFECT: Effect = Effect::Read;

    fn needs(&self) -> Result<Vec<Need>, OpError> {
        Need::only("crud/read", ResourcePath::whole_namespace(Namespace::Agents))
    }

    async fn run(self, call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        let page = timers::list(call.venue, &call.caller.owner, None, false, self.offset, LIST_PAGE).await?;
        let next = page.next_offset(self.offset);
        Ok(OpOutput::of(&ScheduledPage { events: page.items.into_iter().map(row_view).collect(), next }))
    }
}

/// Cancel what is scheduled. Returns `cancelled`: false if it was sent, run or cancelled before, or isn't there.
#[derive(Deserialize, JsonSchema)]
struct CancelScheduled {
    /// as `scheduler/schedule` returned it
    handle: TimerId,
}

impl Operation for CancelScheduled {
    const PATH: &'static str = "v/ops/scheduler/cancel";
    const EFFECT: Effect = Effect::Idempotent;

    fn needs(&self) -> Result<Vec<Need>, OpError> {
        Need::none()
    }

    async fn run(self, call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        let (venue, owner, id) = (call.venue, &call.caller.owner, self.handle.clone());
        // A turn that is run again has cancelled it itself.
        let was_to_come = match &call.site {
            Site::Turn(_) => true,
            Site::Api { .. } => timers::get(venue, owner, &id).await?.0.is_some_and(|timer| timer.is_active()),
        };
        match (timer::CancelTimer { timer: self.handle }).run(call).await {
            Ok(_) => {
                let now = timers::get(venue, owner, &id).await?.0;
                let is_cancelled = now.is_none_or(|timer| timer.phase == TimerPhase::Cancelled);
                Ok(OpOutput::of(&ScheduleCancellationView { cancelled: was_to_come && is_cancelled }))
            }
            Err(OpError::NotFound(_)) => Ok(OpOutput::of(&ScheduleCancellationView { cancelled: false })),
            Err(error) => Err(error),
        }
    }
}

/// Run now what is scheduled for later.
#[derive(Deserialize, JsonSchema)]
struct TriggerScheduled {
    /// as `scheduler/schedule` returned it
    handle: TimerId,
}

impl Operation for TriggerScheduled {
    const PATH: &'static str = "v/ops/scheduler/trigger";
    const EFFECT: Effect = Effect::Idempotent;

    /// The capability is checked in `run`, because the timer's record names the agent.
    fn needs(&self) -> Result<Vec<Need>, OpError> {
        Need::none()
    }

    async fn run(self, call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        let (venue, owner) = (call.venue, &call.caller.owner);
        if let Site::Turn(_) = &call.site {
            // The pause before a timer of a turn keeps the turn from setting the next one at once.
            return Err(OpError::Conflict("no agent brings forward what was set for later".into()));
        }
        let nothing = || Ok(OpOutput::of(&ScheduleTriggerView { triggered: false }));
        let Some(timer) = timers::get(venue, owner, &self.handle).await?.0 else { return nothing() };
        let agent = ResourcePath::agent(&timer.agent);
        if let Err(denied) = call.permit("agent/trigger", agent.clone()) {
            return if call.caller.may_see(agent) { Err(denied) } else { nothing() };
        }
        let fired = ingress::timers::fire_one_early(venue, owner, &self.handle).await?;
        Ok(OpOutput::of(&ScheduleTriggerView { triggered: fired }))
    }
}
