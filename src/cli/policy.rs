//! `trellis policy …`: roots, revocations and approvals of an owner.

use super::client::{Client, ServerArgs};
use super::exit::{Exit, Failure};
use super::output::{field, note};
use super::{CliContext, escape, input};
use clap::Subcommand;
use serde_json::{Value, json};

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
        /// Its id, as `policy show` prints it
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

impl PolicyCommand {
    pub async fn run(self, context: &CliContext) -> Result<Exit, Failure> {
        let (server, operation, asked) = match self {
            Self::Show { server } => (server, "show", json!({})),
            Self::Revoke { path, holder, grant, reason, server } => {
                // No path begins with `[`: this is an array of keys, which may contain a `/`.
                let path = path.map(|path| input::value(&path, !path.starts_with('['))).transpose()?;
                let text = |text: Option<String>| text.map(Value::String);
                let named =
                    [("path", path), ("holder", text(holder)), ("grant", text(grant)), ("reason", text(reason))];
                let named = named.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?)));
                (server, "revoke", Value::Object(named.collect()))
            }
            Self::Restore { id, server } => (server, "restore", json!({"id": id})),
            Self::Approvals { caps, server } => (server, "approvals", json!({"caps": caps})),
            Self::Roots { caps, server } => (server, "roots", json!({"caps": caps})),
        };
        let policy = Client::new(&server)?.run(&format!("v/ops/policy/{operation}"), &asked, None).await?;
        context.out.value(&policy, || format_policy(&policy))?;
        if operation == "revoke" {
            note(&format!("revoked; `trellis policy restore {}` takes it back", field(&policy, "revoked")));
        }
        Ok(Exit::Ok)
    }
}

/// Parses a list of capabilities, `@file` or `-`.
fn capabilities(text: &str) -> Result<Value, String> {
    let expected = "a JSON list of `{with, can}`, e.g. `[{\"with\": \"w\", \"can\": \"crud\"}]`";
    let value = input::value(text, false).map_err(|failure| failure.text)?;
    let is_capability = |cap: &Value| ["with", "can"].iter().all(|key| cap[*key].is_string());
    let fits = value.as_array().is_some_and(|caps| caps.iter().all(is_capability));
    fits.then_some(value).ok_or_else(|| format!("expected {expected}; `trellis policy show` prints what is set"))
}

/// Parses a list of capabilities, or `null` for no limit.
fn roots(text: &str) -> Result<Value, String> {
    if text.trim() == "null" {
        Ok(Value::Null)
    } else {
        capabilities(text).map_err(|e| e.replace("; `", ", or `null` for no limit; `"))
    }
}

fn format_policy(policy: &Value) -> String {
    let mut lines = Vec::new();
    match policy["roots"].as_array() {
        None => lines.push("roots: no limit".to_owned()),
        Some(caps) if caps.is_empty() => lines.push("roots: nothing".to_owned()),
        Some(caps) => {
            lines.extend(caps.iter().map(|cap| format!("root: {} on {}", field(cap, "can"), field(cap, "with"))));
        }
    }
    for cap in policy["approvals"].as_array().into_iter().flatten() {
        lines.push(format!("asks before: {} on {}", field(cap, "can"), field(cap, "with")));
    }
    for revocation in policy["revocations"].as_array().into_iter().flatten() {
        let part = |key: &str, word: &str| match revocation[key].as_str() {
            Some(text) => format!("  {word} {}", escape::escape_data(text)),
            None => String::new(),
        };
        lines.push(format!(
            "revoked {}{}{}{}  by {}{}",
            field(revocation, "id"),
            part("path", "path"),
            part("holder", "holder"),
            part("grant", "grant"),
            field(revocation, "by"),
            part("reason", "because"),
        ));
    }
    for verb in ["stops", "narrows"] {
        lines.extend(format_affected(verb, &policy[verb]));
    }
    lines.join("\n")
}

/// Lists what a revocation affects, one line each.
fn format_affected(verb: &str, found: &Value) -> Vec<String> {
    if found.is_null() {
        return Vec::new();
    }
    let list = |key: &str| found[key].as_array().cloned().unwrap_or_default();
    let mut lines: Vec<String> = Vec::new();
    lines.extend(list("agents").iter().map(|agent| format!("{verb} agent {}", agent.as_str().unwrap_or_default())));
    let whose = |one: &Value| field(one, if one["op"].is_null() { "agentId" } else { "op" });
    let of = |what: &str, one: &Value, key: &str| format!("{verb} {what} {} of {}", field(one, key), whose(one));
    lines.extend(
        list("timers").iter().map(|timer| format!("{}, next {}", of("timer", timer, "timer"), field(timer, "next"))),
    );
    lines.extend(list("jobs").iter().map(|job| {
        let what = if job["parent"].is_null() { "job" } else { "child" };
        format!("{}, {}", of(what, job, "job"), field(job, "status"))
    }));
    lines.extend(list("running").iter().map(|job| {
        let (op, id) = (field(job, "op"), field(job, "job"));
        format!("runs on: job {id} of {op}, which has begun; `trellis job cancel {id}` ends it")
    }));
    if lines.is_empty() {
        lines.push(format!("{verb} nothing that is there now"));
    }
    if found["more"] == true {
        lines.push(format!("{verb} more than is listed: older jobs that were not looked at, or what you may not read"));
    }
    lines
}
