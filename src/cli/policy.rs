//! `trellis policy …`: roots, revocations and approvals of an owner.

use super::client::{Client, ServerArgs, read_view};
use super::exit::{Exit, Failure};
use super::output::note;
use super::{CliContext, escape, input};
use crate::domain::authority::Capability;
use crate::view::policy::{PolicyView, ReachedJobView, ReachedTimerView, RevocationReachView, RevocationView};
use crate::view::request::IdRequest;
use crate::view::to_json;
use clap::Subcommand;
use serde::Serialize;
use serde_json::{Value, json};
use std::error::Error;
use std::fmt;

/// What an owner's agents may do at most, and taking back what was granted.
#[derive(Debug, Subcommand)]
pub(crate) enum PolicyCommand {
    /// Print the roots and the revocations
    #[command(after_help = "Example:\n  trellis policy show")]
    Show {
        /// Which server, and for whom
        #[command(flatten)]
        server: ServerArgs,
    },
    /// Take something back; all that is named must match
    ///
    /// Holds from the next check on: a turn that is running already can't commit what is revoked.
    #[command(
        after_help = "Examples:\n  trellis policy revoke --path w/payroll --reason 'audit'\n  trellis policy revoke --holder agent:scout\n  trellis policy revoke --grant 0123456789abcdef0123456789abcdef"
    )]
    Revoke {
        /// A path, or a JSON array of keys, with everything below it
        #[arg(long, value_name = "PATH")]
        path: Option<String>,
        /// Only from this holder: a caller, or `agent:<id>` and what it handed on
        #[arg(long, value_name = "HOLDER")]
        holder: Option<String>,
        /// Only from this grant: a token's id or a job, and what was handed on under it
        #[arg(long, value_name = "ID")]
        grant: Option<String>,
        /// Why, for those who look later
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
        /// Which server, and for whom
        #[command(flatten)]
        server: ServerArgs,
    },
    /// Take a revocation back
    #[command(after_help = "Example:\n  trellis policy restore 0197c8f2-6d1e-7000-8000-000000000000")]
    Restore {
        /// Id of the revocation, as `policy show` prints it
        id: String,
        /// Which server, and for whom
        #[command(flatten)]
        server: ServerArgs,
    },
    /// Set what anything of this owner may do at most; `null` = no limit
    #[command(after_help = "Example:\n  trellis policy roots '[{\"with\": \"w\", \"can\": \"crud\"}]'")]
    Roots {
        /// A JSON list of `{with, can}`, or `null`
        #[arg(value_parser = roots)]
        caps: Value,
        /// Which server, and for whom
        #[command(flatten)]
        server: ServerArgs,
    },
    /// Set what calls wait for a person: all that need any of it
    #[command(after_help = "Example:\n  trellis policy approvals '[{\"with\": \"w/prod\", \"can\": \"crud/write\"}]'")]
    Approvals {
        /// A JSON list of `{with, can}`; `[]` = none
        #[arg(value_parser = capabilities)]
        caps: Value,
        /// Which server, and for whom
        #[command(flatten)]
        server: ServerArgs,
    },
}

/// Arguments of `v/ops/policy/revoke`.
#[derive(Serialize)]
struct RevokeRequest {
    /// Path as text, or as an array of keys.
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    holder: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    grant: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

/// Arguments of `v/ops/policy/roots` and `v/ops/policy/approvals`.
#[derive(Serialize)]
struct SetCapabilitiesRequest {
    /// List of capabilities `{with, can}`; null is no limit.
    caps: Value,
}

impl PolicyCommand {
    pub async fn run(self, context: &CliContext) -> Result<Exit, Failure> {
        let (server, operation, asked) = match self {
            Self::Show { server } => (server, "show", json!({})),
            Self::Revoke { path, holder, grant, reason, server } => {
                // No path begins with `[`: this is an array of keys, which may contain a `/`.
                let read = |path: &str| {
                    if path.starts_with('[') { input::map_or_list(path) } else { input::value(path, true) }
                };
                let path = path.as_deref().map(read).transpose()?;
                (server, "revoke", to_json(&RevokeRequest { path, holder, grant, reason }))
            }
            Self::Restore { id, server } => (server, "restore", to_json(&IdRequest { id: &id })),
            Self::Approvals { caps, server } => (server, "approvals", to_json(&SetCapabilitiesRequest { caps })),
            Self::Roots { caps, server } => (server, "roots", to_json(&SetCapabilitiesRequest { caps })),
        };
        let answer = Client::new(&server)?.run(&format!("v/ops/policy/{operation}"), &asked, None).await?;
        let policy: PolicyView = read_view(answer.clone())?;
        context.out.value(&answer, || format_policy(&policy))?;
        for warning in &policy.warnings {
            note(&format!("warning: {}", escape::cell(warning)));
        }
        if let Some(revoked) = &policy.revoked {
            note(&format!("revoked; `trellis policy restore {revoked}` takes it back (operators alone may)"));
        }
        Ok(Exit::Ok)
    }
}

/// Reason why an argument is no list of capabilities.
#[derive(Debug, Clone, PartialEq, Eq)]
struct CapabilityListError {
    fault: CapabilityListFault,
    /// The argument may also be `null`, which the text says.
    allows_null: bool,
}

impl fmt::Display for CapabilityListError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.fault.to_string();
        f.write_str(&if self.allows_null { text.replace("; `", ", or `null` for no limit; `") } else { text })
    }
}

impl Error for CapabilityListError {}

/// Fault of an argument that is no list of capabilities.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum CapabilityListFault {
    /// The argument can't be read as JSON.
    #[error(transparent)]
    Unreadable(Failure),
    /// The JSON has another form.
    #[error(
        "expected a JSON list of `{{with, can}}`, e.g. `[{{\"with\": \"w\", \"can\": \"crud\"}}]`; `trellis policy \
         show` prints what is set"
    )]
    Form,
}

impl From<CapabilityListFault> for CapabilityListError {
    fn from(fault: CapabilityListFault) -> Self {
        Self { fault, allows_null: false }
    }
}

/// Parses a list of capabilities, `@file` or `-`.
fn capabilities(text: &str) -> Result<Value, CapabilityListError> {
    let value = input::map_or_list(text).map_err(CapabilityListFault::Unreadable)?;
    let is_capability = |cap: &Value| ["with", "can"].iter().all(|key| cap[*key].is_string());
    let fits = value.as_array().is_some_and(|caps| caps.iter().all(is_capability));
    fits.then_some(value).ok_or_else(|| CapabilityListFault::Form.into())
}

/// Parses a list of capabilities, or `null` for no limit.
fn roots(text: &str) -> Result<Value, CapabilityListError> {
    if text.trim() == "null" {
        Ok(Value::Null)
    } else {
        capabilities(text).map_err(|error| CapabilityListError { allows_null: true, ..error })
    }
}

fn format_policy(policy: &PolicyView) -> String {
    let mut lines = Vec::new();
    match policy.roots.as_deref() {
        None => lines.push("roots: no limit".to_owned()),
        Some([]) => lines.push("roots: nothing".to_owned()),
        Some(caps) => lines.extend(caps.iter().map(|cap| format!("root: {}", format_capability(cap)))),
    }
    lines.extend(policy.approvals.iter().map(|cap| format!("asks before: {}", format_capability(cap))));
    lines.extend(policy.revocations.iter().map(format_revocation));
    for (verb, reach) in [("stops", &policy.stops), ("narrows", &policy.narrows)] {
        lines.extend(reach.iter().flat_map(|reach| format_affected(verb, reach)));
    }
    lines.join("\n")
}

fn format_capability(Capability { with, can }: &Capability) -> String {
    format!("{} on {}", escape::escape_data(can), escape::escape_data(with))
}

fn format_revocation(revocation: &RevocationView) -> String {
    let RevocationView { id, path, holder, grant, reason, by, .. } = revocation;
    let part = |word: &str, text: &Option<String>| match text {
        Some(text) => format!("  {word} {}", escape::cell(text)),
        None => String::new(),
    };
    format!(
        "revoked {}{}{}{}  by {}{}",
        escape::escape_data(id),
        part("path", path),
        part("holder", holder),
        part("grant", grant),
        escape::escape_data(by),
        part("because", reason),
    )
}

/// Lists what a revocation affects, one line each.
fn format_affected(verb: &str, reach: &RevocationReachView) -> Vec<String> {
    let mut lines: Vec<String> = reach.agents.iter().map(|agent| format!("{verb} agent {agent}")).collect();
    lines.extend(reach.timers.iter().map(|ReachedTimerView { timer, agent_id, next }| {
        format!("{verb} timer {timer} of {agent_id}, next {}", next.as_deref().unwrap_or_default())
    }));
    lines.extend(reach.jobs.iter().map(|job| {
        let what = if job.parent.is_none() { "job" } else { "child" };
        format!("{verb} {what} {} of {}, {}", job.job, format_subject(job), job.status.as_str())
    }));
    lines.extend(reach.running.iter().map(|job| {
        let id = &job.job;
        format!("runs on: job {id} of {}, which has begun; `trellis job cancel {id}` ends it", format_subject(job))
    }));
    if lines.is_empty() {
        lines.push(format!("{verb} nothing that is there now"));
    }
    if reach.more {
        lines.push(format!("{verb} more than is listed: older jobs that were not looked at, or what you may not read"));
    }
    lines
}

/// Names the operation that a job runs, or the agent that serves it.
fn format_subject(job: &ReachedJobView) -> String {
    match (&job.op, &job.agent_id) {
        (Some(op), _) => escape::escape_data(op).into_owned(),
        (None, Some(agent)) => agent.to_string(),
        (None, None) => String::new(),
    }
}
