//! Tools of the harness: they end a task or a goal, and change an agent's own context.

use super::offered::OfferedTool;
use crate::agent::tool::{GOAL_TOOLS, HARNESS_TOOLS, ToolEntry};
use crate::agent::{AgentConfig, LoopKind, PromptStyle};
use crate::call::ToolTarget;
use crate::chat::ToolSpec;
use crate::outputs;
use crate::scope::ToolContext;
use crate::values::inject::Injection;
use serde_json::{Value, json};

/// Returns the names that no other tool of this agent may have, whether or not the harness offers its own in a turn.
pub(super) fn reserved_names(config: &AgentConfig) -> impl Iterator<Item = &'static str> {
    let goals = config.looping == LoopKind::GoalTree;
    HARNESS_TOOLS.into_iter().filter(move |name| goals || !GOAL_TOOLS.contains(name))
}

/// The task and the goal that a turn can end.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct TurnEnds<'a> {
    /// A task is open.
    pub task: bool,
    /// The turn works on a goal inside another.
    pub inner: bool,
    /// Schema of the task's output.
    pub output: Option<&'a Value>,
    /// Schema of the inner goal's result.
    pub goal: Option<&'a Value>,
}

impl TurnEnds<'_> {
    /// Makes the ends of a turn without typed outputs, with or without a task.
    pub const fn for_task(task: bool) -> Self {
        Self { task, inner: false, output: None, goal: None }
    }
}

/// Returns the harness tools of a turn.
pub(super) fn tools(config: &AgentConfig, ends: TurnEnds<'_>) -> Vec<OfferedTool> {
    let named = |name: &str| config.tools.iter().any(|entry| matches!(entry, ToolEntry::Path(path) if path == name));
    let mut offered = match config.looping {
        LoopKind::Chat if config.ends_with_text() && ends.output.is_none() => Vec::new(),
        LoopKind::Chat => ending_tools(ends),
        LoopKind::GoalTree => goal_tools(config, ends, named),
    };
    if config.prompt_style() == PromptStyle::Full {
        offered.extend([context_load(ends.inner), context_unload()]);
    }
    if named("more_tools") {
        offered.push(more_tools());
    }
    offered
}

/// Returns the tools that end a task.
pub(super) fn ending_tools(ends: TurnEnds<'_>) -> Vec<OfferedTool> {
    if ends.task { vec![complete_task(ends.output), fail_task()] } else { Vec::new() }
}

/// Returns the tools of a goal tree; `complete` and `fail` replace those that end a task.
fn goal_tools(config: &AgentConfig, ends: TurnEnds<'_>, named: impl Fn(&str) -> bool) -> Vec<OfferedTool> {
    let typed = ends.output.is_some() || ends.goal.is_some() || config.outputs.fail.is_some();
    let own = |name| named(name) || (typed && (ends.task || ends.inner));
    let mut offered = Vec::new();
    match (own("complete"), own("fail")) {
        (false, false) if !ends.inner => offered = ending_tools(ends),
        (completes, fails) => {
            offered.extend(completes.then(|| complete(ends)));
            offered.extend(fails.then(|| fail(config, ends)));
        }
    }
    offered.extend(named("subgoal").then(subgoal));
    offered.extend(named("compact").then(compact));
    offered
}

fn complete(ends: TurnEnds<'_>) -> OfferedTool {
    let schema = match if ends.inner { ends.goal } else { ends.output } {
        Some(schema) => outputs::input(schema),
        None => json!({"type": "object", "description": "the result: any fields"}),
    };
    let description = "Completes your current goal; the input is its result.";
    OfferedTool::harness("complete", description, schema, ToolTarget::CompleteGoal)
}

fn fail(config: &AgentConfig, ends: TurnEnds<'_>) -> OfferedTool {
    let schema = match config.outputs.fail.as_ref().filter(|_| !ends.inner) {
        Some(output) => outputs::input(&output.schema),
        None => json!({
            "type": "object",
            "properties": {"error": {"type": "string", "description": "why it can't be reached"}},
            "required": ["error"]
        }),
    };
    OfferedTool::harness("fail", "Fails your current goal, with the reason.", schema, ToolTarget::FailGoal)
}

fn subgoal() -> OfferedTool {
    let schema = json!({
        "type": "object",
        "properties": {
            "description": {"type": "string", "description": "the goal, with everything that is needed to reach it"},
            "responseSchema": {"type": "object", "description": "JSON Schema of the result: this call then returns such a value, or an error"}
        },
        "required": ["description"], "additionalProperties": false
    });
    let description = "Opens a goal with a conversation of its own: you work on it next, and its result is the result of \
                       this call. Several in one reply are worked on one after the other.";
    OfferedTool::harness("subgoal", description, schema, ToolTarget::Subgoal)
}

fn compact() -> OfferedTool {
    let schema = json!({
        "type": "object",
        "properties": {"summary": {"type": "string", "description": "everything of the turns so far that you will still need"}},
        "required": ["summary"], "additionalProperties": false
    });
    let description = "Puts a summary in the place of the turns of your current goal so far; nothing is deleted.";
    OfferedTool::harness("compact", description, schema, ToolTarget::Compact)
}

/// Returns the schema of a result without a type.
fn any_result() -> Value {
    json!({"description": "the task's output, any JSON value"})
}

/// Returns the type of a task's output from the schema of the tool that completes it, for an output that is a text.
pub(super) fn output_schema(schema: &Value) -> Option<Value> {
    let result = schema.pointer("/properties/result").filter(|result| **result != any_result())?;
    if result["type"] != "object" {
        return Some(schema.clone());
    }
    let mut output = result.clone();
    for key in ["$defs", "definitions"] {
        if let Some(shared) = schema.get(key) {
            output[key] = shared.clone();
        }
    }
    Some(output)
}

fn complete_task(output: Option<&Value>) -> OfferedTool {
    let schema = outputs::wrap_schema(output.unwrap_or(&any_result()));
    let description = "Completes the task you are working on with this result.";
    OfferedTool::harness("complete_task", description, schema, ToolTarget::Complete)
}

fn fail_task() -> OfferedTool {
    let schema = json!({
        "type": "object",
        "properties": {"error": {"type": "string", "description": "why the task can't be done"}},
        "required": ["error"], "additionalProperties": false
    });
    let description = "Fails the task you are working on, with the reason for the caller.";
    OfferedTool::harness("fail_task", description, schema, ToolTarget::Fail)
}

fn context_load(inner: bool) -> OfferedTool {
    let levels = if inner {
        json!({"enum": ["frame", "session", "agent"], "description": "for this goal (default), for this session or for all of yours"})
    } else {
        json!({"enum": ["session", "agent"], "description": "for this session (default) or for all of yours"})
    };
    let schema = json!({
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "lattice path, e.g. w/reports/Q1"},
            "label": {"type": "string", "description": "heading in your context"},
            "budget": {"type": "integer", "description": "bytes to show, 256 to 10000; 500 when absent"},
            "level": levels
        },
        "required": ["path"], "additionalProperties": false
    });
    let description = "Shows the value at a path in your context, read afresh in every turn from the next one on.";
    OfferedTool::harness("context_load", description, schema, ToolTarget::Load)
}

fn context_unload() -> OfferedTool {
    let schema = json!({
        "type": "object",
        "properties": {"path": {"type": "string", "description": "as it was loaded"}},
        "required": ["path"], "additionalProperties": false
    });
    OfferedTool::harness("context_unload", "Takes a loaded path out of your context.", schema, ToolTarget::Unload)
}

fn more_tools() -> OfferedTool {
    let schema = json!({
        "type": "object",
        "properties": {
            "query": {
                "type": "string",
                "description": "words that path or description have, all of them, e.g. `lattice copy`; absent = any operation"
            },
            "operations": {
                "type": "array", "items": {"type": "string"},
                "description": "paths of the operations to add, in the place of `query`, e.g. [\"v/ops/json/merge\"]"
            }
        },
        "additionalProperties": false
    });
    let description = "Finds operations that you are not offered yet, ten at most, says what each takes, and adds them \
                       to your tools from the next turn on, for this session.";
    OfferedTool::harness("more_tools", description, schema, ToolTarget::MoreTools)
}

/// Checks the arguments of a harness tool against the schema that the turn shows; returns the error.
pub(crate) fn argument_error(
    config: &AgentConfig,
    ends: TurnEnds<'_>,
    target: &ToolTarget,
    arguments: &Value,
) -> Option<String> {
    let mut all = tools(config, ends);
    // A recorded reply may call a tool that the configuration no longer names.
    all.push(more_tools());
    let spec = all.into_iter().find(|offered| offered.target == *target)?.spec;
    let wrong = outputs::misfit_text(&spec.schema, arguments)?;
    Some(format!("arguments of `{}` are not valid: {wrong}", spec.name))
}

impl OfferedTool {
    fn harness(name: &str, description: &str, schema: Value, target: ToolTarget) -> Self {
        Self {
            spec: ToolSpec { name: name.to_owned(), description: description.to_owned(), schema },
            target,
            injection: Injection::default(),
            reach: ToolContext::default(),
        }
    }
}
