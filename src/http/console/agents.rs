//! The page of all agents of an owner.

use super::figures::StateSign;
use super::page::{LiveUpdates, PageFrame, render};
use super::text::summary;
use crate::domain::percent::percent_encode;
use crate::http::Api;
use crate::http::extract::{QueryParams, RequestCaller};
use crate::http::problem::Problem;
use crate::http::runs::{operate, read_output};
use crate::view::agent::AgentPage;
use crate::view::request::AgentListRequest;
use crate::view::to_json;
use askama::Template;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;

/// Agents of one page.
const AGENTS_SHOWN: u64 = 100;

/// Seconds after which the list is read again.
const REFRESH_SECONDS: u32 = 5;

#[derive(Template)]
#[template(path = "agents.html", config = "src/http/console/askama.toml")]
struct AgentsHtml {
    frame: PageFrame,
    rows: Vec<AgentLink>,
    /// Address of the next page; empty after the last.
    more: String,
}

/// An agent in a list.
struct AgentLink {
    name: String,
    address: String,
    sign: StateSign,
    description: String,
}

/// Returns the address of an agent.
pub(super) fn agent_address(agent: &str) -> String {
    format!("/agents/{}", percent_encode(agent))
}

/// `GET /agents`: the owner's agents by name.
pub(in crate::http) async fn agents(
    State(api): State<Api>,
    who: RequestCaller,
    asked: QueryParams,
) -> Result<Response, Problem> {
    let request = AgentListRequest {
        include_terminated: Some(asked.flag("includeTerminated")?),
        limit: Some(AGENTS_SHOWN),
        after: asked.text("after"),
    };
    let page: AgentPage = read_output(operate(&api, &who, "v/ops/agent/list", to_json(&request)).await?)?;
    let rows = page.agents.iter().map(|agent| AgentLink {
        name: agent.agent_id.to_string(),
        address: agent_address(agent.agent_id.as_str()),
        sign: agent.status.into(),
        description: agent.description.as_deref().map(summary).unwrap_or_default(),
    });
    let more = page.next.as_ref().map(|next| format!("/agents?after={}", percent_encode(next.as_str())));
    let shown = AgentsHtml {
        frame: PageFrame::new(&who, "/agents", "Agents").with_live(LiveUpdates::Every(REFRESH_SECONDS)),
        rows: rows.collect(),
        more: more.unwrap_or_default(),
    };
    Ok(render(StatusCode::OK, &shown))
}
