//! Seals of the venue on messages that it sends to itself through the queue: submissions, results and cancellations;
//! and the token of a job for an external worker, which its answers must contain.
//!
//! A seal is added when a message is published, so that outboxes hold messages without it. It covers owner, agent, kind
//! and body: anybody who may publish could write the rest.

use crate::event::Submission;
use crate::ids::{AgentId, EventId, JobId, Owner, hmac_fits, hmac_hex};
use crate::message::{BusMessage, InboundKind, MessageAddress};
use serde_json::{Value, json};

/// Key of the seal in a body.
pub const SEAL: &str = "seal";

/// Key of the token, in a job for an external worker and in the worker's answers.
const TOKEN: &str = "token";

/// Sender of a body, by its seal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SealOrigin {
    /// The seal is the venue's.
    Venue,
    /// The body has no seal.
    Anybody,
    /// The seal is not the venue's.
    Forger,
}

const fn is_sealed(kind: InboundKind) -> bool {
    match kind {
        InboundKind::Result | InboundKind::Cancel => true,
        // Submissions have a seal among their own keys, answers have a token; a wake has no content to protect.
        InboundKind::Task
        | InboundKind::Message
        | InboundKind::Pause
        | InboundKind::Resume
        | InboundKind::Decide
        | InboundKind::Wake => false,
    }
}

/// Adds the seal to a message of a kind that has one. The same message gets the same seal.
#[must_use]
pub fn seal_message(key: &[u8], mut message: BusMessage) -> BusMessage {
    if let MessageAddress::In { owner, agent, kind } = &message.to
        && is_sealed(*kind)
    {
        let seal = hmac_hex(key, sealed_text(owner, agent, *kind, &message.body).as_bytes());
        if let Value::Object(body) = &mut message.body {
            body.insert(SEAL.to_owned(), Value::from(seal));
        }
    }
    if let MessageAddress::Job { owner, .. } = &message.to
        && let Some(job) = message.body["job"].as_str().and_then(|job| JobId::new(job).ok())
    {
        message.body[TOKEN] = hmac_hex(key, token_text(owner, &job).as_bytes()).into();
    }
    message
}

/// Whether a token is that of a job for an external worker, compared in constant time.
#[must_use]
pub fn token_fits(key: &[u8], owner: &Owner, job: &JobId, token: &str) -> bool {
    hmac_fits(key, token_text(owner, job).as_bytes(), token)
}

/// Returns the text that a token covers. No seal covers such a text, so that neither can replace the other.
fn token_text(owner: &Owner, job: &JobId) -> String {
    json!(["outbound", owner.token(), job]).to_string()
}

/// Removes the seal from a body, and returns its sender.
pub fn take_seal(key: &[u8], owner: &Owner, agent: &AgentId, kind: InboundKind, body: &mut Value) -> SealOrigin {
    let seal = body.as_object_mut().and_then(|body| body.shift_remove(SEAL));
    match seal {
        None => SealOrigin::Anybody,
        Some(Value::String(seal)) if hmac_fits(key, sealed_text(owner, agent, kind, body).as_bytes(), &seal) => {
            SealOrigin::Venue
        }
        Some(_) => SealOrigin::Forger,
    }
}

fn sealed_text(owner: &Owner, agent: &AgentId, kind: InboundKind, body: &Value) -> String {
    let mut said = json!([kind, owner.token(), agent, body]);
    said.sort_all_objects();
    said.to_string()
}

/// Address of a submission in the queue, which its seal covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SubmissionAddress<'a> {
    /// Owner of the agent.
    pub owner: &'a Owner,
    /// Agent that gets the submission.
    pub agent: &'a AgentId,
    /// Kind of the message: a task or a message.
    pub kind: InboundKind,
}

/// Seals a submission of the venue, to recognise it in the queue.
#[must_use]
pub fn seal_submission(key: &[u8], to: SubmissionAddress<'_>, id: &EventId, submission: Submission) -> Submission {
    let seal = hmac_hex(key, submission_text(to, id, &submission).as_bytes());
    Submission { seal: Some(seal), ..submission }
}

/// Whether a seal is that of a submission without it, compared in constant time.
#[must_use]
pub fn submission_fits(
    key: &[u8],
    to: SubmissionAddress<'_>,
    id: &EventId,
    submission: &Submission,
    seal: &str,
) -> bool {
    hmac_fits(key, submission_text(to, id, submission).as_bytes(), seal)
}

/// Returns the text that a submission's seal covers. It contains the kind, so that a task can't be repeated as a
/// message and take its id. Submissions of older builds, under ids of another form, have seals without it.
fn submission_text(to: SubmissionAddress<'_>, id: &EventId, submission: &Submission) -> String {
    let SubmissionAddress { owner, agent, kind } = to;
    let mut covered = json!(["submission", owner.token(), agent, id, submission]);
    if let (true, Value::Array(covered)) = (id.is_of_venue(), &mut covered) {
        covered.push(json!(kind));
    }
    covered.sort_all_objects();
    covered.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &[u8] = b"the venue's";

    fn message(kind: InboundKind) -> BusMessage {
        let to = MessageAddress::In { owner: "t/u".parse().unwrap(), agent: "a".parse().unwrap(), kind };
        BusMessage {
            to,
            id: Some("i".into()),
            body: json!({"job": "x", "n": 1.5, "deep": {"b": 1, "a": [null]}}),
            trace: None,
        }
    }

    #[test]
    fn a_seal_covers_owner_agent_kind_and_body() {
        let sent = seal_message(KEY, message(InboundKind::Result));
        let text = sent.body.to_string();
        let taken = |owner: &str, agent: &str, kind: InboundKind, text: &str| {
            let mut body = serde_json::from_str(text).unwrap();
            (take_seal(KEY, &owner.parse().unwrap(), &agent.parse().unwrap(), kind, &mut body), body)
        };
        assert_eq!(
            taken("t/u", "a", InboundKind::Result, &text),
            (SealOrigin::Venue, message(InboundKind::Result).body)
        );
        for (owner, agent, kind, text) in [
            ("t/v", "a", InboundKind::Result, text.clone()),
            ("t/u", "b", InboundKind::Result, text.clone()),
            ("t/u", "a", InboundKind::Cancel, text.clone()),
            ("t/u", "a", InboundKind::Result, text.replace("1.5", "1.6")),
            ("t/u", "a", InboundKind::Result, r#"{"job": "x", "seal": "00"}"#.to_owned()),
            ("t/u", "a", InboundKind::Result, r#"{"job": "x", "seal": null}"#.to_owned()),
        ] {
            assert_eq!(taken(owner, agent, kind, &text).0, SealOrigin::Forger, "{owner} {agent} {kind:?} {text}");
        }
        assert_eq!(taken("t/u", "a", InboundKind::Result, r#"{"job": "x"}"#).0, SealOrigin::Anybody);
    }

    #[test]
    fn a_token_is_of_one_job_of_one_owner_under_one_key() {
        let job = |byte: &str| JobId::new(&byte.repeat(16)).unwrap();
        let owner = |text: &str| text.parse::<Owner>().unwrap();
        let to =
            MessageAddress::Job { queue: "ocr".parse().unwrap(), owner: owner("t/u"), agent: "a".parse().unwrap() };
        let sent = seal_message(KEY, BusMessage { to, id: None, body: json!({"job": job("0a")}), trace: None });
        let token = sent.body["token"].as_str().unwrap();
        assert!(token_fits(KEY, &owner("t/u"), &job("0a"), token));
        assert!(!token_fits(b"another", &owner("t/u"), &job("0a"), token));
        assert!(!token_fits(KEY, &owner("t/v"), &job("0a"), token));
        assert!(!token_fits(KEY, &owner("t/u"), &job("0b"), token));
        for wrong in ["", "00", &token[1..], &format!("{token}00"), &"0".repeat(64), "not hex"] {
            assert!(!token_fits(KEY, &owner("t/u"), &job("0a"), wrong), "{wrong}");
        }
        let seal = seal_message(KEY, message(InboundKind::Result)).body["seal"].clone();
        assert!(!token_fits(KEY, &owner("t/u"), &job("0a"), seal.as_str().unwrap()));
    }

    #[test]
    fn untrusted_messages_have_no_seal() {
        assert_eq!(seal_message(KEY, message(InboundKind::Wake)), message(InboundKind::Wake));
        let out = MessageAddress::Out { owner: "t/u".parse().unwrap(), agent: "a".parse().unwrap(), job: "j".into() };
        let out = BusMessage { to: out, ..message(InboundKind::Wake) };
        assert_eq!(seal_message(KEY, out.clone()), out);
    }
}
