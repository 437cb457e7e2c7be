//! Names of spans' attributes: those of OpenTelemetry's `GenAI` conventions of release v0.1.0, and our own.

/// Schema of the names, which goes with each batch of spans.
pub const SCHEMA: &str = "https://opentelemetry.io/schemas/gen-ai/0.1.0";

/// Kind of the work: one of the words of [`operation`].
pub const OPERATION: &str = "gen_ai.operation.name";
/// Name of the agent.
pub const AGENT: &str = "gen_ai.agent.name";
/// Session of the agent.
pub const CONVERSATION: &str = "gen_ai.conversation.id";
/// Provider of the model.
pub const PROVIDER: &str = "gen_ai.provider.name";
/// Name of the model that was asked for.
pub const REQUEST_MODEL: &str = "gen_ai.request.model";
/// Tokens of the prompt, with those of the provider's cache.
pub const INPUT_TOKENS: &str = "gen_ai.usage.input_tokens";
/// Tokens of the reply, with those of reasoning.
pub const OUTPUT_TOKENS: &str = "gen_ai.usage.output_tokens";
/// Tokens that were read from the provider's cache.
pub const CACHE_READ_TOKENS: &str = "gen_ai.usage.cache_read.input_tokens";
/// Tokens that were written to the provider's cache.
pub const CACHE_WRITE_TOKENS: &str = "gen_ai.usage.cache_write.input_tokens";
/// Tokens of reasoning.
pub const REASONING_TOKENS: &str = "gen_ai.usage.reasoning.output_tokens";
/// Why the reply ended.
pub const FINISH_REASONS: &str = "gen_ai.response.finish_reasons";
/// Name of the tool.
pub const TOOL: &str = "gen_ai.tool.name";
/// Index of the call in its reply.
pub const TOOL_CALL: &str = "gen_ai.tool.call.id";
/// Kind of an error: a word of few.
pub const ERROR: &str = "error.type";

/// Session in the form that trace backends group by.
pub const SESSION: &str = "session.id";
/// Owner, tenant and user.
pub const USER: &str = "user.id";

/// Name of the turn, `owner/agent/session/turn`.
pub const TURN: &str = "trellis.turn";
/// Job that the turn serves.
pub const JOB: &str = "trellis.job.id";
/// Epoch of the lease: a turn that goes on under another lease has another.
pub const EPOCH: &str = "trellis.lease.epoch";
/// SHA-256 of the prompt, by which the ledger has it.
pub const PROMPT_HASH: &str = "trellis.prompt.sha256";
/// Operation of a tool's call, by its path.
pub const TOOL_OPERATION: &str = "trellis.operation";
/// Outcome of a tool's call.
pub const OUTCOME: &str = "trellis.outcome";
/// Number of messages of a relay.
pub const MESSAGES: &str = "messaging.batch.message_count";

/// Kinds of work.
pub mod operation {
    /// A turn, and each stage of it that has no name of its own.
    pub const INVOKE_AGENT: &str = "invoke_agent";
    /// A call of a model.
    pub const CHAT: &str = "chat";
    /// A call of a tool.
    pub const EXECUTE_TOOL: &str = "execute_tool";
}
