//! `trellis mcp servers|server|refresh|approve|login|logout`: the servers whose tools agents use, and approval of their changes.

use super::CliContext;
use super::client::{Client, ServerArgs};
use super::escape::{cell, escape_data};
use super::exit::{Exit, Failure};
use super::mcp_login::{self, describe_life};
use super::named_place::NamedPlaceArgs;
use super::output::CommandOutput;
use crate::view::mcp_login::McpLoginView;
use crate::view::mcp_server::{McpDifferenceView, McpServerDetailView, McpServersView};
use clap::Subcommand;
use serde::Serialize;

/// What people do with the servers whose tools agents use.
#[derive(Debug, Subcommand)]
pub(crate) enum McpServersCommand {
    /// List the servers whose tools agents use: those of the venue, and with `--agent` those of an agent
    #[command(after_help = "Example:\n  trellis mcp servers --agent helper")]
    Servers {
        /// Agent whose own servers are listed too
        #[arg(long, value_name = "AGENT")]
        agent: Option<String>,
        /// Which server to ask, and for whom
        #[command(flatten)]
        server: ServerArgs,
    },
    /// Show a server: its approved tools, those that can't be used, and a change that waits for approval
    #[command(after_help = "Example:\n  trellis mcp server github --agent helper")]
    Server(NamedPlaceArgs),
    /// Ask a server for its tools now, and show what differs from the approved ones
    #[command(after_help = "Example:\n  trellis mcp refresh github --agent helper")]
    Refresh(NamedPlaceArgs),
    /// Approve the change of a server's tools, as it was shown
    #[command(after_help = "Example:\n  trellis mcp approve github 6f0c… --agent helper")]
    Approve {
        /// Server whose change is approved
        #[command(flatten)]
        place: NamedPlaceArgs,
        /// Hash of the change, as `trellis mcp server` shows it
        change: String,
    },
    /// Log in at a server in a browser on this machine
    #[command(after_help = "Example:\n  trellis mcp login github --agent helper")]
    Login(NamedPlaceArgs),
    /// Log out of a server: its tokens are deleted
    #[command(after_help = "Example:\n  trellis mcp logout github --agent helper")]
    Logout(NamedPlaceArgs),
}

/// Arguments of the operations `v/ops/mcp/*`.
#[derive(Serialize)]
struct ServerRequest<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    server: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    agent: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    change: Option<&'a str>,
}

impl McpServersCommand {
    pub async fn run(self, context: &CliContext) -> Result<Exit, Failure> {
        let (operation, name, agent, change, server) = match &self {
            Self::Servers { agent, server } => ("v/ops/mcp/servers", None, agent, None, server),
            Self::Server(NamedPlaceArgs { name, agent, server }) => {
                ("v/ops/mcp/server", Some(name), agent, None, server)
            }
            Self::Refresh(NamedPlaceArgs { name, agent, server }) => {
                ("v/ops/mcp/refresh", Some(name), agent, None, server)
            }
            Self::Approve { place: NamedPlaceArgs { name, agent, server }, change } => {
                ("v/ops/mcp/approve", Some(name), agent, Some(change), server)
            }
            Self::Login(place) => return mcp_login::login(context, place).await,
            Self::Logout(place) => return mcp_login::logout(context, place).await,
        };
        let request = ServerRequest {
            server: name.map(String::as_str),
            agent: agent.as_deref(),
            change: change.map(String::as_str),
        };
        let shown = Client::new(server)?.run(operation, &request, None).await?;
        if name.is_none() {
            context.out.typed_value(shown, |servers: &McpServersView| list(context.out, servers))?;
        } else {
            context.out.typed_value(shown, |detail: &McpServerDetailView| describe(context.out, detail))?;
        }
        Ok(Exit::Ok)
    }
}

fn list(out: CommandOutput, servers: &McpServersView) -> String {
    let rows: Vec<_> = servers
        .items
        .iter()
        .map(|server| {
            let state = match (&server.failure, server.changed) {
                (Some(reason), _) => format!("can't be asked: {}", cell(reason)),
                (None, 0) if server.approved.is_none() => "not asked yet".to_owned(),
                (None, 0) => "ok".to_owned(),
                (None, 1) => "1 change waits for approval".to_owned(),
                (None, changed) => format!("{changed} changes wait for approval"),
            };
            let agent = server.agent.as_deref().unwrap_or("the venue");
            let login = server.login.as_ref().map_or_else(|| "-".to_owned(), describe_login);
            vec![server.name.clone(), agent.to_owned(), server.tools.to_string(), login, state]
        })
        .collect();
    out.table(&["SERVER", "OF", "TOOLS", "LOGIN", "STATE"], &rows)
}

/// Returns who has logged in, and until when.
fn describe_login(login: &McpLoginView) -> String {
    format!("{}, {}", cell(&login.by), describe_life(login))
}

fn describe(out: CommandOutput, detail: &McpServerDetailView) -> String {
    let mut text = format!("{}  {}", escape_data(&detail.server.name), escape_data(&detail.server.url));
    if let Some(by) = &detail.server.approved_by {
        text.push_str("\napproved by: ");
        text.push_str(&cell(by));
    }
    if let Some(login) = &detail.server.login {
        text.push_str("\nlogged in at ");
        text.push_str(&escape_data(&login.issuer));
        text.push_str(": ");
        text.push_str(&describe_login(login));
    }
    if let Some(reason) = &detail.server.failure {
        text.push_str("\ncan't be asked: ");
        text.push_str(&cell(reason));
    }
    let rows: Vec<_> = detail
        .tools
        .iter()
        .map(|tool| {
            let about = tool.description.as_deref().unwrap_or_default();
            vec![tool.operation.clone(), tool.effect.clone(), cell(about).into_owned()]
        })
        .collect();
    text.push_str("\n\n");
    match no_tools_reason(detail) {
        Some(reason) => text.push_str(&reason),
        None => text.push_str(&out.table(&["TOOL", "EFFECT", "WHAT IT DOES"], &rows)),
    }
    let unused = detail.skipped.iter().map(|tool| format!("\nnot used: {}: {}", cell(&tool.name), cell(&tool.reason)));
    text.extend(unused);
    if let Some(change) = &detail.change {
        text.push_str(
            "\n\nThe server has changed its tools. Until this is approved, they aren't used as they are now:\n",
        );
        change.differences.iter().for_each(|difference| text.push_str(&diff_lines(difference)));
        let agent = detail.server.agent.as_ref().map(|agent| format!(" --agent {agent}")).unwrap_or_default();
        let command = format!("trellis mcp approve {} {}{agent}", detail.server.name, change.hash);
        text.push('\n');
        text.push_str(&out.bold(&command));
    }
    text
}

/// Returns why a server has no tools; `None` if it has any.
fn no_tools_reason(detail: &McpServerDetailView) -> Option<String> {
    let McpServerDetailView { server, tools, skipped, .. } = detail;
    if !tools.is_empty() {
        return None;
    }
    let agent = server.agent.as_ref().map(|agent| format!(" --agent {}", escape_data(agent))).unwrap_or_default();
    Some(match (server.approved, skipped.len()) {
        (None, _) => format!(
            "no tools yet: the server is asked at its first use, or now by `trellis mcp refresh {}{agent}`",
            escape_data(&server.name)
        ),
        (Some(_), 0) => "no tools: the server offers none that its `tools` allow".to_owned(),
        (Some(_), _) => "no tools: none that the server offers can be used".to_owned(),
    })
}

/// Returns the lines of one difference: what was, and what is.
fn diff_lines(difference: &McpDifferenceView) -> String {
    let head = format!("\n{} {}, `{}`\n", cell(&difference.tool), difference.kind, cell(&difference.key));
    format!("{head}{}{}", value_lines('-', &difference.before), value_lines('+', &difference.after))
}

/// Returns the lines of a value behind a sign; none of null.
pub(super) fn value_lines(sign: char, value: &serde_json::Value) -> String {
    match value {
        serde_json::Value::Null => String::new(),
        serde_json::Value::String(text) => {
            text.lines().map(|line| format!("{sign} {}\n", cell(line))).collect::<Vec<_>>().concat()
        }
        other => format!("{sign} {}\n", cell(&other.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn a_server_without_tools_says_why() {
        for (server, skipped, expected) in [
            (
                json!({}),
                json!([]),
                "the server is asked at its first use, or now by `trellis mcp refresh wiki --agent a`",
            ),
            (json!({"approved": 5}), json!([]), "the server offers none that its `tools` allow"),
            (json!({"approved": 5}), json!([{"name": "x", "reason": "y"}]), "can be used"),
        ] {
            let mut whole = json!({"name": "wiki", "agent": "a", "url": "https://h/", "tools": 0, "changed": 0});
            whole.as_object_mut().unwrap().extend(server.as_object().unwrap().clone());
            let detail = json!({"server": whole, "tools": [], "skipped": skipped});
            let reason = no_tools_reason(&serde_json::from_value(detail).unwrap()).unwrap();
            assert!(reason.contains(expected), "{reason}");
        }
    }

    #[test]
    fn a_change_is_shown_line_by_line() {
        let difference = |before: Value, after: Value| McpDifferenceView {
            tool: "pay".into(),
            kind: "changed".into(),
            key: "description".into(),
            before,
            after,
        };
        let shown = diff_lines(&difference(json!("Pays.\nOnce."), json!("Pays.\u{1b}[2K")));
        assert_eq!(shown, "\npay changed, `description`\n- Pays.\n- Once.\n+ Pays.\\u{1b}[2K\n");
        let shown = diff_lines(&difference(Value::Null, json!({"type": "object"})));
        assert_eq!(shown, "\npay changed, `description`\n+ {\"type\":\"object\"}\n");
    }
}
