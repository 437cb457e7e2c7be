//! Why a turn is the last of its task.

use crate::agent::CompletionRule;
use crate::budget::{Deadline, LimitOrigin};
use crate::chat::Reply;
use crate::job::{ErrorCode, JobResult};
use crate::time::Millis;
use serde::{Deserialize, Serialize};

/// Why a turn is the last of its task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FinalTurn {
    /// Error code of the task, unless it ends itself.
    pub code: ErrorCode,
    /// Description of the limit.
    pub reason: String,
}

impl FinalTurn {
    /// Returns the reason if a deadline has passed.
    pub fn from_deadline(deadline: &Deadline, now: Millis) -> Option<Self> {
        let reason = || format!("its time was over at {}", deadline.at.rfc3339());
        (now >= deadline.at).then(|| Self { code: limit_code(deadline.origin), reason: reason() })
    }

    /// Returns the result of a task that did not end itself.
    pub(crate) fn task_result(&self, reply: &Reply, is_text: bool, completion: CompletionRule) -> JobResult {
        let text = reply.text.as_str();
        if is_text && !text.trim().is_empty() && completion == CompletionRule::Implicit {
            return JobResult { truncated: reply.truncated, ..JobResult::complete(text.into()) };
        }
        JobResult::failure(self.code, format!("{}; the last text was: {text}", self.reason))
    }
}

/// Returns the error code of a task that reaches a limit.
pub const fn limit_code(origin: LimitOrigin) -> ErrorCode {
    match origin {
        LimitOrigin::Agent | LimitOrigin::Cap => ErrorCode::LimitReached,
        LimitOrigin::Request => ErrorCode::BudgetExceeded,
    }
}
