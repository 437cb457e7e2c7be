//! Pins in a configuration: tools and entries that name `o/<name>`, or a definition, become those of the operation that
//! it stands for, in each turn anew, as far as the turn may read the pin.

use crate::domain::agent::AgentRecord;
use crate::domain::agent::entry::{ContextEntry, PinnedSchema};
use crate::domain::agent::tool::NamedTool;
use crate::domain::agent::tool::ToolEntry;
use crate::domain::agent::tool::tool_name;
use crate::domain::lattice::catalog::is_stored_operation;
use crate::domain::limits::{PINNED_SCHEMAS_BYTES, TOOLS};
use crate::domain::mcp::name::server_of_pattern;
use crate::domain::visible::beginning;
use crate::store::StoreError;
use crate::venue::operation::OpError;
use crate::venue::operation::pin::{PinReader, PinnedOperation};

/// Bytes of what a pin says of its tool: it stands in every prompt.
const DESCRIPTION_BYTES: usize = 4_096;

/// Returns the agent with the operations that its pins name; `None` if it names none. A pin that can't be resolved
/// stays, and is refused where it is used.
pub(super) async fn resolve_pins(pins: PinReader<'_>, agent: &AgentRecord) -> Result<Option<AgentRecord>, StoreError> {
    let named = || agent.config.tools.iter().filter_map(ToolEntry::operation);
    let names_pins = named().any(|path| is_stored_operation(path) || server_of_pattern(path).is_some())
        || agent.config.context.iter().filter_map(operation_of).any(is_stored_operation);
    if !names_pins {
        return Ok(None);
    }
    let mut agent = agent.clone();
    agent.config.tools = expand_patterns(pins, std::mem::take(&mut agent.config.tools));
    let configured: Vec<String> = agent.config.tools.iter().map(ToolEntry::tool_name).collect();
    let (mut named, mut room) = (Vec::new(), PINNED_SCHEMAS_BYTES);
    for entry in &mut agent.config.tools {
        let Some(path) = entry.operation().filter(|path| is_stored_operation(path)).map(str::to_owned) else {
            continue;
        };
        let Some(found) = find_operation(pins, &path, &mut room).await? else { continue };
        let tool = match entry {
            ToolEntry::Path(_) => NamedTool::default(),
            ToolEntry::Named(tool) => (**tool).clone(),
        };
        let derived = tool_name(&path);
        let own = found.tool_name.map(|name| tool_name(&name)).filter(|name| !name.is_empty());
        let name = tool.name.clone().or(own).unwrap_or_else(|| derived.clone());
        if tool.name.is_none() && name != derived && is_free(pins, &configured, &derived) {
            named.push((derived, name.clone()));
        }
        named.push((path, name.clone()));
        *entry = ToolEntry::Named(Box::new(NamedTool {
            operation: Some(found.path),
            name: Some(name),
            description: tool.description.or(found.description.map(|text| beginning(text, DESCRIPTION_BYTES))),
            input: found.input,
            ..tool
        }));
    }
    // Bindings under a pin's path become bindings under the names of its tools.
    agent.config.tool_arg_injection.rename(&named);
    for entry in &mut agent.config.context {
        let Some(path) = operation_of(entry).filter(|path| is_stored_operation(path)).map(str::to_owned) else {
            continue;
        };
        let Some(found) = find_operation(pins, &path, &mut room).await? else { continue };
        if let ContextEntry::Full(full) = entry {
            full.op = Some(found.path);
            full.pinned = found.input.map(|schema| PinnedSchema { path, schema });
        }
    }
    Ok(Some(agent))
}

/// Replaces each entry that stands for all tools of a server by one for each of them, with the same options.
fn expand_patterns(pins: PinReader<'_>, entries: Vec<ToolEntry>) -> Vec<ToolEntry> {
    let mut expanded = Vec::with_capacity(entries.len());
    for entry in entries {
        let Some(server) = entry.operation().and_then(server_of_pattern) else {
            expanded.push(entry);
            continue;
        };
        let options = match &entry {
            ToolEntry::Path(_) => NamedTool::default(),
            ToolEntry::Named(tool) => NamedTool { name: None, description: None, ..(**tool).clone() },
        };
        let prefix = server.prefix();
        let paths = pins.catalog.operations().map(|found| &found.spec.path).filter(|path| path.starts_with(&prefix));
        let of_server = paths
            .take(TOOLS)
            .map(|path| ToolEntry::Named(Box::new(NamedTool { operation: Some(path.to_string()), ..options.clone() })));
        let before = expanded.len();
        expanded.extend(of_server);
        // The entry stays where the server has no tools, so that it is shown as one that isn't offered.
        if expanded.len() == before {
            expanded.push(entry);
        }
    }
    expanded
}

fn operation_of(entry: &ContextEntry) -> Option<&str> {
    match entry {
        ContextEntry::Full(full) => full.op.as_deref(),
        ContextEntry::Short(_) => None,
    }
}

/// Whether the name that a pin's path gives its tool is no other tool's and no operation's: a binding under it means the
/// pin.
fn is_free(pins: PinReader<'_>, configured: &[String], name: &str) -> bool {
    let catalog = pins.catalog;
    let operations = catalog.operations().map(|found| &*found.spec.path);
    let mut paths = operations.chain(catalog.aliases().map(|(alias, _)| alias));
    configured.iter().filter(|other| *other == name).count() == 1 && !paths.any(|path| tool_name(path) == name)
}

/// Returns the operation that a pin names; `None` for a pin that names none to this reader, or whose schema is larger
/// than the room that is left.
async fn find_operation(
    pins: PinReader<'_>,
    path: &str,
    room: &mut usize,
) -> Result<Option<PinnedOperation>, StoreError> {
    let found = match pins.find(path).await {
        Ok(found) => found,
        Err(OpError::Store(error)) if error.is_transient() => return Err(error),
        Err(_) => None,
    };
    let schema = found.as_ref().and_then(|found| found.input.as_ref());
    let bytes = schema.map_or(0, |schema| schema.to_string().len());
    let Some(left) = room.checked_sub(bytes) else { return Ok(None) };
    *room = left;
    Ok(found)
}
