//! Questions of servers in the middle of a call, as questions to a person; and what goes back to the server.

use super::{AnswerRule, ApprovalSubject, ApprovalVerdict, Question, QuestionKind};
use crate::limits::MCP_INPUT_TEXT_BYTES;
use crate::mcp::input::{FieldKind, FormField, InputKind, InputRequest, InputRound, link_host};
use crate::mcp::name::ServerName;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Longest name of a field that names its question, too.
const PLAIN_NAME: usize = 64;

/// A question with the field that its answer goes into; `None` for a form without fields and for a link.
struct FieldQuestion<'r> {
    question: Question,
    field: Option<&'r FormField>,
}

/// Returns the questions of a server as the subject of an approval. `number` counts the rounds of the call from 1: what is
/// asked again is another question.
pub fn elicited_subject(round: &InputRound, server: &ServerName, tool: &str, number: u32) -> ApprovalSubject {
    let texts: Vec<&str> = round.requests.iter().map(|request| request.message.as_str()).collect();
    let again = if number > 1 { format!(" (question {number})") } else { String::new() };
    let title = format!("MCP server `{server}` asks in a call of `{tool}`{again}: {}", texts.join(" / "));
    let (mut asks, mut rules) = (Vec::new(), BTreeMap::new());
    for at in 0..round.requests.len() {
        for FieldQuestion { question, field } in questions(round, at) {
            if let Some(rule) = field.and_then(|field| rule_of(&field.kind)) {
                rules.insert(question.id.clone(), rule);
            }
            asks.push(question);
        }
    }
    ApprovalSubject::Questions { title, asks, rules }
}

/// Returns the responses to a round by the keys of the server: the answers, `decline` for a refusal, and `cancel` if nobody
/// has answered.
pub fn elicited_responses(round: &InputRound, verdict: &ApprovalVerdict) -> Map<String, Value> {
    let respond = |at: usize, request: &InputRequest| match verdict {
        ApprovalVerdict::Answered { answers } => accept_response(request, questions(round, at), answers),
        ApprovalVerdict::Rejected { .. } => json!({"action": "decline"}),
        ApprovalVerdict::Approved { .. } | ApprovalVerdict::Expired | ApprovalVerdict::Withdrawn => {
            json!({"action": "cancel"})
        }
    };
    let each = round.requests.iter().enumerate();
    each.map(|(at, request)| (request.key.clone(), respond(at, request))).collect()
}

fn accept_response(request: &InputRequest, asked: Vec<FieldQuestion<'_>>, answers: &Map<String, Value>) -> Value {
    let mut content = Map::new();
    for FieldQuestion { question, field } in asked {
        let answer = answers.get(&question.id).filter(|answer| !answer.is_null());
        let Some(field) = field else {
            // Who says no to a link, or to a form without fields, declines.
            if answer != Some(&Value::Bool(true)) {
                return json!({"action": "decline"});
            }
            continue;
        };
        let value = answer.and_then(|answer| field_value(&field.kind, answer)).or_else(|| field.default.clone());
        if let Some(value) = value {
            content.insert(field.name.clone(), value);
        }
    }
    match request.kind {
        InputKind::Form(_) => json!({"action": "accept", "content": content}),
        InputKind::Link(_) => json!({"action": "accept"}),
    }
}

/// Returns an answer as the field takes it; numbers are given as texts.
fn field_value(kind: &FieldKind, answer: &Value) -> Option<Value> {
    let value = match kind {
        FieldKind::Integer(_) | FieldKind::Number(_) => parse_number(answer, matches!(kind, FieldKind::Integer(_)))?,
        FieldKind::Text(_) | FieldKind::Flag | FieldKind::Choice(_) | FieldKind::Choices { .. } => answer.clone(),
    };
    Some(value).filter(|value| kind.takes(value))
}

/// Reads a number from an answer.
fn parse_number(answer: &Value, is_whole: bool) -> Option<Value> {
    let text = match answer {
        Value::String(text) => text.trim(),
        _ => return None,
    };
    if let Ok(whole) = text.parse::<i64>() {
        return Some(whole.into());
    }
    let number = text.parse::<f64>().ok().filter(|number| number.is_finite() && !is_whole)?;
    Some(number.into())
}

/// Returns the questions of one request of a round.
fn questions(round: &InputRound, at: usize) -> Vec<FieldQuestion<'_>> {
    let request = &round.requests[at];
    // With several requests each question names its own.
    let id_of = |name: &str| if round.requests.len() > 1 { format!("{}.{name}", at + 1) } else { name.to_owned() };
    let yes = |id: &str, prompt: String| {
        let (kind, choices, required) = (QuestionKind::Approval, Vec::new(), None);
        vec![FieldQuestion { question: Question { id: id_of(id), kind, prompt, choices, required }, field: None }]
    };
    match &request.kind {
        InputKind::Form(fields) if fields.is_empty() => yes("confirm", request.message.clone()),
        InputKind::Form(fields) => {
            let named = fields.iter().enumerate();
            named.map(|(n, field)| field_question(id_of(&question_name(field, n)), field)).collect()
        }
        InputKind::Link(url) => yes(
            "opened",
            format!(
                "{} - open this page at `{}` yourself, if you trust it, and say yes when you are done there: {url}",
                request.message,
                link_host(url).unwrap_or_default()
            ),
        ),
    }
}

/// Returns the name of a field's question: the field's own, where a person can type it.
fn question_name(field: &FormField, at: usize) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let is_typed = field.name.len() <= PLAIN_NAME && field.name.chars().all(is_plain);
    if is_typed { field.name.clone() } else { format!("field.{}", at + 1) }
}

fn field_question(id: String, field: &FormField) -> FieldQuestion<'_> {
    let (kind, choices, form) = match &field.kind {
        FieldKind::Text(length) => (QuestionKind::Text, Vec::new(), in_characters(length.in_words())),
        FieldKind::Integer(range) => (QuestionKind::Text, Vec::new(), format!(", a whole number{}", range.in_words())),
        FieldKind::Number(range) => (QuestionKind::Text, Vec::new(), format!(", a number{}", range.in_words())),
        FieldKind::Flag => (QuestionKind::Approval, Vec::new(), String::new()),
        FieldKind::Choice(options) => (QuestionKind::Choice, options.clone(), String::new()),
        FieldKind::Choices { options, count } => {
            let words = count.in_words();
            let form = if words.is_empty() { words } else { format!(", a number of choices{words}") };
            (QuestionKind::Checkboxes, options.clone(), form)
        }
    };
    let default = field.default.as_ref().map(|default| format!(" (left out: {default})")).unwrap_or_default();
    let default = crate::foreign::visible_line(&default, MCP_INPUT_TEXT_BYTES);
    let prompt = format!("{}{form}{default}", field.prompt);
    let required = (!field.is_required || field.default.is_some()).then_some(false);
    FieldQuestion { question: Question { id, kind, prompt, choices, required }, field: Some(field) }
}

fn in_characters(words: String) -> String {
    if words.is_empty() { words } else { format!(", a text{words} characters") }
}

fn rule_of(kind: &FieldKind) -> Option<AnswerRule> {
    match kind {
        FieldKind::Text(length) if length.in_words().is_empty() => None,
        FieldKind::Choices { count, .. } if count.in_words().is_empty() => None,
        FieldKind::Text(_) | FieldKind::Integer(_) | FieldKind::Number(_) | FieldKind::Choices { .. } => {
            Some(AnswerRule(kind.clone()))
        }
        FieldKind::Flag | FieldKind::Choice(_) => None,
    }
}

impl AnswerRule {
    /// Whether an answer fits the field.
    pub(super) fn takes(&self, answer: &Value) -> bool {
        field_value(&self.0, answer).is_some()
    }

    /// Returns the expected form of an answer, in words.
    pub(super) fn in_words(&self) -> String {
        match &self.0 {
            FieldKind::Text(length) => format!("a text{} characters", length.in_words()),
            FieldKind::Integer(range) => format!("a whole number{}, as a text", range.in_words()),
            FieldKind::Number(range) => format!("a number{}, as a text", range.in_words()),
            FieldKind::Choices { count, .. } => format!("a number of choices{}", count.in_words()),
            FieldKind::Flag | FieldKind::Choice(_) => "one of the choices".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::approval::answer::check_answers;

    fn round(requests: &Value) -> InputRound {
        InputRound::read(requests, &Value::Null).unwrap()
    }

    fn form(properties: &Value, required: &[&str]) -> Value {
        let schema = json!({"type": "object", "properties": properties, "required": required});
        json!({"method": "elicitation/create", "params": {"message": "Details", "requestedSchema": schema}})
    }

    fn subject(round: &InputRound, number: u32) -> ApprovalSubject {
        elicited_subject(round, &ServerName::new("shop").unwrap(), "pay", number)
    }

    #[test]
    fn an_answer_is_checked_and_goes_back_as_the_form_wants_it() {
        let fields = json!({
            "age": {"type": "integer", "minimum": 1, "maximum": 9},
            "score": {"type": "number", "default": 95.5},
            "name": {"type": "string", "default": "Ann"},
            "size": {"type": "string", "enum": ["S", "L"], "default": "S"},
            "sure": {"type": "boolean", "default": true},
            "note": {"type": "string", "maxLength": 3},
        });
        let round = round(&json!({"f": form(&fields, &["age"])}));
        let ApprovalSubject::Questions { title, asks, rules } = subject(&round, 1) else { panic!("questions") };
        assert_eq!(title, "MCP server `shop` asks in a call of `pay`: Details");
        for (answers, wrong) in [
            (json!({"age": "5"}), None),
            (json!({"age": "10"}), Some("question `age`: expected a whole number of 1 to 9, as a text, got `\"10\"`")),
            (
                json!({"age": "1.5"}),
                Some("question `age`: expected a whole number of 1 to 9, as a text, got `\"1.5\"`"),
            ),
            (json!({}), Some("question `age`: expected a text, got nothing")),
            (json!({"age": "5", "size": "M"}), Some("question `size`: expected one of S, L, got `\"M\"`")),
            (
                json!({"age": "5", "note": "long"}),
                Some("question `note`: expected a text of at most 3 characters, got `\"long\"`"),
            ),
            (json!({"age": "5", "evil": 1}), Some("was not asked")),
        ] {
            let Value::Object(answers) = answers else { panic!("a map") };
            let found = check_answers(&asks, &rules, &answers).err().map(|error| error.to_string());
            match (&found, wrong) {
                (None, None) => {}
                (Some(found), Some(wrong)) => assert!(found.contains(wrong), "{found}"),
                _ => panic!("{answers:?}: {found:?}"),
            }
        }
        let Value::Object(answers) = json!({"age": "5", "score": " 2.5", "sure": false}) else { panic!("a map") };
        let given = elicited_responses(&round, &ApprovalVerdict::Answered { answers });
        let content = json!({"age": 5, "score": 2.5, "name": "Ann", "size": "S", "sure": false});
        assert_eq!(given["f"], json!({"action": "accept", "content": content}), "the rest has its defaults");
    }

    #[test]
    fn each_verdict_has_its_action() {
        let link =
            json!({"method": "elicitation/create", "params": {"mode": "url", "message": "Pay", "url": "https://h/x"}});
        let plain = form(&json!({}), &[]);
        let round = round(&json!({"a": link, "b": plain}));
        let ApprovalSubject::Questions { asks, .. } = subject(&round, 1) else { panic!("questions") };
        let ids: Vec<_> = asks.iter().map(|ask| ask.id.as_str()).collect();
        assert_eq!(ids, ["1.opened", "2.confirm"]);
        assert!(asks[0].prompt.ends_with("https://h/x"), "{asks:?}");
        let answers = |a: bool, b: bool| {
            let answers = [("1.opened".to_owned(), a.into()), ("2.confirm".to_owned(), b.into())];
            ApprovalVerdict::Answered { answers: answers.into_iter().collect() }
        };
        for (verdict, first, second) in [
            (answers(true, true), json!({"action": "accept"}), json!({"action": "accept", "content": {}})),
            (answers(false, true), json!({"action": "decline"}), json!({"action": "accept", "content": {}})),
            (answers(true, false), json!({"action": "accept"}), json!({"action": "decline"})),
            (ApprovalVerdict::Rejected { reason: None }, json!({"action": "decline"}), json!({"action": "decline"})),
            (ApprovalVerdict::Expired, json!({"action": "cancel"}), json!({"action": "cancel"})),
        ] {
            let given = elicited_responses(&round, &verdict);
            assert_eq!((&given["a"], &given["b"]), (&first, &second), "{verdict:?}");
        }
        assert_ne!(subject(&round, 1), subject(&round, 2), "asked again it is another question");
    }

    #[test]
    fn names_that_nobody_can_type_get_a_number() {
        let round = round(&json!({"f": form(&json!({"a b\"c": {"type": "string"}}), &["a b\"c"])}));
        let ApprovalSubject::Questions { asks, .. } = subject(&round, 1) else { panic!("questions") };
        assert_eq!(asks[0].id, "field.1");
        let answers = [("field.1".to_owned(), "x".into())].into_iter().collect();
        let given = elicited_responses(&round, &ApprovalVerdict::Answered { answers });
        assert_eq!(given["f"]["content"], json!({"a b\"c": "x"}));
    }
}
