//! The page of one agent: what it is, its sessions and turns, and the forms to give it work and to stop it.

use super::agents::agent_address;
use super::figures::{StateSign, TimeText};
use super::job::{PageFact, TurnLink};
use super::jobs::short_id;
use super::page::{LiveUpdates, PageFrame, render, see_other};
use super::text::{EDITABLE_BYTES, Passage, editable_json, sentence, size_text, summary};
use crate::domain::authority::ResourcePath;
use crate::domain::decode;
use crate::domain::ids::{EventId, SessionId};
use crate::domain::lattice::Namespace;
use crate::domain::percent::percent_encode;
use crate::domain::time::Millis;
use crate::http::Api;
use crate::http::agents::submit;
use crate::http::extract::{QueryParams, RequestCaller};
use crate::http::jobs::load_record;
use crate::http::problem::Problem;
use crate::http::runs::{operate, read_output};
use crate::http::turns::{parse_agent, read_turns};
use crate::venue::ingress;
use crate::venue::ledger::turn_list::{TurnFilter, TurnPageRange};
use crate::view::agent::{AgentActivity, AgentView};
use crate::view::job::JobView;
use crate::view::session::{SessionPage, SessionRowView};
use crate::view::to_json;
use askama::Template;
use axum::Form;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::time::Duration;

/// Turns and sessions of one page.
const TURNS_SHOWN: usize = 25;
const SESSIONS_SHOWN: usize = 50;

/// Seconds after which the page is read again.
const REFRESH_SECONDS: u32 = 3;

#[derive(Template)]
#[template(path = "agent.html", config = "src/http/console/askama.toml")]
struct AgentHtml {
    frame: PageFrame,
    address: String,
    sign: StateSign,
    /// Why it waits or is suspended; empty if it does neither.
    reason: String,
    facts: Vec<PageFact>,
    config: Passage,
    sessions: Vec<SessionLink>,
    /// Session whose turns are listed; empty for all.
    session: String,
    turns: Vec<TurnLink>,
    /// Address of older turns; empty after the last.
    older: String,
    /// Key under which a task of the form is accepted once.
    key: String,
    /// Input that the form for a task begins with.
    input: String,
    /// Why the form doesn't begin with the input of the job that was named; empty if it does.
    input_note: String,
    may_request: bool,
    may_suspend: bool,
    may_resume: bool,
}

/// A session in a list.
struct SessionLink {
    id: String,
    address: String,
    title: String,
    status: String,
    turns: u64,
    /// Events in its mailbox, in words.
    mailbox: String,
    updated: TimeText,
}

/// Arguments of operations on one agent.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AgentIdRequest<'a> {
    pub(super) agent_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) limit: Option<usize>,
}

/// Form of a task for an agent.
#[derive(Deserialize, JsonSchema)]
pub(in crate::http) struct TaskForm {
    /// Text of the task; JSON if it is a legal map or list.
    input: String,
    /// Session that serves it; empty for one of its own.
    #[serde(default)]
    session: String,
    /// Idempotency key, so that a form that is sent twice is one task.
    #[serde(default)]
    key: String,
}

/// `GET /agents/{id}`: one agent.
pub(in crate::http) async fn agent(
    State(api): State<Api>,
    who: RequestCaller,
    Path(id): Path<String>,
    asked: QueryParams,
) -> Result<Response, Problem> {
    let asked = asked.without_blanks();
    let of_agent = |limit| to_json(&AgentIdRequest { agent_id: &id, limit });
    let agent: AgentView = read_output(operate(&api, &who, "v/ops/agent/info", of_agent(None)).await?)?;
    let sessions = operate(&api, &who, "v/ops/agent/sessions", of_agent(Some(SESSIONS_SHOWN))).await?;
    let sessions: SessionPage = read_output(sessions)?;
    let session = asked.text("session").map(SessionId::new).transpose().map_err(Problem::bad_request)?;
    let filter = TurnFilter { session: session.clone(), ..TurnFilter::default() };
    let range = TurnPageRange { after: asked.text("cursor"), limit: TURNS_SHOWN };
    let name = parse_agent(&api, &who, &id).await?;
    let turns = read_turns(&api, &who, &name, &filter, range).await?;
    let (now, address) = (api.venue.now(), agent_address(&id));
    let session = session.map(|session| session.to_string()).unwrap_or_default();
    let older = turns
        .next
        .as_ref()
        .map(|next| format!("{address}?session={}&cursor={}", percent_encode(&session), percent_encode(next)));
    let (input, input_note) = match asked.text("again") {
        Some(job) => input_again(&load_record(&api, &who, job, Duration::ZERO).await?),
        None => (String::new(), String::new()),
    };
    let record = &agent.agent;
    let may = |ability| {
        who.caller.authority.permits(ability, ResourcePath::at_keys(Namespace::Agents, [id.as_str()])).is_ok()
    };
    let waiting = agent.waiting.as_ref().map(|wait| format!("waits: {}", wait.reason));
    let page = AgentHtml {
        frame: PageFrame::new(&who, "/agents", format!("Agent {id}")).with_live(LiveUpdates::Every(REFRESH_SECONDS)),
        sign: record.status.into(),
        reason: record.error.clone().or(waiting).map(|text| sentence(&text)).unwrap_or_default(),
        facts: facts(&agent, now),
        config: Passage::of_value(&record.config),
        sessions: sessions.sessions.iter().map(|row| session_link(&address, row, now)).collect(),
        session,
        turns: turns.turns.iter().map(|row| TurnLink::new(&name, row, now)).collect(),
        older: older.unwrap_or_default(),
        key: ingress::fresh_id().as_str().to_owned(),
        input,
        input_note,
        may_request: record.status != AgentActivity::Terminated && may("agent/request"),
        may_suspend: matches!(record.status, AgentActivity::Sleeping | AgentActivity::Running) && may("agent/suspend"),
        may_resume: record.status == AgentActivity::Suspended && may("agent/resume"),
        address,
    };
    Ok(render(StatusCode::OK, &page))
}

/// Returns the input of a job as the form takes it, or why it can't.
fn input_again(job: &JobView) -> (String, String) {
    let input = match &job.input {
        None => return (String::new(), "The input of that job is hidden from you.".to_owned()),
        Some(Value::String(text)) => text.clone(),
        Some(value) => editable_json(value),
    };
    if input.len() > EDITABLE_BYTES {
        let size = size_text(input.len());
        return (
            String::new(),
            format!("The input of that job has {size}, too much for this form: use `trellis submit`."),
        );
    }
    let id = short_id(job.id.as_str());
    (input, format!("This is the input of job {id}, which stays as it is. What you send is a new job."))
}

fn facts(agent: &AgentView, now: Millis) -> Vec<PageFact> {
    let record = &agent.agent;
    let when = |time: Millis| TimeText::new(time, now).ago();
    let caps = record.creator_caps.as_ref().map(|caps| {
        let caps: Vec<String> = caps.iter().map(|cap| format!("{} {}", cap.can, cap.with)).collect();
        caps.join(", ")
    });
    let facts = [
        PageFact::new("Configuration", Some(format!("version {}", record.config_version))),
        PageFact::new("Turns", Some(record.timeline_length.to_string())),
        PageFact::new("Tasks in mailboxes", Some(record.tasks.to_string())),
        PageFact::new("Sessions", Some(record.sessions.to_string())),
        PageFact::new("Created", Some(when(record.created))),
        PageFact::new("Last change", Some(when(record.updated))),
        PageFact::new("Limited to", caps),
    ];
    facts.into_iter().flatten().collect()
}

fn session_link(address: &str, row: &SessionRowView, now: Millis) -> SessionLink {
    let counts = [(row.tasks, "tasks"), (row.messages, "messages"), (row.results, "results")];
    let mailbox = counts.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}"));
    SessionLink {
        id: row.session_id.to_string(),
        address: format!("{address}?session={}", percent_encode(row.session_id.as_str())),
        title: row.title.as_deref().map(summary).unwrap_or_default(),
        status: row.status.to_lowercase(),
        turns: row.turns,
        mailbox: mailbox.collect::<Vec<_>>().join(", "),
        updated: TimeText::new(row.updated, now),
    }
}

/// `POST /agents/{id}/suspend`: stops an agent and shows it.
pub(in crate::http) async fn suspend_agent(
    State(api): State<Api>,
    who: RequestCaller,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    let asked = to_json(&AgentIdRequest { agent_id: &id, limit: None });
    operate(&api, &who, "v/ops/agent/suspend", asked).await?;
    see_other(&agent_address(&id))
}

/// `POST /agents/{id}/resume`: lets an agent run again and shows it.
pub(in crate::http) async fn resume_agent(
    State(api): State<Api>,
    who: RequestCaller,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    let asked = to_json(&AgentIdRequest { agent_id: &id, limit: None });
    operate(&api, &who, "v/ops/agent/resume", asked).await?;
    see_other(&agent_address(&id))
}

/// Body of the API's request for a task.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct TaskSubmission {
    input: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    session_id: Option<String>,
}

impl TaskSubmission {
    fn new(input: &str, session: &str) -> Self {
        // Only what can be nothing but JSON counts as such: `12` and `true` are texts.
        let value = decode::json(input.as_bytes()).ok().filter(|value| value.is_object() || value.is_array());
        let session = session.trim();
        Self {
            input: value.unwrap_or_else(|| input.replace("\r\n", "\n").into()),
            session_id: (!session.is_empty()).then(|| session.to_owned()),
        }
    }
}

/// `POST /agents/{id}/tasks`: submits a task and shows its job.
pub(in crate::http) async fn give_task(
    State(api): State<Api>,
    mut who: RequestCaller,
    Path(id): Path<String>,
    Form(form): Form<TaskForm>,
) -> Result<Response, Problem> {
    if form.input.trim().is_empty() {
        return Err(Problem::bad_request("the task is empty: say what the agent should do"));
    }
    if !form.key.is_empty() {
        who.key = Some(EventId::new(form.key.as_str()).map_err(Problem::bad_request)?);
    }
    let body = to_json(&TaskSubmission::new(&form.input, &form.session)).to_string();
    let submitted = submit(&api, &who, &id, true, body.as_bytes()).await?;
    match &submitted.job {
        Some(job) => see_other(&format!("/jobs/{job}")),
        None => Err(Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "the accepted task has no job")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_task_is_text_unless_it_is_a_map_or_a_list() {
        let input = |text| TaskSubmission::new(text, " ").input;
        assert_eq!(input("{\"a\": 1}"), json!({"a": 1}));
        assert_eq!(input("12"), json!("12"));
        assert_eq!(input("a\r\nb"), json!("a\nb"));
        let sent = to_json(&TaskSubmission::new("x", "s1"));
        assert_eq!(sent, json!({"input": "x", "sessionId": "s1"}));
    }
}
