//! The page of the fleet: workers, the queue, and what the owner has spent today.

use super::figures::{TimeText, cost_text, count_text, dollars_text, duration_text, tokens_text};
use super::page::{LiveUpdates, PageFrame, render};
use super::text::summary;
use crate::domain::digits::group_digits;
use crate::domain::time::Millis;
use crate::http::Api;
use crate::http::extract::RequestCaller;
use crate::http::health::measure_work;
use crate::http::problem::Problem;
use crate::http::runs::{operate, read_output};
use crate::view::spend::{CapView, ModelSpendView, SpendTodayView};
use crate::view::worker::{WorkerView, WorkersView};
use askama::Template;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::{Map, Value};
use std::time::Duration;

/// Seconds after which the page is read again.
const REFRESH_SECONDS: u32 = 3;

/// Most slots that are drawn one by one.
const SLOTS_DRAWN: u32 = 32;

#[derive(Template)]
#[template(path = "fleet.html", config = "src/http/console/askama.toml")]
struct FleetHtml {
    frame: PageFrame,
    /// Work that waits or runs, or why it isn't counted.
    queue: String,
    slots: String,
    workers: Vec<WorkerRow>,
    day: String,
    spent: String,
    models: Vec<ModelRow>,
    caps: Vec<CapRow>,
}

/// A worker in the list.
struct WorkerRow {
    name: String,
    host: String,
    version: String,
    /// Slots as a row of blocks; empty where there are too many.
    drawn: String,
    slots: String,
    state: String,
    class: &'static str,
    since: TimeText,
    seen: TimeText,
}

/// Use of a model on this day.
struct ModelRow {
    model: String,
    calls: u32,
    tokens: String,
    cost: String,
}

/// A limit on spending.
struct CapRow {
    what: String,
    limits: String,
    is_reached: bool,
    resets: Option<TimeText>,
}

/// `GET /fleet`: workers, queue and spending, for operators.
pub(in crate::http) async fn fleet(State(api): State<Api>, who: RequestCaller) -> Result<Response, Problem> {
    let nothing = || Value::Object(Map::new());
    let workers: WorkersView = read_output(operate(&api, &who, "v/ops/worker/list", nothing()).await?)?;
    let spend: SpendTodayView = read_output(operate(&api, &who, "v/ops/spend/today", nothing()).await?)?;
    let count = |number: i64| u64::try_from(number).unwrap_or(0);
    let queue = match measure_work(&api).await {
        Ok(work) => {
            let oldest = Duration::from_secs(count(work.oldest_seconds));
            let oldest =
                if work.messages > 0 { format!(", the oldest for {}", duration_text(oldest)) } else { String::new() };
            let (messages, busy) = (count(work.messages), count(work.work - work.messages));
            let messages = count_text(messages, "message");
            format!("{messages} in the queue{oldest}; {} busy or due", count_text(busy, "session"))
        }
        Err(reason) => format!("not counted: {reason}"),
    };
    let now = api.venue.now();
    let live = workers.workers.iter().filter(|worker| worker.state != "silent");
    let (busy, slots) = live.fold((0, 0), |(busy, slots), of| (busy + of.busy, slots + of.slots));
    let page = FleetHtml {
        frame: PageFrame::new(&who, "/fleet", "Fleet").with_live(LiveUpdates::Every(REFRESH_SECONDS)),
        queue,
        slots: format!("{busy} of {slots}"),
        workers: workers.workers.iter().map(|worker| worker_row(worker, now)).collect(),
        day: format!("{} ({})", spend.day, spend.zone),
        spent: spent_text(&spend),
        models: spend.models.iter().map(model_row).collect(),
        caps: spend.caps.iter().map(|cap| cap_row(cap, now)).collect(),
    };
    Ok(render(StatusCode::OK, &page))
}

fn worker_row(worker: &WorkerView, now: Millis) -> WorkerRow {
    let draw = |slot| if slot < worker.busy { '▮' } else { '▯' };
    WorkerRow {
        name: summary(&worker.name),
        host: summary(&worker.host),
        version: summary(&worker.version),
        drawn: if worker.slots <= SLOTS_DRAWN { (0..worker.slots).map(draw).collect() } else { String::new() },
        slots: format!("{} of {}", worker.busy, worker.slots),
        class: match worker.state.as_str() {
            "works" => "complete",
            "silent" => "failed",
            _ => "waiting",
        },
        state: worker.state.clone(),
        since: TimeText::new(worker.since, now),
        seen: TimeText::new(worker.seen, now),
    }
}

fn spent_text(spend: &SpendTodayView) -> String {
    let used = &spend.spent;
    let cost = used.cost.map_or_else(|| "no price known".to_owned(), |_| cost_text(used));
    let least = if spend.partial { "at least " } else { "" };
    format!("{least}{} calls, {} tokens, {cost}", used.calls, group_digits(used.input + used.output))
}

fn model_row(of: &ModelSpendView) -> ModelRow {
    ModelRow {
        model: summary(&of.model),
        calls: of.spent.calls,
        tokens: tokens_text(&of.spent),
        cost: cost_text(&of.spent),
    }
}

fn cap_row(cap: &CapView, now: Millis) -> CapRow {
    let whose = cap.user.as_ref().or(cap.model.as_ref()).map(|name| format!(" {name}")).unwrap_or_default();
    let tokens = cap.tokens.map(|of| {
        format!("{} of {} tokens, {} held", group_digits(of.used), group_digits(of.limit), group_digits(of.held))
    });
    let cost = cap
        .cost
        .map(|of| format!("{} of {}, {} held", dollars_text(of.used), dollars_text(of.limit), dollars_text(of.held)));
    CapRow {
        what: summary(&format!("{}{whose}", cap.of)),
        limits: tokens.into_iter().chain(cost).collect::<Vec<_>>().join("; "),
        is_reached: cap.reached,
        resets: cap.resets.map(|resets| TimeText::new(resets, now)),
    }
}
