//! Tools of resources.

use super::Builder;
use crate::call::ToolTarget;
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
