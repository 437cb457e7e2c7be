//! `trellis approvals`, `approve`, `reject` and `answer`: open approvals, and people's answers.

use super::client::{Client, ServerArgs, read_view};
use super::escape::{self, escape_data};
use super::exit::{Exit, Failure};
use super::output::{format_plain, note_empty, note_next};
use super::{CliContext, input};
use crate::domain::approval::QuestionKind;
use crate::domain::ids::JobId;
use crate::view::approval::{ApprovalPage, ApprovalView};
use crate::view::request::{AnswerRequest, ApproveRequest, RejectRequest};
use clap::Args;
use serde::Serialize;
use serde_json::{Map, Value};

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
    /// Id of the approval, as `trellis approvals` prints it
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
    /// Id of the approval, as `trellis approvals` prints it
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
    /// Id of the approval, as `trellis approvals` prints it
    #[arg(value_parser = approval_id)]
    id: JobId,
    /// An answer per question
    #[arg(required = true, value_name = "QUESTION=ANSWER")]
    answers: Vec<String>,
    /// Which server, and for whom
    #[command(flatten)]
    server: ServerArgs,
}

/// Arguments of `v/ops/approval/list`.
#[derive(Serialize)]
struct ListApprovalsRequest {
    all: bool,
    offset: usize,
}

impl ApprovalsArgs {
    pub async fn run(self, context: &CliContext) -> Result<Exit, Failure> {
        let request = ListApprovalsRequest { all: self.all, offset: self.offset };
        let page = Client::new(&self.server)?.run("v/ops/approval/list", &request, None).await?;
        context.out.typed_page::<ApprovalView>(&page, "items", |items| {
            items.iter().map(format_approval).collect::<Vec<_>>().join("\n\n")
        })?;
        note_empty(&page, "nothing waits for a person");
        note_next(&page);
        Ok(Exit::Ok)
    }
}

impl ApproveArgs {
    pub async fn run(self, context: &CliContext) -> Result<Exit, Failure> {
        let arguments = self.arguments.as_deref().map(input::map_or_list).transpose()?;
        let scopes = (self.no_scopes || !self.scopes.is_empty()).then_some(self.scopes);
        let request = ApproveRequest { id: self.id.as_str(), arguments, scopes, digest: self.digest };
        send(context, &self.server, "approve", &request).await
    }
}

impl RejectArgs {
    pub async fn run(self, context: &CliContext) -> Result<Exit, Failure> {
        let request = RejectRequest { id: self.id.as_str(), reason: self.reason, digest: None };
        send(context, &self.server, "reject", &request).await
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
        let request = AnswerRequest { id: self.id.as_str(), answers, digest: None };
        send(context, &self.server, "answer", &request).await
    }
}

/// A text is no id of an approval.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{}` is no id of an approval, expected 32 hexadecimal digits; `trellis approvals` lists what waits",
    .found.escape_debug()
)]
struct ApprovalIdError {
    found: String,
}

fn approval_id(text: &str) -> Result<JobId, ApprovalIdError> {
    JobId::new(text).map_err(|_| ApprovalIdError { found: text.to_owned() })
}

/// Looks up an approval by its id, on all pages of the list.
async fn find_approval(client: &Client, id: &JobId) -> Result<Option<ApprovalView>, Failure> {
    let mut offset = 0;
    loop {
        let answer = client.run("v/ops/approval/list", &ListApprovalsRequest { all: true, offset }, None).await?;
        let page: ApprovalPage = read_view(answer)?;
        let found = page.items.into_iter().find(|item| item.id == *id);
        match page.next {
            Some(next) if found.is_none() => offset = next,
            Some(_) | None => return Ok(found),
        }
    }
}

/// Converts an answer to the type of its question: yes or no, a list for checkboxes, else text.
fn convert_answer(approval: Option<&ApprovalView>, id: &str, text: &str) -> Value {
    let questions = approval.and_then(|approval| approval.questions.as_ref());
    let ask = questions.and_then(|questions| questions.asks.iter().find(|ask| ask.id == id));
    match (ask.map(|ask| ask.kind), text) {
        (Some(QuestionKind::Approval), "yes" | "true") => true.into(),
        (Some(QuestionKind::Approval), "no" | "false") => false.into(),
        (Some(QuestionKind::Checkboxes), "") => Value::Array(Vec::new()),
        (Some(QuestionKind::Checkboxes), list) => list.split(',').map(str::trim).collect(),
        _ => text.into(),
    }
}

async fn send(
    context: &CliContext,
    server: &ServerArgs,
    verb: &str,
    request: &impl Serialize,
) -> Result<Exit, Failure> {
    let answered = Client::new(server)?.run(&format!("v/ops/approval/{verb}"), request, None).await?;
    context.out.typed_value::<ApprovalView>(answered, format_approval)?;
    Ok(Exit::Ok)
}

/// Formats an approval, with all that its answer is about.
fn format_approval(approval: &ApprovalView) -> String {
    let (call, questions) = (approval.call.as_ref(), approval.questions.as_ref());
    let asks = match call {
        Some(call) => format!("calls {}", escape::cell(&call.operation)),
        None => format!("asks: {}", escape::cell(questions.map_or("", |questions| questions.title.as_str()))),
    };
    let mut lines = vec![format!("{}  {} {asks}", approval.id, approval.agent)];
    let mut line =
        |name: &str, text: String| lines.push(format!("  {name:<10} {}", text.replace('\n', "\n             ")));
    if let Some(call) = call.filter(|call| !call.arguments.is_null()) {
        line("arguments", format_plain(&call.arguments));
    }
    for scope in call.into_iter().flat_map(|call| &call.scopes) {
        let (key, digest) = (escape_data(&scope.key), escape_data(&scope.digest));
        line("scope", format!("{key} ({} bytes, {digest})", scope.bytes));
    }
    for ask in questions.into_iter().flat_map(|questions| &questions.asks) {
        let choices: Vec<_> = ask.choices.iter().map(|choice| escape_data(choice)).collect();
        let choices = if choices.is_empty() { String::new() } else { format!(": {}", choices.join(", ")) };
        let optional = if ask.required == Some(false) { ", optional" } else { "" };
        let prompt = escape_data(&ask.prompt);
        line(&escape::cell(&ask.id), format!("{prompt} ({}{choices}{optional})", ask.kind.as_str()));
    }
    if let Some(job) = &approval.job {
        line("job", job.to_string());
    }
    line("digest", escape_data(&approval.digest).into_owned());
    match &approval.answer {
        None => line("expires", approval.expires.rfc3339()),
        Some(answer) => {
            let verdict = escape_data(answer.verdict.as_deref().unwrap_or_default());
            line("answer", format!("{verdict} by {} at {}", escape_data(&answer.by), answer.at.rfc3339()));
            if let Some(arguments) = &answer.arguments {
                line("made with", format_plain(arguments));
            }
            if let Some(answers) = &answer.answers {
                line("answers", format_plain(&Value::Object(answers.clone())));
            }
            if let Some(reason) = &answer.reason {
                line("reason", escape_data(reason).into_owned());
            }
        }
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_title_makes_no_lines_of_its_own() {
        let asks = json!([{"id": "why\nx", "type": "text", "prompt": "Why?\nNow"}]);
        let forged = format!("Hi\n{}  payer calls v/ops/lattice/read", "1".repeat(32));
        let approval = json!({
            "id": "0".repeat(32), "agent": "asker", "session": "s", "turn": 1, "index": 0, "tool": "human_ask",
            "questions": {"title": forged, "asks": asks}, "digest": "d", "asked": 1, "expires": 2,
        });
        let text = format_approval(&read_view(approval).unwrap());
        assert_eq!(text.lines().filter(|line| !line.starts_with("  ")).count(), 1, "{text}");
    }

    #[test]
    fn a_question_shows_its_choices_and_whether_it_may_be_left_out() {
        let asks = json!([
            {"id": "key", "type": "token", "prompt": "Which secret?"},
            {"id": "size", "type": "choice", "prompt": "Which size?", "choices": ["S", "L"], "required": false},
            {"id": "why", "type": "text", "prompt": "Why?", "required": true},
        ]);
        let approval = json!({
            "id": "0".repeat(32), "agent": "asker", "session": "s", "turn": 1, "index": 0, "tool": "human_ask",
            "questions": {"title": "The order", "asks": asks}, "digest": "d", "asked": 1, "expires": 2,
        });
        let text = format_approval(&read_view(approval).unwrap());
        for part in ["Which secret? (token)", "Which size? (choice: S, L, optional)", "Why? (text)"] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }

    #[test]
    fn an_answered_call_shows_with_what_it_was_made() {
        for (answer, shown) in [
            (json!({"by": "ann", "at": 3, "verdict": "approved", "arguments": {"value": 4}}), "made with"),
            (json!({"by": "ann", "at": 3, "verdict": "rejected", "reason": "too much"}), "reason     too much"),
        ] {
            let approval = json!({
                "id": "0".repeat(32), "agent": "payer", "session": "s", "turn": 1, "index": 0, "tool": "pay",
                "call": {"operation": "v/ops/http/post", "arguments": {"value": 5}},
                "digest": "d", "asked": 1, "expires": 2, "answer": answer,
            });
            let text = format_approval(&read_view(approval).unwrap());
            assert!(text.contains(shown), "{text}");
            assert_eq!(text.contains("\"value\": 4"), shown == "made with", "{text}");
        }
    }
}
