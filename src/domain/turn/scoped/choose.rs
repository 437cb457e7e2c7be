//! Reads the scopes and the instance that a call names, and chooses its sections.

use super::capture::{SectionPart, Sections};
use super::hand_off;
use crate::call::{CallRefusal, Outcome};
use crate::lattice::catalog::{catalog_path, is_run};
use crate::limits::{HAND_OFF_BYTES, JOB_DEPTH};
use crate::scope::{GROUPS, INSTANCE, SCOPES, ScopedSection, Scopes, ToolContext};
use crate::visible::quote_names;
use serde_json::{Map, Value};

/// The keys of a call that are no arguments.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ScopeChoice {
    taken: Map<String, Value>,
}

/// The sections and the instance of a call.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ChosenSections {
    /// Sections that the model asked for, each once, in the order of the tool's list.
    pub requested: Vec<String>,
    /// Instance of the call.
    pub instance: Option<String>,
    /// Sections that go with the call.
    pub scoped: Vec<ScopedSection>,
}

/// Removes every key that begins with `_` from the arguments of a call. `operation` is its path, if it is an operation;
/// keys of operations that it runs by their path are removed too.
pub fn take_scope_choice(operation: Option<&str>, arguments: &mut Value) -> ScopeChoice {
    let said = ScopeChoice { taken: remove_underscored(arguments) };
    let (mut path, mut inner) = (operation.unwrap_or_default().to_owned(), arguments);
    for _ in 0..=JOB_DEPTH {
        if !is_run(&path) {
            break;
        }
        path = catalog_path(inner["operation"].as_str().unwrap_or_default());
        let Some(input) = inner.get_mut("input") else { break };
        remove_underscored(input);
        inner = input;
    }
    said
}

fn remove_underscored(arguments: &mut Value) -> Map<String, Value> {
    let Value::Object(map) = arguments else { return Map::new() };
    let names: Vec<String> = map.keys().filter(|key| key.starts_with('_')).cloned().collect();
    names.into_iter().filter_map(|name| map.shift_remove_entry(&name)).collect()
}

impl ScopeChoice {
    fn instance(&self) -> Option<&Value> {
        self.taken.get(INSTANCE).filter(|instance| !instance.is_null())
    }

    fn scopes(&self, tool: &str) -> Result<Vec<String>, CallRefusal> {
        let wrong = |given: &Value| {
            CallRefusal::arguments(format!("`{SCOPES}` of `{tool}`: expected a list of sections, got {given}"))
        };
        let list = match self.taken.get(SCOPES) {
            None | Some(Value::Null) => return Ok(Vec::new()),
            Some(Value::Array(list)) => list,
            Some(other) => return Err(wrong(other)),
        };
        let name = |name: &Value| name.as_str().map(str::to_owned).ok_or_else(|| wrong(name));
        list.iter().map(name).collect()
    }
}

impl Sections {
    /// Chooses the sections of a call of `tool`, or returns why it is refused.
    pub fn choose(&self, tool: &str, reach: &ToolContext, said: &ScopeChoice) -> Result<ChosenSections, CallRefusal> {
        let instance = self.instance(tool, said)?;
        let allowed = reach.scopes.as_ref().map(Scopes::names).unwrap_or_default();
        let said = said.scopes(tool)?;
        if let Some(name) = said.iter().find(|name| !allowed.contains(name)) {
            let none = allowed.is_empty() || matches!(reach.scopes, Some(Scopes::Const { .. }));
            let hint =
                if none { "leave it out".to_owned() } else { format!("expected some of {}", quote_names(allowed)) };
            let text = format!("`{SCOPES}` of `{tool}`: `{name}` can't be handed on by this call, {hint}");
            return Err(CallRefusal::new(Outcome::Scope, text));
        }
        let is_asked = |name: &&String| said.contains(name);
        let (asked, names): (Vec<String>, Vec<String>) = match &reach.scopes {
            None => Default::default(),
            Some(Scopes::Const { names }) => (Vec::new(), names.clone()),
            Some(Scopes::Enum { names, .. }) => {
                let asked: Vec<_> = names.iter().filter(is_asked).cloned().collect();
                (asked.clone(), asked)
            }
        };
        let visible = self.visible_parts(&names, instance.as_deref());
        let mut scoped = hand_off::fit_sections(&visible, HAND_OFF_BYTES);
        let empty = names.iter().filter(|name| !visible.iter().any(|part| part.names.contains(name)));
        scoped.extend(
            empty.map(|name| {
                ScopedSection::without_content(name, explain_absence(&self.parts, name, instance.as_deref()))
            }),
        );
        Ok(ChosenSections { requested: asked, instance, scoped })
    }

    fn instance(&self, tool: &str, said: &ScopeChoice) -> Result<Option<String>, CallRefusal> {
        let Some(given) = said.instance() else { return Ok(None) };
        if self.instances.is_empty() {
            let text = format!("`{INSTANCE}` of `{tool}`: this turn has no instances, leave it out");
            return Err(CallRefusal::arguments(text));
        }
        let known = given.as_str().filter(|name| self.instances.iter().any(|known| known == name));
        let unknown = || {
            let known = quote_names(&self.instances);
            CallRefusal::arguments(format!("`{INSTANCE}` of `{tool}`: no instance {given}, expected one of {known}"))
        };
        known.map(|name| Some(name.to_owned())).ok_or_else(unknown)
    }

    /// Returns the visible parts of these sections for a call with or without an instance. An instance's own input
    /// replaces the common one.
    fn visible_parts(&self, names: &[String], instance: Option<&str>) -> Vec<&SectionPart> {
        let shown = |part: &&SectionPart| part.instance.is_none() || part.instance.as_deref() == instance;
        let own_input = |part: &SectionPart| part.key == "input" && part.instance.is_some() && !part.received;
        let overridden = self.parts.iter().filter(shown).any(own_input);
        let replaced =
            |part: &SectionPart| overridden && part.key == "input" && part.instance.is_none() && !part.received;
        let wanted = |part: &&SectionPart| part.names.iter().any(|name| names.contains(name));
        self.parts.iter().filter(shown).filter(wanted).filter(|part| !replaced(part)).collect()
    }
}

/// Explains why a call gets nothing of a section.
fn explain_absence(parts: &[SectionPart], name: &str, instance: Option<&str>) -> String {
    let is_one_s = |part: &SectionPart| part.instance.is_some() && part.names.iter().any(|known| known == name);
    if parts.iter().any(is_one_s) {
        return match instance {
            None => format!("it is of instances alone, and this call names no `{INSTANCE}`"),
            Some(instance) => format!("it is of other instances alone, and this call is about `{instance}`"),
        };
    }
    let group = GROUPS.iter().find(|group| name.starts_with(**group)).copied();
    let text = match group.unwrap_or(name) {
        "input" => "the turn serves no task",
        "inbox" => "the turn has no messages",
        "pending" => "no result has arrived and no job is running",
        "transcript" => "nothing was said before",
        "goal" => "there are no goals",
        "state" => "the agent keeps nothing, and no entry of its context is labelled so",
        "session" => "the session keeps nothing, and no entry of the context is labelled so",
        "context/" => "no entry of the context is labelled so, or it shows nothing",
        "loads/" => "the path is not loaded",
        "resource/" => "the agent has no such resource, or it shows nothing",
        _ => "the turn has nothing of it",
    };
    text.to_owned()
}

/// Returns the name of a section without the prefix of its group.
pub(super) fn without_group(key: &str) -> &str {
    GROUPS.iter().find_map(|group| key.strip_prefix(group)).unwrap_or(key)
}
