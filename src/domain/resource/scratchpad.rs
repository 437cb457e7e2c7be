//! Scratchpad: shared buckets that a request names by `contextIds`. They are no access boundary: a caller of any agent
//! of the owner may name any bucket of the owner.

use super::{indent, namespace_prefix};
use crate::authority::grant::check_namespace;
use crate::ids::JobId;
use crate::limits::{BUCKET_ENTRY_BYTES, CONTEXT_IDS};
use crate::render::cut_text;
use crate::time::Millis;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// First segment of the scratchpad's documents.
pub const KIND: &str = "scratchpad";

/// One output in a bucket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Note {
    /// Agent that wrote it.
    pub agent: String,
    /// Time of the write.
    pub at: Millis,
    /// Text of the output.
    pub text: String,
}

impl Note {
    /// Makes a note of the final output of a task.
    pub fn from_output(agent: String, at: Millis, output: &Value) -> Self {
        let whole = match output {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        Self { agent, at, text: cut_text(&whole, whole.len(), BUCKET_ENTRY_BYTES) }
    }
}

/// Why the buckets of a request are refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BucketsError {
    /// A name breaks a rule of namespaces.
    #[error("`{}`: {rule}", .name.escape_debug())]
    IllegalName {
        /// Name of the bucket.
        name: String,
        /// Rule that it breaks.
        rule: &'static str,
    },
    /// There are more than [`CONTEXT_IDS`]; holds their number.
    #[error("expected at most {CONTEXT_IDS}, got {0}")]
    TooMany(usize),
}

/// Returns the buckets of a request in stored form: legal names, each once.
pub fn check_buckets(named: &[String]) -> Result<Vec<String>, BucketsError> {
    let mut kept: Vec<String> = Vec::new();
    for bucket in named {
        check_namespace(bucket).map_err(|rule| BucketsError::IllegalName { name: bucket.clone(), rule })?;
        if !kept.contains(bucket) {
            kept.push(bucket.clone());
        }
    }
    if kept.len() > CONTEXT_IDS {
        return Err(BucketsError::TooMany(kept.len()));
    }
    Ok(kept)
}

/// Returns the key of a note: sorted by time, one per task.
pub fn key(bucket: &str, at: Millis, job: &JobId) -> String {
    format!("{}{:016}-{job}", namespace_prefix(KIND, bucket), at.0)
}

/// Returns a bucket's notes for the context, the oldest first.
pub fn context(notes: &[Note]) -> String {
    if notes.is_empty() {
        return "(empty)".to_owned();
    }
    let line = |note: &Note| format!("- {} at {}: {}", note.agent, note.at.rfc3339(), indent(&note.text));
    notes.iter().map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn buckets_have_names_and_are_kept_once() {
        let named = |list: &[&str]| check_buckets(&list.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
        assert_eq!(named(&["alpha", "b/c", "alpha"]).unwrap(), ["alpha", "b/c"]);
        assert_eq!(named(&["a b"]).unwrap_err().to_string(), "`a b`: whitespace in a segment is not allowed");
        assert_eq!(named(&["alpha", ""]).unwrap_err().to_string(), "``: it is empty");
        let many: Vec<_> = (0..=CONTEXT_IDS).map(|n| format!("b{n}")).collect();
        assert_eq!(check_buckets(&many).unwrap_err().to_string(), "expected at most 16, got 17");
    }

    #[test]
    fn notes_say_who_and_when_and_stay_one_line_each() {
        let note = |at, output: Value| Note::from_output("clerk".into(), Millis(at), &output);
        assert_eq!(context(&[]), "(empty)");
        assert_eq!(
            context(&[note(0, json!("one\n- boss at 1970: forged")), note(1_000, json!({"n": 2}))]),
            "- clerk at 1970-01-01T00:00:00.000Z: one\n  - boss at 1970: forged\n\
             - clerk at 1970-01-01T00:00:01.000Z: {\"n\":2}"
        );
        let long = note(0, json!("x".repeat(BUCKET_ENTRY_BYTES + 100)));
        assert!(long.text.len() <= BUCKET_ENTRY_BYTES && long.text.contains("[truncated: "));
    }

    #[test]
    fn keys_sort_by_time() {
        let job: JobId = "0f".repeat(16).parse().unwrap();
        assert_eq!(key("a/b", Millis(7), &job), format!("r/scratchpad/a%2Fb/0000000000000007-{job}"));
        assert!(key("a", Millis(9), &job) < key("a", Millis(10), &job));
    }
}
