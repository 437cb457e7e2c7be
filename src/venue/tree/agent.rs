//! Values below `g/<agent>`: its record, turns and sessions, and its own notes and scratch documents.

use crate::domain::agent::AgentState;
use crate::domain::authority::Authority;
use crate::domain::ids::{AgentId, SessionId, SessionKey};
use crate::domain::lattice::layout::Scope;
use crate::domain::lattice::value::{index_of, take};
use crate::domain::lattice::{Namespace, Path};
use crate::domain::limits::LIST_PAGE;
use crate::domain::session::SessionState;
use crate::store::SessionFacts;
use crate::venue::agents::{self, sessions};
use crate::venue::operation::{Invocation, OpError, Site};
use crate::view::pipeline::PipelineRunView;
use crate::view::session::SessionRowView;
use crate::view::to_json;
use crate::view::tree::AgentStateView;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Turns shown under `g/<agent>/timeline`.
const TURNS: usize = 1_000;
/// Sessions whose runs are shown under `g/<agent>/state/runs`: a State may be large.
const RUNS: usize = 100;
/// Sessions that are read at once for that.
const RUNS_STEP: usize = 10;
/// Bytes of the values that are shown there; a run behind them is read by its session.
const RUNS_BYTES: usize = 4 * 1024 * 1024;
/// Number of turns that can be read one by one: each read walks over the index of the turns before it.
const TURNS_REACHED: usize = 100_000;

/// Returns the value at `keys` below an agent.
///
/// | keys | value |
/// |---|---|
/// | `timeline`, `timeline/N` | its turns, oldest first |
/// | `state`, `state/config`, `state/context`, `state/loads` | its configuration, and what it keeps in all sessions |
/// | `state/runs/ID` | of a pipeline: the State of the run of a session |
/// | `sessions`, `sessions/ID` | its sessions by id |
/// | `n`, `sessions/ID/c` | its notes, and a session's scratch documents |
/// | anything else | a part of the answer of `agent/info` |
pub(super) async fn get(call: &Invocation<'_>, id: &AgentId, keys: &[String]) -> Result<Option<Value>, OpError> {
    let (venue, owner) = (call.venue, &call.caller.owner);
    let names: Vec<&str> = keys.iter().map(String::as_str).collect();
    match names.as_slice() {
        ["timeline", ..] => timeline(call, id, &keys[1..]).await,
        ["state", ..] => {
            let Some((record, _)) = agents::get(venue, owner, id).await? else { return Ok(None) };
            let is_shown = record.config.pipeline.is_some() && names.get(1).is_none_or(|key| *key == "runs");
            let runs = match names.get(2) {
                _ if !is_shown => None,
                Some(session) => Some(one_run(call, id, session).await?),
                None => Some(all_runs(call, id).await?),
            };
            let AgentState { context, loads } = record.state;
            let state = AgentStateView { config: to_json(&record.config), context, loads, runs };
            Ok(take(to_json(&state), &keys[1..]))
        }
        ["sessions"] => all_sessions(call, id).await,
        ["sessions", session, "c", ..] => {
            let Ok(session) = SessionId::new(*session) else { return Ok(None) };
            own_documents(call, SessionKey { agent: id.clone(), session }, Namespace::Session, &keys[3..]).await
        }
        ["sessions", session, ..] => {
            let Ok(session) = SessionId::new(*session) else { return Ok(None) };
            let found = one_session(call, SessionKey { agent: id.clone(), session }).await?;
            Ok(found.and_then(|shown| take(to_json(&shown), &keys[2..])))
        }
        ["n", ..] => {
            if agents::get(venue, owner, id).await?.is_none() {
                return Ok(None);
            }
            let session = SessionId::new("notes").map_err(|error| OpError::Invalid(error.to_string()))?;
            own_documents(call, SessionKey { agent: id.clone(), session }, Namespace::Notes, &keys[1..]).await
        }
        _ => {
            let info = agents::info(venue, owner, id).await?;
            Ok(info.and_then(|agent| take(to_json(&agent), keys)))
        }
    }
}

/// Returns `g/<agent>/timeline`: the turn records, oldest first, or one of them.
async fn timeline(call: &Invocation<'_>, id: &AgentId, rest: &[String]) -> Result<Option<Value>, OpError> {
    let (owner, reader) = (&call.caller.owner, call.caller.reading_authority());
    let Some((place, rest)) = rest.split_first() else {
        let known = agents::get(call.venue, owner, id).await?.is_some();
        let turns = agents::timeline(call.venue, owner, &reader, id, 0, TURNS).await?;
        return Ok(known.then(|| to_json(&turns)));
    };
    let Some(place) = index_of(place).filter(|place| *place < TURNS_REACHED) else { return Ok(None) };
    let turns = agents::timeline(call.venue, owner, &reader, id, place, 1).await?;
    Ok(turns.first().and_then(|turn| take(to_json(turn), rest)))
}

/// Returns the sessions of an agent by id: the first [`LIST_PAGE`].
async fn all_sessions(call: &Invocation<'_>, id: &AgentId) -> Result<Option<Value>, OpError> {
    let (venue, owner) = (call.venue, &call.caller.owner);
    let Some((record, _)) = agents::get(venue, owner, id).await? else { return Ok(None) };
    let ttl = record.config.session.ttl.as_ref();
    let (found, _) = sessions::list(venue, owner, id, ttl, None, LIST_PAGE).await?;
    let by_id = found.iter().map(|session| (session.session_id.to_string(), to_json(session)));
    Ok(Some(by_id.collect::<Map<_, _>>().into()))
}

/// Returns a session as lists show it, with the paths that it has loaded.
async fn one_session(call: &Invocation<'_>, key: SessionKey) -> Result<Option<SessionRowView>, OpError> {
    let (venue, owner) = (call.venue, &call.caller.owner);
    let Some((record, _)) = agents::get(venue, owner, &key.agent).await? else { return Ok(None) };
    let Some(facts) = sessions::find(venue, owner, &key).await? else { return Ok(None) };
    let row = sessions::session_row(&facts, record.config.session.ttl.as_ref(), venue.now());
    let SessionState { loads, pipeline, .. } = sessions::state(&facts);
    let reader = call.caller.reading_authority();
    let pipeline = pipeline.map(|run| PipelineRunView::for_reader(&run, &reader));
    Ok(Some(SessionRowView { loads: Some(loads), pipeline, ..row }))
}

/// Returns the run of one session of a pipeline by its session; none if it has no run.
async fn one_run(
    call: &Invocation<'_>,
    id: &AgentId,
    session: &str,
) -> Result<BTreeMap<String, PipelineRunView>, OpError> {
    let Ok(session) = SessionId::new(session) else { return Ok(BTreeMap::new()) };
    let key = SessionKey { agent: id.clone(), session };
    let found = sessions::find(call.venue, &call.caller.owner, &key).await?;
    let reader = call.caller.reading_authority();
    Ok(found.iter().filter_map(|facts| run_of_session(facts, &reader)).collect())
}

/// Returns the runs of a pipeline by session: those of its first [`RUNS`] sessions, up to [`RUNS_BYTES`].
async fn all_runs(call: &Invocation<'_>, id: &AgentId) -> Result<BTreeMap<String, PipelineRunView>, OpError> {
    let reader = call.caller.reading_authority();
    let (mut runs, mut left, mut seen) = (BTreeMap::new(), RUNS_BYTES, 0);
    // States may be large, so only a few are in memory at a time.
    let mut sessions = call.venue.store.all_sessions(&call.caller.owner, Some(id)).page_size(RUNS_STEP);
    while seen < RUNS {
        let Some(page) = sessions.next().await? else { break };
        seen += page.len();
        for (session, run) in page.iter().filter_map(|facts| run_of_session(facts, &reader)) {
            let bytes = serde_json::to_vec(&run.state).map_or(usize::MAX, |text| text.len());
            let Some(rest) = left.checked_sub(bytes) else { return Ok(runs) };
            left = rest;
            runs.insert(session, run);
        }
    }
    Ok(runs)
}

/// Returns the run of a session as a reader may see it, with the session's id.
fn run_of_session(facts: &SessionFacts, reader: &Authority) -> Option<(String, PipelineRunView)> {
    let run = sessions::state(facts).pipeline?;
    Some((facts.key.session.to_string(), PipelineRunView::for_reader(&run, reader)))
}

/// Returns an agent's own documents. People and the agent may read them, and other agents with a capability that names
/// the path.
async fn own_documents(
    call: &Invocation<'_>,
    session: SessionKey,
    namespace: Namespace,
    keys: &[String],
) -> Result<Option<Value>, OpError> {
    let place = match namespace {
        Namespace::Notes => format!("g/{}/n", session.agent),
        _ => format!("g/{}/sessions/{}/c", session.agent, session.session),
    };
    let is_own = match &call.site {
        Site::Turn(site) => site.lease.session.agent == session.agent,
        Site::Api { .. } => !call.caller.is_agent() || call.caller.name == format!("agent:{}", session.agent),
    };
    if !is_own && !call.caller.authority.names_place(&place) {
        return Err(OpError::Denied(format!(
            "Capability denied: `{place}` is agent `{}`'s own; reading it takes a capability that names `{place}`. Retrying \
             the same call will not help.",
            session.agent
        )));
    }
    let segments = std::iter::once(namespace.prefix().to_owned()).chain(keys.iter().cloned()).collect();
    let path = Path::from_segments(segments).map_err(|error| OpError::Invalid(error.to_string()))?;
    let scope = Scope { session: Some(session), job: None };
    let workspace = call.venue.workspace(&call.caller.owner, scope).await;
    Ok(workspace.get(&path).await?)
}
