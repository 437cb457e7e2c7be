//! `trellis agent …`: creates, changes and shows agents.

mod apply;
mod diff;
mod files;
mod layers;
mod requests;
mod warnings;

use super::client::{Client, ServerArgs, encode, read_view};
use super::confirm::confirm;
use super::escape::{cell, escape_data};
use super::exit::{Exit, Failure};
use super::output::{CommandOutput, note, pretty};
use super::submit::NO_AGENT;
use super::{CliContext, input};
use crate::domain::agent::schema;
use crate::domain::ids::AgentId;
use crate::view::agent::{AgentEndView, AgentPage, AgentRowView, AgentSwitchView, UpdatedAgentView};
use crate::view::request::AgentListRequest;
use apply::ApplyOptions;
use clap::Subcommand;
pub(crate) use files::read_config;
pub(crate) use layers::AgentLayers;
use requests::{AgentSwitchRequest, DeleteAgentRequest, ForkAgentRequest, MergedKeys};
pub(crate) use requests::{CreateAgentRequest, UpdateAgentRequest};
use serde::Serialize;
use serde_json::{Value, json};
use std::path::PathBuf;
use warnings::warn;

/// Agents: durable records with a configuration.
#[derive(Debug, Subcommand)]
pub(crate) enum Agent {
    /// Create agents from files, or give existing ones another configuration
    ///
    /// A file is TOML, JSON or YAML; the agent's id is its key `id`, else the file's name without its
    /// ending. Of a folder, all `.toml`, `.json`, `.yaml` and `.yml` files. Its `config` may name what the venue
    /// keeps, such as the template `v/agents/templates/reader`. Nothing is sent unless all are valid.
    /// Applying the same again changes nothing. Each agent is shown with the keys that change.
    #[command(after_help = "Example:\n  trellis agent apply agents/ helper.toml --dry-run")]
    Apply {
        /// Files and folders
        #[arg(required = true, value_name = "FILE|DIR")]
        files: Vec<PathBuf>,
        /// Show what would change, and change nothing
        #[arg(long)]
        dry_run: bool,
        /// Apply none when one of them names a provider, operation or ability that the venue doesn't know
        #[arg(long)]
        strict: bool,
        /// Which server, and for whom
        #[command(flatten)]
        server: ServerArgs,
    },
    /// Change keys of an agent's configuration
    ///
    /// `KEY=VALUE`, the value as JSON where it parses, else as text; `null` removes the key. Keys of
    /// maps are named with dots. Applies from the next turn.
    #[command(after_help = "Example:\n  trellis agent update helper limits.turns=5 description=null")]
    Update {
        /// Id of the agent
        id: AgentId,
        /// What to change
        #[arg(required = true, value_name = "KEY=VALUE", value_parser = input::pair)]
        keys: Vec<(String, Value)>,
        /// Only when the configuration has this version
        #[arg(long, value_name = "VERSION")]
        expect: Option<u64>,
        /// Refuse a result that names a provider, operation or ability that the venue doesn't know
        #[arg(long)]
        strict: bool,
        /// Which server, and for whom
        #[command(flatten)]
        server: ServerArgs,
    },
    /// Stop an agent from running; it takes work, and nothing that waits is lost
    #[command(after_help = "Example:\n  trellis agent suspend helper --reason 'the model is being changed'")]
    Suspend {
        /// Id of the agent
        id: AgentId,
        /// Why, for the record
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
        /// Which server, and for whom
        #[command(flatten)]
        server: ServerArgs,
    },
    /// Let a suspended agent run again, with everything that has waited
    #[command(after_help = "Example:\n  trellis agent resume helper")]
    Resume {
        /// Id of the agent
        id: AgentId,
        /// Which server, and for whom
        #[command(flatten)]
        server: ServerArgs,
    },
    /// Make a new agent with the configuration and state of another
    #[command(after_help = "Example:\n  trellis agent fork helper helper-2 --timeline")]
    Fork {
        /// The agent that is copied
        id: AgentId,
        /// Id of the new one
        to: AgentId,
        /// Copy its sessions too
        #[arg(long)]
        timeline: bool,
        /// Replace the configuration and state of an agent of that name
        #[arg(long, conflicts_with = "timeline")]
        overwrite: bool,
        /// Which server, and for whom
        #[command(flatten)]
        server: ServerArgs,
    },
    /// End an agent: unfinished tasks are cancelled, new work is refused
    ///
    /// Its name, turns and sessions are kept. With `--remove` they are deleted, and the name is free.
    #[command(after_help = "Example:\n  trellis agent delete helper --remove --yes")]
    Delete {
        /// Id of the agent
        id: AgentId,
        /// Also delete its sessions and documents and free the name
        #[arg(long)]
        remove: bool,
        /// Do it without a question
        #[arg(long)]
        yes: bool,
        /// Which server, and for whom
        #[command(flatten)]
        server: ServerArgs,
    },
    /// Show an agent: status, configuration, open tasks
    #[command(after_help = "Example:\n  trellis agent get helper")]
    Get {
        /// Id of the agent
        id: AgentId,
        /// Which server, and for whom
        #[command(flatten)]
        server: ServerArgs,
    },
    /// Print the JSON Schema of agent files, for editors
    #[command(after_help = "Example:\n  trellis agent schema > agent.schema.json")]
    Schema,
    /// List agents, ordered by name
    #[command(after_help = "Example:\n  trellis agent list --output ndjson")]
    List {
        /// Those behind this one, by name
        #[arg(long, value_name = "AGENT")]
        after: Option<AgentId>,
        /// Which server, and for whom
        #[command(flatten)]
        server: ServerArgs,
    },
}

impl Agent {
    pub async fn run(self, context: &CliContext) -> Result<Exit, Failure> {
        match self {
            Self::Apply { files, dry_run, strict, server } => {
                apply::apply(&Client::new(&server)?, context.out, &files, ApplyOptions { dry_run, strict }).await
            }
            Self::Get { id, server } => {
                let info = Client::new(&server)?.get(&format!("agents/{}", encode(id.as_str())), &[]).await;
                let info = info.map_err(|e| e.with_advice_on("no agent `", NO_AGENT))?;
                context.out.value(&info, || pretty(&info))?;
                Ok(Exit::Ok)
            }
            Self::Schema => {
                let schema = schema::schema();
                context.out.value(&schema, || pretty(&schema))?;
                Ok(Exit::Ok)
            }
            Self::List { after, server } => list(&Client::new(&server)?, context.out, after).await,
            Self::Update { id, keys, expect, strict, server } => {
                // A dotted key is merged into its map, a whole key replaces the value.
                let (deep, whole): (Vec<_>, Vec<_>) = keys.into_iter().partition(|(key, _)| key.contains('.'));
                let request = UpdateAgentRequest {
                    agent_id: id.as_str(),
                    config: whole.into_iter().collect(),
                    state: Some(MergedKeys { config: nest_keys(deep) }),
                    expect,
                    strict: strict.then_some(true),
                };
                let answer = run(&Client::new(&server)?, "update", &request).await?;
                let updated: UpdatedAgentView = read_view(answer.clone())?;
                warn(&id, &updated.warnings);
                context.out.value(&answer, || {
                    let what = if updated.updated { "updated" } else { "unchanged" };
                    format!("{id} {what}, configuration {}", updated.config_version)
                })?;
                Ok(Exit::Ok)
            }
            Self::Suspend { id, reason, server } => {
                let request = AgentSwitchRequest { agent_id: &id, reason };
                let answer = run(&Client::new(&server)?, "suspend", &request).await?;
                context.out.typed_value::<AgentSwitchView>(answer, status_line)?;
                Ok(Exit::Ok)
            }
            Self::Resume { id, server } => {
                let request = AgentSwitchRequest { agent_id: &id, reason: None };
                let answer = run(&Client::new(&server)?, "resume", &request).await?;
                context.out.typed_value::<AgentSwitchView>(answer, status_line)?;
                Ok(Exit::Ok)
            }
            Self::Fork { id, to, timeline, overwrite, server } => {
                let request = ForkAgentRequest { agent_id: &id, to: &to, timeline, overwrite };
                let answer = run(&Client::new(&server)?, "fork", &request).await?;
                context.out.value(&answer, || format!("{to} is a fork of {id}"))?;
                Ok(Exit::Ok)
            }
            Self::Delete { id, remove, yes, server } => {
                if !yes {
                    confirm_deletion(&Client::new(&server)?, &id, remove).await?;
                }
                let request = DeleteAgentRequest { agent_id: &id, remove };
                let answer = run(&Client::new(&server)?, "delete", &request).await?;
                context.out.typed_value(answer, |end: &AgentEndView| {
                    let what = if remove { "removed" } else { "TERMINATED" };
                    format!("{id} {what}, {} unfinished tasks cancelled", end.cancelled)
                })?;
                Ok(Exit::Ok)
            }
        }
    }
}

/// Asks whether to delete an agent. Nothing is asked about one that doesn't exist, as far as the caller may know that.
async fn confirm_deletion(client: &Client, id: &AgentId, remove: bool) -> Result<(), Failure> {
    match client.get(&format!("agents/{}", encode(id.as_str())), &[]).await {
        Err(failure) if failure.exit == Exit::NotFound => {
            return Err(failure.with_advice_on("no agent `", NO_AGENT));
        }
        Ok(_) | Err(_) => {}
    }
    let end = if remove { "deleted with its sessions and documents" } else { "ended for good" };
    confirm(&format!("agent `{id}` would be {end}, and its unfinished tasks cancelled"))
}

async fn list(client: &Client, out: CommandOutput, after: Option<AgentId>) -> Result<Exit, Failure> {
    let request = AgentListRequest { after: after.as_ref().map(AgentId::as_str), ..AgentListRequest::default() };
    let page = client.run("v/ops/agent/list", &request, None).await?;
    let AgentPage { agents, next } = read_view(page.clone())?;
    out.page(&page, "agents", |_| {
        let row = |agent: &AgentRowView| {
            vec![
                agent.agent_id.to_string(),
                agent.status.as_str().to_owned(),
                agent.description.clone().unwrap_or_default(),
            ]
        };
        let rows: Vec<_> = agents.iter().map(row).collect();
        out.table(&["AGENT", "STATUS", "DESCRIPTION"], &rows)
    })?;
    if let Some(next) = next {
        note(&format!("there are more; `--after {next}` shows the next"));
    }
    Ok(Exit::Ok)
}

/// Runs `v/ops/agent/<verb>`.
async fn run(client: &Client, verb: &str, request: &impl Serialize) -> Result<Value, Failure> {
    let answer = client.run(&format!("v/ops/agent/{verb}"), request, None).await;
    answer.map_err(|e| e.with_advice_on("no agent `", NO_AGENT))
}

fn status_line(agent: &AgentSwitchView) -> String {
    let why = agent.error.as_ref().map(|error| format!(": {}", cell(error))).unwrap_or_default();
    format!("{} {}{why}", escape_data(agent.agent_id.as_str()), agent.status.as_str())
}

/// Converts `a.b=1` to `{a: {b: 1}}`.
fn nest_keys(keys: Vec<(String, Value)>) -> Value {
    let mut whole = json!({});
    for (key, value) in keys {
        let mut place = &mut whole;
        for step in key.split('.') {
            if !place.is_object() {
                *place = json!({});
            }
            place = &mut place[step];
        }
        *place = value;
    }
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dotted_keys_are_maps_in_maps() {
        let keys = [("a.b", json!(1)), ("a.c.d", json!(null)), ("x.y", json!("t"))];
        let keys = keys.map(|(key, value)| (key.to_owned(), value)).into();
        assert_eq!(nest_keys(keys), json!({"a": {"b": 1, "c": {"d": null}}, "x": {"y": "t"}}));
    }
}
