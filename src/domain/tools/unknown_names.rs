//! Finds names in a configuration that a venue doesn't know or can't offer: legal, but perhaps mistakes.

use super::{AgentConfig, ToolEntry};
use crate::a2a::name::agent_of_path;
use crate::agent::entry::ContextEntry;
use crate::agent::tool::HARNESS_TOOLS;
use crate::authority::ability::unknown_ability;
use crate::chat::ModelSettings;
use crate::lattice::catalog::is_stored_operation;
use crate::lattice::catalog::{OPERATIONS, catalog_path};
use crate::mcp::name::{ServerName, split_path};
use crate::nearest::{did_you_mean, nearest};
use crate::tools::{OperationDirectory, naming_errors};
use crate::visible::quote_foreign;

/// The names that a venue knows.
pub struct KnownNames<'k, D: OperationDirectory + ?Sized> {
    /// Names of model providers.
    pub providers: &'k [String],
    /// Operations of the catalogue.
    pub operations: &'k D,
    /// Servers of the Model Context Protocol that the agent and the venue name.
    pub servers: &'k [ServerName],
    /// Agents elsewhere that the agent and the venue name.
    pub remote_agents: &'k [ServerName],
}

impl AgentConfig {
    /// Returns a line for each name that the venue doesn't know, or under which a tool can't be offered: its place, and
    /// the nearest known name.
    pub fn unknown_names<D: OperationDirectory + ?Sized>(&self, known: &KnownNames<'_, D>) -> Vec<String> {
        let mut found = Vec::new();
        for (at, model) in self.model.in_order().enumerate().filter(|_| self.pipeline.is_none()) {
            let fault = unknown_provider(&model.provider, known.providers);
            found.extend(fault.map(|fault| format!("`{}.provider`: {fault}", ModelSettings::key_at(at))));
        }
        for (at, entry) in self.tools.iter().enumerate() {
            let place = match entry {
                ToolEntry::Path(name) if HARNESS_TOOLS.contains(&name.as_str()) => continue,
                ToolEntry::Path(_) => format!("tools[{at}]"),
                ToolEntry::Named(_) => format!("tools[{at}].operation"),
            };
            found.extend(entry.operation().and_then(|path| unknown_operation(&place, path, known)));
        }
        found.extend(naming_errors(self));
        found.extend(self.misspelt_inputs());
        for (at, entry) in self.context.iter().enumerate() {
            if let ContextEntry::Full(full) = entry
                && let Some(path) = &full.op
            {
                found.extend(unknown_operation(&format!("context[{at}].op"), path, known));
            }
        }
        for (key, list) in [("caps", &self.caps), ("delegable", &self.delegable)] {
            let caps = list.iter().flatten().enumerate();
            found.extend(caps.filter_map(|(at, cap)| unknown_ability(&format!("{key}[{at}]"), &cap.can)));
        }
        found
    }
}

/// Returns the fault of a provider that a venue doesn't know, with the nearest one that it does.
pub fn unknown_provider(provider: &str, known: &[String]) -> Option<String> {
    let names: Vec<&str> = known.iter().map(String::as_str).collect();
    let fault = || format!("no provider `{}`{}", quote_foreign(provider), did_you_mean(provider, &names));
    (!names.contains(&provider)).then(fault)
}

/// Returns the line for a path without an operation.
fn unknown_operation<D: OperationDirectory + ?Sized>(
    place: &str,
    path: &str,
    known: &KnownNames<'_, D>,
) -> Option<String> {
    // The target of a pin is checked when the pin is used.
    if known.operations.find(path).is_some() || is_stored_operation(path) {
        return None;
    }
    let full = catalog_path(path);
    if let Some((server, _)) = split_path(path) {
        // Which tools a server has is known when an agent first uses it.
        let is_known = known.servers.contains(&server);
        let why = "no server of this name is in `mcp` of the agent, or in the venue's configuration";
        return (!is_known).then(|| format!("`{place}`: `{}`: {why}", quote_foreign(path)));
    }
    if let Some(agent) = agent_of_path(path) {
        let is_known = known.remote_agents.contains(&agent);
        let why = "no agent of this name is in `a2aAgents` of the agent, or in the venue's configuration";
        return (!is_known).then(|| format!("`{place}`: `{}`: {why}", quote_foreign(path)));
    }
    // The common prefix of all paths would make all of them similar.
    let short = |path: &str| path.trim_start_matches(OPERATIONS).to_owned();
    let all = known.operations.list_operations();
    let paths = all.iter().flat_map(|found| std::iter::once(&found.path).chain(&found.aliases));
    let names: Vec<String> = paths.map(|path| short(path)).chain(HARNESS_TOOLS.map(str::to_owned)).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let hint = nearest(&short(&full), &names).map_or_else(String::new, |name| {
        let group = if HARNESS_TOOLS.contains(&name) { "" } else { OPERATIONS };
        format!(", did you mean `{group}{name}`")
    });
    Some(format!("`{place}`: no operation `{}`{hint}", quote_foreign(path)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::OperationInfo;
    use serde_json::{Value, json};

    fn described(path: &str, aliases: &[&str]) -> OperationInfo {
        OperationInfo {
            requested_path: path.into(),
            path: path.into(),
            description: String::new(),
            input: json!({}),
            entities: Vec::new(),
            aliases: aliases.iter().map(|alias| (*alias).to_owned()).collect(),
        }
    }

    fn unknown(config: Value) -> Vec<String> {
        let mut config = config;
        if config.get("model").is_none() {
            config["model"] = json!({"provider": "scripted", "name": "echo"});
        }
        let operations = [described("v/ops/lattice/read", &["v/ops/covia/read"]), described("v/ops/agent/create", &[])];
        let (providers, servers) = (["openai".to_owned(), "scripted".to_owned()], [ServerName::new("shop").unwrap()]);
        let known = KnownNames {
            providers: &providers,
            operations: &operations[..],
            servers: &servers,
            remote_agents: &[ServerName::new("weather").unwrap()],
        };
        AgentConfig::parse(&config).unwrap().unknown_names(&known)
    }

    #[test]
    fn unknown_names_are_reported_with_the_nearest_known_name() {
        for (config, expected) in [
            (json!({"tools": ["v/ops/lattice/read", "covia:read", "more_tools", "agent/create"]}), vec![]),
            (json!({"tools": [{"delegate": "somebody"}]}), vec![]),
            (json!({"tools": [{"name": "note", "description": "latent"}]}), vec![]),
            (json!({"caps": [{"with": "w", "can": "crud"}, {"with": "r/a", "can": "read"}]}), vec![]),
            (json!({"caps": [{"with": "", "can": "*"}]}), vec![]),
            (json!({"tools": ["o/look", {"operation": "o/look", "name": "x"}]}), vec![]),
            (json!({"model": "opnai/gpt"}), vec!["`model.provider`: no provider `opnai`, did you mean `openai`"]),
            (
                json!({"model": {"provider": "opnai", "name": "x", "fallback": ["scripted/echo", "scriptd/echo"]}}),
                vec![
                    "`model.provider`: no provider `opnai`, did you mean `openai`",
                    "`model.fallback[1].provider`: no provider `scriptd`, did you mean `scripted`",
                ],
            ),
            (json!({"model": "zzz/gpt"}), vec!["`model.provider`: no provider `zzz`"]),
            (
                json!({"tools": ["v/ops/lattice/raed", {"operation": "agent/craete", "name": "x"}]}),
                vec![
                    "`tools[0]`: no operation `v/ops/lattice/raed`, did you mean `v/ops/lattice/read`",
                    "`tools[1].operation`: no operation `agent/craete`, did you mean `v/ops/agent/create`",
                ],
            ),
            (
                json!({"tools": ["covia_read"]}),
                vec!["`tools[0]`: no operation `covia_read`, did you mean `v/ops/covia/read`"],
            ),
            (
                json!({"tools": ["a2a:weather:send", "v/ops/a2a/wether/send"]}),
                vec![
                    "`tools[1]`: `v/ops/a2a/wether/send`: no agent of this name is in `a2aAgents` of the agent, or in \
                     the venue's configuration",
                ],
            ),
            (json!({"tools": ["more_tool"]}), vec!["`tools[0]`: no operation `more_tool`, did you mean `more_tools`"]),
            (json!({"tools": ["v/ops/q/q"]}), vec!["`tools[0]`: no operation `v/ops/q/q`"]),
            (
                json!({"tools": ["mcp:tools:call", "v/ops/mcp/github/search", "v/ops/mcp/shop/*", "mcp:shop:order"]}),
                vec![
                    "`tools[0]`: no operation `mcp:tools:call`",
                    "`tools[1]`: `v/ops/mcp/github/search`: no server of this name is in `mcp` of the agent, or in the \
                     venue's configuration",
                ],
            ),
            (
                json!({"context": ["w/x", {"op": "lattice/raed"}, {"op": "lattice/lst"}]}),
                vec![
                    "`context[1].op`: no operation `lattice/raed`, did you mean `v/ops/lattice/read`",
                    "`context[2].op`: no operation `lattice/lst`",
                ],
            ),
            (
                json!({"caps": [{"with": "w", "can": "crud/raed"}], "delegable": [{"with": "w", "can": "crd"}]}),
                vec![
                    "`caps[0].can`: nothing needs `crud/raed`, did you mean `crud/read`",
                    "`delegable[0].can`: nothing needs `crd`, did you mean `crud`",
                ],
            ),
        ] {
            assert_eq!(unknown(config.clone()), expected, "{config}");
        }
    }

    #[test]
    fn the_input_of_a_task_and_a_pipeline_are_known() {
        for config in [
            json!({"kind": "llm", "instruction": "Answer.\n\n{{userQuery}}"}),
            json!({"systemPrompt": "Answer ${userQuery}"}),
        ] {
            assert_eq!(unknown(config.clone()), Vec::<String>::new(), "{config}");
        }
        let steps = json!([{"stateKey": "a", "ref": "x"}]);
        let pipeline = AgentConfig::parse(&json!({"pipeline": {"kind": "sequential", "steps": steps}})).unwrap();
        assert_eq!(pipeline.model.provider, "pipeline");
    }

    #[test]
    fn a_long_name_is_told_in_short() {
        let long = "x".repeat(10_000);
        for config in [
            json!({"model": {"provider": long, "name": "x"}}),
            json!({"tools": [long.clone()]}),
            json!({"tools": [format!("v/ops/mcp/{long}")]}),
            json!({"context": [{"label": "a", "op": format!("v/ops/{long}")}]}),
            json!({"caps": [{"with": "w", "can": "x".repeat(200)}]}),
        ] {
            let found = unknown(config).concat();
            assert!(found.len() < 500 && found.contains("xxx…`"), "{} bytes", found.len());
        }
        let config = json!({"model": "scripted/echo", long: 1});
        let refused = AgentConfig::parse(&config).unwrap_err().to_string();
        assert!(refused.contains("unknown key `xxx") && refused.len() < 1_000, "{} bytes", refused.len());
    }
}
