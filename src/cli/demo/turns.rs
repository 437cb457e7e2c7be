//! Committed turns from the timeline, each shown in one line.

use super::super::client::{Client, read_view};
use super::super::exit::Failure;
use super::super::output::field;
use super::folder::{CLERK_AGENT, HELPER_AGENT};
use super::printer::{Printer, WIDTH, fit_line};
use crate::domain::ids::{AgentId, SessionId, SessionKey};
use crate::domain::job::JobStatus;
use crate::view::job::JobView;
use crate::view::job_list::JobListPage;
use crate::view::lattice::ValueView;
use crate::view::ledger::TurnRecordView;
use crate::view::request::ReadValueRequest;
use crate::view::tree::TimelineTurnView;
use std::collections::{BTreeMap, BTreeSet};

/// Columns before the words of a turn.
const INDENT: usize = 20;

/// Heading over the lines of turns.
pub(crate) const HEADING: &str = "     TIME  INVOICE   AGENT              TURN  TOKENS IN+OUT  CALLED";

/// A turn with its agent and session.
#[derive(Debug, Clone)]
pub(crate) struct DemoTurn {
    pub(crate) agent: &'static str,
    pub(crate) session: String,
    pub(crate) record: TurnRecordView,
}

impl DemoTurn {
    /// Makes a turn of an element of `g/<agent>/timeline`.
    pub(crate) fn new(agent: &'static str, turn: TimelineTurnView) -> Self {
        Self { agent, session: turn.session.unwrap_or_default(), record: turn.record }
    }

    /// Returns the session of the turn.
    pub(crate) fn key(&self) -> Result<SessionKey, Failure> {
        let illegal = |error| Failure::internal(format!("a turn of `{}` is malformed: {error}", self.agent));
        let agent = AgentId::new(self.agent).map_err(illegal)?;
        Ok(SessionKey { agent, session: SessionId::new(self.session.as_str()).map_err(illegal)? })
    }

    /// Returns the name of the turn in the log of model calls.
    pub(crate) fn place(&self) -> String {
        format!("local/me/{}/{}/{}", self.agent, self.session, self.record.turn)
    }

    /// Returns the text of the model.
    pub(crate) fn text(&self) -> &str {
        self.record.reply().map(|(text, _)| text).unwrap_or_default()
    }

    /// Returns what it called, e.g. `read ×3`, with every outcome that isn't `ok`.
    pub(crate) fn describe_calls(&self) -> String {
        let mut calls: Vec<(String, u32)> = Vec::new();
        for call in &self.record.calls {
            let name = call.operation.rsplit('/').next().unwrap_or_default();
            let shown = if call.outcome == "ok" { name.to_owned() } else { format!("{name}: {}", call.outcome) };
            match calls.last_mut() {
                Some((last, times)) if *last == shown => *times += 1,
                _ => calls.push((shown, 1)),
            }
        }
        let shown = calls.iter().map(|(name, n)| if *n > 1 { format!("{name} ×{n}") } else { name.clone() });
        let ended = self.record.ended.iter().map(|(_, status)| format!("task {}", status.as_str()));
        shown.chain(ended).collect::<Vec<_>>().join(", ")
    }
}

/// Reads the timeline of an agent over HTTP.
pub(crate) async fn read_timeline(client: &Client, agent: &str) -> Result<Vec<TimelineTurnView>, Failure> {
    let path = format!("g/{agent}/timeline");
    let answer = client.run("v/ops/lattice/read", &ReadValueRequest { path: &path, max_size: None }, None).await?;
    let ValueView { value, .. } = read_view(answer)?;
    value.filter(|value| !value.is_null()).map_or_else(|| Ok(Vec::new()), read_view)
}

/// Turns that were shown so far.
#[derive(Debug, Default)]
pub(crate) struct TurnPrinter {
    seen: BTreeSet<String>,
    /// Invoice by `agent/session`.
    invoices: BTreeMap<String, String>,
    /// Statuses of the jobs at the last read.
    pub(crate) statuses: Vec<JobStatus>,
    /// Start of the first turn in milliseconds.
    start: Option<u64>,
}

impl TurnPrinter {
    /// Returns the number of turns that were shown.
    pub(crate) fn len(&self) -> usize {
        self.seen.len()
    }

    /// Reads the turns and jobs of the server and shows new turns.
    pub(crate) async fn update(&mut self, client: &Client, printer: &Printer) -> Result<(), Failure> {
        let mut turns = Vec::new();
        for agent in [CLERK_AGENT, HELPER_AGENT] {
            let timeline = read_timeline(client, agent).await?;
            turns.extend(timeline.into_iter().map(|turn| DemoTurn::new(agent, turn)));
        }
        let page = client.get("jobs", &[("details", "true".to_owned())]).await?;
        let JobListPage { items, .. } = read_view(page)?;
        let jobs: Vec<JobView> = items.into_iter().map(read_view).collect::<Result<_, _>>()?;
        self.record_jobs(&jobs);
        self.show(turns, printer)
    }

    /// Records statuses, and which session works on which invoice.
    pub(crate) fn record_jobs(&mut self, jobs: &[JobView]) {
        self.statuses = jobs.iter().map(|job| job.status).collect();
        for job in jobs {
            if let (Some(agent), Some(session), Some(input)) = (&job.agent, &job.session, &job.input) {
                self.invoices.insert(format!("{agent}/{session}"), field(input, "invoice"));
            }
        }
    }

    /// Shows new turns, in the order in which they ended.
    pub(crate) fn show(&mut self, mut turns: Vec<DemoTurn>, printer: &Printer) -> Result<(), Failure> {
        turns.sort_by_key(|turn| turn.record.end);
        let first = turns.iter().map(|turn| turn.record.start.0).min();
        self.start = self.start.or(first);
        for turn in turns {
            if self.seen.insert(turn.place()) {
                self.print_turn(&turn, printer)?;
            }
        }
        Ok(())
    }

    fn print_turn(&self, turn: &DemoTurn, printer: &Printer) -> Result<(), Failure> {
        let record = &turn.record;
        let after = record.end.0.saturating_sub(self.start.unwrap_or_default());
        let tokens = format!("{}+{}", record.usage.input, record.usage.output);
        let line = format!(
            "{:>6}.{}s  {:<8}  {:<18} {:>4}  {tokens:>13}  {}",
            after / 1000,
            after / 100 % 10,
            self.invoice(turn.agent, &turn.session),
            turn.agent,
            record.turn,
            turn.describe_calls()
        );
        printer.line(cut_line(&line).trim_end())?;
        if turn.text().is_empty() {
            return Ok(());
        }
        let words = format!("“{}”", fit_line(turn.text(), WIDTH - INDENT - 2));
        printer.line(&format!("{:INDENT$}{}", "", printer.out.dim(&words)))
    }

    /// Returns the invoice that a session works on.
    pub(crate) fn invoice(&self, agent: &str, session: &str) -> &str {
        self.invoices.get(&format!("{agent}/{session}")).map_or("?", String::as_str)
    }

    /// Describes a turn, given its name in the log of model calls.
    pub(crate) fn describe_turn(&self, place: &str) -> String {
        let parts: Vec<&str> = place.split('/').collect();
        match parts.as_slice() {
            [.., agent, session, turn] => format!("{} turn {turn} of {agent}", self.invoice(agent, session)),
            _ => place.to_owned(),
        }
    }
}

/// Cuts a line to [`WIDTH`] columns; its spaces stay.
fn cut_line(line: &str) -> String {
    line.chars().take(WIDTH).collect()
}
