//! Resources: jobs, timelines, transcripts, prompts of turns, and paths of the lattice. Each read checks what its route
//! of the API checks.

use super::call::{McpCall, to_result};
use super::refusal::{INVALID_PARAMS, RpcRefusal};
use super::resource_address::ResourceAddress;
use crate::domain::authority::ResourcePath;
use crate::domain::ids::{AgentId, JobId};
use crate::http::jobs::check_sight;
use crate::http::problem::Problem;
use crate::http::runs::{operate, read_output};
use crate::http::turns::{TimelinePosition, read_timeline, read_turn};
use crate::venue::job_view;
use crate::venue::jobs;
use crate::venue::jobs::list::{Cursor, JobListFilter};
use crate::view::lattice::ValueView;
use crate::view::mcp::{
    McpResource, McpResourceContents, McpResourceFacts, McpResourcePage, McpResourceTemplate, McpResourceText,
    McpTemplatePage,
};
use crate::view::to_json;
use axum::http::StatusCode;
use serde::Serialize;
use serde_json::{Map, Value};

const JSON: &str = "application/json";

/// Code of a resource that doesn't exist, in revisions with a handshake.
const NOT_FOUND: i64 = -32_002;

/// Jobs of one page.
const PAGE: usize = 50;

/// Arguments of `v/ops/lattice/read`.
#[derive(Serialize)]
struct ReadPathRequest<'a> {
    path: &'a str,
}

/// Arguments of `v/ops/agent/session-read`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ReadTranscriptRequest<'a> {
    agent_id: &'a str,
    session_id: &'a str,
    /// Number of the turn before the first one of the page.
    after: u64,
}

/// `resources/list`: lists the root of the owner's values, then the newest jobs that the caller may see.
pub(super) async fn list(call: &McpCall) -> Result<Map<String, Value>, RpcRefusal> {
    let wrong = || RpcRefusal::new(INVALID_PARAMS, "`params.cursor`: expected the `nextCursor` of a page");
    let cursor = call.text("cursor")?.map(|text| Cursor::parse(text).ok_or_else(wrong)).transpose()?;
    let filter = JobListFilter { reader: Some(call.who.caller.reader()), ..JobListFilter::default() };
    let found = jobs::list::find(&call.api.venue, call.owner(), &filter, cursor.as_ref(), PAGE).await?;
    let mut resources: Vec<Value> = Vec::new();
    if cursor.is_none() {
        resources.push(to_json(&root()));
        resources.extend(call.api.options.mcp_extension.iter().flat_map(|extension| extension.entries("resources")));
    }
    resources.extend(found.jobs.iter().map(|job| {
        let (id, status) = (&job.head.id, job.status.as_str());
        let description = format!("Job of the agent `{}`, {status}.", job.head.agent);
        to_json(&McpResource {
            uri: format!("trellis://jobs/{id}"),
            name: id.to_string(),
            description,
            mime_type: JSON,
        })
    }));
    Ok(to_result(&McpResourcePage { resources, next_cursor: found.next.map(|next| next.as_str().to_owned()) }))
}

fn root() -> McpResource {
    McpResource {
        uri: "trellis://lattice/w".to_owned(),
        name: "w".to_owned(),
        description: "Values of the owner; each path below is a resource.".to_owned(),
        mime_type: JSON,
    }
}

/// `resources/templates/list`: lists the kinds of resources.
pub(super) fn list_templates(call: &McpCall) -> Map<String, Value> {
    let template = |uri_template, name, description| {
        to_json(&McpResourceTemplate { uri_template, name, description, mime_type: JSON })
    };
    let mut resource_templates = vec![
        template("trellis://jobs/{job}", "job", "A job: its status, input, output and approvals."),
        template("trellis://agents/{agent}/timeline", "timeline", "The newest turns of an agent."),
        template("trellis://agents/{agent}/sessions/{session}", "transcript", "A conversation, turn by turn."),
        template(
            "trellis://agents/{agent}/turns/{session}/{turn}",
            "prompt",
            "A turn with the exact request to its model, and where each part of it came from.",
        ),
        template("trellis://lattice/{+path}", "value", "A value of the owner's tree, e.g. `w/notes`."),
    ];
    let extension = call.api.options.mcp_extension.iter();
    resource_templates.extend(extension.flat_map(|extension| extension.entries("resourceTemplates")));
    to_result(&McpTemplatePage { resource_templates })
}

/// `resources/read`: reads a resource, as JSON.
pub(super) async fn read(call: &McpCall) -> Result<Map<String, Value>, RpcRefusal> {
    let uri = call.required_text("uri")?;
    let unknown = |text: String| {
        let code = if call.client.is_stateless { INVALID_PARAMS } else { NOT_FOUND };
        RpcRefusal::new(code, text).with_data(to_json(&McpResourceFacts { uri: uri.to_owned() }))
    };
    let Some(address) = ResourceAddress::parse(uri) else {
        return Err(unknown("resource not found: `resources/templates/list` shows what there is".to_owned()));
    };
    let value = read_value(call, &address).await.map_err(|problem| match problem.status {
        StatusCode::NOT_FOUND => unknown(problem.detail),
        _ => problem.into(),
    })?;
    let text = McpResourceText { uri: uri.to_owned(), mime_type: JSON, text: value.to_string() };
    Ok(to_result(&McpResourceContents { contents: vec![text] }))
}

async fn read_value(call: &McpCall, address: &ResourceAddress) -> Result<Value, Problem> {
    let (api, who) = (&call.api, &call.who);
    match address {
        ResourceAddress::Job(id) => {
            let id = JobId::new(id.as_str()).map_err(Problem::not_found)?;
            check_sight(api, who, &id).await?;
            let job = jobs::read_for_people(&api.venue, call.owner(), &id).await?;
            let job = job.ok_or_else(|| Problem::not_found(format!("no job `{id}`")))?;
            Ok(to_json(&job_view::record_for(&api.venue, &who.caller, &job).await?))
        }
        ResourceAddress::Timeline(agent) => {
            check_agent(call, agent)?;
            Ok(to_json(&read_timeline(api, who, agent).await?))
        }
        ResourceAddress::Transcript { agent, session } => {
            check_agent(call, agent)?;
            let request = ReadTranscriptRequest { agent_id: agent, session_id: session, after: 0 };
            Ok(operate(api, who, "v/ops/agent/session-read", to_json(&request)).await?.value)
        }
        ResourceAddress::Prompt { agent, session, turn } => {
            check_agent(call, agent)?;
            let position = TimelinePosition { agent, session, turn: *turn };
            Ok(to_json(&read_turn(api, who, position, true).await?))
        }
        ResourceAddress::Lattice(path) => {
            let output = operate(api, who, "v/ops/lattice/read", to_json(&ReadPathRequest { path })).await?;
            let read: ValueView = read_output(output)?;
            if read.exists { Ok(to_json(&read)) } else { Err(Problem::not_found(format!("nothing at `{path}`"))) }
        }
    }
}

/// Checks that the caller may read an agent, as the routes of its turns do.
fn check_agent(call: &McpCall, agent: &str) -> Result<(), Problem> {
    let agent = AgentId::new(agent).map_err(Problem::not_found)?;
    let permitted = call.who.caller.authority.permits("crud/read", ResourcePath::agent(&agent));
    permitted.map_err(|denied| Problem::forbidden(denied.model_text("resources/read")))
}
