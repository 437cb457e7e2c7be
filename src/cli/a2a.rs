//! `trellis a2a agents|agent|refresh|approve`: the agents elsewhere that agents give work to, and approval of their
//! changed cards.

use super::CliContext;
use super::client::{Client, ServerArgs};
use super::escape::{cell, escape_data};
use super::exit::{Exit, Failure};
use super::mcp_servers::value_lines;
use super::named_place::NamedPlaceArgs;
use super::output::CommandOutput;
use crate::view::remote_agent::{CardDifferenceView, RemoteAgentDetailView, RemoteAgentView, RemoteAgentsView};
use clap::Subcommand;
use serde::Serialize;

/// What people do with the agents elsewhere that agents give work to.
#[derive(Debug, Subcommand)]
pub(crate) enum A2aCommand {
    /// List the agents elsewhere: those of the venue, and with `--agent` those of an agent
    #[command(after_help = "Example:\n  trellis a2a agents --agent helper")]
    Agents {
        /// Agent whose own list is shown too
        #[arg(long, value_name = "AGENT")]
        agent: Option<String>,
        /// Which server to ask, and for whom
        #[command(flatten)]
        server: ServerArgs,
    },
    /// Show an agent elsewhere: its approved card, and a change that waits for approval
    #[command(after_help = "Example:\n  trellis a2a agent partner --agent helper")]
    Agent(NamedPlaceArgs),
    /// Ask an agent elsewhere for its card now, and show what differs from the approved one
    #[command(after_help = "Example:\n  trellis a2a refresh partner --agent helper")]
    Refresh(NamedPlaceArgs),
    /// Approve the changed card of an agent elsewhere, as it was shown
    #[command(after_help = "Example:\n  trellis a2a approve partner 6f0c… --agent helper")]
    Approve {
        /// Agent elsewhere whose change is approved
        #[command(flatten)]
        place: NamedPlaceArgs,
        /// Hash of the change, as `trellis a2a agent` shows it
        change: String,
    },
}

/// Arguments of the operations `v/ops/a2a/*`.
#[derive(Serialize)]
struct RemoteAgentRequest<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    agent: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    change: Option<&'a str>,
}

impl A2aCommand {
    pub async fn run(self, context: &CliContext) -> Result<Exit, Failure> {
        let (operation, name, agent, change, server) = match &self {
            Self::Agents { agent, server } => ("v/ops/a2a/agents", None, agent, None, server),
            Self::Agent(NamedPlaceArgs { name, agent, server }) => ("v/ops/a2a/agent", Some(name), agent, None, server),
            Self::Refresh(NamedPlaceArgs { name, agent, server }) => {
                ("v/ops/a2a/refresh", Some(name), agent, None, server)
            }
            Self::Approve { place: NamedPlaceArgs { name, agent, server }, change } => {
                ("v/ops/a2a/approve", Some(name), agent, Some(change), server)
            }
        };
        let request = RemoteAgentRequest {
            name: name.map(String::as_str),
            agent: agent.as_deref(),
            change: change.map(String::as_str),
        };
        let shown = Client::new(server)?.run(operation, &request, None).await?;
        if name.is_none() {
            context.out.typed_value(shown, |agents: &RemoteAgentsView| list(context.out, agents))?;
        } else {
            context.out.typed_value(shown, |detail: &RemoteAgentDetailView| describe(context.out, detail))?;
        }
        Ok(Exit::Ok)
    }
}

fn list(out: CommandOutput, agents: &RemoteAgentsView) -> String {
    let row = |agent: &RemoteAgentView| {
        let state = match (&agent.failure, agent.changed) {
            (Some(reason), _) => format!("can't be asked: {}", cell(reason)),
            (None, true) => "its changed card waits for approval".to_owned(),
            (None, false) => "ok".to_owned(),
        };
        let of = agent.agent.as_deref().unwrap_or("the venue");
        vec![agent.name.clone(), of.to_owned(), cell(&agent.url).into_owned(), state]
    };
    let rows: Vec<_> = agents.items.iter().map(row).collect();
    out.table(&["AGENT", "OF", "URL", "STATE"], &rows)
}

fn describe(out: CommandOutput, detail: &RemoteAgentDetailView) -> String {
    let agent = &detail.agent;
    let mut text = format!("{}  {}", escape_data(&agent.name), escape_data(&agent.url));
    if let Some(reason) = &agent.failure {
        text.push_str("\ncan't be asked: ");
        text.push_str(&cell(reason));
    }
    for line in [&detail.title, &detail.description].into_iter().flatten().filter(|line| !line.is_empty()) {
        text.push('\n');
        text.push_str(&cell(line));
    }
    text.extend(detail.addresses.iter().map(|address| format!("\nat {}", cell(address))));
    let rows: Vec<_> = detail
        .skills
        .iter()
        .map(|skill| vec![cell(&skill.id).into_owned(), cell(&skill.description).into_owned()])
        .collect();
    text.push_str("\n\n");
    text.push_str(&out.table(&["SKILL", "WHAT IT DOES"], &rows));
    if let Some(change) = &detail.change {
        text.push_str("\n\nThe agent has changed its card. Until this is approved, it isn't called:\n");
        change.differences.iter().for_each(|difference| text.push_str(&diff_lines(difference)));
        let of = agent.agent.as_ref().map(|agent| format!(" --agent {agent}")).unwrap_or_default();
        let command = format!("trellis a2a approve {} {}{of}", agent.name, change.hash);
        text.push('\n');
        text.push_str(&out.bold(&command));
    }
    text
}

/// Returns the lines of one difference: what was, and what is.
fn diff_lines(difference: &CardDifferenceView) -> String {
    let head = format!("\n`{}`\n", cell(&difference.key));
    format!("{head}{}{}", value_lines('-', &difference.before), value_lines('+', &difference.after))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn a_changed_card_is_shown_line_by_line() {
        let difference =
            CardDifferenceView { key: "description".into(), before: json!("Pays."), after: json!("Pays.\u{1b}[2K") };
        assert_eq!(diff_lines(&difference), "\n`description`\n- Pays.\n+ Pays.\\u{1b}[2K\n");
        let added = CardDifferenceView { key: "skills".into(), before: Value::Null, after: json!([1]) };
        assert_eq!(diff_lines(&added), "\n`skills`\n+ [1]\n");
    }
}
