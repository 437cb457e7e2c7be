//! Rules of a pipeline's manifest, checked when it is applied.

use super::condition::{Condition, ConditionError};
use super::path::StatePath;
use super::template::{self, StepTemplateError};
use super::{Pipeline, PipelineKind, PipelineStep, inputs};
use crate::limits::pipeline::{PIPELINE_BRANCHES, PIPELINE_ITERATIONS, PIPELINE_STEPS};
use crate::nearest::did_you_mean;
use crate::visible::quote_foreign;
use serde_json::Value;

/// Names of credentials in other systems' templates.
const CREDENTIALS: [&str; 2] = ["secrets", "env"];

/// Rule that a manifest breaks; the text begins with the key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PipelineError {
    /// There are no steps.
    #[error("`pipeline.steps`: expected at least one step")]
    NoSteps,
    /// There are too many steps.
    #[error("`pipeline.steps`: expected at most {limit}, got {found}; a step may be a pipeline itself")]
    Steps {
        /// Most steps of this kind of pipeline.
        limit: usize,
        /// Number of steps.
        found: usize,
    },
    /// A key belongs to another kind.
    #[error("`pipeline.{key}`: has no meaning with `kind = \"{kind}\"`")]
    Key {
        /// Key that has no meaning.
        key: &'static str,
        /// Kind of the pipeline.
        kind: &'static str,
    },
    /// `kind = "tool"` names no tool.
    #[error("`pipeline.tool`: expected the name of an entry of `tools`")]
    NoTool,
    /// The number of passes is out of range.
    #[error("`pipeline.maxIterations`: expected 1 to {PIPELINE_ITERATIONS}, got {0}")]
    Iterations(u32),
    /// Passes are limited where there is no loop.
    #[error("`pipeline.maxIterations`: needs `until`, without which the steps run once")]
    NoLoop,
    /// A step has not exactly one agent.
    #[error("`pipeline.steps[{0}]`: expected one of `ref` and `agent`")]
    StepAgent(usize),
    /// The name of an output is illegal.
    #[error("`pipeline.steps[{at}].stateKey`: expected letters, digits, `_` and `-`, got `{}`", quote_foreign(.key))]
    StateKey {
        /// Index of the step.
        at: usize,
        /// Name that is illegal.
        key: String,
    },
    /// Two steps have the same name.
    #[error(
        "`pipeline.steps[{at}].stateKey`: `{key}` is the name of another step; give one of them another `stateKey`"
    )]
    SameKey {
        /// Index of the second step.
        at: usize,
        /// Name of both.
        key: String,
    },
    /// A condition is illegal.
    #[error("`{place}`: {error}")]
    Condition {
        /// Place in the configuration.
        place: String,
        /// Rule that the condition breaks.
        error: ConditionError,
    },
    /// A template is illegal.
    #[error("`{place}`: {error}")]
    Template {
        /// Place in the configuration.
        place: String,
        /// Rule that the template breaks.
        error: StepTemplateError,
    },
    /// A path begins with a name that the State never has.
    #[error("`{place}`: nothing is named `{name}` here{hint}; the State has the inputs and the outputs of the steps")]
    UnknownName {
        /// Place in the configuration.
        place: String,
        /// Name that is unknown.
        name: String,
        /// A near name, or nothing.
        hint: String,
    },
    /// A template asks for a credential.
    #[error(
        "`{place}`: `{name}`: credentials are no values of the State, which is recorded; put them into `headers` of the \
         tool or of its server"
    )]
    Credential {
        /// Place in the configuration.
        place: String,
        /// First name of the path.
        name: String,
    },
}

impl Pipeline {
    /// Checks the manifest; `input` is the schema of the agent's input.
    pub fn check(&self, input: Option<&Value>) -> Result<(), PipelineError> {
        self.check_keys()?;
        for (at, step) in self.steps.iter().enumerate() {
            if step.reference.is_some() == step.agent.is_some() {
                return Err(PipelineError::StepAgent(at));
            }
            let key = &step.state_key;
            if StatePath::parse(key).is_none_or(|path| path.head() != key) {
                return Err(PipelineError::StateKey { at, key: key.clone() });
            }
            if self.steps[..at].iter().any(|other| other.state_key == *key) {
                return Err(PipelineError::SameKey { at, key: key.clone() });
            }
        }
        let known: Vec<&str> =
            inputs::names(input).chain(self.steps.iter().map(|step| step.state_key.as_str())).collect();
        // Branches run before any of them has an output.
        let before: Vec<&str> =
            if self.kind == PipelineKind::Parallel { inputs::names(input).collect() } else { known.clone() };
        for (at, step) in self.steps.iter().enumerate() {
            step.check_templates(at, &before)?;
        }
        if let Some(until) = &self.until {
            check_condition("pipeline.until".to_owned(), until, &known)?;
        }
        for (name, value) in &self.params {
            check_template(format!("pipeline.params.{}", quote_foreign(name)), value, &known)?;
        }
        let known: Vec<&str> = match &self.tool {
            Some(_) => known.into_iter().chain([TOOL_RESULT]).collect(),
            None => known,
        };
        self.output.as_ref().map_or(Ok(()), |output| check_template("pipeline.output".to_owned(), output, &known))
    }

    fn check_keys(&self) -> Result<(), PipelineError> {
        let (kind, is_tool) = (self.kind.as_str(), self.kind == PipelineKind::Tool);
        let loops = self.kind == PipelineKind::Sequential;
        let keys = [
            ("steps", is_tool && !self.steps.is_empty()),
            ("until", !loops && self.until.is_some()),
            ("maxIterations", !loops && self.max_iterations.is_some()),
            ("tool", !is_tool && self.tool.is_some()),
            ("params", !is_tool && !self.params.is_empty()),
        ];
        if let Some((key, _)) = keys.into_iter().find(|(_, is_wrong)| *is_wrong) {
            return Err(PipelineError::Key { key, kind });
        }
        if is_tool {
            return if self.tool.is_some() { Ok(()) } else { Err(PipelineError::NoTool) };
        }
        let limit = if self.kind == PipelineKind::Parallel { PIPELINE_BRANCHES } else { PIPELINE_STEPS };
        match self.steps.len() {
            0 => return Err(PipelineError::NoSteps),
            found if found > limit => return Err(PipelineError::Steps { limit, found }),
            _ => {}
        }
        match (self.max_iterations, &self.until) {
            (Some(passes), _) if passes == 0 || passes > PIPELINE_ITERATIONS => Err(PipelineError::Iterations(passes)),
            (Some(_), None) => Err(PipelineError::NoLoop),
            (Some(_) | None, _) => Ok(()),
        }
    }
}

/// Name under which the State of `kind = "tool"` has the result.
pub(crate) const TOOL_RESULT: &str = "result";

impl PipelineStep {
    fn check_templates(&self, at: usize, known: &[&str]) -> Result<(), PipelineError> {
        let place = |key: &str| format!("pipeline.steps[{at}].{key}");
        if let Some(when) = &self.when {
            check_condition(place("when"), when, known)?;
        }
        for (name, value) in self.input.iter().flatten() {
            check_template(place(&format!("input.{}", quote_foreign(name))), value, known)?;
        }
        Ok(())
    }
}

fn check_condition(place: String, text: &str, known: &[&str]) -> Result<(), PipelineError> {
    match Condition::parse(text) {
        Ok(condition) => check_names(&place, condition.paths(), known),
        Err(error) => Err(PipelineError::Condition { place, error }),
    }
}

fn check_template(place: String, value: &Value, known: &[&str]) -> Result<(), PipelineError> {
    match template::check_all(value) {
        Ok(paths) => check_names(&place, paths.iter(), known),
        Err(error) => Err(PipelineError::Template { place, error }),
    }
}

fn check_names<'p>(
    place: &str,
    mut paths: impl Iterator<Item = &'p StatePath>,
    known: &[&str],
) -> Result<(), PipelineError> {
    let Some(path) = paths.find(|path| !known.contains(&path.head())) else { return Ok(()) };
    let (place, name) = (place.to_owned(), path.head().to_owned());
    if CREDENTIALS.contains(&name.as_str()) {
        return Err(PipelineError::Credential { place, name });
    }
    let hint = did_you_mean(&name, known);
    Err(PipelineError::UnknownName { place, name, hint })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode;
    use serde_json::json;

    fn check(pipeline: Value, input: Option<&Value>) -> Result<(), String> {
        let pipeline: Pipeline = decode::into_type(pipeline).unwrap();
        pipeline.check(input).map_err(|error| error.to_string())
    }

    fn step(key: &str) -> Value {
        json!({"stateKey": key, "ref": "helper"})
    }

    #[test]
    fn legal_manifests_pass() {
        let input = json!({"type": "object", "properties": {"topic": {}, "tone": {}}});
        for pipeline in [
            json!({"kind": "sequential", "steps": [
                {"stateKey": "writer", "agent": {}, "input": {"t": "{{topic}}", "f": "{{editor.feedback}}"}},
                {"stateKey": "editor", "ref": "editor", "when": "{{writer.draft}} != null && {{tone}} == plain"}
            ], "until": "{{editor.approved}} == true", "maxIterations": 3, "output": {"d": {"e": "{{writer.draft}}"}}}),
            json!({"kind": "parallel", "steps": [step("a"), step("b")], "output": "{{a}} {{b}} {{topic}}"}),
            json!({"kind": "tool", "tool": "send", "params": {"to": "{{topic}}", "n": 5}, "output": {"r": "{{result}}"}}),
        ] {
            assert_eq!(check(pipeline.clone(), Some(&input)), Ok(()), "{pipeline}");
        }
        assert_eq!(
            check(
                json!({"kind": "sequential", "steps": [
                    {"stateKey": "a", "ref": "x", "input": {"q": "{{userQuery}}"}}
                ]}),
                None
            ),
            Ok(())
        );
    }

    #[test]
    fn what_has_no_meaning_is_refused_by_name() {
        let with = |more: Value| {
            let mut pipeline = json!({"kind": "sequential", "steps": [step("a"), step("b")]});
            pipeline.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            pipeline
        };
        for (pipeline, expected) in [
            (json!({"kind": "sequential"}), "`pipeline.steps`: expected at least one step"),
            (with(json!({"maxIterations": 2})), "`pipeline.maxIterations`: needs `until`"),
            (with(json!({"until": "{{a}}", "maxIterations": 101})), "expected 1 to 100, got 101"),
            (with(json!({"until": "{{a}}", "maxIterations": 0})), "expected 1 to 100, got 0"),
            (
                with(json!({"kind": "parallel", "until": "{{a}}"})),
                "`pipeline.until`: has no meaning with `kind = \"parallel\"`",
            ),
            (with(json!({"tool": "x"})), "`pipeline.tool`: has no meaning with `kind = \"sequential\"`"),
            (json!({"kind": "tool"}), "`pipeline.tool`: expected the name"),
            (json!({"kind": "tool", "tool": "t", "steps": [step("a")]}), "`pipeline.steps`: has no meaning with"),
            (with(json!({"steps": [{"stateKey": "a"}]})), "`pipeline.steps[0]`: expected one of `ref` and `agent`"),
            (
                with(json!({"steps": [{"stateKey": "a", "ref": "x", "agent": {}}]})),
                "`pipeline.steps[0]`: expected one of `ref` and `agent`",
            ),
            (with(json!({"steps": [step("a.b")]})), "`pipeline.steps[0].stateKey`: expected letters"),
            (
                with(json!({"steps": [step("a"), step("a")]})),
                "`pipeline.steps[1].stateKey`: `a` is the name of another",
            ),
            (with(json!({"until": "{{c}}"})), "`pipeline.until`: nothing is named `c` here"),
            (with(json!({"until": "{{a}} =="})), "`pipeline.until`: expected `{{path}}` or a literal"),
            (with(json!({"output": {"x": "{{userQuerry}}"}})), "`pipeline.output`: nothing is named `userQuerry` here"),
            (
                with(json!({"steps": [{"stateKey": "a", "ref": "x", "input": {"k": "{{secrets.K}}"}}]})),
                "`pipeline.steps[0].input.k`: `secrets`: credentials are no values",
            ),
            (
                with(json!({"steps": [{"stateKey": "a", "ref": "x", "input": {"k": "{{#each x}}"}}]})),
                "`pipeline.steps[0].input.k`: `{{#each x}}`: expected",
            ),
            (
                json!({"kind": "parallel", "steps": [step("a"), {"stateKey": "b", "ref": "x", "input": {"k": "{{a}}"}}]}),
                "`pipeline.steps[1].input.k`: nothing is named `a` here",
            ),
        ] {
            let error = check(pipeline.clone(), None).unwrap_err();
            assert!(error.contains(expected), "{pipeline}: {error}");
        }
    }

    #[test]
    fn the_number_of_steps_is_bounded() {
        for (kind, found, limit) in
            [("parallel", 10_000, PIPELINE_BRANCHES), ("sequential", PIPELINE_STEPS + 1, PIPELINE_STEPS)]
        {
            let steps: Vec<_> = (0..found).map(|n| step(&format!("s{n}"))).collect();
            let error = check(json!({"kind": kind, "steps": steps}), None).unwrap_err();
            assert!(error.contains(&format!("expected at most {limit}, got {found}")), "{error}");
        }
    }
}
