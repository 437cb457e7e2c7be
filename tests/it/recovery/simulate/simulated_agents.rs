//! The agents of a simulation, and what their model says.

use serde_json::{Value, json};

pub const RULES: &str = r#"
# Writes its name down, then says that it is done.
[[rule]]
when = { agent = "clerk", turn = 1 }
then = { calls = [{ tool = "lattice_append", arguments = { path = "w/book", value = "{{input.name}}" } }] }

[[rule]]
when = { agent = "clerk" }
then = { calls = [{ tool = "complete_task", arguments = { result = "{{input.name}}" } }] }

# Writes and reads: three turns, which the rules count; that is right in a session of one task.
[[rule]]
when = { agent = "writer", turn = 1 }
[rule.then]
calls = [
  { tool = "lattice_write", arguments = { path = "w/notes/{{input.name}}", value = { n = "{{input.name}}" } } },
  { tool = "lattice_append", arguments = { path = "w/log", value = "{{input.name}}" } },
]

[[rule]]
when = { agent = "writer", turn = 2 }
then = { calls = [{ tool = "lattice_read", arguments = { path = "w/notes/{{input.name}}" } }] }

[[rule]]
when = { agent = "writer" }
then = { text = "saw {{tool_result.value.n}}" }

# Two children; it parks until it hears of both.
[[rule]]
when = { agent = "boss", turn = 1 }
then = { calls = [
    { tool = "agent_request", arguments = { agentId = "helper", input = { name = "{{input.name}}" }, wait = 0 } },
    { tool = "agent_request", arguments = { agentId = "clerk", input = { name = "for {{input.name}}" }, wait = 0 } },
] }

[[rule]]
when = { agent = "boss" }
then = { text = "my people are done" }

# One child, waited for within the turn.
[[rule]]
when = { agent = "chief", turn = 1 }
then = { calls = [{ tool = "agent_request", arguments = { agentId = "helper", input = { name = "{{input.name}}" }, wait = 3000 } }] }

[[rule]]
when = { agent = "chief" }
then = { text = "that is it" }

# Spends until something stops it.
[[rule]]
when = { agent = "spender" }
then = { calls = [{ tool = "lattice_read", arguments = { path = "w/prices" } }] }

# Asks a person first.
[[rule]]
when = { agent = "payer", turn = 1 }
then = { calls = [{ tool = "pay", arguments = { path = "w/paid", value = "{{input.name}}" } }] }

[[rule]]
when = { agent = "sleeper", text = "rise and shine" }
then = { text = "I am awake" }

[[rule]]
when = { agent = "sleeper", turn = 1 }
then = { calls = [{ tool = "agent_wake", arguments = { after = "7s", note = "rise and shine" } }] }

# Has somebody outside do it.
[[rule]]
when = { agent = "buyer", turn = 1 }
then = { calls = [{ tool = "queue_publish", arguments = { queue = "words", input = { name = "{{input.name}}" }, wait = 0 } }] }

# Writes to another agent.
[[rule]]
when = { agent = "writes", turn = 1 }
then = { calls = [{ tool = "agent_message", arguments = { agentId = "chat", message = "from {{input.name}}" } }] }

[[rule]]
then = { text = "done" }
"#;

/// All agents with their configurations.
pub fn agents() -> Vec<(&'static str, Value)> {
    let pay = json!({"operation": "v/ops/lattice/append", "name": "pay", "approval": "ask"});
    vec![
        ("chat", json!({"context": ["w/prices"]})),
        ("clerk", json!({"completion": "explicit", "concurrency": 2})),
        ("writer", json!({"context": ["w/prices"]})),
        ("boss", json!({})),
        ("chief", json!({})),
        ("helper", json!({"concurrency": 1})),
        ("spender", json!({})),
        ("payer", json!({"tools": [pay]})),
        ("sleeper", json!({"tools": ["v/ops/agent/wake"]})),
        ("buyer", json!({"tools": ["v/ops/queue/publish"]})),
        ("writes", json!({"tools": ["v/ops/agent/message"]})),
        ("slow", json!({"concurrency": 1, "busy": "reject"})),
        // Timers alone are its work.
        ("bell", json!({})),
    ]
}

/// Those whose tasks have a session each.
pub const ALONE: [&str; 3] = ["sleeper", "spender", "writer"];

/// Those that callers send work to.
pub const HIRED: [&str; 12] =
    ["chat", "clerk", "writer", "writer", "boss", "chief", "spender", "payer", "sleeper", "buyer", "writes", "slow"];
