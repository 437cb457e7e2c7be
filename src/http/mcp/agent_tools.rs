//! A tool for each published agent: `ask_<agent>` gives it a task.

use super::call::{McpCall, to_result};
use super::job_tools::{LONGEST_WAIT, StartTaskRequest, start};
use super::job_wait::wait_for_end;
use super::refusal::{INVALID_PARAMS, RpcRefusal};
use crate::domain::authority::ResourcePath;
use crate::domain::decode;
use crate::domain::ids::{AgentId, SessionId, hmac_hex};
use crate::domain::schema::{arguments_error, find_misfits};
use crate::domain::visible::quote_foreign;
use crate::http::Api;
use crate::http::problem::Problem;
use crate::store::StoreError;
use crate::venue::agents::published::{self, PublishedAgent};
use crate::venue::operation::Caller;
use crate::view::job::JobView;
use crate::view::mcp::{McpTask, McpTool, McpToolHints, McpToolResult, ask_output_schema};
use crate::view::to_json;
use serde::Deserialize;
use serde_json::{Map, Value};

/// What the name of each of these tools begins with.
const PREFIX: &str = "ask_";

/// Longest name of a tool that common providers take, in bytes.
const NAME_BYTES: usize = 64;

/// Digits of the hash in a name that stands for another one: nobody finds a second agent of the same name.
const HASH_DIGITS: usize = 16;

/// Agents that one page looks at, and pages that a search looks at.
const PAGE: usize = 100;
const SEARCHED_PAGES: usize = 10;

/// Bytes of JSON after which a page ends, although there are more agents.
const PAGE_BYTES: usize = 512 * 1024;

/// A page of tools.
pub(super) struct AgentToolPage {
    pub(super) tools: Vec<McpTool>,
    /// Agent after which the next page begins.
    pub(super) next: Option<AgentId>,
}

/// Arguments of an agent without an input schema.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TextArguments {
    input: Value,
    session: Option<SessionId>,
}

/// Lists the tools of the published agents that the caller may ask.
pub(super) async fn list(api: &Api, caller: &Caller, after: Option<&AgentId>) -> Result<AgentToolPage, StoreError> {
    let page = published::page(&api.venue, &caller.owner, after, PAGE).await?;
    let (mut tools, mut bytes) = (Vec::new(), 0);
    for agent in page.agents.into_iter().filter(|agent| may_ask(caller, &agent.id)) {
        let id = agent.id.clone();
        let tool = describe(agent);
        bytes += to_json(&tool).to_string().len();
        tools.push(tool);
        if bytes >= PAGE_BYTES {
            return Ok(AgentToolPage { tools, next: Some(id) });
        }
    }
    Ok(AgentToolPage { tools, next: page.next })
}

fn may_ask(caller: &Caller, agent: &AgentId) -> bool {
    caller.authority.permits("agent/request", ResourcePath::agent(agent)).is_ok()
}

fn describe(agent: PublishedAgent) -> McpTool {
    let description = agent.description.unwrap_or_else(|| format!("Gives a task to the agent `{}`.", agent.id));
    McpTool {
        name: tool_name(&agent.id),
        title: Some(agent.settings.title.clone().unwrap_or_else(|| agent.id.to_string())),
        description,
        input_schema: agent.settings.arguments_schema(),
        output_schema: Some(ask_output_schema(agent.output.as_ref())),
        annotations: McpToolHints { read_only: false, destructive: true, idempotent: false },
    }
}

/// Returns the name of an agent's tool: letters, digits, `_` and `-`. A name that can't be written so ends with a hash,
/// and so does one that looks like that: no agent has the tool of another one.
fn tool_name(agent: &AgentId) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let name = agent.as_str();
    if name.chars().all(is_plain) && PREFIX.len() + name.len() <= NAME_BYTES && !ends_with_hash(name) {
        return format!("{PREFIX}{name}");
    }
    let room = NAME_BYTES - PREFIX.len() - HASH_DIGITS - 1;
    let plain: String = name.chars().map(|c| if is_plain(c) { c } else { '_' }).take(room).collect();
    let hash = hmac_hex(b"tool", name.as_bytes());
    format!("{PREFIX}{plain}_{}", &hash[..HASH_DIGITS])
}

/// Whether a name ends as one that stands for another.
fn ends_with_hash(name: &str) -> bool {
    let is_digit = |byte: u8| byte.is_ascii_digit() || matches!(byte, b'a'..=b'f');
    name.rsplit_once('_').is_some_and(|(_, hash)| hash.len() == HASH_DIGITS && hash.bytes().all(is_digit))
}

/// Finds the agent of a tool that the caller may ask.
async fn find(call: &McpCall, name: &str) -> Result<Option<PublishedAgent>, StoreError> {
    let Some(rest) = name.strip_prefix(PREFIX) else { return Ok(None) };
    let caller = &call.who.caller;
    let is_meant = |agent: &PublishedAgent| tool_name(&agent.id) == name && may_ask(caller, &agent.id);
    if let Ok(id) = AgentId::new(rest)
        && let Some(agent) = published::find(&call.api.venue, &caller.owner, &id).await?.filter(&is_meant)
    {
        return Ok(Some(agent));
    }
    // Only for these names all agents are looked at: any other one is that of its agent.
    if !ends_with_hash(rest) {
        return Ok(None);
    }
    let mut after: Option<AgentId> = None;
    for _ in 0..SEARCHED_PAGES {
        let page = published::page(&call.api.venue, &caller.owner, after.as_ref(), PAGE).await?;
        if let Some(agent) = page.agents.into_iter().find(&is_meant) {
            return Ok(Some(agent));
        }
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    Ok(None)
}

/// Calls the tool of an agent. A client that takes tasks gets the job as one; any other waits for the job, and after the
/// longest wait gets its id.
pub(super) async fn call(call: &McpCall, name: &str, arguments: Value) -> Result<Map<String, Value>, RpcRefusal> {
    let Some(agent) = find(call, name).await? else {
        return Err(RpcRefusal::new(INVALID_PARAMS, format!("unknown tool: `{}`", quote_foreign(name))));
    };
    let asked = ask(call, name, &agent, arguments).await;
    drop(agent);
    let record = match asked {
        Ok(record) if call.client.takes_tasks && !record.status.is_terminal() => {
            return Ok(created_task(call, &record));
        }
        Ok(record) => wait_for_end(call, &record.id, LONGEST_WAIT).await,
        Err(refused) => Err(refused),
    };
    let result = record.map_or_else(|refused| McpToolResult::error(refused.detail), |job| McpToolResult::of_call(&job));
    Ok(to_result(&result))
}

/// Starts the job of a call.
async fn ask(call: &McpCall, name: &str, agent: &PublishedAgent, arguments: Value) -> Result<JobView, Problem> {
    let schema = agent.settings.arguments_schema();
    let (found, _) = find_misfits(&schema, &arguments, 5).map_err(Problem::bad_request)?;
    if let Some(error) = arguments_error(name, &found) {
        return Err(Problem::bad_request(error));
    }
    let (input, session_id) = if agent.settings.input.is_some() {
        (arguments, None)
    } else {
        let TextArguments { input, session } = decode::into_type(arguments).map_err(Problem::invalid_data)?;
        (input, session)
    };
    start(call, None, &StartTaskRequest { agent_id: &agent.id, input, session_id, timeout: 0 }).await
}

/// Returns the task of a job that was started: a result that is no result of a tool.
fn created_task(call: &McpCall, record: &JobView) -> Map<String, Value> {
    let task = McpTask { result: None, input_requests: None, ..McpTask::new(record, call.client.asks_people) };
    let mut result = to_result(&task);
    result.insert("resultType".to_owned(), "task".into());
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tools_name_is_one_that_providers_take() {
        let name = |agent: &str| tool_name(&AgentId::new(agent).unwrap());
        assert_eq!(name("weather-2"), "ask_weather-2");
        for agent in ["a.b", "ä", "x".repeat(61).as_str(), "x".repeat(128).as_str()] {
            let name = name(agent);
            let is_legal = name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'));
            assert!(is_legal && name.len() <= NAME_BYTES && name.starts_with(PREFIX), "{name}");
        }
        assert_ne!(name("a.b"), name("a:b"));
        assert_eq!(name(&"x".repeat(60)).len(), 64);
    }

    #[test]
    fn no_agent_has_the_tool_of_another_one() {
        let name = |agent: &str| tool_name(&AgentId::new(agent).unwrap());
        let hashed = name("a.b");
        // An agent of just this name, and one of the name that this one then gets.
        let forged = hashed.strip_prefix(PREFIX).unwrap();
        let again = name(forged);
        assert!(ends_with_hash(forged) && again != hashed && name(again.strip_prefix(PREFIX).unwrap()) != again);
        for (plain, expected) in [
            ("a_0123456789abcdef", true),
            ("a_0123456789abcdeF", false),
            ("a_0123456789abcde", false),
            ("0123456789abcdef", false),
        ] {
            assert_eq!(ends_with_hash(plain), expected, "{plain}");
            assert_eq!(name(plain) != format!("{PREFIX}{plain}"), expected, "{plain}");
        }
    }
}
