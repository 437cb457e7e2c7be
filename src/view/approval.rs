//! Answers about approvals: calls and questions that wait for a person, and the answers of people.

use crate::domain::approval::{
    Approval, ApprovalAnswer, ApprovalSubject, ApprovalVerdict, CallSection, Question, QuestionKind,
};
use crate::domain::ids::{AgentId, JobId, SessionId};
use crate::domain::time::Millis;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A page of an owner's approvals, the newest first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ApprovalPage {
    /// Approvals of the page.
    pub items: Vec<ApprovalView>,
    /// Approvals in the whole list.
    pub total: usize,
    /// Approvals before the page.
    pub offset: usize,
    /// `offset` of the next page; null after the last.
    pub next: Option<usize>,
}

/// A call or questions that wait for a person.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ApprovalView {
    /// Id of the approval.
    pub id: JobId,
    /// Task that the asking turn serves; absent without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<JobId>,
    /// Agent that asks.
    pub agent: AgentId,
    /// Session that waits.
    pub session: SessionId,
    /// Number of the turn whose reply has the call.
    pub turn: u64,
    /// Position of the call in that reply, from 0.
    pub index: u32,
    /// Name by which the model called the tool; absent where it is hidden.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// The call that waits; absent where questions wait, or where it is hidden.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call: Option<ApprovalCallView>,
    /// Questions of the agent; absent where a call waits, or where they are hidden.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub questions: Option<ApprovalQuestionsView>,
    /// SHA-256 of what is asked and of its place, in hexadecimal digits; an answer that names it counts for this
    /// approval alone.
    pub digest: String,
    /// Time of the question, in milliseconds since 1970.
    #[schemars(with = "u64")]
    pub asked: Millis,
    /// Time after which it counts as denied without an answer, in milliseconds since 1970.
    #[schemars(with = "u64")]
    pub expires: Millis,
    /// The answer, once there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answer: Option<ApprovalAnswerView>,
    /// Why `tool`, `call`, `questions` and the content of the answer are hidden from this reader, who has less
    /// authority than the turn that asks and may not answer; absent where nothing is hidden.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hidden: Option<String>,
}

impl From<&Approval> for ApprovalView {
    fn from(approval: &Approval) -> Self {
        let shown = Self {
            id: approval.id.clone(),
            job: approval.job.clone(),
            agent: approval.session.agent.clone(),
            session: approval.session.session.clone(),
            turn: approval.turn,
            index: approval.index,
            tool: Some(approval.tool.clone()),
            call: None,
            questions: None,
            digest: approval.digest.clone(),
            asked: approval.asked,
            expires: approval.expires,
            answer: approval.answer.as_ref().map(ApprovalAnswerView::from),
            hidden: None,
        };
        match &approval.subject {
            ApprovalSubject::Call { operation, arguments, fixed, scopes } => {
                let (operation, arguments) = (operation.clone(), arguments.clone());
                let call = ApprovalCallView { operation, arguments, fixed: fixed.clone(), scopes: scopes.clone() };
                Self { call: Some(call), ..shown }
            }
            ApprovalSubject::Questions { title, asks, .. } => {
                let asks = asks.iter().map(QuestionView::from).collect();
                Self { questions: Some(ApprovalQuestionsView { title: title.clone(), asks }), ..shown }
            }
        }
    }
}

impl ApprovalView {
    /// Returns the approval as readers see it from whom its subject is hidden, and with the reason for that.
    #[must_use]
    pub fn without_subject(self, reason: &str) -> Self {
        let answer = self.answer.map(|answer| ApprovalAnswerView {
            by: answer.by,
            at: answer.at,
            verdict: None,
            arguments: None,
            scopes: None,
            reason: None,
            answers: None,
        });
        Self { tool: None, call: None, questions: None, answer, hidden: Some(reason.to_owned()), ..self }
    }
}

/// A call that waits for a person.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ApprovalCallView {
    /// Path of the operation; of a delegate `g/<agent>`, or the tool's name where the delegate is anonymous.
    pub operation: String,
    /// Final arguments, with those that the runtime fills in; no value of a secret is in them.
    pub arguments: Value,
    /// Names of the arguments that the runtime fills in: no answer changes them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fixed: Vec<String>,
    /// Sections of the caller's context that go with the call.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scopes: Vec<CallSection>,
}

/// Questions of an agent that wait for a person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ApprovalQuestionsView {
    /// Title that says what they are about.
    pub title: String,
    /// The questions, each with one answer.
    pub asks: Vec<QuestionView>,
}

/// One question of an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct QuestionView {
    /// Name of the question in the answers.
    pub id: String,
    /// Kind of the answer.
    #[serde(rename = "type")]
    pub kind: QuestionKind,
    /// Text of the question.
    pub prompt: String,
    /// Possible answers, of the kinds `choice` and `checkboxes`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub choices: Vec<String>,
    /// Whether it must be answered; absent is true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub required: Option<bool>,
}

impl From<&Question> for QuestionView {
    fn from(question: &Question) -> Self {
        let Question { id, kind, prompt, choices, required } = question.clone();
        Self { id, kind, prompt, choices, required }
    }
}

/// Answer to an approval.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ApprovalAnswerView {
    /// Name of the person; the venue's when time ran out.
    pub by: String,
    /// Time of the answer, in milliseconds since 1970.
    #[schemars(with = "u64")]
    pub at: Millis,
    /// Kind of the answer; absent where it is hidden.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["approved", "rejected", "answered", "expired", "withdrawn"]))]
    pub verdict: Option<String>,
    /// Arguments of an approved call that replace those of the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arguments: Option<Value>,
    /// Keys of the sections that still go with an approved call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scopes: Option<Vec<String>>,
    /// Reason of a rejection, which the agent gets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Answers by the names of the questions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answers: Option<Map<String, Value>>,
}

impl From<&ApprovalAnswer> for ApprovalAnswerView {
    fn from(answer: &ApprovalAnswer) -> Self {
        let shown = Self {
            by: answer.by.clone(),
            at: answer.at,
            verdict: Some(answer.verdict.as_str().to_owned()),
            arguments: None,
            scopes: None,
            reason: None,
            answers: None,
        };
        match answer.verdict.clone() {
            ApprovalVerdict::Approved { arguments, scopes } => Self { arguments, scopes, ..shown },
            ApprovalVerdict::Rejected { reason } => Self { reason, ..shown },
            ApprovalVerdict::Answered { answers } => Self { answers: Some(answers), ..shown },
            ApprovalVerdict::Expired | ApprovalVerdict::Withdrawn => shown,
        }
    }
}
