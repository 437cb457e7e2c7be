//! Reads the tokens of a call from the fields of servers of OpenAI's formats.

use crate::chat::TokenUsage;
use serde_json::Value;

/// Returns the first number other than 0 at one of these pointers, or 0.
fn first_number(usage: &Value, pointers: &[&str]) -> u64 {
    let numbers = pointers.iter().filter_map(|pointer| usage.pointer(pointer)?.as_u64());
    numbers.into_iter().find(|number| *number > 0).unwrap_or(0)
}

/// Reads a `usage` object of Chat Completions or Responses.
pub(in super::super) fn parse_usage(usage: &Value) -> TokenUsage {
    let input = first_number(usage, &["/prompt_tokens", "/input_tokens"]);
    let output = first_number(usage, &["/completion_tokens", "/output_tokens"]);
    let total = first_number(usage, &["/total_tokens"]);
    // xAI and Gemini count reasoning outside of the output, but in the total.
    let beside = total.saturating_sub(input.saturating_add(output));
    let told = first_number(
        usage,
        &[
            "/completion_tokens_details/reasoning_tokens",
            "/output_tokens_details/reasoning_tokens",
            "/reasoning_tokens",
        ],
    );
    TokenUsage {
        input,
        output: output.saturating_add(beside),
        cache_read: first_number(
            usage,
            &[
                "/prompt_tokens_details/cached_tokens",
                "/input_tokens_details/cached_tokens",
                "/prompt_cache_hit_tokens",
                "/cached_tokens",
                "/cache_read_input_tokens",
            ],
        ),
        cache_write: first_number(
            usage,
            &[
                "/prompt_tokens_details/cache_write_tokens",
                "/input_tokens_details/cache_write_tokens",
                "/cache_creation_input_tokens",
            ],
        ),
        reasoning: if told == 0 { beside } else { told },
    }
}

/// Reads the `timings` of llama.cpp, which it sends even without usage.
pub(super) fn parse_timings(timings: &Value) -> TokenUsage {
    let cached = first_number(timings, &["/cache_n"]);
    TokenUsage {
        input: first_number(timings, &["/prompt_n"]).saturating_add(cached),
        output: first_number(timings, &["/predicted_n"]),
        cache_read: cached,
        ..TokenUsage::default()
    }
}
