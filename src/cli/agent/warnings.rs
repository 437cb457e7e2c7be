//! Warnings of the venue about a configuration.

use crate::cli::output::note;
use crate::domain::ids::AgentId;

/// Notes the venue's warnings about a configuration on stderr.
pub(crate) fn warn(agent: &AgentId, warnings: &[String]) {
    for warning in warnings {
        note(&format!("warning: agent `{agent}`: {warning}"));
    }
}
