//! Bodies of requests: submissions, answers, agent configurations.
//!
//! What is accepted can be read back from everything it is put into, and no list passes as a map.

use super::mutate::{self, Random};
use super::{Target, Verdict};
use serde_json::{Value, json};
use trellis::domain::agent::AgentConfig;
use trellis::domain::approval::AnswerBody;
use trellis::domain::decode;
use trellis::domain::event::{Event, Payload, Submission};
use trellis::domain::ids::JobId;
use trellis::domain::limits::{SUBMISSION_BYTES, VALUE_DEPTH};
use trellis::domain::time::Millis;

type Check = fn(&str, &mut Random) -> Result<Verdict, String>;

fn nested(depth: usize) -> Value {
    (0..depth).fold(json!(1), |inner, n| if n % 2 == 0 { json!([inner]) } else { json!({"a": inner}) })
}

pub fn target() -> Target<Check> {
    let id = "0f".repeat(16);
    let model = json!({"provider": "scripted", "name": "echo"});
    let seeds = [
        json!({"input": {"a": [1, "x", null, 1.5]}, "sessionId": "s", "contextIds": ["a"], "budget": {"tokens": 5}}),
        json!({"input": nested(VALUE_DEPTH - 1), "sessionContext": {"k": nested(3)}, "context": [{"with": "w", "can": "*"}]}),
        json!({"input": nested(VALUE_DEPTH)}),
        json!({"input": 1, "seal": "ab", "envelope": {}, "handed": {}}),
        json!(["hello", "sess1"]),
        json!({"approval": id, "digest": "d", "answer": {"approve": {"arguments": {"n": 1}, "scopes": ["x"]}}}),
        json!({"approval": id, "answer": {"answers": {"a": true}}}),
        json!({"model": model, "tools": ["v/ops/lattice/read", {"operation": "v/ops/a/b", "name": "n"}], "limits": {"turns": 3}}),
        json!({"model": model, "context": ["w/x", {"ref": "w/y", "budget": 500}], "caps": [{"with": "w", "can": "crud"}]}),
        json!({"model": model, "contextMapping": {"k": "session.k", "c": [nested(5)]}, "resources": {"notes": {"kind": "memory"}}}),
    ];
    Target { name: "bodies", seeds: seeds.iter().map(Value::to_string).collect(), mutate: mutate::json, check }
}

fn check(input: &str, _: &mut Random) -> Result<Verdict, String> {
    let mut refused = String::new();
    let mut accepted = false;
    match trellis::venue::ingress::parse(input.as_bytes()) {
        Ok(submission) => {
            accepted = true;
            submission_is_read_back(input, &submission)?;
        }
        Err(error) => refused = error.to_string(),
    }
    if let Ok(answer) = decode::from_json::<AnswerBody>(input.as_bytes()) {
        accepted = true;
        let text = serde_json::to_string(&answer).map_err(|error| error.to_string())?;
        if decode::from_json::<AnswerBody>(text.as_bytes()).as_ref() != Ok(&answer) {
            return Err(format!("the answer is not read back: {text}"));
        }
    }
    if let Ok(value) = decode::json(input.as_bytes()) {
        decode::check(&value).map_err(|wrong| format!("it was read: {wrong}"))?;
        match AgentConfig::parse(&value) {
            Ok(config) => {
                accepted = true;
                let text = serde_json::to_string(&config).map_err(|error| error.to_string())?;
                if decode::read_stored::<AgentConfig>(text.as_bytes()).ok().as_ref() != Some(&config) {
                    return Err(format!("the configuration is not read back: {text}"));
                }
            }
            Err(error) => refused = error.to_string(),
        }
    }
    Ok(if accepted { Verdict::Accepted } else { Verdict::Refused(refused) })
}

fn submission_is_read_back(input: &str, submission: &Submission) -> Result<(), String> {
    if !input.trim_start().starts_with('{') || input.len() > SUBMISSION_BYTES {
        return Err("this is no map of a legal size".to_owned());
    }
    let job = JobId::new(&"0f".repeat(16)).map_err(|error| error.to_string())?;
    let id = "e".parse().map_err(|error| format!("{error:?}"))?;
    let event = Event {
        session_context: submission.session_context.clone(),
        handed: submission.handed.clone(),
        envelope: submission.envelope.clone(),
        ..Event::new(id, Millis(1), Payload::Task { job, input: submission.input.clone() })
    };
    let stored = serde_json::to_vec(&event).map_err(|error| error.to_string())?;
    if serde_json::from_slice::<Event>(&stored).ok().as_ref() != Some(&event) {
        return Err("it is not read back from the mailbox".to_owned());
    }
    let sent = serde_json::to_vec(&submission).map_err(|error| error.to_string())?;
    if trellis::venue::ingress::parse(&sent).as_ref() != Ok(submission) {
        return Err("it is not read back from the queue".to_owned());
    }
    Ok(())
}
