//! The agents of the day, and what their model says.

use serde_json::{Value, json};

/// What can go wrong with a model, as the word in the input that brings it about.
pub const WEATHER: [&str; 9] =
    ["fair", "fair", "fair", "rate-limited", "overloaded", "cut off", "garbled", "refused", "unauthorized"];

pub const RULES: &str = r#"
# The weather, of those who are out in it. It clears up: each process begins anew.
[[rule]]
when = { text = "weather rate-limited" }
then = { text = "at last", fault = "rate_limit", retry_after_ms = 90000, times = 2 }

[[rule]]
when = { text = "weather overloaded" }
then = { text = "at last", fault = "overloaded", retry_after_ms = 5000, times = 3 }

[[rule]]
when = { text = "weather cut off" }
then = { text = "said in full at last", fault = "cut_stream", times = 2 }

[[rule]]
when = { text = "weather garbled", turn = 1 }
then = { text = "hm", fault = "bad_json", calls = [{ tool = "lattice_read", arguments = { path = "w/prices" } }] }

[[rule]]
when = { text = "weather refused", turn = 1 }
then = { fault = "bad_request", times = 1, text = "never mind" }

[[rule]]
when = { text = "weather unauthorized" }
then = { text = "I have a key again", fault = "unauthorized", times = 1 }

# Writes its name down, then says that it is done.
[[rule]]
when = { agent = "clerk", turn = 1 }
then = { calls = [{ tool = "lattice_append", arguments = { path = "w/book", value = "{{input.name}}" } }] }

[[rule]]
when = { agent = "clerk" }
then = { calls = [{ tool = "complete_task", arguments = { result = "{{input.name}}" } }] }

[[rule]]
when = { agent = "planner", prompt = "[Current goal 1]", tool = "lattice_read" }
then = { calls = [{ tool = "complete", arguments = { bolts = 3 } }] }

[[rule]]
when = { agent = "planner", prompt = "[Current goal 1]" }
then = { calls = [{ tool = "lattice_read", arguments = { path = "w/prices" } }] }

[[rule]]
when = { agent = "planner", tool = "subgoal" }
then = { calls = [{ tool = "complete", arguments = { total = 6 } }] }

[[rule]]
when = { agent = "planner" }
then = { text = "I split it up.", calls = [{ tool = "subgoal", arguments = { description = "Find the prices." } }] }

# Two children; it parks until it hears of both.
[[rule]]
when = { agent = "boss", turn = 1 }
then = { calls = [
    { tool = "agent_request", arguments = { agentId = "helper", input = { name = "{{input.name}}", say = "{{input.say}}" }, wait = 0 } },
    { tool = "agent_request", arguments = { agentId = "clerk", input = { name = "for {{input.name}}" }, wait = 0 } },
] }

[[rule]]
when = { agent = "boss" }
then = { text = "my people are done" }

[[rule]]
when = { agent = "careful", text = "this is your last turn" }
then = { text = "I stop here" }

[[rule]]
when = { agent = "careful" }
then = { calls = [{ tool = "lattice_read", arguments = { path = "w/prices" } }] }

[[rule]]
when = { agent = "endless" }
then = { calls = [{ tool = "lattice_read", arguments = { path = "w/prices" } }] }

[[rule]]
when = { agent = "payer", turn = 1 }
then = { calls = [{ tool = "pay", arguments = { path = "w/paid", value = "{{input.name}}" } }] }

[[rule]]
when = { agent = "sleeper", text = "rise and shine" }
then = { text = "I am awake" }

[[rule]]
when = { agent = "sleeper", turn = 1 }
then = { calls = [{ tool = "agent_wake", arguments = { after = "20m", note = "rise and shine" } }] }

[[rule]]
when = { agent = "slow" }
then = { text = "so", delay_ms = 3 }

[[rule]]
then = { text = "done", delay_ms = 1 }
"#;

/// All agents with their configurations.
pub fn agents() -> Vec<(&'static str, Value)> {
    let pay = json!({"operation": "v/ops/lattice/append", "name": "pay", "approval": "ask"});
    let total = json!({
        "type": "object", "properties": {"total": {"type": "number"}},
        "required": ["total"], "additionalProperties": false
    });
    vec![
        ("chat", json!({"context": ["w/prices"]})),
        ("clerk", json!({"completion": "explicit", "concurrency": 2})),
        (
            "planner",
            json!({
                "loop": "goalTree", "tools": ["subgoal"], "outputs": {"complete": {"schema": total}},
            }),
        ),
        ("boss", json!({"limits": {"turns": 12}})),
        ("helper", json!({"mailbox": 6})),
        ("careful", json!({"limits": {"turns": 3, "windDown": true}})),
        ("endless", json!({"limits": {"turns": 3}, "busy": "replace"})),
        ("payer", json!({"tools": [pay]})),
        ("sleeper", json!({"tools": ["v/ops/agent/wake"]})),
        ("slow", json!({"concurrency": 1, "busy": "reject"})),
        // Timers alone are its work.
        ("bell", json!({})),
    ]
}

/// Those that callers send work to.
pub const HIRED: [&str; 10] =
    ["chat", "clerk", "planner", "boss", "helper", "careful", "endless", "payer", "sleeper", "slow"];

/// Those that weather reaches.
pub fn is_out(agent: &str) -> bool {
    ["chat", "helper", "clerk", "boss"].contains(&agent)
}
