//! A trial of a model: a few short calls that show which features work here.

use crate::domain::chat::{Arguments, ChatMessage, ModelRequest, ModelSettings, OutputFormat, Reply, ToolSpec};
use crate::domain::decode;
use crate::domain::outputs;
use crate::model::{LiveText, Model, ModelError};
use crate::venue::secrets::OpenedSecret;
use serde_json::{Value, json};

/// Tokens of a reply where the settings give none: enough for a short answer after some reasoning.
const REPLY_TOKENS: u32 = 1_024;
/// Characters of a reply that a finding shows.
const SHOWN_CHARS: usize = 80;
/// The tool that the model is asked to call.
const TRIAL_TOOL: &str = "add_numbers";

/// Result of a trial for one feature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrialFinding {
    /// Name of the feature.
    pub feature: &'static str,
    /// Whether it works; `None` if these calls don't show it.
    pub works: Option<bool>,
    /// What the calls have shown.
    pub detail: String,
    /// Whether the provider did not answer, so that nothing is known of the feature.
    pub is_unavailable: bool,
}

impl TrialFinding {
    const fn new(feature: &'static str, works: Option<bool>, detail: String) -> Self {
        Self { feature, works, detail, is_unavailable: false }
    }

    /// Makes the finding of a call that failed.
    fn from_error(feature: &'static str, error: &ModelError) -> Self {
        let is_unavailable = matches!(error, ModelError::Transient { .. });
        let works = if is_unavailable { None } else { Some(false) };
        Self { feature, works, detail: error.to_string(), is_unavailable }
    }
}

/// Tries a model. Fails if the first call does.
pub async fn run(
    model: &dyn Model,
    settings: &ModelSettings,
    secrets: &[OpenedSecret],
) -> Result<Vec<TrialFinding>, ModelError> {
    let trial = Trial { model, settings, secrets };
    let (reply, pieces) = trial.ask_once(trial.request(vec![user("Say hello in one short sentence.")])).await?;
    let mut findings = vec![
        TrialFinding::new("text", Some(!reply.text.trim().is_empty()), format_reply(&reply)),
        TrialFinding::new("streaming", (pieces > 1).then_some(true), format!("{pieces} pieces")),
        usage(&reply),
    ];
    findings.extend(trial.tools().await);
    findings.push(trial.output().await);
    let reasoned = reply.usage.reasoning;
    let detail = match (&reply.reasoning, reasoned) {
        (Some(_), tokens) => format!("kept apart from the answer, {tokens} tokens told"),
        (None, 0) => "none told; `reasoning` in the agent's `model` asks for it".to_owned(),
        (None, tokens) => format!("{tokens} tokens told, and not what was reasoned"),
    };
    findings.push(TrialFinding::new("reasoning", (reply.reasoning.is_some() || reasoned > 0).then_some(true), detail));
    Ok(findings)
}

struct Trial<'t> {
    model: &'t dyn Model,
    settings: &'t ModelSettings,
    secrets: &'t [OpenedSecret],
}

impl Trial<'_> {
    fn request(&self, messages: Vec<ChatMessage>) -> ModelRequest {
        let max_tokens = Some(self.settings.max_tokens.unwrap_or(REPLY_TOKENS));
        ModelRequest {
            model: ModelSettings { max_tokens, ..self.settings.clone() },
            system: "You are a careful assistant.".into(),
            messages,
            tools: Vec::new().into(),
            turn: "trial/trial/trial/trial/1".into(),
            stable: 0,
            output: None,
        }
    }

    /// Asks as [`Self::ask_once`], and once more if there was no answer: some servers close a kept connection behind a
    /// streamed reply.
    async fn ask(&self, request: ModelRequest) -> Result<(Reply, usize), ModelError> {
        match self.ask_once(request.clone()).await {
            Err(ModelError::Transient { .. }) => self.ask_once(request).await,
            asked => asked,
        }
    }

    /// Returns the reply, and the number of pieces of its text.
    async fn ask_once(&self, request: ModelRequest) -> Result<(Reply, usize), ModelError> {
        let (live, mut texts) = LiveText::channel();
        let reply = self.model.complete(&request, self.secrets, &live).await;
        drop(live);
        let mut pieces = 0;
        while texts.recv().await.is_some() {
            pieces += 1;
        }
        reply.map(|reply| (reply, pieces))
    }

    /// Tries a call of a tool, and a reply to its result.
    async fn tools(&self) -> Vec<TrialFinding> {
        let number = json!({"type": "integer"});
        let tool = ToolSpec {
            name: TRIAL_TOOL.into(),
            description: "Adds two numbers.".into(),
            schema: json!({"type": "object", "properties": {"a": number, "b": number}, "required": ["a", "b"]}),
        };
        let asked = user("What is 1712 + 2543? Call the tool `add_numbers`.");
        let with_tool = |messages| ModelRequest { tools: vec![tool.clone()].into(), ..self.request(messages) };
        let reply = match self.ask(with_tool(vec![asked.clone()])).await {
            Ok((reply, _)) => reply,
            Err(error) => return vec![TrialFinding::from_error("tools", &error)],
        };
        let Some(call) = reply.calls.first().cloned() else {
            return vec![TrialFinding::new(
                "tools",
                Some(false),
                format!("no call, but the text {}", format_reply(&reply)),
            )];
        };
        let fits = call.name == TRIAL_TOOL
            && matches!(&call.arguments, Arguments::Json(given) if given["a"] == 1_712 && given["b"] == 2_543);
        let detail = format!("called `{}` with {}", call.name, call.arguments.to_value());
        let mut found = vec![TrialFinding::new("tools", Some(fits), detail)];
        let Reply { text, calls, reasoning, .. } = reply;
        let results = calls.iter().map(|call| ChatMessage::Tool {
            call: call.id.clone(),
            name: call.name.clone(),
            text: "4255".into(),
        });
        let results: Vec<_> = results.collect();
        let said = ChatMessage::Assistant { text, calls, reasoning };
        let messages = [asked, said].into_iter().chain(results).collect();
        found.push(match self.ask(with_tool(messages)).await {
            Ok((reply, _)) => {
                let read = reply.usage.cache_read;
                let cached = format!("; {read} of {} prompt tokens from the cache", reply.usage.input);
                TrialFinding::new("results", Some(true), format!("{}{cached}", format_reply(&reply)))
            }
            Err(error) => TrialFinding::from_error("results", &error),
        });
        found
    }

    /// Tries a reply that must fit a schema.
    async fn output(&self) -> TrialFinding {
        let name = json!({"type": "string"});
        let schema = json!({
            "type": "object", "properties": {"city": name, "country": name},
            "required": ["city", "country"], "additionalProperties": false,
        });
        let asked = "The Eiffel Tower stands in Paris, France. Answer with its city and country as JSON.";
        let output = Some(OutputFormat { schema: schema.clone(), tools_optional: true });
        let request = ModelRequest { output, ..self.request(vec![user(asked)]) };
        match self.ask(request).await {
            Ok((reply, _)) => {
                let value = decode::lenient_json(reply.text.trim().as_bytes()).unwrap_or(Value::Null);
                TrialFinding::new(
                    "structured output",
                    Some(outputs::misfit_text(&schema, &value).is_none()),
                    format_reply(&reply),
                )
            }
            Err(error) => TrialFinding::from_error("structured output", &error),
        }
    }
}

fn user(text: &str) -> ChatMessage {
    ChatMessage::user(text)
}

fn usage(reply: &Reply) -> TrialFinding {
    let told = reply.usage.input > 0 && reply.usage.output > 0;
    let detail = format!("{} tokens in, {} out", reply.usage.input, reply.usage.output);
    // Calls are charged all the same, by an estimate.
    TrialFinding::new(
        "usage",
        told.then_some(true),
        if told { detail } else { format!("{detail}: counted by estimate") },
    )
}

/// Returns the beginning of a reply's text, in one line.
fn format_reply(reply: &Reply) -> String {
    let text = reply.text.split_whitespace().collect::<Vec<_>>().join(" ");
    let begin: String = text.chars().take(SHOWN_CHARS).collect();
    let more = if begin.len() < text.len() { "…" } else { "" };
    let cut = if reply.truncated { ", cut off by the limit of tokens" } else { "" };
    format!("`{begin}{more}`{cut}")
}
