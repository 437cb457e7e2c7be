//! Agents that are written inside of a pipeline, and the input of a task in the texts of its agent.

use super::budget::ContextBudget;
use super::{AgentConfig, AgentRecord, AgentState, CompletionRule, LoopKind, Retry, ToolEntry};
use crate::decode::{self, DataError};
use crate::lattice::value::type_name;
use crate::limits::JOB_DEPTH;
use crate::nearest::{did_you_mean, nearest};
use crate::pipeline::inputs::{self, InputSchemaError};
use crate::pipeline::path::StatePath;
use crate::pipeline::template::{self, StepRenderer, StepTemplateError};
use crate::pipeline::{PIPELINE_PROVIDER, PipelineError, PipelineKind, USER_QUERY};
use crate::values::placeholder;
use crate::visible::{quote_foreign, quote_names};
use serde_json::{Map, Value, json};

/// Rule that a pipeline, or the input of an agent, breaks; the text begins with the key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum StepConfigError {
    /// The manifest of the pipeline is illegal.
    #[error(transparent)]
    Pipeline(#[from] PipelineError),
    /// The schema of the input is illegal.
    #[error(transparent)]
    Input(#[from] InputSchemaError),
    /// A template is illegal.
    #[error("`{key}`: {error}")]
    Template {
        /// Key of the text.
        key: &'static str,
        /// Rule that the text breaks.
        error: StepTemplateError,
    },
    /// A template of an agent names an input that its schema doesn't have.
    #[error("`{key}`: no input is named `{}`{hint}; `inputSchema` has {names}", quote_foreign(.name))]
    UnknownInput {
        /// Key of the text.
        key: &'static str,
        /// Name that is unknown.
        name: String,
        /// A near name, or nothing.
        hint: String,
        /// Names of the inputs.
        names: String,
    },
    /// A pipeline has a setting of a model.
    #[error("`{0}`: has no meaning in a pipeline, which asks no model; it belongs to the agents of its steps")]
    NoModel(&'static str),
    /// A step of `kind = "tool"` has another number of tools than one.
    #[error("`tools`: a pipeline of `kind = \"tool\"` has the entry that `pipeline.tool` names, and no other")]
    OneTool,
    /// Pipelines are written too deeply inside one another.
    #[error("`pipeline`: {found} pipelines are inside one another, at most {JOB_DEPTH} may be; name one by `ref`")]
    Depth {
        /// Number of pipelines inside one another.
        found: usize,
    },
}

impl AgentConfig {
    /// Reads the agents that are written inside of the pipeline of a configuration, and replaces each by its stored form.
    /// Their servers and agents elsewhere become those of the configuration, under which they are approved.
    pub(super) fn normalise_steps(map: &mut Map<String, Value>) -> Result<(), DataError> {
        let Some(Value::Object(pipeline)) = map.get_mut("pipeline") else { return Ok(()) };
        let kind = pipeline.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
        let (mut servers, mut remote_agents) = (Vec::new(), Vec::new());
        if let Some(Value::Array(steps)) = pipeline.get_mut("steps") {
            for (at, step) in steps.iter_mut().enumerate() {
                let Some(inline) = step.get_mut("agent") else { continue };
                let wrong = |text: String| DataError::from(format!("`pipeline.steps[{at}].agent`: {text}"));
                let mut config = Self::parse(inline).map_err(|error| wrong(error.to_string()))?;
                if config.published.is_some() || config.a2a.is_some() {
                    return Err(wrong(
                        "a step is published by its pipeline, which has `published` and `a2a`".to_owned(),
                    ));
                }
                servers.extend(std::mem::take(&mut config.mcp).iter().map(|server| json!(server)));
                remote_agents.extend(std::mem::take(&mut config.a2a_agents).iter().map(|agent| json!(agent)));
                *inline = json!(config);
            }
        }
        add_peers(map, "mcp", servers)?;
        add_peers(map, "a2aAgents", remote_agents)?;
        if map.get("model").is_some_and(|model| model["provider"] != PIPELINE_PROVIDER) {
            return Err("`model`: has no meaning in a pipeline, which asks no model; the agents of its steps have one"
                .to_owned()
                .into());
        }
        map.insert("model".into(), json!({"provider": PIPELINE_PROVIDER, "name": quote_foreign(&kind)}));
        map.entry("defaultTools").or_insert(Value::Bool(false));
        Ok(())
    }

    /// Checks the pipeline, the input and the texts that are rendered with it.
    pub(super) fn check_steps(&self) -> Result<(), StepConfigError> {
        if let Some(schema) = &self.input_schema {
            inputs::check_schema(schema)?;
        }
        let template = |key| move |error| StepConfigError::Template { key, error };
        let blocks = template::check_blocks(&self.system_prompt).map_err(template("systemPrompt"))?;
        self.check_inputs("systemPrompt", &blocks)?;
        if let Some(prompt) = &self.task_prompt {
            self.check_inputs("taskPrompt", &template::check(prompt).map_err(template("taskPrompt"))?)?;
        }
        let Some(pipeline) = &self.pipeline else { return Ok(()) };
        pipeline.check(self.input_schema.as_ref())?;
        let is_tool = pipeline.kind == PipelineKind::Tool;
        let keys = [
            ("systemPrompt", !self.system_prompt.is_empty()),
            ("taskPrompt", self.task_prompt.is_some()),
            ("context", !self.context.is_empty()),
            ("resources", !self.resources.is_empty()),
            ("loop", self.looping != LoopKind::Chat),
            ("prompt", self.prompt.is_some()),
            ("model.fallback", !self.model.fallback.is_empty()),
            ("limits.windDown", self.limits.wind_down),
            ("limits.session", !self.limits.session.is_none()),
            ("completion", self.completion != CompletionRule::default()),
            ("contextBudget", self.context_budget != ContextBudget::default()),
            ("retry", self.retry != Retry::default()),
            ("defaultTools", self.default_tools),
            ("tools", !is_tool && !self.tools.is_empty()),
        ];
        if let Some((key, _)) = keys.into_iter().find(|(_, is_wrong)| *is_wrong) {
            return Err(StepConfigError::NoModel(key));
        }
        if is_tool {
            let named = pipeline.tool.as_deref();
            let is_it = self.tools.len() == 1 && self.tools.first().map(ToolEntry::tool_name).as_deref() == named;
            return if is_it { Ok(()) } else { Err(StepConfigError::OneTool) };
        }
        match pipeline_depth(&json!({"pipeline": pipeline})) {
            found if found > JOB_DEPTH as usize => Err(StepConfigError::Depth { found }),
            _ => Ok(()),
        }
    }

    /// Checks that the paths of a text begin with inputs of the schema: nothing else is filled in there.
    fn check_inputs(&self, key: &'static str, paths: &[StatePath]) -> Result<(), StepConfigError> {
        let Some(schema) = &self.input_schema else { return Ok(()) };
        let known: Vec<&str> = inputs::names(Some(schema)).collect();
        let Some(path) = paths.iter().find(|path| !known.contains(&path.head())) else { return Ok(()) };
        let names = quote_names(&known);
        let (name, hint) = (path.head().to_owned(), did_you_mean(path.head(), &known));
        Err(StepConfigError::UnknownInput { key, name, hint, names })
    }

    /// Returns a line for each placeholder of the system prompt that is almost the name of an input. It may also be a
    /// value of the session, the user or the project, whose names only a request knows.
    pub(crate) fn misspelt_inputs(&self) -> Vec<String> {
        let known: Vec<&str> = inputs::names(self.input_schema.as_ref()).collect();
        let mut lines = Vec::new();
        for key in placeholder::keys(&self.system_prompt) {
            let head = key.split('.').next().unwrap_or(key);
            if known.contains(&head) || self.context_mapping.rows_of(head).next().is_some() {
                continue;
            }
            if let Some(input) = nearest(head, &known) {
                let line = format!(
                    "`systemPrompt`: no input is named `{}`, did you mean `{input}`; a row of `contextMapping` makes it \
                     another value",
                    quote_foreign(head)
                );
                if !lines.contains(&line) {
                    lines.push(line);
                }
            }
        }
        lines
    }

    /// Returns the agents that are written inside of its pipeline, each with its place.
    pub fn inline_agents(&self) -> Vec<(String, Self)> {
        let mut found = Vec::new();
        let Some(pipeline) = &self.pipeline else { return found };
        for (at, config) in pipeline.inline_agents() {
            let Some(mut config) = decode::into_type::<Self>(config.clone()).ok() else { continue };
            config.mcp.clone_from(&self.mcp);
            config.a2a_agents.clone_from(&self.a2a_agents);
            let place = format!("pipeline.steps[{at}].agent");
            let below = config.inline_agents();
            found.push((place.clone(), config));
            found.extend(below.into_iter().map(|(inner, config)| (format!("{place}.{inner}"), config)));
        }
        found
    }

    /// Whether the texts of its prompts depend on the input of the task.
    pub fn uses_task_input(&self) -> bool {
        let text = &self.system_prompt;
        let names_input = || {
            let is_input = |key: &&str| key.split('.').next() == Some(USER_QUERY);
            placeholder::has_any(text) && placeholder::keys(text).iter().any(is_input)
        };
        self.input_schema.is_some() || self.task_prompt.is_some() || template::has_blocks(text) || names_input()
    }

    /// Fills the input of a task in: blocks of the system prompt are decided, its placeholders get values, and the text
    /// of the task is rendered. Returns the placeholders of that text without a value.
    fn fill_task_input(&mut self, values: &Map<String, Value>) -> Result<Vec<String>, StepTemplateError> {
        if self.pipeline.is_some() {
            return Ok(Vec::new());
        }
        let mut renderer = StepRenderer::new(values);
        if let Some(prompt) = &mut self.task_prompt {
            *prompt = renderer.render(prompt)?;
        }
        self.system_prompt = template::resolve_blocks(&self.system_prompt, values);
        let constant = |name: &str| match values.get(name)? {
            Value::Null => Some((name.to_owned(), Value::String(String::new()))),
            value => Some((name.to_owned(), value.clone())),
        };
        let inputs: Vec<_> = inputs::names(self.input_schema.as_ref()).filter_map(constant).collect();
        self.context_mapping = std::mem::take(&mut self.context_mapping).with_constants(inputs);
        Ok(renderer.into_missed())
    }
}

impl AgentRecord {
    /// Returns the agent of the step at a place of its pipeline: indices with `/` between them, each with `:` and the
    /// step's `stateKey` behind it. `None` if there is no such step. It has the same name, the same authority at most,
    /// the same servers and the same agents elsewhere.
    #[must_use]
    pub fn as_step(&self, place: &str) -> Option<Self> {
        let mut config = None;
        for part in place.split('/') {
            let (index, key) = part.split_once(':').map_or((part, None), |(index, key)| (index, Some(key)));
            let index: usize = index.parse().ok()?;
            let above: &AgentConfig = config.as_ref().unwrap_or(&self.config);
            let step = above.pipeline.as_ref()?.steps.get(index)?;
            // After a change of the manifest another step may stand there.
            let inline = step.agent.clone().filter(|_| key.is_none_or(|key| key == step.state_key))?;
            config = Some(decode::into_type::<AgentConfig>(inline).ok()?);
        }
        let (mcp, a2a_agents) = (self.config.mcp.clone(), self.config.a2a_agents.clone());
        let config = AgentConfig { mcp, a2a_agents, ..config? };
        Some(Self { config, state: AgentState::default(), ..self.clone() })
    }

    /// Returns the agent with the input of a task in its texts.
    pub fn with_task_input(mut self, values: &Map<String, Value>) -> Result<ServedAgent, StepTemplateError> {
        let missed = self.config.fill_task_input(values)?;
        Ok(ServedAgent { agent: self, missed })
    }
}

/// An agent as it serves one task.
#[derive(Debug, Clone)]
pub struct ServedAgent {
    /// The agent with the task's input in its texts.
    pub agent: AgentRecord,
    /// Placeholders of its `taskPrompt` without a value.
    pub missed: Vec<String>,
}

impl ServedAgent {
    /// Makes an agent whose texts take no input of the task.
    pub const fn without_input(agent: AgentRecord) -> Self {
        Self { agent, missed: Vec::new() }
    }
}

/// Adds what the steps of a pipeline reach to the list of its configuration, each once.
fn add_peers(map: &mut Map<String, Value>, key: &str, new: Vec<Value>) -> Result<(), DataError> {
    if new.is_empty() {
        return Ok(());
    }
    match map.entry(key).or_insert_with(|| json!([])) {
        Value::Array(all) => {
            for peer in new {
                if !all.contains(&peer) {
                    all.push(peer);
                }
            }
            Ok(())
        }
        other => Err(format!("`{key}`: expected a list, got {}", type_name(other)).into()),
    }
}

/// Returns the number of pipelines inside one another.
fn pipeline_depth(config: &Value) -> usize {
    let Some(steps) = config["pipeline"]["steps"].as_array() else {
        return usize::from(config["pipeline"].is_object());
    };
    1 + steps.iter().filter_map(|step| step.get("agent")).map(pipeline_depth).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::AgentStatus;
    use crate::authority::Authority;
    use crate::authority::trail::Trail;
    use crate::time::Millis;
    use crate::unknown_fields::UnknownFields;

    fn config(value: &Value) -> AgentConfig {
        AgentConfig::parse(value).unwrap_or_else(|error| panic!("{value}: {error}"))
    }

    fn record(config: AgentConfig) -> AgentRecord {
        AgentRecord {
            id: "p".parse().unwrap(),
            status: AgentStatus::Active,
            config,
            config_version: 1,
            state: AgentState::default(),
            creator: Authority::default(),
            made_under: Trail::default(),
            error: None,
            created: Millis(0),
            updated: Millis(0),
            kept: UnknownFields::default(),
        }
    }

    /// Returns an agent with the input `topic`.
    fn typed(system: &str, prompt: &str) -> Value {
        let mut given = inline(system);
        given["inputSchema"] = json!({"type": "object", "properties": {"topic": {}}});
        given["taskPrompt"] = json!(prompt);
        given
    }

    #[test]
    fn a_misspelt_input_of_the_system_prompt_is_found() {
        for (system, expected) in [
            ("{{topic}} ${topic.a} {{place}}", None),
            ("About {{topc}}, {{topc}}", Some("`systemPrompt`: no input is named `topc`, did you mean `topic`")),
            ("${toopic.title}", Some("no input is named `toopic`")),
        ] {
            let found = config(&typed(system, "")).misspelt_inputs();
            assert_eq!(found.len(), usize::from(expected.is_some()), "{system}: {found:?}");
            assert!(expected.is_none_or(|expected| found[0].contains(expected)), "{found:?}");
        }
        let mut mapped = typed("About {{topc}}", "");
        mapped["contextMapping"] = json!({"topc": "session.topc"});
        assert_eq!(config(&mapped).misspelt_inputs(), Vec::<String>::new());
        assert_eq!(config(&inline("{{userQury}} {{name}}")).misspelt_inputs().len(), 1);
    }

    fn inline(prompt: &str) -> Value {
        json!({"model": {"provider": "scripted", "name": "echo"}, "systemPrompt": prompt})
    }

    #[test]
    fn a_pipeline_reads_back_as_it_is_stored() {
        let nested = json!({"pipeline": {"kind": "parallel", "steps": [{"stateKey": "x", "agent": inline("deep")}]}});
        let given = json!({"inputSchema": {"type": "object", "properties": {"t": {}}}, "pipeline": {
            "kind": "sequential", "steps": [{"stateKey": "a", "agent": inline("one")}, {"stateKey": "b", "agent": nested}]
        }});
        let config = config(&given);
        assert_eq!(config.model.id(), "pipeline/sequential");
        assert_eq!(AgentConfig::parse(&json!(config)), Ok(config.clone()));
        let places: Vec<_> = config.inline_agents().into_iter().map(|(place, _)| place).collect();
        let expected =
            ["pipeline.steps[0].agent", "pipeline.steps[1].agent", "pipeline.steps[1].agent.pipeline.steps[0].agent"];
        assert_eq!(places, expected);
        let record = record(config);
        for (place, expected) in [
            ("0", Some("one")),
            ("0:a", Some("one")),
            ("0:b", None),
            ("1:b/0:x", Some("deep")),
            ("1/0", Some("deep")),
            ("2", None),
            ("0/0", None),
            ("x", None),
        ] {
            let found = record.as_step(place).map(|step| step.config.system_prompt);
            assert_eq!(found.as_deref(), expected, "{place}");
        }
    }

    #[test]
    fn peers_of_steps_are_peers_of_the_pipeline() {
        let mut agent = inline("x");
        agent["mcp"] = json!([{"name": "a", "url": "https://h/"}]);
        agent["a2aAgents"] = json!([{"name": "b", "url": "https://h/"}]);
        let config = config(&json!({"pipeline": {"kind": "sequential", "steps": [{"stateKey": "a", "agent": agent}]}}));
        assert_eq!((config.mcp.len(), config.a2a_agents.len()), (1, 1));
        let step = record(config).as_step("0").unwrap().config;
        assert_eq!((step.mcp.len(), step.a2a_agents.len()), (1, 1));
    }

    #[test]
    fn what_has_no_meaning_in_a_pipeline_is_refused() {
        let with = |key: &str, value: Value| {
            let steps = json!([{"stateKey": "a", "ref": "x"}]);
            let mut config = json!({"pipeline": {"kind": "sequential", "steps": steps}});
            config[key] = value;
            config
        };
        for (given, expected) in [
            (with("systemPrompt", json!("x")), "`systemPrompt`: has no meaning in a pipeline"),
            (with("model", json!({"provider": "openai", "name": "x"})), "`model`: has no meaning in a pipeline"),
            (with("tools", json!(["v/ops/lattice/read"])), "`tools`: has no meaning in a pipeline"),
            (with("limits", json!({"windDown": true})), "`limits.windDown`: has no meaning in a pipeline"),
            (with("limits", json!({"session": {"tokens": 5}})), "`limits.session`: has no meaning in a pipeline"),
            (with("completion", json!("explicit")), "`completion`: has no meaning in a pipeline"),
            (with("retry", json!({"attempts": 2})), "`retry`: has no meaning in a pipeline"),
            (with("defaultTools", json!(true)), "`defaultTools`: has no meaning in a pipeline"),
            (with("inputSchema", json!({"type": "string"})), "`inputSchema`: expected `\"type\": \"object\"`"),
            (
                json!({"pipeline": {"kind": "sequential", "steps": [{"stateKey": "a", "agent": {"systemPrompt": "x"}}]}}),
                "`pipeline.steps[0].agent`: ",
            ),
            (
                json!({"pipeline": {"kind": "tool", "tool": "t"}}),
                "`tools`: a pipeline of `kind = \"tool\"` has the entry",
            ),
            (
                json!({"model": {"provider": "x", "name": "y"}, "systemPrompt": "{{#if a}}"}),
                "`systemPrompt`: expected a `{{/if}}` for each",
            ),
            (
                json!({"model": {"provider": "x", "name": "y"}, "taskPrompt": "{{a b}}"}),
                "`taskPrompt`: `{{a b}}` is no path",
            ),
            (
                typed("x", "do {{topc}} {{topic}}"),
                "`taskPrompt`: no input is named `topc`, did you mean `topic`; `inputSchema` has `topic`",
            ),
            (typed("x", "{{#if toopic}}YES{{/if}}"), "`taskPrompt`: no input is named `toopic`, did you mean `topic`"),
            (typed("{{#if tone}}x{{/if}}", ""), "`systemPrompt`: no input is named `tone`; `inputSchema` has `topic`"),
            (
                json!({"pipeline": {"kind": "sequential", "steps": [{"stateKey": "a", "agent": typed("x", "{{topc}}")}]}}),
                "`pipeline.steps[0].agent`: `taskPrompt`: no input is named `topc`, did you mean `topic`",
            ),
        ] {
            let error = AgentConfig::parse(&given).unwrap_err().to_string();
            assert!(error.contains(expected), "{given}: {error}");
        }
        let mut deep = json!({"stateKey": "a", "ref": "x"});
        for _ in 0..=JOB_DEPTH {
            deep = json!({"stateKey": "a", "agent": {"pipeline": {"kind": "sequential", "steps": [deep]}}});
        }
        let error = AgentConfig::parse(&deep["agent"]).unwrap_err().to_string();
        assert!(error.contains("pipelines are inside one another, at most 5 may be"), "{error}");
    }

    #[test]
    fn the_input_of_a_task_stands_in_the_texts() {
        let mut given = inline("Write about {{topic}}.{{#if feedback}} Mind {{feedback}}.{{/if}}");
        given["inputSchema"] = json!({"type": "object", "properties": {"topic": {}, "feedback": {}}});
        given["taskPrompt"] = json!("On {{topic}}{{#if feedback}}, {{feedback}}{{/if}}");
        let record = record(config(&given));
        assert!(record.config.uses_task_input());
        let values = json!({"topic": "{{secret}}", "feedback": null});
        let served = record.with_task_input(values.as_object().unwrap()).unwrap();
        assert_eq!(served.missed, Vec::<String>::new());
        let filled = served.agent.config;
        assert_eq!(filled.system_prompt, "Write about {{topic}}.");
        assert_eq!(filled.task_prompt.as_deref(), Some("On {{secret}}"));
        assert_eq!(filled.context_mapping.constants()["topic"], "{{secret}}");
        for (prompt, uses) in
            [("Help.", false), ("{{userQuery}}", true), ("{{name}}", false), ("{{#if a}}b{{/if}}", true)]
        {
            assert_eq!(config(&inline(prompt)).uses_task_input(), uses, "{prompt}");
        }
    }
}
