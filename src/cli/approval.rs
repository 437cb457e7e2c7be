//! `trellis approvals`, `approve`, `reject` and `answer`: open approvals, and people's answers.

use super::client::{Client, ServerArgs};
use super::exit::{Exit, Failure};
use super::output::{field, format_plain, note, note_next, time};
use super::{CliContext, input};
use crate::domain::ids::JobId;
use clap::Args;
use serde_json::{Map, Value, json};

/// What agents wait for.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  trellis approvals\n  trellis approvals --all --output ndjson")]
pub(crate) struct ApprovalsArgs {
    /// Those that are answered, too
    #[arg(long)]
    all: bool,
    /// Approvals to skip
    #[arg(long, value_name = "N", default_value_t = 0)]
    offset: usize,
    /// Which server, and for whom
    #[command(flatten)]
    server: ServerArgs,
}

/// Approve a call.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  trellis approve 0123456789abcdef0123456789abcdef\n  trellis approve 0123456789abcdef0123456789abcdef --arguments '{\"amount\": 5}'"
)]
pub(crate) struct ApproveArgs {
    /// Its id, as `trellis approvals` prints it
    #[arg(value_parser = approval_id)]
    id: JobId,
    /// Other arguments in the place of those that are shown: JSON, `@file` or `-`
    #[arg(long, value_name = "JSON")]
    arguments: Option<String>,
    /// Only this section of the caller's context goes with it; may be repeated, `--no-scopes`: none
    #[arg(long = "scope", value_name = "KEY", conflicts_with = "no_scopes")]
    scopes: Vec<String>,
    /// No section of the caller's context goes with it
    #[arg(long)]
    no_scopes: bool,
    /// What was shown; refused when it is something else by now
    #[arg(long, value_name = "SHA256")]
    digest: Option<String>,
    /// Which server, and for whom
    #[command(flatten)]
    server: ServerArgs,
}

/// Reject a call, or decline to answer.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  trellis reject 0123456789abcdef0123456789abcdef --reason 'too expensive'")]
pub(crate) struct RejectArgs {
    /// Its id, as `trellis approvals` prints it
    #[arg(value_parser = approval_id)]
    id: JobId,
    /// Why, for the agent
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Which server, and for whom
    #[command(flatten)]
    server: ServerArgs,
}

/// Answer an agent's questions.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  trellis answer 0123456789abcdef0123456789abcdef size=L sure=true 'why=it fits'")]
pub(crate) struct AnswerArgs {
    /// Its id, as `trellis approvals` prints it
    #[arg(value_parser = approval_id)]
    id: JobId,
    /// An answer per question
    #[arg(required = true, value_name = "QUESTION=ANSWER")]
    answers: Vec<String>,
    /// Which server, and for whom
    #[command(flatten)]
    server: ServerArgs,
}

impl ApprovalsArgs {
    pub async fn run(self, context: &CliContext) -> Result<Exit, Failure> {
        let asked = json!({"all": self.all, "offset": self.offset});
        let page = Client::new(&self.server)?.run("v/ops/approval/list", &asked, None).await?;
        context.out.page(&page, "items", |items| items.iter().map(format_approval).collect::<Vec<_>>().join("\n\n"))?;
        if page["total"] == 0 {
            note("nothing waits for a person");
        }
        note_next(&page);
        Ok(Exit::Ok)
    }
}

impl ApproveArgs {
    pub async fn run(self, context: &CliContext) -> Result<Exit, Failure> {
        let mut asked = json!({"id": self.id});
        if let Some(arguments) = &self.arguments {
            asked["arguments"] = input::value(arguments, false)?;
        }
        if self.no_scopes || !self.scopes.is_empty() {
            asked["scopes"] = json!(self.scopes);
        }
        if let Some(digest) = self.digest {
            asked["digest"] = digest.into();
        }
        send(context, &self.server, "approve", &asked).await
    }
}

impl RejectArgs {
    pub async fn run(self, context: &CliContext) -> Result<Exit, Failure> {
        let mut asked = json!({"id": self.id});
        if let Some(reason) = self.reason {
            asked["reason"] = reason.into();
        }
        send(context, &self.server, "reject", &asked).await
    }
}

impl AnswerArgs {
    pub async fn run(self, context: &CliContext) -> Result<Exit, Failure> {
        let client = Client::new(&self.server)?;
        let known = find_approval(&client, &self.id).await?;
        let mut answers = Map::new();
        for answer in &self.answers {
            let (id, text) = answer
                .split_once('=')
                .ok_or_else(|| Failure::usage(format!("`{answer}`: expected `question=answer`, e.g. `size=L`")))?;
            answers.insert(id.to_owned(), convert_answer(known.as_ref(), id, text));
        }
        send(context, &self.server, "answer", &json!({"id": self.id, "answers": answers})).await
    }
}

fn approval_id(text: &str) -> Result<JobId, String> {
    let illegal = || {
        format!(
            "`{}` is no id of an approval, expected 32 hexadecimal digits; `trellis approvals` lists what waits",
            text.escape_debug()
        )
    };
    JobId::new(text).map_err(|_| illegal())
}

/// Looks up an approval by its id, on all pages of the list.
async fn find_approval(client: &Client, id: &JobId) -> Result<Option<Value>, Failure> {
    let mut offset = json!(0);
    loop {
        let mut page = client.run("v/ops/approval/list", &json!({"all": true, "offset": offset}), None).await?;
        let items = page["items"].as_array_mut().map(std::mem::take).unwrap_or_default();
        let found = items.into_iter().find(|item| item["id"] == id.as_str());
        if found.is_some() || page["next"].is_null() {
            return Ok(found);
        }
        offset = page["next"].take();
    }
}

/// Converts an answer to the type of its question: yes or no, a list for checkboxes, else text.
fn convert_answer(approval: Option<&Value>, id: &str, text: &str) -> Value {
    let asks = approval.and_then(|approval| approval["questions"]["asks"].as_array());
    let ask = asks.into_iter().flatten().find(|ask| ask["id"] == id);
    match (ask.and_then(|ask| ask["type"].as_str()), text) {
        (Some("approval"), "yes" | "true") => true.into(),
        (Some("approval"), "no" | "false") => false.into(),
        (Some("checkboxes"), "") => json!([]),
        (Some("checkboxes"), list) => list.split(',').map(str::trim).collect(),
        _ => text.into(),
    }
}

async fn send(context: &CliContext, server: &ServerArgs, verb: &str, asked: &Value) -> Result<Exit, Failure> {
    let answered = Client::new(server)?.run(&format!("v/ops/approval/{verb}"), asked, None).await?;
    context.out.value(&answered, || format_approval(&answered))?;
    Ok(Exit::Ok)
}

/// Formats an approval, with all that its answer is about.
fn format_approval(approval: &Value) -> String {
    let (call, questions) = (&approval["call"], &approval["questions"]);
    let asks = if call.is_null() {
        format!("asks: {}", field(questions, "title"))
    } else {
        format!("calls {}", field(call, "operation"))
    };
    let mut lines = vec![format!("{}  {} {asks}", field(approval, "id"), field(approval, "agent"))];
    let mut line =
        |name: &str, text: String| lines.push(format!("  {name:<10} {}", text.replace('\n', "\n             ")));
    if !call["arguments"].is_null() {
        line("arguments", format_plain(&call["arguments"]));
    }
    for scope in call["scopes"].as_array().into_iter().flatten() {
        line("scope", format!("{} ({} bytes, {})", field(scope, "key"), field(scope, "bytes"), field(scope, "digest")));
    }
    for ask in questions["asks"].as_array().into_iter().flatten() {
        let choices: Vec<_> = ask["choices"].as_array().into_iter().flatten().map(format_plain).collect();
        let choices = if choices.is_empty() { String::new() } else { format!(": {}", choices.join(", ")) };
        let optional = if ask["required"] == false { ", optional" } else { "" };
        line(&field(ask, "id"), format!("{} ({}{choices}{optional})", field(ask, "prompt"), field(ask, "type")));
    }
    if !approval["job"].is_null() {
        line("job", field(approval, "job"));
    }
    line("digest", field(approval, "digest"));
    let answer = &approval["answer"];
    if answer.is_null() {
        line("expires", time(&approval["expires"]));
    } else {
        line("answer", format!("{} by {} at {}", field(answer, "verdict"), field(answer, "by"), time(&answer["at"])));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_shows_its_choices_and_whether_it_may_be_left_out() {
        let asks = json!([
            {"id": "key", "type": "token", "prompt": "Which secret?"},
            {"id": "size", "type": "choice", "prompt": "Which size?", "choices": ["S", "L"], "required": false},
            {"id": "why", "type": "text", "prompt": "Why?", "required": true},
        ]);
        let text =
            format_approval(&json!({"id": "a1", "agent": "asker", "questions": {"title": "The order", "asks": asks}}));
        for part in ["Which secret? (token)", "Which size? (choice: S, L, optional)", "Why? (text)"] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }
}
