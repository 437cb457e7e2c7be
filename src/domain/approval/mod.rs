//! Approvals: questions to a person that calls wait for, the answers, and their effect.
//!
//! The id of an approval is made from everything that is shown with it, so that an answer holds for exactly that. Other
//! arguments make another approval.

mod answer;
#[cfg(test)]
mod tests;

use crate::authority::Authority;
use crate::call::PlannedCall;
use crate::ids::secret::SecretName;
use crate::ids::{EventId, JobId, Owner, SessionKey, VenueIdSubject, sha256_hex};
use crate::time::Millis;
use crate::unknown_fields::UnknownFields;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

pub use answer::{
    AnswerBody, AnswerError, ApprovalAnswer, ApprovalVerdict, DecidedCall, GivenAnswer, QuestionsError, Ruling,
    check_questions, with_fixed,
};

/// A question to a person, with its answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Approval {
    /// Id: a function of everything below but the times and the answer.
    pub id: JobId,
    /// Task that the asking turn serves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<JobId>,
    /// Session that waits.
    #[serde(flatten)]
    pub session: SessionKey,
    /// Number of the turn whose reply has the call.
    pub turn: u64,
    /// Position of the call in that reply, from 0.
    pub index: u32,
    /// Name by which the model called the tool.
    pub tool: String,
    /// Subject of the question.
    #[serde(flatten)]
    pub subject: ApprovalSubject,
    /// SHA-256 of the subject at its place, in hexadecimal digits.
    pub digest: String,
    /// Time of the question.
    pub asked: Millis,
    /// Time after which an unanswered approval counts as denied.
    pub expires: Millis,
    /// Authority of the asking turn: who holds less and may not answer doesn't see the subject.
    #[serde(default, skip_serializing_if = "Authority::is_unlimited")]
    pub under: Authority,
    /// Answer of a person, once there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<ApprovalAnswer>,
    /// Fields that a newer build wrote.
    #[serde(flatten)]
    pub kept: UnknownFields,
}

/// Subject of a question to a person.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ApprovalSubject {
    /// A planned call, which a person approves or rejects.
    Call {
        /// Path of the operation, by whatever name it was called; of a delegate `g/<agent>`, or the tool's name where
        /// the delegate is anonymous.
        operation: String,
        /// Final arguments, with those that the runtime fills in; no value of a secret is in them.
        arguments: Value,
        /// Names of the arguments that the runtime fills in: no answer changes them.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        fixed: Vec<String>,
        /// Sections of the caller's context that go with the call.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        scopes: Vec<CallSection>,
    },
    /// Questions of the agent's own.
    Questions {
        /// Title that says what they are about.
        title: String,
        /// The questions, each with one answer.
        asks: Vec<Question>,
    },
}

/// A section of the caller's context that goes with a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CallSection {
    /// Key of the section, e.g. `context/plan`.
    pub key: String,
    /// SHA-256 of the content, in hexadecimal digits.
    pub digest: String,
    /// Size of the content in bytes.
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
    /// Text of the question.
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
    /// Text of any form.
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

impl QuestionKind {
    /// Returns the word that questions have for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Choice => "choice",
            Self::Checkboxes => "checkboxes",
            Self::Approval => "approval",
            Self::Token => "token",
        }
    }
}

/// Position of a call, which tells it from every other call of a session.
#[derive(Debug, Clone, Copy)]
pub struct CallPlace<'a> {
    /// Owner of the session.
    pub owner: &'a Owner,
    /// Session of the call.
    pub session: &'a SessionKey,
    /// Turn of the reply.
    pub turn: u64,
    /// Position of the call in the reply.
    pub call: u32,
    /// Time at which that turn began; `None` where its reply was recorded by a build that left it out.
    pub start: Option<Millis>,
}

impl ApprovalSubject {
    /// Returns the SHA-256 of the subject at its place, in hexadecimal digits.
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
    /// Makes the approval of a subject at a place, unanswered, until `expires`.
    pub fn new(
        key: &[u8],
        place: CallPlace<'_>,
        tool: &str,
        subject: ApprovalSubject,
        asked: Millis,
        expires: Millis,
    ) -> Self {
        let digest = subject.digest(place);
        let name = EventId::of_venue(key, VenueIdSubject::Approval(&digest));
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
            under: Authority::without_limits(),
            answer: None,
            kept: UnknownFields::default(),
        }
    }

    /// Checks that an answer fits the subject. `digest` is what the answer says it is about, if it says so.
    pub fn accepts(&self, verdict: &ApprovalVerdict, digest: Option<&str>) -> Result<(), AnswerError> {
        if let Some(given) = digest.filter(|given| *given != self.digest) {
            let given = given.to_owned();
            return Err(AnswerError::Digest { id: self.id.clone(), actual: self.digest.clone(), given });
        }
        let kind = |is, use_instead| Err(AnswerError::Kind { id: self.id.clone(), is, use_instead });
        match (&self.subject, verdict) {
            (ApprovalSubject::Call { .. }, ApprovalVerdict::Answered { .. }) => {
                kind("is a call", "approve or reject it")
            }
            (ApprovalSubject::Questions { .. }, ApprovalVerdict::Approved { .. }) => {
                kind("has questions", "answer or reject it")
            }
            (
                ApprovalSubject::Call { arguments, fixed, .. },
                ApprovalVerdict::Approved { arguments: Some(edited), .. },
            ) if let Err(error) = answer::check_edit(arguments, edited, fixed) => Err(error),
            (ApprovalSubject::Call { scopes, .. }, ApprovalVerdict::Approved { scopes: Some(kept), .. }) => {
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
            (ApprovalSubject::Questions { asks, .. }, ApprovalVerdict::Answered { answers }) => {
                answer::check_answers(asks, answers)
            }
            (
                ApprovalSubject::Call { .. } | ApprovalSubject::Questions { .. },
                ApprovalVerdict::Approved { .. }
                | ApprovalVerdict::Rejected { .. }
                | ApprovalVerdict::Expired
                | ApprovalVerdict::Withdrawn,
            ) => Ok(()),
        }
    }
}

impl Approval {
    /// The secrets that an answer names, each with its question.
    pub fn tokens<'a>(&'a self, verdict: &'a ApprovalVerdict) -> impl Iterator<Item = (&'a str, SecretName)> {
        let (asks, answers) = match (&self.subject, verdict) {
            (ApprovalSubject::Questions { asks, .. }, ApprovalVerdict::Answered { answers }) => {
                (asks.as_slice(), Some(answers))
            }
            (
                ApprovalSubject::Call { .. } | ApprovalSubject::Questions { .. },
                ApprovalVerdict::Approved { .. }
                | ApprovalVerdict::Rejected { .. }
                | ApprovalVerdict::Answered { .. }
                | ApprovalVerdict::Expired
                | ApprovalVerdict::Withdrawn,
            ) => (&[][..], None),
        };
        let tokens = asks.iter().filter(|ask| ask.kind == QuestionKind::Token);
        tokens.filter_map(move |ask| {
            let named = answers?.get(&ask.id)?.as_str()?;
            Some((ask.id.as_str(), SecretName::from_path(named).ok()?))
        })
    }
}

/// Calls of one reply that wait for a person, as the session remembers them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AwaitingCalls {
    /// Turn whose reply holds the calls.
    pub turn: u64,
    /// Task that the turn served.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<JobId>,
    /// Authority of that turn: the calls may do no more.
    #[serde(default, skip_serializing_if = "crate::authority::Authority::is_unlimited")]
    pub authority: crate::authority::Authority,
    /// Whether every other call of the reply is still running elsewhere.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub all_started: bool,
    /// Calls without an answer.
    pub calls: Vec<AwaitingCall>,
}

/// A call that waits for a person.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AwaitingCall {
    /// Id of its approval.
    pub approval: JobId,
    /// Position of the call in the reply.
    pub call: u32,
    /// Time at which an unanswered call counts as denied.
    pub expires: Millis,
    /// Call that is made when it is approved.
    pub planned: PlannedCall,
}

impl AwaitingCalls {
    /// Returns when the first of the calls expires.
    pub fn first_expiry(&self) -> Millis {
        self.calls.iter().map(|call| call.expires).min().unwrap_or_default()
    }

    /// Whether one of the calls waits for this approval.
    pub fn awaits(&self, approval: &JobId) -> bool {
        self.calls.iter().any(|call| call.approval == *approval)
    }
}
