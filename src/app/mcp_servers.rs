//! Servers of the Model Context Protocol that the configuration names.

use super::{AppError, Role};
use crate::config::{Config, VenueMcpServer};
use crate::domain::secret::{PlainSecret, ValueError};
use crate::venue::mcp_client::{McpCredential, McpEndpoint, McpEndpointError, McpProgram, McpServers, VenueServer};
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
    /// The environment has no key for the server.
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
    Ok(McpServers::new(opened.collect::<Result<Vec<_>, _>>()?))
}

fn server(given: &VenueMcpServer, policy: &HttpPolicy) -> Result<VenueServer, McpServerProblem> {
    let credential = given.key_env.as_deref().map(|variable| credential(given, variable)).transpose()?;
    let policy = HttpPolicy { allow_private: given.allow_private, ..policy.clone() };
    let endpoint = McpEndpoint::of_venue(given.server.clone(), policy, credential.as_ref())?;
    let is_shared = given.server.secrets().next().is_none();
    Ok(VenueServer { endpoint: Arc::new(endpoint), is_shared })
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

/// Reads the key of a server from an environment variable.
fn credential(given: &VenueMcpServer, variable: &str) -> Result<McpCredential, McpServerProblem> {
    let value = std::env::var(variable).ok().filter(|value| !value.is_empty());
    let value = value.ok_or_else(|| McpServerProblem::NoKey { variable: variable.to_owned() })?;
    let value =
        PlainSecret::new(value).map_err(|error| McpServerProblem::Key { variable: variable.to_owned(), error })?;
    Ok(McpCredential { header: given.header.clone(), prefix: given.prefix.clone(), value })
}
