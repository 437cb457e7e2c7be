//! `trellis job list --outcome unknown` and `job settle`: calls with an unknown outcome.

use super::client::{Client, ServerArgs};
use super::exit::{Exit, Failure};
use super::input;
use super::output::{CommandOutput, field, format_plain, note, note_next, time};
use crate::domain::ids::JobId;
use clap::Args;
use serde_json::{Value, json};

/// What a person has found out.
#[derive(Debug, Args)]
pub(crate) struct SettleArgs {
    /// Its id, as `job list --outcome unknown` prints it
    id: JobId,
    /// It has happened, and returned this if that is known: text, JSON, `@file`, or `-` for stdin
    #[arg(long, value_name = "RESULT", num_args = 0..=1, default_missing_value = "", required_unless_present = "not_done")]
    done: Option<String>,
    /// It has not happened
    #[arg(long, conflicts_with = "done")]
    not_done: bool,
    /// Why, for the record
    #[arg(long, value_name = "TEXT")]
    note: Option<String>,
    /// Send it to the agent's session as a message, which wakes it
    #[arg(long)]
    tell: bool,
    /// Which server, and for whom
    #[command(flatten)]
    server: ServerArgs,
}

impl SettleArgs {
    pub(super) async fn run(self, out: CommandOutput) -> Result<Exit, Failure> {
        let mut said = json!({"done": !self.not_done, "tell": self.tell});
        if let Some(result) = self.done.filter(|result| !result.is_empty()) {
            said["result"] = input::value(&result, false)?;
        }
        if let Some(note) = self.note {
            said["note"] = note.into();
        }
        let outcome = Client::new(&self.server)?.put(&format!("outcomes/{}", self.id), &said).await?;
        out.value(&outcome, || details(&outcome))?;
        Ok(Exit::Ok)
    }
}

/// Prints a page of unknown outcomes.
pub(super) async fn list(
    client: &Client,
    out: CommandOutput,
    all: bool,
    (offset, limit): (usize, usize),
) -> Result<Exit, Failure> {
    let query = [("all", all.to_string()), ("offset", offset.to_string()), ("limit", limit.to_string())];
    let page = client.get("outcomes", &query).await?;
    out.page(&page, "items", |items| items.iter().map(details).collect::<Vec<_>>().join("\n\n"))?;
    if page["total"] == 0 {
        note("no call has an unknown outcome");
    }
    note_next(&page);
    Ok(Exit::Ok)
}

/// Formats a call: its id, its operation, the turn and the settlement.
fn details(outcome: &Value) -> String {
    let mut lines =
        vec![format!("{}  {}  {}", field(outcome, "id"), field(outcome, "operation"), time(&outcome["at"]))];
    let mut line =
        |name: &str, text: String| lines.push(format!("  {name:<8} {}", text.replace('\n', "\n           ")));
    if !outcome["job"].is_null() {
        line("job", field(outcome, "job"));
    }
    if !outcome["caller"].is_null() {
        line("caller", field(outcome, "caller"));
    }
    let call = &outcome["call"];
    if !call.is_null() {
        let [agent, session, turn] = ["agent", "session", "turn"].map(|name| field(call, name));
        line("turn", format!("{agent}/{session}/{turn}, call {} (`{}`)", field(call, "index"), field(call, "tool")));
    }
    let settled = &outcome["settled"];
    if !settled.is_null() {
        let done = if settled["done"] == true { "done" } else { "not done" };
        line("settled", format!("{done}, by {} at {}", field(settled, "by"), time(&settled["at"])));
        for name in ["result", "note"] {
            if !settled[name].is_null() {
                line(name, format_plain(&settled[name]));
            }
        }
    }
    lines.join("\n")
}
