//! Decides which calls wait for a person: those of tools with `approval: "ask"`, and those that the owner's policy
//! names.

use crate::agent::AgentConfig;
use crate::agent::tool::{EntryTarget, ToolEntry, tool_name};
use crate::authority::capability::ability_covers;
use crate::authority::{Authority, Capability, ResourcePath};
use crate::consent::Consent;

/// A call before it is made.
#[derive(Debug, Clone, Copy)]
pub struct ConsentCall<'a> {
    /// Name that the model used.
    pub tool: &'a str,
    /// Path of the operation that it runs, or `g/<agent>` of a delegate.
    pub runs: &'a str,
    /// The agent to which it gives a task, as `g/<agent>`.
    pub asks: Option<&'a str>,
    /// Sections that the model asked for go with the call.
    pub scoped: bool,
}

/// Whether a call waits by the agent's configuration. `meant` returns the operation of a path in the configuration.
/// Only the tool that is configured to run without approval runs at once. Under any other name, also by `job/run` or
/// `agent/request`, an operation waits if any tool for it asks.
pub fn is_required<'p>(config: &AgentConfig, call: ConsentCall<'_>, meant: impl Fn(&str) -> Option<&'p str>) -> bool {
    let mut asks_for_what_it_runs = false;
    for entry in &config.tools {
        let Some((name, runs)) = tool_and_target(entry, &meant) else { continue };
        let (consent, scoped) = match entry {
            ToolEntry::Path(_) => (Consent::None, Consent::None),
            ToolEntry::Named(tool) => {
                (tool.approval, tool.scopes.as_ref().map_or(Consent::None, crate::scope::Scopes::approval))
            }
        };
        let same = runs.as_deref().is_some_and(|runs| runs == call.runs || Some(runs) == call.asks);
        let asks = consent == Consent::Ask || (call.scoped && scoped == Consent::Ask);
        if name == call.tool && (same || asks || runs.is_none()) {
            return asks;
        }
        asks_for_what_it_runs |= same && consent == Consent::Ask;
    }
    asks_for_what_it_runs
}

/// Returns the tool's name, and the operation or agent that it runs.
fn tool_and_target<'p>(
    entry: &ToolEntry,
    meant: &impl Fn(&str) -> Option<&'p str>,
) -> Option<(String, Option<String>)> {
    match entry {
        ToolEntry::Path(path) => Some((tool_name(path), meant(path).map(str::to_owned))),
        ToolEntry::Named(tool) => {
            let own = tool.name.clone();
            match tool.target().ok()? {
                EntryTarget::Operation(path) => {
                    Some((own.unwrap_or_else(|| tool_name(&path)), meant(&path).map(str::to_owned)))
                }
                EntryTarget::Delegate(delegate) => {
                    let agent = delegate.agent.map(|agent| agent.to_string());
                    let runs = agent.as_ref().map(|agent| format!("g/{agent}"));
                    Some((own.or(agent).unwrap_or_default(), runs))
                }
                EntryTarget::Latent => Some((own.unwrap_or_default(), None)),
            }
        }
    }
}

/// Whether the policy wants approvals for this ability and resource of a caller with `authority`.
pub fn policy_requires(policy: &[Capability], authority: &Authority, ability: &str, resource: &ResourcePath) -> bool {
    let abilities = |can: &str| ability_covers(can, ability) || ability_covers(ability, can);
    policy.iter().any(|cap| authority.touches(cap, resource) && abilities(&cap.can))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::SessionKey;
    use crate::lattice::layout::Scope;
    use serde_json::json;

    #[test]
    fn a_tool_needs_approval_under_every_name_of_its_operation() {
        let config = AgentConfig::parse(&json!({
            "model": {"provider": "scripted", "name": "echo"},
            "tools": [
                {"operation": "v/ops/lattice/write", "name": "publish", "approval": "ask"},
                {"operation": "v/ops/lattice/write", "name": "note"},
                {"operation": "v/ops/lattice/delete", "approval": "ask"},
                "v/ops/lattice/read",
                {"delegate": "lawyer", "approval": "ask"},
                {"delegate": "clerk", "scopes": {"enum": ["input"], "approval": "ask"}},
                {"name": "form", "description": "d", "approval": "ask"},
                {"name": "plain", "description": "d"},
            ],
        }));
        let config = config.unwrap();
        let paths = ["v/ops/lattice/write", "v/ops/lattice/delete", "v/ops/lattice/read", "v/ops/agent/request"];
        let meant = |path: &str| paths.into_iter().find(|known| *known == path);
        let call = |tool, runs| ConsentCall { tool, runs, asks: None, scoped: false };
        let request = |tool, runs, agent, scoped| ConsentCall { tool, runs, asks: Some(agent), scoped };
        for (call, expected) in [
            (call("publish", "v/ops/lattice/write"), true),
            (call("note", "v/ops/lattice/write"), false),
            (call("lattice_write", "v/ops/lattice/write"), true),
            (call("job_run", "v/ops/lattice/write"), true),
            (call("lattice_delete", "v/ops/lattice/delete"), true),
            (call("job_run", "v/ops/lattice/delete"), true),
            (call("lattice_read", "v/ops/lattice/read"), false),
            (call("job_run", "v/ops/lattice/read"), false),
            (request("lawyer", "g/lawyer", "g/lawyer", false), true),
            (request("agent_request", "v/ops/agent/request", "g/lawyer", false), true),
            (request("clerk", "g/clerk", "g/clerk", false), false),
            (request("clerk", "g/clerk", "g/clerk", true), true),
            (request("agent_request", "v/ops/agent/request", "g/clerk", false), false),
            (call("form", "form"), true),
            (call("plain", "plain"), false),
        ] {
            assert_eq!(is_required(&config, call, meant), expected, "{call:?}");
        }
    }

    #[test]
    fn a_policy_asks_about_what_lies_in_a_path_and_what_it_lies_in() {
        let policy = ["w/prod", "n/plan"].map(|with| Capability { with: with.into(), can: "crud/write".into() });
        let session = SessionKey { agent: "a".parse().unwrap(), session: "s".parse().unwrap() };
        let authority = Authority::without_limits().bind_home(&Scope { session: Some(session), job: None });
        for (ability, resource, expected) in [
            ("crud/write", "w/prod", true),
            ("crud/write", "w/prod/db", true),
            ("crud/append", "w/prod/log", true),
            ("crud/write", "w/product", false),
            ("crud/read", "w/prod/db", false),
            ("crud", "w", true),
            ("crud/write", "n/plan/1", true),
            ("crud/write", "g/a/n/plan", true),
            ("crud/write", "g/b/n/plan", false),
        ] {
            let asked = policy_requires(&policy, &authority, ability, &resource.into());
            assert_eq!(asked, expected, "{ability} {resource}");
        }
    }
}
