//! Pins in a configuration: tools and entries that name `o/<name>`, or a definition, become those of the operation that
//! it stands for, in each turn anew, as far as the turn may read the pin.

use crate::domain::agent::AgentRecord;
use crate::domain::agent::entry::ContextEntry;
use crate::domain::agent::tool::NamedTool;
use crate::domain::agent::tool::ToolEntry;
use crate::domain::agent::tool::tool_name;
use crate::domain::lattice::catalog::is_stored_operation;
use crate::store::StoreError;
use crate::venue::operation::OpError;
use crate::venue::operation::pin::PinReader;

/// Returns the agent with the operations that its pins name; `None` if it names none. A pin that can't be resolved
/// stays, and is refused where it is used.
pub(super) async fn resolve_pins(pins: PinReader<'_>, agent: &AgentRecord) -> Result<Option<AgentRecord>, StoreError> {
    let names_pins = agent.config.tools.iter().filter_map(ToolEntry::operation).any(is_stored_operation)
        || agent.config.context.iter().filter_map(operation_of).any(is_stored_operation);
    if !names_pins {
        return Ok(None);
    }
    let mut agent = agent.clone();
    let mut named = Vec::new();
    for entry in &mut agent.config.tools {
        let Some(path) = entry.operation().filter(|path| is_stored_operation(path)).map(str::to_owned) else {
            continue;
        };
        let Some(operation) = find_operation(pins, &path).await? else { continue };
        let tool = match entry {
            ToolEntry::Path(_) => NamedTool::default(),
            ToolEntry::Named(tool) => (**tool).clone(),
        };
        let name = tool.name.clone().unwrap_or_else(|| tool_name(&path));
        named.push((path, name.clone()));
        *entry = ToolEntry::Named(Box::new(NamedTool { operation: Some(operation), name: Some(name), ..tool }));
    }
    // Bindings under a pin's path become bindings under the names of its tools.
    agent.config.tool_arg_injection.rename(&named);
    for entry in &mut agent.config.context {
        let Some(path) = operation_of(entry).filter(|path| is_stored_operation(path)).map(str::to_owned) else {
            continue;
        };
        let Some(operation) = find_operation(pins, &path).await? else { continue };
        if let ContextEntry::Full(full) = entry {
            full.op = Some(operation);
        }
    }
    Ok(Some(agent))
}

fn operation_of(entry: &ContextEntry) -> Option<&str> {
    match entry {
        ContextEntry::Full(full) => full.op.as_deref(),
        ContextEntry::Short(_) => None,
    }
}

/// Finds the operation that a pin names; `None` if the reader can't resolve it.
async fn find_operation(pins: PinReader<'_>, path: &str) -> Result<Option<String>, StoreError> {
    match pins.resolve_pin(path).await {
        Ok(operation) => Ok(Some(operation)),
        Err(OpError::Store(error)) if error.is_transient() => Err(error),
        Err(_) => Ok(None),
    }
}
