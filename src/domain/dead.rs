//! Dead letters: tasks that killed too many workers, as they were sent; and messages for nobody.

use crate::event::Event;
use crate::ids::{JobId, Owner, SessionKey};
use crate::kept::KeptKeys;
use crate::time::Millis;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// A worker that died while it served a session: what its lease says, which lapsed unreleased.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Attempt {
    /// Its name.
    pub worker: String,
    /// Number of its lease.
    pub epoch: u64,
    /// Number of the turn that it didn't commit.
    pub turn: u64,
    /// When its lease lapsed; of one that a restart of an embedded store made void, when the next was
    /// granted.
    pub lapsed: Millis,
    /// Job of the task that it served.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<JobId>,
}

/// What the caller of a task is told that so many workers died of: how often, and the last `attempts`.
pub fn verdict(crashes: u32, attempts: &[&Attempt]) -> String {
    let mut text = format!("its worker died {crashes} times while serving it");
    let forgotten = attempts.len() < crashes as usize;
    for (nth, attempt) in attempts.iter().enumerate() {
        text.push_str(match nth {
            0 if forgotten => ": …, `",
            0 => ": `",
            _ => ", `",
        });
        text.push_str(&attempt.worker);
        text.push('`');
    }
    text
}

/// A message that the queue took although its subject names no owner, agent or kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Stray {
    /// As it was published to.
    pub subject: String,
    /// What is wrong with it.
    pub reason: String,
    /// Whose it is, as far as that can be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<Owner>,
    /// The producer's id, when it gave one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// When it was published.
    pub received: Millis,
    /// Bytes of its body.
    pub bytes: usize,
    /// The beginning of its body.
    pub body: String,
    /// Where its sender was told.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub told: Vec<String>,
}

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
    /// The last of those, the oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attempts: Vec<Attempt>,
    /// When it was given up.
    pub died: Millis,
    /// What its caller was told.
    pub error: String,
    /// The job that it was driven again as.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redriven: Option<JobId>,
    /// Of a newer build.
    #[serde(flatten)]
    pub kept: KeptKeys,
}

impl DeadLetter {
    /// As callers see it; `input` with the task's input.
    pub fn to_json(&self, input: bool) -> Value {
        let mut shown = json!({
            "job": self.job, "agent": self.session.agent, "session": self.session.session,
            "crashes": self.crashes, "received": self.event.received, "died": self.died, "error": self.error,
        });
        let attempts = self.attempts.iter().map(|Attempt { worker, epoch, turn, lapsed, job: _ }| {
            json!({"worker": worker, "epoch": epoch, "turn": turn, "lapsed": lapsed})
        });
        shown["attempts"] = attempts.collect();
        if let Some(caller) = &self.event.caller {
            shown["caller"] = caller.clone().into();
        }
        if let Some(job) = &self.redriven {
            shown["redriven"] = job.as_str().into();
        }
        if input && let crate::event::Payload::Task { input, .. } = &self.event.payload {
            shown["input"] = input.clone();
        }
        shown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_caller_is_told_which_workers_died() {
        let of = |worker: &str| Attempt { worker: worker.into(), epoch: 1, turn: 1, lapsed: Millis(1), job: None };
        let (a, b) = (of("a"), of("b"));
        for (crashes, attempts, expected) in [
            (2, vec![], "its worker died 2 times while serving it"),
            (1, vec![&a], "its worker died 1 times while serving it: `a`"),
            (2, vec![&a, &b], "its worker died 2 times while serving it: `a`, `b`"),
            (9, vec![&a, &b], "its worker died 9 times while serving it: …, `a`, `b`"),
        ] {
            assert_eq!(verdict(crashes, &attempts), expected);
        }
    }
}
