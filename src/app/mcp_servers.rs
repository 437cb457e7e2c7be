//! Servers of the Model Context Protocol that the configuration names.

use super::key_variables::{KeyVariable, KeyVariableError};
use super::{AppError, Role};
use crate::config::{Config, VenueMcpServer};
use crate::venue::mcp_client::{McpEndpoint, McpEndpointError, McpProgram, McpServers, VenueServer};
use crate::venue::mcp_login::ClientKey;
use crate::venue::outbound::HttpPolicy;
use std::sync::Arc;

/// Reason why a server can't be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum McpServerProblem {
    /// The environment lacks a variable of the program.
    #[error("its program wants the environment variable `{variable}`, which isn't set")]
    NoVariable {
        /// Name of the environment variable.
        variable: String,
    },
    /// Its key can't be used.
    #[error(transparent)]
    Key(#[from] KeyVariableError),
    /// The server can't be called with these settings.
    #[error(transparent)]
    Endpoint(#[from] McpEndpointError),
}

/// Variables that each program gets.
const ALWAYS: [&str; 2] = ["PATH", "HOME"];

/// Makes the servers that the configuration names; `policy` has the limits of all calls to other hosts.
pub(super) fn open_servers(config: &Config, role: Role, policy: &HttpPolicy) -> Result<McpServers, AppError> {
    let may_start = role == Role::Up || config.mcp.commands;
    let opened = config.mcp.servers.iter().map(|given| {
        let name = given.server.name.clone();
        let opened = if given.command.is_empty() { server(given, policy) } else { program(given, may_start) };
        opened.map_err(|problem| AppError::McpServer { name, problem })
    });
    let servers = McpServers::new(opened.collect::<Result<Vec<_>, _>>()?);
    Ok(servers.with_public_url(config.http.public.as_deref()))
}

fn server(given: &VenueMcpServer, policy: &HttpPolicy) -> Result<VenueServer, McpServerProblem> {
    let VenueMcpServer { server, key_env, header, prefix, client_secret_env, private_key_env, .. } = given;
    let key = |variable| KeyVariable { variable, header, prefix, shown: server.name.as_str() }.read();
    let credential = key_env.as_deref().map(key).transpose()?;
    let client_key = match (client_secret_env.as_deref(), private_key_env.as_deref()) {
        (Some(variable), _) => Some(ClientKey::Secret(key(variable)?.value)),
        (None, Some(variable)) => Some(ClientKey::Private(key(variable)?.value)),
        (None, None) => None,
    };
    let policy = HttpPolicy { allow_private: given.allow_private, ..policy.clone() };
    let endpoint = McpEndpoint::of_venue(given.server.clone(), policy, credential.as_ref())?;
    let is_shared = given.server.secrets().next().is_none();
    Ok(VenueServer { endpoint: Arc::new(endpoint.with_client_key(client_key)), is_shared })
}

/// Makes a server that is a program. A process that may not start it needs no variables for it.
fn program(given: &VenueMcpServer, may_start: bool) -> Result<VenueServer, McpServerProblem> {
    let read = |name: &str| std::env::var(name).ok().map(|value| (name.to_owned(), value));
    let mut env: Vec<_> = ALWAYS.into_iter().filter_map(read).collect();
    for name in given.env.iter().filter(|_| may_start) {
        env.push(read(name).ok_or_else(|| McpServerProblem::NoVariable { variable: name.clone() })?);
    }
    let program = McpProgram { command: given.command.clone(), env, may_start };
    let endpoint = McpEndpoint::of_program(given.server.clone(), program)?;
    Ok(VenueServer { endpoint: Arc::new(endpoint), is_shared: true })
}
