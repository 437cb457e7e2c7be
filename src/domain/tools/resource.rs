//! Tools of resources, and the names that they must not meet.

use super::entry::ToolEntry;
use super::{Builder, DEFAULT_TOOLS, ToolTarget, harness, tool_name};
use crate::agent::AgentConfig;
use crate::chat::ToolSpec;
use crate::scope::Reach;

/// A tool of a resource, as it is offered in one turn.
#[derive(Debug, Clone, PartialEq)]
pub struct ResourceTool {
    /// What it does.
    pub target: ToolTarget,
    /// As the model sees it.
    pub spec: ToolSpec,
}

/// Names of the tools that a configuration has besides those of its resources.
pub fn configured(config: &AgentConfig) -> Vec<String> {
    let defaults = if config.default_tools { &DEFAULT_TOOLS[..] } else { &[] };
    let harness = harness::NAMES.iter().map(|name| (*name).to_owned());
    config
        .tools
        .iter()
        .map(ToolEntry::tool_name)
        .chain(defaults.iter().map(|path| tool_name(path)))
        .chain(harness)
        .collect()
}

impl Builder<'_> {
    /// Its name is nobody else's: the configuration was checked for that.
    pub(super) fn offer_resource(&mut self, tool: &ResourceTool) {
        let ToolSpec { name, description, schema } = &tool.spec;
        self.names.push(name.clone());
        match self.config.tool_arg_injection.plan(&[name], schema, self.values) {
            Err(reason) => self.refused.push((name.clone(), reason)),
            Ok(planned) => {
                self.reports.extend(planned.reports.into_iter().map(|report| (name.clone(), report)));
                let (name, description, target) = (name.clone(), description.clone(), tool.target.clone());
                self.add(name, description, target, schema, planned.injection, Reach::default());
            }
        }
    }
}
