//! Path and tool name of an agent elsewhere: `v/ops/a2a/<name>/send` is offered to models as `a2a__<name>`.

use crate::ids::AgentId;
use crate::lattice::catalog::catalog_path;
use crate::mcp::name::ServerName;

/// Group of all these operations in the catalogue.
pub const GROUP: &str = "a2a";

/// Path prefix of all these operations.
pub const PREFIX: &str = "v/ops/a2a/";

/// Name of the operation that sends a message to an agent.
pub const SEND: &str = "send";

/// Beginning of the tool names of these operations.
const TOOL_PREFIX: &str = "a2a__";

/// Beginning of what stands for an agent elsewhere where the id of an agent of this venue is expected.
const SERVER_PREFIX: &str = "a2a:";

/// Returns the path of the operation that sends a message to an agent.
pub fn operation_path(name: &ServerName) -> String {
    format!("{PREFIX}{name}/{SEND}")
}

/// Returns the agent of a path in any spelling of it; `None` for other paths.
pub fn agent_of_path(path: &str) -> Option<ServerName> {
    let full = catalog_path(path);
    let (name, operation) = full.strip_prefix(PREFIX)?.split_once('/')?;
    ServerName::new(name).ok().filter(|_| operation == SEND)
}

/// Returns the name under which models are offered the operation of a path; `None` for paths of other groups.
pub fn tool_name_of_path(path: &str) -> Option<String> {
    agent_of_path(path).map(|name| format!("{TOOL_PREFIX}{name}"))
}

/// Returns the id that stands for an agent elsewhere where the id of an agent of this venue is expected.
pub fn server_id(name: &ServerName) -> AgentId {
    let fallback = || AgentId::new(GROUP).expect("a legal id");
    AgentId::new(format!("{SERVER_PREFIX}{name}")).unwrap_or_else(|_| fallback())
}

/// Returns the name behind an id of [`server_id`]; `None` for other ids.
pub fn name_of_server(server: &AgentId) -> Option<&str> {
    server.as_str().strip_prefix(SERVER_PREFIX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_agents_elsewhere_are_told_from_others() {
        for (path, expected) in [
            ("v/ops/a2a/weather/send", Some("a2a__weather")),
            ("/v/ops/a2a/weather/send/", Some("a2a__weather")),
            ("a2a:weather:send", Some("a2a__weather")),
            ("a2a/weather/send", Some("a2a__weather")),
            ("v/ops/a2a/weather", None),
            ("v/ops/a2a/weather/cancel", None),
            ("v/ops/a2a/weather/send/x", None),
            ("v/ops/a2a/agents", None),
            ("v/ops/mcp/weather/send", None),
            ("o/a2a/weather/send", None),
        ] {
            assert_eq!(tool_name_of_path(path).as_deref(), expected, "{path}");
        }
        let name = ServerName::new("weather").unwrap();
        assert_eq!(agent_of_path(&operation_path(&name)), Some(name.clone()));
        assert_eq!(name_of_server(&server_id(&name)), Some("weather"));
        assert_eq!(name_of_server(&AgentId::new("weather").unwrap()), None);
    }
}
