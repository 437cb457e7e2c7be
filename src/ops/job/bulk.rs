//! `v/ops/job/bulk`: many jobs at once.

use super::batch::{self, BATCH, BatchAction};
use crate::domain::authority::ResourcePath;
use crate::domain::ids::{AgentId, SessionId};
use crate::domain::job::{ErrorCode, JobStatus};
use crate::domain::lattice::Namespace;
use crate::domain::reader::Reader;
use crate::domain::time::Millis;
use crate::venue::jobs::list::{Cursor, JobFilter};
use crate::venue::operation::{Effect, Invocation, Need, OpError, Operation, Output, Spec};
use async_trait::async_trait;
use serde_json::{Value, json};

/// The operation.
pub(super) struct Bulk;

fn invalid(key: &str, why: impl std::fmt::Display) -> OpError {
    OpError::Invalid(format!("`{key}`: {why}"))
}

fn texts<'a>(arguments: &'a Value, key: &str) -> impl Iterator<Item = &'a str> {
    arguments[key].as_array().into_iter().flatten().filter_map(Value::as_str)
}

fn filter(arguments: &Value, reader: Reader) -> Result<JobFilter, OpError> {
    let known = || JobStatus::ALL.map(JobStatus::as_str).join(", ");
    let status = |text: &str| {
        let found = JobStatus::parse(&text.to_ascii_uppercase());
        found.ok_or_else(|| invalid("status", format!("expected some of {}, got `{text}`", known())))
    };
    let code = |text: &str| {
        ErrorCode::parse(text).ok_or_else(|| invalid("code", format!("expected codes such as DEAD, got `{text}`")))
    };
    let agent = arguments["agent"].as_str().map(AgentId::new).transpose();
    let session = arguments["session"].as_str().map(SessionId::new).transpose();
    Ok(JobFilter {
        statuses: texts(arguments, "status").map(status).collect::<Result<_, _>>()?,
        codes: texts(arguments, "code").map(code).collect::<Result<_, _>>()?,
        agent: agent.map_err(|error| invalid("agent", error))?,
        session: session.map_err(|error| invalid("session", error))?,
        since: arguments["since"].as_u64().map(Millis),
        until: arguments["until"].as_u64().map(Millis),
        text: arguments["q"].as_str().map(str::to_owned),
        reader: Some(reader),
    })
}

#[async_trait]
impl Operation for Bulk {
    fn spec(&self) -> Spec {
        let count = json!({"type": "integer", "minimum": 0});
        let texts = json!({"type": "array", "items": {"type": "string"}});
        Spec {
            path: "v/ops/job/bulk",
            description: "Cancel the open jobs, or drive the failed ones again, that a filter takes. First ask with \
                          `dryRun` how many there are, then say that number as `expected`; `next` is the `cursor` of \
                          the following batch.",
            input: json!({
                "type": "object",
                "properties": {
                    "action": {"enum": ["cancel", "redrive"]},
                    "status": texts, "code": texts,
                    "agent": {"type": "string"}, "session": {"type": "string"},
                    "since": count, "until": count, "q": {"type": "string"},
                    "dryRun": {"type": "boolean", "description": "say how many there are, and change nothing"},
                    "expected": {"type": "integer", "minimum": 0, "description": "how many there are; with another number nothing is done"},
                    "cursor": {"type": "string", "description": "the `next` of the batch before"},
                    "limit": {"type": "integer", "minimum": 1, "maximum": BATCH},
                    "reason": {"type": "string", "description": "of a cancellation, for the record"}
                },
                "required": ["action"],
                "additionalProperties": false
            }),
            effect: Effect::Idempotent,
        }
    }

    /// Of each job its own ability is asked as well.
    fn needs(&self, _arguments: &Value) -> Result<Vec<Need>, OpError> {
        Ok(vec![Need { ability: "crud/read", resource: ResourcePath::all(Namespace::Jobs) }])
    }

    async fn invoke(&self, call: &Invocation<'_>, arguments: Value) -> Result<Output, OpError> {
        let (venue, owner) = (call.venue, &call.caller.owner);
        let action = if arguments["action"] == "cancel" { BatchAction::Cancel } else { BatchAction::Redrive };
        let mut filter = action.narrowed(filter(&arguments, call.caller.reader())?).map_err(|status| {
            let to = if action == BatchAction::Cancel {
                "only open jobs are cancelled"
            } else {
                "only FAILED ones are driven again"
            };
            invalid("status", format!("{} doesn't fit: {to}", status.as_str()))
        })?;
        // What comes while it runs is left alone.
        let until = *filter.until.get_or_insert_with(|| venue.now());
        if arguments["dryRun"] == true {
            let many = batch::count(venue, owner, action, &filter, usize::MAX - 1).await?;
            return Ok(json!({"matched": many, "done": 0, "until": until, "dryRun": true}).into());
        }
        let bad = |text: &str| invalid("cursor", format!("expected the `next` of a batch, got `{text}`"));
        let cursor = arguments["cursor"].as_str();
        let cursor = cursor.map(|text| Cursor::parse(text).ok_or_else(|| bad(text))).transpose()?;
        match (&cursor, arguments["expected"].as_u64()) {
            (Some(_), _) => {}
            (None, None) => {
                return Err(invalid("expected", "ask with `dryRun` how many jobs these are, and say that number here"));
            }
            (None, Some(expected)) => {
                let expected = usize::try_from(expected).unwrap_or(usize::MAX - 1);
                let many = batch::count(venue, owner, action, &filter, expected).await?;
                if many != expected {
                    let many = if many > expected { "more".to_owned() } else { many.to_string() };
                    return Err(OpError::Conflict(format!(
                        "`expected`: {expected} jobs, but there are {many}: nothing was done; ask with `dryRun` again"
                    )));
                }
            }
        }
        let limit = arguments["limit"].as_u64().and_then(|n| usize::try_from(n).ok()).unwrap_or(BATCH);
        let by = (owner, &call.caller.authority);
        let done =
            batch::batch(venue, by, action, &filter, cursor.as_ref(), limit, arguments["reason"].as_str()).await?;
        let mut answer = done.to_json();
        answer["until"] = json!(until);
        Ok(answer.into())
    }
}
