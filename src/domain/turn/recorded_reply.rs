//! The reply of a turn as it is recorded before its tools run.

use super::FinalTurn;
use super::fallback::ModelCalls;
use crate::authority::{Authority, Capability};
use crate::call::{PlannedCall, ReplyStart, ResolvedCall, ToolTarget};
use crate::chat::{Arguments, Reply};
use crate::context::record::LedgerWrite;
use crate::pipeline_run::PipelineState;
use crate::prefix::StablePrefix;
use crate::session::CallerMessage;
use crate::spend::ModelUse;
use crate::tools::guard::RUNNERS;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A reply as it is recorded before its tools run. A successor continues with these calls, even if the configuration
/// has changed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordedReply {
    /// The task that the turn serves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<crate::ids::JobId>,
    /// Reply of the model.
    pub reply: Reply,
    /// Plan of each call.
    pub calls: Vec<PlannedCall>,
    /// Hash of the prompt of the reply.
    pub prompt: String,
    /// Mailbox keys that the prompt showed, without the task's.
    pub consume: Vec<String>,
    /// Transcript entries of the events in the prompt.
    pub heard: Vec<CallerMessage>,
    /// Ids of the events in the prompt.
    pub events: Vec<crate::ids::EventId>,
    /// Loads that left the context because there was no room.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unpinned: Vec<String>,
    /// Time at which the turn began.
    #[serde(flatten)]
    pub start: ReplyStart,
    /// Version of the configuration of the turn.
    pub config_version: u64,
    /// Authority of the turn; a successor may do no more.
    #[serde(default, skip_serializing_if = "Authority::is_unlimited")]
    pub authority: Authority,
    /// Capabilities that allowed the reads for the prompt.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub used: Vec<Capability>,
    /// The goal that the turn worked on; 0 for the session's conversation.
    #[serde(default)]
    pub frame: u32,
    /// Reason why the task ends with this turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<FinalTurn>,
    /// Record of what the model saw.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ledger: Option<LedgerWrite>,
    /// The stable part that the session's next prompt continues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefix: Option<StablePrefix>,
    /// What the turn has used.
    #[serde(default)]
    pub spent: ModelUse,
    /// The models that were asked, if it was not only the agent's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<ModelCalls>,
    /// State of the run of a pipeline, in which the calls are noted: its manifest has decided them, and no model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pipeline: Option<Box<PipelineState>>,
}

impl RecordedReply {
    /// Removes the secrets that `hide` finds by an operation's path from the model's calls.
    pub fn hide_secrets(&mut self, hide: impl Fn(&str, &mut Value)) {
        let before = self.reply.calls.clone();
        for (said, planned) in self.reply.calls.iter_mut().zip(&self.calls) {
            match &mut said.arguments {
                Arguments::Malformed(text) => text.clear(),
                Arguments::Json(arguments) => {
                    // A call that runs another one may have become a call of it.
                    for runner in RUNNERS {
                        hide(runner, arguments);
                    }
                    match &planned.what {
                        Ok(ResolvedCall { target: ToolTarget::Operation(path), .. })
                            if RUNNERS.contains(&path.as_str()) => {}
                        Ok(ResolvedCall { target: ToolTarget::Operation(path), .. }) => hide(path, arguments),
                        // The name may be that of an operation that isn't offered.
                        Ok(_) | Err(_) => hide(&said.name.replacen('_', "/", 1), arguments),
                    }
                }
            }
        }
        // The reasoning may hold the hidden values as well.
        if self.reply.calls != before {
            self.reply.reasoning = None;
        }
    }

    /// Returns the reply as it is stored: without the secrets that `hide` finds in the model's calls and in the planned
    /// arguments.
    #[must_use]
    pub fn without_secrets(mut self, hide: impl Fn(&str, &mut Value)) -> Self {
        self.hide_secrets(&hide);
        for call in &mut self.calls {
            if let Ok(ResolvedCall { target: ToolTarget::Operation(path), arguments }) = &mut call.what {
                hide(path, arguments);
            }
        }
        self
    }
}
