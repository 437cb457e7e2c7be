//! The list of a server's tools, page by page, with limits of pages, tools, bytes and time.

use super::call::PeerCall;
use super::error::McpFailure;
use super::peer::McpPeer;
use crate::domain::limits::{
    MCP_FRESH, MCP_LIST_BYTES, MCP_LIST_PAGES, MCP_LIST_TIME, MCP_LISTED_TOOLS, PUBLISHED_PER_SOURCE,
};
use crate::domain::mcp::definition::{DefinitionPage, SkippedTool, ToolDefinition};
use crate::domain::mcp::message::McpRequest;
use crate::venue::failure::OpError;
use crate::venue::outbound::departure::Departure;
use std::collections::BTreeSet;
use std::time::Duration;

/// The tools that a server lists, and that its configuration allows.
pub(crate) struct ToolListing {
    /// Tools that can be used.
    pub(crate) tools: Vec<ToolDefinition>,
    /// Tools that can't.
    pub(crate) skipped: Vec<SkippedTool>,
    /// Names of those whose calls the server works on as tasks.
    pub(crate) with_tasks: Vec<String>,
    /// Age at which the server is asked for the list again.
    pub(crate) fresh: Duration,
}

/// Lists the tools of a server.
pub(crate) async fn list_tools(peer: &McpPeer<'_>) -> Result<ToolListing, OpError> {
    let late = |_| Err(McpFailure::Silent { seconds: MCP_LIST_TIME.as_secs() });
    let listed = tokio::time::timeout(MCP_LIST_TIME, read_pages(peer)).await.unwrap_or_else(late);
    listed.map_err(|failure| peer.op_error(failure, false))
}

async fn read_pages(peer: &McpPeer<'_>) -> Result<ToolListing, McpFailure> {
    let settings = peer.endpoint.settings();
    let mut listing = ToolListing { tools: Vec::new(), skipped: Vec::new(), with_tasks: Vec::new(), fresh: MCP_FRESH };
    let (mut cursor, mut seen, mut names) = (None::<String>, BTreeSet::new(), BTreeSet::new());
    let mut left = MCP_LIST_BYTES;
    for _ in 0..MCP_LIST_PAGES {
        let request = McpRequest::list_tools(peer.endpoint.next_id(), cursor.as_deref());
        let call =
            PeerCall { request, params: &[], marks: None, patience: MCP_LIST_TIME, max_bytes: left, repeatable: true };
        let answer = peer.ask(&call, &Departure::default()).await?;
        left = left.saturating_sub(answer.bytes);
        let wrong = |error: &dyn std::fmt::Display| McpFailure::Answer(format!("its list of tools: {error}"));
        let page = DefinitionPage::read(&answer.result).map_err(|error| wrong(&error))?;
        listing.fresh = page.fresh.unwrap_or(listing.fresh);
        listing.skipped.extend(page.skipped.into_iter().take(MCP_LISTED_TOOLS.saturating_sub(listing.skipped.len())));
        for tool in page.tools {
            if names.len() == MCP_LISTED_TOOLS {
                return Err(wrong(&format!("expected at most {MCP_LISTED_TOOLS} tools, got more")));
            }
            if !names.insert(tool.name.clone()) {
                if listing.skipped.len() < MCP_LISTED_TOOLS {
                    listing.skipped.push(SkippedTool::new(&tool.name, &"another tool of the list has this name"));
                }
            } else if settings.allows(&tool.name) {
                if page.with_tasks.contains(&tool.name) {
                    listing.with_tasks.push(tool.name.clone());
                }
                listing.tools.push(tool);
            }
        }
        match page.next {
            None => return check_count(listing),
            Some(next) if !seen.insert(next.clone()) => {
                return Err(wrong(&"a cursor comes twice, so that it has no end"));
            }
            Some(next) => cursor = Some(next),
        }
    }
    Err(McpFailure::Answer(format!("its list of tools goes on after {MCP_LIST_PAGES} pages")))
}

/// Refuses a list of more tools than can be published: which ones are left out must not be decided by their order.
fn check_count(listing: ToolListing) -> Result<ToolListing, McpFailure> {
    let found = listing.tools.len();
    if found <= PUBLISHED_PER_SOURCE {
        return Ok(listing);
    }
    Err(McpFailure::Answer(format!(
        "it lists {found} tools, expected at most {PUBLISHED_PER_SOURCE}; name those that are used in its `tools`"
    )))
}
