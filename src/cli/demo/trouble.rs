//! The second part of the demo: a typed output that is refused once, a busy provider, a cancelled call, and a task that
//! kills its workers and is redriven.

use super::super::client::Client;
use super::super::exit::Failure;
use super::super::output::field;
use super::calls::LoggedCalls;
use super::folder::DemoFolder;
use super::printer::{Printer, fit_line};
use super::process::DemoServer;
use super::{PARAGRAPH_PAUSE, READ_PAUSE, TASKS_TIME_LIMIT};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Crash limit in the demo: the third worker doesn't serve the task any more.
pub(super) const CRASH_LIMIT: u32 = 2;

/// Columns of a line's words.
const TEXT_COLUMNS: usize = 70;

/// Result of this part.
#[derive(Debug, Default)]
pub(super) struct Trouble {
    /// Summary for JSON output.
    pub(super) summary: Value,
    /// Differences from the expected results.
    pub(super) problems: Vec<String>,
}

/// Waits until a job's record, read over HTTP, is as wanted.
async fn wait_for_record(client: &Client, job: &str, wanted: impl Fn(&Value) -> bool) -> Result<Value, Failure> {
    let start = Instant::now();
    loop {
        let record = client.get(&format!("jobs/{job}"), &[]).await?;
        if wanted(&record) {
            return Ok(record);
        }
        if start.elapsed() > TASKS_TIME_LIMIT {
            return Err(Failure::internal(format!("no progress of job {job} within {TASKS_TIME_LIMIT:?}: {record}")));
        }
        sleep(READ_PAUSE).await;
    }
}

fn is_ended(record: &Value) -> bool {
    !matches!(record["status"].as_str(), Some("PENDING" | "STARTED"))
}

async fn submit(client: &Client, agent: &str, config: Value, input: Value) -> Result<String, Failure> {
    let mut config = config;
    config["model"] = json!({"provider": "scripted", "name": "rules"});
    client.run("v/ops/agent/create", &json!({"agentId": agent, "config": config}), None).await?;
    let body = json!({"agentId": agent, "input": input, "timeout": 0});
    Ok(field(&client.run("v/ops/agent/request", &body, None).await?, "id"))
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
pub(super) async fn tell(
    up: DemoServer,
    folder: &DemoFolder,
    printer: &Printer,
) -> Result<(DemoServer, Trouble), Failure> {
    printer.caption("And what goes wrong in a fleet: four more agents, each with a trouble of its own")?;
    let typed = run_planner(&up.client, printer).await?;
    printer.pause(PARAGRAPH_PAUSE).await;
    let retried = run_caller(&up.client, printer).await?;
    let cancelled = run_dreamer(&up, folder, printer).await?;
    printer.pause(PARAGRAPH_PAUSE).await;
    let (up, dead, redriven) = run_parser(up, folder, printer).await?;
    let mut problems = Vec::new();
    for (what, record, status) in [
        ("the typed task", &typed, "COMPLETE"),
        ("the retried task", &retried, "COMPLETE"),
        ("the cancelled task", &cancelled, "CANCELLED"),
        ("the dead task", &dead, "FAILED"),
        ("the redriven task", &redriven, "COMPLETE"),
    ] {
        if record["status"] != status {
            problems.push(format!("{what} is {}, expected {status}", field(record, "status")));
        }
    }
    if typed["output"]["count"] != 3 {
        problems.push(format!("expected the typed output `{{count: 3, …}}`, got {}", typed["output"]));
    }
    let summary = json!({
        "typed": typed["output"], "retried": retried["waiting"], "cancelled": cancelled["status"],
        "dead": dead["errorCode"], "redriven": redriven["output"],
    });
    Ok((up, Trouble { summary, problems }))
}

async fn run_planner(client: &Client, printer: &Printer) -> Result<Value, Failure> {
    let schema = json!({
        "type": "object", "properties": {"count": {"type": "integer"}, "reason": {"type": "string"}},
        "required": ["count"], "additionalProperties": false
    });
    let config = json!({"loop": "goalTree", "tools": ["subgoal"], "outputs": {"complete": {"schema": schema}}});
    printer.entry("planner", "a goal tree with a typed output, {count: integer, reason?: string}")?;
    let job = submit(client, "planner", config, json!("How many invoices can be paid?")).await?;
    let record = wait_for_record(client, &job, is_ended).await?;
    let path = json!({"path": "g/planner/timeline"});
    let timeline = client.run("v/ops/lattice/read", &path, None).await?;
    for turn in timeline["value"].as_array().into_iter().flatten() {
        let goal = turn["frame"].as_u64().unwrap_or(0);
        let said = turn["said"].as_array().into_iter().flatten();
        let shown: Vec<_> = said
            .filter_map(|said| match said["role"].as_str() {
                Some("tool") => Some(format!("{} → {}", field(said, "name"), field(said, "text"))),
                _ if field(said, "text").is_empty() => None,
                _ => Some(format!("“{}”", field(said, "text"))),
            })
            .collect();
        let line = format!("turn {} in goal {goal}: {}", turn["turn"], shown.join("; "));
        printer.entry("", &fit_line(&line, TEXT_COLUMNS))?;
    }
    printer.entry("", &format!("output {}", record["output"]))?;
    Ok(record)
}

async fn run_caller(client: &Client, printer: &Printer) -> Result<Value, Failure> {
    printer.entry("caller", "its provider answers 429 once, `Retry-After` 1.5 s")?;
    let job = submit(client, "caller", json!({}), json!("Send the list.")).await?;
    let waiting = wait_for_record(client, &job, |record| !record["waiting"].is_null() || is_ended(record)).await?;
    let reason = field(&waiting["waiting"], "reason");
    printer.entry("", &format!("it holds no slot, and says why it waits: {reason}"))?;
    let mut record = wait_for_record(client, &job, is_ended).await?;
    printer.entry("", &format!("then it is {}: “{}”", field(&record, "status"), field(&record, "output")))?;
    record["waiting"] = reason.into();
    Ok(record)
}

async fn run_dreamer(up: &DemoServer, folder: &DemoFolder, printer: &Printer) -> Result<Value, Failure> {
    printer.entry("dreamer", "its model never answers; somebody cancels the task")?;
    let job = submit(&up.client, "dreamer", json!({}), json!("Think about it.")).await?;
    wait_for_call(folder, up.pid, "dreamer").await?;
    up.client.put(&format!("jobs/{job}/cancel"), &json!({"reason": "it takes too long"})).await?;
    let record = wait_for_record(&up.client, &job, is_ended).await?;
    printer.entry("", &format!("the model call is dropped, the task is {}", field(&record, "status")))?;
    Ok(record)
}

/// Runs a task whose process is killed each time it is served.
async fn run_parser(
    up: DemoServer,
    folder: &DemoFolder,
    printer: &Printer,
) -> Result<(DemoServer, Value, Value), Failure> {
    printer.entry("parser", &format!("its task kills the process that serves it, {CRASH_LIMIT} times"))?;
    let config = json!({"systemPrompt": "You count pages."});
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
    let code = field(&dead, "errorCode");
    printer.entry("", &format!("the task is {} ({code}), everything else goes on", field(&dead, "status")))?;
    let letters = wait_for_dead_letter(&up.client, &job).await?;
    printer.entry("", &format!("`trellis dead list`: {}", fit_line(&letters, TEXT_COLUMNS)))?;
    let patch = json!({"agentId": "parser", "config": {"systemPrompt": "You count pages. Leave page 13 out."}});
    up.client.run("v/ops/agent/update", &patch, None).await?;
    let driven = up.client.run("v/ops/dead/redrive", &json!({"id": job}), None).await?;
    let redriven = wait_for_record(&up.client, &field(&driven, "job"), is_ended).await?;
    let (status, output) = (field(&redriven, "status"), field(&redriven, "output"));
    printer.entry("", &format!("its agent is mended, `trellis dead redrive`: {status}, “{output}”"))?;
    Ok((up, dead, redriven))
}

/// Waits for the dead letter, which is written when the session drops the task, shortly after the job has failed.
async fn wait_for_dead_letter(client: &Client, job: &str) -> Result<String, Failure> {
    let start = Instant::now();
    loop {
        let page = client.run("v/ops/dead/list", &json!({}), None).await?;
        let letter = page["items"].as_array().into_iter().flatten().find(|letter| letter["job"] == job);
        if let Some(letter) = letter {
            return Ok(format!("{} of {}, {} crashes", &job[..8], field(letter, "agent"), letter["crashes"]));
        }
        if start.elapsed() > TASKS_TIME_LIMIT {
            return Err(Failure::internal(format!("job {job} is not among the dead letters")));
        }
        sleep(Duration::from_millis(100)).await;
    }
}
