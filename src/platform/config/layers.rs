//! The layers of configuration, merged key by key with the origin of each value.

use super::mask::{error_value, mask_value};
use super::position::locate;
use crate::config::files::{SETTINGS_FILE_BYTES, read_text_file};
use crate::domain::nearest::nearest;
use crate::domain::visible::beginning;
use std::{collections::BTreeMap, fmt, path::Path};
use toml::{Table, Value};

/// Text of `config/default.toml`, built in.
pub const DEFAULTS: &str = include_str!("../../../config/default.toml");

/// Prefix of the environment variables that are read.
const ENV_PREFIX: &str = "TRELLIS__";

/// A table with free names, `<prefix><name>.<leaf>`: each name has these leaves.
pub(super) struct FreeTable {
    pub prefix: &'static str,
    texts: &'static [&'static str],
    switches: &'static [&'static str],
}

/// Keys `models.endpoints.<name>.<leaf>`.
pub(super) const ENDPOINTS: FreeTable =
    FreeTable { prefix: "models.endpoints.", texts: &["base_url", "api_key_env"], switches: &[] };
/// Keys `resources.kinds.<name>.<leaf>`.
pub(super) const KINDS: FreeTable = FreeTable {
    prefix: "resources.kinds.",
    texts: &["url", "operations", "mode", "about", "key_env", "header", "prefix", "timeout"],
    switches: &["allow_private"],
};
/// Keys `mcp.servers.<name>.<leaf>`.
pub(super) const MCP_SERVERS: FreeTable = FreeTable {
    prefix: "mcp.servers.",
    texts: &[
        "url",
        "command",
        "env",
        "tools",
        "revision",
        "timeout",
        "repeatable",
        "once",
        "key_env",
        "secret",
        "header",
        "prefix",
        "login",
        "issuer",
        "client_id",
        "client_secret_env",
        "private_key_env",
        "scopes",
    ],
    switches: &["allow_private"],
};
/// Keys `notifications.webhooks.<name>.<leaf>`.
pub(super) const WEBHOOKS: FreeTable = FreeTable {
    prefix: "notifications.webhooks.",
    texts: &["url", "kinds", "secret_env"],
    switches: &["with_content", "allow_private"],
};
/// Keys `a2a.agents.<name>.<leaf>`.
pub(super) const A2A_AGENTS: FreeTable = FreeTable {
    prefix: "a2a.agents.",
    texts: &["url", "skills", "timeout", "deadline", "keys", "key_env", "secret", "header", "prefix"],
    switches: &["repeatable", "allow_private"],
};
const FREE: [FreeTable; 5] = [ENDPOINTS, KINDS, MCP_SERVERS, WEBHOOKS, A2A_AGENTS];

impl FreeTable {
    /// Returns an empty value of the type of a leaf's key; `None` for other keys.
    fn empty_value(&self, key: &str) -> Option<Value> {
        let (name, leaf) = key.strip_prefix(self.prefix)?.split_once('.')?;
        let typed = match (self.texts.contains(&leaf), self.switches.contains(&leaf)) {
            (true, _) => Value::String(String::new()),
            (false, true) => Value::Boolean(false),
            (false, false) => return None,
        };
        (!name.is_empty()).then_some(typed)
    }

    /// Returns the keys that an unknown key may have meant.
    fn keys_near(&self, key: &str) -> Vec<String> {
        let Some(rest) = key.strip_prefix(self.prefix) else { return Vec::new() };
        let name = rest.split('.').next().unwrap_or(rest);
        self.texts.iter().chain(self.switches).map(|leaf| format!("{}{name}.{leaf}", self.prefix)).collect()
    }
}

fn free_type(key: &str) -> Option<Value> {
    FREE.iter().find_map(|table| table.empty_value(key))
}

/// The layer that set a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SettingOrigin {
    /// Built in, from `config/default.toml`.
    Default,
    /// A file given with `--config`.
    File(String),
    /// An environment variable.
    Env(String),
    /// A flag on the command line.
    Flag,
}

impl fmt::Display for SettingOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(path) => write!(f, "file {path}"),
            Self::Env(name) => write!(f, "env {name}"),
            Self::Flag => f.write_str("flag"),
        }
    }
}

/// One error of the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    /// The key; empty if a whole file can't be read.
    pub key: String,
    /// The layer that set it.
    pub origin: SettingOrigin,
    /// What is wrong and what was expected.
    pub problem: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.key.is_empty() {
            write!(f, "{}: {}", self.origin, self.problem)
        } else {
            write!(f, "`{}` ({}): {}", self.key, self.origin, self.problem)
        }
    }
}

/// All errors of the configuration, never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigErrors(pub Vec<ConfigError>);

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let n = self.0.len();
        write!(f, "the configuration has {n} error{}", if n == 1 { "" } else { "s" })?;
        self.0.iter().try_for_each(|error| write!(f, "\n  {error}"))
    }
}

impl std::error::Error for ConfigErrors {}

/// One key as `config show --origin` prints it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShownKey {
    /// Dotted key, e.g. `worker.slots`.
    pub key: String,
    /// Value in TOML syntax, credentials masked.
    pub value: String,
    /// Layer that set the value.
    pub origin: SettingOrigin,
}

/// A value and the layer that set it.
#[derive(Debug, Clone)]
pub(super) struct LayerEntry {
    pub value: Value,
    pub origin: SettingOrigin,
}

/// All keys after the merge, and the errors.
pub(super) struct ConfigLayers {
    /// Keys in the order of the defaults, those of free tables last.
    keys: Vec<String>,
    entries: BTreeMap<String, LayerEntry>,
    /// The environment, for settings that refer to other variables.
    pub variables: BTreeMap<String, String>,
    pub errors: Vec<ConfigError>,
    /// Text of the configuration file.
    file: String,
}

impl ConfigLayers {
    pub fn read(file: Option<&Path>, env: &BTreeMap<String, String>, overrides: &[(String, String)]) -> Self {
        let defaults: Table = DEFAULTS.parse().expect("built in and parsed by a test");
        let mut layers = Self {
            keys: Vec::new(),
            entries: BTreeMap::new(),
            variables: env.clone(),
            errors: Vec::new(),
            file: String::new(),
        };
        for (key, value) in leaves(&defaults) {
            layers.keys.push(key.clone());
            layers.entries.insert(key, LayerEntry { value, origin: SettingOrigin::Default });
        }
        if let Some(path) = file {
            layers.add_file(path);
        }
        for (name, text) in env.iter().filter(|(name, _)| name.starts_with(ENV_PREFIX)) {
            let key = name[ENV_PREFIX.len()..].to_lowercase().replace("__", ".");
            layers.set_text(&key, text, SettingOrigin::Env(name.clone()));
        }
        for (key, text) in overrides {
            layers.set_text(key, text, SettingOrigin::Flag);
        }
        layers
    }

    fn add_file(&mut self, path: &Path) {
        let origin = SettingOrigin::File(path.display().to_string());
        let parsed = read_text_file(path, SETTINGS_FILE_BYTES)
            .map_err(|error| format!("can't be read: {error}"))
            .and_then(|text| match text.parse::<Table>() {
                Ok(table) => Ok((text, table)),
                Err(error) => Err(format!("is not TOML: {}", one_line(&error))),
            });
        match parsed {
            Ok((text, table)) => {
                self.file = text;
                for (key, value) in leaves(&table) {
                    self.set(&key, value, origin.clone());
                }
            }
            Err(problem) => self.add_error("", origin, problem),
        }
    }

    /// Sets a value whose type the key decides, for environment and flags.
    fn set_text(&mut self, key: &str, text: &str, origin: SettingOrigin) {
        let free = free_type(key);
        let value = match self.entries.get(key).map(|entry| &entry.value).or(free.as_ref()) {
            Some(Value::Integer(_)) => text.trim().parse().ok().map(Value::Integer),
            Some(Value::Boolean(_)) => text.trim().parse().ok().map(Value::Boolean),
            _ => Some(Value::String(text.to_owned())),
        };
        self.set(key, value.unwrap_or_else(|| Value::String(text.to_owned())), origin);
    }

    fn set(&mut self, key: &str, value: Value, origin: SettingOrigin) {
        if let Some(entry) = self.entries.get_mut(key) {
            if entry.value.same_type(&value) {
                *entry = LayerEntry { value, origin };
            } else {
                let problem = format!("expected {}, got {}", kind(&entry.value), format_value(key, &value));
                self.add_error(key, origin, problem);
            }
        } else if let Some(typed) = free_type(key) {
            if typed.same_type(&value) {
                self.keys.push(key.to_owned());
                self.entries.insert(key.to_owned(), LayerEntry { value, origin });
            } else {
                let problem = format!("expected {}, got {}", kind(&typed), format_value(key, &value));
                self.add_error(key, origin, problem);
            }
        } else {
            let problem = if self.is_section(key) {
                format!("expected a section with keys, got {}", format_value(key, &value))
            } else {
                let near = self.nearest(key).map(|near| format!("; did you mean `{near}`?"));
                let near = near.unwrap_or_else(|| "; `trellis config show` lists all".to_owned());
                format!("is not a setting{near}")
            };
            self.add_error(key, origin, problem);
        }
    }

    fn is_section(&self, key: &str) -> bool {
        let prefix = format!("{key}.");
        FREE.iter().any(|table| table.prefix.starts_with(&prefix))
            || self.keys.iter().any(|known| known.starts_with(&prefix))
    }

    /// Returns the known key that is most similar to an unknown one.
    fn nearest(&self, key: &str) -> Option<String> {
        let free = FREE.iter().flat_map(|table| table.keys_near(key));
        let known: Vec<String> = self.keys.iter().cloned().chain(free).collect();
        let known: Vec<&str> = known.iter().map(String::as_str).collect();
        nearest(key, &known).map(str::to_owned)
    }

    pub fn add_error(&mut self, key: &str, origin: SettingOrigin, mut problem: String) {
        let steps: Vec<&str> = key.split('.').collect();
        if let (SettingOrigin::File(_), Some(place)) = (&origin, locate(&self.file, &steps)) {
            problem = format!("{problem} ({place})");
        }
        self.errors.push(ConfigError { key: key.to_owned(), origin, problem });
    }

    pub fn entry(&self, key: &str) -> &LayerEntry {
        self.entries.get(key).expect("every key that is read has a default")
    }

    /// Sets the origin of a key whose value comes from another key, such as a file.
    pub fn set_origin(&mut self, key: &str, origin: SettingOrigin) {
        self.entries.get_mut(key).expect("every key that is read has a default").origin = origin;
    }

    /// Returns the names of a free table, and the entries of each.
    pub fn free_entries(&self, table: &FreeTable) -> BTreeMap<String, BTreeMap<&str, &LayerEntry>> {
        let mut named: BTreeMap<String, BTreeMap<&str, &LayerEntry>> = BTreeMap::new();
        for (key, entry) in self.entries.range(table.prefix.to_owned()..) {
            let Some((name, leaf)) = key.strip_prefix(table.prefix).and_then(|rest| rest.split_once('.')) else {
                break;
            };
            named.entry(name.to_owned()).or_default().insert(leaf, entry);
        }
        named
    }

    pub fn shown_keys(&self) -> Vec<ShownKey> {
        self.keys
            .iter()
            .map(|key| {
                let entry = &self.entries[key];
                let value = match &entry.value {
                    Value::String(text) => Value::String(mask_value(key, text)).to_string(),
                    other => other.to_string(),
                };
                ShownKey { key: key.clone(), value, origin: entry.origin.clone() }
            })
            .collect()
    }
}

/// Returns the leaves of a table with dotted keys, in order. Empty tables of the defaults have no leaves.
fn leaves(table: &Table) -> Vec<(String, Value)> {
    let mut out = Vec::new();
    for (key, value) in table {
        match value {
            Value::Table(inner) => {
                out.extend(leaves(inner).into_iter().map(|(rest, value)| (format!("{key}.{rest}"), value)));
            }
            other => out.push((key.clone(), other.clone())),
        }
    }
    out
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::String(_) => "text",
        Value::Integer(_) => "a whole number",
        Value::Boolean(_) => "`true` or `false`",
        Value::Float(_) => "a number",
        Value::Datetime(_) => "a time",
        Value::Array(_) => "a list",
        Value::Table(_) => "a section",
    }
}

/// Formats a value for an error message.
fn format_value(key: &str, value: &Value) -> String {
    match value {
        Value::String(text) => format!("`{}`", error_value(key, text)),
        Value::Integer(_) | Value::Float(_) | Value::Boolean(_) | Value::Datetime(_) => format!("`{value}`"),
        // It may contain a credential.
        Value::Array(_) | Value::Table(_) => kind(value).to_owned(),
    }
}

/// Most bytes of the reason why a file is no TOML.
const REASON_BYTES: usize = 400;

/// Returns place and reason, without the offending line, which may contain a credential.
fn one_line(error: &toml::de::Error) -> String {
    let text = error.to_string();
    let place = text.lines().next().unwrap_or_default().trim_start_matches("TOML parse error at ");
    format!("{place}: {}", beginning(error.message().replace('\n', "; "), REASON_BYTES))
}
