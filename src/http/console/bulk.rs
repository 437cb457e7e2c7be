//! Pages of an action on many jobs: how many there are, and what became of them.

use super::figures::{TimeText, count_text};
use super::jobs::{FILTER_NAMES, HiddenField, list_address, short_id};
use super::page::{PageFrame, render};
use super::text::{sentence, summary};
use crate::domain::digits::group_digits;
use crate::domain::ids::JobId;
use crate::domain::job::JobStatus;
use crate::http::Api;
use crate::http::extract::{QueryParams, RequestCaller};
use crate::http::jobs as job_api;
use crate::http::problem::Problem;
use crate::http::runs::{operate, read_output};
use crate::ops::job::BatchAction;
use crate::venue::jobs::list::JobListFilter;
use crate::view::job_list::{BulkRequest, BulkView, JobFilterRequest};
use crate::view::to_json;
use askama::Template;
use axum::Form;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;

/// Batches of one request, of 100 jobs each: beyond them a person says that it shall go on.
const BATCHES: usize = 20;

/// Names of the fields of a form that acts on all jobs of a filter, besides those of the filter.
const FORM_NAMES: [&str; 3] = ["action", "expected", "cursor"];

/// An action on jobs in words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct JobActionWords {
    /// Name in requests.
    pub(super) name: &'static str,
    /// Text of its button.
    pub(super) label: &'static str,
    /// Participle for jobs that it was done to.
    done: &'static str,
    /// What can't be undone; empty if everything can.
    warning: &'static str,
    action: BatchAction,
}

/// Actions in the order of their buttons.
const ACTIONS: [JobActionWords; 4] = [
    JobActionWords { name: "pause", label: "Pause", done: "paused", warning: "", action: BatchAction::Pause },
    JobActionWords { name: "resume", label: "Resume", done: "resumed", warning: "", action: BatchAction::Resume },
    JobActionWords {
        name: "redrive",
        label: "Redrive",
        done: "driven again as new jobs",
        warning: "Their models are called again, which costs money.",
        action: BatchAction::Redrive,
    },
    JobActionWords {
        name: "cancel",
        label: "Cancel",
        done: "cancelled",
        warning: "This can't be undone.",
        action: BatchAction::Cancel,
    },
];

/// Lists the actions for jobs in any of these states; without a state, all.
pub(super) fn fitting_actions(statuses: &[JobStatus]) -> Vec<JobActionWords> {
    let fits = |words: &JobActionWords| statuses.iter().all(|status| words.action.accepts(*status));
    ACTIONS.into_iter().filter(fits).collect()
}

fn action_named(name: &str) -> Result<JobActionWords, Problem> {
    let expected = || Problem::bad_request("`action`: expected `pause`, `resume`, `redrive` or `cancel`");
    ACTIONS.into_iter().find(|words| words.name == name).ok_or_else(expected)
}

#[derive(Template)]
#[template(path = "bulk_question.html", config = "src/http/console/askama.toml")]
struct BulkQuestionHtml {
    frame: PageFrame,
    words: JobActionWords,
    count: usize,
    /// What the number is a part of; empty if of nothing.
    note: String,
    /// Each part of the filter in words; empty for all jobs.
    filter: Vec<String>,
    /// Jobs that came later are left alone; absent where they were selected one by one.
    until: Option<TimeText>,
    /// Path that does it.
    target: &'static str,
    fields: Vec<HiddenField>,
    back: String,
}

#[derive(Template)]
#[template(path = "bulk_result.html", config = "src/http/console/askama.toml")]
struct BulkResultHtml {
    frame: PageFrame,
    /// Numbers in words.
    sums: String,
    failures: Vec<JobFailure>,
    /// Fields that go on behind the last batch; empty at the end.
    rest: Vec<HiddenField>,
    back: String,
}

/// A job that the action was not done to, with the reason.
struct JobFailure {
    id: String,
    short_id: String,
    reason: String,
}

/// Numbers of jobs in the batches of one request.
#[derive(Default)]
struct JobSums {
    done: usize,
    already: usize,
    denied: usize,
    failures: Vec<JobFailure>,
    failed: usize,
}

impl BulkQuestionHtml {
    /// Returns the number of jobs in words.
    fn count_text(&self) -> String {
        count_text(self.count as u64, "job")
    }
}

impl JobSums {
    fn add(&mut self, batch: &BulkView) {
        self.done += batch.done;
        self.already += batch.already.unwrap_or(0);
        self.denied += batch.denied.unwrap_or(0);
        self.failed += batch.failed.unwrap_or(0);
        let reasons = batch.reasons.iter().flatten();
        self.failures.extend(reasons.map(|failure| job_failure(&failure.id, &failure.error)));
    }

    fn in_words(&self, done: &str) -> String {
        let left = [
            (self.already, "had ended or were driven again before"),
            (self.denied, "are not yours to do"),
            (self.failed, "failed"),
        ];
        let left = left.iter().filter(|(jobs, _)| *jobs > 0);
        let left = left.map(|(jobs, why)| format!("; {} {why}", group_digits(*jobs as u64)));
        format!("{} {done}{}", count_text(self.done as u64, "job"), left.collect::<String>())
    }
}

fn job_failure(id: &JobId, reason: &str) -> JobFailure {
    JobFailure { id: id.to_string(), short_id: short_id(id.as_str()).to_owned(), reason: sentence(reason) }
}

/// `GET /jobs/bulk`: says how many jobs an action would be done to, and asks.
pub(in crate::http) async fn ask_bulk(
    State(api): State<Api>,
    who: RequestCaller,
    asked: QueryParams,
) -> Result<Response, Problem> {
    let asked = asked.without_blanks();
    let words = action_named(asked.text("action").unwrap_or_default())?;
    let request = bulk_request(&who, words, &asked)?;
    let counting = BulkRequest { dry_run: Some(true), ..request };
    let counted: BulkView = read_output(operate(&api, &who, "v/ops/job/bulk", to_json(&counting)).await?)?;
    let place = [("until", counted.until.to_string()), ("expected", counted.matched.to_string())];
    let page = BulkQuestionHtml {
        frame: PageFrame::new(&who, "/", format!("{} many jobs", words.label)),
        words,
        count: counted.matched,
        note: String::new(),
        filter: filter_words(&asked),
        until: Some(TimeText::new(counted.until, api.venue.now())),
        target: "/jobs/bulk",
        fields: filter_fields(&asked, words, place),
        back: list_address(&asked, "", ""),
    };
    Ok(render(StatusCode::OK, &page))
}

/// `POST /jobs/bulk`: does an action to the jobs that were counted.
pub(in crate::http) async fn act_on_matching(
    State(api): State<Api>,
    who: RequestCaller,
    Form(fields): Form<Vec<(String, String)>>,
) -> Result<Response, Problem> {
    let asked = QueryParams::from_pairs(fields, &[&FILTER_NAMES[..], &FORM_NAMES].concat())?.without_blanks();
    let words = action_named(asked.text("action").unwrap_or_default())?;
    let mut request = bulk_request(&who, words, &asked)?;
    let (mut sums, mut next) = (JobSums::default(), None);
    for _ in 0..BATCHES {
        let batch: BulkView = read_output(operate(&api, &who, "v/ops/job/bulk", to_json(&request)).await?)?;
        sums.add(&batch);
        next = batch.next.as_ref().and_then(|next| next.as_str()).map(str::to_owned);
        let Some(place) = &next else { break };
        request.filter.cursor = Some(place.clone());
    }
    let until = asked.text("until").unwrap_or_default().to_owned();
    let rest = next.map(|place| filter_fields(&asked, words, [("until", until), ("cursor", place)]));
    Ok(result_page(&who, words, sums, rest.unwrap_or_default(), list_address(&asked, "until", "")))
}

/// `POST /jobs/selected`: asks about jobs that were selected one by one, and with `sure` acts on them.
pub(in crate::http) async fn act_on_selected(
    State(api): State<Api>,
    who: RequestCaller,
    Form(fields): Form<Vec<(String, String)>>,
) -> Result<Response, Problem> {
    let field = |name| fields.iter().find(|(known, _)| known == name).map_or("", |(_, text)| text.as_str());
    let words = action_named(field("action"))?;
    let ids = fields.iter().filter(|(name, _)| name == "id").map(|(_, id)| job_api::job_id(id));
    let ids = ids.collect::<Result<Vec<JobId>, Problem>>()?;
    if ids.is_empty() {
        return Err(Problem::bad_request("no job is selected: tick the boxes of some, or act on all that match"));
    }
    let is_sure = field("sure") == "yes";
    let request =
        BulkRequest { dry_run: (!is_sure).then_some(true), only: ids.clone(), ..BulkRequest::new(words.name) };
    let answer: BulkView = read_output(operate(&api, &who, "v/ops/job/bulk", to_json(&request)).await?)?;
    if is_sure {
        let mut sums = JobSums::default();
        sums.add(&answer);
        return Ok(result_page(&who, words, sums, Vec::new(), "/".to_owned()));
    }
    let action = HiddenField { name: "action", value: words.name.to_owned() };
    let sure = HiddenField { name: "sure", value: "yes".to_owned() };
    let chosen = ids.iter().map(|id| HiddenField { name: "id", value: id.to_string() });
    let page = BulkQuestionHtml {
        frame: PageFrame::new(&who, "/", format!("{} selected jobs", words.label)),
        words,
        count: answer.matched,
        note: format!("of {} selected", group_digits(ids.len() as u64)),
        filter: Vec::new(),
        until: None,
        target: "/jobs/selected",
        fields: [action, sure].into_iter().chain(chosen).collect(),
        back: "/".to_owned(),
    };
    Ok(render(StatusCode::OK, &page))
}

fn result_page(
    who: &RequestCaller,
    words: JobActionWords,
    sums: JobSums,
    rest: Vec<HiddenField>,
    back: String,
) -> Response {
    let page = BulkResultHtml {
        frame: PageFrame::new(who, "/", format!("{} jobs", words.label)),
        sums: sums.in_words(words.done),
        failures: sums.failures,
        rest,
        back,
    };
    render(StatusCode::OK, &page)
}

/// Returns the request that the parameters of a page mean.
fn bulk_request(who: &RequestCaller, words: JobActionWords, asked: &QueryParams) -> Result<BulkRequest, Problem> {
    let JobListFilter { statuses, codes, agent, session, since, until, text, reader: _ } =
        job_api::parse_filter(who, asked)?;
    let cursor = asked.text("cursor").map(str::to_owned);
    let filter = JobFilterRequest { status: statuses, code: codes, since, until, q: text, cursor, agent, session };
    let expected = asked.number("expected")?.and_then(|number| usize::try_from(number).ok());
    Ok(BulkRequest { filter, expected, ..BulkRequest::new(words.name) })
}

/// Returns the fields of a form that acts on the filter's jobs; `place` says where it begins and ends.
fn filter_fields(asked: &QueryParams, words: JobActionWords, place: [(&'static str, String); 2]) -> Vec<HiddenField> {
    let kept = FILTER_NAMES.into_iter().filter(|name| *name != "until");
    let kept = kept.filter_map(|name| Some((name, asked.text(name)?.to_owned())));
    let all = kept.chain([("action", words.name.to_owned())]).chain(place);
    all.map(|(name, value)| HiddenField { name, value }).collect()
}

/// Returns each part of the filter in words.
fn filter_words(asked: &QueryParams) -> Vec<String> {
    let labels = [
        ("status", "state"),
        ("agent", "agent"),
        ("q", "text"),
        ("code", "code"),
        ("session", "session"),
        ("since", "accepted since"),
        ("until", "accepted until"),
    ];
    let words = labels.into_iter().filter_map(|(name, label)| Some(format!("{label} {}", summary(asked.text(name)?))));
    words.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_actions_for_all_of_the_states_are_offered() {
        let names = |statuses: &[JobStatus]| fitting_actions(statuses).iter().map(|of| of.name).collect::<Vec<_>>();
        assert_eq!(names(&[]), ["pause", "resume", "redrive", "cancel"]);
        assert_eq!(names(&[JobStatus::Failed]), ["redrive"]);
        assert_eq!(names(&[JobStatus::Pending, JobStatus::Paused]), ["cancel"]);
        assert!(names(&[JobStatus::Complete]).is_empty());
        assert_eq!(action_named("delete").err().map(|problem| problem.status.as_u16()), Some(400));
    }

    #[test]
    fn what_was_not_done_is_said() {
        let sums = JobSums { done: 1_200, already: 2, denied: 1, ..JobSums::default() };
        assert_eq!(
            sums.in_words("cancelled"),
            "1,200 jobs cancelled; 2 had ended or were driven again before; 1 are not yours to do"
        );
        assert_eq!(JobSums { done: 1, ..JobSums::default() }.in_words("paused"), "1 job paused");
    }
}
