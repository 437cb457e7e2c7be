//! The page of all jobs, newest first, with its filter.

use super::bulk::{JobActionWords, fitting_actions};
use super::figures::{StateSign, TimeText, cost_text, tokens_text};
use super::page::{LiveUpdates, PageFrame, render};
use super::text::{summary, value_summary};
use crate::domain::job::JobStatus;
use crate::domain::percent::percent_encode;
use crate::domain::time::Millis;
use crate::http::Api;
use crate::http::extract::{QueryParams, RequestCaller};
use crate::http::jobs::find_filtered;
use crate::http::problem::Problem;
use crate::venue::jobs::list::Cursor;
use crate::view::job::JobView;
use askama::Template;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;

/// Jobs of one page.
const JOBS_SHOWN: usize = 50;

/// Seconds after which the first page is read again.
const REFRESH_SECONDS: u32 = 3;

/// Parameters of the filter, which the links of the page keep.
pub(super) const FILTER_NAMES: [&str; 7] = ["status", "agent", "q", "code", "session", "since", "until"];

/// Choices of states above the list, as `status` has them.
const TABS: [(&str, &str); 6] = [
    ("All", ""),
    ("Open", "PENDING,STARTED,PAUSED,INPUT_REQUIRED,AUTH_REQUIRED"),
    ("Waiting for people", "INPUT_REQUIRED,AUTH_REQUIRED,PAUSED"),
    ("Failed", "FAILED"),
    ("Complete", "COMPLETE"),
    ("Cancelled", "CANCELLED,REJECTED"),
];

#[derive(Template)]
#[template(path = "jobs.html", config = "src/http/console/askama.toml")]
struct JobsHtml {
    frame: PageFrame,
    rows: Vec<JobRow>,
    filter: JobFilterFields,
    tabs: Vec<TabLink>,
    /// Actions on selected jobs, and on all that match.
    actions: Vec<ActionLink>,
    /// Address of the next page; empty after the last.
    older: String,
    /// Address of the first page, on all others.
    newest: String,
    /// Time back to which the list was read, where there is more.
    looked_back: Option<TimeText>,
}

/// A choice above a list.
struct TabLink {
    label: &'static str,
    address: String,
    is_current: bool,
}

/// An action on jobs of the list.
struct ActionLink {
    name: &'static str,
    label: &'static str,
    /// Address of the page that asks about all jobs that match.
    address: String,
}

/// The filter as its form shows it.
struct JobFilterFields {
    agent: String,
    text: String,
    status: String,
    /// Parameters that the form keeps and doesn't show.
    hidden: Vec<HiddenField>,
}

impl JobFilterFields {
    /// Whether any parameter leaves out jobs.
    fn is_set(&self) -> bool {
        !(self.agent.is_empty() && self.text.is_empty() && self.status.is_empty() && self.hidden.is_empty())
    }
}

/// A parameter that a form keeps.
pub(super) struct HiddenField {
    pub(super) name: &'static str,
    pub(super) value: String,
}

/// A job in a list.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct JobRow {
    pub(super) id: String,
    pub(super) sign: StateSign,
    /// Agent, or the operation of a job without one.
    pub(super) agent: String,
    /// The error, the reason of a wait, or what was asked.
    pub(super) summary: String,
    pub(super) created: TimeText,
    pub(super) tokens: String,
    pub(super) cost: String,
}

impl JobRow {
    /// Makes the row of a job as it is seen at `now`.
    pub(super) fn new(job: &JobView, now: Millis) -> Self {
        let waiting = job.waiting.as_ref().map(|wait| summary(&format!("waits: {}", wait.reason)));
        let error = job.error.as_deref().map(summary);
        let asked = || job.input.as_ref().map_or_else(|| "hidden".to_owned(), value_summary);
        let used = job.spend.as_ref().and_then(|spend| spend.tree.as_ref().or(spend.own.as_ref()));
        Self {
            id: job.id.to_string(),
            sign: job.status.into(),
            agent: job.agent.as_ref().map_or_else(|| job.op.clone(), ToString::to_string),
            summary: error.or(waiting).unwrap_or_else(asked),
            created: TimeText::new(job.created, now),
            tokens: used.map(tokens_text).unwrap_or_default(),
            cost: used.map(cost_text).unwrap_or_default(),
        }
    }

    /// Returns the beginning of the id.
    pub(super) fn short_id(&self) -> &str {
        short_id(&self.id)
    }
}

/// Returns the beginning of a job's id, by which people tell jobs apart.
pub(super) fn short_id(id: &str) -> &str {
    id.get(..8).unwrap_or(id)
}

/// Returns the address of the list with these parameters; those without a text are left out.
pub(super) fn list_address(asked: &QueryParams, changed: &str, value: &str) -> String {
    let kept = FILTER_NAMES.iter().filter(|name| **name != changed).map(|name| (*name, asked.text(name)));
    let pairs = kept.chain([(changed, Some(value))]).filter_map(|(name, text)| Some((name, text?)));
    let pairs = pairs.filter(|(name, text)| !name.is_empty() && !text.is_empty());
    let query = pairs.map(|(name, text)| format!("{name}={}", percent_encode(text))).collect::<Vec<_>>().join("&");
    if query.is_empty() { "/".to_owned() } else { format!("/?{query}") }
}

/// `GET /`: jobs, newest first.
pub(in crate::http) async fn jobs(
    State(api): State<Api>,
    who: RequestCaller,
    asked: QueryParams,
) -> Result<Response, Problem> {
    let asked = asked.without_blanks();
    let found = find_filtered(&api, &who, &asked, JOBS_SHOWN).await?;
    let (now, reader) = (api.venue.now(), who.caller.reader());
    let rows = found.jobs.iter().map(|job| JobRow::new(&JobView::for_reader(job, &reader), now)).collect();
    let is_first = asked.text("cursor").is_none();
    let live = if is_first { LiveUpdates::Every(REFRESH_SECONDS) } else { LiveUpdates::Never };
    let page = JobsHtml {
        frame: PageFrame::new(&who, "/", "Jobs").with_live(live),
        rows,
        filter: filter_fields(&asked),
        tabs: tab_links(&asked),
        actions: action_links(&asked)?,
        older: found.next.as_ref().map(|next| list_address(&asked, "cursor", next.as_str())).unwrap_or_default(),
        newest: if is_first { String::new() } else { list_address(&asked, "", "") },
        looked_back: found.next.as_ref().map(|next| TimeText::new(Cursor::accepted_at(next), now)),
    };
    Ok(render(StatusCode::OK, &page))
}

fn tab_links(asked: &QueryParams) -> Vec<TabLink> {
    let current = asked.text("status").unwrap_or_default().to_ascii_uppercase();
    let tab = |(label, status): (&'static str, &str)| TabLink {
        label,
        address: list_address(asked, "status", status),
        is_current: current == status,
    };
    TABS.into_iter().map(tab).collect()
}

/// Lists the actions for the states of the filter.
fn action_links(asked: &QueryParams) -> Result<Vec<ActionLink>, Problem> {
    let link = |words: JobActionWords| {
        let list = list_address(asked, "", "");
        let query = list.strip_prefix("/?").map(|query| format!("&{query}")).unwrap_or_default();
        ActionLink { name: words.name, label: words.label, address: format!("/jobs/bulk?action={}{query}", words.name) }
    };
    Ok(fitting_actions(&asked.statuses("status")?).into_iter().map(link).collect())
}

fn filter_fields(asked: &QueryParams) -> JobFilterFields {
    let field = |name| asked.text(name).unwrap_or_default().to_owned();
    let hidden = ["code", "session", "since", "until"].into_iter();
    let hidden = hidden.filter_map(|name| Some(HiddenField { name, value: asked.text(name)?.to_owned() }));
    JobFilterFields { agent: field("agent"), text: field("q"), status: field("status"), hidden: hidden.collect() }
}

/// Returns the address of the list of jobs that failed alike.
pub(super) fn failed_address(agent: Option<&str>, code: Option<&str>) -> String {
    let agent = agent.map(|agent| format!("&agent={}", percent_encode(agent))).unwrap_or_default();
    let code = code.map(|code| format!("&code={}", percent_encode(code))).unwrap_or_default();
    format!("/?status={}{agent}{code}", JobStatus::Failed.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_failed_jobs_has_its_group() {
        assert_eq!(failed_address(Some("a b"), Some("DEAD")), "/?status=FAILED&agent=a%20b&code=DEAD");
        assert_eq!(failed_address(None, None), "/?status=FAILED");
    }
}
