//! Dead letters: tasks that killed too many workers, as they were sent.

use crate::domain::event::Event;
use crate::domain::ids::{JobId, SessionKey};
use crate::domain::time::Millis;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// A dead task. It is kept until it is driven again, and as long as its job after that.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeadLetter {
    /// Its job, `FAILED` with `DEAD`.
    pub job: JobId,
    /// Where it was served.
    pub session: SessionKey,
    /// As it was sent.
    pub event: Event,
    /// Workers that died while they served it.
    pub crashes: u32,
    /// When it was given up.
    pub died: Millis,
    /// What its caller was told.
    pub error: String,
    /// The job that it was driven again as.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redriven: Option<JobId>,
}

impl DeadLetter {
    /// As callers see it; `input` with the task's input.
    pub fn to_json(&self, input: bool) -> Value {
        let mut shown = json!({
            "job": self.job, "agent": self.session.agent, "session": self.session.session,
            "crashes": self.crashes, "received": self.event.received, "died": self.died, "error": self.error,
        });
        if let Some(caller) = &self.event.caller {
            shown["caller"] = caller.clone().into();
        }
        if let Some(job) = &self.redriven {
            shown["redriven"] = job.as_str().into();
        }
        if input && let crate::domain::event::Payload::Task { input, .. } = &self.event.payload {
            shown["input"] = input.clone();
        }
        shown
    }
}
