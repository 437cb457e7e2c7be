//! `v/ops/agent/trigger`, `v/ops/agent/wake` and `v/ops/timer/*`: set, list and cancel timers.
//!
//! From a turn a timer is an effect under an id that is a function of the call, fenced by the lease:
//! a turn that is run again sets nothing twice.

use super::agent::ask::submission;
use super::agent::number;
use super::agent::{narrowed, priority_schema};
use super::child::{self, call_id};
use crate::domain::authority::ResourcePath;
use crate::domain::decode;
use crate::domain::event::Submission;
use crate::domain::ids::{AgentId, sha256_hex};
use crate::domain::lattice::Namespace;
use crate::domain::limits::{LIST_PAGE, TIMER_EVERY, TIMER_FARTHEST, TIMER_GRACE, TIMER_NAME_BYTES};
use crate::domain::time::Millis;
use crate::domain::timer::{
    CatchUp, Overlap, Schedule, Timer, TimerId, TimerKind, TimerOrigin, TimerRequest, duration, instant,
};
use crate::ingress;
use crate::store::{Checkpoint, LeaseCheck};
use crate::venue::agents;
use crate::venue::operation::{
    Caller, Effect, Invocation, Need, OpError, Output, Site, TurnSite, UntypedOperation as Operation,
    UntypedSpec as Spec,
};
use crate::venue::timers;
use async_trait::async_trait;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// What a wake says when nothing else is noted.
const NOTE: &str = "It is the time at which you wanted to be woken.";

#[derive(Clone, Copy)]
enum Verb {
    Trigger,
    Wake,
    List,
    Cancel,
}

struct TimerOperation(Verb);

/// The operations of this group.
pub fn operations() -> Vec<Arc<dyn Operation>> {
    let verbs = [Verb::Trigger, Verb::Wake, Verb::List, Verb::Cancel];
    verbs.into_iter().map(|verb| Arc::new(TimerOperation(verb)) as Arc<dyn Operation>).collect()
}

fn text(about: &str) -> Value {
    json!({"type": "string", "description": about})
}

fn at() -> Value {
    json!({"type": ["string", "integer"], "description": "a time, such as 2026-03-29T09:00:00Z; without an offset it is in `timezone`"})
}

fn after() -> Value {
    json!({"type": ["string", "integer"], "description": "from now, such as 90s, 5m, 1h; a number is milliseconds"})
}

fn trigger() -> Value {
    let trusted = "Trusted code says it.";
    json!({
        "agentId": {"type": "string"},
        "input": {"description": "of the task or message that is sent each time"},
        "at": at(), "after": after(),
        "every": {"type": ["string", "integer"], "description": "again and again, such as 30s, 5m, 1h; a number is milliseconds"},
        "cron": text("minute hour day-of-month month day-of-week, such as `0 9 * * MON-FRI`"),
        "timezone": text("of `cron` and `at`, such as Europe/Berlin; UTC by default"),
        "kind": {"enum": ["task", "message"], "description": "a task is a job each time; task by default"},
        "catchUp": {"enum": ["one", "all", "skip"], "description": "what becomes of times at which nothing ran: one event for all (the default), each, none"},
        "overlap": {"enum": ["skip", "queue"], "description": "while the last one isn't finished: leave this one out, or let it wait (the default)"},
        "sessionId": text("conversation to use"),
        "priority": priority_schema(),
        "name": text("setting a timer of this name again replaces it"),
        "context": narrowed(),
        "contextIds": {"type": "array", "items": {"type": "string"}, "description": format!("Shared buckets. {trusted}"), "x-trusted": true}
    })
}

impl Verb {
    fn spec(self) -> Spec {
        let (path, description, properties, required, effect) = match self {
            Self::Trigger => (
                "v/ops/agent/trigger",
                "Give an agent a task, or a message, at a time: once (`at`, `after`), `every` so often, or by `cron`. With nothing but `agentId`: what is set to be sent to it once, later, is sent now, and what waits in its sessions is looked at.",
                trigger(),
                vec!["agentId"],
                Effect::Idempotent,
            ),
            Self::Wake => (
                "v/ops/agent/wake",
                "Be woken in this conversation at a time, once. It replaces the wake that is set before.",
                json!({"at": at(), "after": after(), "timezone": text("of `at`; UTC by default"), "note": text("what you want to be told then")}),
                vec![],
                Effect::Idempotent,
            ),
            Self::List => (
                "v/ops/timer/list",
                "Timers, the next to fire first.",
                json!({
                    "agentId": text("those of one agent"),
                    "all": {"type": "boolean", "description": "those that fire no more, too"},
                    "offset": {"type": "integer", "minimum": 0}, "limit": {"type": "integer", "minimum": 1}
                }),
                vec![],
                Effect::Read,
            ),
            Self::Cancel => (
                "v/ops/timer/cancel",
                "Cancel a timer; what it has sent goes on.",
                json!({"timer": text("as `timer/list` shows it")}),
                vec!["timer"],
                Effect::Idempotent,
            ),
        };
        let input =
            json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false});
        Spec { path, description, input, effect }
    }
}

fn agent_id(arguments: &Value) -> Result<AgentId, OpError> {
    AgentId::new(arguments["agentId"].as_str().unwrap_or_default()).map_err(|e| OpError::Invalid(e.to_string()))
}

fn choice<T: serde::de::DeserializeOwned + Default>(arguments: &Value, key: &str) -> T {
    decode::typed(arguments[key].clone()).unwrap_or_default()
}

#[async_trait]
impl Operation for TimerOperation {
    fn spec(&self) -> Spec {
        self.0.spec()
    }

    fn needs(&self, arguments: &Value) -> Result<Vec<Need>, OpError> {
        Ok(match self.0 {
            Verb::Trigger if is_now(arguments) => {
                vec![Need { ability: "agent/trigger", resource: ResourcePath::agent(&agent_id(arguments)?) }]
            }
            Verb::Trigger => {
                let resource = ResourcePath::agent(&agent_id(arguments)?);
                // What it sends needs what sending it now would need.
                let sends = match choice::<TimerKind>(arguments, "kind") {
                    TimerKind::Task => "agent/request",
                    TimerKind::Message => "agent/message",
                };
                vec![Need { ability: "agent/trigger", resource: resource.clone() }, Need { ability: sends, resource }]
            }
            Verb::List if arguments["agentId"].is_string() => {
                vec![Need { ability: "crud/read", resource: ResourcePath::agent(&agent_id(arguments)?) }]
            }
            Verb::List => vec![Need { ability: "crud/read", resource: ResourcePath::all(Namespace::Agents) }],
            // One's own session; of a timer it is asked when its agent is known.
            Verb::Wake | Verb::Cancel => Vec::new(),
        })
    }

    async fn invoke(&self, call: &Invocation<'_>, arguments: Value) -> Result<Output, OpError> {
        let owner = &call.caller.owner;
        let value = match self.0 {
            Verb::Trigger if is_now(&arguments) => now(call, &agent_id(&arguments)?).await?,
            Verb::Trigger if arguments["input"].is_null() => {
                return Err(OpError::Invalid("expected `input`, what is sent at that time".into()));
            }
            Verb::Trigger => receipt(&set(call, &wanted(call, &arguments)?).await?),
            Verb::Wake => receipt(&set(call, &wake(call, &arguments)?).await?),
            Verb::List => {
                let agent = arguments["agentId"].is_string().then(|| agent_id(&arguments)).transpose()?;
                let offset = number(&arguments, "offset", 0);
                let limit = number(&arguments, "limit", LIST_PAGE).clamp(1, LIST_PAGE);
                let which = (agent.as_ref(), arguments["all"] == true);
                let page = timers::list(call.venue, owner, which, offset, limit).await?;
                let items: Vec<_> = page.items.iter().map(Timer::shown).collect();
                let next = (offset < page.next && page.next < page.total).then_some(page.next);
                json!({"items": items, "total": page.total, "offset": offset, "next": next})
            }
            Verb::Cancel => cancel(call, &arguments).await?,
        };
        Ok(value.into())
    }
}

/// Nothing but the agent is named.
fn is_now(arguments: &Value) -> bool {
    arguments.as_object().is_some_and(|map| map.iter().all(|(key, value)| key == "agentId" || value.is_null()))
}

/// What waits for a time is done now.
async fn now(call: &Invocation<'_>, agent: &AgentId) -> Result<Value, OpError> {
    let (venue, owner) = (call.venue, &call.caller.owner);
    if let Site::Turn(_) = &call.site {
        // The pause before what a turn sets is what keeps it from setting the next at once.
        return Err(OpError::Conflict("expected `input`: no agent brings forward what was set for later".into()));
    }
    let Some((record, _)) = agents::get(venue, owner, agent).await? else {
        return Err(OpError::NotFound(format!("no agent `{agent}`")));
    };
    let fired = ingress::timers::hurry(venue, owner, agent).await?;
    let woken = agents::wake(venue, owner, agent).await?;
    let status = agents::doing(venue, owner, (agent, record.status)).await?;
    Ok(json!({"agentId": agent, "status": status, "fired": fired, "woken": woken}))
}

fn receipt(timer: &Timer) -> Value {
    json!({"timer": timer.id, "agentId": timer.agent, "next": timer.next.map(Millis::rfc3339)})
}

/// Sets it; in a turn only while the turn holds its lease.
async fn set(call: &Invocation<'_>, wanted: &TimerRequest) -> Result<Timer, OpError> {
    if let Site::Turn(site) = &call.site {
        let mark = Checkpoint { turn: site.turn, ..Checkpoint::default() };
        if call.venue.store.checkpoint(call.venue.now(), site.lease, &mark).await? == LeaseCheck::Fenced {
            return Err(OpError::Fenced);
        }
    }
    ingress::timers::set(call.venue, &call.caller.owner, wanted).await
}

fn wanted(call: &Invocation<'_>, arguments: &Value) -> Result<TimerRequest, OpError> {
    let agent = agent_id(arguments)?;
    let origin = match &call.site {
        Site::Turn(site) => call_id(call.venue, site),
        Site::Api { key } => key.clone().unwrap_or_else(ingress::fresh_id),
    };
    let asked = match &call.site {
        Site::Api { key: Some(_) } => Some(asked(call.caller, arguments)),
        Site::Turn(_) | Site::Api { key: None } => None,
    };
    let name = arguments["name"].as_str().map(str::to_owned);
    if name.as_ref().is_some_and(|name| name.is_empty() || name.len() > TIMER_NAME_BYTES) {
        return Err(OpError::Invalid(format!("`name`: expected 1 to {TIMER_NAME_BYTES} bytes")));
    }
    let id = match &name {
        Some(name) => format!("name/{agent}/{name}"),
        None => format!("set/{origin}"),
    };
    Ok(TimerRequest {
        id: TimerId::of(&id),
        name,
        origin,
        asked,
        place: None,
        kind: choice(arguments, "kind"),
        submission: sent(call, &agent, arguments)?,
        agent,
        schedule: schedule(call, arguments, &["at", "after", "every", "cron"])?,
        catch_up: choice::<CatchUp>(arguments, "catchUp"),
        overlap: choice::<Overlap>(arguments, "overlap"),
    })
}

/// What a caller asks under an id of its own, by which the same is known when it comes again.
fn asked(caller: &Caller, arguments: &Value) -> String {
    let mut said = json!(["timer", arguments, caller.principal.mark()]);
    said.sort_all_objects();
    sha256_hex(said.to_string().as_bytes())
}

/// What it sends. An agent's timer for itself goes on where its turn stands; for another one it is a
/// step further, as a request is.
fn sent(call: &Invocation<'_>, agent: &AgentId, arguments: &Value) -> Result<Submission, OpError> {
    let mut sent = submission(call, arguments, "input")?;
    if !sent.priority.is_normal() && choice::<TimerKind>(arguments, "kind") == TimerKind::Message {
        return Err(OpError::Invalid("`priority`: a message has none, set a timer that sends a task".into()));
    }
    if let Site::Turn(site) = &call.site {
        let own = (site.lease.session.agent == *agent).then(|| call.caller.envelope.lineage.clone());
        match own {
            Some(own) => {
                child::check_way(site, &own, None)?;
                sent.envelope.lineage = own;
            }
            None => child::check_way(site, &sent.envelope.lineage, Some(agent))?,
        }
    }
    Ok(sent)
}

/// When, of exactly one of the keys that say it.
fn schedule(call: &Invocation<'_>, arguments: &Value, keys: &[&str]) -> Result<Schedule, OpError> {
    let now = call.venue.now();
    // What a turn sets costs a turn, which may set the next: there is a pause at least.
    let (once, again) = match call.site {
        Site::Turn(_) => (TIMER_EVERY.1, TIMER_EVERY.1),
        Site::Api { .. } => (Duration::ZERO, TIMER_EVERY.0),
    };
    let given: Vec<_> = keys.iter().filter(|key| !arguments[**key].is_null()).collect();
    let [key] = given.as_slice() else {
        return Err(OpError::Invalid(format!("expected one of `{}`, got {}", keys.join("`, `"), given.len())));
    };
    let named = &arguments[**key];
    let timezone = arguments["timezone"].as_str();
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
    match **key {
        "at" => {
            let at = instant(named, timezone).map_err(invalid)?;
            if now.since(at) > TIMER_GRACE {
                let (at, now) = (at.rfc3339(), now.rfc3339());
                return Err(invalid(format!("{at} has passed, it is {now}; name a time in the future")));
            }
            within(at.since(now), Duration::ZERO)?;
            Ok(Schedule::At(at.max(now.plus(once))))
        }
        "after" => Ok(Schedule::At(now.plus(within(duration(named).map_err(invalid)?, once)?))),
        "every" => {
            let every = within(duration(named).map_err(invalid)?, again)?;
            Ok(Schedule::Every { every: u64::try_from(every.as_millis()).unwrap_or(u64::MAX), start: now })
        }
        _ => {
            let cron = Schedule::Cron {
                expression: named.as_str().unwrap_or_default().to_owned(),
                timezone: timezone.map(str::to_owned),
            };
            cron.times().map_err(OpError::Invalid)?;
            Ok(cron)
        }
    }
}

/// The one wake of the session that calls.
fn wake(call: &Invocation<'_>, arguments: &Value) -> Result<TimerRequest, OpError> {
    let Site::Turn(site) = &call.site else {
        return Err(OpError::Conflict("only a running session can be woken later; use `agent/trigger`".into()));
    };
    let TurnSite { lease, turn, call: index, mandate, .. } = site;
    let session = &lease.session;
    Ok(TimerRequest {
        id: TimerId::of(&format!("wake/{}", session.token())),
        name: Some("wake".into()),
        origin: call_id(call.venue, site),
        asked: None,
        place: Some(TimerOrigin { turn: *turn, call: *index }),
        agent: session.agent.clone(),
        kind: TimerKind::Message,
        submission: Submission {
            input: arguments["note"].as_str().unwrap_or(NOTE).into(),
            session_id: Some(session.session.clone()),
            caller: Some(call.caller.name.clone()),
            session_context: mandate.session_context.clone(),
            context_ids: mandate.context_ids.clone(),
            envelope: call.caller.envelope.clone().under(&call.caller.trail()),
            ..Submission::default()
        },
        schedule: schedule(call, arguments, &["at", "after"])?,
        catch_up: CatchUp::One,
        overlap: Overlap::Queue,
    })
}

async fn cancel(call: &Invocation<'_>, arguments: &Value) -> Result<Value, OpError> {
    let owner = &call.caller.owner;
    let id = TimerId::new(arguments["timer"].as_str().unwrap_or_default());
    let id = id.map_err(|error| OpError::Invalid(format!("`timer`: {error}")))?;
    let missing = || OpError::NotFound(format!("no timer `{id}`; `timer/list` shows those that there are"));
    let known = timers::get(call.venue, owner, &id).await?.0.ok_or_else(missing)?;
    // A session's own wake is its own to take back.
    let own = match &call.site {
        Site::Turn(site) => known.place.is_some() && known.agent == site.lease.session.agent,
        Site::Api { .. } => false,
    };
    if !own {
        let permitted = call.caller.authority.permits("agent/trigger", ResourcePath::agent(&known.agent));
        permitted.map_err(|denied| OpError::Denied(denied.text(call.named)))?;
    }
    let timer = timers::cancel(call.venue, owner, &id).await?.ok_or_else(missing)?;
    Ok(timer.shown())
}
