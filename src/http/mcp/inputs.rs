//! A person's answers in a client as answers to approvals.

use super::refusal::{INVALID_PARAMS, RpcRefusal};
use crate::domain::decode;
use crate::view::approval::ApprovalView;
use crate::view::request::{AnswerRequest, ApproveRequest, RejectRequest};
use crate::view::to_json;
use serde::Deserialize;
use serde_json::{Map, Value};

/// What a person did with a form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum FormAction {
    /// The person has filled the form in.
    Accept,
    /// The person has said no.
    Decline,
    /// The person has put the form away, and may answer later.
    Cancel,
}

/// A client's answer to a form.
#[derive(Debug, Deserialize)]
struct FormReply {
    action: FormAction,
    #[serde(default)]
    content: Map<String, Value>,
}

/// An answer to an approval.
#[derive(Debug, PartialEq)]
pub(super) enum ApprovalReply {
    /// The approval stays open.
    Later,
    /// The last segment of the operation that answers it, and its arguments.
    Now { verb: &'static str, request: Value },
}

/// Reads a client's answer to the form of an approval.
pub(super) fn read_reply(approval: &ApprovalView, given: &Value) -> Result<ApprovalReply, RpcRefusal> {
    let place = format!("`params.inputResponses.{}`", approval.id);
    let wrong = |text: String| RpcRefusal::new(INVALID_PARAMS, format!("{place}: {text}"));
    let reply: FormReply = decode::typed_with_hint(given).map_err(|error| wrong(error.to_string()))?;
    let (id, digest) = (approval.id.as_str(), Some(approval.digest.clone()));
    let reject = |reason: Option<String>, digest| ApprovalReply::Now {
        verb: "reject",
        request: to_json(&RejectRequest { id, reason, digest }),
    };
    let FormReply { action, mut content } = reply;
    let approve = content.get("approve").and_then(Value::as_bool);
    Ok(match action {
        FormAction::Cancel => ApprovalReply::Later,
        FormAction::Decline => reject(None, digest),
        FormAction::Accept if approval.call.is_some() => match approve {
            Some(true) => {
                let request = to_json(&ApproveRequest { id, arguments: None, scopes: None, digest });
                ApprovalReply::Now { verb: "approve", request }
            }
            Some(false) => {
                let reason = content.shift_remove("reason").and_then(|reason| reason.as_str().map(str::to_owned));
                reject(reason.filter(|reason| !reason.is_empty()), digest)
            }
            None => return Err(wrong("expected `approve` in `content`, true or false".to_owned())),
        },
        FormAction::Accept => {
            let request = to_json(&AnswerRequest { id, answers: content, digest });
            ApprovalReply::Now { verb: "answer", request }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const ID: &str = "0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f";

    fn approval(subject: &Value) -> ApprovalView {
        let mut view = json!({
            "id": ID, "agent": "payer", "session": "s", "turn": 1, "index": 0, "digest": "d", "asked": 1, "expires": 2
        });
        view.as_object_mut().unwrap().extend(subject.as_object().unwrap().clone());
        decode::into_type(view).unwrap()
    }

    #[test]
    fn a_form_answers_the_approval_that_was_shown() {
        let call = json!({"call": {"operation": "v/ops/x", "arguments": {}}});
        let questions = json!({"questions": {"title": "t", "asks": []}});
        let now = |verb, request| Ok(ApprovalReply::Now { verb, request });
        for (subject, given, expected) in [
            (
                &call,
                json!({"action": "accept", "content": {"approve": true}}),
                now("approve", json!({"id": ID, "digest": "d"})),
            ),
            (
                &call,
                json!({"action": "accept", "content": {"approve": false, "reason": "too much"}}),
                now("reject", json!({"id": ID, "reason": "too much", "digest": "d"})),
            ),
            (&call, json!({"action": "decline"}), now("reject", json!({"id": ID, "digest": "d"}))),
            (&call, json!({"action": "cancel"}), Ok(ApprovalReply::Later)),
            (&call, json!({"action": "accept", "content": {}}), Err(INVALID_PARAMS)),
            (&call, json!({"action": "agree"}), Err(INVALID_PARAMS)),
            (&call, json!("yes"), Err(INVALID_PARAMS)),
            (
                &questions,
                json!({"action": "accept", "content": {"size": "S"}}),
                now("answer", json!({"id": ID, "answers": {"size": "S"}, "digest": "d"})),
            ),
        ] {
            let found = read_reply(&approval(subject), &given).map_err(|refusal| refusal.fault.code);
            assert_eq!(found, expected, "{given}");
        }
    }
}
