//! Resolves tools: which operations a model is offered, under which names.

pub mod binding;
pub mod consent;
pub mod guard;
pub(crate) mod harness;
mod name;
mod offered;
mod outline;
mod pinned;
pub mod unknown_names;
mod resource;

use self::binding::binding_names;
use self::guard::{GuardRule, Guards, RUNNERS};
pub use self::harness::TurnEnds;
pub use self::name::NOT_IN_CATALOG;
pub(crate) use self::name::naming_errors;
use self::name::{missing_reason, name_error};
use self::offered::OfferedTool;
pub use self::outline::outline;
pub use self::resource::ResourceTool;
use crate::agent::AgentConfig;
use crate::agent::tool::HARNESS_TOOLS;
use crate::agent::tool::{DEFAULT_TOOLS, EntryTarget, NamedTool, ToolEntry, covia_name, tool_name};
use crate::call::ToolTarget;
use crate::chat::{OutputFormat, ToolSpec};
use crate::ids::sha256_hex;
use crate::lattice::catalog::catalog_path;
use crate::scope::{Scopes, ToolContext};
use crate::values::entities;
use crate::values::inject::Injection;
use crate::values::resolver::Resolver;
use crate::visible::quote_foreign;
use serde_json::{Value, json};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Why a request can't use an operation.
const OTHER_ENTITIES: &str = "it carries none of the entities of this request";

/// An operation as the catalogue describes it.
#[derive(Debug, Clone, PartialEq)]
pub struct OperationInfo {
    /// Path in the configuration; if it is an alias, the tool is named by the alias.
    pub requested_path: String,
    /// Path of the operation itself.
    pub path: String,
    /// What the operation does.
    pub description: String,
    /// JSON Schema of its input.
    pub input: Value,
    /// Entities that the operation belongs to; empty for an operation of all entities.
    pub entities: Vec<String>,
    /// Aliases of the path.
    pub aliases: Vec<String>,
}

/// The catalogue as tool resolution needs it.
pub trait OperationDirectory {
    /// Finds the operation of a path or an alias.
    fn find(&self, path: &str) -> Option<OperationInfo>;

    /// Returns every operation once, by its own path.
    fn list_operations(&self) -> Vec<OperationInfo>;

    /// Returns the versions of the published operations, by path; none where all operations are compiled.
    fn published_versions(&self) -> BTreeMap<String, String> {
        BTreeMap::new()
    }
}

/// A list of operations serves as a catalogue.
impl OperationDirectory for [OperationInfo] {
    fn find(&self, path: &str) -> Option<OperationInfo> {
        let full = catalog_path(path);
        let found = self.iter().find(|found| found.path == full || found.aliases.contains(&full))?;
        Some(OperationInfo { requested_path: path.to_owned(), ..found.clone() })
    }

    fn list_operations(&self) -> Vec<OperationInfo> {
        self.to_vec()
    }
}

/// Tools of an agent's turns, and those that could not be offered, with the reason.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolTable {
    /// Tools as the model sees them, in the order of the prompt.
    pub specs: Arc<[ToolSpec]>,
    /// Target of a call of each tool.
    pub targets: Vec<ToolTarget>,
    /// Paths that are not offered, each with the reason.
    pub refused: Vec<(String, String)>,
    /// Arguments that the runtime fills into calls of each tool.
    pub injections: Vec<Injection>,
    /// Sections of the context that go with calls of each tool.
    pub reaches: Vec<ToolContext>,
    /// Rules for operations that a call runs by their path.
    pub guards: Guards,
    /// Tools with a note: an ambiguity of `_auto`, or a likely mistake in a binding.
    pub reports: Vec<(String, String)>,
    /// Versions of the published operations that calls may reach, by path.
    pub versions: BTreeMap<String, String>,
    /// Bytes of the tools in a prompt.
    pub bytes: usize,
    /// SHA-256 of the specs.
    pub hash: String,
}

struct ToolTableBuilder<'a> {
    config: &'a AgentConfig,
    values: &'a Resolver,
    /// Entities of the request, if the agent requires them.
    entities: Option<Vec<String>>,
    /// Names that a binding may use: tools and operations, offered or not.
    names: Vec<String>,
    offered: Vec<OfferedTool>,
    refused: Vec<(String, String)>,
    /// Operations whose bindings can't be kept, with the reason; no call can reach them in another way.
    unbound: Vec<(String, String)>,
    reports: Vec<(String, String)>,
    /// Versions of the published operations, by path.
    versions: BTreeMap<String, String>,
}

/// Resolves an agent's tools with the values of a turn: the configured ones, the default ones, those that its session
/// `found`, then those of the harness.
pub fn resolve(
    config: &AgentConfig,
    found: &[String],
    ends: TurnEnds<'_>,
    values: &Resolver,
    catalog: &(impl OperationDirectory + ?Sized),
) -> ToolTable {
    resolve_with(config, found, ends, values, catalog, &[])
}

/// Resolves tools like [`resolve`], with the tools of the agent's resources behind the default ones.
pub fn resolve_with(
    config: &AgentConfig,
    found: &[String],
    ends: TurnEnds<'_>,
    values: &Resolver,
    catalog: &(impl OperationDirectory + ?Sized),
    resources: &[ResourceTool],
) -> ToolTable {
    let entities = config.entities(&values.tiers.session);
    let (names, offered, refused, unbound, reports) = Default::default();
    let versions = catalog.published_versions();
    let mut table = ToolTableBuilder { config, values, entities, names, offered, refused, unbound, reports, versions };
    for entry in &config.tools {
        if matches!(entry, ToolEntry::Path(name) if HARNESS_TOOLS.contains(&name.as_str())) {
            continue;
        }
        let plain = NamedTool::default();
        let tool = if let ToolEntry::Named(tool) = entry { tool } else { &plain };
        match entry.operation().map(|path| (path, catalog.find(path))) {
            Some((_, Some(found))) => table.offer(&found, tool),
            Some((path, None)) => table.refused.push((path.to_owned(), missing_reason(path).into())),
            None => table.offer_without_operation(tool),
        }
    }
    if config.default_tools {
        for path in DEFAULT_TOOLS {
            let offered = table.offered.iter().any(|o| o.target == ToolTarget::Operation(path.to_owned()));
            let known = offered || table.unbound.iter().any(|(unbound, _)| unbound == path);
            if known {
                continue;
            }
            let covia = covia_name(path).filter(|_| config.uses_aliases());
            let covia = covia.and_then(|(alias, name)| Some((catalog.find(&alias)?, Some(name))));
            let found = covia.or_else(|| Some((catalog.find(path)?, None)));
            if let Some((found, name)) = found {
                table.offer(&found, &NamedTool { name, ..NamedTool::default() });
            }
        }
    }
    for tool in resources {
        table.offer_resource(tool);
    }
    for path in found {
        let Some(found) = catalog.find(path) else { continue };
        let unbound = table.unbound.iter().find(|(unbound, _)| *unbound == found.path);
        match unbound.map(|(_, reason)| reason.clone()).or_else(|| table.closed_reason(&found)) {
            None => table.offer(&found, &NamedTool::default()),
            Some(reason) => table.refused.push((found.requested_path.clone(), reason)),
        }
    }
    // An operation that is offered as a tool for these entities is bound like that tool.
    let offered = &table.offered;
    let is_offered = |path: &String| offered.iter().any(|one| one.target == ToolTarget::Operation(path.clone()));
    table.unbound.retain(|(path, reason)| reason != OTHER_ENTITIES || !is_offered(path));
    table.check_unknown_bindings(catalog);
    table.offered.extend(harness::tools(config, ends));
    let guards = table.guards(catalog);
    table.build(guards)
}

impl ToolTableBuilder<'_> {
    fn build(self, guards: Guards) -> ToolTable {
        let mut specs = Vec::with_capacity(self.offered.len());
        let (mut targets, mut injections, mut reaches) = (Vec::new(), Vec::new(), Vec::new());
        for OfferedTool { spec, target, injection, reach } in self.offered {
            specs.push(spec);
            targets.push(target);
            injections.push(injection);
            reaches.push(reach);
        }
        let (reports, versions) = (self.reports, self.versions);
        ToolTable { injections, reaches, guards, reports, versions, ..ToolTable::new(specs, targets, self.refused) }
    }

    /// Returns why a published operation that no tool of the configuration names is closed; `None` if it isn't.
    fn closed_reason(&self, found: &OperationInfo) -> Option<String> {
        if !self.versions.contains_key(&found.path) {
            return None;
        }
        let bindings = &self.config.tool_arg_injection;
        let names = binding_names(self.config, None, found);
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let planned = bindings.plan(&names, &found.input, self.values).ok()?;
        self.foreign_binding(found, &names, &planned.injection)
    }

    /// Returns why a published operation with these `names` is closed, and not bound by this plan. Others write its
    /// schema: by the name of an argument they could have a value that is bound for all tools.
    fn foreign_binding(&self, found: &OperationInfo, names: &[&str], planned: &Injection) -> Option<String> {
        if !self.versions.contains_key(&found.path) {
            return None;
        }
        let bindings = &self.config.tool_arg_injection;
        let unresolved = planned.unresolved.iter().map(|unresolved| &unresolved.argument);
        let mut filled = planned.values.keys().chain(planned.defaults.keys()).chain(unresolved);
        let foreign = filled.find(|argument| !bindings.binds(names, argument))?;
        let argument = quote_foreign(foreign);
        Some(format!("its argument `{argument}` is bound for all tools, and `tools` of the agent don't name it"))
    }

    /// Whether the request is about other entities than those of an operation.
    fn is_elsewhere(&self, entities: &[String]) -> bool {
        self.entities.as_ref().is_some_and(|ids| !entities::allows(entities, ids))
    }

    /// Returns the rules for all operations, if the model can call them by their path or find them.
    fn guards(&self, catalog: &(impl OperationDirectory + ?Sized)) -> Guards {
        let mut guards = Guards::default();
        let reaches = |offered: &OfferedTool| match &offered.target {
            ToolTarget::Operation(path) => RUNNERS.contains(&path.as_str()),
            target => *target == ToolTarget::MoreTools,
        };
        if !self.config.has_turn_tools() || !self.offered.iter().any(reaches) {
            return guards;
        }
        for found in catalog.list_operations() {
            guards.add(&found.path, &found.aliases, self.guard_rule(&found));
        }
        guards
    }

    /// Returns the rule of an operation. If it is offered as a tool it is bound like the tool, so that its path can't
    /// circumvent a binding that names the tool; otherwise it is bound by its paths.
    fn guard_rule(&self, found: &OperationInfo) -> GuardRule {
        if self.is_elsewhere(&found.entities) {
            return GuardRule::Refuse(OTHER_ENTITIES.into());
        }
        let is_it =
            |offered: &&OfferedTool| matches!(&offered.target, ToolTarget::Operation(path) if *path == found.path);
        let tools: Vec<&OfferedTool> = self.offered.iter().filter(is_it).collect();
        if let Some(first) = tools.first() {
            if tools.iter().all(|tool| tool.injection == first.injection) {
                return GuardRule::Inject(first.injection.clone());
            }
            let names: Vec<_> = tools.iter().map(|tool| format!("`{}`", tool.spec.name)).collect();
            return GuardRule::Refuse(format!("it is offered as {}, call one of these", names.join(" and ")));
        }
        if let Some((_, reason)) = self.unbound.iter().find(|(path, _)| *path == found.path) {
            return GuardRule::Refuse(reason.clone());
        }
        let names = binding_names(self.config, None, found);
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let planned = match self.config.tool_arg_injection.plan(&names, &found.input, self.values) {
            Ok(planned) => planned.injection,
            Err(unknown) => return GuardRule::Refuse(unknown.to_string()),
        };
        self.foreign_binding(found, &names, &planned).map_or_else(|| GuardRule::Inject(planned), GuardRule::Refuse)
    }

    /// Whether a tool can have this name; if not, the reason is recorded under `what`.
    fn check_name(&mut self, what: &str, name: &str) -> bool {
        let reason = if let Some(unusable) = name_error(self.config, name) {
            unusable
        } else if let Some(first) = self.offered.iter().find(|o| o.spec.name == name) {
            format!("the name `{name}` is taken by {:?}", first.target)
        } else {
            return true;
        };
        self.refused.push((what.to_owned(), reason));
        false
    }

    /// Offers an operation with the options of its entry.
    fn offer(&mut self, found: &OperationInfo, tool: &NamedTool) {
        let name = tool.name.clone().unwrap_or_else(|| tool_name(&found.requested_path));
        let names = binding_names(self.config, Some(&name), found);
        self.names.extend(names.iter().cloned());
        if !self.check_name(&found.requested_path, &name) {
            return;
        }
        if self.is_elsewhere(&found.entities) || self.is_elsewhere(&tool.entities) {
            self.refused.push((found.requested_path.clone(), OTHER_ENTITIES.into()));
            self.unbound.push((found.path.clone(), OTHER_ENTITIES.into()));
            return;
        }
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        // The operation of a declared tool has its schema.
        let pinned = tool.input.as_ref().filter(|_| tool.http.is_none() && tool.jobs.is_none());
        let own = pinned.map(|own| pinned::with_marks(own, &found.input));
        let whole = own
            .as_ref()
            .map_or(Cow::Borrowed(&found.input), |own| Cow::Owned(pinned::with_other_arguments(own, &found.input)));
        match self.config.tool_arg_injection.plan(&names, &whole, self.values) {
            Err(unknown) => {
                let reason = unknown.to_string();
                self.unbound.push((found.path.clone(), reason.clone()));
                self.refused.push((found.requested_path.clone(), reason));
            }
            Ok(planned) => {
                self.reports.extend(planned.reports.into_iter().map(|report| (name.clone(), report)));
                let text = tool.description.as_ref().unwrap_or(&found.description);
                let description = format!("Operation: {}. {text}", found.requested_path);
                let input = own.clone().unwrap_or_else(|| found.input.clone());
                let reach = ToolContext { scopes: tool.scopes.clone(), input: own, instanced: tool.scopes.is_some() };
                let target = ToolTarget::Operation(found.path.clone());
                self.add(name, description, target, &input, planned.injection, reach);
            }
        }
    }

    /// Offers a tool without an operation.
    fn offer_without_operation(&mut self, tool: &NamedTool) {
        let schema = tool.input.clone().unwrap_or_else(|| json!({"type": "object"}));
        let mut description = tool.description.clone().unwrap_or_default();
        let (name, target) = match tool.target() {
            Ok(EntryTarget::Delegate(delegate)) => {
                if let Some(agent) = &delegate.agent {
                    format!("Agent: {agent}. {description}").trim_end().clone_into(&mut description);
                }
                let name = delegate.agent.as_ref().map(|agent| tool_name(agent.as_str()));
                (tool.name.clone().or(name).unwrap_or_default(), ToolTarget::Delegate(delegate))
            }
            Ok(EntryTarget::Latent | EntryTarget::Operation(_)) => {
                if let Some(Scopes::Const { names }) = tool.scopes.as_ref().filter(|scopes| !scopes.names().is_empty())
                {
                    description = format!("{description} {}", Scopes::focus_text(names));
                }
                (tool.name.clone().unwrap_or_default(), ToolTarget::Latent(Vec::new()))
            }
            Err(error) => return self.refused.push((tool.name.clone().unwrap_or_default(), error.to_string())),
        };
        self.names.push(name.clone());
        if !self.check_name(&name, &name) {
            return;
        }
        match self.config.tool_arg_injection.plan(&[name.as_str()], &schema, self.values) {
            Err(unknown) => self.refused.push((name, unknown.to_string())),
            Ok(planned) => {
                self.reports.extend(planned.reports.into_iter().map(|report| (name.clone(), report)));
                let reach = ToolContext { scopes: tool.scopes.clone(), input: tool.input.clone(), instanced: true };
                self.add(name, description, target, &schema, planned.injection, reach);
            }
        }
    }

    fn add(
        &mut self,
        name: String,
        description: String,
        target: ToolTarget,
        input: &Value,
        injection: Injection,
        reach: ToolContext,
    ) {
        let schema = if injection.changes_schema() { injection.reduce(input) } else { input.clone() };
        let spec = ToolSpec { name, description, schema: reach.extend(schema) };
        self.offered.push(OfferedTool { spec, target, injection, reach });
    }
}

impl OperationInfo {
    fn paths(&self) -> impl Iterator<Item = &str> {
        [self.requested_path.as_str(), self.path.as_str()].into_iter().chain(self.aliases.iter().map(String::as_str))
    }
}

impl ToolTable {
    /// Makes a table of these tools, with their bytes and hash and without injected arguments.
    pub fn new(specs: Vec<ToolSpec>, targets: Vec<ToolTarget>, refused: Vec<(String, String)>) -> Self {
        let json = serde_json::to_vec(&specs).unwrap_or_default();
        Self {
            bytes: specs.iter().map(|t| t.name.len() + t.description.len() + t.schema.to_string().len()).sum(),
            hash: sha256_hex(&json),
            injections: vec![Injection::default(); specs.len()],
            reaches: vec![ToolContext::default(); specs.len()],
            guards: Guards::default(),
            specs: specs.into(),
            targets,
            refused,
            reports: Vec::new(),
            versions: BTreeMap::new(),
        }
    }

    /// Returns the output format of the open task for a text; `None` if its output has no type.
    pub fn output(&self) -> Option<OutputFormat> {
        let at = self.targets.iter().position(|target| *target == ToolTarget::Complete)?;
        let schema = harness::output_schema(&self.specs.get(at)?.schema)?;
        let is_optional = |target: &ToolTarget| {
            matches!(target, ToolTarget::Complete | ToolTarget::Fail | ToolTarget::Load | ToolTarget::Unload)
        };
        Some(OutputFormat { schema, tools_optional: self.targets.iter().all(is_optional) })
    }

    /// Returns the target of a call of `name`.
    pub fn target(&self, name: &str) -> Option<&ToolTarget> {
        let at = self.specs.iter().position(|spec| spec.name == name)?;
        self.targets.get(at)
    }

    /// Returns the arguments that the runtime fills into a call of `name`.
    pub fn injection(&self, name: &str) -> Option<&Injection> {
        let at = self.specs.iter().position(|spec| spec.name == name)?;
        self.injections.get(at)
    }

    /// Returns the sections of the context that go with a call of `name`.
    pub fn reach(&self, name: &str) -> Option<&ToolContext> {
        let at = self.specs.iter().position(|spec| spec.name == name)?;
        self.reaches.get(at)
    }

    /// Returns the table for a turn with these instances, which calls may name.
    #[must_use]
    pub fn with_instances(self, instances: &[String]) -> Self {
        if instances.is_empty() || !self.reaches.iter().any(|reach| reach.instanced) {
            return self;
        }
        let Self { specs, targets, refused, injections, reaches, guards, reports, versions, bytes: _, hash: _ } = self;
        let extended = specs.iter().zip(&reaches).map(|(spec, reach)| {
            let schema = reach.extend_instances(spec.schema.clone(), instances);
            ToolSpec { schema, ..spec.clone() }
        });
        let specs = extended.collect();
        Self { injections, reaches, guards, reports, versions, ..Self::new(specs, targets, refused) }
    }

    /// Returns the tools of a job without an agent of its own: only those that end it.
    pub fn for_anonymous_job(ends: TurnEnds<'_>) -> Self {
        let (specs, targets) =
            harness::ending_tools(ends).into_iter().map(|offered| (offered.spec, offered.target)).unzip();
        Self::new(specs, targets, Vec::new())
    }

    /// Returns the names of the offered tools.
    pub fn names(&self) -> Vec<&str> {
        self.specs.iter().map(|spec| spec.name.as_str()).collect()
    }
}

#[cfg(test)]
mod schema_tests;
#[cfg(test)]
mod tests;
