//! `trellis job list --outcome unknown` and `job settle`: calls of which nobody knows whether they happened.

use super::client::{Client, ServerArgs, encode, read_view};
use super::escape::escape_data;
use super::exit::{Exit, Failure};
use super::input;
use super::output::{CommandOutput, Format, format_plain, note_empty, note_next};
use super::turn;
use crate::domain::ids::JobId;
use crate::view::job::JobView;
use crate::view::ledger::TurnView;
use crate::view::outcome::{CallPlaceView, OutcomePage, OutcomeView};
use clap::Args;
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// What a person has found out about a call of unknown outcome: whether it happened, and its result.
#[derive(Debug, Args)]
pub(crate) struct SettleArgs {
    /// Id of the call, as `job list --outcome unknown` prints it
    id: JobId,
    /// The call has happened, and returned this if that is known: text, JSON, `@file`, or `-` for stdin
    #[arg(long, value_name = "RESULT", num_args = 0..=1, default_missing_value = "", required_unless_present = "not_done")]
    done: Option<String>,
    /// The call has not happened
    #[arg(long, conflicts_with = "done")]
    not_done: bool,
    /// Why, for the record
    #[arg(long, value_name = "TEXT")]
    note: Option<String>,
    /// Send the settlement to the agent's session as a message, which wakes it
    #[arg(long)]
    tell: bool,
    /// Which server, and for whom
    #[command(flatten)]
    server: ServerArgs,
}

/// Body of `PUT outcomes/{id}`.
#[derive(Serialize)]
struct SettlementBody {
    /// Whether the call has happened.
    done: bool,
    /// Whether the settlement is sent to the agent's session.
    tell: bool,
    /// Result of a call that has happened.
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
}

impl SettleArgs {
    pub(crate) async fn run(self, out: CommandOutput) -> Result<Exit, Failure> {
        let result = self.done.filter(|result| !result.is_empty());
        let result = result.as_deref().map(input::json_or_text).transpose()?;
        let body = SettlementBody { done: !self.not_done, tell: self.tell, result, note: self.note };
        let outcome = Client::new(&self.server)?.put(&format!("outcomes/{}", self.id), &body).await?;
        out.typed_value(outcome, |outcome: &OutcomeView| details(outcome, None))?;
        Ok(Exit::Ok)
    }
}

/// Prints a page of calls of unknown outcome, the newest first; with `all` also those that are settled.
pub(crate) async fn list(
    client: &Client,
    out: CommandOutput,
    all: bool,
    offset: usize,
    limit: usize,
) -> Result<Exit, Failure> {
    let query = [("all", all.to_string()), ("offset", offset.to_string()), ("limit", limit.to_string())];
    let page = client.get("outcomes", &query).await?;
    let OutcomePage { items: outcomes, .. } = read_view(page.clone())?;
    let arguments = if out.format == Format::Text { read_arguments(client, &outcomes).await } else { Vec::new() };
    out.page(&page, "items", |_| {
        let lines: Vec<_> =
            outcomes.iter().zip(arguments).map(|(outcome, arguments)| details(outcome, arguments)).collect();
        lines.join("\n\n")
    })?;
    note_empty(&page, "no call has an unknown outcome");
    note_next(&page);
    Ok(Exit::Ok)
}

/// Returns the arguments of each call in one line, from its turn or job; `None` if that can't be read, for example
/// because the server doesn't show it to this caller.
async fn read_arguments(client: &Client, outcomes: &[OutcomeView]) -> Vec<Option<String>> {
    let mut answers: BTreeMap<String, Value> = BTreeMap::new();
    let mut arguments = Vec::new();
    for outcome in outcomes {
        let path = match (&outcome.call, &outcome.job) {
            (Some(CallPlaceView { agent, session, turn, .. }), _) => {
                format!("agents/{}/turns/{}/{turn}", encode(agent.as_str()), encode(session.as_str()))
            }
            (None, Some(job)) => format!("jobs/{job}"),
            (None, None) => {
                arguments.push(None);
                continue;
            }
        };
        if !answers.contains_key(&path) {
            let answer = client.get(&path, &[]).await.unwrap_or_default();
            answers.insert(path.clone(), answer);
        }
        arguments.push(format_arguments(&answers[&path], outcome.call.as_ref()));
    }
    arguments
}

/// Formats the arguments of a call in one line, from the answer with its turn; without a call the input of a job, from
/// the answer with that job. `None` if the answer lacks them.
fn format_arguments(answer: &Value, call: Option<&CallPlaceView>) -> Option<String> {
    let Some(call) = call else {
        let JobView { input, .. } = read_view(answer.clone()).ok()?;
        return input.as_ref().map(turn::format_short);
    };
    let TurnView { record, .. } = read_view(answer.clone()).ok()?;
    turn::call_arguments(&record?, usize::try_from(call.index).ok()?)
}

/// Formats one call in several lines: its id, operation, time, arguments, turn and settlement.
fn details(outcome: &OutcomeView, arguments: Option<String>) -> String {
    let mut lines = vec![format!("{}  {}  {}", outcome.id, escape_data(&outcome.operation), outcome.at.rfc3339())];
    let mut line = |name: &str, text: &str| lines.push(format!("  {name:<8} {}", text.replace('\n', "\n           ")));
    if let Some(job) = &outcome.job {
        line("job", job.as_str());
    }
    if let Some(caller) = &outcome.caller {
        line("caller", &escape_data(caller));
    }
    if let Some(arguments) = arguments {
        line("with", &arguments);
    }
    if let Some(CallPlaceView { agent, session, turn, index, tool }) = &outcome.call {
        line("turn", &format!("{agent}/{session}/{turn}, call {index} (`{}`)", escape_data(tool)));
    }
    if let Some(settled) = &outcome.settled {
        let done = if settled.done { "done" } else { "not done" };
        line("settled", &format!("{done}, by {} at {}", escape_data(&settled.by), settled.at.rfc3339()));
        if let Some(result) = &settled.result {
            line("result", &format_plain(result));
        }
        if let Some(note) = &settled.note {
            line("note", &escape_data(note));
        }
    }
    lines.join("\n")
}
