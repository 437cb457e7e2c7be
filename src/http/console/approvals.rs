//! The page of what waits for people, and their answers.

use super::figures::TimeText;
use super::page::{LiveUpdates, PageFrame, render, see_other};
use super::session::local_path;
use super::text::{EDITABLE_BYTES, Passage, editable_json, sentence, size_text, summary};
use crate::domain::approval::QuestionKind;
use crate::domain::decode;
use crate::domain::percent::percent_encode;
use crate::domain::time::Millis;
use crate::http::Api;
use crate::http::approvals as approval_api;
use crate::http::extract::{JsonBody, QueryParams, RequestCaller};
use crate::http::problem::Problem;
use crate::http::runs::{operate, read_output};
use crate::view::approval::{ApprovalCallView, ApprovalPage, ApprovalView, QuestionView};
use crate::view::to_json;
use askama::Template;
use axum::Form;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde::Serialize;
use serde_json::{Map, Value};

/// Approvals of one page.
const APPROVALS_SHOWN: usize = 20;

/// Seconds after which the list is read again.
const REFRESH_SECONDS: u32 = 3;

#[derive(Template)]
#[template(path = "approvals.html", config = "src/http/console/askama.toml")]
struct ApprovalsHtml {
    frame: PageFrame,
    approvals: Vec<ApprovalCard>,
    total: usize,
    /// Address of the next page; empty after the last.
    older: String,
}

#[derive(Template)]
#[template(path = "approval_answered.html", config = "src/http/console/askama.toml")]
struct ApprovalAnsweredHtml {
    frame: PageFrame,
    /// Number of those that still wait.
    waiting: usize,
    /// Path of the page that the answer came from.
    back: String,
}

/// A call or questions that wait for a person.
pub(super) struct ApprovalCard {
    pub(super) id: String,
    pub(super) digest: String,
    pub(super) agent: String,
    pub(super) session: String,
    pub(super) turn: u64,
    pub(super) job: Option<String>,
    pub(super) asked: TimeText,
    pub(super) expires: TimeText,
    pub(super) call: Option<ApprovalCallForm>,
    pub(super) title: String,
    pub(super) questions: Vec<QuestionField>,
    /// Why the reader doesn't see what is asked.
    pub(super) hidden: Option<String>,
    /// Verdict of the person; `None` while the approval waits.
    pub(super) verdict: Option<String>,
    /// Path to go to after the answer.
    pub(super) next: String,
}

/// The call that waits, as its form shows it.
pub(super) struct ApprovalCallForm {
    pub(super) operation: String,
    /// Arguments that an answer may change, as JSON.
    pub(super) arguments: String,
    /// The same as the person has edited them, where they couldn't be read.
    pub(super) edited: Option<String>,
    /// Why what was edited couldn't be read; empty if it could.
    pub(super) fault: String,
    /// Arguments that the venue fills in.
    pub(super) fixed: Option<Passage>,
    /// Sections of the caller's context that go with the call.
    pub(super) sections: Vec<SectionChoice>,
    /// Whether the arguments are too long for a page: nobody may approve what he can't see whole.
    pub(super) is_too_long: bool,
}

/// A section that may be withheld from a call.
pub(super) struct SectionChoice {
    pub(super) key: String,
    pub(super) size: String,
}

/// A question of an agent with the field for its answer.
pub(super) struct QuestionField {
    /// Name of the field: kind and id.
    pub(super) name: String,
    pub(super) prompt: Passage,
    pub(super) kind: QuestionKind,
    pub(super) choices: Vec<AnswerChoice>,
    pub(super) is_required: bool,
}

/// A possible answer to a question.
pub(super) struct AnswerChoice {
    pub(super) value: String,
    /// The value with its hidden characters shown.
    pub(super) label: String,
}

impl ApprovalCard {
    /// Makes the card of an approval as it is seen at `now`; its form leads to `next`.
    pub(super) fn new(approval: &ApprovalView, now: Millis, next: &str) -> Self {
        let questions = approval.questions.as_ref();
        let verdict = approval.answer.as_ref().map(|answer| answer.verdict.as_deref().unwrap_or("answered").to_owned());
        Self {
            id: approval.id.to_string(),
            digest: approval.digest.clone(),
            agent: approval.agent.to_string(),
            session: approval.session.to_string(),
            turn: approval.turn,
            job: approval.job.as_ref().map(ToString::to_string),
            asked: TimeText::new(approval.asked, now),
            expires: TimeText::new(approval.expires, now),
            call: approval.call.as_ref().map(call_form),
            title: questions.map(|questions| summary(&questions.title)).unwrap_or_default(),
            questions: questions.iter().flat_map(|questions| &questions.asks).map(question_field).collect(),
            hidden: approval.hidden.clone(),
            verdict,
            next: next.to_owned(),
        }
    }
}

fn call_form(call: &ApprovalCallView) -> ApprovalCallForm {
    let (mut open, mut fixed) = (call.arguments.clone(), Map::new());
    if let Value::Object(arguments) = &mut open {
        for name in &call.fixed {
            fixed.extend(arguments.shift_remove_entry(name));
        }
    }
    let arguments = editable_json(&open);
    let sections = call.scopes.iter().map(|of| SectionChoice { key: of.key.clone(), size: size_text(of.bytes) });
    ApprovalCallForm {
        operation: summary(&call.operation),
        is_too_long: arguments.len() > EDITABLE_BYTES,
        arguments,
        edited: None,
        fault: String::new(),
        fixed: (!fixed.is_empty()).then(|| Passage::of_value(&Value::Object(fixed))),
        sections: sections.collect(),
    }
}

fn question_field(ask: &QuestionView) -> QuestionField {
    QuestionField {
        name: format!("{}:{}", ask.kind.as_str(), ask.id),
        prompt: Passage::of_text(&ask.prompt),
        kind: ask.kind,
        choices: ask.choices.iter().map(|c| AnswerChoice { value: c.clone(), label: summary(c) }).collect(),
        is_required: ask.required != Some(false),
    }
}

/// Arguments of `v/ops/approval/list`.
#[derive(Serialize)]
struct ApprovalListRequest {
    offset: u64,
    limit: usize,
}

/// `GET /approvals`: what waits for people, the newest first. After an answer the page has no form: a second tap at the same
/// place answers nothing that nobody has read.
pub(in crate::http) async fn approvals(
    State(api): State<Api>,
    who: RequestCaller,
    asked: QueryParams,
) -> Result<Response, Problem> {
    let page = list_waiting(&api, &who, asked.number("offset")?.unwrap_or(0)).await?;
    if let Some(back) = asked.text("answered") {
        let frame = PageFrame::new(&who, "/approvals", "Answered");
        let answered = ApprovalAnsweredHtml { frame, waiting: page.total, back: local_path(back).to_owned() };
        return Ok(render(StatusCode::OK, &answered));
    }
    Ok(render(StatusCode::OK, &approvals_page(&api, &who, &page)))
}

async fn list_waiting(api: &Api, who: &RequestCaller, offset: u64) -> Result<ApprovalPage, Problem> {
    let request = ApprovalListRequest { offset, limit: APPROVALS_SHOWN };
    read_output(operate(api, who, "v/ops/approval/list", to_json(&request)).await?)
}

fn approvals_page(api: &Api, who: &RequestCaller, page: &ApprovalPage) -> ApprovalsHtml {
    let now = api.venue.now();
    ApprovalsHtml {
        frame: PageFrame::new(who, "/approvals", "Approvals").with_live(LiveUpdates::Every(REFRESH_SECONDS)),
        approvals: page.items.iter().map(|approval| ApprovalCard::new(approval, now, "/approvals")).collect(),
        total: page.total,
        older: page.next.map(|next| format!("/approvals?offset={next}")).unwrap_or_default(),
    }
}

/// `POST /approvals/{id}`: answers the approval that a page showed.
pub(in crate::http) async fn answer_approval(
    state: State<Api>,
    who: RequestCaller,
    id: Path<String>,
    Form(fields): Form<Vec<(String, String)>>,
) -> Result<Response, Problem> {
    let field = |name| fields.iter().find(|(known, _)| known == name).map(|(_, text)| text.clone());
    let back = local_path(&field("next").unwrap_or_else(|| "/approvals".to_owned())).to_owned();
    let edited = field("arguments");
    let answer = match answer_of(fields) {
        Ok(answer) => answer,
        Err(problem) => return show_again(&state, &who, &id, edited, problem).await,
    };
    approval_api::answer(state, who, id, JsonBody(to_json(&answer))).await?;
    see_other(&format!("/approvals?answered={}", percent_encode(&back)))
}

/// Shows an approval once more whose edited arguments can't be read, with what the person has written.
async fn show_again(
    api: &Api,
    who: &RequestCaller,
    id: &str,
    edited: Option<String>,
    problem: Problem,
) -> Result<Response, Problem> {
    let mut page = list_waiting(api, who, 0).await?;
    page.items.retain(|approval| approval.id.as_str() == id);
    let mut shown = ApprovalsHtml { older: String::new(), ..approvals_page(api, who, &page) };
    let call = shown.approvals.first_mut().and_then(|approval| approval.call.as_mut());
    let (Some(call), Some(edited)) = (call, edited) else { return Err(problem) };
    call.fault = sentence(&problem.detail);
    call.edited = Some(edited);
    shown.frame = PageFrame::new(who, "/approvals", "Approvals");
    Ok(render(problem.status, &shown))
}

/// Body of the API's request for an answer.
#[derive(Debug, Default, PartialEq, Serialize)]
struct ApprovalAnswerRequest {
    #[serde(skip_serializing_if = "Option::is_none")]
    approve: Option<Map<String, Value>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reject: Option<Map<String, Value>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    answers: Option<Map<String, Value>>,
    digest: String,
}

/// Returns the answer that the fields of a form mean.
fn answer_of(fields: Vec<(String, String)>) -> Result<ApprovalAnswerRequest, Problem> {
    let mut answer = ApprovalAnswerRequest::default();
    let (mut verdict, mut reason, mut shown, mut edited) = (String::new(), String::new(), String::new(), String::new());
    let (mut sections, mut answers) = (None::<Vec<Value>>, Map::new());
    for (name, text) in fields {
        match name.as_str() {
            "digest" => answer.digest = text,
            "verdict" => verdict = text,
            "reason" => reason = text,
            "shown" => shown = text,
            "arguments" => edited = text,
            "has-sections" => drop(sections.get_or_insert_default()),
            "section" => sections.get_or_insert_default().push(text.into()),
            _ => add_answer(&mut answers, &name, text)?,
        }
    }
    match verdict.as_str() {
        "approve" => {
            let mut approve = Map::new();
            if is_edited(&shown, &edited) {
                approve.insert("arguments".to_owned(), parse_arguments(&edited)?);
            }
            approve.extend(sections.map(|keys| ("scopes".to_owned(), Value::Array(keys))));
            answer.approve = Some(approve);
        }
        "reject" => {
            let reason = Some(reason.trim()).filter(|reason| !reason.is_empty());
            answer.reject = Some(reason.map(|reason| ("reason".to_owned(), reason.into())).into_iter().collect());
        }
        "answer" => answer.answers = Some(answers),
        _ => return Err(Problem::bad_request("field `verdict`: expected `approve`, `reject` or `answer`")),
    }
    Ok(answer)
}

/// Whether a person has changed the arguments; browsers send line breaks in their own form.
fn is_edited(shown: &str, edited: &str) -> bool {
    let plain = |text: &str| text.replace("\r\n", "\n");
    plain(shown).trim() != plain(edited).trim()
}

fn parse_arguments(text: &str) -> Result<Value, Problem> {
    decode::json(text.as_bytes()).map_err(|error| Problem::bad_request(format!("the arguments are not JSON: {error}")))
}

/// Adds the answer of a field whose name has the kind and the id of its question.
fn add_answer(answers: &mut Map<String, Value>, name: &str, text: String) -> Result<(), Problem> {
    let Some((kind, id)) = name.split_once(':') else { return Ok(()) };
    if text.is_empty() {
        return Ok(());
    }
    match kind {
        "text" | "choice" | "token" => drop(answers.insert(id.to_owned(), text.into())),
        "approval" => drop(answers.insert(id.to_owned(), (text == "yes").into())),
        "checkboxes" => match answers.entry(id).or_insert_with(|| Value::Array(Vec::new())) {
            Value::Array(chosen) => chosen.push(text.into()),
            _ => return Err(Problem::bad_request(format!("question `{id}` is answered in two ways"))),
        },
        _ => {}
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn body(fields: &[(&str, &str)]) -> Result<Value, u16> {
        let fields = fields.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
        answer_of(fields).map(|answer| to_json(&answer)).map_err(|problem| problem.status.as_u16())
    }

    #[test]
    fn a_form_is_one_answer_bound_to_what_was_shown() {
        let digest = ("digest", "d");
        assert_eq!(body(&[("verdict", "approve"), digest]), Ok(json!({"approve": {}, "digest": "d"})));
        assert_eq!(body(&[("verdict", "reject"), ("reason", " ")]), Ok(json!({"reject": {}, "digest": ""})));
        assert_eq!(
            body(&[("verdict", "reject"), ("reason", "too much"), digest]),
            Ok(json!({"reject": {"reason": "too much"}, "digest": "d"}))
        );
        assert_eq!(body(&[digest]), Err(400));
    }

    #[test]
    fn only_changed_arguments_replace_those_of_the_model() {
        let approve = [("verdict", "approve"), ("shown", "{\n  \"n\": 1\n}")];
        let with = |edited| body(&[approve[0], approve[1], ("arguments", edited)]);
        assert_eq!(with("{\r\n  \"n\": 1\r\n}"), Ok(json!({"approve": {}, "digest": ""})));
        assert_eq!(with("{\"n\": 2}"), Ok(json!({"approve": {"arguments": {"n": 2}}, "digest": ""})));
        assert_eq!(with("{"), Err(400));
        let withheld = body(&[("verdict", "approve"), ("has-sections", "1")]);
        assert_eq!(withheld, Ok(json!({"approve": {"scopes": []}, "digest": ""})));
    }

    #[test]
    fn an_answer_has_the_type_of_its_question() {
        let fields =
            [("verdict", "answer"), ("text:a", "x"), ("text:b", ""), ("approval:c", "no"), ("checkboxes:d", "1")];
        assert_eq!(body(&fields), Ok(json!({"answers": {"a": "x", "c": false, "d": ["1"]}, "digest": ""})));
    }
}
