//! Stage 4, the shell's part: fetch what the prompt is made of, with authority checked per read.

use super::session::{Leased, Stop};
use super::turn::Bench;
use super::{ToolKey, Worker};
use crate::domain::agent::AgentRecord;
use crate::domain::capability::Authority;
use crate::domain::context::assemble::{Entry, Inputs};
use crate::domain::context::entry::{ContextEntry, Source};
use crate::domain::context::text;
use crate::domain::lattice::Path;
use crate::domain::session::TurnRecord;
use crate::domain::tools::{Described, ToolTable, resolve};
use crate::domain::turn::{Setting, Turn};
use crate::ops::{Caller, Invocation, OpError, Site, lattice};
use crate::store::{StoreError, decode, keys};
use std::sync::Arc;

/// Tool tables kept; past it all are built again.
const TOOL_TABLES: usize = 1024;

/// Turns of a transcript that are read: more than fit into any prompt.
const TRANSCRIPT: usize = 500;

/// Bytes of a context entry that isn't text, when nothing else is said.
const ENTRY_BYTES: usize = 10_000;

/// Fetches the inputs of a turn's prompt.
pub(super) async fn inputs(
    worker: &Worker,
    leased: &mut Leased,
    bench: &Bench,
    agent: &AgentRecord,
    turn: &Turn,
) -> Result<Inputs, Stop> {
    let setting = turn.setting();
    let authority = setting.config.authority();
    let mut entries = Vec::with_capacity(setting.config.context.len());
    for entry in &setting.config.context {
        entries.push(fetch(worker, leased, bench, &authority, entry).await?);
    }
    let transcript = transcript(worker, leased).await?.clone();
    let tools = tools(worker, setting, agent);
    Ok(Inputs {
        date: worker.venue.now().date(),
        venue: worker.venue.name.clone(),
        authority,
        entries,
        transcript,
        tools,
    })
}

/// The tools of an agent's configuration; built once per version of it.
fn tools(worker: &Worker, setting: &Setting, agent: &AgentRecord) -> Arc<ToolTable> {
    let key = ToolKey {
        owner: setting.owner.clone(),
        agent: agent.id.clone(),
        created: agent.created,
        config_version: agent.config_version,
        task_open: setting.plan.task.is_some(),
    };
    if let Some(known) = worker.tools().get(&key) {
        return Arc::clone(known);
    }
    let catalog = &worker.venue.catalog;
    let table = resolve(&agent.config, key.task_open, |path| {
        let found = catalog.resolve(path)?;
        Some(Described {
            asked: path.to_owned(),
            path: found.spec.path.to_owned(),
            description: found.spec.description.to_owned(),
            input: found.spec.input.clone(),
        })
    });
    let table = Arc::new(table);
    let mut tables = worker.tools();
    if tables.len() >= TOOL_TABLES {
        tables.clear();
    }
    tables.insert(key, Arc::clone(&table));
    table
}

/// The session's turn records, oldest first.
async fn transcript<'l>(worker: &Worker, leased: &'l mut Leased) -> Result<&'l Vec<TurnRecord>, StoreError> {
    if leased.run.version == 0 {
        leased.transcript.get_or_insert_default();
    }
    if leased.transcript.is_none() {
        let prefix = keys::turns(&leased.lease.session);
        let mut found = worker.venue.store.scan(&leased.lease.owner, &prefix, None, true, TRANSCRIPT).await?;
        found.reverse();
        let records = found.into_iter().filter_map(|(key, doc)| Some(decode(&key, &doc.value?)));
        leased.transcript = Some(records.collect::<Result<_, _>>()?);
    }
    Ok(leased.transcript.get_or_insert_default())
}

async fn fetch(
    worker: &Worker,
    leased: &Leased,
    bench: &Bench,
    authority: &Authority,
    entry: &ContextEntry,
) -> Result<Entry, StoreError> {
    let content = match entry.source() {
        Err(reason) => Err(reason),
        Ok(Source::Text(text)) => Ok(text),
        Ok(Source::Reference(path)) => match authority.permits_path("crud/read", &path) {
            Err(_) => Err("denied".to_owned()),
            Ok(()) => value(worker, leased, bench, authority, &path).await?,
        },
    };
    Ok(Entry { label: entry.label(), required: entry.required(), content })
}

/// The text of a value, or why there is none.
async fn value(
    worker: &Worker,
    leased: &Leased,
    bench: &Bench,
    authority: &Authority,
    path: &Path,
) -> Result<Result<String, String>, StoreError> {
    let caller = Caller {
        owner: leased.lease.owner.clone(),
        name: format!("agent:{}", leased.lease.session.agent),
        authority: authority.clone(),
    };
    let call = Invocation {
        venue: &worker.venue,
        caller: &caller,
        workspace: &bench.workspace,
        site: Site::Api { key: None },
    };
    match lattice::value_at(&call, path).await {
        Ok(Some(value)) => {
            let budget = if value.is_string() { usize::MAX } else { ENTRY_BYTES };
            Ok(Ok(text::value(&value, budget)))
        }
        Ok(None) => Ok(Err("missing".into())),
        Err(OpError::Store(error)) => Err(error),
        Err(error) => Ok(Err(error.to_string())),
    }
}
