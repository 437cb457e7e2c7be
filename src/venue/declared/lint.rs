//! Likely mistakes in the tools and the capabilities of a configuration: legal, but no call would be made.

use super::declarations;
use crate::domain::a2a::name::{agent_of_path, operation_path};
use crate::domain::agent::AgentConfig;
use crate::domain::agent::entry::ContextEntry;
use crate::domain::agent::tool::{EntryTarget, HARNESS_TOOLS, ToolEntry, tool_name};
use crate::domain::authority::ability::INVOKE;
use crate::domain::authority::capability::{ability_covers, covers};
use crate::domain::authority::{Authority, Capability, ResourcePath};
use crate::domain::declared::ToolDeclaration;
use crate::domain::lattice::catalog::{is_run, is_stored_operation};
use crate::domain::mcp::name::{TOOLS_CALL, split_path};
use crate::domain::visible::quote_foreign;
use crate::venue::operation::{Catalog, CatalogView, Effect, RegisteredOperation, offers};
use reqwest::Url;

/// What a call of a tool needs, as far as it is known without its arguments.
struct KnownNeed {
    ability: &'static str,
    /// Places, of which one is enough.
    places: Vec<String>,
}

/// Returns a line for each declared tool that has the name of a tool of the venue.
pub fn shadowed_names(shared: &CatalogView, config: &AgentConfig) -> Vec<String> {
    let names: Vec<(String, &str)> =
        shared.operations().map(|found| (tool_name(&found.spec.path), &*found.spec.path)).collect();
    let line = |(at, tool): (usize, ToolDeclaration)| {
        let own = tool.own_path();
        let (name, path) = names.iter().find(|(name, path)| *name == tool.name || *path == own)?;
        Some(format!("`tools[{at}]`: `{name}` is the name of the tool of `{path}`, give it another `name`"))
    };
    declarations(config).into_iter().filter_map(line).collect()
}

/// Returns a line for each tool that the agent's own capabilities deny, each capability that no tool of the agent can
/// use, each tool whose `scopes` hand nothing on, each entry of `context` whose operation can't fill it, and each declared
/// host that the venue doesn't allow.
pub fn warnings(catalog: &Catalog, operations: &CatalogView, config: &AgentConfig) -> Vec<String> {
    let mut found = denied_tools(operations, config);
    found.extend(idle_scopes(operations, config));
    found.extend(writing_entries(operations, config));
    found.extend(idle_capabilities(operations, config));
    for (at, tool) in declarations(config) {
        found.extend(url_fault(catalog, &tool).map(|fault| format!("`tools[{at}].http.url`: {fault}")));
    }
    found
}

/// Returns why the venue makes no call of a declared service, whatever the arguments are.
pub(super) fn url_fault(catalog: &Catalog, tool: &ToolDeclaration) -> Option<String> {
    match Url::parse(&tool.http_plan()?.url().fixed_part()) {
        Ok(url) => catalog.hosts.check(&url).err().map(|refused| refused.to_string()),
        Err(error) => Some(error.to_string()),
    }
}

/// Returns what calls of a tool of this configuration need.
fn known_needs(operation: &RegisteredOperation, declared: Option<&ToolDeclaration>) -> Vec<KnownNeed> {
    let path = &*operation.spec.path;
    let of = |ability: &'static str, place: String| KnownNeed { ability, places: vec![place] };
    if operation.version.is_none() {
        let (abilities, places) = offers::abilities(path).unwrap_or_default();
        let places: Vec<String> = places.iter().map(|place| (*place).to_owned()).collect();
        return abilities.iter().map(|&ability| KnownNeed { ability, places: places.clone() }).collect();
    }
    let mut needs = vec![of(INVOKE, path.to_owned())];
    let Some(tool) = declared else { return needs };
    if let Some(plan) = tool.http_plan() {
        needs.push(of(plan.method().ability(), plan.url().fixed_part()));
        needs.extend(plan.secrets().iter().map(|name| of("secret/use", ResourcePath::secret(name).to_string())));
    }
    if let Some(jobs) = &tool.jobs {
        needs.push(of("queue/publish", ResourcePath::queue(&jobs.queue).to_string()));
    }
    needs
}

fn denied_tools(operations: &CatalogView, config: &AgentConfig) -> Vec<String> {
    let Some(caps) = &config.caps else { return Vec::new() };
    let authority = Authority::new(Some(caps.clone()));
    let mut found = Vec::new();
    for (at, entry) in config.tools.iter().enumerate() {
        let Some(operation) = entry.operation().and_then(|path| operations.resolve(path)) else { continue };
        let declared = declaration_of(entry);
        let is_missing = |need: &KnownNeed| !need.places.iter().any(|place| authority.holds_near(need.ability, place));
        if let Some(need) = known_needs(operation, declared.as_ref()).into_iter().find(is_missing) {
            let place = need.places.join("` or `");
            found.push(format!(
                "`tools[{at}]`: `caps` deny every call of `{}`: it needs `{}` on `{place}`",
                quote_foreign(&entry.tool_name()),
                need.ability
            ));
        }
    }
    found
}

/// Returns a line for each tool whose operation takes no sections of its caller's context.
fn idle_scopes(operations: &CatalogView, config: &AgentConfig) -> Vec<String> {
    let mut found = Vec::new();
    for (at, entry) in config.tools.iter().enumerate() {
        let ToolEntry::Named(tool) = entry else { continue };
        let Some(path) = entry.operation().filter(|_| tool.scopes.is_some()) else { continue };
        // What a pin stands for is known when it is called; of a place elsewhere no operation takes sections.
        let takes_none = match operations.resolve(path) {
            Some(operation) => !operation.spec.takes_sections,
            None => split_path(path).is_some() || agent_of_path(path).is_some(),
        };
        if takes_none {
            found.push(format!(
                "`tools[{at}].scopes`: `{}` takes no sections of the context, its calls get none; jobs of external workers, \
                 `v/ops/agent/request` and delegates take them",
                quote_foreign(path)
            ));
        }
    }
    found
}

/// Returns a line for each entry of `context` whose operation does more than read: it would run again in every turn.
fn writing_entries(operations: &CatalogView, config: &AgentConfig) -> Vec<String> {
    let line = |(at, entry): (usize, &ContextEntry)| {
        let ContextEntry::Full(full) = entry else { return None };
        let path = full.op.as_deref()?;
        let operation = operations.resolve(path)?;
        // The effect of a run is that of what it runs.
        let is_unfit = operation.spec.effect != Effect::Read && !is_any_run(operations, path);
        is_unfit.then(|| {
            format!(
                "`context[{at}].op`: `{}` does more than read, and only what reads can be context",
                quote_foreign(path)
            )
        })
    };
    config.context.iter().enumerate().filter_map(line).collect()
}

fn declaration_of(entry: &ToolEntry) -> Option<ToolDeclaration> {
    match entry {
        ToolEntry::Named(tool) => tool.declaration(),
        ToolEntry::Path(_) => None,
    }
}

/// Returns a line for each capability that no tool can use. An agent that may run any operation can use all of them.
fn idle_capabilities(operations: &CatalogView, config: &AgentConfig) -> Vec<String> {
    let runs_any = |entry: &ToolEntry| match entry {
        ToolEntry::Path(name) if HARNESS_TOOLS.contains(&name.as_str()) => name == "more_tools",
        // What a pin stands for is known when it is called.
        _ => entry.operation().is_some_and(|path| is_stored_operation(path) || is_any_run(operations, path)),
    };
    if config.default_tools || config.tools.iter().any(runs_any) || !config.resources.is_empty() {
        return Vec::new();
    }
    let is_idle =
        |cap: &Capability| is_checked(cap) && !config.tools.iter().any(|entry| is_used(operations, entry, cap));
    let caps = config.caps.iter().flatten().enumerate();
    let line = |(at, cap): (usize, &Capability)| {
        let (can, with) = (quote_foreign(&cap.can), quote_foreign(&cap.with));
        is_idle(cap).then(|| format!("`caps[{at}]`: no tool of this agent can use `{can}` on `{with}`"))
    };
    caps.filter_map(line).collect()
}

fn is_any_run(operations: &CatalogView, path: &str) -> bool {
    operations.resolve(path).is_some_and(|found| is_run(&found.spec.path) || *found.spec.path == *TOOLS_CALL)
}

/// Abilities whose tools are known: all others, such as reading, are used in more than one way.
const CHECKED: [&str; 6] = ["http", "invoke", "queue", "agent", "job", "timer"];

fn is_checked(cap: &Capability) -> bool {
    CHECKED.iter().any(|group| covers(group, &cap.can))
}

/// Whether some call of a tool uses a capability, as far as that is known.
fn is_used(operations: &CatalogView, entry: &ToolEntry, cap: &Capability) -> bool {
    let is_near = |place: &str| covers(place, &cap.with) || covers(&cap.with, place);
    if let ToolEntry::Named(tool) = entry
        && let Ok(EntryTarget::Delegate(delegate)) = tool.target()
    {
        let agent = delegate.agent.map(|agent| ResourcePath::agent(&agent).to_string());
        return agent.is_some_and(|agent| ability_covers(&cap.can, "agent/request") && is_near(&agent));
    }
    let Some(path) = entry.operation() else { return false };
    if let Some((server, _)) = split_path(path) {
        // Which tools a server has, and what else they need, is known when an agent first uses it.
        return !covers("invoke", &cap.can) || is_near(server.prefix().trim_end_matches('/'));
    }
    if let Some(name) = agent_of_path(path) {
        return !covers("invoke", &cap.can) || is_near(&operation_path(&name));
    }
    let Some(operation) = operations.resolve(path) else { return false };
    let declared = declaration_of(entry);
    // Operations of other servers may need more than their path says; so may those that say nothing of their needs.
    let is_open = operation.version.is_some() && declared.is_none();
    let needs = known_needs(operation, declared.as_ref());
    let is_unknown = (is_open && !covers("invoke", &cap.can)) || (needs.is_empty() && covers("job", &cap.can));
    is_unknown
        || needs.iter().any(|need| {
            ability_covers(&cap.can, need.ability) && need.places.iter().any(|place| is_near(place.as_str()))
        })
}
