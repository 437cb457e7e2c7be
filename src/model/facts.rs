//! What a rule can look at: facts of a request, read from the prompt as a model would read it.

use crate::domain::chat::{ChatMessage, ModelRequest};
use crate::model::json5;
use serde_json::Value;

/// Heading of the tasks in a prompt.
const TASKS: &str = "[Tasks assigned to you]";
/// Tools whose result ends a task: what follows it belongs to the next one.
const ENDING_TOOLS: [&str; 2] = ["complete_task", "fail_task"];

/// Facts of one request.
#[derive(Debug, Clone, PartialEq)]
pub struct RequestFacts {
    /// Provider's name of the model.
    pub model: String,
    /// Who asks, from `owner/agent/session/turn`; empty when unknown.
    pub agent: String,
    /// [`ModelRequest::turn`] as it came.
    pub turn_name: String,
    /// Model calls of this task so far and this one: 1 for its first.
    pub turn: usize,
    /// `user`, `assistant` or `tool`; `none` for an empty prompt.
    pub last_role: &'static str,
    /// Text of the last `User` message.
    pub user_text: String,
    /// Text of the last message.
    pub last_text: String,
    /// The last tool result of this task: name of the tool, text.
    pub tool: Option<(String, String)>,
    /// Input of the last task, or body of the last message, or the last user text.
    pub input: Value,
    /// System prompt and all messages; only when a rule looks at them.
    pub prompt: String,
    /// Characters of the prompt / 4, when no usage is given.
    pub prompt_tokens: u64,
}

impl RequestFacts {
    /// Reads them from a request.
    pub fn of(request: &ModelRequest) -> RequestFacts {
        let messages = &request.messages;
        let task = &messages[task_start(messages)..];
        let user_text = last_user(messages).map_or("", |(_, text)| text);
        let last = messages.last();
        RequestFacts {
            model: request.model.name.clone(),
            agent: request.turn.rsplit('/').nth(2).unwrap_or_default().to_owned(),
            turn_name: request.turn.clone(),
            turn: 1 + task.iter().filter(|m| matches!(m, ChatMessage::Assistant { .. })).count(),
            last_role: last.map_or("none", role),
            user_text: user_text.to_owned(),
            last_text: last.map_or("", text).to_owned(),
            tool: task.iter().rev().find_map(|message| match message {
                ChatMessage::Tool { name, text, .. } => Some((name.clone(), text.clone())),
                ChatMessage::User { .. } | ChatMessage::Assistant { .. } => None,
            }),
            input: input_of(user_text),
            prompt: String::new(),
            prompt_tokens: tokens(&request.system) + messages.iter().map(|m| tokens(text(m))).sum::<u64>(),
        }
    }

    /// With the whole text of the prompt.
    #[must_use]
    pub fn with_prompt(mut self, request: &ModelRequest) -> RequestFacts {
        let texts = std::iter::once(request.system.as_str()).chain(request.messages.iter().map(text));
        self.prompt = texts.collect::<Vec<_>>().join("\n\n");
        self
    }

    /// What `echo` answers: the input's `message` field, a text as it is, else its JSON.
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

/// About how many tokens a text is: a quarter of its characters.
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
        ChatMessage::User { text } | ChatMessage::Assistant { text, .. } | ChatMessage::Tool { text, .. } => text,
    }
}

fn last_user(messages: &[ChatMessage]) -> Option<(usize, &str)> {
    messages.iter().enumerate().rev().find_map(|(at, message)| match message {
        ChatMessage::User { text } => Some((at, text.as_str())),
        ChatMessage::Assistant { .. } | ChatMessage::Tool { .. } => None,
    })
}

/// Where the messages of the current task begin. A prompt may keep the task where it was first
/// shown, or show it last, after the exchange it began: both are understood.
fn task_start(messages: &[ChatMessage]) -> usize {
    let Some((last, shown)) = last_user(messages) else {
        return 0;
    };
    if let Some(id) = tasks(shown).last().map(|task| task.id) {
        let first = messages.iter().position(|message| match message {
            ChatMessage::User { text } => tasks(text).iter().any(|task| task.id == id),
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

struct Task<'t> {
    id: &'t str,
    input: &'t str,
}

/// The tasks that a text lists, `- Task ID (from: CALLER): INPUT` each; an input runs to the next
/// task.
fn tasks(text: &str) -> Vec<Task<'_>> {
    let Some(list) = after_line(text, TASKS) else {
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
            found.push(Task { id, input });
        }
    }
    found
}

/// What follows the last line that is `heading`.
fn after_line<'t>(text: &'t str, heading: &str) -> Option<&'t str> {
    let mut found = None;
    let mut from = 0;
    while let Some(at) = line_start(&text[from..], heading) {
        from += at + heading.len();
        found = Some(&text[from..]);
    }
    found
}

/// Where a line begins with `prefix`.
fn line_start(text: &str, prefix: &str) -> Option<usize> {
    if text.starts_with(prefix) {
        return Some(0);
    }
    text.match_indices('\n').map(|(at, _)| at + 1).find(|at| text[*at..].starts_with(prefix))
}

fn input_of(user_text: &str) -> Value {
    if let Some(task) = tasks(user_text).last() {
        return value_of_task(task.input);
    }
    let body = message_body(user_text).unwrap_or(user_text).trim();
    json5::read(body).unwrap_or_else(|| Value::String(body.to_owned()))
}

/// A value that ends at a line's end; else the text up to the first empty line.
fn value_of_task(input: &str) -> Value {
    match json5::read_prefix(input) {
        Some((value, rest)) if rest.trim_start_matches([' ', '\t', '\r']).is_empty() => value,
        Some((value, rest)) if rest.trim_start_matches([' ', '\t', '\r']).starts_with('\n') => value,
        _ => Value::String(input.split("\n\n").next().unwrap_or_default().trim_end().to_owned()),
    }
}

/// The body of the last `[Message from: CALLER]` or `[Message]`.
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
