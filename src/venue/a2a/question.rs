//! What an agent asks while its task waits, in words and as a value.

use crate::domain::approval::{Approval, ApprovalSubject, Question};
use crate::view::a2a::{A2aPart, A2aTaskState};
use serde_json::{Value, json};

/// Catalogue path of the operation that asks a person.
pub(super) const ASK: &str = "v/ops/human/ask";

/// Returns the state of a task that waits for these approvals: a question is for the client, a permission is for the
/// people of the owner.
pub(super) fn waiting_state(approvals: &[Approval]) -> A2aTaskState {
    let is_call = |approval: &Approval| matches!(approval.subject, ApprovalSubject::Call { .. });
    if !approvals.is_empty() && approvals.iter().all(is_call) {
        A2aTaskState::AuthRequired
    } else {
        A2aTaskState::InputRequired
    }
}

/// Returns the parts that tell what approvals ask: a text, and for programs the questions.
pub(super) fn question_parts(approvals: &[Approval]) -> Vec<A2aPart> {
    let mut parts = Vec::new();
    for approval in approvals {
        match &approval.subject {
            ApprovalSubject::Questions { title, asks, .. } => {
                let prompts = asks.iter().map(|ask| ask.prompt.as_str());
                parts.push(A2aPart::of_text(ask_text(title, prompts)));
                parts.push(A2aPart::of_data(json!({"approval": approval.id, "asks": asks})));
            }
            ApprovalSubject::Call { operation, .. } => {
                parts.push(A2aPart::of_text(permission_text(operation)));
                parts.push(A2aPart::of_data(json!({"approval": approval.id, "operation": operation})));
            }
        }
    }
    parts
}

/// Returns the same text for a call that a turn made, from its arguments.
pub(super) fn call_text(operation: &str, arguments: &Value) -> String {
    if operation != ASK {
        return permission_text(operation);
    }
    let prompts = arguments["asks"].as_array().into_iter().flatten();
    let prompts = prompts.filter_map(|ask| ask["prompt"].as_str());
    ask_text(arguments["title"].as_str().unwrap_or_default(), prompts)
}

fn ask_text<'a>(title: &str, prompts: impl Iterator<Item = &'a str>) -> String {
    let prompts: Vec<&str> = prompts.filter(|prompt| *prompt != title).collect();
    if prompts.is_empty() { title.to_owned() } else { format!("{title}: {}", prompts.join("; ")) }
}

fn permission_text(operation: &str) -> String {
    format!("permission is needed for `{operation}`")
}

/// Returns the ids of questions, for an error.
pub(super) fn question_ids(asks: &[Question]) -> String {
    asks.iter().map(|ask| format!("`{}`", ask.id)).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_told_in_one_line() {
        for (operation, arguments, expected) in [
            (ASK, json!({"title": "Size", "asks": [{"prompt": "S or L?"}, {"prompt": "Lid?"}]}), "Size: S or L?; Lid?"),
            (ASK, json!({"title": "Size?", "asks": [{"prompt": "Size?"}]}), "Size?"),
            (ASK, json!({}), ""),
            ("v/ops/http/post", json!({"url": "https://x"}), "permission is needed for `v/ops/http/post`"),
        ] {
            assert_eq!(call_text(operation, &arguments), expected);
        }
        assert_eq!(waiting_state(&[]), A2aTaskState::InputRequired);
    }
}
