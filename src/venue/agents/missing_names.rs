//! Agents and secrets that a configuration names and nobody has stored: calls fail until somebody does.

use crate::domain::agent::AgentConfig;
use crate::domain::agent::tool::{EntryTarget, ToolEntry};
use crate::domain::ids::secret::SecretName;
use crate::domain::ids::{AgentId, Owner};
use crate::domain::secret::{Destination, SecretRecord};
use crate::store::{StoreError, keys};
use crate::venue::Venue;
use crate::venue::declared::declarations;
use crate::venue::outbound::url_destination;
use reqwest::Url;

/// Returns one line for each agent and each secret of a declared service that is missing, also in agents that are written
/// inside of a pipeline.
///
/// # Errors
/// The store can't be read.
pub(super) async fn warnings(venue: &Venue, owner: &Owner, config: &AgentConfig) -> Result<Vec<String>, StoreError> {
    let mut found = warnings_of_one(venue, owner, config).await?;
    for (place, inline) in config.inline_agents() {
        let lines = warnings_of_one(venue, owner, &inline).await?;
        found.extend(lines.into_iter().map(|line| format!("`{place}`: {line}")));
    }
    Ok(found)
}

async fn warnings_of_one(venue: &Venue, owner: &Owner, config: &AgentConfig) -> Result<Vec<String>, StoreError> {
    let mut found = Vec::new();
    for NamedAgent { place, agent } in named_agents(config) {
        if venue.store.doc(owner, &keys::agent(&agent)).await?.value.is_none() {
            found.push(format!(
                "`{place}`: there is no agent `{agent}` yet; what it is given fails until it is applied"
            ));
        }
    }
    for ServiceSecret { at, name, to } in service_secrets(config) {
        let stored: Option<SecretRecord> = venue.store.get(owner, &keys::secret(&name)).await?;
        let fault = match stored {
            None => format!("no secret `{name}`: `trellis secret set {name} --host {}` stores it", to.host_rule()),
            Some(record) if !record.stamp.hosts.permits(&to) => format!(
                "secret `{name}` isn't bound to `{}`, and is not sent there: `trellis secret set {name} --host {} --overwrite`",
                to.origin(),
                to.host_rule()
            ),
            Some(_) => continue,
        };
        found.push(format!("`tools[{at}].http.headers`: {fault}"));
    }
    Ok(found)
}

/// An agent that a configuration names.
struct NamedAgent {
    /// Place in the configuration.
    place: String,
    agent: AgentId,
}

fn named_agents(config: &AgentConfig) -> Vec<NamedAgent> {
    let mut named = Vec::new();
    for (at, entry) in config.tools.iter().enumerate() {
        if let ToolEntry::Named(tool) = entry
            && let Ok(EntryTarget::Delegate(delegate)) = tool.target()
        {
            let place = format!("tools[{at}].delegate");
            named.extend(delegate.agent.map(|agent| NamedAgent { place, agent }));
        }
    }
    let steps = config.pipeline.iter().flat_map(|pipeline| pipeline.steps.iter().enumerate());
    named.extend(steps.filter_map(|(at, step)| {
        Some(NamedAgent { place: format!("pipeline.steps[{at}].ref"), agent: step.reference.clone()? })
    }));
    named
}

/// A secret that calls of a declared service are sent with.
struct ServiceSecret {
    /// Index of the tool.
    at: usize,
    name: SecretName,
    to: Destination,
}

fn service_secrets(config: &AgentConfig) -> Vec<ServiceSecret> {
    let mut secrets = Vec::new();
    for (at, tool) in declarations(config) {
        let Some(plan) = tool.http_plan() else { continue };
        let Ok(url) = Url::parse(plan.url().origin()) else { continue };
        let to = url_destination(&url);
        secrets.extend(plan.secrets().into_iter().map(|name| ServiceSecret { at, name, to: to.clone() }));
    }
    secrets
}
