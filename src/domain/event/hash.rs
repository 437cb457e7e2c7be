//! Hash by which a repeated submission is recognised.

use super::{EventKind, Submission};
use crate::ids::{AgentId, sha256_hex};
use crate::principal::Principal;
use serde_json::{Value, json};

/// Returns the hash that tells apart two submissions with one id: of the parsed body, the agent and the kind, so that
/// whitespace and the order of keys don't matter. The sender (`caller`) is left out, because each transport sets it:
/// the same submission by another transport is equal. The principal is included: submissions of two principals differ.
pub fn body_hash(agent: &AgentId, kind: EventKind, submission: &Submission, by: &Principal) -> String {
    hash_with_reply(agent, kind, submission, submission.reply_to.as_deref(), by)
}

/// Returns the hash of what is asked, wherever the answer shall go: a producer that sends a task again may have another
/// inbox. `None` if the submission names no subject for the answer: then it is the [`body_hash`].
pub fn asked_hash(agent: &AgentId, kind: EventKind, submission: &Submission, by: &Principal) -> Option<String> {
    submission.reply_to.as_ref().map(|_| hash_with_reply(agent, kind, submission, None, by))
}

fn hash_with_reply(
    agent: &AgentId,
    kind: EventKind,
    submission: &Submission,
    reply_to: Option<&str>,
    by: &Principal,
) -> String {
    let Submission {
        input,
        session_id,
        reply_to: _,
        session_context,
        context_ids,
        context,
        caller: _,
        parent,
        envelope: _,
        handed,
        budget,
        loads,
        output_path,
        priority,
        response_schema,
        job,
        redrive_of: _,
        seal: _,
    } = submission;
    let mut said = json!([agent, kind.letter(), input, session_id, reply_to, parent, session_context, context]);
    if let (false, Value::Array(said)) = (handed.is_empty(), &mut said) {
        said.push(json!(handed));
    }
    if let (false, Value::Array(said)) = (context_ids.is_empty(), &mut said) {
        said.push(json!({"contextIds": context_ids}));
    }
    if let (false, Value::Array(said)) = (budget.is_empty(), &mut said) {
        said.push(json!({"budget": budget}));
    }
    if let (Some(schema), Value::Array(said)) = (response_schema, &mut said) {
        said.push(json!({"responseSchema": schema}));
    }
    if let (false, Value::Array(said)) = (loads.is_empty(), &mut said) {
        said.push(json!({"loads": loads}));
    }
    if let (Some(path), Value::Array(said)) = (output_path, &mut said) {
        said.push(json!({"outputPath": path}));
    }
    if let (false, Value::Array(said)) = (priority.is_normal(), &mut said) {
        said.push(json!({"priority": priority}));
    }
    if let (Some(job), Value::Array(said)) = (job, &mut said) {
        said.push(json!({"job": job}));
    }
    if let (Some(mark), Value::Array(said)) = (by.mark(), &mut said) {
        said.push(json!({"principal": mark}));
    }
    said.sort_all_objects();
    sha256_hex(said.to_string().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_hash_covers_what_is_asked_of_whom_and_not_who_asks() {
        let hash = |agent: &str, kind, body: &str| {
            body_hash(&agent.parse().unwrap(), kind, &serde_json::from_str(body).unwrap(), &Principal::ANYBODY)
        };
        let body = r#"{"input":{"a":1,"b":[{"c":2,"d":3}]}}"#;
        let first = hash("a", EventKind::Task, body);
        for (agent, kind, other, same) in [
            ("a", EventKind::Task, body, true),
            ("a", EventKind::Task, r#"{ "input": {"b": [{"d": 3, "c": 2}], "a": 1} }"#, true),
            ("a", EventKind::Task, r#"{"input":{"a":1,"b":[{"c":2,"d":3}]},"caller":"t/u"}"#, true),
            ("a", EventKind::Task, r#"{"input":{"a":1,"b":[{"c":2,"d":3}]},"sessionId":null}"#, true),
            ("b", EventKind::Task, body, false),
            ("a", EventKind::Message, body, false),
            ("a", EventKind::Task, r#"{"input":{"a":1,"b":[{"c":2,"d":4}]}}"#, false),
            ("a", EventKind::Task, r#"{"input":{"a":1,"b":[{"c":2,"d":3}]},"sessionId":"s"}"#, false),
            ("a", EventKind::Task, r#"{"input":{"a":1,"b":[{"c":2,"d":3}]},"replyTo":"_INBOX.x"}"#, false),
            (
                "a",
                EventKind::Task,
                r#"{"input":{"a":1,"b":[{"c":2,"d":3}]},"parent":{"agent":"p","session":"s","depth":1}}"#,
                false,
            ),
            ("a", EventKind::Task, r#"{"input":{"a":1,"b":[{"c":2,"d":3}]},"sessionContext":null}"#, true),
            ("a", EventKind::Task, r#"{"input":{"a":1,"b":[{"c":2,"d":3}]},"sessionContext":{"k":1}}"#, false),
            ("a", EventKind::Task, r#"{"input":{"a":1,"b":[{"c":2,"d":3}]},"context":["app"]}"#, false),
            ("a", EventKind::Task, r#"{"input":{"a":1,"b":[{"c":2,"d":3}]},"context":[]}"#, false),
            ("a", EventKind::Task, r#"{"input":{"a":1,"b":[{"c":2,"d":3}]},"contextIds":[]}"#, true),
            ("a", EventKind::Task, r#"{"input":{"a":1,"b":[{"c":2,"d":3}]},"contextIds":["x"]}"#, false),
            ("a", EventKind::Task, r#"{"input":{"a":1,"b":[{"c":2,"d":3}]},"handed":{}}"#, true),
            ("a", EventKind::Task, r#"{"input":{"a":1,"b":[{"c":2,"d":3}]},"handed":{"anonymous":"x"}}"#, false),
            ("a", EventKind::Task, r#"{"input":{"a":1,"b":[{"c":2,"d":3}]},"priority":0}"#, true),
            ("a", EventKind::Task, r#"{"input":{"a":1,"b":[{"c":2,"d":3}]},"priority":1}"#, false),
            ("a", EventKind::Task, r#"{"input":"x"}"#, false),
        ] {
            assert_eq!(hash(agent, kind, other) == first, same, "{agent} {kind:?} {other}");
        }
        let by = |subject: &str| {
            let by = Principal::bearer(subject, None, None);
            body_hash(&"a".parse().unwrap(), EventKind::Task, &serde_json::from_str(body).unwrap(), &by)
        };
        assert_eq!(by("t/u"), by("t/u"));
        assert!(by("t/u") != by("t/v") && by("t/u") != first);
        let asked = |body: &str| {
            let said = serde_json::from_str(body).unwrap();
            asked_hash(&"a".parse().unwrap(), EventKind::Task, &said, &Principal::ANYBODY)
        };
        let with_inbox = |inbox: &str| asked(&format!(r#"{{"input":"x","replyTo":"{inbox}"}}"#));
        assert_eq!(with_inbox("_INBOX.x"), with_inbox("_INBOX.y"));
        assert_eq!(with_inbox("_INBOX.x"), Some(hash("a", EventKind::Task, r#"{"input":"x"}"#)));
        assert_eq!(asked(r#"{"input":"x"}"#), None);
        assert_ne!(
            hash("a", EventKind::Task, r#"{"input":null,"replyTo":"_INBOX.x"}"#),
            hash("a", EventKind::Task, r#"{"input":null,"sessionId":"_INBOX.x"}"#),
        );
    }
}
