//! The reply of a turn as it is recorded before its tools run.

use super::{Last, ModelCalls};
use crate::authority::{Authority, Capability};
use crate::call::{PlannedCall, ReplyStart, Resolved, ToolTarget};
use crate::chat::{Arguments, Reply};
use crate::context::record::LedgerWrite;
use crate::lattice::catalog::RUN;
use crate::prefix::StablePrefix;
use crate::session::Heard;
use crate::spend::Spent;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A reply as it is recorded before its tools run. A successor goes on from it: with this table,
/// whatever the configuration says by then.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Recorded {
    /// The task that it serves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<crate::ids::JobId>,
    /// What the model answered.
    pub reply: Reply,
    /// What each call is.
    pub calls: Vec<PlannedCall>,
    /// Hash of the prompt that it answers.
    pub prompt: String,
    /// Mailbox keys that the prompt showed, the task's excepted.
    pub consume: Vec<String>,
    /// What callers said in it.
    pub heard: Vec<Heard>,
    /// Ids of the events in it.
    pub events: Vec<crate::ids::EventId>,
    /// Loads that left the context for want of room.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unpinned: Vec<String>,
    /// When the turn began.
    #[serde(flatten)]
    pub start: ReplyStart,
    /// The configuration that it was made with.
    pub config_version: u64,
    /// What its turn was allowed to do; a successor may do no more.
    #[serde(default, skip_serializing_if = "Authority::is_unlimited")]
    pub authority: Authority,
    /// What its prompt was read by.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub used: Vec<Capability>,
    /// The goal that it worked on; 0 = the session's conversation.
    #[serde(default)]
    pub frame: u32,
    /// The task ends with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<Last>,
    /// The record of what the model saw.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ledger: Option<LedgerWrite>,
    /// What the session's next prompt keeps in its stable part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefix: Option<StablePrefix>,
    /// What its turn has used.
    #[serde(default)]
    pub spent: Spent,
    /// Which models were asked, where that was not the agent's own alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<ModelCalls>,
}

impl Recorded {
    /// Takes what `hide` finds by an operation's path out of what the model said.
    pub fn hide_said(&mut self, hide: impl Fn(&str, &mut Value)) {
        let before = self.reply.calls.clone();
        for (said, planned) in self.reply.calls.iter_mut().zip(&self.calls) {
            match &mut said.arguments {
                Arguments::Malformed(text) => text.clear(),
                Arguments::Json(arguments) => {
                    hide(RUN, arguments);
                    match &planned.what {
                        Ok(Resolved { target: ToolTarget::Operation(path), .. }) if path == RUN => {}
                        Ok(Resolved { target: ToolTarget::Operation(path), .. }) => hide(path, arguments),
                        // It may be the name of an operation that isn't offered.
                        Ok(_) | Err(_) => hide(&said.name.replacen('_', "/", 1), arguments),
                    }
                }
            }
        }
        // What is hidden may stand in the reasoning as well.
        if self.reply.calls != before {
            self.reply.reasoning = None;
        }
    }

    /// The reply without what `hide` finds in what the model said and in the arguments of calls, as it is stored.
    #[must_use]
    pub fn without_hidden(mut self, hide: impl Fn(&str, &mut Value)) -> Self {
        self.hide_said(&hide);
        for call in &mut self.calls {
            if let Ok(Resolved { target: ToolTarget::Operation(path), arguments }) = &mut call.what {
                hide(path, arguments);
            }
        }
        self
    }
}
