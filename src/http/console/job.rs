//! The page of one job: its state and the reason for it, its turns, values and money, and what can be done with it.

use super::agents::agent_address;
use super::approvals::ApprovalCard;
use super::figures::{StateSign, TimeText, cost_text, count_text, duration_text, tokens_text};
use super::jobs::short_id;
use super::page::{LiveUpdates, PageFrame, plain_text, render, see_other};
use super::text::{Passage, raw_text, sentence, summary};
use super::timeline::{JobTimes, StripTurn, TimeStrip};
use crate::domain::authority::ResourcePath;
use crate::domain::digits::group_digits;
use crate::domain::ids::{AgentId, SessionId};
use crate::domain::job::JobStatus;
use crate::domain::percent::percent_encode;
use crate::domain::time::Millis;
use crate::http::Api;
use crate::http::extract::{JsonBody, QueryParams, RequestCaller};
use crate::http::problem::Problem;
use crate::http::runs::{operate, read_output};
use crate::http::{jobs as job_api, turns as turn_api};
use crate::venue::ledger::turn_list::{TurnFilter, TurnPageRange};
use crate::view::dead::RedriveView;
use crate::view::job::{ChildJobView, JobView, WaitView};
use crate::view::ledger::TurnRowView;
use crate::view::request::IdRequest;
use crate::view::spend::ModelUseView;
use crate::view::to_json;
use askama::Template;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::Value;
use std::time::Duration;

/// Newest turns of the session that are looked through for those of the job.
const TURNS_READ: usize = 100;

#[derive(Template)]
#[template(path = "job.html", config = "src/http/console/askama.toml")]
struct JobHtml {
    frame: PageFrame,
    id: String,
    sign: StateSign,
    /// Agent that serves the job; empty of other operations.
    agent: String,
    agent_address: String,
    wait: Option<WaitLine>,
    facts: Vec<PageFact>,
    related: Vec<RelatedJob>,
    /// Error, output and input.
    values: Vec<NamedPassage>,
    used: Vec<UseRow>,
    turns: Vec<TurnLink>,
    strip: Option<TimeStrip>,
    children: Vec<ChildJob>,
    /// Steps of a pipeline that have ended or run now, in words; empty of other jobs.
    steps: Vec<StepLine>,
    /// Address of the form that gives the same task again, to edit; empty for who may not.
    again: String,
    approvals: Vec<ApprovalCard>,
    actions: Vec<JobAction>,
    is_open: bool,
}

impl JobHtml {
    /// Returns the address of one of its values as plain text.
    fn raw_address(&self, key: &str) -> String {
        format!("/jobs/{}?raw={key}", self.id)
    }
}

/// A fact in words.
pub(super) struct PageFact {
    pub(super) name: &'static str,
    pub(super) text: String,
}

impl PageFact {
    /// Makes a fact of text of any origin; `None` if there is none.
    pub(super) fn new(name: &'static str, text: Option<impl AsRef<str>>) -> Option<Self> {
        Some(Self { name, text: sentence(text?.as_ref()) })
    }
}

/// A long value with its heading.
pub(super) struct NamedPassage {
    pub(super) name: &'static str,
    /// The same name in addresses.
    pub(super) key: &'static str,
    pub(super) passage: Passage,
}

/// Why a job waits, and what would release it.
struct WaitLine {
    reason: String,
    until: Option<TimeText>,
    advice: Option<String>,
    /// The job that it waits for.
    job: Option<String>,
}

/// A job with its relation to this one.
struct RelatedJob {
    relation: &'static str,
    id: String,
}

/// A job that a turn of this one has started.
struct ChildJob {
    id: String,
    sign: StateSign,
    /// Agent, or the operation of a job without one.
    what: String,
}

/// A step of a pipeline that has begun.
struct StepLine {
    name: String,
    is_running: bool,
    /// Child job that does it, while it runs.
    job: Option<String>,
}

/// Model calls of a job, or of it and those under it.
struct UseRow {
    whose: String,
    calls: u32,
    tokens: String,
    cost: String,
    note: String,
}

/// A turn in a list.
pub(super) struct TurnLink {
    pub(super) number: u64,
    pub(super) session: String,
    pub(super) address: String,
    pub(super) model: String,
    /// Names of the called tools, or the beginning of the reply.
    pub(super) summary: String,
    pub(super) begun: TimeText,
    pub(super) duration: String,
    pub(super) tokens: String,
    pub(super) has_failed: bool,
}

/// A form that changes a job.
struct JobAction {
    name: &'static str,
    label: &'static str,
    /// What the button says about what can't be undone; empty if nothing.
    warning: &'static str,
}

impl TurnLink {
    /// Makes the link of a turn as it is seen at `now`.
    pub(super) fn new(agent: &AgentId, row: &TurnRowView, now: Millis) -> Self {
        let record = &row.record;
        let tools: Vec<&str> = record.calls.iter().map(|call| call.tool.as_str()).collect();
        let reply = || record.reply().map(|(text, _)| text.to_owned()).unwrap_or_default();
        let failure =
            || record.failed.and_then(crate::view::job::error_code_name).map(|code| format!("failed: {code}"));
        let said = if tools.is_empty() { failure().unwrap_or_else(reply) } else { tools.join(", ") };
        Self {
            number: record.turn,
            session: row.session.to_string(),
            address: turn_address(agent, &row.session, record.turn),
            model: record.model.clone(),
            summary: if record.hidden { "hidden".to_owned() } else { summary(&said) },
            begun: TimeText::new(record.start, now),
            duration: duration_text(record.end.elapsed_since(record.start)),
            tokens: group_digits(record.usage.input + record.usage.output),
            has_failed: record.failed.is_some(),
        }
    }
}

/// Returns the address of a turn.
pub(super) fn turn_address(agent: &AgentId, session: &SessionId, turn: u64) -> String {
    let (agent, session) = (percent_encode(agent.as_str()), percent_encode(session.as_str()));
    format!("/agents/{agent}/turns/{session}/{turn}")
}

/// `GET /jobs/{id}`: one job; with `raw` one of its values as plain text.
pub(in crate::http) async fn job(
    State(api): State<Api>,
    who: RequestCaller,
    Path(id): Path<String>,
    asked: QueryParams,
) -> Result<Response, Problem> {
    let job = job_api::load_record(&api, &who, &id, Duration::ZERO).await?;
    if let Some(part) = asked.text("raw") {
        return raw_value(&job, part);
    }
    let turns = turns_of_job(&api, &who, &job).await?;
    Ok(render(StatusCode::OK, &job_page(&api, &who, &job, &turns)))
}

fn raw_value(job: &JobView, part: &str) -> Result<Response, Problem> {
    let text = match part {
        "input" => job.input.as_ref().map(raw_text),
        "output" => job.output.as_ref().map(raw_text),
        "error" => job.error.clone(),
        _ => return Err(Problem::bad_request("query `raw`: expected `input`, `output` or `error`")),
    };
    text.map(plain_text).ok_or_else(|| Problem::not_found(format!("job `{}` has no {part} for you", job.id)))
}

/// Returns the newest turns that served a job, the newest first; none for a caller who may not read its agent.
async fn turns_of_job(api: &Api, who: &RequestCaller, job: &JobView) -> Result<Vec<TurnRowView>, Problem> {
    let Some((agent, session)) = job.agent.as_ref().zip(job.session.as_ref()) else { return Ok(Vec::new()) };
    let resource = ResourcePath::agent(agent);
    if who.caller.authority.permits("crud/read", resource).is_err() {
        return Ok(Vec::new());
    }
    let filter = TurnFilter { session: Some(session.clone()), ..TurnFilter::default() };
    let range = TurnPageRange { after: None, limit: TURNS_READ };
    let found = turn_api::read_turns(api, who, agent, &filter, range).await?;
    Ok(found.turns.into_iter().filter(|row| row.record.job.as_ref() == Some(&job.id)).collect())
}

fn job_page(api: &Api, who: &RequestCaller, job: &JobView, turns: &[TurnRowView]) -> JobHtml {
    let (now, is_open) = (api.venue.now(), !job.status.is_terminal());
    let live = if is_open { LiveUpdates::Stream(format!("/jobs/{}/events", job.id)) } else { LiveUpdates::Never };
    let values = [
        ("Error", "error", job.error.as_deref().map(Passage::of_text)),
        ("Output", "output", job.output.as_ref().map(Passage::of_value)),
        ("Input", "input", job.input.as_ref().map(Passage::of_value)),
    ];
    let values =
        values.into_iter().filter_map(|(name, key, passage)| Some(NamedPassage { name, key, passage: passage? }));
    let approvals = job.approvals.iter().flatten();
    JobHtml {
        frame: PageFrame::new(who, "/", format!("Job {}", short_id(job.id.as_str()))).with_live(live),
        id: job.id.to_string(),
        sign: job.status.into(),
        agent: job.agent.as_ref().map(ToString::to_string).unwrap_or_default(),
        agent_address: job.agent.as_ref().map(|agent| agent_address(agent.as_str())).unwrap_or_default(),
        wait: job.waiting.as_ref().map(|wait| wait_line(wait, now)),
        facts: facts(job, now),
        related: related_jobs(job),
        values: values.collect(),
        used: use_rows(job),
        turns: job.agent.iter().flat_map(|agent| turns.iter().map(|row| TurnLink::new(agent, row, now))).collect(),
        strip: time_strip(job, turns, now),
        children: job.children.iter().map(child_job).collect(),
        steps: pipeline_steps(job),
        again: again_address(who, job),
        approvals: approvals.map(|approval| ApprovalCard::new(approval, now, &format!("/jobs/{}", job.id))).collect(),
        actions: job_actions(who, job),
        is_open,
    }
}

fn wait_line(wait: &WaitView, now: Millis) -> WaitLine {
    WaitLine {
        reason: sentence(&wait.reason),
        until: wait.until.map(|until| TimeText::new(until, now)),
        advice: wait.advice.as_deref().map(sentence),
        job: wait.job.as_ref().map(ToString::to_string),
    }
}

fn facts(job: &JobView, now: Millis) -> Vec<PageFact> {
    let when = |time: Millis| TimeText::new(time, now).ago();
    let running = job
        .running
        .as_ref()
        .map(|run| format!("turn {} on worker {}, since {}", run.turn, run.worker, TimeText::new(run.since, now).age));
    let ignored = job.ignored.as_ref().map(|ignored| ignored.session_context.join(", "));
    let facts = [
        PageFact::new("Operation", Some(&job.op)),
        PageFact::new("Session", job.session.as_ref().map(SessionId::as_str)),
        PageFact::new("Asked by", job.caller.as_ref()),
        PageFact::new("Created", Some(when(job.created))),
        PageFact::new("Last change", Some(when(job.updated))),
        PageFact::new("Runs", running),
        PageFact::new("Error code", job.error_code.as_ref()),
        PageFact::new("Advice", job.advice.as_ref()),
        PageFact::new("Hidden from you", job.hidden.as_ref()),
        PageFact::new("Ignored keys", ignored),
        PageFact::new("Output", job.truncated.map(|_| "cut off by the model's limit of tokens")),
        PageFact::new("Worker's queue", job.outbound.as_ref().map(|job| job.queue.as_str())),
    ];
    facts.into_iter().flatten().collect()
}

fn related_jobs(job: &JobView) -> Vec<RelatedJob> {
    let related = [
        ("Parent", job.parent.as_ref()),
        ("Drives again", job.redrive_of.as_ref()),
        ("Driven again as", job.redriven_as.as_ref()),
    ];
    related.into_iter().filter_map(|(relation, id)| Some(RelatedJob { relation, id: id?.to_string() })).collect()
}

/// Returns the time of the job as a strip; `None` without a turn.
fn time_strip(job: &JobView, turns: &[TurnRowView], now: Millis) -> Option<TimeStrip> {
    let agent = job.agent.as_ref()?;
    let is_open = !job.status.is_terminal();
    let times = JobTimes { created: job.created, end: if is_open { now } else { job.updated }, is_open };
    let drawn = turns.iter().rev().map(|row| StripTurn {
        number: row.record.turn,
        address: turn_address(agent, &row.session, row.record.turn),
        start: row.record.start,
        end: row.record.end,
    });
    TimeStrip::new(times, &drawn.collect::<Vec<_>>())
}

fn child_job(child: &ChildJobView) -> ChildJob {
    ChildJob {
        id: child.id.to_string(),
        sign: child.status.into(),
        what: child.agent.as_ref().map_or_else(|| summary(&child.op), ToString::to_string),
    }
}

fn pipeline_steps(job: &JobView) -> Vec<StepLine> {
    let Some(run) = &job.pipeline else { return Vec::new() };
    let running = run.running.iter().map(|step| StepLine {
        name: summary(&step.key),
        is_running: true,
        job: step.job.as_ref().map(ToString::to_string),
    });
    let is_running = |name: &str| run.running.iter().any(|step| step.key == name);
    let ended = run.state.keys().filter(|name| !is_running(name));
    let ended = ended.map(|name| StepLine { name: summary(name), is_running: false, job: None });
    ended.chain(running).collect()
}

fn again_address(who: &RequestCaller, job: &JobView) -> String {
    let Some(agent) = job.agent.as_ref().filter(|_| job.input.is_some()) else { return String::new() };
    let resource = ResourcePath::agent(agent);
    match who.caller.authority.permits("agent/request", resource) {
        Ok(()) => format!("{}?again={}#task", agent_address(agent.as_str()), job.id),
        Err(_) => String::new(),
    }
}

fn use_rows(job: &JobView) -> Vec<UseRow> {
    let Some(spend) = &job.spend else { return Vec::new() };
    let row = |whose: String, used: &ModelUseView| {
        let parts = [
            used.unpriced.map(|calls| format!("{} without a price", count_text(calls.into(), "call"))),
            used.estimated.map(|calls| format!("{} estimated", count_text(calls.into(), "call"))),
            used.cache_read.map(|tokens| format!("{} tokens from the cache", group_digits(tokens))),
            used.partial.map(|_| "not all jobs were read".to_owned()),
        ];
        let note = parts.into_iter().flatten().collect::<Vec<_>>().join(", ");
        UseRow { whose, calls: used.calls, tokens: tokens_text(used), cost: cost_text(used), note }
    };
    let own = spend.own.as_ref().map(|used| row("this job".to_owned(), used));
    let tree = spend.tree.as_ref().filter(|used| used.jobs.is_some_and(|jobs| jobs > 0));
    let tree = tree
        .map(|used| row(format!("with {} under it", count_text(used.jobs.unwrap_or_default().into(), "job")), used));
    own.into_iter().chain(tree).collect()
}

/// Lists what can be done with a job in its state, as far as the caller may do it.
fn job_actions(who: &RequestCaller, job: &JobView) -> Vec<JobAction> {
    let (is_open, is_paused) = (!job.status.is_terminal(), job.status == JobStatus::Paused);
    let is_task = job.agent.is_some();
    let can_redrive = is_task && job.status == JobStatus::Failed && job.redriven_as.is_none();
    let known = [
        (is_paused, "job/resume", JobAction { name: "resume", label: "Resume", warning: "" }),
        (is_open && is_task && !is_paused, "job/pause", JobAction { name: "pause", label: "Pause", warning: "" }),
        (can_redrive, "job/redrive", JobAction { name: "redrive", label: "Redrive as a new job", warning: "" }),
        (is_open, "job/cancel", JobAction { name: "cancel", label: "Cancel", warning: "can't be undone" }),
        (!is_open, "job/delete", JobAction { name: "delete", label: "Delete", warning: "can't be undone" }),
    ];
    let may = |ability| who.caller.authority.permits(ability, ResourcePath::job(&job.id)).is_ok();
    known.into_iter().filter(|(fits, ability, _)| *fits && may(ability)).map(|(_, _, action)| action).collect()
}

/// `POST /jobs/{id}/cancel`: cancels a job and shows it.
pub(in crate::http) async fn cancel_job(
    state: State<Api>,
    who: RequestCaller,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    let address = job_address(&id)?;
    job_api::cancel(state, who, Path(id), JsonBody(Value::Null)).await?;
    see_other(&address)
}

/// `POST /jobs/{id}/delete`: forgets an ended job and shows the list.
pub(in crate::http) async fn delete_job(
    state: State<Api>,
    who: RequestCaller,
    id: Path<String>,
) -> Result<Response, Problem> {
    job_api::delete(state, who, id).await?;
    see_other("/")
}

/// `POST /jobs/{id}/pause`: pauses a job and shows it.
pub(in crate::http) async fn pause_job(
    State(api): State<Api>,
    who: RequestCaller,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    operate(&api, &who, "v/ops/job/pause", to_json(&IdRequest { id: &id })).await?;
    see_other(&job_address(&id)?)
}

/// `POST /jobs/{id}/resume`: lets a paused job go on and shows it.
pub(in crate::http) async fn resume_job(
    State(api): State<Api>,
    who: RequestCaller,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    operate(&api, &who, "v/ops/job/resume", to_json(&IdRequest { id: &id })).await?;
    see_other(&job_address(&id)?)
}

/// `POST /jobs/{id}/redrive`: drives a failed job again and shows the new one.
pub(in crate::http) async fn redrive_job(
    State(api): State<Api>,
    who: RequestCaller,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    let output = operate(&api, &who, "v/ops/dead/redrive", to_json(&IdRequest { id: &id })).await?;
    let driven: RedriveView = read_output(output)?;
    see_other(&job_address(driven.job.as_str())?)
}

fn job_address(id: &str) -> Result<String, Problem> {
    Ok(format!("/jobs/{}", job_api::job_id(id)?))
}
