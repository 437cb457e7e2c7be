//! The basic scenarios of a run, as data.

/// One scenario: its agents, what they are sent, and how much comes of it.
#[derive(Debug)]
pub struct Scenario {
    pub name: &'static str,
    /// Name and configuration.
    pub agents: &'static [(&'static str, &'static str)],
    pub events: &'static [Sent],
    /// Submitted into the store, in order and before a worker runs, instead of over the queue.
    pub direct: bool,
    /// Job ended by its caller as soon as the model is asked: its event's id.
    pub cancel: Option<&'static str>,
    /// Whether a child ends before or after its parent's turn is a race: turns are not compared.
    pub racing: bool,
    /// Jobs that come of it.
    pub jobs: usize,
    /// Turns with a reply.
    pub turns: usize,
}

/// One submission.
#[derive(Debug)]
pub struct Sent {
    pub agent: &'static str,
    pub id: &'static str,
    pub task: bool,
    pub body: &'static str,
}

const fn task(agent: &'static str, id: &'static str, body: &'static str) -> Sent {
    Sent { agent, id, task: true, body }
}

const fn message(agent: &'static str, id: &'static str, body: &'static str) -> Sent {
    Sent { agent, id, task: false, body }
}

/// Over the queue, not cancelled, in an order that nothing changes.
const PLAIN: Scenario =
    Scenario { name: "", agents: &[], events: &[], direct: false, cancel: None, racing: false, jobs: 0, turns: 0 };

pub const THREE_TURNS: Scenario = Scenario {
    name: "a task of three turns with tools",
    agents: &[("writer", "{}")],
    events: &[task("writer", "t1", r#"{"input": {"name": "a", "text": "hello"}}"#)],
    jobs: 1,
    turns: 3,
    ..PLAIN
};

pub const ALL: [Scenario; 16] = [
    THREE_TURNS,
    Scenario {
        name: "a task with a child job that answers within the turn",
        agents: &[("boss", "{}"), ("helper", "{}")],
        events: &[task("boss", "t1", r#"{"input": {"wait": 20000}}"#)],
        jobs: 2,
        turns: 3,
        ..PLAIN
    },
    Scenario {
        name: "a task that is parked until its child job ends",
        agents: &[("boss", "{}"), ("helper", "{}")],
        events: &[task("boss", "t1", r#"{"input": {"wait": 0}}"#)],
        racing: true,
        jobs: 2,
        turns: 3,
        ..PLAIN
    },
    Scenario {
        name: "a task with a job for an external worker that answers within the turn",
        agents: &[("buyer", r#"{"tools": ["v/ops/queue/publish"]}"#)],
        events: &[task("buyer", "t1", r#"{"input": {"wait": 20000}}"#)],
        jobs: 2,
        turns: 2,
        ..PLAIN
    },
    Scenario {
        name: "a task that is parked until an external worker is done",
        agents: &[("buyer", r#"{"tools": ["v/ops/queue/publish"]}"#)],
        events: &[task("buyer", "t1", r#"{"input": {"wait": 0}}"#)],
        racing: true,
        jobs: 2,
        turns: 2,
        ..PLAIN
    },
    Scenario {
        name: "a message with tools",
        agents: &[("notes", "{}")],
        events: &[message("notes", "m1", r#"{"input": "remember"}"#)],
        turns: 2,
        ..PLAIN
    },
    Scenario {
        name: "a cancelled task",
        agents: &[("hanging", "{}")],
        events: &[task("hanging", "t1", r#"{"input": {"name": "a"}}"#)],
        cancel: Some("t1"),
        jobs: 1,
        turns: 0,
        ..PLAIN
    },
    Scenario {
        name: "two tasks in one session",
        agents: &[("writer", "{}")],
        events: &[
            task("writer", "t1", r#"{"input": {"name": "a", "text": "one"}, "sessionId": "s"}"#),
            task("writer", "t2", r#"{"input": {"name": "b", "text": "two"}, "sessionId": "s"}"#),
        ],
        direct: true,
        jobs: 2,
        turns: 6,
        ..PLAIN
    },
    Scenario {
        name: "a cancelled task before another in its session",
        agents: &[("hanging", "{}")],
        events: &[
            task("hanging", "t1", r#"{"input": {"name": "a"}, "sessionId": "s"}"#),
            task("hanging", "t2", r#"{"input": {"name": "next"}, "sessionId": "s"}"#),
        ],
        direct: true,
        cancel: Some("t1"),
        jobs: 2,
        turns: 1,
        ..PLAIN
    },
    Scenario {
        name: "a task with explicit completion",
        agents: &[("careful", r#"{"completion": "explicit"}"#)],
        events: &[task("careful", "t1", r#"{"input": 7}"#)],
        jobs: 1,
        turns: 2,
        ..PLAIN
    },
    Scenario {
        name: "a task whose calls get arguments that its model never sees",
        agents: &[("bound", r#"{"toolArgInjection": {"lattice_append": {"path": "target", "value": "text"}}}"#)],
        events: &[task(
            "bound",
            "t1",
            r#"{"input": "go", "sessionContext": {"target": "w/bound/list", "text": "filled in"}}"#,
        )],
        jobs: 1,
        turns: 2,
        ..PLAIN
    },
    Scenario {
        name: "a task with a call that a person approves and one that is rejected",
        agents: &[(
            "asking",
            r#"{"tools": [
                {"operation": "v/ops/lattice/append", "approval": "ask"},
                {"operation": "v/ops/lattice/write", "approval": "ask"}
            ]}"#,
        )],
        events: &[task("asking", "t1", r#"{"input": "go"}"#)],
        jobs: 1,
        turns: 2,
        ..PLAIN
    },
    Scenario {
        name: "a task that remembers, writes a file and fills a bucket",
        agents: &[(
            "minding",
            r#"{"contextWrite": true, "resources": {"memory": {"mode": "read-write"}, "files": {"mode": "read-write"}}}"#,
        )],
        events: &[task("minding", "t1", r#"{"input": "go", "context": ["app/u1"], "contextIds": ["alpha"]}"#)],
        jobs: 1,
        turns: 2,
        ..PLAIN
    },
    Scenario {
        name: "a provider that is overloaded twice",
        agents: &[("flaky", "{}")],
        events: &[task("flaky", "t1", "{}")],
        jobs: 1,
        turns: 1,
        ..PLAIN
    },
    Scenario {
        name: "a tree of goals with a typed output",
        agents: &[(
            "planner",
            r#"{"loop": "goalTree", "tools": ["subgoal", "compact"], "outputs": {"complete": {"schema":
                {"type": "object", "properties": {"total": {"type": "number"}}, "required": ["total"]}}}}"#,
        )],
        events: &[task("planner", "t1", r#"{"input": "count"}"#)],
        jobs: 1,
        turns: 5,
        ..PLAIN
    },
    Scenario {
        name: "a pipeline with branches and a tool",
        agents: &[(
            "flow",
            r#"{"model": {"provider": "pipeline", "name": "sequential"}, "pipeline": {"kind": "sequential", "steps": [
                {"stateKey": "both", "agent": {"pipeline": {"kind": "parallel", "steps": [
                    {"stateKey": "a", "agent": {"model": {"provider": "scripted", "name": "rules"}, "systemPrompt": "A"}},
                    {"stateKey": "b", "agent": {"model": {"provider": "scripted", "name": "rules"}, "systemPrompt": "B"}}
                ]}}},
                {"stateKey": "kept", "agent": {
                    "tools": [{"operation": "v/ops/lattice/append", "name": "append"}],
                    "pipeline": {"kind": "tool", "tool": "append", "params": {"path": "w/log", "value": "{{userQuery.a}}"}}
                }}
            ]}}"#,
        )],
        events: &[task("flow", "t1", r#"{"input": "go"}"#)],
        racing: true,
        jobs: 5,
        turns: 5,
        ..PLAIN
    },
];

pub const RULES: &str = r#"
[[rule]]
when = { agent = "asking", turn = 1 }
then = { calls = [{ tool = "lattice_append", arguments = { path = "w/asked", value = "yes" } }, { tool = "lattice_write", arguments = { path = "w/asked2/x", value = "no" } }, { tool = "lattice_read", arguments = { path = "w/asked" } }] }

[[rule]]
when = { agent = "minding", turn = 1 }
then = { calls = [{ tool = "memory_write", arguments = { content = "likes tea" } }, { tool = "memory_write", arguments = { content = "likes tea" } }, { tool = "files_write", arguments = { path = "a.md", content = "text" } }] }

[[rule]]
when = { agent = "minding" }
then = { text = "it is kept" }

[[rule]]
when = { agent = "asking" }
then = { text = "it was decided" }

[[rule]]
when = { agent = "writer", turn = 1 }
then = { calls = [{ tool = "lattice_write", arguments = { path = "w/notes/{{input.name}}", value = "{{input.text}}" } }, { tool = "lattice_append", arguments = { path = "w/log", value = "{{input.name}}" } }] }

[[rule]]
when = { agent = "writer", turn = 2 }
then = { calls = [{ tool = "lattice_read", arguments = { path = "w/notes/{{input.name}}" } }] }

[[rule]]
when = { agent = "writer", turn = 3 }
then = { text = "wrote {{tool_result.value}}" }

[[rule]]
when = { agent = "boss", turn = 1 }
then = { calls = [{ tool = "agent_request", arguments = { agentId = "helper", input = { message = "work" }, wait = "{{input.wait}}" } }] }

[[rule]]
when = { agent = "boss", tool_result = "COMPLETE" }
then = { text = "the helper is done" }

[[rule]]
when = { agent = "boss", text = "Pending job results" }
then = { text = "the helper is done" }

[[rule]]
when = { agent = "buyer", turn = 1 }
then = { calls = [{ tool = "queue_publish", arguments = { queue = "scans", input = "page", wait = "{{input.wait}}" } }] }

[[rule]]
when = { agent = "buyer" }
then = { text = "the worker is done" }

[[rule]]
when = { agent = "helper" }
then = { text = "worked" }

[[rule]]
when = { agent = "notes", text = "[No pending tasks" }
then = { text = "noted" }

[[rule]]
when = { agent = "notes" }
then = { calls = [{ tool = "lattice_append", arguments = { path = "w/log", value = "note" } }] }

[[rule]]
when = { agent = "hanging", text = "\"next\"" }
then = { text = "not cancelled" }

[[rule]]
when = { agent = "hanging" }
then = { text = "never", fault = "hang" }

[[rule]]
when = { agent = "careful", turn = 1 }
then = { text = "let me think" }

[[rule]]
when = { agent = "careful" }
then = { calls = [{ tool = "lattice_append", arguments = { path = "w/log", value = "done" } }, { tool = "complete_task", arguments = { result = { answer = 42 } } }] }

[[rule]]
when = { agent = "bound", turn = 1 }
then = { calls = [{ tool = "lattice_append", arguments = {} }, { tool = "lattice_append", arguments = { path = "w/evil" } }] }

[[rule]]
when = { agent = "bound" }
then = { text = "{{tool_result}}" }

[[rule]]
when = { agent = "planner", prompt = "[Current goal 1]", tool = "context_load" }
then = { text = "there are three" }

[[rule]]
when = { agent = "planner", prompt = "[Current goal 1]" }
then = { calls = [{ tool = "context_load", arguments = { path = "w/log" } }, { tool = "lattice_append", arguments = { path = "w/log", value = "three" } }] }

[[rule]]
when = { agent = "planner", prompt = "[Current goal 2]" }
then = { calls = [{ tool = "fail", arguments = { error = "nothing else" } }] }

[[rule]]
when = { agent = "planner", tool = "subgoal" }
then = { calls = [{ tool = "complete", arguments = { total = 3 } }] }

[[rule]]
when = { agent = "planner" }
then = { calls = [{ tool = "subgoal", arguments = { description = "count" } }, { tool = "subgoal", arguments = { description = "look for more" } }] }

[[rule]]
when = { agent = "flow" }
then = { text = "worked" }

[[rule]]
when = { agent = "flaky" }
then = { text = "at last", fault = "overloaded", times = 2 }
"#;
