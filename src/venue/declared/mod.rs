//! Tools by declaration: their operations, and the views of the catalogue that have them. [`crate::domain::declared`]
//! has their rules.
//!
//! | declared in | its operations | who may name them |
//! |---|---|---|
//! | a file of the venue | `v/ops/<group>/<name>` | everybody |
//! | an agent's file | `v/ops/own/<name>` | that agent |
//! | a record `o/<name>` | `v/ops/own/<name>` | whoever calls `o/<name>`, or has it among the tools |
//!
//! Jobs for external workers have `v/ops/jobs/<name>` in each of these.

mod files;
mod http_call;
pub mod lint;
mod views;

pub use files::{ToolFileError, publish_files};
pub use views::{view_for_agent, view_for_call, view_with_config};

use crate::domain::agent::AgentConfig;
use crate::domain::agent::tool::ToolEntry;
use crate::domain::declared::{DeclarationError, DeclaredEffect, HttpPlan, ToolDeclaration};
use crate::domain::lattice::catalog::{CatalogNameError, SourceName};
use crate::venue::operation::{
    Catalog, CatalogView, Effect, PublicationError, RuntimeCall, RuntimeOperation, ViewOperation,
};
use http_call::HttpToolCall;
use std::sync::Arc;

/// Group of the calls that an agent's file or a record declares.
pub const OWN_GROUP: &str = "own";

/// Group of all declared jobs for external workers.
pub const JOBS_GROUP: &str = "jobs";

/// Why a declaration makes no operation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DeclaredOperationError {
    /// The declaration breaks a rule.
    #[error(transparent)]
    Rule(#[from] DeclarationError),
    /// The group of its operations has an illegal name.
    #[error(transparent)]
    Group(#[from] CatalogNameError),
    /// The process starts no jobs for external workers.
    #[error("this process has no queues of external workers")]
    NoQueues,
}

/// Makes the operation of a declaration.
fn runtime_operation(catalog: &Catalog, tool: &ToolDeclaration) -> Result<RuntimeOperation, DeclaredOperationError> {
    tool.check()?;
    let input = tool.input();
    let (effect, run): (Effect, Arc<dyn RuntimeCall>) = match (&tool.http, &tool.jobs) {
        (Some(http), _) => {
            let plan = HttpPlan::new(http, &input)?;
            let effect = match plan.effect() {
                DeclaredEffect::Read => Effect::Read,
                DeclaredEffect::Repeatable => Effect::Idempotent,
                DeclaredEffect::Once => Effect::Once,
            };
            (effect, Arc::new(HttpToolCall::new((**http).clone(), plan)))
        }
        (None, Some(jobs)) => {
            let calls = catalog.jobs().ok_or(DeclaredOperationError::NoQueues)?;
            (Effect::Idempotent, calls(jobs))
        }
        (None, None) => return Err(DeclarationError::Target { found: "none" }.into()),
    };
    let (name, description) = (tool.name.clone(), tool.description.clone());
    Ok(RuntimeOperation { name, description, input, effect, run })
}

/// Why a declaration is in no view of the catalogue.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum ViewError {
    /// The declaration makes no operation.
    #[error(transparent)]
    Operation(#[from] DeclaredOperationError),
    /// The operation breaks a rule of published ones.
    #[error("{0}")]
    Publication(Box<PublicationError>),
}

/// Returns the view with the operation of a declaration. One that was made lately is not made again.
fn extend_view(catalog: &Catalog, view: &CatalogView, tool: &ToolDeclaration) -> Result<CatalogView, ViewError> {
    let source = SourceName::new(if tool.jobs.is_some() { JOBS_GROUP } else { OWN_GROUP });
    let source = source.map_err(DeclaredOperationError::from)?;
    let version = tool.version();
    if let Some(extended) = catalog.extend_with_recent(view, &source, &tool.name, &version) {
        return Ok(extended);
    }
    let operation = ViewOperation { source, version, operation: runtime_operation(catalog, tool)? };
    catalog.extend_view(view, operation).map_err(|error| ViewError::Publication(Box::new(error)))
}

/// Returns the declarations in an agent's configuration, each with its place in `tools`.
pub fn declarations(config: &AgentConfig) -> Vec<(usize, ToolDeclaration)> {
    let tools = config.tools.iter().enumerate();
    let declared = tools.filter_map(|(at, entry)| match entry {
        ToolEntry::Named(tool) => Some((at, tool.declaration()?)),
        ToolEntry::Path(_) => None,
    });
    declared.collect()
}

#[cfg(test)]
mod tests;
