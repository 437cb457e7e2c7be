//! The page of failures: jobs that failed alike, tasks that killed their workers, and what was never delivered.

use super::figures::{TimeText, count_text};
use super::jobs::{JobRow, failed_address};
use super::page::{LiveUpdates, PageFrame, render};
use super::text::{sentence, size_text, summary};
use crate::domain::authority::ResourcePath;
use crate::domain::dead::UnreadableMessage;
use crate::domain::job::JobStatus;
use crate::domain::time::Millis;
use crate::http::Api;
use crate::http::extract::{QueryParams, RequestCaller};
use crate::http::problem::Problem;
use crate::http::runs::{operate, read_output};
use crate::venue::jobs::list::{self, JobListFilter};
use crate::view::dead::{DeadLetterPage, DeadLetterView};
use crate::view::job::JobView;
use crate::view::notification::UndeliveredView;
use crate::view::to_json;
use askama::Template;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::Serialize;

/// Newest failed jobs that are read and grouped.
const FAILURES_READ: usize = 200;

/// Dead letters of one page.
const LETTERS_SHOWN: usize = 25;

/// Seconds after which the page is read again.
const REFRESH_SECONDS: u32 = 10;

#[derive(Template)]
#[template(path = "failures.html", config = "src/http/console/askama.toml")]
struct FailuresHtml {
    frame: PageFrame,
    groups: Vec<FailureGroup>,
    /// Number of failed jobs that were read, in words.
    read: String,
    /// Time back to which failed jobs were read, where there are more.
    looked_back: Option<TimeText>,
    letters: Vec<LetterCard>,
    total: usize,
    /// Address of the next page of dead letters; empty after the last.
    older: String,
    unreadable: Vec<StrayRow>,
    unreadable_total: usize,
    undelivered: Vec<UndeliveredRow>,
}

/// Jobs that failed alike.
struct FailureGroup {
    agent: String,
    code: String,
    count: usize,
    /// Address of the list of these jobs.
    address: String,
    last: JobRow,
    first_seen: TimeText,
}

/// A task that killed too many workers.
struct LetterCard {
    job: String,
    agent: String,
    session: String,
    crashes: u32,
    received: TimeText,
    died: TimeText,
    error: String,
    /// Workers that died, a line each.
    attempts: Vec<String>,
    caller: String,
    redriven: Option<String>,
    may_redrive: bool,
}

/// A message that can't be read.
struct StrayRow {
    subject: String,
    reason: String,
    size: String,
    body: String,
    received: TimeText,
}

/// A notification that was given up.
struct UndeliveredRow {
    webhook: String,
    job: String,
    error: String,
    at: TimeText,
}

/// Arguments of `v/ops/dead/list`.
#[derive(Serialize)]
struct DeadListRequest {
    offset: u64,
    limit: usize,
}

/// `GET /failures`: what has failed, and what can be done about it.
pub(in crate::http) async fn failures(
    State(api): State<Api>,
    who: RequestCaller,
    asked: QueryParams,
) -> Result<Response, Problem> {
    let request = DeadListRequest { offset: asked.number("offset")?.unwrap_or(0), limit: LETTERS_SHOWN };
    let dead: DeadLetterPage = read_output(operate(&api, &who, "v/ops/dead/list", to_json(&request)).await?)?;
    let (now, reader) = (api.venue.now(), who.caller.reader());
    let filter =
        JobListFilter { statuses: vec![JobStatus::Failed], reader: Some(reader.clone()), ..JobListFilter::default() };
    let failed = list::find(&api.venue, who.owner(), &filter, None, FAILURES_READ).await?;
    let views: Vec<JobView> = failed.jobs.iter().map(|job| JobView::for_reader(job, &reader)).collect();
    let page = FailuresHtml {
        frame: PageFrame::new(&who, "/failures", "Failures").with_live(LiveUpdates::Every(REFRESH_SECONDS)),
        groups: group_failures(&views, now),
        read: count_text(views.len() as u64, "failed job"),
        looked_back: failed.next.as_ref().map(|next| TimeText::new(next.accepted_at(), now)),
        letters: dead.items.iter().map(|letter| letter_card(&who, letter, now)).collect(),
        total: dead.total,
        older: dead.next.map(|next| format!("/failures?offset={next}")).unwrap_or_default(),
        unreadable: dead.unreadable.items.iter().map(|stray| stray_row(stray, now)).collect(),
        unreadable_total: dead.unreadable.total,
        undelivered: dead.undelivered.iter().map(|lost| undelivered_row(lost, now)).collect(),
    };
    Ok(render(StatusCode::OK, &page))
}

/// Groups failed jobs, the newest first, by agent and code; the largest group comes first.
fn group_failures(failed: &[JobView], now: Millis) -> Vec<FailureGroup> {
    let mut groups: Vec<FailureGroup> = Vec::new();
    for job in failed {
        let agent = job.agent.as_ref().map(ToString::to_string);
        let code = job.error_code.clone();
        let address = failed_address(agent.as_deref(), code.as_deref());
        let seen = TimeText::new(job.created, now);
        if let Some(group) = groups.iter_mut().find(|group| group.address == address) {
            group.count += 1;
            group.first_seen = seen;
            continue;
        }
        groups.push(FailureGroup {
            agent: agent.unwrap_or_default(),
            code: code.unwrap_or_default(),
            count: 1,
            address,
            last: JobRow::new(job, now),
            first_seen: seen,
        });
    }
    groups.sort_by_key(|group| std::cmp::Reverse(group.count));
    groups
}

fn letter_card(who: &RequestCaller, letter: &DeadLetterView, now: Millis) -> LetterCard {
    let attempts = letter.attempts.iter().map(|died| {
        let lapsed = TimeText::new(died.lapsed, now);
        summary(&format!("{} in turn {}, {} ago", died.worker, died.turn, lapsed.age))
    });
    LetterCard {
        job: letter.job.to_string(),
        agent: letter.agent.to_string(),
        session: letter.session.to_string(),
        crashes: letter.crashes,
        received: TimeText::new(letter.received, now),
        died: TimeText::new(letter.died, now),
        error: sentence(&letter.error),
        attempts: attempts.collect(),
        caller: letter.caller.clone().unwrap_or_default(),
        redriven: letter.redriven.as_ref().map(ToString::to_string),
        may_redrive: letter.redriven.is_none()
            && who.caller.authority.permits("job/redrive", ResourcePath::job(&letter.job)).is_ok(),
    }
}

fn stray_row(stray: &UnreadableMessage, now: Millis) -> StrayRow {
    StrayRow {
        subject: summary(&stray.subject),
        reason: summary(&stray.reason),
        size: size_text(stray.bytes),
        body: summary(&stray.body),
        received: TimeText::new(stray.received, now),
    }
}

fn undelivered_row(lost: &UndeliveredView, now: Millis) -> UndeliveredRow {
    UndeliveredRow {
        webhook: summary(&lost.webhook),
        job: lost.job.to_string(),
        error: summary(&lost.error),
        at: TimeText::new(lost.at, now),
    }
}
