//! Shape of a task of `bench turns` and `bench latency`: number of turns, writes of its calls, session.

use super::BenchError;
use crate::domain::agent::AgentConfig;
use serde::Serialize;
use serde_json::{Value, json};
use std::fmt::Write;

/// Bytes that a call writes.
const VALUE_BYTES: usize = 180;

/// In which sessions tasks run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum TaskSession {
    /// Each task runs in a session of its own.
    Fresh,
    /// Those of an agent one after the other in one, whose conversation grows.
    Same,
}

/// Shape of one task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct TaskShape {
    /// Session that it runs in.
    pub session: TaskSession,
    /// Number of turns; each but the last makes calls.
    pub turns: usize,
    /// Calls of such a turn, each writes to the lattice.
    pub tools: usize,
    /// Whether all calls write into one map, two levels down; else each to a path of its own.
    pub shared: bool,
}

impl TaskShape {
    /// Returns why there is no such task.
    pub fn find_problem(&self) -> Option<&'static str> {
        match self {
            Self { turns: 0, .. } => Some("`--turns`: expected at least 1"),
            Self { turns: 2.., tools: 0, .. } => {
                Some("`--tools`: expected at least 1, for a turn without calls is a task's last")
            }
            Self { turns: 1, shared: true, .. } => {
                Some("`--shared` is where calls write: it needs `--turns` of at least 2")
            }
            Self { .. } => None,
        }
    }

    /// Returns the rules of the scripted model, for `models.scripted`.
    pub fn rules(&self) -> String {
        let mut rules = String::new();
        for turn in 1..self.turns {
            let between = if self.shared { ["w/bench/", "/{{input.id}}"] } else { ["w/bench-{{input.id}}-", ""] };
            let path = |call: usize| format!("{}{turn}-{call}{}", between[0], between[1]);
            let call = |call: usize| {
                let (path, value) = (path(call), "x".repeat(VALUE_BYTES));
                format!(r#"{{ tool = "lattice_write", arguments = {{ path = "{path}", value = "{value}" }} }}"#)
            };
            let calls = (0..self.tools).map(call).collect::<Vec<_>>().join(", ");
            let _ = write!(rules, "[[rule]]\nwhen = {{ turn = {turn} }}\nthen = {{ calls = [{calls}] }}\n\n");
        }
        rules + "[[rule]]\nthen = { text = \"done\" }\n"
    }

    /// Returns the agent that runs the tasks, without limits on running and waiting ones.
    pub(super) fn agent(&self, tasks: usize) -> Result<AgentConfig, BenchError> {
        let mut config = json!({
            "systemPrompt": "You answer with what you are asked.",
            "model": {"provider": "scripted", "name": "bench"},
            // The raw rate is measured in sessions of one agent.
            "concurrency": 1024,
            "mailbox": tasks.max(1),
            "defaultTools": false,
        });
        if self.turns > 1 {
            config["tools"] = json!(["v/ops/lattice/write"]);
            config["limits"] = json!({"turns": self.turns});
        }
        AgentConfig::parse(&config).map_err(|e| BenchError::TimedOut(e.to_string()))
    }

    /// Returns the body of the `n`th submission.
    pub(super) fn submission(&self, n: usize, id: &str, reply_to: &str) -> Value {
        let mut body = json!({"input": {"message": format!("task {n}"), "id": id}, "replyTo": reply_to});
        if self.session == TaskSession::Same {
            body["sessionId"] = json!("main");
        }
        body
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_impossible_task_shape_is_refused_with_the_reason() {
        let shape = |turns, tools, shared| TaskShape { session: TaskSession::Same, turns, tools, shared };
        for (shape, expected) in [
            (shape(1, 0, false), None),
            (shape(1, 2, false), None),
            (shape(3, 2, true), None),
            (shape(0, 2, false), Some("--turns")),
            (shape(2, 0, false), Some("--tools")),
            (shape(1, 2, true), Some("--shared")),
        ] {
            let problem = shape.find_problem();
            assert_eq!(problem.is_some(), expected.is_some(), "{shape:?}");
            assert!(problem.is_none_or(|problem| problem.contains(expected.unwrap())), "{problem:?}");
        }
    }
}
