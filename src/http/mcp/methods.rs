//! The methods of the protocol, and the fields that a revision adds to their results.

use super::call::{McpCall, to_result};
use super::client::{declared_capabilities, negotiate, supported_versions, tasks_extension};
use super::refusal::{INTERNAL_ERROR, RpcRefusal};
use super::reply::RpcReply;
use super::{resources, tasks, tools};
use crate::http::mcp_extension::McpExtensionRequest;
use crate::view::mcp::{
    McpCapability, McpDiscovery, McpErrorMessage, McpFault, McpImplementation, McpInitialized, McpResultMessage,
};
use crate::view::to_json;
use axum::http::StatusCode;
use serde_json::{Map, Value};

/// Key of the server's name in a result.
const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";

/// Milliseconds for which a client may keep what a server says of itself, a list, and a resource.
const DESCRIPTION_TTL_MS: u64 = 60_000;
const LIST_TTL_MS: u64 = 5_000;
const RESOURCE_TTL_MS: u64 = 0;

const INSTRUCTIONS: &str = "A venue that runs persistent AI agents. Tools `ask_<agent>` give a task to an agent and \
    return its output; a long task goes on as a job: `wait_for_job` waits for its end, `get_job` reads it. \
    `submit_task` gives a task to any agent without waiting. A job that is `INPUT_REQUIRED` waits for a person: ask \
    the user, and answer by `answer_approval`.";

/// Runs the method of a request and makes its answer.
pub(super) async fn answer(mut call: McpCall) -> RpcReply {
    let id = call.request.id.clone();
    match run(&mut call).await {
        Ok(result) => {
            let message = to_json(&McpResultMessage::new(id, complete_result(&call, result)));
            RpcReply { status: StatusCode::OK, message }
        }
        Err(RpcRefusal { status, fault }) => {
            RpcReply { status, message: to_json(&McpErrorMessage::new(Some(id), fault)) }
        }
    }
}

async fn run(call: &mut McpCall) -> Result<Map<String, Value>, RpcRefusal> {
    if let Some(answered) = ask_extension(call).await {
        return answered;
    }
    let method = call.request.method.clone();
    match (method.as_str(), call.client.is_stateless) {
        ("initialize", false) => Ok(to_result(&initialize(call)?)),
        ("ping", false) => Ok(Map::new()),
        ("server/discover", true) => Ok(to_result(&discover(call))),
        ("tools/list", _) => tools::list(call).await,
        ("tools/call", _) => tools::call(call).await,
        ("resources/list", _) => resources::list(call).await,
        ("resources/templates/list", _) => Ok(resources::list_templates(call)),
        ("resources/read", _) => resources::read(call).await,
        ("tasks/get", true) => tasks::get(call).await,
        ("tasks/update", true) => tasks::update(call).await,
        ("tasks/cancel", true) => tasks::cancel(call).await,
        (method, is_stateless) => Err(RpcRefusal::unknown_method(method, is_stateless)),
    }
}

/// Asks the extension first, if there is one; `None` if the venue answers.
async fn ask_extension(call: &McpCall) -> Option<Result<Map<String, Value>, RpcRefusal>> {
    let extension = call.api.options.mcp_extension.as_ref()?;
    let request = McpExtensionRequest {
        owner: call.owner().clone(),
        method: call.request.method.clone(),
        params: call.request.params.clone(),
        is_stateless: call.client.is_stateless,
        client_capabilities: declared_capabilities(&call.request).cloned().unwrap_or_default(),
        messages: call.messages.clone(),
    };
    Some(match extension.answer(&request).await? {
        Ok(Value::Object(result)) => Ok(result),
        Ok(_) => Err(RpcRefusal::new(INTERNAL_ERROR, "the extension returned no map")),
        Err(McpFault { code, message, data }) => {
            // Codes that the protocol has for what a client must change in its request.
            let is_malformed = call.client.is_stateless && (-32_099..=-32_020).contains(&code);
            let refusal = if is_malformed {
                RpcRefusal::malformed_message(code, message)
            } else {
                RpcRefusal::new(code, message)
            };
            Err(data.into_iter().fold(refusal, RpcRefusal::with_data))
        }
    })
}

fn initialize(call: &McpCall) -> Result<McpInitialized, RpcRefusal> {
    let asked = call.required_text("protocolVersion")?;
    Ok(McpInitialized {
        protocol_version: negotiate(asked).to_owned(),
        capabilities: capabilities(call),
        server_info: implementation(call),
        instructions: INSTRUCTIONS.to_owned(),
    })
}

fn discover(call: &McpCall) -> McpDiscovery {
    McpDiscovery {
        supported_versions: supported_versions(),
        capabilities: capabilities(call),
        instructions: INSTRUCTIONS.to_owned(),
    }
}

/// Returns what the server can do: changes are told, and tasks are made, only where a request says what it needs.
fn capabilities(call: &McpCall) -> Map<String, Value> {
    let is_stateless = call.client.is_stateless;
    let tools = McpCapability { list_changed: is_stateless, subscribe: false };
    let resources = McpCapability { list_changed: false, subscribe: is_stateless };
    let mut all = if is_stateless { tasks_extension() } else { Map::new() };
    all.insert("tools".to_owned(), to_json(&tools));
    all.insert("resources".to_owned(), to_json(&resources));
    if let Some(extension) = &call.api.options.mcp_extension {
        all.extend(extension.capabilities());
    }
    all
}

fn implementation(call: &McpCall) -> McpImplementation {
    let (name, title) = ("trellis".to_owned(), call.api.venue.name.clone());
    McpImplementation { name, title, version: env!("CARGO_PKG_VERSION").to_owned() }
}

/// Adds the fields of the revision 2026-07-28 to a result, where it has none of them.
fn complete_result(call: &McpCall, mut result: Map<String, Value>) -> Map<String, Value> {
    if !call.client.is_stateless {
        return result;
    }
    let kind = result.entry("resultType").or_insert_with(|| "complete".into());
    let ttl = match call.request.method.as_str() {
        "server/discover" => Some(DESCRIPTION_TTL_MS),
        "tools/list" | "prompts/list" | "resources/list" | "resources/templates/list" => Some(LIST_TTL_MS),
        "resources/read" => Some(RESOURCE_TTL_MS),
        _ => None,
    };
    if let Some(ttl) = ttl.filter(|_| *kind == "complete") {
        // What a caller sees depends on its authority.
        result.entry("ttlMs").or_insert_with(|| ttl.into());
        result.entry("cacheScope").or_insert_with(|| "private".into());
    }
    let meta = result.entry("_meta").or_insert_with(|| Value::Object(Map::new()));
    if let Some(meta) = meta.as_object_mut() {
        meta.entry(SERVER_INFO).or_insert_with(|| to_json(&implementation(call)));
    }
    result
}
