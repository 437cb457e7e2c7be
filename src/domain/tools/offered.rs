//! A tool as it is offered.

use crate::call::ToolTarget;
use crate::chat::ToolSpec;
use crate::scope::ToolContext;
use crate::values::inject::Injection;

/// A tool that is offered to a model.
pub(crate) struct OfferedTool {
    pub(crate) spec: ToolSpec,
    pub(crate) target: ToolTarget,
    pub(crate) injection: Injection,
    pub(crate) reach: ToolContext,
}
