//! The page of timers: when agents get their next task or message, and what was left out.

use super::agents::agent_address;
use super::figures::{StateSign, TimeText, count_text};
use super::page::{LiveUpdates, PageFrame, render, see_other};
use super::session::local_path;
use super::text::{sentence, summary, value_summary};
use crate::domain::authority::ResourcePath;
use crate::domain::percent::percent_encode;
use crate::domain::time::Millis;
use crate::domain::timer::TimerKind;
use crate::http::Api;
use crate::http::extract::{QueryParams, RequestCaller};
use crate::http::problem::Problem;
use crate::http::runs::{operate, read_output};
use crate::view::timer::{TimerPage, TimerView};
use crate::view::to_json;
use askama::Template;
use axum::Form;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Timers of one page.
const TIMERS_SHOWN: usize = 50;

/// Seconds after which the list is read again.
const REFRESH_SECONDS: u32 = 10;

#[derive(Template)]
#[template(path = "timers.html", config = "src/http/console/askama.toml")]
struct TimersHtml {
    frame: PageFrame,
    rows: Vec<TimerRow>,
    /// Number of timers in the whole list, in words.
    total: String,
    /// Agent whose timers are listed; empty for all.
    agent: String,
    /// Whether timers that fire no more are listed, too.
    is_all: bool,
    /// Address of this page, to which its forms lead back.
    address: String,
    /// Address of the next page; empty after the last.
    more: String,
}

/// A timer in the list.
struct TimerRow {
    id: String,
    /// Name that its owner gave it; empty without one.
    name: String,
    agent: String,
    agent_address: String,
    sign: StateSign,
    /// Kind and input of its events.
    what: String,
    schedule: String,
    /// Time zone of a cron expression; empty for other schedules.
    zone: String,
    next: Option<TimeText>,
    last: Option<FiredEvent>,
    /// Events sent and times left out, in words.
    counts: String,
    /// Why it is tried again later, or failed; empty for neither.
    reason: String,
    /// Name of the caller who set it.
    by: String,
    may_cancel: bool,
}

/// The last event of a timer.
struct FiredEvent {
    at: TimeText,
    /// Job of a task; `None` for a message.
    job: Option<String>,
}

/// Arguments of `v/ops/timer/list`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct TimerListRequest<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    agent_id: Option<&'a str>,
    all: bool,
    offset: u64,
    limit: usize,
}

/// Arguments of `v/ops/timer/cancel`.
#[derive(Serialize)]
struct TimerCancellation<'a> {
    timer: &'a str,
}

/// Form that cancels a timer.
#[derive(Deserialize, JsonSchema)]
pub(in crate::http) struct TimerForm {
    /// Path to go to afterwards.
    #[serde(default)]
    next: String,
}

/// `GET /timers`: timers, the next to fire first.
pub(in crate::http) async fn timers(
    State(api): State<Api>,
    who: RequestCaller,
    asked: QueryParams,
) -> Result<Response, Problem> {
    let asked = asked.without_blanks();
    let (agent, is_all) = (asked.text("agent"), asked.flag("all")?);
    let offset = asked.number("offset")?.unwrap_or(0);
    let request = TimerListRequest { agent_id: agent, all: is_all, offset, limit: TIMERS_SHOWN };
    let page: TimerPage = read_output(operate(&api, &who, "v/ops/timer/list", to_json(&request)).await?)?;
    let now = api.venue.now();
    let address = |offset: u64| list_address(agent.unwrap_or_default(), is_all, offset);
    let shown = TimersHtml {
        frame: PageFrame::new(&who, "/timers", "Timers").with_live(LiveUpdates::Every(REFRESH_SECONDS)),
        rows: page.items.iter().map(|timer| timer_row(&who, timer, now)).collect(),
        total: count_text(page.total as u64, "timer"),
        agent: agent.unwrap_or_default().to_owned(),
        is_all,
        address: address(offset),
        more: page.next.map(|next| address(next as u64)).unwrap_or_default(),
    };
    Ok(render(StatusCode::OK, &shown))
}

fn list_address(agent: &str, is_all: bool, offset: u64) -> String {
    format!("/timers?agent={}&all={is_all}&offset={offset}", percent_encode(agent))
}

fn timer_row(who: &RequestCaller, timer: &TimerView, now: Millis) -> TimerRow {
    let moment = |time: &String| Millis::parse(time).map(|time| TimeText::new(time, now));
    let (schedule, zone) = schedule_text(timer);
    let kind = match timer.kind {
        TimerKind::Task => "task",
        TimerKind::Message => "message",
    };
    let input = timer.input.as_ref().map(|input| format!(": {}", value_summary(input))).unwrap_or_default();
    let is_active = timer.state == "active";
    TimerRow {
        id: timer.timer.to_string(),
        name: timer.name.as_deref().map(summary).unwrap_or_default(),
        agent: timer.agent_id.to_string(),
        agent_address: agent_address(timer.agent_id.as_str()),
        sign: state_sign(timer),
        what: format!("{kind}{input}"),
        schedule,
        zone,
        next: timer.next.as_ref().and_then(moment),
        last: timer.last.as_ref().and_then(|sent| {
            Some(FiredEvent { at: moment(&sent.at)?, job: sent.job.as_ref().map(ToString::to_string) })
        }),
        counts: counts_text(timer.fired, timer.skipped),
        reason: timer.error.as_ref().or(timer.waits.as_ref()).map(|text| sentence(text)).unwrap_or_default(),
        by: timer.by.as_deref().map(summary).unwrap_or_default(),
        may_cancel: is_active
            && who.caller.authority.permits("agent/trigger", ResourcePath::agent(&timer.agent_id)).is_ok(),
    }
}

fn state_sign(timer: &TimerView) -> StateSign {
    let [class, glyph, word] = match timer.state.as_str() {
        "active" if timer.waits.is_some() => ["waiting", "‖", "tried again"],
        "active" => ["started", "▶", "active"],
        "fired" => ["complete", "✓", "fired"],
        "failed" => ["failed", "✕", "failed"],
        _ => ["cancelled", "⊘", "cancelled"],
    };
    StateSign { class, glyph, word }
}

/// Returns the schedule of a timer, and the time zone of a cron expression.
fn schedule_text(timer: &TimerView) -> (String, String) {
    if let Some(cron) = &timer.cron {
        return (summary(cron), timer.timezone.as_deref().map(summary).unwrap_or_default());
    }
    let text = match (&timer.every, &timer.at) {
        (Some(every), _) => format!("every {every}"),
        (None, Some(at)) => format!("once, {at}"),
        (None, None) => String::new(),
    };
    (text, String::new())
}

fn counts_text(fired: u64, skipped: u64) -> String {
    let missed = (skipped > 0).then(|| format!("{} left out", count_text(skipped, "time")));
    [Some(count_text(fired, "event")), missed].into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// `POST /timers/{id}/cancel`: cancels a timer and shows the list.
pub(in crate::http) async fn cancel_timer(
    State(api): State<Api>,
    who: RequestCaller,
    Path(id): Path<String>,
    Form(form): Form<TimerForm>,
) -> Result<Response, Problem> {
    operate(&api, &who, "v/ops/timer/cancel", to_json(&TimerCancellation { timer: &id })).await?;
    let next = local_path(&form.next);
    see_other(if next.starts_with("/timers") { next } else { "/timers" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_name_what_was_left_out() {
        assert_eq!(counts_text(1, 0), "1 event");
        assert_eq!(counts_text(2_000, 1), "2,000 events, 1 time left out");
        assert_eq!(list_address("a b", true, 50), "/timers?agent=a%20b&all=true&offset=50");
    }
}
