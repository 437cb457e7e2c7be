//! Answers of people: their forms, whether one fits, and what becomes of a call.

use super::{Question, QuestionKind};
use crate::call::{Outcome, PlannedCall};
use crate::ids::JobId;
use crate::ids::secret::SecretName;
use crate::secret::reference;
use crate::time::Millis;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// What was answered, by whom.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// Who; the venue, when time ran out.
    pub by: String,
    /// When.
    pub at: Millis,
    /// What.
    #[serde(flatten)]
    pub verdict: Verdict,
}

/// Body of an answer in the queue.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AnswerBody {
    /// The approval.
    pub approval: JobId,
    /// What the answer is about, as it was shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// The answer, of a person.
    pub answer: GivenAnswer,
}

/// What a person can answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum GivenAnswer {
    /// The call is made.
    Approve {
        /// With these arguments instead.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        arguments: Option<Value>,
        /// With no other sections than these.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        scopes: Option<Vec<String>>,
    },
    /// It is not.
    Reject {
        /// Why.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// The questions are answered, by their names.
    Answers(Map<String, Value>),
}

impl From<GivenAnswer> for Verdict {
    fn from(given: GivenAnswer) -> Self {
        match given {
            GivenAnswer::Approve { arguments, scopes } => Self::Approved { arguments, scopes },
            GivenAnswer::Reject { reason } => Self::Rejected { reason },
            GivenAnswer::Answers(answers) => Self::Answered { answers },
        }
    }
}

/// What was answered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "verdict", rename_all = "camelCase")]
pub enum Verdict {
    /// The call is made.
    Approved {
        /// With these arguments instead.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        arguments: Option<Value>,
        /// With no other sections than these.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        scopes: Option<Vec<String>>,
    },
    /// It is not.
    Rejected {
        /// Why.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// The questions are answered.
    Answered {
        /// By the names of the questions.
        answers: Map<String, Value>,
    },
    /// Nobody answered in time.
    Expired,
    /// What it was asked for has ended.
    Withdrawn,
}

/// How a call was decided on, for those who look at its turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DecidedCall {
    /// The approval.
    pub approval: JobId,
    /// `approved`, `rejected`, `answered`, `expired` or `withdrawn`.
    pub how: String,
    /// Name of the caller who answered; the venue's when time ran out.
    pub by: String,
    /// Time of the answer.
    pub at: Millis,
}

impl Verdict {
    /// Its word in records.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Approved { .. } => "approved",
            Self::Rejected { .. } => "rejected",
            Self::Answered { .. } => "answered",
            Self::Expired => "expired",
            Self::Withdrawn => "withdrawn",
        }
    }
}

/// What becomes of a call that was answered.
#[derive(Debug, Clone, PartialEq)]
pub enum Ruling {
    /// It is made.
    Make {
        /// As it was approved.
        planned: Box<PlannedCall>,
        /// What the model is told with its result.
        note: Option<String>,
    },
    /// It is not, and the model gets this in its place.
    Say(Outcome, String),
}

impl Answer {
    /// The record of it beside the call.
    pub fn to_record(&self, approval: &JobId) -> DecidedCall {
        let (how, by) = (self.verdict.as_str().to_owned(), self.by.clone());
        DecidedCall { approval: approval.clone(), how, by, at: self.at }
    }

    /// What becomes of a call that was answered so.
    pub fn ruling(&self, planned: &PlannedCall) -> Ruling {
        match &self.verdict {
            Verdict::Approved { arguments, scopes } => {
                let mut planned = planned.clone();
                let mut shown = arguments.clone().unwrap_or_default();
                if let (Some(edited), Ok(resolved)) = (arguments, &mut planned.what) {
                    resolved.arguments.clone_from(edited);
                    // The model never sees what the runtime fills in, nor does it here.
                    planned.injection.strip(&mut shown);
                }
                if let Some(kept) = scopes {
                    planned.scoped.retain(|section| kept.contains(&section.key));
                }
                let edited = arguments.as_ref().map(|_| format!("with other arguments: {shown}"));
                let narrowed = scopes.as_ref().map(|kept| format!("with no more of your context than {kept:?}"));
                let changes: Vec<_> = edited.into_iter().chain(narrowed).collect();
                let note = format!("approved by {} {}", self.by, changes.join(", and "));
                Ruling::Make { planned: Box::new(planned), note: Some(note).filter(|_| !changes.is_empty()) }
            }
            Verdict::Rejected { reason } => {
                let reason = reason.as_deref().map(|reason| format!(": {reason}")).unwrap_or_default();
                let text = format!(
                    "rejected by {}{reason}. The call was not made; the same call will be rejected again.",
                    self.by
                );
                Ruling::Say(Outcome::Rejected, text)
            }
            Verdict::Answered { answers } => Ruling::Say(Outcome::Ok, Value::Object(answers.clone()).to_string()),
            Verdict::Expired => {
                Ruling::Say(Outcome::Rejected, "not made: nobody approved it in time. Go on without it.".into())
            }
            Verdict::Withdrawn => Ruling::Say(Outcome::Cancelled, "cancelled: the task was cancelled".into()),
        }
    }
}

/// Why an answer doesn't fit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AnswerError {
    /// Questions can't be approved, calls not answered.
    #[error("approval `{id}` {is}: {use_instead}")]
    Kind {
        /// Which.
        id: JobId,
        /// What it is.
        is: &'static str,
        /// What to do instead.
        use_instead: &'static str,
    },
    /// The digest is of something else.
    #[error("approval `{id}` has the digest `{actual}`, got `{given}`: what was shown is something else; look again")]
    Digest {
        /// Which.
        id: JobId,
        /// Its own.
        actual: String,
        /// As named.
        given: String,
    },
    /// A section that doesn't go with the call.
    #[error("section `{key}` doesn't go with this call, {known}; an approval can only narrow")]
    Scope {
        /// As named.
        key: String,
        /// What there is.
        known: String,
    },
    /// An argument that is not the model's, nor the approver's.
    #[error("argument `{name}` is filled in by the venue, and an approval can't change it: leave it out, or as it is")]
    Fixed {
        /// Which; of a reference to a secret, where it stands.
        name: String,
    },
    /// An answer is missing, unknown or of the wrong kind.
    #[error("question `{id}`: {rule}")]
    Question {
        /// Which.
        id: String,
        /// What is wrong.
        rule: String,
    },
}

/// An argument that edited ones change although only the runtime gives it: one of `fixed`, or a reference
/// to a secret.
pub(super) fn changed(original: &Value, edited: &Value, fixed: &[String]) -> Option<String> {
    let differs =
        |name: &&String| edited.get(name.as_str()).is_some_and(|value| Some(value) != original.get(name.as_str()));
    let (before, after) = (reference::standing(original), reference::standing(edited));
    let is_fixed = |place: &str| fixed.iter().any(|name| place.split('/').nth(1) == Some(name));
    let lost = before.iter().find(|(place, known)| after.get(*place) != Some(known) && !is_fixed(place));
    let new = after.keys().find(|place| !before.contains_key(*place));
    fixed.iter().find(differs).or(lost.map(|(place, _)| place)).or(new).cloned()
}

pub(super) fn check_answers(asks: &[Question], answers: &Map<String, Value>) -> Result<(), AnswerError> {
    let wrong = |id: &str, rule: String| Err(AnswerError::Question { id: id.to_owned(), rule });
    if let Some(id) = answers.keys().find(|id| !asks.iter().any(|ask| ask.id == **id)) {
        let known: Vec<_> = asks.iter().map(|ask| format!("`{}`", ask.id)).collect();
        return wrong(id, format!("was not asked, expected {}", known.join(", ")));
    }
    for ask in asks {
        let answer = answers.get(&ask.id).unwrap_or(&Value::Null);
        let may_be_missing = ask.required == Some(false) && answer.is_null();
        if !may_be_missing && !fits(ask, answer) {
            let got = match (ask.kind, answer) {
                (_, Value::Null) => "nothing".to_owned(),
                // It may be the value of a secret.
                (QuestionKind::Token, _) => "something else".to_owned(),
                _ => format!("`{answer}`"),
            };
            return wrong(&ask.id, format!("expected {}, got {got}", expected(ask)));
        }
    }
    Ok(())
}

/// Whether an answer is one to this question.
fn fits(ask: &Question, answer: &Value) -> bool {
    let is_choice = |answer: &Value| answer.as_str().is_some_and(|chosen| ask.choices.iter().any(|c| c == chosen));
    match ask.kind {
        QuestionKind::Text => answer.is_string(),
        QuestionKind::Choice => is_choice(answer),
        QuestionKind::Checkboxes => answer.as_array().is_some_and(|chosen| chosen.iter().all(is_choice)),
        QuestionKind::Approval => answer.is_boolean(),
        QuestionKind::Token => answer.as_str().is_some_and(|path| SecretName::of_path(path).is_ok()),
    }
}

/// What an answer to this question is.
fn expected(ask: &Question) -> String {
    match ask.kind {
        QuestionKind::Text => "a text".to_owned(),
        QuestionKind::Choice => format!("one of {}", ask.choices.join(", ")),
        QuestionKind::Checkboxes => format!("a list of any of {}", ask.choices.join(", ")),
        QuestionKind::Approval => "true or false".to_owned(),
        QuestionKind::Token => {
            "`s/NAME`, a secret that was set with the token as its value (`trellis secret set`)".to_owned()
        }
    }
}

/// Checks the questions of `human/ask`.
pub fn check_questions(asks: &[Question]) -> Result<(), String> {
    for (at, ask) in asks.iter().enumerate() {
        if ask.id.is_empty() {
            return Err(format!("`asks[{at}].id`: expected a name, got an empty text"));
        }
        if asks[..at].iter().any(|other| other.id == ask.id) {
            return Err(format!("`asks[{at}].id`: `{}` is taken by another question", ask.id));
        }
        let has_choices = matches!(ask.kind, QuestionKind::Choice | QuestionKind::Checkboxes);
        if has_choices == ask.choices.is_empty() {
            let rule = if ask.choices.is_empty() {
                "expected at least one"
            } else {
                "are for the types `choice` and `checkboxes`"
            };
            return Err(format!("`asks[{at}].choices`: {rule}"));
        }
    }
    Ok(())
}
