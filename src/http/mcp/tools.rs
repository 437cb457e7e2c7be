//! `tools/list` and `tools/call`.

use super::call::{McpCall, to_result};
use super::refusal::{INVALID_PARAMS, RpcRefusal};
use super::{agent_tools, job_tools};
use crate::domain::ids::AgentId;
use crate::view::mcp::{McpToolPage, McpToolResult};
use crate::view::to_json;
use serde_json::{Map, Value};

/// Lists the tools that the caller may call: first those of jobs, then published agents, page by page.
pub(super) async fn list(call: &McpCall) -> Result<Map<String, Value>, RpcRefusal> {
    let after = call.text("cursor")?.map(AgentId::new).transpose();
    let after =
        after.map_err(|_| RpcRefusal::new(INVALID_PARAMS, "`params.cursor`: expected the `nextCursor` of a page"))?;
    let mut tools: Vec<Value> = Vec::new();
    if after.is_none() {
        tools.extend(job_tools::list().iter().map(to_json));
        tools.extend(call.api.options.mcp_extension.iter().flat_map(|extension| extension.entries("tools")));
    }
    let page = agent_tools::list(&call.api, &call.who.caller, after.as_ref()).await?;
    tools.extend(page.tools.iter().map(to_json));
    Ok(to_result(&McpToolPage { tools, next_cursor: page.next.map(|next| next.to_string()) }))
}

/// Calls a tool. What the venue refuses is the result of a tool that failed, so that a model reads why.
pub(super) async fn call(call: &mut McpCall) -> Result<Map<String, Value>, RpcRefusal> {
    let name = call.required_text("name")?.to_owned();
    // A call may wait for long: it keeps none of its parameters meanwhile, whose memory it is no longer charged for.
    let arguments = call.take_parameters().shift_remove("arguments").unwrap_or_default();
    let arguments = match arguments {
        Value::Null => Value::Object(Map::new()),
        Value::Object(_) => arguments,
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            return Err(RpcRefusal::new(INVALID_PARAMS, "`params.arguments`: expected a map"));
        }
    };
    let call = &*call;
    if let Some(done) = job_tools::call(call, &name, &arguments).await {
        return Ok(to_result(&done.unwrap_or_else(|refused| McpToolResult::error(refused.detail))));
    }
    agent_tools::call(call, &name, arguments).await
}
