//! Stage 4, the shell's part: fetch what the prompt is made of, with authority checked per read.

use super::fetch::Reader;
use super::session::{Leased, Stop};
use super::turn::Bench;
use super::{ToolKey, Worker, values};
use crate::domain::agent::{AgentRecord, ToolEntry};
use crate::domain::context::budget::Budget;
use crate::domain::context::inputs::{Frame, Inputs, Moment, Served};
use crate::domain::context::{entry, fill};
use crate::domain::goal::view::View;
use crate::domain::ids::{Owner, SessionKey};
use crate::domain::limits::TRANSCRIPT_BYTES;
use crate::domain::resource::Held;
use crate::domain::scope;
use crate::domain::session::TurnRecord;
use crate::domain::tools::{Ends, Target, ToolTable, resolve, resolve_with};
use crate::domain::turn::{Setting, Turn};
use crate::domain::values::Resolver;
use crate::ops::Caller;
use crate::store::{Store, StoreError, decode, keys, steps};
use crate::venue::resources::{self, scratchpad};
use std::sync::Arc;

/// Tool tables kept; past it all are built again.
const TOOL_TABLES: usize = 1024;

/// Turns of a transcript that are read: more than fit into any prompt.
const TRANSCRIPT: usize = 500;

/// Fetches the inputs of a turn's prompt.
pub(super) async fn inputs(
    worker: &Worker,
    leased: &mut Leased,
    bench: &Bench,
    agent: &AgentRecord,
    turn: &Turn,
) -> Result<Inputs, Stop> {
    let setting = turn.setting();
    let config = &setting.config;
    let caller = Caller {
        envelope: setting.mandate.envelope.clone(),
        ..Caller::new(setting.owner.clone(), format!("agent:{}", setting.session.agent), setting.authority.clone())
    };
    let resolver = values::resolver(worker, setting, agent).await?;
    let reader = Reader { venue: &worker.venue, caller: &caller, workspace: &bench.workspace, resolver: &resolver };
    let bare = setting.plan.is_anonymous();
    let loads = if bare { Vec::new() } else { setting.state.goals.loads(&setting.state.loads) };
    let mut items = reader.items(entry::plan_of(&config.context, &agent.state, &loads)).await?;
    let venue = &worker.venue;
    if !bare {
        let held = Held::of(&setting.authority);
        items.extend(resources::items(venue, config, &held, &bench.workspace).await?);
    }
    items.extend(scratchpad::items(&*venue.store, &setting.owner, &setting.mandate.context_ids).await?);
    items.extend(setting.plan.handed().into_iter().flat_map(|handed| scope::received(handed, &setting.authority)));
    let transcript = transcript(worker, leased).await?.clone();
    let frame = Frame {
        agent: setting.session.agent.clone(),
        venue: worker.venue.name.clone(),
        model: config.model.clone(),
        // Whose scratch space is meant changes with the session, and is no part of a prompt.
        authority: setting.authority.clone().nowhere(),
        bound: setting.mandate.envelope.bound.clone(),
        completion: setting.completion(),
        strict: config.strict_placeholders,
        aliases: config.uses_aliases(),
        bare,
    };
    let served = Served {
        goals: View::of(&setting.state.goals, &transcript, setting.plan.input(), frame.viewer()),
        last: setting.last.is_some(),
        ..setting.plan.served(&setting.state, &setting.mandate)
    };
    let instances = scope::instances(&items, &served);
    let window = config.model.context_window;
    Ok(Inputs {
        frame,
        moment: Moment {
            turn: format!("{}/{}/{}", setting.owner, setting.session, setting.turn),
            date: worker.venue.now().date(),
            budget: Budget::of(config.context_budget, window, config.model.max_tokens, worker.ratio(&config.model)),
        },
        system: config.system_prompt.clone(),
        tools: tools(worker, setting, agent, &resolver, instances),
        values: fill::known(&config.system_prompt, &items, &resolver),
        items,
        transcript,
        served,
    })
}

/// The tools of an agent's configuration; built once per version of it and per values that its
/// bindings fill in.
fn tools(
    worker: &Worker,
    setting: &Setting,
    agent: &AgentRecord,
    values: &Resolver,
    instances: Vec<String>,
) -> Arc<ToolTable> {
    if setting.plan.is_anonymous() || setting.last.is_some() {
        return Arc::new(ToolTable::bare(setting.ends()));
    }
    let (bound, ends) = (agent.config.injects(), setting.ends());
    let (providers, held) = (&worker.venue.catalog.resources, Held::of(&setting.authority));
    let resources = providers.offered(&agent.config, &setting.mandate.envelope, &held);
    let key = ToolKey {
        owner: setting.owner.clone(),
        agent: agent.id.clone(),
        created: agent.created,
        config_version: agent.config_version,
        task_open: ends.task,
        inner: ends.inner,
        output: ends.output.map(ToString::to_string).unwrap_or_default(),
        goal: ends.goal.map(ToString::to_string).unwrap_or_default(),
        found: setting.state.tools.clone(),
        operations: agent.config.tools.iter().filter_map(ToolEntry::operation).map(str::to_owned).collect(),
        resources: resources.iter().map(|tool| tool.spec.name.clone()).collect(),
        values: if bound { values.hash() } else { String::new() },
        instances,
    };
    if let Some(known) = worker.tools().get(&key) {
        return Arc::clone(known);
    }
    let catalog = &worker.venue.catalog;
    let table = resolve_with(&agent.config, &key.found, ends, values, catalog, &resources);
    let table = Arc::new(table.with_instances(&key.instances));
    let mut tables = worker.tools();
    if tables.len() >= TOOL_TABLES {
        tables.clear();
    }
    tables.insert(key, Arc::clone(&table));
    table
}

/// Catalog paths of the operations that the model is offered.
pub(super) fn offered(worker: &Worker, setting: &Setting, agent: &AgentRecord) -> Vec<String> {
    let catalog = &worker.venue.catalog;
    let table = resolve(&agent.config, &setting.state.tools, Ends::of(false), &Resolver::default(), catalog);
    table.targets.iter().filter_map(Target::operation).map(str::to_owned).collect()
}

/// The session's turn records, oldest first.
pub(super) async fn transcript<'l>(worker: &Worker, leased: &'l mut Leased) -> Result<&'l Vec<TurnRecord>, StoreError> {
    if leased.run.version == 0 {
        leased.transcript.get_or_insert_default();
    }
    if leased.transcript.is_none() {
        let version = leased.run.version;
        let since = leased.run.state.since;
        let found = said(&*worker.venue.store, &leased.lease.owner, &leased.lease.session, version, since).await?;
        leased.transcript = Some(found);
    }
    Ok(leased.transcript.get_or_insert_default())
}

/// The record of a turn of the session.
pub(super) async fn record(worker: &Worker, leased: &mut Leased, turn: u64) -> Result<Option<TurnRecord>, StoreError> {
    if let Some(known) = transcript(worker, leased).await?.iter().rev().find(|record| record.turn == turn) {
        return Ok(Some(known.clone()));
    }
    let key = keys::turn(&leased.lease.session, turn);
    let doc = worker.venue.store.read(&leased.lease.owner, std::slice::from_ref(&key)).await?.pop().unwrap_or_default();
    doc.value.map(|bytes| decode(&key, &bytes)).transpose()
}

/// The newest turn records of a session at this version as the store has them, oldest first; no more of them than
/// weigh twice as much as the largest prompt.
pub(super) async fn said(
    store: &dyn Store,
    owner: &Owner,
    session: &SessionKey,
    version: u64,
    since: u64,
) -> Result<Vec<TurnRecord>, StoreError> {
    // What a fork that broke off has left behind the session's own turns is none of its own.
    let end = keys::turn(session, version + 1);
    let turns = keys::turns(session);
    let mut found = steps::scan(store, owner, &turns, Some(&end), true, TRANSCRIPT, TRANSCRIPT_BYTES).await?.docs;
    found.reverse();
    let records = found.into_iter().filter_map(|(key, doc)| Some(decode(&key, &doc.value?)));
    // Those of a conversation whose time was over are of another one.
    records
        .filter(|record: &Result<TurnRecord, _>| record.as_ref().map_or(true, |record| record.turn > since))
        .collect()
}
