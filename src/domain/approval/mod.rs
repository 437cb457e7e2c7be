//! Calls that wait for a person: what is asked, who answered what, and what comes of it.
//!
//! The id of an approval is made from everything that is shown with it: whoever answers it answers
//! for exactly that. Other arguments are another approval.

mod answer;
#[cfg(test)]
mod tests;

use crate::authority::Authority;
use crate::call::PlannedCall;
use crate::ids::{EventId, IdOf, JobId, Owner, SessionKey, sha256_hex};
use crate::kept::KeptKeys;
use crate::time::Millis;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

pub use answer::{Answer, AnswerBody, AnswerError, DecidedCall, GivenAnswer, Ruling, Verdict, check_questions};

/// What a person is asked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Approval {
    /// Its name: a function of everything below but the times and the answer.
    pub id: JobId,
    /// The task in whose service it is asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<JobId>,
    /// The session that waits.
    #[serde(flatten)]
    pub session: SessionKey,
    /// The turn whose reply has the call.
    pub turn: u64,
    /// The place of the call in it.
    pub index: u32,
    /// The name that the model used.
    pub tool: String,
    /// What is asked.
    #[serde(flatten)]
    pub subject: ApprovalSubject,
    /// SHA-256 of what is asked.
    pub digest: String,
    /// When it was asked.
    pub asked: Millis,
    /// Unanswered by then, it is denied.
    pub expires: Millis,
    /// What the turn may do that asks: who may not, and may not answer, doesn't see what is asked.
    #[serde(default, skip_serializing_if = "Authority::is_unlimited")]
    pub under: Authority,
    /// How it was answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<Answer>,
    /// Of a newer build.
    #[serde(flatten)]
    pub kept: KeptKeys,
}

/// What a person is asked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ApprovalSubject {
    /// Whether a call may be made.
    Call {
        /// The operation, whatever name it was called by; of a delegate `g/<agent>` or its tool.
        operation: String,
        /// The final arguments, with those that the runtime fills in; no value of a secret is in them.
        arguments: Value,
        /// Those that the runtime fills in: no answer changes them.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        fixed: Vec<String>,
        /// Sections of the caller's context that go with it.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        scopes: Vec<CallSection>,
    },
    /// Questions of the agent's own.
    Questions {
        /// What they are about.
        title: String,
        /// One answer each.
        asks: Vec<Question>,
    },
}

/// A section that goes with a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallSection {
    /// Its key, e.g. `context/plan`.
    pub key: String,
    /// SHA-256 of its content.
    pub digest: String,
    /// Bytes of it.
    pub bytes: usize,
}

/// One question of `human/ask`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Question {
    /// Its name in the answers.
    pub id: String,
    /// What kind of answer it takes.
    #[serde(rename = "type")]
    pub kind: QuestionKind,
    /// The question.
    pub prompt: String,
    /// Of the kinds `choice` and `checkboxes`: what can be chosen.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub choices: Vec<String>,
    /// false: it may be left unanswered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub required: Option<bool>,
}

/// Kind of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum QuestionKind {
    /// Any text.
    Text,
    /// One of the choices.
    Choice,
    /// Any of the choices.
    Checkboxes,
    /// Yes or no.
    Approval,
    /// The name of a secret that holds it, `s/NAME`: no answer holds a value.
    Token,
}

/// What tells one call of a session's life from every other.
#[derive(Debug, Clone, Copy)]
pub struct CallPlace<'a> {
    /// Whose.
    pub owner: &'a Owner,
    /// The session.
    pub session: &'a SessionKey,
    /// The turn of the reply.
    pub turn: u64,
    /// The place of the call in it.
    pub call: u32,
    /// When that turn began; `None` where its reply was recorded by a build that left it out.
    pub start: Option<Millis>,
}

impl ApprovalSubject {
    /// SHA-256 of what is asked, at its place.
    pub fn digest(&self, place: CallPlace<'_>) -> String {
        let CallPlace { owner, session, turn, call, start } = place;
        let mut said = match start {
            Some(start) => json!(["approval", owner.token(), session.token(), turn, call, self, start]),
            None => json!(["approval", owner.token(), session.token(), turn, call, self]),
        };
        said.sort_all_objects();
        sha256_hex(said.to_string().as_bytes())
    }
}

impl Approval {
    /// What is asked at a place, until `expires`.
    pub fn new(
        key: &[u8],
        place: CallPlace<'_>,
        tool: &str,
        subject: ApprovalSubject,
        asked: Millis,
        expires: Millis,
    ) -> Self {
        let digest = subject.digest(place);
        let name = EventId::of_venue(key, IdOf::Approval(&digest));
        Self {
            id: JobId::derive(key, place.owner, &name),
            job: None,
            session: place.session.clone(),
            turn: place.turn,
            index: place.call,
            tool: tool.to_owned(),
            subject,
            digest,
            asked,
            expires,
            under: Authority::unlimited(),
            answer: None,
            kept: KeptKeys::default(),
        }
    }

    /// Whether an answer fits what is asked; `digest` is what the answer is about, where it says so.
    pub fn accepts(&self, verdict: &Verdict, digest: Option<&str>) -> Result<(), AnswerError> {
        if let Some(given) = digest.filter(|given| *given != self.digest) {
            let given = given.to_owned();
            return Err(AnswerError::Digest { id: self.id.clone(), actual: self.digest.clone(), given });
        }
        let kind = |is, use_instead| Err(AnswerError::Kind { id: self.id.clone(), is, use_instead });
        match (&self.subject, verdict) {
            (ApprovalSubject::Call { .. }, Verdict::Answered { .. }) => kind("is a call", "approve or reject it"),
            (ApprovalSubject::Questions { .. }, Verdict::Approved { .. }) => {
                kind("has questions", "answer or reject it")
            }
            (ApprovalSubject::Call { arguments, fixed, .. }, Verdict::Approved { arguments: Some(edited), .. })
                if let Some(name) = answer::changed(arguments, edited, fixed) =>
            {
                Err(AnswerError::Fixed { name })
            }
            (ApprovalSubject::Call { scopes, .. }, Verdict::Approved { scopes: Some(kept), .. }) => {
                let unknown = kept.iter().find(|key| !scopes.iter().any(|scope| scope.key == **key));
                unknown.map_or(Ok(()), |key| {
                    let known: Vec<_> = scopes.iter().map(|scope| format!("`{}`", scope.key)).collect();
                    let known = if known.is_empty() {
                        "nothing goes with it".to_owned()
                    } else {
                        format!("expected some of {}", known.join(", "))
                    };
                    Err(AnswerError::Scope { key: key.clone(), known })
                })
            }
            (ApprovalSubject::Questions { asks, .. }, Verdict::Answered { answers }) => {
                answer::check_answers(asks, answers)
            }
            (
                ApprovalSubject::Call { .. } | ApprovalSubject::Questions { .. },
                Verdict::Approved { .. } | Verdict::Rejected { .. } | Verdict::Expired | Verdict::Withdrawn,
            ) => Ok(()),
        }
    }
}

/// Calls of one reply that wait for a person, as the session remembers them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Awaiting {
    /// The turn whose reply they are of.
    pub turn: u64,
    /// The task that it served.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<JobId>,
    /// What that turn was allowed to do: they may do no more.
    #[serde(default, skip_serializing_if = "crate::authority::Authority::is_unlimited")]
    pub authority: crate::authority::Authority,
    /// Every other call of the reply is still running elsewhere.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub all_started: bool,
    /// Those that nobody has answered yet.
    pub calls: Vec<AwaitingCall>,
}

/// A call that waits for a person.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AwaitingCall {
    /// Its approval.
    pub approval: JobId,
    /// Its place in the reply.
    pub call: u32,
    /// Denied then.
    pub expires: Millis,
    /// What is done when it is approved.
    pub planned: PlannedCall,
}

impl Awaiting {
    /// When the first of them expires.
    pub fn until(&self) -> Millis {
        self.calls.iter().map(|call| call.expires).min().unwrap_or_default()
    }

    /// Whether one of them waits for this approval.
    pub fn awaits(&self, approval: &JobId) -> bool {
        self.calls.iter().any(|call| call.approval == *approval)
    }
}
