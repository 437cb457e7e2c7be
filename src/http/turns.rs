//! `agents/{id}/turns`, `why`: turn records with their prompts, and replays.

use super::Api;
use super::extract::{JsonBody, QueryParams, RequestCaller, decode_body};
use super::problem::Problem;
use crate::domain::ids::{AgentId, SessionId, SessionKey};
use crate::domain::values::protected_keys;
use crate::venue::agents;
use crate::venue::context::preview::{self, Preview};
use crate::venue::ledger::experiment::{Experiment, TurnFacts, assemble_prompt};
use crate::venue::ledger::path_uses::{self, TraceResult};
use crate::venue::ledger::prompt_detail::PromptDetail;
use crate::venue::ledger::show::{self, ReplayError};
use crate::venue::ledger::turn_list::{TurnFilter, TurnPageRange, find};
use crate::venue::ledger::{self, PastTurn};
use crate::venue::operation::OpError;
use crate::view::job::IgnoredView;
use crate::view::ledger::{
    ContextPreviewView, LedgerView, ModelRequestView, PathUseView, ReplayView, TurnListPage, TurnRecordView,
    TurnRowView, TurnView, WhyView,
};
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};

/// Turns of a list by default, and at most.
const LIST_LIMITS: (usize, usize) = (50, 1_000);

/// Parses the name of an agent that exists.
pub(super) async fn parse_agent(api: &Api, who: &RequestCaller, id: &str) -> Result<AgentId, Problem> {
    let id = AgentId::new(id).map_err(Problem::bad_request)?;
    match agents::get(&api.venue, who.owner(), &id).await? {
        Some(_) => Ok(id),
        None => Err(Problem::not_found(format!("no agent `{id}`"))),
    }
}

fn parse_limit(asked: &QueryParams) -> Result<usize, Problem> {
    let (default, most) = LIST_LIMITS;
    let asked = asked.number("limit")?.map_or(default, |n| usize::try_from(n).unwrap_or(most));
    Ok(asked.min(most))
}

/// `GET agents/{id}/turns`: lists turns, newest first, of one `session` or of all, filtered.
pub(super) async fn list(
    State(api): State<Api>,
    who: RequestCaller,
    Path(id): Path<String>,
    asked: QueryParams,
) -> Result<Response, Problem> {
    let agent = parse_agent(&api, &who, &id).await?;
    let filter = TurnFilter {
        statuses: asked.statuses("status")?,
        session: asked.text("session").map(SessionId::new).transpose().map_err(Problem::bad_request)?,
        since: asked.time("since")?,
        until: asked.time("until")?,
        text: asked.text("q").map(str::to_owned),
    };
    let range = TurnPageRange { after: asked.text("cursor"), limit: parse_limit(&asked)? };
    Ok(axum::Json(read_turns(&api, &who, &agent, &filter, range).await?).into_response())
}

/// Reads a page of an agent's turns, as the caller may see them.
pub(super) async fn read_turns(
    api: &Api,
    who: &RequestCaller,
    agent: &AgentId,
    filter: &TurnFilter,
    range: TurnPageRange<'_>,
) -> Result<TurnListPage, Problem> {
    let reader = who.caller.reading_authority();
    let found = find(&*api.venue.store, who.owner(), &reader, agent, filter, range).await?;
    let turns = found.turns.iter().map(|(session, record)| TurnRowView {
        record: TurnRecordView::for_transcript(record),
        name: format!("{agent}/{session}/{}", record.turn),
        session: session.clone(),
    });
    let (turns, looked_back_to) = (turns.collect(), found.searched_since(filter));
    Ok(TurnListPage { turns, next: found.next, looked_back_to })
}

async fn load_turn(
    api: &Api,
    who: &RequestCaller,
    id: &str,
    session: &str,
    turn: u64,
) -> Result<(SessionKey, PastTurn), Problem> {
    let agent = parse_agent(api, who, id).await?;
    let session = SessionKey { agent, session: SessionId::new(session).map_err(Problem::bad_request)? };
    let store = &*api.venue.store;
    if let Some(past) = ledger::load(store, who.owner(), &session, turn).await? {
        return Ok((session, past.visible_to(&who.caller.reading_authority())));
    }
    let newest = ledger::list_turns(store, who.owner(), &session.agent, Some(&session), 1).await?;
    let known = match newest.first() {
        Some((_, record)) => format!("its newest turn is {}", record.turn),
        None => "it has no turns".to_owned(),
    };
    Err(Problem::not_found(format!("no turn {turn} in session `{session}`: {known}")))
}

/// `GET agents/{id}/turns/{session}/{turn}`: returns a turn; with `prompt=true` also the exact model request.
pub(super) async fn get(
    State(api): State<Api>,
    who: RequestCaller,
    Path((id, session, turn)): Path<(String, String, u64)>,
    asked: QueryParams,
) -> Result<Response, Problem> {
    let prompt = asked.flag("prompt")?;
    let position = TimelinePosition { agent: &id, session: &session, turn };
    Ok(axum::Json(read_turn(&api, &who, position, prompt).await?).into_response())
}

/// Names of a turn, as its reader gives them.
#[derive(Clone, Copy)]
pub(super) struct TimelinePosition<'a> {
    pub(super) agent: &'a str,
    pub(super) session: &'a str,
    pub(super) turn: u64,
}

/// Reads a turn; with `prompt` also the exact model request.
pub(super) async fn read_turn(
    api: &Api,
    who: &RequestCaller,
    position: TimelinePosition<'_>,
    prompt: bool,
) -> Result<TurnView, Problem> {
    let (session, past) = load_turn(api, who, position.agent, position.session, position.turn).await?;
    let reader = who.caller.reading_authority();
    let mut shown = show::turn_view(&session, &past, prompt.then_some(&*reader));
    let detail = PromptDetail::for_turn(&api.venue, who.owner(), &past).await?;
    if let (Some(ledger), Some(detail)) = (&mut shown.ledger, detail) {
        detail.add_to(ledger);
    }
    Ok(shown)
}

/// Reads the newest turns of an agent.
pub(super) async fn read_timeline(api: &Api, who: &RequestCaller, agent: &str) -> Result<TurnListPage, Problem> {
    let agent = parse_agent(api, who, agent).await?;
    let range = TurnPageRange { after: None, limit: LIST_LIMITS.0 };
    read_turns(api, who, &agent, &TurnFilter::default(), range).await
}

/// Loads what an experiment needs of a turn beside its record.
async fn turn_facts(
    api: &Api,
    who: &RequestCaller,
    session: &SessionKey,
    past: &PastTurn,
    experiment: &Experiment,
) -> Result<TurnFacts, Problem> {
    let mut facts = TurnFacts::default();
    if let (Some(_), Some(record)) = (&experiment.config, &past.record) {
        let known = agents::get(&api.venue, who.owner(), &session.agent).await?;
        let known = known.filter(|(agent, _)| agent.config_version == record.config_version);
        facts.config = known.map(|(agent, _)| agent.config);
    }
    if !experiment.without.is_empty() {
        let _permit = api.venue.prompts.trails.acquire().await;
        let all = agents_from(api, who, Some(&session.agent)).await?;
        let (store, paths) = (&*api.venue.store, &experiment.without);
        let found = path_uses::trace_copies(store, who.owner(), &all, paths, session, past.turn).await?;
        (facts.copies, facts.incomplete) = (found.places, found.incomplete);
    }
    Ok(facts)
}

/// Lists all agents of an owner, with `first` before the others.
async fn agents_from(api: &Api, who: &RequestCaller, first: Option<&AgentId>) -> Result<Vec<AgentId>, Problem> {
    let mut all = agents::all_ids(&api.venue, who.owner()).await?;
    all.sort_by_key(|agent| first != Some(agent));
    Ok(all)
}

/// `POST agents/{id}/turns/{session}/{turn}/replay`: replays a turn, with an experiment or without a body.
pub(super) async fn replay(
    State(api): State<Api>,
    who: RequestCaller,
    Path((id, session, turn)): Path<(String, String, u64)>,
    JsonBody(body): JsonBody,
) -> Result<Response, Problem> {
    let position = TimelinePosition { agent: &id, session: &session, turn };
    Ok(axum::Json(replay_turn(&api, &who, position, decode_body(body)?).await?).into_response())
}

/// Builds the prompt of a turn again, with the changes of an experiment; commits nothing and asks no model.
pub(super) async fn replay_turn(
    api: &Api,
    who: &RequestCaller,
    position: TimelinePosition<'_>,
    experiment: Experiment,
) -> Result<ReplayView, Problem> {
    experiment.check().map_err(Problem::bad_request)?;
    let (session, past) = load_turn(api, who, position.agent, position.session, position.turn).await?;
    let facts = turn_facts(api, who, &session, &past, &experiment).await?;
    let reader = who.caller.reading_authority().into_owned();
    let catalog = api.venue.catalog_of_agent(who.owner(), &session.agent);
    let warnings = experiment.warnings(api.venue.catalog.providers());
    // On a blocking thread: it searches the whole prompt for each path.
    let work = move || show::replay(&session, &past, &reader, &experiment, &facts, &catalog);
    let stopped = |error| Problem::new(axum::http::StatusCode::INTERNAL_SERVER_ERROR, error);
    match tokio::task::spawn_blocking(work).await.map_err(stopped)? {
        Ok(replayed) => Ok(ReplayView { warnings, ..replayed }),
        Err(error @ ReplayError::NoPart { .. }) => Err(Problem::not_found(error)),
        Err(error @ ReplayError::Withheld(_)) => Err(Problem::forbidden(error)),
        Err(error @ ReplayError::Illegal(_)) => Err(Problem::bad_request(error)),
        Err(error @ ReplayError::NoPrompt(_)) => Err(Problem::conflict(error)),
        Err(error @ ReplayError::Erased(_)) => Err(Problem::new(axum::http::StatusCode::GONE, error)),
    }
}

/// Parses a path that a ledger may have: of the lattice, or of a resource (`r/app/u1`).
fn traced_path(path: &str) -> Result<String, Problem> {
    match path.trim_matches('/').strip_prefix("r/") {
        Some(name) if !name.is_empty() && !name.chars().any(char::is_control) => Ok(format!("r/{name}")),
        Some(_) | None => Ok(crate::domain::lattice::Path::parse(path).map_err(Problem::bad_request)?.to_string()),
    }
}

/// `GET why?path=…`: lists the turns in which bytes of a path reached a model, of one `agent` or of all.
pub(super) async fn list_path_uses(
    State(api): State<Api>,
    who: RequestCaller,
    asked: QueryParams,
) -> Result<Response, Problem> {
    let path = asked.text("path").ok_or_else(|| Problem::bad_request("expected `path`, e.g. `w/invoices/17`"))?;
    let one = asked.text("agent").map(AgentId::new).transpose().map_err(Problem::bad_request)?;
    Ok(axum::Json(read_path_uses(&api, &who, path, one.as_ref()).await?).into_response())
}

/// Reads the turns in which bytes of a path reached a model, of one agent or of all, as the caller may see them.
pub(super) async fn read_path_uses(
    api: &Api,
    who: &RequestCaller,
    path: &str,
    one: Option<&AgentId>,
) -> Result<WhyView, Problem> {
    let path = traced_path(path)?;
    let _permit = api.venue.prompts.trails.acquire().await;
    let all = agents_from(api, who, one).await?;
    let TraceResult { mut turns, incomplete } = path_uses::trace(&*api.venue.store, who.owner(), &all, &path).await?;
    if let Some(one) = one {
        turns.retain(|path_use| path_use.agent == one.as_str());
        if turns.is_empty() {
            // A removed agent has no record, but may have turns.
            parse_agent(api, who, one.as_str()).await?;
        }
    }
    let found = turns.len();
    turns.retain(|path_use| path_use.may_be_named_to(&who.caller.reading_authority()));
    let hidden = found - turns.len();
    let turns = turns.into_iter().map(PathUseView::from).collect();
    Ok(WhyView { path, turns, hidden, incomplete })
}

/// `POST agents/{id}/context`: previews the next turn of a session, by default the first of a new one.
pub(super) async fn context(
    State(api): State<Api>,
    who: RequestCaller,
    Path(id): Path<String>,
    JsonBody(body): JsonBody,
) -> Result<Response, Problem> {
    let agent = AgentId::new(id.as_str()).map_err(Problem::bad_request)?;
    let mut asked = decode_body::<Preview>(body)?;
    let is_identified = who.caller.envelope.claims.contains_key(protected_keys::USER_ID) && !who.may_override;
    let ignored = if is_identified { protected_keys::take_identity(&mut asked.session_context) } else { Vec::new() };
    let caller = Some(who.caller.name.clone());
    let asked = Preview { envelope: who.caller.request_envelope(), caller, ..asked };
    let inputs = preview::inputs(&api.venue, who.owner(), &agent, asked).await.map_err(OpError::from)?;
    let ignored = IgnoredView::of_keys(&ignored);
    let preview = match assemble_prompt(&inputs) {
        Ok(assembled) => {
            let detail = PromptDetail::for_prompt(&api.venue, who.owner(), &inputs, &assembled, None, None).await?;
            let mut ledger = LedgerView::from(&assembled.ledger);
            detail.add_to(&mut ledger);
            let request = Some(ModelRequestView::from(&assembled.request));
            ContextPreviewView { ledger, request, error: None, ignored }
        }
        Err(refused) => {
            let error = Some(refused.error.to_string());
            ContextPreviewView { ledger: LedgerView::from(&refused.ledger), request: None, error, ignored }
        }
    };
    Ok(axum::Json(preview).into_response())
}
