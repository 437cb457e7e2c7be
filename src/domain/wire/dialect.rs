//! Differences between providers of one wire format, as data.

use crate::media::MediaType;
use std::collections::BTreeSet;

/// Types of pictures that most providers take.
const IMAGES: &[MediaType] = &[MediaType::Png, MediaType::Jpeg, MediaType::Webp, MediaType::Gif];
/// Types of pictures that most providers take, and PDF.
const IMAGES_AND_PDF: &[MediaType] =
    &[MediaType::Png, MediaType::Jpeg, MediaType::Webp, MediaType::Gif, MediaType::Pdf];

/// The shape of requests and replies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WireFormat {
    /// Chat Completions of OpenAI, `POST chat/completions`.
    OpenAiChat,
    /// Responses of OpenAI, `POST responses`.
    OpenAiResponses,
    /// Messages of Anthropic, `POST messages`.
    Anthropic,
    /// Content of Gemini, `POST models/NAME:streamGenerateContent`.
    Gemini,
}

impl WireFormat {
    /// Returns the name of the format for reports.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::OpenAiChat => "openai chat completions",
            Self::OpenAiResponses => "openai responses",
            Self::Anthropic => "anthropic messages",
            Self::Gemini => "gemini generateContent",
        }
    }
}

/// The header that carries the API key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyHeader {
    /// The header `Authorization: Bearer KEY`.
    Bearer,
    /// A header of this name with the key alone.
    Named(&'static str),
}

/// How a request sets the amount of reasoning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReasoningRequest {
    /// The provider has no such setting.
    Unsupported,
    /// `reasoning_effort`, or `reasoning.effort` in the Responses format.
    Effort,
    /// `reasoning: {effort | max_tokens}`, as OpenRouter has it.
    Object,
    /// `thinking: {type, budget_tokens}`, as Anthropic has it.
    Budget,
    /// `thinking: {type: enabled | disabled}`, as DeepSeek, Kimi and Z.ai have it.
    Switch,
    /// `enable_thinking` and `thinking_budget`, as Qwen has it.
    EnableThinking,
    /// `generationConfig.thinkingConfig`, as Gemini has it.
    ThinkingConfig,
}

/// Which reasoning of a model goes back to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReasoningReturn {
    /// No reasoning goes back.
    Never,
    /// `reasoning_content` beside a message with calls; without it the provider refuses the conversation.
    Content,
    /// `reasoning_details`, as OpenRouter has it.
    Details,
    /// `thinking` blocks with their signatures before calls.
    Blocks,
    /// Encrypted items of the Responses format.
    Items,
    /// `thoughtSignature` beside parts.
    Signatures,
    /// `extra_content.google.thought_signature` of a call: Gemini's signatures in OpenAI's format.
    ExtraContent,
}

/// Which ids of calls a provider accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallIds {
    /// Characters of `[A-Za-z0-9_-]`, at most this many.
    Plain(usize),
    /// Exactly nine characters of `[A-Za-z0-9]`.
    Nine,
}

/// Which names of tools a provider accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ToolNameRule {
    /// Most characters of a name.
    pub chars: usize,
    /// The first character must be a letter or `_`.
    pub begins_with_letter: bool,
}

/// Which subset of JSON Schema a provider accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SchemaSubset {
    /// Arrays have `items`; an object without combinators at the top.
    OpenAi,
    /// An object without combinators at the top; keys match `^[a-zA-Z0-9_.-]{1,64}$`.
    Anthropic,
    /// The subset of OpenAPI 3.0 that Gemini reads.
    Gemini,
}

/// How a request asks for a text of a type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StructuredOutput {
    /// The provider can't be asked for one.
    Unsupported,
    /// The request has a JSON Schema.
    Schema,
    /// The request asks only for JSON: `response_format: {type: json_object}`.
    JsonObject,
}

/// All facts about a provider that a codec depends on.
#[derive(Debug, Clone, Copy, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of a provider, named in a table")]
pub struct Dialect {
    /// Name of the provider in a configuration.
    pub provider: &'static str,
    /// Wire format of its requests and replies.
    pub format: WireFormat,
    /// URL up to and including the version; `None` if the configuration must name one.
    pub base_url: Option<&'static str>,
    /// Environment variable with the API key; `None` if the provider needs none.
    pub key_env: Option<&'static str>,
    /// Header for the API key.
    pub key_header: KeyHeader,
    /// Name of the body's field for the token limit.
    pub token_limit: &'static str,
    /// How a request sets the amount of reasoning.
    pub reasoning: ReasoningRequest,
    /// Which reasoning goes back to the model.
    pub reasoning_return: ReasoningReturn,
    /// `<think>…</think>` at the beginning of a text is reasoning.
    pub think_tags: bool,
    /// Rule for ids of calls.
    pub call_ids: CallIds,
    /// Rule for names of tools.
    pub tool_names: ToolNameRule,
    /// Subset of JSON Schema for tools and outputs.
    pub schema: SchemaSubset,
    /// How a request asks for a typed text.
    pub structured: StructuredOutput,
    /// A request may have tools and ask for a typed text.
    pub structured_with_tools: bool,
    /// A user's message may stand directly behind results of tools.
    pub user_after_tool: bool,
    /// The provider takes `parallel_tool_calls`.
    pub parallel_tool_calls: bool,
    /// The provider takes `seed`.
    pub seed: bool,
    /// The provider takes `stream_options.include_usage`.
    pub stream_usage: bool,
    /// The provider takes `prompt_cache_key`.
    pub prompt_cache_key: bool,
    /// The provider caches by itself or by marks, and reports cached tokens.
    pub caches: bool,
    /// Role of the system prompt, where it is a message.
    pub system_role: &'static str,
    /// Types of pictures and files that its models with vision take; text is sent as text.
    pub media: &'static [MediaType],
}

impl Dialect {
    /// Returns the reason why an attachment of this type isn't sent; `None` if it is sent.
    pub fn media_refusal(&self, media: MediaType) -> Option<String> {
        if media == MediaType::Text || self.media.contains(&media) {
            return None;
        }
        let (provider, kind) = (self.provider, media.as_str());
        Some(match self.media {
            [] => format!("provider `{provider}` takes no images or files; give the agent a model that does"),
            some => {
                let taken: Vec<_> = some.iter().map(|media| media.as_str()).collect();
                format!("provider `{provider}` takes no {kind}, but {}", taken.join(", "))
            }
        })
    }
}

const PLAIN_NAMES: ToolNameRule = ToolNameRule { chars: 64, begins_with_letter: false };

/// Dialect of an unknown endpoint that speaks Chat Completions.
pub const COMPATIBLE: Dialect = Dialect {
    provider: "compatible",
    format: WireFormat::OpenAiChat,
    base_url: None,
    key_env: None,
    key_header: KeyHeader::Bearer,
    token_limit: "max_tokens",
    reasoning: ReasoningRequest::Effort,
    reasoning_return: ReasoningReturn::Never,
    think_tags: true,
    // OpenAI refuses more than 40 characters.
    call_ids: CallIds::Plain(40),
    tool_names: PLAIN_NAMES,
    schema: SchemaSubset::OpenAi,
    structured: StructuredOutput::Schema,
    structured_with_tools: false,
    user_after_tool: true,
    parallel_tool_calls: true,
    seed: true,
    stream_usage: true,
    prompt_cache_key: false,
    caches: true,
    system_role: "system",
    media: IMAGES,
};

const OPENAI: Dialect = Dialect {
    provider: "openai",
    base_url: Some("https://api.openai.com/v1/"),
    key_env: Some("OPENAI_API_KEY"),
    token_limit: "max_completion_tokens",
    think_tags: false,
    structured_with_tools: true,
    prompt_cache_key: true,
    media: IMAGES_AND_PDF,
    ..COMPATIBLE
};

const RESPONSES: Dialect = Dialect {
    provider: "openai_resp",
    format: WireFormat::OpenAiResponses,
    token_limit: "max_output_tokens",
    reasoning_return: ReasoningReturn::Items,
    seed: false,
    ..OPENAI
};

const ANTHROPIC: Dialect = Dialect {
    provider: "anthropic",
    format: WireFormat::Anthropic,
    base_url: Some("https://api.anthropic.com/v1/"),
    key_env: Some("ANTHROPIC_API_KEY"),
    key_header: KeyHeader::Named("x-api-key"),
    reasoning: ReasoningRequest::Budget,
    reasoning_return: ReasoningReturn::Blocks,
    think_tags: false,
    schema: SchemaSubset::Anthropic,
    structured_with_tools: true,
    seed: false,
    media: IMAGES_AND_PDF,
    ..COMPATIBLE
};

const GEMINI: Dialect = Dialect {
    provider: "gemini",
    format: WireFormat::Gemini,
    base_url: Some("https://generativelanguage.googleapis.com/v1beta/"),
    key_env: Some("GEMINI_API_KEY"),
    key_header: KeyHeader::Named("x-goog-api-key"),
    token_limit: "maxOutputTokens",
    reasoning: ReasoningRequest::ThinkingConfig,
    reasoning_return: ReasoningReturn::Signatures,
    think_tags: false,
    tool_names: ToolNameRule { chars: 63, begins_with_letter: true },
    schema: SchemaSubset::Gemini,
    parallel_tool_calls: false,
    // No GIF: <https://ai.google.dev/gemini-api/docs/image-understanding>.
    media: &[MediaType::Png, MediaType::Jpeg, MediaType::Webp, MediaType::Pdf],
    ..COMPATIBLE
};

const DEEPSEEK: Dialect = Dialect {
    provider: "deepseek",
    base_url: Some("https://api.deepseek.com/v1/"),
    key_env: Some("DEEPSEEK_API_KEY"),
    reasoning: ReasoningRequest::Switch,
    reasoning_return: ReasoningReturn::Content,
    structured: StructuredOutput::JsonObject,
    parallel_tool_calls: false,
    seed: false,
    // "unknown variant `image_url`, expected `text`": lessweb/deepcode-cli #50, rikkahub #1433.
    media: &[],
    ..COMPATIBLE
};

const MOONSHOT: Dialect = Dialect {
    provider: "moonshot",
    base_url: Some("https://api.moonshot.ai/v1/"),
    key_env: Some("MOONSHOT_API_KEY"),
    structured: StructuredOutput::Schema,
    media: IMAGES,
    ..DEEPSEEK
};

const MISTRAL: Dialect = Dialect {
    provider: "mistral",
    base_url: Some("https://api.mistral.ai/v1/"),
    key_env: Some("MISTRAL_API_KEY"),
    reasoning: ReasoningRequest::Unsupported,
    call_ids: CallIds::Nine,
    user_after_tool: false,
    seed: false,
    stream_usage: false,
    ..COMPATIBLE
};

const OLLAMA: Dialect = Dialect {
    provider: "ollama",
    base_url: Some("http://localhost:11434/v1/"),
    parallel_tool_calls: false,
    ..COMPATIBLE
};

const OPENROUTER: Dialect = Dialect {
    provider: "openrouter",
    base_url: Some("https://openrouter.ai/api/v1/"),
    key_env: Some("OPENROUTER_API_KEY"),
    reasoning: ReasoningRequest::Object,
    reasoning_return: ReasoningReturn::Details,
    structured_with_tools: true,
    media: IMAGES_AND_PDF,
    ..COMPATIBLE
};

const ZAI: Dialect = Dialect {
    provider: "zai",
    base_url: Some("https://api.z.ai/api/paas/v4/"),
    key_env: Some("ZAI_API_KEY"),
    reasoning: ReasoningRequest::Switch,
    structured: StructuredOutput::JsonObject,
    ..COMPATIBLE
};

const ALIYUN: Dialect = Dialect {
    provider: "aliyun",
    base_url: Some("https://dashscope.aliyuncs.com/compatible-mode/v1/"),
    key_env: Some("ALIYUN_API_KEY"),
    reasoning: ReasoningRequest::EnableThinking,
    ..COMPATIBLE
};

/// Returns the dialect of a provider of Chat Completions with only its own URL and key.
const fn compatible(provider: &'static str, base_url: &'static str, key_env: &'static str) -> Dialect {
    Dialect { provider, base_url: Some(base_url), key_env: Some(key_env), ..COMPATIBLE }
}

/// The dialects of all providers.
pub const DIALECTS: [Dialect; 38] = [
    OPENAI,
    RESPONSES,
    Dialect {
        provider: "azure",
        base_url: None,
        key_env: Some("AZURE_OPENAI_API_KEY"),
        key_header: KeyHeader::Named("api-key"),
        media: IMAGES,
        ..OPENAI
    },
    ANTHROPIC,
    GEMINI,
    // Gemini's and Claude's formats behind a project's own URL, with an access token in place of a key.
    Dialect {
        provider: "vertex",
        base_url: None,
        key_env: Some("VERTEX_API_KEY"),
        key_header: KeyHeader::Bearer,
        ..GEMINI
    },
    // Gemini's own endpoint for Chat Completions.
    Dialect {
        provider: "gemini_openai",
        base_url: Some("https://generativelanguage.googleapis.com/v1beta/openai/"),
        key_env: Some("GEMINI_API_KEY"),
        reasoning_return: ReasoningReturn::ExtraContent,
        schema: SchemaSubset::Gemini,
        think_tags: false,
        parallel_tool_calls: false,
        seed: false,
        media: &[MediaType::Png, MediaType::Jpeg, MediaType::Webp],
        ..COMPATIBLE
    },
    // Bedrock's endpoint for Chat Completions, with a Bedrock API key; its own format and its signatures are not spoken.
    Dialect { provider: "bedrock", base_url: None, key_env: Some("AWS_BEARER_TOKEN_BEDROCK"), ..COMPATIBLE },
    DEEPSEEK,
    MOONSHOT,
    Dialect { provider: "kimi", ..MOONSHOT },
    MISTRAL,
    Dialect {
        provider: "xai",
        base_url: Some("https://api.x.ai/v1/"),
        key_env: Some("XAI_API_KEY"),
        think_tags: false,
        structured_with_tools: true,
        media: &[MediaType::Png, MediaType::Jpeg],
        ..COMPATIBLE
    },
    compatible("groq", "https://api.groq.com/openai/v1/", "GROQ_API_KEY"),
    compatible("together", "https://api.together.xyz/v1/", "TOGETHER_API_KEY"),
    compatible("fireworks", "https://api.fireworks.ai/inference/v1/", "FIREWORKS_API_KEY"),
    OPENROUTER,
    Dialect { provider: "open_router", ..OPENROUTER },
    OLLAMA,
    Dialect {
        provider: "ollama_cloud",
        base_url: Some("https://ollama.com/v1/"),
        key_env: Some("OLLAMA_API_KEY"),
        ..OLLAMA
    },
    Dialect { provider: "vllm", base_url: Some("http://localhost:8000/v1/"), ..COMPATIBLE },
    Dialect { provider: "llamacpp", base_url: Some("http://localhost:8080/v1/"), ..COMPATIBLE },
    Dialect { provider: "litellm", base_url: Some("http://localhost:4000/v1/"), ..COMPATIBLE },
    Dialect { provider: "omlx", base_url: Some("http://localhost:8000/v1/"), ..COMPATIBLE },
    ZAI,
    Dialect {
        provider: "bigmodel",
        base_url: Some("https://open.bigmodel.cn/api/paas/v4/"),
        key_env: Some("BIGMODEL_API_KEY"),
        ..ZAI
    },
    ALIYUN,
    Dialect {
        provider: "qwen_cloud",
        base_url: Some("https://dashscope-intl.aliyuncs.com/compatible-mode/v1/"),
        key_env: Some("QWEN_API_KEY"),
        ..ALIYUN
    },
    compatible("baidu", "https://qianfan.baidubce.com/v2/", "BAIDU_API_KEY"),
    compatible("cohere", "https://api.cohere.ai/compatibility/v1/", "COHERE_API_KEY"),
    compatible("nebius", "https://api.studio.nebius.ai/v1/", "NEBIUS_API_KEY"),
    compatible("mimo", "https://api.xiaomimimo.com/v1/", "MIMO_API_KEY"),
    Dialect { media: &[], ..compatible("minimax", "https://api.minimax.io/v1/", "MINIMAX_API_KEY") },
    compatible("aihubmix", "https://aihubmix.com/v1/", "AIHUBMIX_API_KEY"),
    compatible("github_copilot", "https://models.github.ai/inference/", "GITHUB_TOKEN"),
    Dialect { media: &[], ..compatible("cerebras", "https://api.cerebras.ai/v1/", "CEREBRAS_API_KEY") },
    compatible("perplexity", "https://api.perplexity.ai/", "PERPLEXITY_API_KEY"),
    compatible("nvidia", "https://integrate.api.nvidia.com/v1/", "NVIDIA_API_KEY"),
];

/// Returns the dialect of a provider by its name.
pub fn find_dialect(provider: &str) -> Option<Dialect> {
    DIALECTS.into_iter().find(|dialect| dialect.provider == provider)
}

/// Returns the names of all providers, sorted.
pub fn providers() -> BTreeSet<&'static str> {
    DIALECTS.iter().map(|dialect| dialect.provider).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_urls_are_whole() {
        assert_eq!(providers().len(), DIALECTS.len());
        for dialect in DIALECTS {
            let url = dialect.base_url.unwrap_or("https://x/");
            assert!(url.starts_with("http") && url.ends_with('/'), "{}", dialect.provider);
            assert!(dialect.base_url.is_some() || dialect.key_env.is_some(), "{}", dialect.provider);
        }
        assert_eq!(find_dialect("mistral").map(|dialect| dialect.call_ids), Some(CallIds::Nine));
        assert_eq!(find_dialect("no-such"), None);
    }
}
