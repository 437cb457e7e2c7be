//! Approvals as questions to the person before a client.

use crate::domain::approval::QuestionKind;
use crate::view::approval::{ApprovalCallView, ApprovalQuestionsView, ApprovalView, QuestionView};
use serde::Serialize;
use serde_json::{Map, Value, json};

/// A request of the server that a client answers.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct McpInputRequest {
    /// Kind of the request.
    pub method: &'static str,
    /// Content of the request.
    pub params: McpElicitation,
}

/// A form for a person.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct McpElicitation {
    /// Kind of the question: a form.
    pub mode: &'static str,
    /// Text above the form.
    pub message: String,
    /// JSON Schema of the answer, a flat map.
    pub requested_schema: Value,
}

impl McpInputRequest {
    /// Makes the question of an approval; `None` where its subject is hidden.
    pub fn of_approval(approval: &ApprovalView) -> Option<Self> {
        let params = match (&approval.call, &approval.questions) {
            (Some(call), _) => McpElicitation::of_call(approval, call),
            (None, Some(questions)) => McpElicitation::of_questions(approval, questions),
            (None, None) => return None,
        };
        Some(Self { method: "elicitation/create", params })
    }
}

impl McpElicitation {
    fn of_call(approval: &ApprovalView, call: &ApprovalCallView) -> Self {
        let requested_schema = json!({
            "type": "object",
            "properties": {
                "approve": {"type": "boolean", "title": "Approve", "description": "Whether the call is made."},
                "reason": {"type": "string", "title": "Reason", "description": "Why it is not made, for the agent."}
            },
            "required": ["approve"]
        });
        let message = format!("Agent `{}` wants to call `{}` with {}", approval.agent, call.operation, call.arguments);
        Self { mode: "form", message, requested_schema }
    }

    fn of_questions(approval: &ApprovalView, questions: &ApprovalQuestionsView) -> Self {
        let properties: Map<String, Value> =
            questions.asks.iter().map(|question| (question.id.clone(), question_schema(question))).collect();
        let needed = questions.asks.iter().filter(|question| question.required != Some(false));
        let required: Vec<&str> = needed.map(|question| question.id.as_str()).collect();
        let requested_schema = json!({"type": "object", "properties": properties, "required": required});
        let message = format!("Agent `{}` asks: {}", approval.agent, questions.title);
        Self { mode: "form", message, requested_schema }
    }
}

fn question_schema(question: &QuestionView) -> Value {
    let QuestionView { kind, prompt, choices, .. } = question;
    match kind {
        QuestionKind::Text => json!({"type": "string", "title": prompt}),
        QuestionKind::Choice => json!({"type": "string", "title": prompt, "enum": choices}),
        QuestionKind::Checkboxes => {
            json!({"type": "array", "title": prompt, "items": {"type": "string", "enum": choices}})
        }
        QuestionKind::Approval => json!({"type": "boolean", "title": prompt}),
        QuestionKind::Token => {
            json!({"type": "string", "title": prompt, "description": "Name of a secret that holds it, `s/NAME`; no value."})
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn approval(subject: &Value) -> ApprovalView {
        let mut view = json!({
            "id": "0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f", "agent": "payer", "session": "s", "turn": 1, "index": 0,
            "digest": "d", "asked": 1, "expires": 2
        });
        view.as_object_mut().unwrap().extend(subject.as_object().unwrap().clone());
        serde_json::from_value(view).unwrap()
    }

    #[test]
    fn an_approval_is_a_flat_form() {
        let call = json!({"call": {"operation": "v/ops/lattice/append", "arguments": {"path": "w/x"}}});
        let asked = McpInputRequest::of_approval(&approval(&call)).unwrap();
        assert_eq!(asked.params.requested_schema["properties"]["approve"]["type"], "boolean");
        assert!(asked.params.message.contains("`payer` wants to call `v/ops/lattice/append`"), "{asked:?}");
        let questions = json!({"questions": {"title": "Order", "asks": [
            {"id": "size", "type": "choice", "prompt": "Size?", "choices": ["S", "L"]},
            {"id": "note", "type": "text", "prompt": "Note?", "required": false},
        ]}});
        let schema = McpInputRequest::of_approval(&approval(&questions)).unwrap().params.requested_schema;
        assert_eq!(
            (&schema["properties"]["size"]["enum"], &schema["required"]),
            (&json!(["S", "L"]), &json!(["size"]))
        );
        assert_eq!(McpInputRequest::of_approval(&approval(&json!({"hidden": "no"}))), None);
    }
}
