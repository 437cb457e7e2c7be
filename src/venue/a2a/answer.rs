//! A client's message to a task that waits: the answer to what its agent asks.

use super::input::plain_text;
use super::question::question_ids;
use super::reader::TaskReader;
use crate::domain::approval::{Approval, ApprovalSubject, ApprovalVerdict, Question, QuestionKind};
use crate::domain::ids::JobId;
use crate::domain::job::Job;
use crate::venue::approvals;
use crate::venue::notifications;
use crate::venue::operation::OpError;
use crate::view::a2a::A2aMessage;
use serde_json::{Map, Value};

/// Key of the data that names an approval, as the status of a task has it.
const APPROVAL: &str = "approval";

/// Words that approve a call.
const YES: [&str; 5] = ["yes", "y", "true", "ok", "approve"];

/// Words that reject a call.
const NO: [&str; 5] = ["no", "n", "false", "reject", "deny"];

/// An answer to an approval, which isn't given yet.
#[derive(Debug, Clone, PartialEq)]
pub struct PreparedAnswer {
    /// Id of the approval.
    pub approval: JobId,
    verdict: ApprovalVerdict,
}

impl TaskReader<'_> {
    /// Reads a message as the answer to a question of a task: the one that the message names, or the first. `input` is
    /// what the agent would read of the message. `None` if the task asks nothing. The caller needs what every answer
    /// needs.
    pub async fn read_answer(
        &self,
        job: &Job,
        message: &A2aMessage,
        input: &Value,
    ) -> Result<Option<PreparedAnswer>, OpError> {
        let open = self.open_approvals(job).await?;
        let Some(first) = open.first() else { return Ok(None) };
        // Errors below tell what is asked. All approvals of a job need the same of their answerers.
        approvals::check_may_answer(self.caller, first)?;
        let approval = choose(&open, named_approval(&given_data(message)))?.unwrap_or(first);
        self.prepare(approval, message, input).map(Some)
    }

    /// Reads a message again as the answer to this approval; `None` if the approval is gone.
    pub async fn read_answer_again(
        &self,
        approval: &JobId,
        message: &A2aMessage,
        input: &Value,
    ) -> Result<Option<PreparedAnswer>, OpError> {
        let found = approvals::get(&*self.venue.store, &self.caller.owner, approval).await?;
        let Some((approval, _)) = found else { return Ok(None) };
        approvals::check_may_answer(self.caller, &approval)?;
        self.prepare(&approval, message, input).map(Some)
    }

    fn prepare(&self, approval: &Approval, message: &A2aMessage, input: &Value) -> Result<PreparedAnswer, OpError> {
        let mut given = given_data(message);
        if named_approval(&given).is_some() {
            given.shift_remove(APPROVAL);
        }
        let plain = plain_text(message);
        let whole = self.may_answer_directly().then(|| input.to_string());
        let said = SaidText { plain: plain.as_deref(), whole: whole.as_deref() };
        Ok(PreparedAnswer { approval: approval.id.clone(), verdict: verdict(approval, given, said)? })
    }

    /// Gives an answer. The same answer again changes nothing.
    pub async fn give_answer(&self, answer: PreparedAnswer) -> Result<(), OpError> {
        approvals::decide(self.venue, self.caller, &answer.approval, answer.verdict, None).await?;
        notifications::send_soon(self.venue, &self.caller.owner).await;
        Ok(())
    }
}

/// Texts of a message.
#[derive(Clone, Copy)]
struct SaidText<'a> {
    /// Its text parts.
    plain: Option<&'a str>,
    /// All of it as JSON, for an agent that reads whole messages.
    whole: Option<&'a str>,
}

/// Returns the data of a message as one map.
fn given_data(message: &A2aMessage) -> Map<String, Value> {
    let given = message.parts.iter().filter_map(|part| part.data.as_ref()?.as_object());
    given.flatten().map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// Returns the id of the approval that the data of an answer name.
fn named_approval(given: &Map<String, Value>) -> Option<JobId> {
    given.get(APPROVAL)?.as_str().and_then(|text| JobId::new(text).ok())
}

/// Returns the approval that an answer names; `None` if the first one is meant. Where several calls wait, a bare `yes`
/// could permit one that its author hasn't seen.
fn choose(open: &[Approval], named: Option<JobId>) -> Result<Option<&Approval>, OpError> {
    if let Some(named) = named {
        let gone =
            || OpError::Conflict(format!("approval `{named}` isn't open: the status of the task has what is asked"));
        return open.iter().find(|approval| approval.id == named).map(Some).ok_or_else(gone);
    }
    let is_call = |approval: &Approval| matches!(approval.subject, ApprovalSubject::Call { .. });
    if open.len() > 1 && open.first().is_some_and(is_call) {
        return Err(OpError::Invalid(format!(
            "the task asks {} things at once: name the call by data `{{\"{APPROVAL}\": ID, \"approve\": true}}` with the id \
             in the task's status",
            open.len()
        )));
    }
    Ok(None)
}

/// Returns the answer that a message gives; `given` is its data.
fn verdict(approval: &Approval, given: Map<String, Value>, text: SaidText<'_>) -> Result<ApprovalVerdict, OpError> {
    match &approval.subject {
        ApprovalSubject::Call { operation, .. } => {
            let reason = given.get("reason").and_then(Value::as_str).map(str::to_owned);
            let said = given.get("approve").and_then(Value::as_bool).or_else(|| parse_yes(text.plain?));
            match said {
                Some(true) => Ok(ApprovalVerdict::Approved { arguments: None, scopes: None }),
                Some(false) => Ok(ApprovalVerdict::Rejected { reason }),
                None => Err(OpError::Invalid(format!(
                    "the task waits for permission to call `{operation}`: answer `yes` or `no`, or with the data \
                     `{{\"approve\": true}}`"
                ))),
            }
        }
        ApprovalSubject::Questions { asks, .. } => {
            Ok(ApprovalVerdict::Answered { answers: answers(asks, given, text)? })
        }
    }
}

/// Returns the answers to questions: data by their ids, or a text where one question is asked.
fn answers(asks: &[Question], given: Map<String, Value>, text: SaidText<'_>) -> Result<Map<String, Value>, OpError> {
    if !given.is_empty() && given.keys().all(|key| asks.iter().any(|ask| ask.id == *key)) {
        return Ok(given);
    }
    let required: Vec<&Question> = asks.iter().filter(|ask| ask.required != Some(false)).collect();
    let one = match (asks, required.as_slice()) {
        ([one], _) => Some(one),
        (_, [one]) => Some(*one),
        _ => None,
    };
    let Some((ask, plain)) = one.zip(text.plain) else {
        let ids = question_ids(asks);
        return Err(OpError::Invalid(format!("the task asks {ids}: answer with data that has a key for each")));
    };
    let value: Value = match ask.kind {
        QuestionKind::Text => text.whole.unwrap_or(plain).into(),
        QuestionKind::Choice | QuestionKind::Token => plain.into(),
        QuestionKind::Checkboxes => plain.split(',').map(|choice| Value::from(choice.trim())).collect(),
        QuestionKind::Approval => parse_yes(plain).map_or_else(|| Value::from(plain), Value::from),
    };
    Ok(Map::from_iter([(ask.id.clone(), value)]))
}

/// Reads a word that approves or rejects.
fn parse_yes(text: &str) -> Option<bool> {
    let word = text.trim().trim_end_matches(['.', '!']).to_ascii_lowercase();
    if YES.contains(&word.as_str()) {
        return Some(true);
    }
    NO.contains(&word.as_str()).then_some(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn approval(id: char, subject: &Value) -> Approval {
        let mut value = json!({
            "id": id.to_string().repeat(32), "agent": "clerk", "session": "s", "turn": 1, "index": 0, "tool": "t",
            "digest": "", "asked": 1, "expires": 9,
        });
        value.as_object_mut().unwrap().extend(subject.as_object().unwrap().clone());
        serde_json::from_value(value).unwrap()
    }

    fn asks(value: Value) -> Vec<Question> {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn a_text_answers_one_question_and_data_answers_several() {
        let size = json!({"id": "size", "type": "choice", "prompt": "?", "choices": ["S", "L"]});
        let lid = json!({"id": "lid", "type": "approval", "prompt": "?"});
        let note = json!({"id": "note", "type": "text", "prompt": "?", "required": false});
        let extras = json!({"id": "extras", "type": "checkboxes", "prompt": "?", "choices": ["a", "b"]});
        for (asked, given, text, expected) in [
            (json!([size]), json!({}), Some("L"), Some(json!({"size": "L"}))),
            (json!([lid]), json!({}), Some("Yes."), Some(json!({"lid": true}))),
            (json!([lid]), json!({}), Some("no"), Some(json!({"lid": false}))),
            (json!([extras]), json!({}), Some("a, b"), Some(json!({"extras": ["a", "b"]}))),
            (json!([size, note]), json!({}), Some("L"), Some(json!({"size": "L"}))),
            (json!([size, lid]), json!({"size": "S", "lid": true}), None, Some(json!({"size": "S", "lid": true}))),
            (json!([size, lid]), json!({"other": 1}), None, None),
            (json!([size, lid]), json!({}), Some("L"), None),
            (json!([size]), json!({}), None, None),
        ] {
            let given = given.as_object().unwrap().clone();
            let said = SaidText { plain: text, whole: None };
            let found = answers(&asks(asked.clone()), given, said).ok().map(Value::Object);
            assert_eq!(found, expected, "{asked} {text:?}");
        }
    }

    #[test]
    fn of_several_calls_the_answer_names_one() {
        let call = json!({"call": {"operation": "v/ops/http/post", "arguments": {}}});
        let asked = json!({"questions": {"title": "?", "asks": []}});
        let id = |digit: char| digit.to_string().repeat(32);
        let chosen = |open: &[Approval], given: Value| {
            let found = choose(open, named_approval(given.as_object().unwrap()));
            let id = |approval: &Approval| approval.id.to_string();
            found.map(|found| found.map(id)).map_err(|error| matches!(error, OpError::Conflict(_)))
        };
        let (one, two) = (approval('1', &call), approval('2', &call));
        assert_eq!(chosen(std::slice::from_ref(&one), json!({"approve": true})), Ok(None));
        let open = [one, two];
        assert_eq!(chosen(&open, json!({"approve": true})), Err(false), "which one?");
        assert_eq!(chosen(&open, json!({"approval": id('2'), "approve": true})), Ok(Some(id('2'))));
        assert_eq!(chosen(&open, json!({"approval": id('3'), "approve": true})), Err(true), "it was answered");
        let open = [approval('1', &asked), approval('2', &call)];
        assert_eq!(chosen(&open, json!({"size": "L"})), Ok(None), "the first question");
    }

    #[test]
    fn only_plain_words_approve() {
        for (text, expected) in
            [("yes", Some(true)), (" OK! ", Some(true)), ("Deny", Some(false)), ("yes, but", None), ("", None)]
        {
            assert_eq!(parse_yes(text), expected, "{text}");
        }
    }
}
