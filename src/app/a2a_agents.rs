//! Agents elsewhere that the configuration names.

use crate::config::{Config, VenueA2aAgent};
use crate::domain::mcp::name::ServerName;
use crate::domain::secret::{PlainSecret, ValueError};
use crate::venue::a2a_client::{A2aAgents, A2aCredential, A2aEndpoint, A2aEndpointError, VenueRemoteAgent};
use crate::venue::outbound::HttpPolicy;
use std::sync::Arc;

/// Reason why an agent elsewhere can't be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum A2aAgentProblem {
    /// The environment has no key for the agent.
    #[error("its key is in the environment variable `{variable}`, which isn't set")]
    NoKey {
        /// Name of the environment variable.
        variable: String,
    },
    /// The key can't be a secret.
    #[error("its key, in `{variable}`: {error}")]
    Key {
        /// Name of the environment variable.
        variable: String,
        /// Limit that the key breaks.
        error: ValueError,
    },
    /// The agent can't be called with these settings.
    #[error(transparent)]
    Endpoint(#[from] A2aEndpointError),
}

/// Makes the agents elsewhere that the configuration names; `policy` has the limits of all calls to other hosts.
pub(super) fn open_agents(config: &Config, policy: &HttpPolicy) -> Result<A2aAgents, (ServerName, A2aAgentProblem)> {
    let all = config.a2a.agents.iter();
    let opened = all.map(|given| open_agent(given, policy).map_err(|problem| (given.agent.name.clone(), problem)));
    Ok(A2aAgents::new(opened.collect::<Result<Vec<_>, _>>()?))
}

fn open_agent(given: &VenueA2aAgent, policy: &HttpPolicy) -> Result<VenueRemoteAgent, A2aAgentProblem> {
    let credential = given.key_env.as_deref().map(|variable| credential(given, variable)).transpose()?;
    let policy = HttpPolicy { allow_private: given.allow_private, ..policy.clone() };
    let endpoint = A2aEndpoint::of_venue(given.agent.clone(), policy, credential.as_ref())?;
    let is_shared = given.agent.secrets().next().is_none();
    Ok(VenueRemoteAgent { endpoint: Arc::new(endpoint), is_shared })
}

/// Reads the key of an agent from an environment variable.
fn credential(given: &VenueA2aAgent, variable: &str) -> Result<A2aCredential, A2aAgentProblem> {
    let value = std::env::var(variable).ok().filter(|value| !value.is_empty());
    let value = value.ok_or_else(|| A2aAgentProblem::NoKey { variable: variable.to_owned() })?;
    let value =
        PlainSecret::new(value).map_err(|error| A2aAgentProblem::Key { variable: variable.to_owned(), error })?;
    Ok(A2aCredential { header: given.header.clone(), prefix: given.prefix.clone(), value })
}
