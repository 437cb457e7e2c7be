//! The second part of the demo: a typed output that is refused once, a busy provider, a cancelled call, and a task that
//! kills its workers and is redriven.

use super::super::agent::{AgentLayers, CreateAgentRequest, UpdateAgentRequest};
use super::super::client::{Client, read_view};
use super::super::escape::escape_data;
use super::super::exit::Failure;
use super::super::job::CancelJobBody;
use super::super::output::format_line;
use super::super::submit::AgentTaskRequest;
use super::calls::LoggedCalls;
use super::folder::DemoFolder;
use super::printer::{Printer, fit_line};
use super::process::{CRASH_LIMIT, DemoServer};
use super::times::{PARAGRAPH_PAUSE, READ_PAUSE, TASKS_TIME_LIMIT};
use super::turns::read_timeline;
use crate::domain::ids::JobId;
use crate::domain::job::JobStatus;
use crate::view::dead::{DeadLetterPage, RedriveView};
use crate::view::job::JobView;
use crate::view::ledger::TurnMessageView;
use crate::view::request::{IdRequest, StartedRequestView};
use crate::view::tree::TimelineTurnView;
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Columns of a line's words.
const TEXT_COLUMNS: usize = 70;

/// Result of this part.
#[derive(Debug)]
pub(crate) struct Trouble {
    /// Summary for JSON output.
    pub(crate) summary: TroubleSummary,
    /// Differences from the expected results.
    pub(crate) problems: Vec<String>,
}

/// What came of each trouble.
#[derive(Debug, Serialize)]
pub(crate) struct TroubleSummary {
    /// Output of the typed task.
    typed: Option<Value>,
    /// Why the retried task waited.
    retried: String,
    /// Status of the cancelled task.
    cancelled: JobStatus,
    /// Error code of the task that killed its workers.
    dead: Option<String>,
    /// Output of that task when it was driven again.
    redriven: Option<Value>,
}

/// Waits until a job's record, read over HTTP, is as wanted.
async fn wait_for_record(client: &Client, job: &JobId, wanted: impl Fn(&JobView) -> bool) -> Result<JobView, Failure> {
    let start = Instant::now();
    loop {
        let answer = client.get(&format!("jobs/{job}"), &[]).await?;
        let record: JobView = read_view(answer.clone())?;
        if wanted(&record) {
            return Ok(record);
        }
        if start.elapsed() > TASKS_TIME_LIMIT {
            return Err(Failure::internal(format!("no progress of job {job} within {TASKS_TIME_LIMIT:?}: {answer}")));
        }
        sleep(READ_PAUSE).await;
    }
}

fn is_ended(record: &JobView) -> bool {
    !matches!(record.status, JobStatus::Pending | JobStatus::Started)
}

/// Formats the output of a job in one line.
fn format_output(record: &JobView) -> String {
    record.output.as_ref().map(format_line).unwrap_or_default()
}

/// Creates an agent with this configuration and the scripted model, and gives it a task.
async fn submit(client: &Client, agent: &str, mut config: Map<String, Value>, input: Value) -> Result<JobId, Failure> {
    config.insert("model".to_owned(), json!({"provider": "scripted", "name": "rules"}));
    let layers = AgentLayers::from_config(Value::Object(config));
    client.run("v/ops/agent/create", &CreateAgentRequest::new(agent, &layers), None).await?;
    let answer = client.run("v/ops/agent/request", &AgentTaskRequest::new(agent, input), None).await?;
    let StartedRequestView { job, .. } = read_view(answer)?;
    Ok(job)
}

/// Waits until the process `pid` calls the model of `agent`.
async fn wait_for_call(folder: &DemoFolder, pid: u32, agent: &str) -> Result<(), Failure> {
    let start = Instant::now();
    let part = format!("/{agent}/");
    while !LoggedCalls::read(&folder.calls()).running_turns(pid).iter().any(|turn| turn.contains(&part)) {
        if start.elapsed() > TASKS_TIME_LIMIT {
            return Err(Failure::internal(format!("the model of `{agent}` was not asked within {TASKS_TIME_LIMIT:?}")));
        }
        sleep(READ_PAUSE).await;
    }
    Ok(())
}

/// Runs all four troubles; returns the server, which may be another one after it.
pub(crate) async fn tell(
    up: DemoServer,
    folder: &DemoFolder,
    printer: &Printer,
) -> Result<(DemoServer, Trouble), Failure> {
    printer.caption("And what goes wrong in a fleet: four more agents, each with a trouble of its own")?;
    let typed = run_planner(&up.client, printer).await?;
    printer.pause(PARAGRAPH_PAUSE).await;
    let (retried, reason) = run_caller(&up.client, printer).await?;
    let cancelled = run_dreamer(&up, folder, printer).await?;
    printer.pause(PARAGRAPH_PAUSE).await;
    let (up, dead, redriven) = run_parser(up, folder, printer).await?;
    let mut problems = Vec::new();
    for (what, record, status) in [
        ("the typed task", &typed, JobStatus::Complete),
        ("the retried task", &retried, JobStatus::Complete),
        ("the cancelled task", &cancelled, JobStatus::Cancelled),
        ("the dead task", &dead, JobStatus::Failed),
        ("the redriven task", &redriven, JobStatus::Complete),
    ] {
        if record.status != status {
            let (found, expected) = (record.status.as_str(), status.as_str());
            problems.push(format!("{what} is {found}, expected {expected}"));
        }
    }
    let counted = typed.output.as_ref().and_then(|output| output.get("count")).and_then(Value::as_u64);
    if counted != Some(3) {
        let found = typed.output.clone().unwrap_or_default();
        problems.push(format!("expected the typed output `{{count: 3, …}}`, got {found}"));
    }
    let summary = TroubleSummary {
        typed: typed.output,
        retried: reason,
        cancelled: cancelled.status,
        dead: dead.error_code,
        redriven: redriven.output,
    };
    Ok((up, Trouble { summary, problems }))
}

async fn run_planner(client: &Client, printer: &Printer) -> Result<JobView, Failure> {
    let schema = json!({
        "type": "object", "properties": {"count": {"type": "integer"}, "reason": {"type": "string"}},
        "required": ["count"], "additionalProperties": false
    });
    let config = Map::from_iter([
        ("loop".to_owned(), json!("goalTree")),
        ("tools".to_owned(), json!(["subgoal"])),
        ("outputs".to_owned(), json!({"complete": {"schema": schema}})),
    ]);
    printer.entry("planner", "a goal tree with a typed output, {count: integer, reason?: string}")?;
    let job = submit(client, "planner", config, json!("How many invoices can be paid?")).await?;
    let record = wait_for_record(client, &job, is_ended).await?;
    for TimelineTurnView { record, .. } in read_timeline(client, "planner").await? {
        let shown: Vec<_> = record.said.iter().filter_map(format_message).collect();
        let line = format!("turn {} in goal {}: {}", record.turn, record.frame.unwrap_or(0), shown.join("; "));
        printer.entry("", &fit_line(&line, TEXT_COLUMNS))?;
    }
    printer.entry("", &format!("output {}", record.output.clone().unwrap_or_default()))?;
    Ok(record)
}

/// Formats a message of a turn; `None` if it has no text.
fn format_message(message: &TurnMessageView) -> Option<String> {
    match message {
        TurnMessageView::Tool { name, text, .. } => Some(format!("{} → {}", escape_data(name), escape_data(text))),
        TurnMessageView::User { text, .. } | TurnMessageView::Assistant { text, .. } => {
            (!text.is_empty()).then(|| format!("“{}”", escape_data(text)))
        }
    }
}

/// Runs a task whose provider is busy once. Returns its record, and why it waited.
async fn run_caller(client: &Client, printer: &Printer) -> Result<(JobView, String), Failure> {
    printer.entry("caller", "its provider answers 429 once, `Retry-After` 1.5 s")?;
    let job = submit(client, "caller", Map::new(), json!("Send the list.")).await?;
    let waiting = wait_for_record(client, &job, |record| record.waiting.is_some() || is_ended(record)).await?;
    let reason = waiting.waiting.map(|wait| escape_data(&wait.reason).into_owned()).unwrap_or_default();
    printer.entry("", &format!("it holds no slot, and says why it waits: {reason}"))?;
    let record = wait_for_record(client, &job, is_ended).await?;
    printer.entry("", &format!("then it is {}: “{}”", record.status.as_str(), format_output(&record)))?;
    Ok((record, reason))
}

async fn run_dreamer(up: &DemoServer, folder: &DemoFolder, printer: &Printer) -> Result<JobView, Failure> {
    printer.entry("dreamer", "its model never answers; somebody cancels the task")?;
    let job = submit(&up.client, "dreamer", Map::new(), json!("Think about it.")).await?;
    wait_for_call(folder, up.pid, "dreamer").await?;
    let reason = Some("it takes too long".to_owned());
    up.client.put(&format!("jobs/{job}/cancel"), &CancelJobBody { reason }).await?;
    let record = wait_for_record(&up.client, &job, is_ended).await?;
    printer.entry("", &format!("the model call is dropped, the task is {}", record.status.as_str()))?;
    Ok(record)
}

/// Runs a task whose process is killed each time it is served.
async fn run_parser(
    up: DemoServer,
    folder: &DemoFolder,
    printer: &Printer,
) -> Result<(DemoServer, JobView, JobView), Failure> {
    printer.entry("parser", &format!("its task kills the process that serves it, {CRASH_LIMIT} times"))?;
    let config = Map::from_iter([("systemPrompt".to_owned(), json!("You count pages."))]);
    let job = submit(&up.client, "parser", config, json!("Count the pages of report 7.")).await?;
    let mut up = up;
    for life in 1..=CRASH_LIMIT {
        wait_for_call(folder, up.pid, "parser").await?;
        let pid = up.pid;
        up.kill().await?;
        up = DemoServer::start(folder, &format!("up-{}", 2 + life)).await?;
        printer.entry("", &format!("kill -9 {pid}; started again as {}", up.pid))?;
    }
    let dead = wait_for_record(&up.client, &job, is_ended).await?;
    let (status, code) = (dead.status.as_str(), dead.error_code.as_deref().unwrap_or_default());
    printer.entry("", &format!("the task is {status} ({code}), everything else goes on"))?;
    let letters = wait_for_dead_letter(&up.client, &job).await?;
    printer.entry("", &format!("`trellis dead list`: {}", fit_line(&letters, TEXT_COLUMNS)))?;
    let config = Map::from_iter([("systemPrompt".to_owned(), json!("You count pages. Leave page 13 out."))]);
    let request = UpdateAgentRequest { agent_id: "parser", config, ..UpdateAgentRequest::default() };
    up.client.run("v/ops/agent/update", &request, None).await?;
    let driven = up.client.run("v/ops/dead/redrive", &IdRequest { id: job.as_str() }, None).await?;
    let RedriveView { job, .. } = read_view(driven)?;
    let redriven = wait_for_record(&up.client, &job, is_ended).await?;
    let (status, output) = (redriven.status.as_str(), format_output(&redriven));
    printer.entry("", &format!("its agent is mended, `trellis dead redrive`: {status}, “{output}”"))?;
    Ok((up, dead, redriven))
}

/// Waits for the dead letter, which is written when the session drops the task, shortly after the job has failed.
async fn wait_for_dead_letter(client: &Client, job: &JobId) -> Result<String, Failure> {
    let start = Instant::now();
    loop {
        let page = client.run("v/ops/dead/list", &json!({}), None).await?;
        let DeadLetterPage { items, .. } = read_view(page)?;
        if let Some(letter) = items.iter().find(|letter| letter.job == *job) {
            return Ok(format!("{} of {}, {} crashes", &job.as_str()[..8], letter.agent, letter.crashes));
        }
        if start.elapsed() > TASKS_TIME_LIMIT {
            return Err(Failure::internal(format!("job {job} is not among the dead letters")));
        }
        sleep(Duration::from_millis(100)).await;
    }
}
