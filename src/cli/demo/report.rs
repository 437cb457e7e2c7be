//! The end of the demo: decisions, repeated model calls, one turn in detail, the audit.

use super::super::client::{Client, read_view};
use super::super::escape::escape_data;
use super::super::exit::Failure;
use super::super::output::field;
use super::calls::LoggedCalls;
use super::disk::StoreContents;
use super::folder::{self, CLERK_AGENT, DemoFolder, HELPER_AGENT, SeededInvoice};
use super::kill::Kill;
use super::printer::{Printer, WIDTH, fit_line, wrap};
use super::process;
use super::times::PARAGRAPH_PAUSE;
use super::trouble::{Trouble, TroubleSummary};
use super::turns::{DemoTurn, TurnPrinter};
use crate::domain::audit::AuditTotals;
use crate::domain::context::assemble::assemble;
use crate::domain::context::ledger::Row;
use crate::domain::context::record::RestoredRecord;
use crate::domain::job::{Job, JobStatus};
use crate::view::lattice::ValueView;
use crate::view::ledger::TurnMessageView;
use crate::view::request::ReadValueRequest;
use crate::view::to_json;
use serde::Serialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Columns before the reason of a decision.
const REASON_COLUMN: usize = 55;
/// Columns before an entry's text.
const ENTRY_COLUMN: usize = 16;

/// Result of the demo.
pub(crate) struct DemoResult {
    /// Summary for JSON output.
    pub(crate) summary: Value,
    /// What was lost, doubled or is missing.
    pub(crate) problems: Vec<String>,
}

/// Summary of the demo.
#[derive(Serialize)]
struct DemoSummary<'a> {
    decisions: &'a Value,
    ledger: &'a [Value],
    kill: KillSummary<'a>,
    calls: CallSummary<'a>,
    /// Number of committed turns.
    turns: usize,
    trouble: &'a TroubleSummary,
    audit: &'a AuditTotals,
    problems: &'a [String],
}

/// State at the time of the kill.
#[derive(Serialize)]
struct KillSummary<'a> {
    /// Id of the killed process.
    pid: u32,
    /// Turns whose model call was running.
    cut: &'a BTreeSet<String>,
    /// Turns that were on disk.
    committed: usize,
    /// Tasks that had ended.
    ended: usize,
}

/// Counts of model calls.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct CallSummary<'a> {
    made: usize,
    repeated: &'a BTreeSet<String>,
    repeated_without_reason: &'a [String],
    replies_reused: &'a [String],
}

/// Values that the agents wrote.
pub(crate) struct WorkspaceValues {
    decisions: Value,
    ledger: Vec<Value>,
}

impl WorkspaceValues {
    /// Reads the values over HTTP.
    pub(crate) async fn read(client: &Client) -> Result<Self, Failure> {
        let read = async |path: &str| {
            let answer = client.run("v/ops/lattice/read", &ReadValueRequest { path, max_size: None }, None).await?;
            let ValueView { value, .. } = read_view(answer)?;
            Ok::<_, Failure>(value.unwrap_or_default())
        };
        let ledger = read("w/ledger").await?;
        let ledger = ledger.as_array().cloned().unwrap_or_default();
        Ok(Self { decisions: read("w/decisions").await?, ledger })
    }
}

/// Counts of model calls.
struct ModelCallCounts {
    count: usize,
    /// Turns that called the model twice.
    repeated: BTreeSet<String>,
    /// Repeated turns whose reply had arrived and was not on disk yet.
    unrecorded: usize,
    /// Repeated turns without a reason: their reply or their commit was on disk.
    unexplained: Vec<String>,
    /// Turns whose reply was on disk without their commit, and which the second process continued.
    reused: Vec<String>,
}

impl ModelCallCounts {
    fn count(calls: &LoggedCalls, kill: &Kill) -> Self {
        let repeated = calls.repeated_turns();
        let (lost, reused): (BTreeSet<_>, BTreeSet<_>) =
            kill.with_reply.difference(&kill.committed).cloned().partition(|place| repeated.contains(place));
        let excused = |place: &&String| kill.interrupted.contains(*place) || lost.contains(*place);
        let wrongly = repeated.iter().filter(|place| !excused(place)).cloned().collect();
        let reused = reused.into_iter().collect();
        Self { count: calls.count_started(), unrecorded: lost.len(), repeated, unexplained: wrongly, reused }
    }

    fn describe(&self, kill: &Kill, ledger: &TurnPrinter) -> String {
        let mut cut = format!("the {} that the kill cut off", kill.interrupted.len());
        if self.unrecorded > 0 {
            cut = format!("{cut}, and {} whose reply was not on disk yet", self.unrecorded);
        }
        let went_on = "had its reply recorded before the kill and went on from it.";
        let reused: Vec<_> =
            self.reused.iter().map(|place| format!("{} {went_on} ", ledger.describe_turn(place))).collect();
        let rest = match self.unexplained.len() {
            0 => format!("Of the {} turns committed before the kill, none was asked for again.", kill.committed.len()),
            n => format!("Asked for again without a reason: {n}."),
        };
        format!("{} in all. Made twice: {cut}. {}{rest}", self.count, reused.concat())
    }
}

/// What the report is computed from.
pub(crate) struct DemoEvidence<'a> {
    pub(crate) ledger: &'a TurnPrinter,
    pub(crate) kill: &'a Kill,
    pub(crate) calls: &'a LoggedCalls,
    pub(crate) tree: &'a WorkspaceValues,
    pub(crate) disk: &'a StoreContents,
    pub(crate) trouble: Trouble,
}

/// Prints the rest of the demo.
pub(crate) async fn tell(printer: &Printer, evidence: DemoEvidence<'_>) -> Result<DemoResult, Failure> {
    let DemoEvidence { ledger, kill, calls, tree, disk, trouble } = evidence;
    let asked = ModelCallCounts::count(calls, kill);
    printer.caption("Nothing is lost, and nothing is done twice")?;
    printer.entry("model calls", &asked.describe(kill, ledger))?;
    printer.entry("turns", &turns(disk))?;
    let lines: Vec<String> = tree.ledger.iter().map(|line| field(line, "invoice")).collect();
    let before = count_seeded_lines()?;
    let ours = lines.iter().skip(before).cloned().collect::<Vec<_>>().join(", ");
    printer.entry("w/ledger", &format!("{before} lines from before, and appended by the turns: {ours}"))?;
    printer.pause(PARAGRAPH_PAUSE).await;
    turn(printer, ledger, kill, disk)?;
    printer.pause(PARAGRAPH_PAUSE).await;
    printer.caption("The audit: every task that was accepted, from the jobs and the mailboxes on disk")?;
    let b = &disk.books;
    printer.line(&format!(
        "   accepted {}   completed {}   failed {}   cancelled {}   rejected {}   pending {}   unaccounted {}",
        b.accepted, b.completed, b.failed, b.cancelled, b.rejected, b.pending, b.unaccounted
    ))?;
    let mut problems = problems(kill, &asked, tree, disk)?;
    problems.extend(trouble.problems);
    printer.line("")?;
    let verdict = if problems.is_empty() {
        printer.out.status("ok", "   Six invoices, six decisions, three kill -9; unaccounted = 0.")
    } else {
        printer.out.status("problem", "   Something is wrong; see below.")
    };
    printer.line(&verdict)?;
    let summary = DemoSummary {
        decisions: &tree.decisions,
        ledger: &tree.ledger,
        kill: KillSummary { pid: kill.pid, cut: &kill.interrupted, committed: kill.committed.len(), ended: kill.ended },
        calls: CallSummary {
            made: asked.count,
            repeated: &asked.repeated,
            repeated_without_reason: &asked.unexplained,
            replies_reused: &asked.reused,
        },
        turns: disk.turns.len(),
        trouble: &trouble.summary,
        audit: b,
        problems: &problems,
    };
    Ok(DemoResult { summary: to_json(&summary), problems })
}

/// Describes the turns, by their numbers in each session.
fn turns(disk: &StoreContents) -> String {
    let mut last: BTreeMap<&str, u64> = BTreeMap::new();
    for turn in &disk.turns {
        let last = last.entry(&turn.session).or_default();
        *last = (*last).max(turn.record.turn);
    }
    let numbers: u64 = last.values().sum();
    let committed = disk.turns.len() as u64;
    let words = format!("{committed} committed, no number of a session twice");
    match numbers.saturating_sub(committed) {
        0 => words,
        n => format!("{words}; {n} more only consumed a result that nobody waited for any more"),
    }
}

fn count_seeded_lines() -> Result<usize, Failure> {
    Ok(folder::seed()?.get("w/ledger").and_then(Value::as_array).map_or(0, Vec::len))
}

/// Prints the decisions of the agents.
pub(crate) fn decisions(printer: &Printer, tree: &WorkspaceValues) -> Result<(), Failure> {
    printer.caption("What came of it: w/decisions")?;
    let heading = format!("   {:<8}  {:<18}  {:>9}  {:<9}  BECAUSE", "INVOICE", "VENDOR", "EUR", "DECISION");
    printer.line(&printer.out.dim(&heading))?;
    for (id, SeededInvoice { vendor, total }) in folder::invoices()? {
        let (decision, vendor) = (&tree.decisions[&id], escape_data(&vendor));
        let word = if decision.is_null() { "none".to_owned() } else { field(decision, "decision") };
        let start = format!("   {id:<8}  {vendor:<18}  {total:>9.2}  {word:<9}  ");
        for (at, line) in wrap(&field(decision, "reason"), WIDTH - REASON_COLUMN).iter().enumerate() {
            let before = if at == 0 { start.clone() } else { " ".repeat(REASON_COLUMN) };
            printer.line(format!("{before}{line}").trim_end())?;
        }
    }
    Ok(())
}

/// Prints one recorded turn, preferably one that was interrupted and repeated.
fn turn(printer: &Printer, ledger: &TurnPrinter, kill: &Kill, disk: &StoreContents) -> Result<(), Failure> {
    let ours: Vec<&DemoTurn> = disk.turns.iter().filter(|turn| turn.agent == CLERK_AGENT).collect();
    let again = |turn: &&&DemoTurn| kill.interrupted.contains(&turn.place());
    let best = ours.iter().filter(again).max_by_key(|turn| turn.record.calls.len());
    let Some(turn) = best.or(ours.first()) else { return Ok(()) };
    let place = ours.iter().position(|other| other.place() == turn.place()).unwrap_or_default();
    let name = ledger.describe_turn(&turn.place());
    let again = if kill.interrupted.contains(&turn.place()) { ", cut off by the kill and made again" } else { "" };
    printer.caption(&format!("One turn closely: {name}{again}"))?;
    match disk.seen.get(&turn.place()) {
        Some(seen) => print_ledger(printer, seen)?,
        None => printer.entry("it saw", "nothing: it ended before there was a prompt")?,
    }
    print_messages(printer, turn)?;
    let (record, usage) = (&turn.record, &turn.record.usage);
    printer.entry("model", &format!("{}, {} tokens in, {} out", record.model, usage.input, usage.output))?;
    printer.entry("it is at", &format!("g/{CLERK_AGENT}/timeline/{place}"))
}

/// Prints the ledger of a prompt, and whether the prompt can be rebuilt.
fn print_ledger(printer: &Printer, seen: &RestoredRecord) -> Result<(), Failure> {
    let ledger = &seen.ledger;
    let row = |row: &Row| {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        vec![
            row.key.clone(),
            text(&row.source),
            row.rendered.to_string(),
            row.status.as_str().into(),
            text(&row.reason),
        ]
    };
    let rows: Vec<_> = ledger.rows.iter().map(row).collect();
    let table = printer.out.table(&["PART", "FROM", "BYTES", "STATUS", "WHY"], &rows);
    for (at, line) in table.lines().enumerate() {
        let name = printer.out.dim(&format!("{:<12}", if at == 0 { "it saw" } else { "" }));
        let line: String = line.chars().take(WIDTH - ENTRY_COLUMN).collect();
        printer.line(format!("   {name} {line}").trim_end())?;
    }
    let (used, budget, tools) = (ledger.used, ledger.budget.bytes, ledger.tools.len());
    printer
        .entry("", &format!("{used} of {budget} bytes, {}% of its budget; {tools} tools offered", ledger.percent()))?;
    let again = seen.inputs.as_ref().ok().and_then(|inputs| assemble(inputs).ok());
    let same = again.is_some_and(|again| again.ledger.prompt == ledger.prompt);
    let words = if same { "built again from its record, the same" } else { "can't be built again from its record" };
    printer.entry("prompt", &format!("sha256 {}… {words}", &ledger.prompt[..16.min(ledger.prompt.len())]))
}

fn print_messages(printer: &Printer, turn: &DemoTurn) -> Result<(), Failure> {
    let width = WIDTH - 17;
    // Only the first of several equal names is shown.
    let mut named = "";
    let mut name = |name: &'static str| if std::mem::replace(&mut named, name) == name { "" } else { name };
    for message in &turn.record.said {
        match message {
            TurnMessageView::User { .. } => {}
            TurnMessageView::Assistant { text, calls, .. } => {
                if !text.is_empty() {
                    printer.entry("it said", &fit_line(text, width))?;
                }
                for call in calls {
                    let arguments = match &call.arguments {
                        Value::String(malformed) => malformed.clone(),
                        value => value.to_string(),
                    };
                    printer.entry(name("it called"), &fit_line(&format!("{} {arguments}", call.name), width))?;
                }
            }
            TurnMessageView::Tool { name: tool, text, .. } => {
                printer.entry(name("result"), &fit_line(&format!("{tool} {text}"), width))?;
            }
        }
    }
    Ok(())
}

/// Lists everything that must not be.
fn problems(
    kill: &Kill,
    asked: &ModelCallCounts,
    tree: &WorkspaceValues,
    disk: &StoreContents,
) -> Result<Vec<String>, Failure> {
    let mut problems = Vec::new();
    let mut must = |holds: bool, problem: String| {
        if !holds {
            problems.push(problem);
        }
    };
    must(!kill.interrupted.is_empty(), format!("the kill of process {} met no running model call", kill.pid));
    must(kill.started > 0, "the kill met no task that had begun".to_owned());
    must(
        asked.unexplained.is_empty(),
        format!("turns asked for again although they were on disk: {}", asked.unexplained.join(", ")),
    );
    let before = count_seeded_lines()?;
    for id in folder::invoices()?.keys() {
        let decision = tree.decisions.get(id).and_then(|decision| decision.get("decision"));
        must(decision.is_some_and(Value::is_string), format!("`w/decisions/{id}` is missing"));
        let is_about = |line: &&Value| line.get("invoice").and_then(Value::as_str) == Some(id.as_str());
        let lines = tree.ledger.iter().skip(before).filter(is_about).count();
        must(lines == 1, format!("expected one line of {id} in `w/ledger`, got {lines}"));
    }
    let ours = |job: &&Job| [CLERK_AGENT, HELPER_AGENT].contains(&job.head.agent.as_str());
    for job in disk.jobs.iter().filter(ours).filter(|job| job.status != JobStatus::Complete) {
        must(false, format!("job {} is {}", job.head.id, job.status.as_str()));
    }
    let places: BTreeSet<String> = disk.turns.iter().map(DemoTurn::place).collect();
    must(places.len() == disk.turns.len(), "a turn is recorded twice".to_owned());
    must(kill.committed.is_subset(&places), "a turn that was committed before the kill is gone".to_owned());
    must(disk.books.unaccounted == 0, format!("unaccounted: {}", disk.books.missing.join("; ")));
    Ok(problems)
}

/// Prints how to continue with a folder that was kept.
pub(crate) fn print_next_steps(printer: &Printer, folder: &DemoFolder) -> Result<(), Failure> {
    let program = std::env::current_exe().unwrap_or_else(|_| "trellis".into());
    let here = std::env::current_dir().unwrap_or_default();
    let program = program.strip_prefix(here).unwrap_or(&program).display();
    let settings: Vec<_> = process::settings(folder).iter().map(|(key, path)| format!("--set {key}={path}")).collect();
    printer.caption("Go on with it")?;
    printer.line(&format!("   {program} up --data {} \\", folder.data().display()))?;
    printer.line(&format!("       {}", settings.join(" \\\n       ")))?;
    printer.text("open http://127.0.0.1:8420/ in a browser, and in another terminal:")?;
    for command in [
        "lattice read w/decisions".to_owned(),
        format!("turn list {CLERK_AGENT}"),
        format!("lattice inspect g/{CLERK_AGENT}/timeline/0"),
        format!("submit {CLERK_AGENT} '{{\"invoice\": \"INV-1001\", \"vendor\": \"acme-office\"}}' --wait"),
    ] {
        printer.line(&format!("   {program} {command}"))?;
    }
    Ok(())
}
