//! The rules file of a scripted model: its format, which rule matches, and what it answers.
//!
//! ```toml
//! # Optional. One JSON line per step of a call is appended here: {turn, model, rule, call, pid, event}. A file in the
//! # folder of the rules; the venue's own log, `models.calls_log`, may be anywhere.
//! calls_log = "calls.jsonl"
//!
//! # The first rule whose conditions all hold answers. No condition: it always holds.
//! [[rule]]
//! [rule.when]
//! model = "small"          # name of the model that was asked for
//! agent = "clerk"          # id of the agent
//! turn = 2                 # model calls of this task, this one included
//! last_role = "tool"       # user | assistant | tool: role of the last message
//! prompt = "[Context: P]"  # is in the prompt, the system prompt included
//! text = "invoice"         # is in the last user text or in the last message
//! tool = "get_invoice"     # name of the last tool result of this task
//! tool_result = "overdue"  # is in its text
//! [rule.then]
//! text = "Invoice {{input.id}} over {{tool_result.total}} is overdue."
//! delay_ms = 50            # before the first piece
//! stream_chunk_ms = 5      # between pieces of the text
//! usage = { input = 900, output = 20 } # tokens; about characters / 4 when absent; of them cache_read, cache_write, reasoning
//! truncated = true         # ends at the limit of tokens
//! fault = "rate_limit"     # overloaded | unauthorized | bad_request | cut_stream | bad_json | hang
//! retry_after_ms = 20      # of rate_limit and overloaded
//! times = 1                # fault only the first n calls of this rule in this process
//! calls = [{ tool = "pay", arguments = { id = "{{input.id}}" } }]
//! ```
//!
//! Templates are `{{input}}` (the task's input), `{{tool_result}}`, both optionally with a path into them, `{{call}}`
//! (number of the call in this process) and `{{turn}}`.

use crate::config::position::FilePosition;
use crate::domain::chat::{Arguments, Reply, TokenUsage, ToolCall};
use crate::domain::decode;
use crate::domain::nearest::nearest;
use crate::model::facts::{RequestFacts, tokens};
use crate::model::rules_error::{RuleReplyError, RulesError, RulesPlace};
use crate::model::template::{TemplateError, check_text, check_value, fill_text, fill_value};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::path::PathBuf;
use std::time::Duration;

/// Rules of one file at most.
const RULES_MAX: usize = 10_000;

const TOP_KEYS: [&str; 2] = ["calls_log", "rule"];
const RULE_KEYS: [&str; 2] = ["when", "then"];
const WHEN_KEYS: [&str; 8] = ["model", "turn", "prompt", "last_role", "text", "tool", "tool_result", "agent"];
const THEN_KEYS: [&str; 9] =
    ["text", "calls", "delay_ms", "stream_chunk_ms", "usage", "truncated", "fault", "retry_after_ms", "times"];
const CALL_KEYS: [&str; 2] = ["tool", "arguments"];
const USAGE_KEYS: [&str; 5] = ["input", "output", "cache_read", "cache_write", "reasoning"];

/// Contents of a rules file.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ScriptRules {
    /// Path of the log of calls, as written in the file.
    pub calls_log: Option<PathBuf>,
    /// The rules in order; the first that matches answers.
    pub rules: Vec<ScriptRule>,
}

/// One rule: conditions and an answer.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ScriptRule {
    /// Conditions under which it answers.
    pub when: RuleConditions,
    /// Answer of the rule.
    pub then: RuleReply,
}

/// Conditions of a rule; an absent one always holds.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
pub struct RuleConditions {
    /// Name of the model.
    pub model: Option<String>,
    /// Number of model calls of this task, this one included.
    pub turn: Option<usize>,
    /// Role of the last message.
    pub last_role: Option<LastRole>,
    /// Text that the whole prompt contains.
    pub prompt: Option<String>,
    /// Text that the last user text or the last message contains.
    pub text: Option<String>,
    /// Name of the tool of this task's last result.
    pub tool: Option<String>,
    /// Text that this result contains.
    pub tool_result: Option<String>,
    /// Id of the agent.
    pub agent: Option<String>,
}

/// Role of a message, as written in a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LastRole {
    /// A caller's message, or context.
    User,
    /// A reply of the model.
    Assistant,
    /// The result of a tool.
    Tool,
}

/// Answer of a rule, before its templates are filled.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
pub struct RuleReply {
    /// Text of the reply.
    #[serde(default)]
    pub text: String,
    /// Calls of the reply.
    #[serde(default)]
    pub calls: Vec<CallRule>,
    /// Milliseconds before the first piece.
    #[serde(default)]
    pub delay_ms: u64,
    /// Milliseconds between pieces of the text.
    #[serde(default)]
    pub stream_chunk_ms: u64,
    /// Tokens of the call; estimated if absent.
    pub usage: Option<UsageRule>,
    /// Whether the reply ends at its limit of tokens.
    #[serde(default)]
    pub truncated: bool,
    /// Fault instead of a reply.
    pub fault: Option<ScriptFault>,
    /// Pause in milliseconds that `rate_limit` and `overloaded` ask for.
    pub retry_after_ms: Option<u64>,
    /// Number of this rule's first calls in this process that fail.
    pub times: Option<u64>,
}

/// A call in a rule's reply.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct CallRule {
    /// Name of the tool.
    pub tool: String,
    /// Arguments, with templates.
    #[serde(default = "empty_map")]
    pub arguments: Value,
}

/// Tokens of a call, as written in a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub struct UsageRule {
    /// Tokens of the prompt.
    #[serde(default)]
    pub input: u64,
    /// Tokens of the reply.
    #[serde(default)]
    pub output: u64,
    /// Part of `input` read from the provider's cache.
    #[serde(default)]
    pub cache_read: u64,
    /// Part of `input` written to the provider's cache.
    #[serde(default)]
    pub cache_write: u64,
    /// Part of `output` used for reasoning.
    #[serde(default)]
    pub reasoning: u64,
}

impl From<UsageRule> for TokenUsage {
    fn from(rule: UsageRule) -> Self {
        let UsageRule { input, output, cache_read, cache_write, reasoning } = rule;
        Self { input, output, cache_read, cache_write, reasoning }
    }
}

/// Fault of a scripted call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScriptFault {
    /// Status 429: too many requests.
    RateLimit,
    /// Status 503, or 529 of Anthropic.
    Overloaded,
    /// Status 401: wrong key.
    Unauthorized,
    /// Status 400: bad request.
    BadRequest,
    /// The connection ends in the middle of the reply.
    CutStream,
    /// The arguments of the first call are cut JSON.
    BadJson,
    /// No answer ever comes.
    Hang,
}

/// Answer to one call, with templates filled.
#[derive(Debug, Clone, PartialEq)]
pub struct RuleAnswer {
    /// Pause before the first piece.
    pub delay: Duration,
    /// Pause between pieces of the text.
    pub chunk_delay: Duration,
    /// The reply; with `cut_stream` the one that is cut.
    pub reply: Reply,
    /// Fault instead of the reply; `bad_json` is already in the reply.
    pub fault: Option<ScriptFault>,
    /// Pause that a 429 or 503 asks for.
    pub retry_after: Option<Duration>,
}

impl ScriptRules {
    /// Parses TOML, or JSON if the text begins with `{`.
    pub fn parse(text: &str) -> Result<ScriptRules, RulesError> {
        Self::read(text).map_err(|error| error.with_position(text))
    }

    fn read(text: &str) -> Result<ScriptRules, RulesError> {
        let file: Map<String, Value> = if text.trim_start().starts_with('{') {
            decode::from_json(text.as_bytes()).map_err(|error| RulesError::Syntax(error.to_string()))?
        } else {
            toml::from_str(text).map_err(|error| toml_syntax(text, &error))?
        };
        let place = RulesPlace::default();
        check_keys(&file, &place, &TOP_KEYS)?;
        let calls_log = file.get("calls_log").map(|path| read(&place.key("calls_log"), path)).transpose()?;
        let rules: Vec<Map<String, Value>> =
            file.get("rule").map(|rules| read(&place.key("rule"), rules)).transpose()?.unwrap_or_default();
        if rules.len() > RULES_MAX {
            return Err(invalid(&place, format!("expected at most {RULES_MAX} rules, got {}", rules.len())));
        }
        let rules =
            rules.iter().enumerate().map(|(at, rule)| ScriptRule::read(at + 1, rule)).collect::<Result<_, _>>()?;
        Ok(ScriptRules { calls_log, rules })
    }

    /// Whether some rule tests the whole prompt.
    pub fn needs_prompt(&self) -> bool {
        self.rules.iter().any(|rule| rule.when.prompt.is_some())
    }

    /// Returns the first rule that matches, and its index.
    pub fn find(&self, facts: &RequestFacts) -> Option<(usize, &ScriptRule)> {
        self.rules.iter().enumerate().find(|(_, rule)| rule.when.matches(facts))
    }
}

impl ScriptRule {
    fn read(number: usize, rule: &Map<String, Value>) -> Result<ScriptRule, RulesError> {
        let place = RulesPlace::rule(number);
        check_keys(rule, &place, &RULE_KEYS)?;
        let none = Value::Object(Map::new());
        let when = rule.get("when").unwrap_or(&none);
        check_table(when, &place.key("when"), &WHEN_KEYS)?;
        let then = rule.get("then").ok_or_else(|| invalid(&place, "expected a `then`, got none"))?;
        check_table(then, &place.key("then"), &THEN_KEYS)?;
        if let Some(calls) = then.get("calls").and_then(Value::as_array) {
            for (at, call) in calls.iter().enumerate() {
                check_table(call, &place.key("calls").child([at.to_string()]), &CALL_KEYS)?;
            }
        }
        if let Some(usage) = then.get("usage") {
            check_table(usage, &place.key("usage"), &USAGE_KEYS)?;
        }
        let rule = ScriptRule { when: read(&place.key("when"), when)?, then: read(&place.key("then"), then)? };
        rule.then.check().map_err(|error| invalid(&place.child(error.steps()), error.to_string()))?;
        Ok(rule)
    }

    /// Makes the answer to a call. `call` is the number of the call in the process, `hit` that among the rule's calls;
    /// both from
    /// 1.
    pub fn answer(&self, facts: &RequestFacts, call: u64, hit: u64) -> Result<RuleAnswer, TemplateError> {
        let then = &self.then;
        let fault = then.fault.filter(|_| then.times.is_none_or(|times| hit <= times));
        let needs_reply = matches!(fault, None | Some(ScriptFault::CutStream | ScriptFault::BadJson));
        let reply = if needs_reply { then.reply(facts, call, fault)? } else { Reply::default() };
        Ok(RuleAnswer {
            delay: Duration::from_millis(then.delay_ms),
            chunk_delay: Duration::from_millis(then.stream_chunk_ms),
            reply,
            fault,
            retry_after: fault.and(then.retry_after_ms).map(Duration::from_millis),
        })
    }
}

impl RuleConditions {
    fn matches(&self, facts: &RequestFacts) -> bool {
        let is = |wanted: &Option<String>, given: &str| wanted.as_deref().is_none_or(|wanted| wanted == given);
        let has = |wanted: &Option<String>, given: &[&str]| {
            wanted.as_deref().is_none_or(|wanted| given.iter().any(|text| text.contains(wanted)))
        };
        let (tool, result) = facts.tool.as_ref().map_or((None, None), |(tool, text)| (Some(tool), Some(text.as_str())));
        is(&self.model, &facts.model)
            && is(&self.agent, &facts.agent)
            && self.turn.is_none_or(|turn| turn == facts.turn)
            && self.last_role.is_none_or(|role| role.name() == facts.last_role)
            && has(&self.prompt, &[&facts.prompt])
            && has(&self.text, &[&facts.user_text, &facts.last_text])
            && (self.tool.is_none() || self.tool.as_ref() == tool)
            && (self.tool_result.is_none() || has(&self.tool_result, result.as_slice()))
    }
}

impl LastRole {
    fn name(self) -> &'static str {
        match self {
            LastRole::User => "user",
            LastRole::Assistant => "assistant",
            LastRole::Tool => "tool",
        }
    }
}

impl RuleReply {
    fn check(&self) -> Result<(), RuleReplyError> {
        if self.text.is_empty() && self.calls.is_empty() && self.fault.is_none() {
            return Err(RuleReplyError::Empty);
        }
        if self.fault == Some(ScriptFault::BadJson) && self.calls.is_empty() {
            return Err(RuleReplyError::BadJsonWithoutCalls);
        }
        if self.times.is_some() && self.fault.is_none() {
            return Err(RuleReplyError::TimesWithoutFault);
        }
        if self.retry_after_ms.is_some()
            && !matches!(self.fault, Some(ScriptFault::RateLimit | ScriptFault::Overloaded))
        {
            return Err(RuleReplyError::RetryWithoutFault);
        }
        check_text(&self.text).map_err(RuleReplyError::Text)?;
        for (at, call) in self.calls.iter().enumerate() {
            if !call.arguments.is_object() {
                return Err(RuleReplyError::Arguments { call: at, tool: call.tool.clone() });
            }
            check_value(&call.arguments).map_err(|error| RuleReplyError::CallTemplate { call: at, error })?;
        }
        Ok(())
    }

    fn reply(&self, facts: &RequestFacts, call: u64, fault: Option<ScriptFault>) -> Result<Reply, TemplateError> {
        let text = fill_text(&self.text, facts, call)?;
        // Ids depend on the turn only: workers number their calls independently.
        let turn = facts.turn_name.rsplit('/').next().filter(|turn| !turn.is_empty());
        let prefix = turn.map_or_else(|| format!("n{call}"), |turn| format!("t{turn}"));
        let mut calls = Vec::with_capacity(self.calls.len());
        for (at, rule) in self.calls.iter().enumerate() {
            let arguments = fill_value(&rule.arguments, facts, call)?;
            let arguments = match fault {
                Some(ScriptFault::BadJson) if at == 0 => Arguments::Malformed(cut_json(&arguments)),
                _ => Arguments::Json(arguments),
            };
            calls.push(ToolCall { id: format!("call_{prefix}_{at}"), name: rule.tool.clone(), arguments });
        }
        let usage = self
            .usage
            .map_or_else(|| TokenUsage::new(facts.prompt_tokens, reply_tokens(&text, &calls)), TokenUsage::from);
        Ok(Reply { text, calls, usage, truncated: self.truncated, reasoning: None })
    }
}

/// Estimates the tokens of a reply.
pub fn reply_tokens(text: &str, calls: &[ToolCall]) -> u64 {
    let call_tokens = |call: &ToolCall| match &call.arguments {
        Arguments::Json(value) => tokens(&call.name) + tokens(&value.to_string()),
        Arguments::Malformed(text) => tokens(&call.name) + tokens(text),
    };
    tokens(text) + calls.iter().map(call_tokens).sum::<u64>()
}

/// Returns JSON without its last character, like a reply cut by a limit of tokens.
fn cut_json(value: &Value) -> String {
    let mut text = value.to_string();
    text.pop();
    text
}

/// Makes a syntax error without the line itself: an agent may have named the path, and the file may hold something
/// else.
fn toml_syntax(text: &str, error: &toml::de::Error) -> RulesError {
    let place = error.span().and_then(|span| FilePosition::of_byte(text, span.start));
    let place = place.unwrap_or(FilePosition::new(1, 1));
    RulesError::Syntax(format!("{place}: {}", error.message().replace('\n', "; ")))
}

fn empty_map() -> Value {
    Value::Object(Map::new())
}

fn check_table(value: &Value, place: &RulesPlace, known: &[&'static str]) -> Result<(), RulesError> {
    let table = value.as_object().ok_or_else(|| invalid(place, "expected a table"))?;
    check_keys(table, place, known)
}

fn check_keys(table: &Map<String, Value>, place: &RulesPlace, known: &[&'static str]) -> Result<(), RulesError> {
    let Some(key) = table.keys().find(|key| !known.contains(&key.as_str())) else { return Ok(()) };
    let (key, place, nearest) = (key.clone(), place.clone(), nearest(key, known));
    Err(RulesError::UnknownKey { key, place, nearest, position: None })
}

fn read<T: DeserializeOwned>(place: &RulesPlace, value: &Value) -> Result<T, RulesError> {
    decode::into_type(value.clone()).map_err(|error| invalid(&place.child(error.steps()), error.to_string()))
}

fn invalid(place: &RulesPlace, reason: impl Into<String>) -> RulesError {
    RulesError::Invalid { place: place.clone(), reason: reason.into(), position: None }
}

#[cfg(test)]
#[path = "rules_tests.rs"]
mod tests;
