//! `trellis job list --outcome unknown` and `job settle`: calls with an unknown outcome.

use super::client::{Client, ServerArgs, encode};
use super::exit::{Exit, Failure};
use super::input;
use super::output::{CommandOutput, Format, field, format_plain, note, note_next, time};
use super::turn;
use crate::domain::ids::JobId;
use clap::Args;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::iter;

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
        out.value(&outcome, || details(&outcome, None))?;
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
    let made = if out.format == Format::Text { read_arguments(client, &page["items"]).await } else { Vec::new() };
    let made = made.into_iter().chain(iter::repeat(None));
    let text = |items: &[Value]| {
        let lines: Vec<_> = items.iter().zip(made).map(|(item, made)| details(item, made)).collect();
        lines.join("\n\n")
    };
    out.page(&page, "items", text)?;
    if page["total"] == 0 {
        note("no call has an unknown outcome");
    }
    note_next(&page);
    Ok(Exit::Ok)
}

/// Returns the arguments of each call in one line, from its turn or job; `None` if the server doesn't show that to this
/// caller.
async fn read_arguments(client: &Client, items: &Value) -> Vec<Option<String>> {
    let mut turns: BTreeMap<String, Value> = BTreeMap::new();
    let mut made = Vec::new();
    for outcome in items.as_array().into_iter().flatten() {
        let call = &outcome["call"];
        let path = match (call["agent"].as_str(), call["session"].as_str(), outcome["job"].as_str()) {
            (Some(agent), Some(session), _) => {
                format!("agents/{}/turns/{}/{}", encode(agent), encode(session), call["turn"])
            }
            (_, _, Some(job)) => format!("jobs/{}", encode(job)),
            (_, _, None) => {
                made.push(None);
                continue;
            }
        };
        if !turns.contains_key(&path) {
            let shown = client.get(&path, &[]).await.unwrap_or_default();
            turns.insert(path.clone(), shown);
        }
        let shown = &turns[&path];
        made.push(match call["index"].as_u64().and_then(|index| usize::try_from(index).ok()) {
            Some(index) => turn::call_arguments(&shown["record"], index),
            None => Some(&shown["input"]).filter(|input| !input.is_null()).map(turn::format_short),
        });
    }
    made
}

/// Formats one call: its id, operation, arguments, turn and settlement.
fn details(outcome: &Value, made: Option<String>) -> String {
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
    if let Some(made) = made {
        line("with", made);
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
