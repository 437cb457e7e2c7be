//! Settings of an agent elsewhere: `a2aAgents` of an agent file. Those of a venue have the same parts.

use crate::canonical::canonical;
use crate::chat::{HeaderText, ModelHeaders};
use crate::ids::secret::SecretName;
use crate::ids::sha256_hex;
use crate::limits::{
    A2A_AGENTS, A2A_DEADLINE_RANGE, A2A_KEY_BYTES, A2A_KEYS, A2A_PATTERNS, A2A_REQUEST_SECONDS_RANGE,
    MCP_TOOL_NAME_BYTES,
};
use crate::mcp::name::ServerName;
use crate::mcp::server::{McpServer, McpServerError, matches_any};
use crate::visible::quote_foreign;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Header that the protocol uses, in lower case.
const VERSION_HEADER: &str = "a2a-version";

/// Path of a card below the address of an agent.
const CARD_PATH: &str = "/.well-known/agent-card.json";

/// An agent elsewhere that is reached by the Agent2Agent protocol.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RemoteAgent {
    /// Name of the agent, part of the path and the name of its tool.
    pub name: ServerName,
    /// URL of its card, or the address below which its card is.
    pub url: String,
    /// Headers of each request: texts, or values of the owner's secrets. They go to the host of `url` alone.
    #[serde(default, skip_serializing_if = "ModelHeaders::is_empty")]
    pub headers: ModelHeaders,
    /// Ids of the skills that models read of, `*` for any text; absent = all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skills: Option<Vec<String>>,
    /// Seconds that one request may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<u64>,
    /// Seconds that a task may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<u64>,
    /// Whether the agent knows a message that comes again by its id, so that it may be sent again after a crash.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub repeatable: bool,
    /// Public keys of which one must have signed the card, as JWK; empty = no signature is checked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<Value>,
}

/// Rule that the settings of an agent elsewhere break; the text begins with the key below the agent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RemoteAgentError {
    /// The URL or a header is illegal.
    #[error(transparent)]
    Place(#[from] McpServerError),
    /// A header is one that the protocol uses.
    #[error("`headers.{}`: expected a header that isn't the connection's or the protocol's own", quote_foreign(.name))]
    Header {
        /// Name as it was given.
        name: String,
    },
    /// The list of skills is illegal.
    #[error(
        "`skills`: expected 1 to {A2A_PATTERNS} ids of skills, each of 1 to {MCP_TOOL_NAME_BYTES} bytes on one line; `*` stands for any text, absent for all"
    )]
    Skills,
    /// The time of a request is out of range.
    #[error("`timeout`: expected {} to {} seconds, got {found}", A2A_REQUEST_SECONDS_RANGE.start(), A2A_REQUEST_SECONDS_RANGE.end())]
    Timeout {
        /// Seconds as they were given.
        found: u64,
    },
    /// The time of a task is out of range.
    #[error("`deadline`: expected {} to {} seconds, got {found}", A2A_DEADLINE_RANGE.start(), A2A_DEADLINE_RANGE.end())]
    Deadline {
        /// Seconds as they were given.
        found: u64,
    },
    /// There are too many keys.
    #[error("`keys`: expected at most {A2A_KEYS}, got {found}")]
    Keys {
        /// Number of keys.
        found: usize,
    },
    /// A key is no public key.
    #[error(
        "`keys[{at}]`: expected a public key as JWK (`kty` is `EC`, `OKP` or `RSA`) of at most {A2A_KEY_BYTES} bytes, without `d`"
    )]
    Key {
        /// Index of the key.
        at: usize,
    },
}

/// Rule that a list of agents elsewhere breaks; the text begins with the place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RemoteAgentsError {
    /// There are too many agents.
    #[error("`a2aAgents`: expected at most {A2A_AGENTS} agents, got {found}")]
    TooMany {
        /// Number of agents.
        found: usize,
    },
    /// Two agents have one name.
    #[error("`a2aAgents[{at}].name`: `{name}` is the name of another agent of the list")]
    Duplicate {
        /// Index of the second agent.
        at: usize,
        /// Name of both.
        name: ServerName,
    },
    /// The settings of an agent break a rule.
    #[error("`a2aAgents[{at}]`: {error}")]
    Agent {
        /// Index of the agent.
        at: usize,
        /// Rule that it breaks.
        error: RemoteAgentError,
    },
}

/// Checks the agents elsewhere of an agent.
pub fn check_remote_agents(agents: &[RemoteAgent]) -> Result<(), RemoteAgentsError> {
    if agents.len() > A2A_AGENTS {
        return Err(RemoteAgentsError::TooMany { found: agents.len() });
    }
    for (at, agent) in agents.iter().enumerate() {
        agent.check().map_err(|error| RemoteAgentsError::Agent { at, error })?;
        // Paths differ in case, and tools of models don't: such names would be mistaken for each other.
        let is_same = |other: &RemoteAgent| other.name.as_str().eq_ignore_ascii_case(agent.name.as_str());
        if agents[..at].iter().any(is_same) {
            return Err(RemoteAgentsError::Duplicate { at, name: agent.name.clone() });
        }
    }
    Ok(())
}

impl RemoteAgent {
    /// Makes the settings of an agent at a URL.
    pub fn at_url(name: ServerName, url: impl Into<String>) -> Self {
        Self {
            name,
            url: url.into(),
            headers: ModelHeaders::new(),
            skills: None,
            timeout: None,
            deadline: None,
            repeatable: false,
            keys: Vec::new(),
        }
    }

    /// Checks the settings beyond their types.
    pub fn check(&self) -> Result<(), RemoteAgentError> {
        // The rules of URLs and headers are those of servers of tools.
        let place = McpServer { headers: self.headers.clone(), ..McpServer::at_url(self.name.clone(), &*self.url) };
        place.check()?;
        if let Some(name) = self.headers.keys().find(|name| name.eq_ignore_ascii_case(VERSION_HEADER)) {
            return Err(RemoteAgentError::Header { name: name.clone() });
        }
        if !self.skills.as_deref().is_none_or(is_pattern_list) {
            return Err(RemoteAgentError::Skills);
        }
        if let Some(found) = self.timeout.filter(|seconds| !A2A_REQUEST_SECONDS_RANGE.contains(seconds)) {
            return Err(RemoteAgentError::Timeout { found });
        }
        if let Some(found) = self.deadline.filter(|seconds| !A2A_DEADLINE_RANGE.contains(seconds)) {
            return Err(RemoteAgentError::Deadline { found });
        }
        if self.keys.len() > A2A_KEYS {
            return Err(RemoteAgentError::Keys { found: self.keys.len() });
        }
        match self.keys.iter().position(|key| !is_public_key(key)) {
            Some(at) => Err(RemoteAgentError::Key { at }),
            None => Ok(()),
        }
    }

    /// Returns the secrets of the owner that its headers have.
    pub fn secrets(&self) -> impl Iterator<Item = &SecretName> {
        self.headers.values().filter_map(HeaderText::secret)
    }

    /// Whether models read of a skill.
    pub fn shows(&self, skill: &str) -> bool {
        self.skills.as_ref().is_none_or(|patterns| matches_any(patterns, skill))
    }

    /// Returns the URL of the card: that of the settings if it is one of a JSON file, else the usual one below it.
    pub fn card_url(&self) -> String {
        let (path, query) = self.url.split_once('?').map_or((&*self.url, None), |(path, query)| (path, Some(query)));
        if path.rsplit_once('.').is_some_and(|(_, kind)| kind.eq_ignore_ascii_case("json")) {
            return self.url.clone();
        }
        let query = query.map(|query| format!("?{query}")).unwrap_or_default();
        format!("{}{CARD_PATH}{query}", path.trim_end_matches('/'))
    }

    /// Returns a hash of what decides who answers and with which rights: what was approved of one place counts for no
    /// other one.
    pub fn place_hash(&self) -> String {
        sha256_hex(&canonical(&json!([self.url, self.headers, self.keys])))
    }

    /// Returns a hash of all settings.
    pub fn hash(&self) -> String {
        sha256_hex(&canonical(&json!(self)))
    }
}

fn is_pattern_list(patterns: &[String]) -> bool {
    let is_pattern =
        |text: &String| (1..=MCP_TOOL_NAME_BYTES).contains(&text.len()) && !text.contains(char::is_control);
    (1..=A2A_PATTERNS).contains(&patterns.len()) && patterns.iter().all(is_pattern)
}

/// Whether a value has the form of a public key; whether it can be used is known when it is.
fn is_public_key(key: &Value) -> bool {
    let kind = key["kty"].as_str().unwrap_or_default();
    ["EC", "OKP", "RSA"].contains(&kind) && key.get("d").is_none() && key.to_string().len() <= A2A_KEY_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode;

    fn read(value: &Value) -> Result<RemoteAgent, String> {
        let agent: RemoteAgent = decode::into_type(value.clone()).map_err(|error| error.to_string())?;
        agent.check().map(|()| agent).map_err(|error| error.to_string())
    }

    #[test]
    fn illegal_settings_are_named_with_the_reason() {
        let url = "https://h/agents/a";
        let key = json!({"kty": "OKP", "crv": "Ed25519", "x": "x"});
        for (value, part) in [
            (json!({"name": "a", "url": url}), None),
            (json!({"name": "a", "url": url, "headers": {"Authorization": {"$secret": "s/T"}}, "deadline": 60}), None),
            (json!({"name": "a", "url": url, "skills": ["get_*"], "keys": [key], "repeatable": true}), None),
            (json!({"name": "a"}), Some("missing field `url`")),
            (json!({"name": "a__b", "url": url}), Some("single `_`")),
            (json!({"name": "a", "url": "ftp://h"}), Some("`url`: expected `http://HOST")),
            (json!({"name": "a", "url": "https://u:p@h/"}), Some("`url`: expected")),
            (json!({"name": "a", "url": url, "headers": {"A2A-Version": "1"}}), Some("`headers.A2A-Version`")),
            (json!({"name": "a", "url": url, "headers": {"Host": "x"}}), Some("`headers.Host`: expected a header")),
            (json!({"name": "a", "url": url, "skills": []}), Some("`skills`: expected 1 to 256")),
            (json!({"name": "a", "url": url, "skills": ["a\nb"]}), Some("`skills`: expected 1 to 256")),
            (json!({"name": "a", "url": url, "timeout": 0}), Some("`timeout`: expected 1 to 120 seconds, got 0")),
            (json!({"name": "a", "url": url, "deadline": 59}), Some("`deadline`: expected 60 to 2592000 seconds")),
            (json!({"name": "a", "url": url, "keys": vec![key.clone(); 9]}), Some("`keys`: expected at most 8, got 9")),
            (
                json!({"name": "a", "url": url, "keys": [{"kty": "oct", "k": "x"}]}),
                Some("`keys[0]`: expected a public"),
            ),
            (
                json!({"name": "a", "url": url, "keys": [{"kty": "EC", "d": "x"}]}),
                Some("`keys[0]`: expected a public key"),
            ),
        ] {
            match (read(&value), part) {
                (Ok(_), None) => {}
                (Err(error), Some(part)) => assert!(error.contains(part), "{value}: {error}"),
                (found, _) => panic!("{value}: {found:?}"),
            }
        }
    }

    #[test]
    fn a_list_has_each_name_once() {
        let agent = |name: &str| RemoteAgent::at_url(ServerName::new(name).unwrap(), "https://h/a");
        assert_eq!(check_remote_agents(&[agent("a"), agent("b")]), Ok(()));
        let twice = check_remote_agents(&[agent("a"), agent("A")]).unwrap_err().to_string();
        assert_eq!(twice, "`a2aAgents[1].name`: `A` is the name of another agent of the list");
        let many: Vec<_> = (0..17).map(|n| agent(&format!("a{n}"))).collect();
        assert!(check_remote_agents(&many).unwrap_err().to_string().contains("at most 16 agents, got 17"));
    }

    #[test]
    fn a_card_is_below_the_address_or_named() {
        for (url, expected) in [
            ("https://h", "https://h/.well-known/agent-card.json"),
            ("https://h/a2a/t/u/clerk/", "https://h/a2a/t/u/clerk/.well-known/agent-card.json"),
            ("https://h/a?k=v", "https://h/a/.well-known/agent-card.json?k=v"),
            ("https://h/cards/clerk.json", "https://h/cards/clerk.json"),
            ("https://h/cards/clerk.json?v=1", "https://h/cards/clerk.json?v=1"),
        ] {
            let agent = RemoteAgent::at_url(ServerName::new("a").unwrap(), url);
            assert_eq!(agent.card_url(), expected);
        }
    }

    #[test]
    fn other_keys_or_headers_are_another_place() {
        let agent = RemoteAgent::at_url(ServerName::new("a").unwrap(), "https://h/a");
        let slow = RemoteAgent { timeout: Some(9), ..agent.clone() };
        assert_eq!(slow.place_hash(), agent.place_hash());
        assert_ne!(slow.hash(), agent.hash());
        let signed = RemoteAgent { keys: vec![json!({"kty": "OKP"})], ..agent.clone() };
        assert_ne!(signed.place_hash(), agent.place_hash());
    }
}
