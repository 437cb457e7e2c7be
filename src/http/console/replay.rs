//! The page of a prompt that is built again: as it was, or without a part. No model is asked and nothing is committed.

use super::job::turn_address;
use super::page::{PageFrame, render};
use super::prompt_parts::{ComparedLedger, PromptParts};
use super::text::sentence;
use super::turn::{PromptText, prompt_text};
use crate::domain::ids::SessionId;
use crate::http::Api;
use crate::http::extract::{QueryParams, RequestCaller};
use crate::http::problem::Problem;
use crate::http::turns::{TimelinePosition, parse_agent, replay_turn};
use crate::venue::ledger::experiment::Experiment;
use askama::Template;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;

#[derive(Template)]
#[template(path = "replay.html", config = "src/http/console/askama.toml")]
struct ReplayHtml {
    frame: PageFrame,
    name: String,
    /// Address of the turn.
    address: String,
    /// Path that the prompt is built without; empty if it is built as it was.
    left_out: String,
    is_same: bool,
    /// SHA-256 of the prompt as it was sent, and as it was built again.
    recorded: String,
    replayed: String,
    /// Why there is no prompt, and what was not followed, a sentence each.
    notes: Vec<String>,
    parts: PromptParts,
    prompt: Option<PromptText>,
}

/// `GET /agents/{id}/turns/{session}/{turn}/replay`: builds the prompt of a turn again.
pub(in crate::http) async fn replay(
    State(api): State<Api>,
    who: RequestCaller,
    Path((id, session, turn)): Path<(String, String, u64)>,
    asked: QueryParams,
) -> Result<Response, Problem> {
    let asked = asked.without_blanks();
    let without: Vec<String> = asked.text("without").map(str::to_owned).into_iter().collect();
    let left_out = without.first().map(|path| sentence(path)).unwrap_or_default();
    let agent = parse_agent(&api, &who, &id).await?;
    let session_id = SessionId::new(session.as_str()).map_err(Problem::bad_request)?;
    let position = TimelinePosition { agent: &id, session: &session, turn };
    let built = replay_turn(&api, &who, position, Experiment { without, ..Experiment::default() }).await?;
    let notes = built.error.iter().chain(&built.incomplete).chain(&built.warnings);
    let address = turn_address(&agent, &session_id, turn);
    let before = ComparedLedger { ledger: &built.before, name: "the turn as it was".to_owned() };
    let page = ReplayHtml {
        frame: PageFrame::new(&who, "/agents", format!("Turn {turn} of {agent}, built again")),
        left_out,
        is_same: built.same,
        notes: notes.map(|note| sentence(note)).collect(),
        parts: PromptParts::new(&built.ledger, Some(before), &address),
        address,
        prompt: built.request.as_ref().map(prompt_text),
        name: built.name,
        recorded: built.recorded,
        replayed: built.replayed,
    };
    Ok(render(StatusCode::OK, &page))
}
