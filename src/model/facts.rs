//! Facts of a request that rules test, read from the prompt as a model reads it.

use crate::domain::chat::{ChatMessage, ModelRequest};
use crate::model::json5;
use serde_json::Value;

/// Heading of the tasks in a prompt.
const TASKS_HEADING: &str = "[Tasks assigned to you]";
/// Begin of reference data, which is not a user's text.
const REFERENCE_START: &str = "The following is reference data";
/// Heading of the context map.
const CONTEXT_MAP_HEADING: &str = "[Context Map]";
/// Words at the end of a prompt about an open task whose text precedes.
const OPEN_TASK_ENDS: [&str; 2] = ["the task above", "You work on the current goal above"];
/// Begins of the end of a plain prompt, which says how its task ends; not a user's text either.
const PLAIN_PROMPT_ENDS: [&str; 3] = [
    "A text that is JSON of the type of its result,",
    "Answer with text to complete the task above",
    "Call complete_task to complete the task above",
];
/// Tools whose result ends a task: messages after it belong to the next task.
const ENDING_TOOLS: [&str; 2] = ["complete_task", "fail_task"];

/// Facts of one request that rules test.
#[derive(Debug, Clone, PartialEq)]
pub struct RequestFacts {
    /// The provider's name of the model.
    pub model: String,
    /// Agent of the turn, from `owner/agent/session/turn`; empty if unknown.
    pub agent: String,
    /// Name of the turn as in [`ModelRequest::turn`]: `owner/agent/session/turn`.
    pub turn_name: String,
    /// Number of model calls of this task, this one included.
    pub turn: usize,
    /// `user`, `assistant` or `tool`; `none` for an empty prompt.
    pub last_role: &'static str,
    /// Text of the last `User` messages, after that of an open task before them; without reference data and the context
    /// map.
    pub user_text: String,
    /// Text of the last message, without the context map.
    pub last_text: String,
    /// Last tool result of this task: name of the tool, text.
    pub tool: Option<(String, String)>,
    /// Input of the last task, else body of the last message, else the last user text.
    pub input: Value,
    /// System prompt and all messages; empty unless a rule tests it.
    pub prompt: String,
    /// A quarter of the prompt's characters: its tokens if a rule gives no usage.
    pub prompt_tokens: u64,
}

impl RequestFacts {
    /// Reads the facts of a request.
    pub fn from_request(request: &ModelRequest) -> RequestFacts {
        let messages = &request.messages;
        let (from, said) = last_user_messages(messages);
        let user_text = remove_map(said.join("\n\n"));
        let task = &messages[task_start(messages, from, &user_text)..];
        let last = messages.last();
        RequestFacts {
            model: request.model.name.clone(),
            agent: request.turn.rsplit('/').nth(2).unwrap_or_default().to_owned(),
            turn_name: request.turn.clone(),
            turn: 1 + task.iter().filter(|m| matches!(m, ChatMessage::Assistant { .. })).count(),
            last_role: last.map_or("none", role),
            input: input_of(&said, &user_text),
            user_text,
            last_text: remove_map(last.map_or("", text).to_owned()),
            tool: task.iter().rev().find_map(|message| match message {
                ChatMessage::Tool { name, text, .. } => Some((name.clone(), text.clone())),
                ChatMessage::User { .. } | ChatMessage::Assistant { .. } => None,
            }),
            prompt: String::new(),
            prompt_tokens: tokens(&request.system) + messages.iter().map(|m| tokens(text(m))).sum::<u64>(),
        }
    }

    /// Adds the whole text of the prompt.
    #[must_use]
    pub fn with_prompt(mut self, request: &ModelRequest) -> RequestFacts {
        let texts = std::iter::once(request.system.as_str()).chain(request.messages.iter().map(text));
        self.prompt = texts.collect::<Vec<_>>().join("\n\n");
        self
    }

    /// Returns the answer of `echo`: the input's `message` field, a text unchanged, else its JSON.
    pub fn echo(&self) -> String {
        match &self.input {
            Value::String(text) => text.clone(),
            Value::Object(map) => match map.get("message") {
                Some(Value::String(text)) => text.clone(),
                Some(other) => other.to_string(),
                None => self.input.to_string(),
            },
            other => other.to_string(),
        }
    }
}

/// Estimates the tokens of a text: a quarter of its characters.
pub fn tokens(text: &str) -> u64 {
    text.chars().count().div_ceil(4) as u64
}

fn role(message: &ChatMessage) -> &'static str {
    match message {
        ChatMessage::User { .. } => "user",
        ChatMessage::Assistant { .. } => "assistant",
        ChatMessage::Tool { .. } => "tool",
    }
}

fn text(message: &ChatMessage) -> &str {
    match message {
        ChatMessage::User { text, .. } | ChatMessage::Assistant { text, .. } | ChatMessage::Tool { text, .. } => text,
    }
}

/// Returns the index of the first of the last user messages, and their texts with that of the open task.
fn last_user_messages(messages: &[ChatMessage]) -> (usize, Vec<&str>) {
    let is_user = |message: &ChatMessage| matches!(message, ChatMessage::User { .. });
    let Some(last) = messages.iter().rposition(is_user) else { return (0, Vec::new()) };
    let from = messages[..last].iter().rposition(|message| !is_user(message)).map_or(0, |before| before + 1);
    let said = |message: &ChatMessage| !text(message).starts_with(REFERENCE_START);
    let mut texts: Vec<&str> = messages[from..=last].iter().filter(|message| said(message)).map(text).collect();
    if !texts.iter().any(|text| !tasks(text).is_empty())
        && OPEN_TASK_ENDS.iter().any(|above| texts.last().is_some_and(|text| text.contains(above)))
    {
        let before = messages[..from].iter().rev().filter(|message| is_user(message)).map(text);
        texts.splice(0..0, before.into_iter().find(|text| !tasks(text).is_empty()));
    }
    (from, texts)
}

/// Removes the context map from a text: it is not a user's text.
fn remove_map(text: String) -> String {
    let Some(from) = line_start(&text, CONTEXT_MAP_HEADING) else { return text };
    let to = text[from..].find("\n\n").map_or(text.len(), |end| from + end + 2);
    format!("{}{}", &text[..from], &text[to..])
}

/// Returns the index of the first message of the current task; `last` is that of the last user messages, `shown` their
/// text.
/// A prompt may have the task where it was first shown, or last, after the exchange it began: both are understood.
fn task_start(messages: &[ChatMessage], last: usize, shown: &str) -> usize {
    if let Some(id) = tasks(shown).last().map(|task| task.id) {
        let first = messages.iter().position(|message| match message {
            ChatMessage::User { text, .. } => tasks(text).iter().any(|task| task.id == id),
            ChatMessage::Assistant { .. } | ChatMessage::Tool { .. } => false,
        });
        if let Some(first) = first.filter(|first| *first < last) {
            return first;
        }
    }
    let open = messages[..last].iter().rev().take_while(|message| match message {
        ChatMessage::Assistant { calls, .. } => {
            !calls.is_empty() && !calls.iter().any(|call| ENDING_TOOLS.contains(&call.name.as_str()))
        }
        ChatMessage::Tool { name, .. } => !ENDING_TOOLS.contains(&name.as_str()),
        ChatMessage::User { .. } => false,
    });
    last - open.count()
}

struct PromptTask<'t> {
    id: &'t str,
    input: &'t str,
}

/// Parses the tasks that a text lists, each as `- Task ID (from: CALLER): INPUT`; an input ends at the next task.
fn tasks(text: &str) -> Vec<PromptTask<'_>> {
    let Some(list) = after_line(text, TASKS_HEADING) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    let mut rest = list;
    while let Some(at) = line_start(rest, "- Task ") {
        rest = &rest[at + "- Task ".len()..];
        let end = line_start(rest, "- Task ").unwrap_or(rest.len());
        let line = &rest[..end];
        if let Some((id, tail)) = line.split_once(" (from: ")
            && let Some((_, input)) = tail.split_once("): ")
        {
            found.push(PromptTask { id, input });
        }
    }
    found
}

/// Returns the text after the last line that is `heading`.
fn after_line<'t>(text: &'t str, heading: &str) -> Option<&'t str> {
    let mut found = None;
    let mut from = 0;
    while let Some(at) = line_start(&text[from..], heading) {
        from += at + heading.len();
        found = Some(&text[from..]);
    }
    found
}

/// Returns the position of a line that begins with `prefix`.
fn line_start(text: &str, prefix: &str) -> Option<usize> {
    if text.starts_with(prefix) {
        return Some(0);
    }
    text.match_indices('\n').map(|(at, _)| at + 1).find(|at| text[*at..].starts_with(prefix))
}

fn input_of(said: &[&str], user_text: &str) -> Value {
    if let Some(task) = tasks(user_text).last() {
        return parse_task_input(task.input);
    }
    let is_end = |text: &&str| PLAIN_PROMPT_ENDS.iter().any(|end| text.starts_with(end));
    let plain = remove_map(said.iter().copied().filter(|text| !is_end(text)).collect::<Vec<_>>().join("\n\n"));
    let body = said.iter().rev().find_map(|text| message_body(text)).unwrap_or(&plain).trim();
    json5::read(body).unwrap_or_else(|| Value::String(body.to_owned()))
}

/// Parses a value that ends at the end of a line; else takes the text up to the first empty line.
fn parse_task_input(input: &str) -> Value {
    match json5::read_prefix(input) {
        Some((value, rest)) if rest.trim_start_matches([' ', '\t', '\r']).is_empty() => value,
        Some((value, rest)) if rest.trim_start_matches([' ', '\t', '\r']).starts_with('\n') => value,
        _ => Value::String(input.split("\n\n").next().unwrap_or_default().trim_end().to_owned()),
    }
}

/// Returns the body of the last `[Message from: CALLER]` or `[Message]`.
fn message_body(text: &str) -> Option<&str> {
    let mut body = None;
    let mut from = 0;
    while let Some(at) = line_start(&text[from..], "[Message") {
        from += at + "[Message".len();
        let rest = &text[from..];
        if let Some((heading, following)) = rest.split_once('\n')
            && (heading.trim_end() == "]" || (heading.starts_with(" from: ") && heading.trim_end().ends_with(']')))
        {
            body = Some(following);
        }
    }
    let body = body?;
    // The next labelled block, if any, is not part of it.
    Some(body.split("\n\n[").next().unwrap_or(body))
}

#[cfg(test)]
#[path = "facts_tests.rs"]
mod tests;
