//! Offers the tools of resources.

use super::ToolTableBuilder;
use crate::call::ToolTarget;
use crate::chat::ToolSpec;
use crate::scope::ToolContext;

/// A tool of a resource, as one turn offers it.
#[derive(Debug, Clone, PartialEq)]
pub struct ResourceTool {
    /// Target of its calls.
    pub target: ToolTarget,
    /// Spec for the model.
    pub spec: ToolSpec,
}

impl ToolTableBuilder<'_> {
    /// Offers a tool of a resource. Its name is unique, because the configuration was checked for that.
    pub(super) fn offer_resource(&mut self, tool: &ResourceTool) {
        let ToolSpec { name, description, schema } = &tool.spec;
        self.names.push(name.clone());
        match self.config.tool_arg_injection.plan(&[name], schema, self.values) {
            Err(unknown) => self.refused.push((name.clone(), unknown.to_string())),
            Ok(planned) => {
                self.reports.extend(planned.reports.into_iter().map(|report| (name.clone(), report)));
                let (name, description, target) = (name.clone(), description.clone(), tool.target.clone());
                self.add(name, description, target, schema, planned.injection, ToolContext::default());
            }
        }
    }
}
