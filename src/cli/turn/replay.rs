//! `trellis turn replay`: builds past prompts again, unchanged or with changes.

use super::super::client::{Client, encode, read_view};
use super::super::escape::{cell, escape_data};
use super::super::exit::{Exit, Failure};
use super::super::output::{CommandOutput, write_line};
use super::super::{CliContext, agent, output, role};
use super::{TurnName, diff, newest_turns, table};
use crate::app;
use crate::domain::chat::ModelRequest;
use crate::domain::decode;
use crate::domain::ids::AgentId;
use crate::model::LiveText;
use crate::view::ledger::ReplayView;
use crate::view::to_json;
use clap::Args;
use serde::Serialize;
use serde_json::{Map, Value};
use std::path::PathBuf;

/// What an experiment changes.
#[derive(Debug, Clone, Args)]
pub(crate) struct ExperimentArgs {
    /// Leave out what was read at or below this path, results of tools and copies included
    #[arg(long, value_name = "PATH")]
    without: Vec<String>,
    /// Show this value, JSON or text, wherever this path was read, results of tools included
    #[arg(long, value_name = "PATH=VALUE")]
    with: Vec<String>,
    /// For another model
    #[arg(long, value_name = "PROVIDER/NAME")]
    model: Option<String>,
    /// With another configuration of the agent; entries that the turn did not read are missing
    ///
    /// TOML or JSON, as in `trellis agent apply`. It is not the file of `--config` before the command.
    #[arg(long, value_name = "FILE")]
    agent_config: Option<PathBuf>,
    /// Call the model with the prompt, and print its reply; this may cost money
    #[arg(long)]
    ask: bool,
}

impl ExperimentArgs {
    fn body(&self) -> Result<ReplayBody, Failure> {
        let mut with = Map::new();
        for given in &self.with {
            let (path, value) = given
                .split_once('=')
                .filter(|(path, _)| !path.is_empty())
                .ok_or_else(|| Failure::usage(format!("`--with`: expected `PATH=VALUE`, got `{given}`")))?;
            let value = decode::json(value.as_bytes()).unwrap_or_else(|_| value.into());
            with.insert(path.to_owned(), value);
        }
        let config = self.agent_config.as_ref().map(|file| {
            let config = agent::read_config(file);
            config.map_err(|e| Failure::usage(format!("`{}`: {e}", file.display())))
        });
        let config = config.transpose()?;
        Ok(ReplayBody { without: self.without.clone(), with, model: self.model.clone(), config })
    }
}

/// Body of `POST agents/{id}/turns/{session}/{turn}/replay`.
#[derive(PartialEq, Default, Serialize)]
struct ReplayBody {
    /// Paths that are left out.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    without: Vec<String>,
    /// Other values by their paths.
    #[serde(skip_serializing_if = "Map::is_empty")]
    with: Map<String, Value>,
    /// Another model, `provider/name`.
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<String>,
    /// Another configuration of the agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    config: Option<Value>,
}

/// What JSON output shows of several turns.
#[derive(Serialize)]
struct ReplayList {
    /// The venue's answers as they came.
    replayed: Vec<Value>,
}

pub(crate) async fn run(
    context: &CliContext,
    client: &Client,
    turns: &[String],
    all: bool,
    change: ExperimentArgs,
) -> Result<Exit, Failure> {
    let body = change.body()?;
    let addresses = addresses(client, turns, all).await?;
    let single = addresses.len() == 1 && !all;
    let (mut answers, mut replays): (Vec<Value>, Vec<ReplayView>) = (Vec::new(), Vec::new());
    for address in &addresses {
        match client.post(&format!("{address}/replay"), &body).await {
            Ok(answer) => {
                let replay: ReplayView = read_view(answer.clone())?;
                output::note_incomplete(&replay.incomplete);
                for warning in &replay.warnings {
                    output::note(&format!("warning: {}", cell(warning)));
                }
                replays.push(replay);
                answers.push(answer);
            }
            // Of many turns, some have no prompt or are erased: that is reported, and not counted as a difference.
            Err(failure) if failure.exit == Exit::Conflict || failure.exit == Exit::NotFound => {
                if single {
                    return Err(failure);
                }
                output::report(context.out.format, &failure);
            }
            Err(failure) => return Err(failure),
        }
    }
    let out = context.out;
    let experiment = body != ReplayBody::default();
    if single && let ([answer], [replay]) = (answers.as_slice(), replays.as_slice()) {
        out.value(answer, || if experiment { format_comparison(out, replay) } else { format_verdict(replay) })?;
    } else {
        let page = to_json(&ReplayList { replayed: answers });
        out.page(&page, "replayed", |_| replays.iter().map(format_verdict).collect::<Vec<_>>().join("\n"))?;
    }
    if change.ask {
        for replay in &replays {
            call_model(context, replay).await?;
        }
    }
    let different = replays.iter().filter(|replay| !replay.same).count();
    if experiment || different == 0 {
        return Ok(Exit::Ok);
    }
    Err(Failure::internal(format!("{different} of {} prompts come out otherwise than recorded", replays.len())))
}

async fn addresses(client: &Client, turns: &[String], all: bool) -> Result<Vec<String>, Failure> {
    let mut addresses = Vec::new();
    for text in turns {
        if all {
            let agent = AgentId::new(text.as_str()).map_err(|e| Failure::usage(e.to_string()))?;
            for turn in newest_turns(client, &agent).await? {
                let (agent, session) = (encode(agent.as_str()), encode(turn.session.as_str()));
                addresses.push(format!("agents/{agent}/turns/{session}/{}", turn.record.turn));
            }
        } else {
            let name = text.parse::<TurnName>().map_err(|error| Failure::usage(error.to_string()))?;
            addresses.push(name.address(client).await?);
        }
    }
    Ok(addresses)
}

fn format_verdict(replay: &ReplayView) -> String {
    let word = if replay.same { "same" } else { "DIFFERENT" };
    let (name, recorded, now) =
        (escape_data(&replay.name), escape_data(&replay.recorded), escape_data(&replay.replayed));
    format!("{name}  {word}  recorded {recorded}  now {now}")
}

fn format_comparison(out: CommandOutput, replay: &ReplayView) -> String {
    let parts = diff::changed_parts(&replay.before.rows, &replay.ledger.rows);
    let error = replay.error.as_ref().map(|error| format!("\n\nno prompt: {}", escape_data(error)));
    format!(
        "{}\n\n{}\n\n{}{}",
        format_verdict(replay),
        diff::table(out, &parts),
        table::ledger_text(out, &replay.ledger),
        error.unwrap_or_default()
    )
}

/// Calls the model in this process, with the models of this configuration.
async fn call_model(context: &CliContext, asked: &ReplayView) -> Result<(), Failure> {
    let request = asked.request.as_ref().and_then(|request| decode::into_type(to_json(request)).ok());
    let request: ModelRequest = request.ok_or_else(|| {
        Failure::new(Exit::Conflict, format!("turn `{}` has no prompt to ask with", escape_data(&asked.name)))
    })?;
    let loaded = context.load(Vec::new())?;
    let model = app::models(&loaded.config).map_err(|e| role::failure(&e))?;
    let (live, _) = LiveText::channel();
    let reply = model.complete(&request, &[], &live).await;
    let reply = reply.map_err(|error| {
        let whose =
            "`--ask` calls the model itself, with this command's configuration and keys (`--config` names the venue's)";
        Failure::new(Exit::Unreachable, format!("{error}; {whose}"))
    })?;
    let calls: Vec<_> =
        reply.calls.iter().map(|call| format!("[calls {} {}]", call.name, call.arguments.to_value())).collect();
    let tokens = format!("{} tokens in, {} out", reply.usage.input, reply.usage.output);
    let text = std::iter::once(reply.text.clone()).filter(|text| !text.is_empty()).chain(calls);
    write_line(&format!("\n=== reply ({tokens}) ===\n{}", text.collect::<Vec<_>>().join("\n")))
}
