//! `trellis demo`: six invoices, two agents, one `kill -9`; then four kinds of trouble, and an audit.
//!
//! The server is a child process of the same binary on a real store, it is killed while model calls run, and every
//! claim is computed from the data on disk.

mod calls;
mod disk;
mod folder;
mod kill;
mod printer;
mod process;
mod report;
mod times;
mod trouble;
mod turns;

use super::CliContext;
use super::agent::{AgentLayers, CreateAgentRequest};
use super::client::read_view;
use super::exit::{Exit, Failure};
use super::output::{Format, note};
use super::submit::AgentTaskRequest;
use crate::domain::job::JobStatus;
use crate::view::job::JobView;
use crate::view::request::{StartedRequestView, WriteValueRequest};
use crate::view::to_json;
use calls::LoggedCalls;
use clap::Args;
use disk::StoreContents;
use folder::{CLERK_AGENT, DemoFolder};
use kill::Kill;
use printer::Printer;
use process::DemoServer;
use serde::Serialize;
use serde_json::Value;
use std::time::Duration;
use times::{PARAGRAPH_PAUSE, READ_PAUSE, TASKS_TIME_LIMIT};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, sleep};
use turns::{HEADING, TurnPrinter};

/// Time that the model takes to answer: long enough to watch, and for the kill.
const MODEL_DELAY: Duration = Duration::from_millis(900);
const MODEL_DELAY_FAST: Duration = Duration::from_millis(800);

/// Committed turns before the kill, so that there is something to lose.
const TURNS_BEFORE_KILL: usize = 9;
/// Model calls that the kill should interrupt.
const CALLS_TO_CUT: usize = 2;
/// Time without log lines after which replies are recorded and all sessions wait for the model.
const QUIET_TIME: Duration = Duration::from_millis(80);

/// Reads of the calls' log between two reads of the turns, which take long on a busy machine.
const LOG_READS: usize = 20;
/// Arguments of `trellis demo`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  trellis demo --keep")]
pub(crate) struct Demo {
    /// Keep the folder, and say how to go on with it
    #[arg(long)]
    keep: bool,
    /// No pauses for a reader, and a faster model
    #[arg(long)]
    fast: bool,
}

impl Demo {
    /// Runs the demo; no process outlives it.
    pub async fn run(self, context: &CliContext) -> Result<Exit, Failure> {
        let mut folder = DemoFolder::make(if self.fast { MODEL_DELAY_FAST } else { MODEL_DELAY })?;
        let printer = Printer::new(context.out, self.fast);
        let told = tokio::select! {
            told = tell(&folder, &printer) => told,
            stopped = wait_for_interrupt() => return Err(stopped),
        };
        let failed = match &told {
            Ok(told) => !told.problems.is_empty(),
            Err(failure) => failure.exit != Exit::Ok,
        };
        if failed {
            folder.keep();
            note(&format!("the folder of this run stays for a look: {}", folder.path().display()));
        }
        let told = told?;
        if context.out.format != Format::Text {
            context.out.value(&told.summary, String::new)?;
        }
        if self.keep {
            folder.keep();
            report::print_next_steps(&printer, &folder)?;
        }
        if told.problems.is_empty() { Ok(Exit::Ok) } else { Err(Failure::internal(told.problems.join("\nerror: "))) }
    }
}

/// Resolves at a signal that ends the demo; dropping the demo kills the child.
async fn wait_for_interrupt() -> Failure {
    let listen = |kind| signal(kind).map_err(|e| Failure::internal(format!("signals can't be handled: {e}")));
    let listened = (listen(SignalKind::interrupt()), listen(SignalKind::terminate()), listen(SignalKind::hangup()));
    let (Ok(mut int), Ok(mut term), Ok(mut hup)) = listened else {
        return Failure::internal("signals can't be handled");
    };
    tokio::select! {
        _ = int.recv() => {}
        _ = term.recv() => {}
        _ = hup.recv() => {}
    }
    Failure::internal("interrupted; the server is stopped and its folder removed")
}

async fn tell(folder: &DemoFolder, printer: &Printer) -> Result<report::DemoResult, Failure> {
    printer.line(&printer.out.bold("Trellis runs fleets of persistent AI agents from a queue."))?;
    printer.line("Here two agents check six invoices, and the process that runs them is killed while they do.")?;
    let mut ledger = TurnPrinter::default();
    let first = open(folder, printer).await?;
    submit(&first, printer).await?;
    printer.pause(PARAGRAPH_PAUSE).await;
    printer.caption("Each line is a turn, the moment it is committed: one model call and its tool calls")?;
    printer.line(&printer.out.dim(HEADING))?;
    wait_until_killable(&first, folder, &mut ledger, printer).await?;
    let kill = kill(first, folder, &mut ledger, printer).await?;
    let second = DemoServer::start(folder, "up-2").await?;
    printer.text(&format!(
        "Started again as process {}, on the same folder. Nobody submits anything again:",
        second.pid
    ))?;
    printer.pause(PARAGRAPH_PAUSE).await;
    printer.line(&printer.out.dim(HEADING))?;
    wait_until_done(&second, &mut ledger, printer).await?;
    let tree = report::WorkspaceValues::read(&second.client).await?;
    let calls = LoggedCalls::read(&folder.calls());
    report::decisions(printer, &tree)?;
    printer.pause(PARAGRAPH_PAUSE).await;
    let (last, trouble) = trouble::tell(second, folder, printer).await?;
    last.stop().await?;
    let disk = StoreContents::read(folder).await?;
    let (ledger, kill, calls, tree, disk) = (&ledger, &kill, &calls, &tree, &disk);
    report::tell(printer, report::DemoEvidence { ledger, kill, calls, tree, disk, trouble }).await
}

/// Step 1: starts a server and creates a workspace and two agents.
async fn open(folder: &DemoFolder, printer: &Printer) -> Result<DemoServer, Failure> {
    printer.caption("One process on an empty folder; a workspace and two agents are put in")?;
    let up = DemoServer::start(folder, "up-1").await?;
    printer.entry("process", &format!("{}: `trellis up`, HTTP API on {}", up.pid, up.url))?;
    printer.entry("folder", &folder.data().display().to_string())?;
    let seed = folder::seed()?;
    let paths: Vec<&str> = seed.keys().map(String::as_str).collect();
    for (path, value) in &seed {
        let request = WriteValueRequest { path: path.as_str(), value: value.clone(), expect: None };
        up.client.run("v/ops/lattice/write", &request, None).await?;
    }
    printer.entry("workspace", &paths.join(", "))?;
    for (agent, config) in folder::agents()? {
        let about = config.get("description").and_then(Value::as_str).unwrap_or_default().to_owned();
        let layers = AgentLayers::from_config(config);
        up.client.run("v/ops/agent/create", &CreateAgentRequest::new(agent, &layers), None).await?;
        printer.entry("agent", &format!("{agent}: {about}"))?;
    }
    printer.entry("model", "rules that play both agents; any provider's model can take their place")?;
    Ok(up)
}

/// Input of a task for the clerk.
#[derive(Serialize)]
struct InvoiceTask<'a> {
    /// Id of the invoice.
    invoice: &'a str,
    vendor: &'a str,
}

/// Step 2: submits the tasks.
async fn submit(up: &DemoServer, printer: &Printer) -> Result<(), Failure> {
    let invoices = folder::invoices()?;
    printer.caption("Six invoices are submitted as tasks; four of them run at a time")?;
    for (id, invoice) in &invoices {
        let input = to_json(&InvoiceTask { invoice: id.as_str(), vendor: &invoice.vendor });
        let key = format!("invoice-{id}").parse().map_err(|e| Failure::internal(format!("{e}")))?;
        let request = AgentTaskRequest::new(CLERK_AGENT, input.clone());
        let answer = up.client.run("v/ops/agent/request", &request, Some(&key)).await?;
        let StartedRequestView { job, .. } = read_view(answer)?;
        let short: String = job.as_str().chars().take(8).collect();
        printer.line(&format!("   {id:<12} {:<52}  is job {short}…", input.to_string()))?;
    }
    Ok(())
}

/// Shows turns until enough are committed and others are in a model call.
async fn wait_until_killable(
    up: &DemoServer,
    folder: &DemoFolder,
    ledger: &mut TurnPrinter,
    printer: &Printer,
) -> Result<(), Failure> {
    let start = Instant::now();
    let (mut lines, mut changed) = (0, Instant::now());
    loop {
        ledger.update(&up.client, printer).await?;
        let looks = if ledger.len() >= TURNS_BEFORE_KILL { LOG_READS } else { 0 };
        for _ in 0..looks {
            let calls = LoggedCalls::read(&folder.calls());
            if calls.lines() != lines {
                (lines, changed) = (calls.lines(), Instant::now());
            }
            if calls.running_turns(up.pid).len() >= CALLS_TO_CUT && changed.elapsed() >= QUIET_TIME {
                return Ok(());
            }
            sleep(READ_PAUSE).await;
        }
        patience(start, ledger)?;
        sleep(READ_PAUSE).await;
    }
}

/// Step 4: kills the server and shows what it left.
async fn kill(
    up: DemoServer,
    folder: &DemoFolder,
    ledger: &mut TurnPrinter,
    printer: &Printer,
) -> Result<Kill, Failure> {
    let (pid, calls) = (up.pid, folder.calls());
    up.kill().await?;
    let calls = LoggedCalls::read(&calls);
    let disk = StoreContents::read(folder).await?;
    let records: Vec<_> = disk.jobs.iter().map(JobView::from).collect();
    ledger.record_jobs(&records);
    let committed = disk.turns.iter().map(turns::DemoTurn::place).collect();
    ledger.show(disk.turns, printer)?;
    let ended = disk.jobs.iter().filter(|job| job.status.is_terminal()).count();
    let started = disk.jobs.iter().filter(|job| job.status == JobStatus::Started).count();
    let kill = Kill {
        pid,
        interrupted: calls.running_turns(pid),
        with_reply: calls.replied_turns(pid),
        committed,
        started,
        ended,
    };
    printer.caption(&format!("kill -9 {pid}, in the middle of {} turns", kill.interrupted.len()))?;
    for (at, place) in kill.interrupted.iter().enumerate() {
        printer.entry(
            if at == 0 { "cut off" } else { "" },
            &format!("the model call of {}", ledger.describe_turn(place)),
        )?;
    }
    for (at, place) in kill.with_reply.difference(&kill.committed).enumerate() {
        let name = if at == 0 { "in its tools" } else { "" };
        printer.entry(name, &format!("{}; the model's reply had arrived", ledger.describe_turn(place)))?;
    }
    let (turns, tasks) = (kill.committed.len(), disk.jobs.len());
    let delegated = disk.jobs.iter().filter(|job| job.head.parent.is_some()).count();
    printer.entry(
        "on disk",
        &format!("{turns} committed turns, and the {tasks} tasks, {delegated} of them from agent to agent:"),
    )?;
    printer.entry("", &format!("{ended} are done, {started} are begun, {} still wait", tasks - ended - started))?;
    printer.pause(PARAGRAPH_PAUSE).await;
    Ok(kill)
}

async fn wait_until_done(up: &DemoServer, ledger: &mut TurnPrinter, printer: &Printer) -> Result<(), Failure> {
    let start = Instant::now();
    loop {
        ledger.update(&up.client, printer).await?;
        let open = |status: &JobStatus| matches!(status, JobStatus::Pending | JobStatus::Started);
        if !ledger.statuses.iter().any(open) {
            // Shows turns that were committed between the two reads of the last update.
            return ledger.update(&up.client, printer).await;
        }
        patience(start, ledger)?;
        sleep(READ_PAUSE).await;
    }
}

fn patience(start: Instant, ledger: &TurnPrinter) -> Result<(), Failure> {
    if start.elapsed() < TASKS_TIME_LIMIT {
        return Ok(());
    }
    let statuses: Vec<_> = ledger.statuses.iter().map(|status| status.as_str()).collect();
    let (turns, jobs) = (ledger.len(), statuses.join(", "));
    Err(Failure::internal(format!("no progress within {TASKS_TIME_LIMIT:?}: {turns} turns, tasks {jobs}")))
}
