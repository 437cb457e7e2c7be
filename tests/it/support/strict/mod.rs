//! What the APIs of model providers refuse in a request, rule by rule from public error texts.
//!
//! A rule names where its text was reported: `owner/repository #issue`. What types alone say (unknown keys, wrong
//! kinds) is checked by the official SDKs in `tests/clients/sdk_judge.py`. Needs nothing but `serde_json` and
//! `base64`.

pub mod anthropic;
pub mod deepseek;
pub mod gemini;
pub mod gemini_schema;
pub mod media;
pub mod mistral;
pub mod ollama;
pub mod openai;
pub mod openai_schema;
pub mod responses;

use serde_json::Value;

/// The text of a refusal, or nothing.
pub type Verdict = Result<(), String>;

/// An API whose rules are checked; those that speak another's format have its rules and their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Judge {
    /// Chat Completions.
    OpenAi,
    Responses,
    Anthropic,
    /// `generateContent`; models from Gemini 3 on want their signatures back.
    Gemini,
    Gemini3,
    /// Chat Completions of Gemini 3.
    GeminiChat,
    DeepSeek,
    Kimi,
    Mistral,
    /// `/api/chat`.
    Ollama,
}

impl Judge {
    pub const ALL: [Self; 10] = [
        Self::OpenAi,
        Self::Responses,
        Self::Anthropic,
        Self::Gemini,
        Self::Gemini3,
        Self::GeminiChat,
        Self::DeepSeek,
        Self::Kimi,
        Self::Mistral,
        Self::Ollama,
    ];

    /// The judge of a provider by its name in a configuration; those that are unknown speak Chat Completions.
    pub fn for_provider(provider: &str) -> Self {
        match provider {
            "openai_resp" => Self::Responses,
            "anthropic" => Self::Anthropic,
            "gemini" | "vertex" => Self::Gemini3,
            "gemini_openai" => Self::GeminiChat,
            "deepseek" => Self::DeepSeek,
            "moonshot" | "kimi" => Self::Kimi,
            "mistral" => Self::Mistral,
            _ => Self::OpenAi,
        }
    }

    /// The judge of a provider's request: the path says which model of Gemini is asked.
    pub fn for_request(provider: &str, path: &str) -> Self {
        match Self::for_provider(provider) {
            Self::Gemini3 => Self::for_path(path).unwrap_or(Self::Gemini3),
            judge => judge,
        }
    }

    /// The judge of a request's path, by the shape of the URL and, for Gemini, its model.
    pub fn for_path(path: &str) -> Option<Self> {
        let path = path.split('?').next().unwrap_or_default();
        if let Some((model, method)) = path.rsplit_once(':') {
            let is_gemini = matches!(method, "generateContent" | "streamGenerateContent");
            let judge = if model.contains("gemini-3") { Self::Gemini3 } else { Self::Gemini };
            return is_gemini.then_some(judge);
        }
        match path.rsplit('/').next()? {
            "completions" if path.ends_with("/chat/completions") => Some(Self::OpenAi),
            "responses" => Some(Self::Responses),
            "messages" => Some(Self::Anthropic),
            "chat" if path.ends_with("/api/chat") => Some(Self::Ollama),
            _ => None,
        }
    }

    /// The body of the error with which this API refuses.
    pub fn error_body(self, text: &str) -> Value {
        match self {
            Self::OpenAi | Self::Responses | Self::DeepSeek | Self::Kimi => {
                serde_json::json!({"error": {"message": text, "type": "invalid_request_error", "param": null, "code": null}})
            }
            Self::Anthropic => {
                serde_json::json!({"type": "error", "error": {"type": "invalid_request_error", "message": text}})
            }
            Self::Gemini | Self::Gemini3 => {
                serde_json::json!({"error": {"code": 400, "message": text, "status": "INVALID_ARGUMENT"}})
            }
            Self::GeminiChat => {
                serde_json::json!([{"error": {"code": 400, "message": text, "status": "INVALID_ARGUMENT"}}])
            }
            Self::Mistral => {
                serde_json::json!({"object": "error", "message": text, "type": "invalid_request_error", "param": null, "code": null})
            }
            Self::Ollama => serde_json::json!({"error": text}),
        }
    }
}

/// The text with which `judge` would refuse `body`; `None` when it would accept it.
pub fn refusal(judge: Judge, body: &Value) -> Option<String> {
    let verdict = match judge {
        Judge::OpenAi => openai::check(body),
        Judge::Responses => responses::check(body),
        Judge::Anthropic => anthropic::check(body),
        Judge::Gemini => gemini::check(body, false),
        Judge::Gemini3 => gemini::check(body, true),
        Judge::GeminiChat => openai::check(body).and_then(|()| gemini::check_chat(body)),
        Judge::DeepSeek => deepseek::check(body),
        Judge::Kimi => deepseek::check_kimi(body),
        Judge::Mistral => mistral::check(body),
        Judge::Ollama => ollama::check(body),
    };
    verdict.err()
}

fn ensure(holds: bool, text: impl FnOnce() -> String) -> Verdict {
    if holds { Ok(()) } else { Err(text()) }
}

/// The list at a key; empty when there is none.
fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The text at a key; empty when there is none.
fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// The members of the object at a key.
fn members<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    value.get(key).and_then(Value::as_object).into_iter().flatten()
}

/// Whether a text matches `^[a-zA-Z0-9_-]{1,max}$`, with more characters allowed.
fn is_word(text: &str, max: usize, more: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-' || more.contains(c);
    !text.is_empty() && text.chars().count() <= max && text.chars().all(allowed)
}

/// The first text that comes twice.
fn repeated<'a>(texts: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let mut seen = std::collections::HashSet::new();
    texts.into_iter().find(|text| !seen.insert(*text))
}
