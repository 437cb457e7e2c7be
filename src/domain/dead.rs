//! Dead letters: tasks that killed too many workers, stored as they were sent; and messages with an unreadable subject.

use crate::event::Event;
use crate::ids::{JobId, Owner, SessionKey};
use crate::time::Millis;
use crate::unknown_fields::UnknownFields;
use serde::{Deserialize, Serialize};

/// A worker that died while it served a session, as its expired lease names it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Attempt {
    /// Name of the worker.
    pub worker: String,
    /// Epoch of its lease.
    pub epoch: u64,
    /// Number of the turn that it didn't commit.
    pub turn: u64,
    /// Time at which the lease expired; where a restart of an embedded store voided it, time of the next lease.
    pub lapsed: Millis,
    /// Job of the task that the worker served.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<JobId>,
}

/// Returns the error text for the caller of a task that killed its workers: how often, and the workers of the last
/// `attempts`.
pub fn crash_error(crashes: u32, attempts: &[&Attempt]) -> String {
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

/// A message in the queue whose subject names no owner, agent or kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UnreadableMessage {
    /// Subject that the message was published to.
    pub subject: String,
    /// Reason why the subject can't be read.
    pub reason: String,
    /// Owner of the message, as far as the subject names one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<Owner>,
    /// Id that the producer gave, if it gave one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Time of publication.
    pub received: Millis,
    /// Bytes of the body.
    pub bytes: usize,
    /// Beginning of the body.
    pub body: String,
    /// Subjects to which the error was sent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub told: Vec<String>,
}

/// A dead task. It is kept until it is redriven, and as long as its job after that.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeadLetter {
    /// Job of the task, `FAILED` with `DEAD`.
    pub job: JobId,
    /// Session that served the task.
    pub session: SessionKey,
    /// Task as it was sent.
    pub event: Event,
    /// Number of workers that died while they served it.
    pub crashes: u32,
    /// Last of those workers, the oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attempts: Vec<Attempt>,
    /// Time of the last failed attempt, after which the task is not retried.
    pub died: Millis,
    /// Error text that its caller got.
    pub error: String,
    /// Job of the redriven task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redriven: Option<JobId>,
    /// Fields that a newer build wrote.
    #[serde(flatten)]
    pub kept: UnknownFields,
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
            assert_eq!(crash_error(crashes, &attempts), expected);
        }
    }
}
