//! Settings of a server whose tools an agent uses: `mcp` of an agent file. Those of a venue have the same parts.

use crate::canonical::canonical;
use crate::chat::{HeaderText, ModelHeaders};
use crate::headers::{is_name, is_of_connection, is_value};
use crate::ids::secret::SecretName;
use crate::ids::sha256_hex;
use crate::limits::{
    MCP_CALL_SECONDS_RANGE, MCP_HEADER_BYTES, MCP_HEADERS, MCP_PATTERNS, MCP_SERVERS, MCP_TOOL_NAME_BYTES,
    MCP_URL_BYTES,
};
use crate::mcp::name::ServerName;
use crate::mcp::oauth::settings::{LoginSettings, LoginSettingsError};
use crate::mcp::revision::RevisionChoice;
use crate::visible::quote_foreign;
use serde::{Deserialize, Serialize};
use serde_json::json;

/// Headers that the protocol uses, in lower case.
const RESERVED_HEADERS: [&str; 9] = [
    "accept",
    "content-type",
    "content-encoding",
    "cookie",
    "last-event-id",
    "mcp-protocol-version",
    "mcp-session-id",
    "mcp-method",
    "mcp-name",
];

/// Beginning of what stands for the URL of a program.
const PROGRAM_SCHEME: &str = "stdio:";

/// Beginning of the headers that arguments of a call go into, in lower case.
const PARAM_HEADERS: &str = "mcp-param-";

/// A server of the Model Context Protocol whose tools an agent uses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct McpServer {
    /// Name of the server, part of the paths and names of its tools.
    pub name: ServerName,
    /// URL of a server that speaks Streamable HTTP.
    pub url: String,
    /// Headers of each request: texts, or values of the owner's secrets.
    #[serde(default, skip_serializing_if = "ModelHeaders::is_empty")]
    pub headers: ModelHeaders,
    /// How a token for the server is got, where more is known than the server says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth: Option<Box<LoginSettings>>,
    /// Names of the tools that may be used, `*` for any text; absent = all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
    /// Revision in which the server is asked.
    #[serde(default, skip_serializing_if = "is_default")]
    pub revision: RevisionChoice,
    /// Seconds that a call may take without progress.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<u64>,
    /// Tools that may be called again after a crash, whatever the server says of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub repeatable: Vec<String>,
    /// Tools that must not be called again after a crash, whatever the server says of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub once: Vec<String>,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Rule that the settings of a server break; the text begins with the key below the server.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum McpServerError {
    /// The text is no URL that can be called.
    #[error(
        "`url`: expected `http://HOST/…` or `https://HOST/…` of at most {MCP_URL_BYTES} characters, without credentials and `#`"
    )]
    Url,
    /// There are too many headers.
    #[error("`headers`: expected at most {MCP_HEADERS}, got {found}")]
    Headers {
        /// Number of headers.
        found: usize,
    },
    /// The text is no name of a header, or one that the protocol uses.
    #[error("`headers.{}`: expected a header that isn't the connection's or the protocol's own", quote_foreign(.name))]
    HeaderName {
        /// Name as it was given.
        name: String,
    },
    /// The header's text is too long or not printable.
    #[error("`headers.{name}`: expected at most {MCP_HEADER_BYTES} printable ASCII characters")]
    HeaderText {
        /// Name of the header.
        name: String,
    },
    /// The settings of its login break a rule.
    #[error(transparent)]
    Login(#[from] LoginSettingsError),
    /// A list of tools is too long, or an entry of it is no name.
    #[error(
        "`{key}`: expected at most {MCP_PATTERNS} names of tools, each of 1 to {MCP_TOOL_NAME_BYTES} bytes on one line; `*` stands for any text"
    )]
    Tools {
        /// Key of the list.
        key: &'static str,
    },
    /// The list allows no tool.
    #[error("`tools`: expected at least one name; absent stands for all tools")]
    NoTools,
    /// The time is out of range.
    #[error("`timeout`: expected {} to {} seconds, got {found}", MCP_CALL_SECONDS_RANGE.start(), MCP_CALL_SECONDS_RANGE.end())]
    Timeout {
        /// Seconds as they were given.
        found: u64,
    },
}

/// Rule that a list of servers breaks; the text begins with the place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum McpServersError {
    /// There are too many servers.
    #[error("`mcp`: expected at most {MCP_SERVERS} servers, got {found}")]
    TooMany {
        /// Number of servers.
        found: usize,
    },
    /// Two servers have one name.
    #[error("`mcp[{at}].name`: `{name}` is the name of another server of the list")]
    Duplicate {
        /// Index of the second server.
        at: usize,
        /// Name of both.
        name: ServerName,
    },
    /// The settings of a server break a rule.
    #[error("`mcp[{at}]`: {error}")]
    Server {
        /// Index of the server.
        at: usize,
        /// Rule that it breaks.
        error: McpServerError,
    },
}

/// Checks the servers of an agent.
pub fn check_servers(servers: &[McpServer]) -> Result<(), McpServersError> {
    if servers.len() > MCP_SERVERS {
        return Err(McpServersError::TooMany { found: servers.len() });
    }
    for (at, server) in servers.iter().enumerate() {
        server.check().map_err(|error| McpServersError::Server { at, error })?;
        // Paths differ in case, and tools of models don't: such names would be mistaken for each other.
        let is_same = |other: &McpServer| other.name.as_str().eq_ignore_ascii_case(server.name.as_str());
        if servers[..at].iter().any(is_same) {
            return Err(McpServersError::Duplicate { at, name: server.name.clone() });
        }
    }
    Ok(())
}

impl McpServer {
    /// Makes the settings of a server at a URL.
    pub fn at_url(name: ServerName, url: impl Into<String>) -> Self {
        Self {
            name,
            url: url.into(),
            headers: ModelHeaders::new(),
            auth: None,
            tools: None,
            revision: RevisionChoice::Auto,
            timeout: None,
            repeatable: Vec::new(),
            once: Vec::new(),
        }
    }

    /// Makes the settings of a server on the stdin and stdout of a program: its URL is the command. Only a venue names one,
    /// as programs have the rights of the venue's process.
    pub fn of_program(name: ServerName, command: &[String]) -> Self {
        Self::at_url(name, format!("{PROGRAM_SCHEME}{}", command.join(" ")))
    }

    /// Checks the settings of an agent, or of a venue's server with a URL, beyond their types.
    pub fn check(&self) -> Result<(), McpServerError> {
        self.check_headers()?;
        if let Some(auth) = &self.auth {
            self.check_login_header()?;
            auth.check()?;
        }
        self.check_tools()
    }

    /// Refuses a header that a login sets.
    pub fn check_login_header(&self) -> Result<(), LoginSettingsError> {
        let is_set = self.headers.keys().any(|name| name.eq_ignore_ascii_case("authorization"));
        if is_set { Err(LoginSettingsError::Header) } else { Ok(()) }
    }

    /// Checks the settings that are about tools.
    pub fn check_tools(&self) -> Result<(), McpServerError> {
        if self.tools.as_ref().is_some_and(Vec::is_empty) {
            return Err(McpServerError::NoTools);
        }
        for (key, list) in [
            ("tools", self.tools.as_deref().unwrap_or_default()),
            ("repeatable", &self.repeatable[..]),
            ("once", &self.once[..]),
        ] {
            check_patterns(key, list)?;
        }
        match self.timeout.filter(|seconds| !MCP_CALL_SECONDS_RANGE.contains(seconds)) {
            Some(found) => Err(McpServerError::Timeout { found }),
            None => Ok(()),
        }
    }

    /// Checks the URL and the headers.
    pub fn check_headers(&self) -> Result<(), McpServerError> {
        if !is_callable(&self.url) {
            return Err(McpServerError::Url);
        }
        if self.headers.len() > MCP_HEADERS {
            return Err(McpServerError::Headers { found: self.headers.len() });
        }
        let mut seen = Vec::new();
        for (name, text) in &self.headers {
            let lower = name.to_ascii_lowercase();
            let is_taken =
                RESERVED_HEADERS.contains(&lower.as_str()) || lower.starts_with(PARAM_HEADERS) || seen.contains(&lower);
            seen.push(lower);
            if !is_name(name) || name.len() > MCP_TOOL_NAME_BYTES || is_of_connection(name) || is_taken {
                return Err(McpServerError::HeaderName { name: name.clone() });
            }
            let (HeaderText::Plain(plain) | HeaderText::Secret { prefix: plain, .. }) = text;
            if plain.len() > MCP_HEADER_BYTES || !is_value(plain) {
                return Err(McpServerError::HeaderText { name: name.clone() });
            }
        }
        Ok(())
    }

    /// Returns the secrets of the owner that its headers and its login have.
    pub fn secrets(&self) -> impl Iterator<Item = &SecretName> {
        let of_login = self.auth.iter().flat_map(|auth| auth.secrets());
        self.headers.values().filter_map(HeaderText::secret).chain(of_login)
    }

    /// Whether a tool of the server may be used.
    pub fn allows(&self, tool: &str) -> bool {
        self.tools.as_ref().is_none_or(|patterns| matches_any(patterns, tool))
    }

    /// Whether the configuration says that a tool may be called again; `None` if it leaves that to the server.
    pub fn may_repeat(&self, tool: &str) -> Option<bool> {
        if matches_any(&self.once, tool) {
            return Some(false);
        }
        matches_any(&self.repeatable, tool).then_some(true)
    }

    /// Returns a hash of what decides who answers and with which rights: what was approved of one place counts for no
    /// other one.
    pub fn place_hash(&self) -> String {
        let place = match &self.auth {
            None => json!([self.url, self.headers]),
            Some(auth) => json!([self.url, self.headers, auth]),
        };
        sha256_hex(&canonical(&place))
    }

    /// Returns a hash of all settings.
    pub fn hash(&self) -> String {
        sha256_hex(&canonical(&json!(self)))
    }
}

fn check_patterns(key: &'static str, patterns: &[String]) -> Result<(), McpServerError> {
    let is_pattern =
        |text: &String| (1..=MCP_TOOL_NAME_BYTES).contains(&text.len()) && !text.contains(char::is_control);
    if patterns.len() <= MCP_PATTERNS && patterns.iter().all(is_pattern) {
        Ok(())
    } else {
        Err(McpServerError::Tools { key })
    }
}

/// Whether a text has the form of a URL that can be called; the client parses it.
fn is_callable(url: &str) -> bool {
    let Some(rest) = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://")) else { return false };
    let host: &str = rest.split(['/', '?']).next().unwrap_or_default();
    url.len() <= MCP_URL_BYTES
        && url.bytes().all(|byte| byte.is_ascii_graphic())
        && !host.is_empty()
        && !host.contains('@')
        && !url.contains('#')
}

/// Whether one of the patterns names a tool.
pub fn matches_any(patterns: &[String], tool: &str) -> bool {
    patterns.iter().any(|pattern| matches(pattern, tool))
}

/// Whether a pattern names a tool; `*` stands for any text. Takes time in proportion to both lengths.
fn matches(pattern: &str, tool: &str) -> bool {
    let mut parts = pattern.split('*');
    let head = parts.next().unwrap_or_default();
    let Some(mut rest) = tool.strip_prefix(head) else { return false };
    let mut parts: Vec<&str> = parts.collect();
    let Some(tail) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(tail)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode;
    use serde_json::Value;

    fn read(value: &Value) -> Result<McpServer, String> {
        let server: McpServer = decode::into_type(value.clone()).map_err(|error| error.to_string())?;
        server.check().map(|()| server).map_err(|error| error.to_string())
    }

    #[test]
    fn patterns_name_tools() {
        for (pattern, tool, expected) in [
            ("search", "search", true),
            ("search", "search2", false),
            ("*", "", true),
            ("*", "anything", true),
            ("get_*", "get_user", true),
            ("get_*", "forget_user", false),
            ("*_user", "get_user", true),
            ("a*b*c", "a-b-c", true),
            ("a*b*c", "a-c", false),
            ("a*b*b", "ab", false),
            ("**", "x", true),
        ] {
            assert_eq!(matches(pattern, tool), expected, "{pattern} {tool}");
        }
    }

    #[test]
    fn illegal_settings_are_named_with_the_reason() {
        let url = "https://h/mcp";
        for (value, part) in [
            (json!({"name": "a", "url": url}), None),
            (
                json!({"name": "a", "url": url, "headers": {"Authorization": {"$secret": "s/T", "prefix": "Bearer "}}}),
                None,
            ),
            (json!({"name": "a", "url": url, "tools": ["get_*"], "revision": "2025-11-25", "timeout": 5}), None),
            (json!({"name": "a"}), Some("missing field `url`")),
            (json!({"name": "a", "command": ["x"]}), Some("unknown field `command`")),
            (json!({"name": "a__b", "url": url}), Some("single `_`")),
            (json!({"name": "tools", "url": url}), Some("a name of the catalogue")),
            (json!({"name": "a", "url": "ftp://h"}), Some("`url`: expected `http://HOST")),
            (json!({"name": "a", "url": "https://"}), Some("`url`: expected")),
            (json!({"name": "a", "url": "https://u:p@h/"}), Some("`url`: expected")),
            (json!({"name": "a", "url": "https://h/#x"}), Some("`url`: expected")),
            (json!({"name": "a", "url": "https://h/\n"}), Some("`url`: expected")),
            (json!({"name": "a", "url": url, "headers": {"Host": "x"}}), Some("`headers.Host`: expected a header")),
            (json!({"name": "a", "url": url, "headers": {"Mcp-Param-X": "x"}}), Some("`headers.Mcp-Param-X`")),
            (json!({"name": "a", "url": url, "headers": {"MCP-Session-Id": "x"}}), Some("`headers.MCP-Session-Id`")),
            (json!({"name": "a", "url": url, "headers": {"X": "a\r\nb"}}), Some("`headers.X`: expected at most")),
            (json!({"name": "a", "url": url, "auth": {"scopes": ["read"]}}), None),
            (json!({"name": "a", "url": url, "auth": {"clientId": "c"}}), Some("`auth.clientId`: expected `issuer`")),
            (
                json!({"name": "a", "url": url, "auth": {}, "headers": {"authorization": "x"}}),
                Some("expected either it or the header `Authorization`"),
            ),
            (json!({"name": "a", "url": url, "headers": {"X": 1}}), Some("`headers.X`: not a legal value")),
            (json!({"name": "a", "url": url, "tools": []}), Some("`tools`: expected at least one name")),
            (json!({"name": "a", "url": url, "once": [""]}), Some("`once`: expected at most")),
            (json!({"name": "a", "url": url, "timeout": 0}), Some("`timeout`: expected 1 to 300 seconds, got 0")),
            (json!({"name": "a", "url": url, "timeout": 301}), Some("`timeout`: expected 1 to 300 seconds")),
            (json!({"name": "a", "url": url, "revision": "2024-11-05"}), Some("2025-11-25")),
            (json!({"name": "a", "url": url, "ulr": "x"}), Some("unknown field `ulr`")),
        ] {
            match (read(&value), part) {
                (Ok(server), None) => {
                    assert_eq!(read(&json!(server)), Ok(server), "{value}");
                }
                (Err(error), Some(part)) => assert!(error.contains(part), "{value}: {error}"),
                (found, _) => panic!("{value}: expected {part:?}, got {found:?}"),
            }
        }
    }

    #[test]
    fn a_list_has_each_name_once() {
        let server = |name: &str| McpServer::at_url(ServerName::new(name).unwrap(), "https://h/");
        assert_eq!(check_servers(&[server("a"), server("b")]), Ok(()));
        let error = check_servers(&[server("a"), server("b"), server("A")]).unwrap_err();
        assert_eq!(error.to_string(), "`mcp[2].name`: `A` is the name of another server of the list");
        let many: Vec<_> = (0..17).map(|n| server(&format!("s{n}"))).collect();
        assert_eq!(check_servers(&many), Err(McpServersError::TooMany { found: 17 }));
    }

    #[test]
    fn the_configuration_decides_before_the_server() {
        let mut server = McpServer::at_url(ServerName::new("a").unwrap(), "https://h/");
        server.tools = Some(vec!["get_*".into(), "pay".into()]);
        server.repeatable = vec!["*".into()];
        server.once = vec!["pay".into()];
        assert!(server.allows("get_user") && server.allows("pay") && !server.allows("drop"));
        assert_eq!((server.may_repeat("get_user"), server.may_repeat("pay")), (Some(true), Some(false)));
        let before = server.place_hash();
        server.tools = None;
        assert_eq!(server.place_hash(), before, "what may be used is no part of the place");
        server.url = "https://other/".into();
        assert_ne!(server.place_hash(), before);
        let program = McpServer::of_program(server.name.clone(), &["npx".into(), "-y".into(), "x".into()]);
        assert_eq!((program.url.as_str(), program.check()), ("stdio:npx -y x", Err(McpServerError::Url)));
        assert_eq!(program.check_tools(), Ok(()));
    }
}
