//! Agents elsewhere that the configuration names.

use super::key_variables::{KeyVariable, KeyVariableError};
use crate::config::{Config, VenueA2aAgent};
use crate::domain::mcp::name::ServerName;
use crate::venue::a2a_client::{A2aAgents, A2aEndpoint, A2aEndpointError, VenueRemoteAgent};
use crate::venue::outbound::HttpPolicy;
use std::sync::Arc;

/// Reason why an agent elsewhere can't be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum A2aAgentProblem {
    /// Its key can't be used.
    #[error(transparent)]
    Key(#[from] KeyVariableError),
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
    let VenueA2aAgent { agent, key_env, header, prefix, .. } = given;
    let key = |variable| KeyVariable { variable, header, prefix, shown: agent.name.as_str() }.read();
    let credential = key_env.as_deref().map(key).transpose()?;
    let policy = HttpPolicy { allow_private: given.allow_private, ..policy.clone() };
    let endpoint = A2aEndpoint::of_venue(given.agent.clone(), policy, credential.as_ref())?;
    let is_shared = given.agent.secrets().next().is_none();
    Ok(VenueRemoteAgent { endpoint: Arc::new(endpoint), is_shared })
}
