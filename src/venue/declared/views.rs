//! Views of the catalogue with the tools that an agent's file, or a record below `o/`, declares.

use super::{declarations, extend_view};
use crate::domain::agent::AgentConfig;
use crate::domain::agent::entry::ContextEntry;
use crate::domain::agent::tool::ToolEntry;
use crate::domain::declared::ToolDeclaration;
use crate::domain::ids::Owner;
use crate::domain::lattice::Path;
use crate::domain::lattice::catalog::{OPERATIONS, catalog_path, is_run, strip_owner};
use crate::domain::lattice::layout::Scope;
use crate::domain::limits::JOB_DEPTH;
use crate::store::StoreError;
use crate::venue::Venue;
use crate::venue::operation::{Catalog, CatalogView};
use crate::venue::workspace::{Workspace, WorkspaceError};
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Returns the view with one declaration more. One that can't be an operation is left out: whoever names it is told that
/// there is none.
fn extend(catalog: &Catalog, view: CatalogView, tool: &ToolDeclaration) -> CatalogView {
    match extend_view(catalog, &view, tool) {
        Ok(extended) => extended,
        Err(error) => {
            tracing::debug!(tool = tool.name, %error, "a declared tool is not offered");
            view
        }
    }
}

/// Returns the view with the tools that a configuration declares.
pub fn view_with_config(catalog: &Catalog, view: CatalogView, config: &AgentConfig) -> CatalogView {
    declarations(config).iter().fold(view, |view, (_, tool)| extend(catalog, view, tool))
}

/// Returns the view with the tools that an agent's configuration declares, and those of the records below `o/` that it
/// names. The records are as they are at this time.
pub async fn view_for_agent(
    venue: &Venue,
    owner: &Owner,
    view: CatalogView,
    config: &AgentConfig,
) -> Result<CatalogView, StoreError> {
    let is_declared = |entry: &&ToolEntry| match entry {
        ToolEntry::Named(tool) => tool.declaration().is_some(),
        ToolEntry::Path(_) => false,
    };
    let tools = config.tools.iter().filter(|entry| !is_declared(entry)).filter_map(ToolEntry::operation);
    let context = config.context.iter().filter_map(|entry| match entry {
        ContextEntry::Full(full) => full.op.as_deref(),
        ContextEntry::Short(_) => None,
    });
    let records: BTreeSet<&str> = tools.chain(context).filter_map(record_name).collect();
    // The configuration counts before a record of the same name.
    let view = extend_with_records(venue, owner, view, records).await?;
    Ok(view_with_config(&venue.catalog, view, config))
}

/// Returns the view with the record below `o/` that a call outside turns names, also inside an operation that runs
/// another one.
pub async fn view_for_call(
    venue: &Venue,
    owner: &Owner,
    view: CatalogView,
    operation: &str,
    input: &Value,
) -> Result<CatalogView, StoreError> {
    let (mut path, mut input, mut records) = (operation, input, BTreeSet::new());
    for _ in 0..=JOB_DEPTH {
        records.extend(record_name(path));
        if !is_run(&catalog_path(path)) {
            break;
        }
        let Some(inner) = input["operation"].as_str() else { break };
        (path, input) = (inner, &input["input"]);
    }
    extend_with_records(venue, owner, view, records).await
}

/// Returns the name of the record that a path stands for: `o/<name>`, or the operation that the record declares.
fn record_name(path: &str) -> Option<&str> {
    let plain = strip_owner(path).trim_matches('/');
    let record = plain.strip_prefix("o/").filter(|name| !name.contains('/'));
    let short = plain.strip_prefix(OPERATIONS).unwrap_or(plain);
    let operation = ["own/", "jobs/", "own:", "jobs:"].iter().find_map(|group| short.strip_prefix(group));
    record.or(operation.filter(|name| !name.contains(['/', ':'])))
}

async fn extend_with_records(
    venue: &Venue,
    owner: &Owner,
    view: CatalogView,
    records: BTreeSet<&str>,
) -> Result<CatalogView, StoreError> {
    if records.is_empty() {
        return Ok(view);
    }
    let tree = Workspace::new(Arc::clone(&venue.store), owner.clone(), Scope::default());
    let mut view = view;
    for record in records {
        let Ok(path) = Path::parse(&format!("o/{record}")) else { continue };
        let value = match tree.get(&path).await {
            Ok(value) => value.unwrap_or_default(),
            Err(WorkspaceError::Store(error)) => return Err(error),
            Err(_) => continue,
        };
        // A record replaces no operation of the venue: whoever may write it would get the calls of others.
        if let Some(Ok(tool)) = ToolDeclaration::of_record(record, &value)
            && view.resolve(&tool.own_path()).is_none()
        {
            view = extend(&venue.catalog, view, &tool);
        }
    }
    Ok(view)
}

#[cfg(test)]
mod tests {
    use super::record_name;

    #[test]
    fn paths_lead_to_the_records_that_declare_them() {
        for (path, expected) in [
            ("o/get_order", Some("get_order")),
            ("/o/get_order/", Some("get_order")),
            ("/acme/ann/o/get_order", Some("get_order")),
            ("v/ops/own/get_order", Some("get_order")),
            ("own:get_order", Some("get_order")),
            ("own/get_order", Some("get_order")),
            ("v/ops/jobs/ocr", Some("ocr")),
            ("jobs:ocr", Some("ocr")),
            ("o/a/b", None),
            ("v/ops/own/a/b", None),
            ("v/ops/shop/get_order", None),
            ("lattice/read", None),
            ("w/own/x", None),
        ] {
            assert_eq!(record_name(path), expected, "{path}");
        }
    }
}
