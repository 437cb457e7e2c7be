//! The log of model calls: one JSON line for each step of a call.

use serde_json::{Value, json};
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;

/// Path of a file that model calls are appended to.
#[derive(Debug, Clone)]
pub struct CallsLog(Arc<PathBuf>);

/// Fields of a call's log lines.
#[derive(Debug, Clone)]
pub struct LoggedCall {
    /// Name of the turn, `owner/agent/session/turn`.
    pub turn: String,
    /// Name of the model, `provider/name`.
    pub model: String,
    /// Number of the rule that answers, from 1; 0 without rules.
    pub rule: usize,
    /// Number of the call in this process.
    pub call: u64,
}

/// Error of a call that can't be logged. Its path is only in the process's own log, which operators read.
#[derive(Debug, thiserror::Error)]
#[error("the log of model calls can't be written: {0}")]
pub struct LogError(io::ErrorKind);

impl CallsLog {
    /// Makes a log at a path; the file is created if it doesn't exist.
    pub fn new(path: PathBuf) -> Self {
        Self(Arc::new(path))
    }

    /// Logs that a call has begun.
    pub async fn log_start(&self, entry: &LoggedCall) -> Result<(), LogError> {
        self.append(entry, "started").await
    }

    /// Logs that a call has ended, with a reply or without.
    pub async fn log_end(&self, entry: &LoggedCall, replied: bool) -> Result<(), LogError> {
        self.append(entry, if replied { "replied" } else { "failed" }).await
    }

    /// Appends a line with one `write`, so that lines of several processes don't mix; on a blocking thread, because a
    /// disk may be slow and a pipe may have no reader.
    async fn append(&self, entry: &LoggedCall, event: &str) -> Result<(), LogError> {
        let LoggedCall { turn, model, rule, call } = entry;
        let pid = std::process::id();
        let line: Value = json!({"turn": turn, "model": model, "rule": rule, "call": call, "pid": pid, "event": event});
        let path = Arc::clone(&self.0);
        let written = tokio::task::spawn_blocking(move || {
            let mut file = std::fs::OpenOptions::new().append(true).create(true).open(&*path)?;
            file.write_all(format!("{line}\n").as_bytes())
        });
        written.await.map_err(io::Error::other).flatten().map_err(|error| {
            tracing::error!(file = %self.0.display(), %error, "the log of model calls can't be written");
            LogError(error.kind())
        })
    }
}
