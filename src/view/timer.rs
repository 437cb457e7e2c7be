//! Answers about timers: what setting, listing, cancelling and firing them gives. Times are in RFC 3339.

use crate::domain::ids::{AgentId, JobId, SessionId};
use crate::domain::priority::Priority;
use crate::domain::time::Millis;
use crate::domain::timer::{CatchUpPolicy, OverlapPolicy, Schedule, SentEvent, Timer, TimerId, TimerKind, TimerPhase};
use crate::view::agent::AgentActivity;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::time::Duration;

/// A page of an owner's timers, the next to fire first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TimerPage {
    /// Timers of the page.
    pub items: Vec<TimerView>,
    /// Timers in the whole list.
    pub total: usize,
    /// Timers before the page.
    pub offset: usize,
    /// `offset` of the next page; null after the last.
    pub next: Option<usize>,
}

/// A timer: its schedule, and what it has sent so far.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TimerView {
    /// Id of the timer.
    pub timer: TimerId,
    /// Name for people; a timer that is set under it replaces this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Agent that gets its events.
    pub agent_id: AgentId,
    /// Kind of its events.
    pub kind: TimerKind,
    /// Input of each event; absent is null.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input: Option<Value>,
    /// Session that gets its events; absent where each event begins one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
    /// Whether it will still fire.
    #[schemars(extend("enum" = ["active", "fired", "cancelled", "failed"]))]
    pub state: String,
    /// Planned time of the next event; absent where it fires no more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// Last event that it sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last: Option<TimerEventView>,
    /// Number of events sent.
    pub fired: u64,
    /// Number of planned times left out.
    pub skipped: u64,
    /// Treatment of times at which nothing ran.
    pub catch_up: CatchUpPolicy,
    /// Treatment of times at which the last event isn't finished.
    pub overlap: OverlapPolicy,
    /// Time at which it was set.
    pub created: String,
    /// Name of the caller who set it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Priority of its tasks; absent is 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<i8>", extend("enum" = [-1, 1]))]
    pub priority: Option<Priority>,
    /// Time of a timer that fires once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    /// Pause between events of a periodic timer, e.g. `5m`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub every: Option<String>,
    /// Cron expression of a timer that goes by the clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cron: Option<String>,
    /// Time zone of the cron expression.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timezone: Option<String>,
    /// Reason why it is tried again later.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits: Option<String>,
    /// Reason why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl From<&Timer> for TimerView {
    fn from(timer: &Timer) -> Self {
        let submission = &timer.submission;
        let (state, error) = match &timer.phase {
            TimerPhase::Active => ("active", None),
            TimerPhase::Fired => ("fired", None),
            TimerPhase::Cancelled => ("cancelled", None),
            TimerPhase::Failed { error } => ("failed", Some(error.clone())),
        };
        let is_delayed = timer.is_active() && timer.tries > 0;
        let waits = is_delayed
            .then(|| format!("the mailbox is full; tried {} times, again at {}", timer.tries, timer.due.rfc3339()));
        let shown = Self {
            timer: timer.id.clone(),
            name: timer.name.clone(),
            agent_id: timer.agent.clone(),
            kind: timer.kind,
            input: Some(submission.input.clone()).filter(|input| !input.is_null()),
            session_id: submission.session_id.clone(),
            state: state.to_owned(),
            next: timer.next.map(Millis::rfc3339),
            last: timer.last.as_ref().map(TimerEventView::from),
            fired: timer.fired,
            skipped: timer.skipped,
            catch_up: timer.catch_up,
            overlap: timer.overlap,
            created: timer.created.rfc3339(),
            by: submission.caller.clone(),
            priority: Some(submission.priority).filter(|priority| !priority.is_normal()),
            at: None,
            every: None,
            cron: None,
            timezone: None,
            waits,
            error,
        };
        match &timer.schedule {
            Schedule::At(at) => Self { at: Some(at.rfc3339()), ..shown },
            Schedule::Every { every, .. } => {
                let every = humantime::format_duration(Duration::from_millis(*every)).to_string();
                Self { every: Some(every), ..shown }
            }
            Schedule::Cron { expression, timezone } => {
                let timezone = timezone.as_deref().unwrap_or("UTC").to_owned();
                Self { cron: Some(expression.clone()), timezone: Some(timezone), ..shown }
            }
        }
    }
}

/// An event that a timer sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TimerEventView {
    /// Planned time of the event.
    pub at: String,
    /// Id of the event.
    pub id: String,
    /// Job of a task; null for a message.
    pub job: Option<JobId>,
    /// Session that got the event.
    pub session_id: SessionId,
}

impl From<&SentEvent> for TimerEventView {
    fn from(sent: &SentEvent) -> Self {
        Self {
            at: sent.at.rfc3339(),
            id: sent.event.to_string(),
            job: sent.job.clone(),
            session_id: sent.session.clone(),
        }
    }
}

/// Answer of `agent/trigger`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum TriggerView {
    /// A timer was set.
    Set(TimerSetView),
    /// Nothing was set: the agent's timers fired at once.
    FiredNow(TimersFiredView),
}

/// A timer that was set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TimerSetView {
    /// Id of the timer.
    pub timer: TimerId,
    /// Agent that gets its events.
    pub agent_id: AgentId,
    /// Planned time of the next event; null where it fires no more.
    pub next: Option<String>,
}

impl From<&Timer> for TimerSetView {
    fn from(timer: &Timer) -> Self {
        let next = timer.next.map(Millis::rfc3339);
        Self { timer: timer.id.clone(), agent_id: timer.agent.clone(), next }
    }
}

/// Timers of an agent that fired before their time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TimersFiredView {
    /// Id of the agent.
    pub agent_id: AgentId,
    /// Status of the agent after the wait.
    pub status: AgentActivity,
    /// Ids of the timers that fired.
    pub fired: Vec<TimerId>,
    /// Number of sessions with pending events, which were woken.
    pub woken: usize,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::event::Submission;
    use crate::domain::ids::EventId;
    use crate::domain::timer::TimerRequest;
    use crate::view::to_json;
    use serde_json::json;

    #[test]
    fn a_timer_shows_its_times_and_no_nulls() {
        let id = TimerId::from_text("x");
        let wanted = TimerRequest {
            id: id.clone(),
            name: None,
            origin: EventId::new("o").unwrap(),
            asked: None,
            place: None,
            agent: "a".parse().unwrap(),
            kind: TimerKind::Task,
            submission: Submission { priority: Priority::Low, ..Submission::default() },
            schedule: Schedule::Every { every: 10_000, start: Millis(0) },
            catch_up: CatchUpPolicy::One,
            overlap: OverlapPolicy::Queue,
        };
        let timer = Timer::new(wanted, 0, Millis(0), Millis(0)).unwrap();
        let sent = SentEvent {
            at: Millis(1_000),
            event: EventId::new("e").unwrap(),
            job: None,
            session: "s".parse().unwrap(),
        };
        let failed = Timer { last: Some(sent), ..timer.clone() };
        let failed = failed.end(TimerPhase::Failed { error: "gone".to_owned() }, Millis(2_000));
        let mut shown = json!({
            "timer": id, "agentId": "a", "kind": "task", "state": "active", "next": "1970-01-01T00:00:10.000Z",
            "fired": 0, "skipped": 0, "catchUp": "one", "overlap": "queue", "created": "1970-01-01T00:00:00.000Z",
            "priority": -1, "every": "10s",
        });
        assert_eq!(to_json(&TimerView::from(&timer)), shown);
        let late = Timer { tries: 2, ..timer };
        shown["waits"] = "the mailbox is full; tried 2 times, again at 1970-01-01T00:00:10.000Z".into();
        assert_eq!(to_json(&TimerView::from(&late)), shown);
        if let Some(map) = shown.as_object_mut() {
            map.retain(|key, _| !["waits", "next"].contains(&key.as_str()));
        }
        shown["state"] = "failed".into();
        shown["error"] = "gone".into();
        shown["last"] = json!({"at": "1970-01-01T00:00:01.000Z", "id": "e", "job": null, "sessionId": "s"});
        assert_eq!(to_json(&TimerView::from(&failed)), shown);
    }
}
