//! `trellis agent apply`: creates and updates agents from files.

use super::super::client::{Client, encode, read_view};
use super::super::exit::{Exit, Failure};
use super::super::output::{CommandOutput, Format, write_line};
use super::diff::{KeyChange, diff};
use super::files::{AgentFile, AgentFiles, read_all, strip_owners};
use super::requests::CreateAgentRequest;
use super::warnings::warn;
use crate::domain::agent::AgentConfig;
use crate::domain::ids::AgentId;
use crate::view::agent::{AgentActivity, AgentDryRunView, AgentRecordView, CreatedAgentView};
use crate::view::to_json;
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Options of `agent apply`.
#[derive(Clone, Copy)]
pub(crate) struct ApplyOptions {
    pub(crate) dry_run: bool,
    pub(crate) strict: bool,
}

/// Applies each agent of the files, one after the other, and shows what changes.
pub(crate) async fn apply(
    client: &Client,
    out: CommandOutput,
    files: &[PathBuf],
    mode: ApplyOptions,
) -> Result<Exit, Failure> {
    let ApplyOptions { dry_run, strict } = mode;
    let agents = read_all(files)?;
    let is_checked = strict || dry_run || agents.len() > 1 || agents.values().any(|file| file.config.is_none());
    let mut checked = if is_checked { check_all(client, &agents, strict).await? } else { BTreeMap::new() };
    let mut answers = Vec::new();
    for (id, file) in &agents {
        let dry = checked.remove(id).unwrap_or_default();
        let answer = apply_agent(client, id, file, dry, dry_run).await.map_err(|failure| {
            let done = answers.len();
            let rest =
                if done > 0 && !dry_run { format!(" ({done} of {} are applied)", agents.len()) } else { String::new() };
            Failure::new(failure.exit, format!("agent `{id}` of `{}`{rest}: {failure}", file.path.display()))
        })?;
        warn(id, &answer.warnings);
        if out.format == Format::Text {
            show(id, &answer, dry_run)?;
        }
        answers.push(answer);
    }
    match out.format {
        Format::Text => {}
        Format::Json | Format::Ndjson => {
            let agents = answers.into_iter().map(|answer| answer.document).collect();
            out.page(&to_json(&AppliedAgentList { agents }), "agents", |_| String::new())?;
        }
    }
    Ok(Exit::Ok)
}

/// Asks the venue about every agent before any is applied, and returns its answers; the errors are reported together.
async fn check_all(client: &Client, agents: &AgentFiles, strict: bool) -> Result<BTreeMap<AgentId, Value>, Failure> {
    let mut answers = BTreeMap::new();
    let mut failed: Option<Failure> = None;
    for (id, file) in agents {
        let request = CreateAgentRequest {
            strict: Some(strict),
            dry_run: Some(true),
            ..CreateAgentRequest::new(id.as_str(), &file.layers)
        };
        let failure = match create(client, &request).await {
            Ok(answer) => {
                answers.insert(id.clone(), answer);
                continue;
            }
            Err(failure) => failure,
        };
        let text = format!("agent `{id}` of `{}`: {failure}", file.path.display());
        let exit = failed.as_ref().map_or(failure.exit, |first| first.exit);
        let before = failed.map(|first| first.text + "\nerror: ").unwrap_or_default();
        failed = Some(Failure::new(exit, before + &text));
        if exit == Exit::Unreachable {
            break;
        }
    }
    failed.map_or(Ok(answers), Err)
}

/// Result for one agent.
struct AppliedAgent {
    warnings: Vec<String>,
    /// Version of the configuration; `None` of a dry run.
    version: Option<u64>,
    document: AppliedAgentDocument,
}

/// What JSON output shows of one agent.
#[derive(Serialize)]
struct AppliedAgentDocument {
    /// The venue's answer as it came.
    #[serde(flatten)]
    answer: Value,
    /// `created`, `updated` or `unchanged`.
    result: &'static str,
    changes: Vec<KeyChange>,
}

/// What JSON output shows of all agents.
#[derive(Serialize)]
struct AppliedAgentList {
    agents: Vec<AppliedAgentDocument>,
}

async fn create(client: &Client, request: &CreateAgentRequest<'_>) -> Result<Value, Failure> {
    client.run("v/ops/agent/create", request, None).await
}

/// Applies an agent; `dry` is the venue's answer to a dry run of it, if one was made.
async fn apply_agent(
    client: &Client,
    id: &AgentId,
    file: &AgentFile,
    dry: Value,
    dry_run: bool,
) -> Result<AppliedAgent, Failure> {
    let before = match client.get(&format!("agents/{}", encode(id.as_str())), &[]).await {
        Ok(info) => Some(read_view::<AgentRecordView>(info)?),
        Err(failure) if failure.exit == Exit::NotFound => None,
        Err(failure) => return Err(failure),
    };
    let checked = if dry.is_null() { None } else { Some(read_view::<AgentDryRunView>(dry.clone())?) };
    let (dry_config, dry_warnings) = checked.map(|checked| (checked.config, checked.warnings)).unwrap_or_default();
    let after = match &file.config {
        Some(config) => {
            let config = AgentConfig::parse(&strip_owners(config));
            to_json(&config.map_err(|e| Failure::usage(e.to_string()))?)
        }
        // The venue has read the stored configuration that the file names.
        None => dry_config,
    };
    let changes = before.as_ref().map(|agent| changes(agent, &after)).unwrap_or_default();
    let (result, warnings, version, answer) = if dry_run {
        let result = match &before {
            None => "created",
            Some(_) if changes.is_empty() => "unchanged",
            Some(_) => "updated",
        };
        (result, dry_warnings, None, dry)
    } else {
        let request =
            CreateAgentRequest { overwrite: Some(true), ..CreateAgentRequest::new(id.as_str(), &file.layers) };
        let answer = create(client, &request).await?;
        let CreatedAgentView { created, updated, config_version, warnings, .. } = read_view(answer.clone())?;
        let result = match (created, updated) {
            (true, _) => "created",
            (false, true) => "updated",
            (false, false) => "unchanged",
        };
        (result, warnings, Some(config_version), answer)
    };
    Ok(AppliedAgent { warnings, version, document: AppliedAgentDocument { answer, result, changes } })
}

/// Returns the keys that change. A terminated agent begins again.
fn changes(agent: &AgentRecordView, after: &Value) -> Vec<KeyChange> {
    let mut changes = diff(&agent.config, after);
    if agent.status == AgentActivity::Terminated {
        let status = |activity: AgentActivity| json!({"status": activity.as_str()});
        changes.extend(diff(&status(agent.status), &status(AgentActivity::Sleeping)));
    }
    changes
}

fn show(id: &AgentId, answer: &AppliedAgent, dry_run: bool) -> Result<(), Failure> {
    let AppliedAgentDocument { result, changes, .. } = &answer.document;
    let head = match (dry_run, *result) {
        (true, "unchanged") => format!("{id} would stay unchanged"),
        (true, result) => format!("{id} would be {result}"),
        (false, result) => format!("{id} {result}, configuration {}", answer.version.unwrap_or_default()),
    };
    write_line(&head)?;
    changes.iter().try_for_each(|change| write_line(&change.line()))
}
