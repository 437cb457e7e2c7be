//! A client's message to a task that waits: the answer to what its agent asks.

use super::input::plain_text;
use super::question::question_ids;
use super::reader::TaskReader;
use crate::domain::approval::{Approval, ApprovalSubject, ApprovalVerdict, Question, QuestionKind};
use crate::domain::job::Job;
use crate::venue::approvals;
use crate::venue::operation::OpError;
use crate::view::a2a::A2aMessage;
use serde_json::{Map, Value};

/// Words that approve a call.
const YES: [&str; 5] = ["yes", "y", "true", "ok", "approve"];

/// Words that reject a call.
const NO: [&str; 5] = ["no", "n", "false", "reject", "deny"];

impl TaskReader<'_> {
    /// Answers the first question of a task with a message; `input` is what the agent would read of it. Returns
    /// `false` if the task asks nothing. The caller needs what every answer needs.
    pub async fn answer(&self, job: &Job, message: &A2aMessage, input: &Value) -> Result<bool, OpError> {
        let open = self.open_approvals(job).await?;
        let Some(approval) = open.first() else { return Ok(false) };
        let plain = plain_text(message);
        let whole = self.may_answer_directly().then(|| input.to_string());
        let said = SaidText { plain: plain.as_deref(), whole: whole.as_deref() };
        let verdict = verdict(approval, message, said)?;
        approvals::decide(self.venue, self.caller, &approval.id, verdict, None).await?;
        Ok(true)
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

/// Returns the answer that a message gives.
fn verdict(approval: &Approval, message: &A2aMessage, text: SaidText<'_>) -> Result<ApprovalVerdict, OpError> {
    let given = message.parts.iter().filter_map(|part| part.data.as_ref()?.as_object());
    let given: Map<String, Value> = given.flatten().map(|(key, value)| (key.clone(), value.clone())).collect();
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
    fn only_plain_words_approve() {
        for (text, expected) in
            [("yes", Some(true)), (" OK! ", Some(true)), ("Deny", Some(false)), ("yes, but", None), ("", None)]
        {
            assert_eq!(parse_yes(text), expected, "{text}");
        }
    }
}
