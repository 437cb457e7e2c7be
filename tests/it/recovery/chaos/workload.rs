//! The tasks: at least three turns each, with tools, shared arrays and child jobs.

use serde_json::{Value, json};
use std::fmt::Write;
use trellis::domain::event::Submission;
use trellis::domain::ids::{AgentId, EventId, JobId};

/// Every reply says its call number, so that a committed one can be found in the log of calls.
pub const RULES: &str = r#"
[[rule]]
when = { model = "helper", turn = 1 }
[rule.then]
text = "call {{call}}"
delay_ms = 10
calls = [{ tool = "lattice_append", arguments = { path = "w/helped/{{input.group}}", value = "{{input.name}}" } }]

[[rule]]
when = { model = "helper" }
then = { text = "helped {{input.name}} call {{call}}", delay_ms = 5 }

[[rule]]
when = { turn = 1 }
[rule.then]
text = "call {{call}}"
delay_ms = 30
calls = [
  { tool = "lattice_write", arguments = { path = "w/notes/{{input.name}}", value = { n = "{{input.n}}" } } },
  { tool = "lattice_append", arguments = { path = "w/logs/{{input.group}}", value = "{{input.name}}" } },
]

[[rule]]
when = { model = "asker", turn = 2 }
[rule.then]
text = "call {{call}}"
delay_ms = 15
calls = [{ tool = "agent_request", arguments = { agentId = "{{input.helper}}", input = { name = "{{input.name}}", group = "{{input.group}}" }, wait = 0 } }]

[[rule]]
when = { model = "writer", turn = 2 }
[rule.then]
text = "call {{call}}"
delay_ms = 15
calls = [{ tool = "lattice_read", arguments = { path = "w/notes/{{input.name}}" } }]

[[rule]]
when = { model = "asker", turn = 3 }
then = { text = "done {{input.name}} asked call {{call}}", delay_ms = 5 }

[[rule]]
when = { model = "writer", turn = 3 }
then = { text = "done {{input.name}} saw {{tool_result.value.n}} call {{call}}", delay_ms = 5 }
"#;

/// Agents that help; the others are served.
const HELPERS: usize = 5;
/// Agents that append to the same array.
const GROUP: usize = 10;

/// A task and what must come of it.
#[derive(Debug, Clone)]
pub struct Task {
    /// Also its event id.
    pub name: String,
    /// Number of the task.
    pub n: usize,
    /// Whose.
    pub agent: String,
    /// Array that it appends to.
    pub group: String,
    /// It has a child job.
    pub asks: bool,
    /// Once it is accepted.
    pub job: Option<JobId>,
}

impl Task {
    /// The n-th task over so many agents.
    pub fn new(n: usize, agents: usize) -> Self {
        let agent = n % agents;
        Self {
            name: format!("task-{n:05}"),
            n,
            agent: format!("w{agent:02}"),
            group: format!("g{}", agent / GROUP),
            asks: is_asker(agent),
            job: None,
        }
    }

    pub fn agent_id(&self) -> AgentId {
        self.agent.parse().unwrap()
    }

    pub fn event(&self) -> EventId {
        EventId::new(self.name.clone()).unwrap()
    }

    /// The same bytes each time it is sent. Every fourth shares a session with others.
    pub fn submission(&self) -> Submission {
        let helper = format!("h{}", self.n % HELPERS);
        Submission {
            input: json!({"name": self.name, "n": self.n, "group": self.group, "helper": helper}),
            session_id: (self.n / 50).is_multiple_of(4).then(|| "shared".parse().unwrap()),
            ..Submission::default()
        }
    }

    /// How its output begins.
    pub fn output(&self) -> String {
        let mut output = format!("done {} ", self.name);
        let rest = if self.asks { write!(output, "asked call ") } else { write!(output, "saw {} call ", self.n) };
        rest.unwrap();
        output
    }
}

fn is_asker(agent: usize) -> bool {
    agent % 4 == 3
}

/// Every agent with its configuration.
pub fn agents(served: usize) -> Vec<(AgentId, Value)> {
    // The entry is read in every turn, so that making a context waits for the store.
    let config = |model: &str| json!({"model": {"provider": "scripted", "name": model}, "context": ["w/policy"]});
    let served = (0..served).map(|n| (format!("w{n:02}"), config(if is_asker(n) { "asker" } else { "writer" })));
    let helpers = (0..HELPERS).map(|n| (format!("h{n}"), config("helper")));
    served.chain(helpers).map(|(id, config)| (id.parse().unwrap(), config)).collect()
}
