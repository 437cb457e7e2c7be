//! The page of one turn: what its model saw, part by part, what it said, and what its calls did.

use super::figures::{TimeText, count_text, duration_text};
use super::job::{PageFact, turn_address};
use super::page::{PageFrame, plain_text, render};
use super::prompt_parts::{ComparedLedger, PromptParts};
use super::text::{Passage, sentence, size_text, summary};
use crate::domain::chat::ChatMessage;
use crate::domain::digits::group_digits;
use crate::domain::session::CallRecord;
use crate::http::Api;
use crate::http::extract::{QueryParams, RequestCaller};
use crate::http::problem::Problem;
use crate::http::turns::{TimelinePosition, read_turn, read_turns};
use crate::venue::ledger::turn_list::{TurnFilter, TurnPageRange};
use crate::view::job::error_code_name;
use crate::view::ledger::{ModelRequestView, TurnCallView, TurnMessageView, TurnRecordView, TurnView};
use crate::view::to_json;
use askama::Template;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;

/// Characters of a message by which people find it.
const BEGINNING_CHARACTERS: usize = 70;

#[derive(Template)]
#[template(path = "turn.html", config = "src/http/console/askama.toml")]
struct TurnHtml {
    frame: PageFrame,
    name: String,
    agent: String,
    session: String,
    /// Address of this turn without a query.
    address: String,
    /// Address of the turn before; empty for the first one.
    before: String,
    after: String,
    job: Option<String>,
    facts: Vec<PageFact>,
    /// Reasons why parts of the turn are not shown.
    notes: Vec<String>,
    heard: Vec<Passage>,
    replies: Vec<ReplyShown>,
    calls: Vec<CallCard>,
    parts: Option<PromptParts>,
    /// Number of the turn that the parts are compared with.
    against: Option<u64>,
    prompt: Option<PromptText>,
}

impl TurnHtml {
    /// Returns the address of its prompt or its record as plain text.
    fn raw_address(&self, part: &str) -> String {
        format!("{}?raw={part}", self.address)
    }
}

/// A text of the model, with its reasoning.
struct ReplyShown {
    text: Passage,
    reasoning: Option<Passage>,
}

/// A call with its arguments and its result.
struct CallCard {
    tool: String,
    operation: String,
    outcome: String,
    /// Class of the outcome's colour.
    class: &'static str,
    note: String,
    arguments: Passage,
    result: Option<Passage>,
}

/// The exact request to the model.
pub(super) struct PromptText {
    pub(super) system: Passage,
    pub(super) messages: Vec<PromptMessage>,
    pub(super) tools: Vec<PromptTool>,
    pub(super) model: Passage,
}

/// A message of the request.
pub(super) struct PromptMessage {
    pub(super) role: &'static str,
    /// Tool of a result, or names of the called tools.
    pub(super) about: String,
    pub(super) size: String,
    pub(super) beginning: String,
    pub(super) text: Passage,
}

/// A tool that was offered.
pub(super) struct PromptTool {
    pub(super) name: String,
    pub(super) description: Passage,
    pub(super) schema: Passage,
}

/// `GET /agents/{id}/turns/{session}/{turn}`: one turn; with `raw` its prompt or its record as plain text.
pub(in crate::http) async fn turn(
    State(api): State<Api>,
    who: RequestCaller,
    Path((id, session, turn)): Path<(String, String, u64)>,
    asked: QueryParams,
) -> Result<Response, Problem> {
    let position = TimelinePosition { agent: &id, session: &session, turn };
    let shown = read_turn(&api, &who, position, true).await?;
    if let Some(part) = asked.text("raw") {
        return raw_part(&shown, part);
    }
    let against = asked.number("against")?.or(turn.checked_sub(1)).filter(|other| *other > 0 && *other != turn);
    let other = match against {
        Some(number) => read_turn(&api, &who, TimelinePosition { turn: number, ..position }, false).await.ok(),
        None => None,
    };
    let mut page = turn_page(&api, &who, &shown, other.as_ref());
    if newest_turn(&api, &who, &shown).await? <= turn {
        page.after.clear();
    }
    Ok(render(StatusCode::OK, &page))
}

/// Returns the number of the newest turn of the session.
async fn newest_turn(api: &Api, who: &RequestCaller, shown: &TurnView) -> Result<u64, Problem> {
    let filter = TurnFilter { session: Some(shown.session.clone()), ..TurnFilter::default() };
    let range = TurnPageRange { after: None, limit: 1 };
    let newest = read_turns(api, who, &shown.agent, &filter, range).await?;
    Ok(newest.turns.first().map_or(shown.turn, |row| row.record.turn))
}

fn raw_part(shown: &TurnView, part: &str) -> Result<Response, Problem> {
    let value = match part {
        "prompt" => shown.request().map(to_json),
        "record" => shown.record.as_ref().map(to_json),
        _ => return Err(Problem::bad_request("query `raw`: expected `prompt` or `record`")),
    };
    let missing = || Problem::not_found(format!("turn `{}` has no {part} for you", shown.name));
    Ok(plain_text(format!("{:#}", value.ok_or_else(missing)?)))
}

fn turn_page(api: &Api, who: &RequestCaller, shown: &TurnView, other: Option<&TurnView>) -> TurnHtml {
    let record = shown.record.as_ref();
    let address = |turn| turn_address(&shown.agent, &shown.session, turn);
    let compared = other.and_then(|other| {
        let ledger = other.ledger.as_ref()?;
        Some(ComparedLedger { ledger, name: format!("turn {}", other.turn) })
    });
    TurnHtml {
        frame: PageFrame::new(who, "/agents", format!("Turn {} of {}", shown.turn, shown.agent)),
        name: shown.name.clone(),
        agent: shown.agent.to_string(),
        session: shown.session.to_string(),
        address: address(shown.turn),
        before: shown.turn.checked_sub(1).filter(|turn| *turn > 0).map(address).unwrap_or_default(),
        after: address(shown.turn + 1),
        job: record.and_then(|record| record.job.as_ref()).map(ToString::to_string),
        facts: record.map(|record| facts(api, shown, record)).unwrap_or_default(),
        notes: notes(shown),
        heard: record.iter().flat_map(|record| &record.heard).map(|heard| Passage::of_text(&heard.text)).collect(),
        replies: record.map(replies).unwrap_or_default(),
        calls: record.map(calls).unwrap_or_default(),
        against: other.filter(|_| compared.is_some()).map(|other| other.turn),
        parts: shown.ledger.as_ref().map(|ledger| PromptParts::new(ledger, compared, &address(shown.turn))),
        prompt: shown.request().map(prompt_text),
    }
}

fn facts(api: &Api, shown: &TurnView, record: &TurnRecordView) -> Vec<PageFact> {
    let begun = TimeText::new(record.start, api.venue.now());
    let usage = &record.usage;
    let tokens = format!(
        "{} in ({} from the cache), {} out ({} of reasoning)",
        group_digits(usage.input),
        group_digits(usage.cache_read),
        group_digits(usage.output),
        group_digits(usage.reasoning)
    );
    let failed: Vec<String> = record.failed_models.iter().map(|of| format!("{}: {}", of.model, of.reason)).collect();
    let ended: Vec<String> = record.ended.iter().map(|(job, status)| format!("{job} {}", status.as_str())).collect();
    let sent = shown.ledger.as_ref().and_then(|ledger| ledger.sent.as_ref());
    let list = |items: Vec<String>| (!items.is_empty()).then(|| items.join(", "));
    let facts = [
        PageFact::new("Model", Some(&record.model)),
        PageFact::new("Models without a reply", list(failed)),
        PageFact::new("Failed", record.failed.and_then(error_code_name)),
        PageFact::new("Begun", Some(begun.ago())),
        PageFact::new("Took", Some(duration_text(record.end.elapsed_since(record.start)))),
        PageFact::new("Tokens", Some(tokens)),
        PageFact::new("Worker", Some(&record.worker).filter(|worker| !worker.is_empty())),
        PageFact::new("Configuration", Some(format!("version {}", record.config_version))),
        PageFact::new("Ended", list(ended)),
        PageFact::new("Wire format", sent.and_then(|sent| sent.format.as_ref())),
        PageFact::new("Request", sent.and_then(|sent| sent.error.as_ref())),
        PageFact::new("SHA-256 of the prompt", Some(&record.prompt).filter(|hash| !hash.is_empty())),
    ];
    facts.into_iter().flatten().collect()
}

/// Returns why parts of a turn are not shown, a sentence each.
fn notes(shown: &TurnView) -> Vec<String> {
    let notes = [
        shown.hidden.then(|| "The turn ran under authority that you do not hold: its texts are hidden.".to_owned()),
        shown.record.is_none().then(|| "The record of the turn is gone.".to_owned()),
        shown.ledger.is_none().then(|| "There is no ledger: the turn ended before there was a prompt.".to_owned()),
        shown.withheld.clone(),
        shown.erased.as_ref().map(|gone| format!("Content of these parts is gone: {}.", gone.join(", "))),
    ];
    let mut notes: Vec<String> = notes.into_iter().flatten().map(|note| sentence(&note)).collect();
    if let Some(ledger) = &shown.ledger {
        let lists = [("Placeholders without a value", &ledger.unresolved), ("Values that were cut", &ledger.cut)];
        notes.extend(
            lists
                .iter()
                .filter(|(_, names)| !names.is_empty())
                .map(|(what, names)| summary(&format!("{what}: {}", names.join(", ")))),
        );
        notes.extend(ledger.refused.iter().map(|(tool, why)| summary(&format!("Tool {tool} was not offered: {why}"))));
        notes.extend(ledger.reports.iter().map(|(place, why)| summary(&format!("{place}: {why}"))));
    }
    notes
}

fn replies(record: &TurnRecordView) -> Vec<ReplyShown> {
    let texts = record.said.iter().filter_map(|message| match message {
        TurnMessageView::Assistant { text, reasoning, .. } if !text.is_empty() || reasoning.is_some() => {
            let reasoning = reasoning.as_ref().map(|reasoning| Passage::of_value(&to_json(&reasoning.items)));
            Some(ReplyShown { text: Passage::of_text(text), reasoning })
        }
        TurnMessageView::User { text, .. } => Some(ReplyShown { text: Passage::of_text(text), reasoning: None }),
        TurnMessageView::Assistant { .. } | TurnMessageView::Tool { .. } => None,
    });
    texts.collect()
}

fn calls(record: &TurnRecordView) -> Vec<CallCard> {
    let asked = record.said.iter().flat_map(|message| match message {
        TurnMessageView::Assistant { calls, .. } => calls.as_slice(),
        TurnMessageView::User { .. } | TurnMessageView::Tool { .. } => &[],
    });
    asked.enumerate().map(|(at, call)| call_card(record, call, record.calls.get(at))).collect()
}

fn call_card(record: &TurnRecordView, call: &TurnCallView, made: Option<&CallRecord>) -> CallCard {
    let result = record.said.iter().find_map(|message| match message {
        TurnMessageView::Tool { call: id, text, .. } if *id == call.id => Some(Passage::of_text(text)),
        _ => None,
    });
    let outcome = made.map_or("not made", |made| made.outcome.as_str());
    CallCard {
        tool: summary(&call.name),
        operation: made.map(|made| summary(&made.operation)).unwrap_or_default(),
        outcome: outcome.to_owned(),
        class: match outcome {
            "ok" => "complete",
            "awaiting approval" => "waiting",
            "denied" | "refused scope" => "denied",
            _ => "failed",
        },
        note: made.and_then(|made| made.note.as_deref()).map(summary).unwrap_or_default(),
        arguments: Passage::of_value(&call.arguments),
        result,
    }
}

/// Makes the texts of a request.
pub(super) fn prompt_text(request: &ModelRequestView) -> PromptText {
    PromptText {
        system: Passage::of_text(&request.system),
        messages: request.messages.iter().map(prompt_message).collect(),
        tools: request
            .tools
            .iter()
            .map(|tool| PromptTool {
                name: summary(&tool.name),
                description: Passage::of_text(&tool.description),
                schema: Passage::of_value(&tool.schema),
            })
            .collect(),
        model: Passage::of_value(&request.model),
    }
}

fn prompt_message(message: &ChatMessage) -> PromptMessage {
    let shown = |role, about: String, text: &str| PromptMessage {
        role,
        about: summary(&about),
        size: size_text(text.len()),
        beginning: beginning_of(text),
        text: Passage::of_text(text),
    };
    match message {
        ChatMessage::User { text, attachments } if attachments.is_empty() => shown("user", String::new(), text),
        ChatMessage::User { text, attachments } => {
            shown("user", count_text(attachments.len() as u64, "attachment"), text)
        }
        ChatMessage::Assistant { text, calls, .. } => {
            let names: Vec<&str> = calls.iter().map(|call| call.name.as_str()).collect();
            let lines = calls.iter().map(|call| format!("→ {} {}", call.name, call.arguments.to_value()));
            let whole: Vec<String> = [text.clone()].into_iter().filter(|text| !text.is_empty()).chain(lines).collect();
            shown("assistant", names.join(", "), &whole.join("\n"))
        }
        ChatMessage::Tool { name, text, .. } => shown("tool", name.clone(), text),
    }
}

/// Returns the first characters of a text, by which people find a message.
fn beginning_of(text: &str) -> String {
    summary(&text.chars().take(BEGINNING_CHARACTERS).collect::<String>())
}
