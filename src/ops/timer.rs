//! `v/ops/agent/trigger`, `v/ops/agent/wake` and `v/ops/timer/*`: set, list and cancel timers.
//!
//! In a turn, setting a timer is an effect under an id that is a function of the call, fenced by the lease: a turn that
//! is run again sets nothing twice.

use super::agent::requests::priorities;
use super::agent::send::build_submission;
use crate::domain::authority::ResourcePath;
use crate::domain::event::Submission;
use crate::domain::ids::{AgentId, SessionId, sha256_hex};
use crate::domain::lattice::Namespace;
use crate::domain::limits::{LIST_PAGE, TIMER_EVERY, TIMER_FARTHEST, TIMER_GRACE, TIMER_NAME_BYTES};
use crate::domain::priority::Priority;
use crate::domain::timer::{
    CatchUpPolicy, OverlapPolicy, Schedule, Timer, TimerId, TimerKind, TimerOrigin, TimerRequest, parse_duration,
    parse_instant,
};
use crate::domain::visible::check_line;
use crate::store::{Checkpoint, LeaseCheck};
use crate::venue::agents;
use crate::venue::child_jobs::{self as child, call_id};
use crate::venue::ingress;
use crate::venue::operation::{
    Caller, Effect, Invocation, Need, OpError, OpOutput, Operation, RegisteredOperation, Site, TurnSite, operation,
};
use crate::venue::timers;
use crate::view::agent::AgentActivity;
use crate::view::timer::{TimerPage, TimerSetView, TimerView, TimersFiredView, TriggerView};
use crate::view::to_json;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::time::Duration;

/// Longest wait for an agent to be quiet: below the 30 s after which common HTTP clients time out.
const QUIET_TIME: Duration = Duration::from_secs(25);
/// Pause between two checks of the agent.
const QUIET_POLL: Duration = Duration::from_millis(50);

/// Text of a wake without a note.
const NOTE: &str = "It is the time at which you wanted to be woken.";

/// Returns the operations of this group.
pub fn operations() -> Vec<RegisteredOperation> {
    vec![operation::<Trigger>(), operation::<ScheduleWake>(), operation::<ListTimers>(), operation::<CancelTimer>()]
}

/// Give an agent a task, or a message, at a time: once (`at`, `after`), `every` so often, or by `cron`. With `agentId` and
/// neither `input` nor a time: what is set to be sent to it once, later, is sent now, and what waits in its sessions is looked
/// at.
#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Trigger {
    agent_id: AgentId,
    /// of the task or message that is sent each time
    input: Option<Value>,
    /// a time, such as 2026-03-29T09:00:00Z; without an offset it is in `timezone`
    #[schemars(extend("type" = ["string", "integer"]))]
    at: Option<Value>,
    /// from now, such as 90s, 5m, 1h; a number is milliseconds
    #[schemars(extend("type" = ["string", "integer"]))]
    after: Option<Value>,
    /// again and again, such as 30s, 5m, 1h; a number is milliseconds
    #[schemars(extend("type" = ["string", "integer"]))]
    every: Option<Value>,
    /// minute hour day-of-month month day-of-week, such as `0 9 * * MON-FRI`
    cron: Option<String>,
    /// of `cron` and `at`, such as Europe/Berlin; UTC by default
    timezone: Option<String>,
    /// a task is a job each time; task by default
    kind: Option<TimerKind>,
    /// what becomes of times at which nothing ran: one event for all (the default), each, none
    catch_up: Option<CatchUpPolicy>,
    /// while the last one isn't finished: leave this one out, or let it wait (the default)
    overlap: Option<OverlapPolicy>,
    /// conversation to use
    session_id: Option<SessionId>,
    /// 1 goes before the other tasks of the agent, -1 behind them; 0 by default
    #[serde(default)]
    #[schemars(schema_with = "priorities")]
    priority: Option<Priority>,
    /// setting a timer of this name again replaces it
    name: Option<String>,
    /// What the request may do at most, no more than you: namespaces of resources, or {with, can}; absent: what you may hand
    /// on.
    context: Option<Vec<Value>>,
    /// Shared buckets. Trusted code says it.
    #[schemars(extend("x-trusted" = true))]
    context_ids: Option<Vec<String>>,
    /// without a time: how long to wait until the agent does nothing any more, in milliseconds; true: as long as it may, false
    /// (the default): not at all
    #[schemars(extend("type" = ["integer", "boolean"], "minimum" = 0))]
    wait: Option<Value>,
    /// accepted without a time, and without effect: an agent has no turn while nothing waits for it
    force: Option<bool>,
}

impl Operation for Trigger {
    const PATH: &'static str = "v/ops/agent/trigger";
    const EFFECT: Effect = Effect::Idempotent;

    fn needs(&self) -> Result<Vec<Need>, OpError> {
        let on = |ability| Need::new(ability, ResourcePath::agent(&self.agent_id));
        if self.is_now() {
            return Ok(vec![on("agent/trigger")]);
        }
        // The caller needs what sending it now would need.
        let sends = match self.kind.unwrap_or_default() {
            TimerKind::Task => "agent/request",
            TimerKind::Message => "agent/message",
        };
        Ok(vec![on("agent/trigger"), on(sends)])
    }

    async fn run(self, call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        if self.is_now() {
            let wait = quiet_time(self.wait.as_ref())?;
            let fired = fire_now(call, &self.agent_id, wait).await?;
            return Ok(OpOutput::of(&TriggerView::FiredNow(fired)));
        }
        if self.wait.is_some() || self.force.is_some() {
            return Err(OpError::Invalid(
                "`wait`, `force`: a timer only sends; leave them out, or `input` and the time".into(),
            ));
        }
        if self.input.is_none() {
            return Err(OpError::Invalid("expected `input`, what is sent at that time".into()));
        }
        let timer = set_timer(call, &self.request(call)?).await?;
        Ok(OpOutput::of(&TriggerView::Set(TimerSetView::from(&timer))))
    }
}

impl Trigger {
    /// Returns the given arguments by name.
    fn given_arguments(&self) -> Map<String, Value> {
        let mut said = to_json(self);
        let all = said.as_object_mut().map(std::mem::take).unwrap_or_default();
        all.into_iter().filter(|(_, value)| !value.is_null()).collect()
    }

    /// Whether neither an input nor a time is given.
    fn is_now(&self) -> bool {
        let is_of_now = |key: &String| ["agentId", "sessionId", "wait", "force"].contains(&key.as_str());
        self.input.is_none() && self.given_arguments().keys().all(is_of_now)
    }

    pub(super) fn request(self, call: &Invocation<'_>) -> Result<TimerRequest, OpError> {
        let origin = match &call.site {
            Site::Turn(site) => call_id(call.venue, site),
            Site::Api { key, .. } => key.clone().unwrap_or_else(ingress::fresh_id),
        };
        let asked = match &call.site {
            Site::Api { key: Some(_), .. } => Some(request_hash(call.caller, &self.given_arguments())),
            Site::Turn(_) | Site::Api { key: None, .. } => None,
        };
        if let Some(name) = &self.name {
            check_name(name).map_err(|why| OpError::Invalid(format!("`name`: {why}")))?;
        }
        let id = match &self.name {
            Some(name) => format!("name/{}/{name}", self.agent_id),
            None => format!("set/{origin}"),
        };
        let cron = self.cron.map(Value::from);
        let keys = [("at", &self.at), ("after", &self.after), ("every", &self.every), ("cron", &cron)];
        let schedule = parse_schedule(call, &keys.map(|(key, named)| (key, named.as_ref())), self.timezone.as_deref())?;
        let kind = self.kind.unwrap_or_default();
        let said = Submission {
            input: self.input.unwrap_or_default(),
            session_id: self.session_id,
            context_ids: self.context_ids.unwrap_or_default(),
            priority: self.priority.unwrap_or_default(),
            ..Submission::default()
        };
        Ok(TimerRequest {
            id: TimerId::from_text(&id),
            name: self.name,
            origin,
            asked,
            place: None,
            kind,
            submission: prepare_submission(call, &self.agent_id, kind, build_submission(call, self.context, said)?)?,
            agent: self.agent_id,
            schedule,
            catch_up: self.catch_up.unwrap_or_default(),
            overlap: self.overlap.unwrap_or_default(),
        })
    }
}

/// Why a name of a timer is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum TimerNameError {
    /// The name is empty or too long; holds its bytes.
    #[error("expected 1 to {TIMER_NAME_BYTES} bytes, got {0}")]
    Length(usize),
    /// The name isn't one line of visible characters.
    #[error("expected one line that can be read, got {name:?}: {rule}")]
    Line {
        /// Name that was given.
        name: String,
        /// Rule that the name breaks.
        rule: &'static str,
    },
}

fn check_name(name: &str) -> Result<(), TimerNameError> {
    if name.is_empty() || name.len() > TIMER_NAME_BYTES {
        return Err(TimerNameError::Length(name.len()));
    }
    check_line(name).map_err(|rule| TimerNameError::Line { name: name.to_owned(), rule })
}

/// Returns how long a caller waits until an agent is quiet.
fn quiet_time(wait: Option<&Value>) -> Result<Duration, OpError> {
    let time = match wait {
        None | Some(Value::Bool(false)) => Some(Duration::ZERO),
        Some(Value::Bool(true)) => Some(QUIET_TIME),
        Some(given) => given.as_u64().map(Duration::from_millis),
    };
    let wrong = || OpError::Invalid("`wait`: expected milliseconds, `true` or `false`".to_owned());
    Ok(time.ok_or_else(wrong)?.min(QUIET_TIME))
}

/// Fires the agent's timers now and wakes its sessions; returns when the agent is quiet, or after `wait`.
async fn fire_now(call: &Invocation<'_>, agent: &AgentId, wait: Duration) -> Result<TimersFiredView, OpError> {
    let (venue, owner) = (call.venue, &call.caller.owner);
    if let Site::Turn(_) = &call.site {
        // The pause before a timer of a turn keeps the turn from setting the next one at once.
        return Err(OpError::Conflict("expected `input`: no agent brings forward what was set for later".into()));
    }
    let Some((record, _)) = agents::get(venue, owner, agent).await? else {
        return Err(OpError::NotFound(format!("no agent `{agent}`")));
    };
    let fired = ingress::timers::fire_early(venue, owner, agent).await?;
    let woken = agents::wake(venue, owner, agent).await?;
    let deadline = venue.clock.steady() + wait;
    loop {
        let status = agents::current_status(venue, owner, agent, record.status).await?;
        let is_quiet = status != AgentActivity::Running && agents::is_idle(venue, owner, agent).await?;
        if is_quiet || venue.clock.steady() >= deadline {
            return Ok(TimersFiredView { agent_id: agent.clone(), status, fired, woken });
        }
        tokio::time::sleep(QUIET_POLL).await;
    }
}

/// Sets a timer; in a turn only while the turn holds its lease.
pub(super) async fn set_timer(call: &Invocation<'_>, wanted: &TimerRequest) -> Result<Timer, OpError> {
    if let Site::Turn(site) = &call.site {
        let mark = Checkpoint { turn: site.turn, ..Checkpoint::default() };
        if call.venue.store.checkpoint(call.venue.now(), site.lease, &mark).await? == LeaseCheck::Fenced {
            return Err(OpError::Fenced);
        }
    }
    ingress::timers::set(call.venue, &call.caller.owner, wanted).await
}

/// Returns a hash of a request under an id of the caller, by which a repetition is recognised.
fn request_hash(caller: &Caller, said: &Map<String, Value>) -> String {
    let mut request = to_json(&("timer", said, caller.principal.mark()));
    request.sort_all_objects();
    sha256_hex(request.to_string().as_bytes())
}

/// Checks what a timer sends, and sets its lineage. A timer of an agent for itself has the lineage of its turn; one for
/// another agent is a step deeper, like a request.
fn prepare_submission(
    call: &Invocation<'_>,
    agent: &AgentId,
    kind: TimerKind,
    mut sent: Submission,
) -> Result<Submission, OpError> {
    if !sent.priority.is_normal() && kind == TimerKind::Message {
        return Err(OpError::Invalid("`priority`: a message has none, set a timer that sends a task".into()));
    }
    if let Site::Turn(site) = &call.site {
        let own = (site.lease.session.agent == *agent).then(|| call.caller.envelope.lineage.clone());
        match own {
            Some(own) => {
                child::check_lineage(site, &own, None)?;
                sent.envelope.lineage = own;
            }
            None => child::check_lineage(site, &sent.envelope.lineage, Some(agent))?,
        }
    }
    Ok(sent)
}

/// Returns the schedule of exactly one of these keys.
fn parse_schedule(
    call: &Invocation<'_>,
    keys: &[(&str, Option<&Value>)],
    timezone: Option<&str>,
) -> Result<Schedule, OpError> {
    let now = call.venue.now();
    // A timer of a turn costs a turn, which may set the next one: so there is a shortest pause.
    let (once, again) = match call.site {
        Site::Turn(_) => (TIMER_EVERY.1, TIMER_EVERY.1),
        Site::Api { .. } => (Duration::ZERO, TIMER_EVERY.0),
    };
    let given: Vec<_> = keys.iter().filter_map(|(key, named)| Some((*key, (*named)?))).collect();
    let [(key, named)] = given.as_slice() else {
        let keys: Vec<_> = keys.iter().map(|(key, _)| *key).collect();
        return Err(OpError::Invalid(format!("expected one of `{}`, got {}", keys.join("`, `"), given.len())));
    };
    let invalid = |why: String| OpError::Invalid(format!("`{key}`: {why}"));
    let within = |length: Duration, least: Duration| {
        let shown = humantime::format_duration;
        if length < least {
            return Err(invalid(format!("expected at least {}, got {named}", shown(least))));
        }
        if length > TIMER_FARTHEST {
            return Err(invalid(format!("{named} is farther away than {}", shown(TIMER_FARTHEST))));
        }
        Ok(length)
    };
    let duration = || parse_duration(named).map_err(|error| invalid(error.to_string()));
    match *key {
        "at" => {
            let at = parse_instant(named, timezone).map_err(|error| invalid(error.to_string()))?;
            if now.elapsed_since(at) > TIMER_GRACE {
                let (at, now) = (at.rfc3339(), now.rfc3339());
                return Err(invalid(format!("{at} has passed, it is {now}; name a time in the future")));
            }
            within(at.elapsed_since(now), Duration::ZERO)?;
            Ok(Schedule::At(at.max(now.plus(once))))
        }
        "after" => Ok(Schedule::At(now.plus(within(duration()?, once)?))),
        "every" => {
            let every = within(duration()?, again)?;
            Ok(Schedule::Every { every: u64::try_from(every.as_millis()).unwrap_or(u64::MAX), start: now })
        }
        _ => {
            let cron = Schedule::Cron {
                expression: named.as_str().unwrap_or_default().to_owned(),
                timezone: timezone.map(str::to_owned),
            };
            cron.parse().map_err(|error| OpError::Invalid(error.to_string()))?;
            Ok(cron)
        }
    }
}

/// Be woken in this conversation at a time, once. It replaces the wake that is set before.
#[derive(Deserialize, JsonSchema)]
struct ScheduleWake {
    /// a time, such as 2026-03-29T09:00:00Z; without an offset it is in `timezone`
    #[schemars(extend("type" = ["string", "integer"]))]
    at: Option<Value>,
    /// from now, such as 90s, 5m, 1h; a number is milliseconds
    #[schemars(extend("type" = ["string", "integer"]))]
    after: Option<Value>,
    /// of `at`; UTC by default
    timezone: Option<String>,
    /// what you want to be told then
    note: Option<String>,
}

impl Operation for ScheduleWake {
    const PATH: &'static str = "v/ops/agent/wake";
    const EFFECT: Effect = Effect::Idempotent;

    /// The session is the caller's own.
    fn needs(&self) -> Result<Vec<Need>, OpError> {
        Need::none()
    }

    async fn run(self, call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        let timer = set_timer(call, &self.request(call)?).await?;
        Ok(OpOutput::of(&TimerSetView::from(&timer)))
    }
}

impl ScheduleWake {
    /// Makes the timer of the session that calls.
    fn request(self, call: &Invocation<'_>) -> Result<TimerRequest, OpError> {
        let Site::Turn(site) = &call.site else {
            return Err(OpError::Conflict("only a running session can be woken later; use `agent/trigger`".into()));
        };
        let TurnSite { lease, turn, call: index, mandate, start, .. } = site;
        let session = &lease.session;
        Ok(TimerRequest {
            id: TimerId::from_text(&format!("wake/{}", session.token())),
            name: Some("wake".into()),
            origin: call_id(call.venue, site),
            asked: None,
            place: Some(TimerOrigin { turn: *turn, call: *index, start: start.time() }),
            agent: session.agent.clone(),
            kind: TimerKind::Message,
            submission: Submission {
                input: self.note.as_deref().unwrap_or(NOTE).into(),
                session_id: Some(session.session.clone()),
                caller: Some(call.caller.name.clone()),
                session_context: mandate.session_context.clone(),
                context_ids: mandate.context_ids.clone(),
                envelope: call.caller.envelope.clone().with_trail(&call.caller.trail()),
                ..Submission::default()
            },
            schedule: parse_schedule(
                call,
                &[("at", self.at.as_ref()), ("after", self.after.as_ref())],
                self.timezone.as_deref(),
            )?,
            catch_up: CatchUpPolicy::One,
            overlap: OverlapPolicy::Queue,
        })
    }
}

/// Timers, the next to fire first.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct ListTimers {
    /// those of one agent
    agent_id: Option<AgentId>,
    /// those that fire no more, too
    #[serde(default)]
    all: bool,
    #[serde(default)]
    offset: usize,
    #[schemars(range(min = 1))]
    limit: Option<usize>,
}

impl Operation for ListTimers {
    const PATH: &'static str = "v/ops/timer/list";
    const EFFECT: Effect = Effect::Read;

    fn needs(&self) -> Result<Vec<Need>, OpError> {
        let all = || ResourcePath::whole_namespace(Namespace::Agents);
        Need::only("crud/read", self.agent_id.as_ref().map_or_else(all, ResourcePath::agent))
    }

    async fn run(self, call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        let (offset, limit) = (self.offset, self.limit.unwrap_or(LIST_PAGE).clamp(1, LIST_PAGE));
        let (owner, agent) = (&call.caller.owner, self.agent_id.as_ref());
        let page = timers::list(call.venue, owner, agent, self.all, offset, limit).await?;
        let items = page.items.iter().map(TimerView::from).collect();
        Ok(OpOutput::of(&TimerPage { items, total: page.total, offset, next: page.next_offset(offset) }))
    }
}

/// Cancel a timer; what it has sent goes on.
#[derive(Deserialize, JsonSchema)]
pub(super) struct CancelTimer {
    /// as `timer/list` shows it
    pub(super) timer: TimerId,
}

impl Operation for CancelTimer {
    const PATH: &'static str = "v/ops/timer/cancel";
    const EFFECT: Effect = Effect::Idempotent;

    /// The capability is checked in `run`, when the agent is known.
    fn needs(&self) -> Result<Vec<Need>, OpError> {
        Need::none()
    }

    async fn run(self, call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        let (owner, id) = (&call.caller.owner, self.timer);
        let missing = || {
            OpError::NotFound(format!(
                "no timer `{id}`; `timer/list` (`trellis timer list`) shows those that there are"
            ))
        };
        let known = timers::get(call.venue, owner, &id).await?.0.ok_or_else(missing)?;
        // A session may cancel its own wake.
        let own = match &call.site {
            Site::Turn(site) => known.place.is_some() && known.agent == site.lease.session.agent,
            Site::Api { .. } => false,
        };
        if !own {
            let agent = ResourcePath::agent(&known.agent);
            let permitted = call.permit("agent/trigger", agent.clone());
            permitted.map_err(|denied| call.caller.hide_unseen(denied, agent, missing))?;
        }
        let timer = timers::cancel(call.venue, owner, &id).await?.ok_or_else(missing)?;
        Ok(OpOutput::of(&TimerView::from(&timer)))
    }
}
