//! Names of servers, and the catalogue paths and tool names of their tools: `v/ops/mcp/<server>/<tool>` is offered to
//! models as `<server>__<tool>`.

use crate::ids::{AgentId, sha256_hex};
use crate::lattice::catalog::catalog_path;
use crate::limits::{MCP_NAME_CHARS, MCP_TOOL_NAME_BYTES};
use crate::visible::quote_foreign;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Group of all these operations in the catalogue.
pub const GROUP: &str = "mcp";

/// Path prefix of all these operations.
pub const PREFIX: &str = "v/ops/mcp/";

/// Path of the operation by which Covia's clients call a tool: it stands for the tool's own operation.
pub const TOOLS_CALL: &str = "v/ops/mcp/tools-call";

/// Covia's spelling of it.
pub const TOOLS_CALL_ALIAS: &str = "v/ops/mcp/tools/call";

/// Text between the name of a server and that of its tool.
const SEPARATOR: &str = "__";

/// Beginning of what stands for a server where the id of an agent of this venue is expected.
const SERVER_PREFIX: &str = "mcp:";

/// Longest name of a tool that all providers take, in characters.
const TOOL_CHARS: usize = 64;

/// Digits of the hash in a name that stands for another one.
const HASH_DIGITS: usize = 8;

/// Names that the compiled operations of the group need for themselves.
const RESERVED: [&str; 2] = ["tools", "servers"];

/// Name of a server in a configuration.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ServerName(String);

/// Reason why a text is no name of a server.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ServerNameError {
    /// The name has an illegal length or character.
    #[error(
        "expected 1 to {MCP_NAME_CHARS} letters, digits, `-` or single `_`, with a letter or a digit at both ends, got `{}`",
        quote_foreign(.found)
    )]
    Characters {
        /// Text that was given.
        found: String,
    },
    /// The name is that of a part of the catalogue.
    #[error("`{found}` is a name of the catalogue, expected another one")]
    Reserved {
        /// Text that was given.
        found: String,
    },
}

impl ServerName {
    /// Makes the name of a server.
    ///
    /// # Errors
    /// The name can't stand in a path and in the name of a tool.
    pub fn new(name: &str) -> Result<Self, ServerNameError> {
        let is_end = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        let is_legal = name.len() <= MCP_NAME_CHARS
            && name.chars().all(is_plain)
            && is_end(name.chars().next())
            && is_end(name.chars().next_back())
            && !name.contains(SEPARATOR);
        if !is_legal {
            return Err(ServerNameError::Characters { found: name.to_owned() });
        }
        if RESERVED.iter().any(|reserved| reserved.eq_ignore_ascii_case(name)) {
            return Err(ServerNameError::Reserved { found: name.to_owned() });
        }
        Ok(Self(name.to_owned()))
    }

    /// Returns a name for the server of a URL that a configuration names by its URL alone: its host, in legal characters.
    pub fn from_url(url: &str) -> Self {
        let place = url.split_once("://").map_or(url, |(_, rest)| rest);
        let host: String = place.chars().take_while(|c| !matches!(c, '/' | '?' | '#')).collect();
        let clean: String =
            host.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' }).collect();
        let hash = &sha256_hex(url.as_bytes())[..HASH_DIGITS];
        let room = MCP_NAME_CHARS - HASH_DIGITS - 1;
        let head: String = clean.trim_matches('-').chars().take(room).collect();
        let head = head.trim_end_matches('-');
        // Two URLs of one host are two servers.
        Self(if head.is_empty() { format!("server-{hash}") } else { format!("{head}-{hash}") })
    }

    /// Returns the name as it was given.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the path prefix of the server's tools.
    pub fn prefix(&self) -> String {
        format!("{PREFIX}{self}/")
    }

    /// Returns the name of a tool in the catalogue. A tool whose own name is too long there, or has other characters than
    /// providers take, gets a hash of it, so that two tools never share a name by chance.
    pub fn operation_name(&self, tool: &str) -> String {
        let room = TOOL_CHARS - self.0.len() - SEPARATOR.len();
        let clean: String = tool.chars().map(|c| if is_tool_char(c) { c } else { '_' }).collect();
        if clean == tool && (1..=room).contains(&clean.len()) {
            return clean;
        }
        let hash = &sha256_hex(tool.as_bytes())[..HASH_DIGITS];
        let head: String = clean.chars().take(room - HASH_DIGITS - 1).collect();
        format!("{head}_{hash}")
    }

    /// Returns the path of a tool in the catalogue.
    pub fn operation_path(&self, tool: &str) -> String {
        format!("{PREFIX}{self}/{}", self.operation_name(tool))
    }
}

const fn is_tool_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_')
}

impl TryFrom<String> for ServerName {
    type Error = ServerNameError;

    fn try_from(name: String) -> Result<Self, ServerNameError> {
        Self::new(&name)
    }
}

impl From<ServerName> for String {
    fn from(name: ServerName) -> Self {
        name.0
    }
}

impl fmt::Display for ServerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Whether a text can be the name of a tool at its server.
pub fn is_tool_name(name: &str) -> bool {
    (1..=MCP_TOOL_NAME_BYTES).contains(&name.len()) && !name.chars().any(char::is_control)
}

/// Returns the server and the rest of a path below the group, in any spelling of it; `None` for other paths.
pub fn split_path(path: &str) -> Option<(ServerName, String)> {
    let full = catalog_path(path);
    let (server, tool) = full.strip_prefix(PREFIX)?.split_once('/')?;
    let is_one = !tool.is_empty() && !tool.contains('/');
    Some((ServerName::new(server).ok()?, tool.to_owned())).filter(|_| is_one)
}

/// Returns the id that stands for a server where the id of an agent of this venue is expected.
pub fn tool_server_id(name: &ServerName) -> AgentId {
    let fallback = || AgentId::new(GROUP).expect("a legal id");
    AgentId::new(format!("{SERVER_PREFIX}{name}")).unwrap_or_else(|_| fallback())
}

/// Returns the name behind an id of [`tool_server_id`]; `None` for other ids.
pub fn name_of_tool_server(server: &AgentId) -> Option<&str> {
    server.as_str().strip_prefix(SERVER_PREFIX)
}

/// Returns the path of the tool that the arguments of [`TOOLS_CALL`] name; `None` if they name none.
pub fn called_tool(arguments: &serde_json::Value) -> Option<String> {
    let server = ServerName::new(arguments["server"].as_str()?).ok()?;
    let tool = arguments["toolName"].as_str().filter(|tool| is_tool_name(tool))?;
    Some(server.operation_path(tool))
}

/// Returns the server of a path that stands for all its tools, `v/ops/mcp/<server>/*`.
pub fn server_of_pattern(path: &str) -> Option<ServerName> {
    split_path(path).filter(|(_, tool)| tool == "*").map(|(server, _)| server)
}

/// Returns the name under which models are offered the operation of a path; `None` for paths of other groups.
pub fn tool_name_of_path(path: &str) -> Option<String> {
    let (server, tool) = split_path(path)?;
    let name = format!("{server}{SEPARATOR}{tool}");
    Some(name.chars().take(TOOL_CHARS).map(|c| if is_tool_char(c) { c } else { '_' }).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_servers_name_fits_a_path_and_a_tool() {
        for (name, is_legal) in [
            ("github", true),
            ("git-hub_2", true),
            ("A", true),
            (&*"x".repeat(32), true),
            (&*"x".repeat(33), false),
            ("", false),
            ("_a", false),
            ("a-", false),
            ("a__b", false),
            ("a.b", false),
            ("a/b", false),
            ("\u{fc}", false),
            ("tools", false),
            ("servers", false),
            ("Tools", false),
        ] {
            assert_eq!(ServerName::new(name).is_ok(), is_legal, "{name}");
        }
    }

    #[test]
    fn a_tools_name_is_legal_and_its_own() {
        let server = ServerName::new("github").unwrap();
        for (tool, name) in [
            ("search", "search"),
            ("Get-User_1", "Get-User_1"),
            ("admin.tools.list", "admin_tools_list_8fb8f5c0"),
            ("admin_tools_list", "admin_tools_list"),
        ] {
            let found = server.operation_name(tool);
            let (head, _) = name.rsplit_once('_').unwrap_or((name, ""));
            assert!(found == name || (found.starts_with(head) && found != tool), "{tool}: {found}");
        }
        let long = [format!("{}a", "x".repeat(120)), format!("{}b", "x".repeat(120))];
        let names = long.each_ref().map(|tool| server.operation_name(tool));
        assert_ne!(names[0], names[1]);
        for (tool, name) in long.iter().zip(&names) {
            let offered = tool_name_of_path(&server.operation_path(tool)).unwrap();
            assert_eq!(offered, format!("github__{name}"));
            assert_eq!(offered.len(), 64, "{offered}");
        }
        assert_ne!(server.operation_name("a b"), server.operation_name("a.b"));
        assert_ne!(server.operation_name(""), "");
    }

    #[test]
    fn paths_of_tools_are_told_from_others() {
        for (path, expected) in [
            ("v/ops/mcp/github/search", Some("github__search")),
            ("/v/ops/mcp/github/search/", Some("github__search")),
            ("mcp:github:search", Some("github__search")),
            ("mcp/github/search", Some("github__search")),
            ("v/ops/mcp/github", None),
            ("v/ops/mcp/github/a/b", None),
            ("v/ops/mcp/tools/call", None),
            ("mcp:tools:call", None),
            ("v/ops/mcp/tools-call", None),
            ("v/ops/lattice/read", None),
            ("o/mcp/github/search", None),
        ] {
            assert_eq!(tool_name_of_path(path).as_deref(), expected, "{path}");
        }
        assert_eq!(server_of_pattern("mcp:github:*").unwrap().as_str(), "github");
        assert_eq!(server_of_pattern("v/ops/mcp/github/search"), None);
    }

    #[test]
    fn a_url_gives_a_server_its_name() {
        let names = ["https://search-api.example.com/mcp", "https://search-api.example.com/other", "http://[::1]:80/"];
        let names = names.map(|url| ServerName::from_url(url).to_string());
        assert!(names[0].starts_with("search-api-example-com") && names[0] != names[1], "{names:?}");
        for name in names {
            assert!(ServerName::new(&name).is_ok(), "{name}");
        }
    }
}
