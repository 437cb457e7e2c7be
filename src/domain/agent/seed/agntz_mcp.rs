//! Tools of `kind: mcp` in manifests of agntz: the server, its tools plain and wrapped, and their bound parameters.

use super::config_map::{ConfigMap, invalid};
use crate::decode::DataError;
use crate::ids::secret::SecretName;
use crate::lattice::value::type_name;
use crate::mcp::name::{ServerName, is_tool_name};
use crate::visible::quote_foreign;
use serde_json::{Map, Value, json};

/// Keys of an entry.
const ENTRY_KEYS: [&str; 4] = ["kind", "server", "tools", "headers"];

/// Keys of a wrapped tool.
const WRAPPED_KEYS: [&str; 4] = ["tool", "name", "description", "params"];

/// Beginning of a placeholder that stands for a secret.
const SECRETS: &str = "secrets.";

/// What entries of this kind, and of `kind: http`, add to a configuration beside its tools.
#[derive(Default)]
pub(super) struct McpParts {
    /// Declarations of servers that are named by their URL.
    servers: Vec<Value>,
    /// Bindings by tool.
    bindings: Map<String, Value>,
}

impl McpParts {
    /// Returns the entries of `tools` for which an entry stands, and keeps the rest of it.
    pub(super) fn read_entry(&mut self, at: usize, entry: &ConfigMap) -> Result<Vec<Value>, DataError> {
        let place = format!("tools[{at}]");
        refuse_other_keys(&place, entry, &ENTRY_KEYS)?;
        let Some(server) = entry.get("server").and_then(Value::as_str) else {
            return invalid(format!("`{place}.server`: expected the name or the URL of a server"));
        };
        let name = self.declare(&place, server, entry.get("headers"))?;
        let listed = match entry.get("tools") {
            None | Some(Value::Null) => return Ok(vec![format!("{}*", name.prefix()).into()]),
            Some(Value::Array(listed)) => listed,
            Some(other) => return invalid(format!("`{place}.tools`: expected a list, got {}", type_name(other))),
        };
        let tools = listed.iter().enumerate();
        tools.map(|(number, tool)| self.read_tool(&format!("{place}.tools[{number}]"), &name, tool)).collect()
    }

    /// Adds what the entries have beside their tools.
    pub(super) fn add_to(self, config: &mut ConfigMap) -> Result<(), DataError> {
        let Self { servers, bindings } = self;
        if !servers.is_empty() {
            match config.entry("mcp").or_insert_with(|| json!([])) {
                Value::Array(all) => all.extend(servers),
                other => return invalid(format!("`mcp`: expected a list, got {}", type_name(other))),
            }
        }
        if bindings.is_empty() {
            return Ok(());
        }
        let Value::Object(all) = config.entry("toolArgInjection").or_insert_with(|| json!({})) else {
            return invalid("`toolArgInjection`: expected a map");
        };
        for (tool, arguments) in bindings {
            if all.contains_key(&tool) {
                return invalid(format!(
                    "`toolArgInjection.{}`: `params` of the tool say it already",
                    quote_foreign(&tool)
                ));
            }
            all.insert(tool, arguments);
        }
        Ok(())
    }

    /// Returns the name of a server; one that is named by its URL is declared.
    fn declare(&mut self, place: &str, server: &str, headers: Option<&Value>) -> Result<ServerName, DataError> {
        let headers = headers.filter(|headers| !headers.is_null());
        if !server.contains("://") {
            if headers.is_some() {
                return invalid(format!("`{place}.headers`: they belong to the declaration of the server, in `mcp`"));
            }
            return match ServerName::new(server) {
                Ok(name) => Ok(name),
                Err(error) => invalid(format!("`{place}.server`: {error}")),
            };
        }
        let name = ServerName::from_url(server);
        let mut declared = json!({"name": name, "url": server});
        if let Some(headers) = headers {
            declared["headers"] = header_texts(place, headers)?;
        }
        if !self.servers.contains(&declared) {
            if self.servers.iter().any(|other| other["url"] == server) {
                return invalid(format!("`{place}.headers`: another entry has other ones for this server"));
            }
            self.servers.push(declared);
        }
        Ok(name)
    }

    /// Returns the entry of one tool.
    fn read_tool(&mut self, place: &str, server: &ServerName, tool: &Value) -> Result<Value, DataError> {
        let nothing = Map::new();
        let (tool, options) = match tool {
            Value::String(name) => (name.as_str(), &nothing),
            Value::Object(map) => match map.get("tool").and_then(Value::as_str) {
                Some(name) => (name, map),
                None => return invalid(format!("`{place}.tool`: expected the name of a tool")),
            },
            other => {
                return invalid(format!("`{place}`: expected the name of a tool or a map, got {}", type_name(other)));
            }
        };
        refuse_other_keys(place, options, &WRAPPED_KEYS)?;
        if !is_tool_name(tool) {
            return invalid(format!("`{place}`: `{}` is no name of a tool", quote_foreign(tool)));
        }
        let operation = server.operation_name(tool);
        // agntz shows models the tool's own name.
        let name = options.get("name").and_then(Value::as_str).unwrap_or(&operation).to_owned();
        let mut entry = json!({"operation": server.operation_path(tool), "name": name});
        if let Some(description) = options.get("description") {
            entry["description"] = description.clone();
        }
        self.bind(place, &name, options.get("params"))?;
        Ok(entry)
    }

    /// Binds the `params` of a tool.
    pub(super) fn bind(&mut self, place: &str, tool: &str, params: Option<&Value>) -> Result<(), DataError> {
        let params = match params {
            None | Some(Value::Null) => return Ok(()),
            Some(Value::Object(params)) => params,
            Some(other) => return invalid(format!("`{place}.params`: expected a map, got {}", type_name(other))),
        };
        let mut bound = Map::new();
        for (argument, template) in params {
            let place = format!("{place}.params.{}", quote_foreign(argument));
            bound.insert(argument.clone(), binding(&place, template)?.into());
        }
        if self.bindings.insert(tool.to_owned(), Value::Object(bound)).is_some() {
            return invalid(format!("`{place}.name`: `{}` is the name of another tool", quote_foreign(tool)));
        }
        Ok(())
    }
}

pub(super) fn refuse_other_keys(place: &str, map: &ConfigMap, known: &[&str]) -> Result<(), DataError> {
    match map.keys().find(|key| !known.contains(&key.as_str())) {
        None => Ok(()),
        Some(other) => {
            let known: Vec<String> = known.iter().map(|key| format!("`{key}`")).collect();
            invalid(format!("`{place}.{}`: unknown key, expected {}", quote_foreign(other), known.join(", ")))
        }
    }
}

/// Returns the key of the placeholder that is the whole text; `None` if the text has none.
fn whole_placeholder<'t>(place: &str, text: &'t str) -> Result<Option<&'t str>, DataError> {
    if !text.contains("{{") {
        return Ok(None);
    }
    let key = text.trim().strip_prefix("{{").and_then(|rest| rest.strip_suffix("}}")).map(str::trim);
    match key.filter(|key| !key.is_empty() && !key.contains(['{', '}', '#', '/', ' '])) {
        Some(key) => Ok(Some(key)),
        None => invalid(format!("`{place}`: expected one placeholder, `{{{{key}}}}`, or a text without any")),
    }
}

/// Returns the source of a bound parameter: the key of a value, or a constant.
fn binding(place: &str, template: &Value) -> Result<String, DataError> {
    let Value::String(text) = template else { return Ok(format!("CONSTANT:{template}")) };
    match whole_placeholder(place, text)? {
        None => Ok(format!("CONSTANT:{template}")),
        Some(key) if key.starts_with(SECRETS) => invalid(format!(
            "`{place}`: a secret is no argument, which is recorded; put it into `headers` of the server"
        )),
        Some(key) => Ok(key.to_owned()),
    }
}

/// Returns headers in the spelling of agent files.
pub(super) fn header_texts(place: &str, headers: &Value) -> Result<Value, DataError> {
    let Value::Object(headers) = headers else {
        return invalid(format!("`{place}.headers`: expected a map, got {}", type_name(headers)));
    };
    let mut found = Map::new();
    for (name, text) in headers {
        let place = format!("{place}.headers.{}", quote_foreign(name));
        let Some(text) = text.as_str() else { return invalid(format!("`{place}`: expected a text")) };
        let value = match text.split_once("{{") {
            None => Value::from(text),
            Some((prefix, rest)) => {
                let named = rest.trim_end().strip_suffix("}}").map(str::trim).and_then(|key| key.strip_prefix(SECRETS));
                let secret = named.and_then(|named| SecretName::new(named).ok());
                let Some(secret) = secret else {
                    return invalid(format!("`{place}`: expected `{{{{secrets.NAME}}}}` at its end, or a text"));
                };
                json!({"$secret": secret.path(), "prefix": prefix})
            }
        };
        found.insert(name.clone(), value);
    }
    Ok(Value::Object(found))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::AgentConfig;

    fn read(tools: &Value) -> Result<AgentConfig, String> {
        let model = json!({"provider": "openai", "name": "gpt"});
        let manifest = json!({"kind": "llm", "instruction": "Help.", "model": model, "tools": tools});
        AgentConfig::parse(&manifest).map_err(|error| error.to_string())
    }

    #[test]
    fn plain_and_wrapped_tools_of_a_server_are_read() {
        let url = "https://search-api.example.com/mcp";
        let config = read(&json!([{
            "kind": "mcp", "server": url, "headers": {"Authorization": "Bearer {{secrets.SEARCH}}", "X-Team": "a"},
            "tools": [
                "fetch_url",
                {
                    "tool": "search", "name": "search_for_user", "description": "Search the web.",
                    "params": {"api_key": "{{userId}}", "region": "eu", "limit": 5}
                }
            ]
        }]))
        .unwrap();
        let name = ServerName::from_url(url);
        let headers = json!({"Authorization": {"$secret": "s/SEARCH", "prefix": "Bearer "}, "X-Team": "a"});
        assert_eq!(json!(config.mcp), json!([{"name": name, "url": url, "headers": headers}]));
        assert_eq!(
            json!(config.tools),
            json!([
                {"operation": format!("v/ops/mcp/{name}/fetch_url"), "name": "fetch_url"},
                {
                    "operation": format!("v/ops/mcp/{name}/search"), "name": "search_for_user",
                    "description": "Search the web."
                }
            ])
        );
        let bound = json!({"api_key": "userId", "region": "CONSTANT:\"eu\"", "limit": "CONSTANT:5"});
        assert_eq!(json!(config.tool_arg_injection), json!({"search_for_user": bound}));
        let named = read(&json!([{"kind": "mcp", "server": "gymtext"}, "v/ops/lattice/read"])).unwrap();
        assert_eq!(json!(named.tools), json!(["v/ops/mcp/gymtext/*", "v/ops/lattice/read"]));
        assert_eq!(json!(named.mcp), json!([]));
    }

    #[test]
    fn what_can_not_be_kept_is_refused_with_its_place() {
        let url = "https://h/mcp";
        let wrapped = |tool: Value| json!([{"kind": "mcp", "server": url, "tools": [tool]}]);
        for (tools, part) in [
            (json!([{"kind": "mcp"}]), "`tools[0].server`: expected the name or the URL"),
            (json!([{"kind": "mcp", "server": "a b"}]), "`tools[0].server`: expected 1 to 32"),
            (json!([{"kind": "mcp", "server": "a", "headers": {"X": "y"}}]), "`tools[0].headers`: they belong"),
            (json!([{"kind": "mcp", "server": url, "tool": "x"}]), "`tools[0].tool`: unknown key"),
            (json!(["a/b", {"kind": "mcp", "server": url, "tools": {}}]), "`tools[1].tools`: expected a list"),
            (json!([{"kind": "mcp", "server": url, "headers": {"A": "{{token}}"}}]), "`tools[0].headers.A`: expected"),
            (wrapped(json!(1)), "`tools[0].tools[0]`: expected the name of a tool or a map"),
            (wrapped(json!({"name": "x"})), "`tools[0].tools[0].tool`: expected the name of a tool"),
            (wrapped(json!({"tool": "x", "args": {}})), "`tools[0].tools[0].args`: unknown key"),
            (wrapped(json!({"tool": "x", "params": {"a": "b {{c}}"}})), "`tools[0].tools[0].params.a`: expected one"),
            (wrapped(json!({"tool": "x", "params": {"a": "{{secrets.K}}"}})), "a secret is no argument"),
        ] {
            let error = read(&tools).unwrap_err();
            assert!(error.contains(part), "{tools}: {error}");
        }
    }
}
