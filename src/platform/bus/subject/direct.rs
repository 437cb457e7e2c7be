//! Subjects of direct submissions: `<prefix>.do.<tenant>.<user>.<agent>.<kind>`.

use super::{SubjectError, kind_token, owner_tokens, parse_place};
use crate::domain::ids::{AgentId, Owner};
use crate::domain::message::InboundKind;

/// Parses owner, agent and kind of a subject of direct submissions.
pub fn parse_direct(prefix: &str, subject: &str) -> Result<(Owner, AgentId, InboundKind), SubjectError> {
    let rest = subject.strip_prefix(prefix).and_then(|rest| rest.strip_prefix(".do."));
    parse_place(prefix, "do", subject, rest)
}

/// Returns the pattern of all subjects of direct submissions.
pub fn all_direct(prefix: &str) -> String {
    format!("{prefix}.do.>")
}

/// Returns the subject of a direct submission.
pub fn direct(prefix: &str, owner: &Owner, agent: &AgentId, kind: InboundKind) -> String {
    format!("{prefix}.do.{}.{}.{}", owner_tokens(owner), agent.token(), kind_token(kind))
}
