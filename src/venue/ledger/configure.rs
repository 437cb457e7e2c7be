//! The inputs of a turn with another configuration of its agent. If the configuration of the turn is known, what is the
//! same in both stays as it is recorded, because it depends on more than the configuration.

use crate::domain::agent::AgentConfig;
use crate::domain::agent::entry::EntrySource;
use crate::domain::authority::Authority;
use crate::domain::call::ToolTarget;
use crate::domain::chat::ToolSpec;
use crate::domain::context::budget::PromptBudget;
use crate::domain::context::entry::{self, ContextRead};
use crate::domain::context::fill;
use crate::domain::context::inputs::Inputs;
use crate::domain::context::item::{Absence, ItemContent, PromptItem, Section};
use crate::domain::decode;
use crate::domain::event::Event;
use crate::domain::ids::{SessionId, SessionKey};
use crate::domain::lattice::layout::Scope;
use crate::domain::tools::{OperationDirectory, ToolTable, TurnEnds, resolve};
use serde_json::Value;
use std::sync::Arc;

/// Replaces the configuration `before`, which may be unknown.
pub(super) fn configure(
    inputs: &mut Inputs,
    before: Option<&AgentConfig>,
    config: &AgentConfig,
    catalog: &impl OperationDirectory,
) {
    fn is_same<T: PartialEq>(
        before: Option<&AgentConfig>,
        config: &AgentConfig,
        of: impl Fn(&AgentConfig) -> T,
    ) -> bool {
        before.is_some_and(|before| of(before) == of(config))
    }
    let same_entries = is_same(before, config, |config| (config.context.clone(), config.context_mapping.clone()));
    if !same_entries {
        replace_entries(inputs, config);
    }
    if config.resources.is_empty() {
        inputs.items.retain(|item| item.section != Section::Resource);
    }
    // The turn of a task with its own prompt, and the last turn of a task, have no tools of the configuration.
    if !inputs.frame.bare && !inputs.served.last {
        inputs.tools = Arc::new(merged_tools(inputs, before, config, catalog));
    }
    let same_system = is_same(before, config, |config| config.system_prompt.clone());
    if !same_system && !inputs.frame.bare {
        inputs.system.clone_from(&config.system_prompt);
    }
    if !(same_entries && same_system) {
        // The record of a turn has only values that a placeholder showed.
        let values = inputs.values.resolver(config.context_mapping.clone());
        inputs.values = fill::known_values(&inputs.system, &inputs.items, &values);
    }
    if !is_same(before, config, |config| config.model.clone()) {
        inputs.frame.model = config.model.clone();
    }
    if !is_same(before, config, |config| config.caps.clone()) {
        let held = Authority::new(config.caps.clone()).bind_home(&home_of(inputs)).limit_to(&inputs.frame.bound);
        inputs.frame.disclosure = held.disclosure();
        inputs.frame.authority = held.without_home();
    }
    if !is_same(before, config, |config| config.completion) {
        inputs.frame.completion = config.completion;
    }
    if !is_same(before, config, |config| config.strict_placeholders) {
        inputs.frame.strict = config.strict_placeholders;
    }
    if !is_same(before, config, AgentConfig::prompt_style) {
        inputs.frame.prompt = config.prompt_style();
    }
    if !is_same(before, config, AgentConfig::uses_aliases) {
        inputs.frame.aliases = config.uses_aliases();
    }
    let ratio = inputs.moment.budget.ratio;
    let budget = |config: &AgentConfig| PromptBudget::for_models(config.context_budget, &config.model, ratio);
    if !is_same(before, config, budget) {
        inputs.moment.budget = budget(config);
    }
}

/// Returns the scope that `n/`, `c/` and `t/` of a turn stand for.
fn home_of(inputs: &Inputs) -> Scope {
    let session = inputs.moment.turn.rsplit('/').nth(1).and_then(|id| SessionId::new(id).ok());
    let session = session.map(|session| SessionKey { agent: inputs.frame.agent.clone(), session });
    Scope { session, job: inputs.served.task.as_ref().and_then(Event::job).cloned() }
}

/// Replaces the entries of the context by those of the configuration. An entry that the turn didn't fetch is missing.
/// Entries that the agent keeps by itself stay.
fn replace_entries(inputs: &mut Inputs, config: &AgentConfig) {
    let (recorded, others): (Vec<PromptItem>, Vec<PromptItem>) = std::mem::take(&mut inputs.items)
        .into_iter()
        .partition(|item| item.section == Section::Context && item.tags.kept.is_none());
    inputs.items = entry::plan_reads(&config.context, &[]).into_iter().map(|read| item_for(read, &recorded)).collect();
    inputs.items.extend(others);
}

/// Returns an entry with the content that was fetched for it.
fn item_for(read: ContextRead, recorded: &[PromptItem]) -> PromptItem {
    let name = read.source.as_ref().ok().and_then(EntrySource::name);
    let is_its = |item: &&PromptItem| name.is_some() && item.source == name;
    let known = recorded.iter().filter(is_its).find(|item| item.key == read.key);
    let known = known.or_else(|| recorded.iter().find(is_its));
    let text = match &read.source {
        Ok(EntrySource::Text(text)) => Some(decode::limit_depth(Value::String(text.clone()))),
        Ok(_) | Err(_) => None,
    };
    let (content, allowed) = match (&read.source, known, text) {
        (Err(error), ..) => (ItemContent::Absent(Absence::Failed, error.to_string()), None),
        (Ok(_), _, Some(Value::String(text))) => (ItemContent::Text(text), None),
        (Ok(_), Some(item), _) => (item.content.clone(), item.allowed.clone()),
        (Ok(_), None, _) => (ItemContent::Absent(Absence::Missing, "it was not read in this turn".into()), None),
    };
    let ContextRead { section, key, label, asked, priority, required, mut tags, source: _ } = read;
    if let Some(item) = known {
        tags.needs.clone_from(&item.tags.needs);
    }
    PromptItem {
        section,
        key,
        label,
        source: name,
        allowed,
        asked,
        priority,
        required,
        unresolved: known.map(|item| item.unresolved.clone()).unwrap_or_default(),
        tags,
        origin: known.map(|item| item.origin.clone()).unwrap_or_default(),
        content,
        attachments: known.map(|item| item.attachments.clone()).unwrap_or_default(),
    }
}

/// Returns the tools with the differences between the two configurations applied. Tools of the session, the request and
/// the resources stay.
fn merged_tools(
    inputs: &Inputs,
    before: Option<&AgentConfig>,
    config: &AgentConfig,
    catalog: &impl OperationDirectory,
) -> ToolTable {
    let recorded = &inputs.tools;
    let table = |config: &AgentConfig| {
        let ends = TurnEnds {
            task: recorded
                .targets
                .iter()
                .any(|target| matches!(target, ToolTarget::Complete | ToolTarget::CompleteGoal)),
            inner: inputs.served.goals.goal.is_some(),
            output: config.outputs.complete.as_ref().map(|output| &output.schema),
            goal: None,
        };
        resolve(config, &[], ends, &inputs.values.resolver(config.context_mapping.clone()), catalog)
    };
    let wanted = table(config);
    let old = before.map(table);
    if old.as_ref().is_some_and(|old| is_same_offer(old, &wanted)) {
        return ToolTable::clone(recorded);
    }
    let find = |table: &ToolTable, target: &ToolTarget| {
        table.targets.iter().position(|other| other == target).and_then(|at| table.specs.get(at).cloned())
    };
    let mut offered: Vec<(ToolSpec, ToolTarget)> = Vec::new();
    for (spec, target) in recorded.specs.iter().zip(&recorded.targets) {
        let (was, is) = (old.as_ref().and_then(|old| find(old, target)), find(&wanted, target));
        let spec = match (was, is) {
            // Both configurations offer the tool alike: it stays as the request has it.
            (Some(was), Some(is)) if was == is => Some(spec.clone()),
            (_, Some(is)) => Some(is),
            (Some(_), None) => None,
            // A tool of the session or of a resource.
            (None, None) => stays_offered(config, old.is_some(), target).then(|| spec.clone()),
        };
        offered.extend(spec.map(|spec| (spec, target.clone())));
    }
    let is_new = |target: &ToolTarget| !recorded.targets.contains(target);
    let was_offered = |target: &ToolTarget| old.as_ref().is_some_and(|old| old.targets.contains(target));
    let added = wanted.specs.iter().cloned().zip(wanted.targets.iter().cloned());
    let added = added.filter(|(_, target)| is_new(target) && !was_offered(target));
    let is_harness =
        |target: &ToolTarget| matches!(target, ToolTarget::Complete | ToolTarget::CompleteGoal | ToolTarget::Load);
    let at = offered.iter().position(|(_, target)| is_harness(target)).unwrap_or(offered.len());
    drop(offered.splice(at..at, added.collect::<Vec<_>>()));
    let (specs, targets) = offered.into_iter().unzip();
    ToolTable { reports: wanted.reports.clone(), ..ToolTable::new(specs, targets, wanted.refused.clone()) }
}

fn is_same_offer(one: &ToolTable, other: &ToolTable) -> bool {
    one.specs == other.specs
        && one.targets == other.targets
        && one.refused == other.refused
        && one.reports == other.reports
}

/// Whether a tool that no configuration names stays: one of a resource that the agent still has, or, if the
/// configuration of the turn is known, one that the session has found.
fn stays_offered(config: &AgentConfig, is_known: bool, target: &ToolTarget) -> bool {
    match target {
        ToolTarget::Resource { resource, .. } => config.resources.get(resource).is_some(),
        ToolTarget::Operation(_)
        | ToolTarget::Complete
        | ToolTarget::Fail
        | ToolTarget::Load
        | ToolTarget::Unload
        | ToolTarget::MoreTools
        | ToolTarget::Subgoal
        | ToolTarget::CompleteGoal
        | ToolTarget::FailGoal
        | ToolTarget::Compact
        | ToolTarget::Delegate(_)
        | ToolTarget::Latent(_) => is_known,
    }
}

#[cfg(test)]
mod tests;
