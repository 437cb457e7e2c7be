//! Answers of people: their forms, the checks of an answer, and its effect on a call.

use super::{AnswerRule, Question, QuestionKind};
use crate::call::{Outcome, PlannedCall};
use crate::ids::JobId;
use crate::ids::secret::SecretName;
use crate::secret::reference;
use crate::time::Millis;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// The answer to an approval, with its author and its time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ApprovalAnswer {
    /// Name of the person; the venue's when time ran out.
    pub by: String,
    /// Time of the answer.
    pub at: Millis,
    /// The answer itself.
    #[serde(flatten)]
    pub verdict: ApprovalVerdict,
}

/// Body of an answer in the queue.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AnswerBody {
    /// Id of the approval.
    pub approval: JobId,
    /// Digest of the subject as it was shown, if the answer names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// Answer of the person.
    pub answer: GivenAnswer,
}

/// Answers that a person can give.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum GivenAnswer {
    /// The call is made.
    Approve {
        /// Arguments that replace those of the model.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        arguments: Option<Value>,
        /// Keys of the sections that still go with the call.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        scopes: Option<Vec<String>>,
    },
    /// The call is not made.
    Reject {
        /// Reason that the model gets.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// The questions are answered, by their names.
    Answers(Map<String, Value>),
}

impl From<GivenAnswer> for ApprovalVerdict {
    fn from(given: GivenAnswer) -> Self {
        match given {
            GivenAnswer::Approve { arguments, scopes } => Self::Approved { arguments, scopes },
            GivenAnswer::Reject { reason } => Self::Rejected { reason },
            GivenAnswer::Answers(answers) => Self::Answered { answers },
        }
    }
}

/// Answers that end an approval, those of the venue included.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "verdict", rename_all = "camelCase")]
pub enum ApprovalVerdict {
    /// The call is made.
    Approved {
        /// Arguments that replace those of the model.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        arguments: Option<Value>,
        /// Keys of the sections that still go with the call.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        scopes: Option<Vec<String>>,
    },
    /// The call is not made.
    Rejected {
        /// Reason that the model gets.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// The questions are answered.
    Answered {
        /// Answers by the names of the questions.
        answers: Map<String, Value>,
    },
    /// Nobody answered in time.
    Expired,
    /// The task that the approval belongs to has ended.
    Withdrawn,
}

/// Decision on a call, as readers of its turn see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DecidedCall {
    /// Id of the approval.
    pub approval: JobId,
    /// `approved`, `rejected`, `answered`, `expired` or `withdrawn`.
    pub how: String,
    /// Name of the caller who answered; the venue's when time ran out.
    pub by: String,
    /// Time of the answer.
    #[schemars(with = "u64")]
    pub at: Millis,
}

impl ApprovalVerdict {
    /// Returns the word that records have for it.
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

/// Effect of an answer on its call.
#[derive(Debug, Clone, PartialEq)]
pub enum Ruling {
    /// The call is made.
    Make {
        /// The call as it was approved.
        planned: Box<PlannedCall>,
        /// Text that the model gets with the result.
        note: Option<String>,
    },
    /// The call is not made; the model gets this outcome and text in its place.
    Say(Outcome, String),
}

impl ApprovalAnswer {
    /// Returns the decision for the records of the call's turn.
    pub fn to_record(&self, approval: &JobId) -> DecidedCall {
        let (how, by) = (self.verdict.as_str().to_owned(), self.by.clone());
        DecidedCall { approval: approval.clone(), how, by, at: self.at }
    }

    /// Returns the effect of this answer on the planned call.
    pub fn ruling(&self, planned: &PlannedCall) -> Ruling {
        match &self.verdict {
            ApprovalVerdict::Approved { arguments, scopes } => {
                let mut planned = planned.clone();
                let mut shown = arguments.clone().unwrap_or_default();
                if let (Some(edited), Ok(resolved)) = (arguments, &mut planned.what) {
                    resolved.arguments.clone_from(edited);
                    // The model never sees arguments that the runtime fills in, nor does it see them here.
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
            ApprovalVerdict::Rejected { reason } => {
                let reason = reason.as_deref().map(|reason| format!(": {reason}")).unwrap_or_default();
                let text = format!(
                    "rejected by {}{reason}. The call was not made; the same call will be rejected again.",
                    self.by
                );
                Ruling::Say(Outcome::Rejected, text)
            }
            ApprovalVerdict::Answered { answers } => {
                Ruling::Say(Outcome::Ok, Value::Object(answers.clone()).to_string())
            }
            ApprovalVerdict::Expired => {
                Ruling::Say(Outcome::Rejected, "not made: nobody approved it in time. Go on without it.".into())
            }
            ApprovalVerdict::Withdrawn => Ruling::Say(Outcome::Cancelled, "cancelled: the task was cancelled".into()),
        }
    }
}

/// An answer that doesn't fit its approval.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AnswerError {
    /// Questions can't be approved, and calls can't be answered.
    #[error("approval `{id}` {is}: {use_instead}")]
    Kind {
        /// Id of the approval.
        id: JobId,
        /// Kind of the approval, in words.
        is: &'static str,
        /// Advice to the caller.
        use_instead: &'static str,
    },
    /// The digest belongs to another subject.
    #[error("approval `{id}` has the digest `{actual}`, got `{given}`: what was shown is something else; look again")]
    Digest {
        /// Id of the approval.
        id: JobId,
        /// Digest of the approval.
        actual: String,
        /// Digest that the answer named.
        given: String,
    },
    /// The section doesn't go with the call.
    #[error("section `{key}` doesn't go with this call, {known}; an approval can only narrow")]
    Scope {
        /// Key that the answer named.
        key: String,
        /// Keys that go with the call, in words.
        known: String,
    },
    /// The argument is given by the runtime, neither by the model nor by the approver.
    #[error("argument `{name}` is filled in by the venue, and an approval can't change it: leave it out, or as it is")]
    Fixed {
        /// Name of the argument.
        name: String,
    },
    /// The edit changes, drops or adds a reference to a secret.
    #[error("argument `{place}` {rule}")]
    Secret {
        /// JSON pointer to the reference in the arguments.
        place: String,
        /// Rule that the edit breaks, in words.
        rule: &'static str,
    },
    /// An answer is missing, unknown or of the wrong kind.
    #[error("question `{id}`: {rule}")]
    Question {
        /// Id of the question.
        id: String,
        /// Rule that the answer breaks.
        rule: String,
    },
}

/// Refuses edited arguments that change what only the runtime gives, one of `fixed`, or a reference to a secret.
pub(super) fn check_edit(original: &Value, edited: &Value, fixed: &[String]) -> Result<(), AnswerError> {
    let differs =
        |name: &&String| edited.get(name.as_str()).is_some_and(|value| Some(value) != original.get(name.as_str()));
    if let Some(name) = fixed.iter().find(differs) {
        return Err(AnswerError::Fixed { name: name.clone() });
    }
    let (before, after) = (reference::find_references(original), reference::find_references(edited));
    let secret = |place: &str, rule| Err(AnswerError::Secret { place: place.to_owned(), rule });
    let is_fixed = |place: &str| fixed.iter().any(|name| place.split('/').nth(1) == Some(name));
    if let Some((place, _)) = before.iter().find(|(place, known)| after.get(*place) != Some(known) && !is_fixed(place))
    {
        return secret(place, "is a secret of the call, and an approval can't change it: repeat it as it is shown");
    }
    match after.keys().find(|place| !before.contains_key(*place)) {
        Some(place) => secret(place, "would be a secret that the call doesn't have, and an approval can't add one"),
        None => Ok(()),
    }
}

/// Returns edited arguments with those of `fixed` that the edit leaves out: the runtime fills them in again.
pub fn with_fixed(original: &Value, edited: &Value, fixed: &[String]) -> Value {
    let mut whole = edited.clone();
    if let (Value::Object(whole), Value::Object(original)) = (&mut whole, original) {
        for name in fixed {
            if let (false, Some(value)) = (whole.contains_key(name), original.get(name)) {
                whole.insert(name.clone(), value.clone());
            }
        }
    }
    whole
}

pub(super) fn check_answers(
    asks: &[Question],
    rules: &BTreeMap<String, AnswerRule>,
    answers: &Map<String, Value>,
) -> Result<(), AnswerError> {
    let wrong = |id: &str, rule: String| Err(AnswerError::Question { id: id.to_owned(), rule });
    if let Some(id) = answers.keys().find(|id| !asks.iter().any(|ask| ask.id == **id)) {
        let known: Vec<_> = asks.iter().map(|ask| format!("`{}`", ask.id)).collect();
        return wrong(id, format!("was not asked, expected {}", known.join(", ")));
    }
    for ask in asks {
        let answer = answers.get(&ask.id).unwrap_or(&Value::Null);
        let may_be_missing = ask.required == Some(false) && answer.is_null();
        if !may_be_missing && !is_answer(ask, answer) {
            let got = match (ask.kind, answer) {
                (_, Value::Null) => "nothing".to_owned(),
                // The answer may be the value of a secret.
                (QuestionKind::Token, _) => "something else".to_owned(),
                _ => format!("`{answer}`"),
            };
            return wrong(&ask.id, format!("expected {}, got {got}", answer_form(ask)));
        }
        if let Some(rule) = rules.get(&ask.id).filter(|rule| !answer.is_null() && !rule.takes(answer)) {
            return wrong(&ask.id, format!("expected {}, got `{answer}`", rule.in_words()));
        }
    }
    Ok(())
}

/// Whether an answer has the form that its question asks for.
fn is_answer(ask: &Question, answer: &Value) -> bool {
    let is_choice = |answer: &Value| answer.as_str().is_some_and(|chosen| ask.choices.iter().any(|c| c == chosen));
    match ask.kind {
        QuestionKind::Text => answer.is_string(),
        QuestionKind::Choice => is_choice(answer),
        QuestionKind::Checkboxes => answer.as_array().is_some_and(|chosen| chosen.iter().all(is_choice)),
        QuestionKind::Approval => answer.is_boolean(),
        QuestionKind::Token => answer.as_str().is_some_and(|path| SecretName::from_path(path).is_ok()),
    }
}

/// Returns the expected form of an answer, in words.
fn answer_form(ask: &Question) -> String {
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

/// Reason why the questions of `human/ask` are refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QuestionsError {
    /// A question has no id.
    #[error("`asks[{at}].id`: expected a name, got an empty text")]
    EmptyId {
        /// Index of the question.
        at: usize,
    },
    /// Two questions have one id.
    #[error("`asks[{at}].id`: `{id}` is taken by another question")]
    TakenId {
        /// Index of the later question.
        at: usize,
        /// Id of both questions.
        id: String,
    },
    /// A question of a type with choices has none.
    #[error("`asks[{at}].choices`: expected at least one")]
    NoChoices {
        /// Index of the question.
        at: usize,
    },
    /// A question of another type has choices.
    #[error("`asks[{at}].choices`: are for the types `choice` and `checkboxes`")]
    NeedlessChoices {
        /// Index of the question.
        at: usize,
    },
}

/// Checks the questions of `human/ask`: unique ids, and choices where the type needs them.
pub fn check_questions(asks: &[Question]) -> Result<(), QuestionsError> {
    for (at, ask) in asks.iter().enumerate() {
        if ask.id.is_empty() {
            return Err(QuestionsError::EmptyId { at });
        }
        if asks[..at].iter().any(|other| other.id == ask.id) {
            return Err(QuestionsError::TakenId { at, id: ask.id.clone() });
        }
        let has_choices = matches!(ask.kind, QuestionKind::Choice | QuestionKind::Checkboxes);
        match (has_choices, ask.choices.is_empty()) {
            (true, true) => return Err(QuestionsError::NoChoices { at }),
            (false, false) => return Err(QuestionsError::NeedlessChoices { at }),
            (true, false) | (false, true) => {}
        }
    }
    Ok(())
}
