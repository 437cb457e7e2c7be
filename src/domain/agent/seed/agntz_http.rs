//! Tools of `kind: http` in manifests of agntz: one endpoint each, which becomes a declared tool. Placeholders of the URL
//! are its arguments.

use super::agntz_mcp::{McpParts, header_texts, refuse_other_keys};
use super::config_map::{ConfigMap, invalid};
use crate::decode::DataError;
use crate::visible::quote_foreign;
use serde_json::{Map, Value, json};

/// Keys of an entry.
const ENTRY_KEYS: [&str; 7] = ["kind", "name", "url", "method", "description", "params", "headers"];

/// Keys of an entry that are read otherwise here, with what takes their place.
const ELSEWHERE: [(&str, &str); 3] = [
    ("body", "declare the tool with `input` and `http`, whose `body` has the arguments in it"),
    ("body_type", "declare the tool with `input` and `http`, whose `contentType` says it"),
    ("auth", "logins are not made here; put the token into a secret that `headers` name"),
];

/// Beginning of the name that agntz shows models.
const NAME_PREFIX: &str = "http__";

/// A URL with the places of its arguments.
#[derive(Default)]
struct EndpointUrl {
    /// URL without the parameters that are arguments.
    fixed: String,
    /// Parameters that are arguments, by name.
    query: Map<String, Value>,
    /// Names of the arguments, each with whether a call must have it.
    arguments: Vec<(String, bool)>,
}

/// Returns the declared tool for which an entry stands; `parts` get its bound arguments.
pub(super) fn read_entry(at: usize, entry: &ConfigMap, parts: &mut McpParts) -> Result<Value, DataError> {
    let place = format!("tools[{at}]");
    if let Some((key, instead)) = ELSEWHERE.iter().find(|(key, _)| entry.contains_key(*key)) {
        return invalid(format!("`{place}.{key}`: {instead}"));
    }
    refuse_other_keys(&place, entry, &ENTRY_KEYS)?;
    let text = |key: &str| entry.get(key).and_then(Value::as_str);
    let (Some(own_name), Some(url)) = (text("name"), text("url")) else {
        return invalid(format!("`{place}`: an `http` tool needs a `name` and a `url`"));
    };
    let EndpointUrl { fixed, query, arguments } = read_url(&place, url)?;
    let mut http = json!({"url": fixed});
    if !query.is_empty() {
        http["query"] = Value::Object(query);
    }
    if let Some(method) = entry.get("method") {
        http["method"] = method.clone();
    }
    if let Some(headers) = entry.get("headers").filter(|headers| !headers.is_null()) {
        http["headers"] = escape_braces(header_texts(&place, headers)?);
    }
    let (mut properties, mut required) = (Map::new(), Vec::new());
    for (argument, is_required) in arguments {
        if is_required {
            required.push(Value::from(argument.as_str()));
        }
        properties.insert(argument, json!({"type": "string"}));
    }
    let input =
        json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false});
    let name = format!("{NAME_PREFIX}{own_name}");
    parts.bind(&place, &name, entry.get("params"))?;
    let description = text("description").map_or_else(|| format!("Calls `{own_name}`."), str::to_owned);
    Ok(json!({"name": name, "description": description, "input": input, "http": http}))
}

/// Reads a URL with `{argument}` and `{argument?}` in it.
fn read_url(place: &str, url: &str) -> Result<EndpointUrl, DataError> {
    let place = format!("{place}.url");
    let (path, query) = split_query(url);
    let mut read = EndpointUrl::default();
    for name in path.split('{').skip(1).filter_map(|rest| rest.split_once('}')).map(|(name, _)| name) {
        if name.ends_with('?') {
            return invalid(format!(
                "`{place}`: `{{{}}}`: an argument of the path is always there",
                quote_foreign(name)
            ));
        }
        read.arguments.push((name.to_owned(), true));
    }
    let mut fixed = Vec::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        if !pair.contains('{') {
            fixed.push(pair);
            continue;
        }
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let name = value.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
        let Some(name) = name.filter(|name| !key.contains('{') && !name.contains(['{', '}'])) else {
            return invalid(format!("`{place}`: `{}`: expected one placeholder as the value", quote_foreign(pair)));
        };
        let argument = name.trim_end_matches('?');
        read.query.insert(key.to_owned(), format!("{{{argument}}}").into());
        read.arguments.push((argument.to_owned(), argument == name));
    }
    read.fixed = if fixed.is_empty() { path.to_owned() } else { format!("{path}?{}", fixed.join("&")) };
    Ok(read)
}

/// Returns the URL up to its query, and the query. The `?` of an optional argument is no beginning of one.
fn split_query(url: &str) -> (&str, &str) {
    let mut is_inside = false;
    for (at, character) in url.char_indices() {
        match character {
            '{' => is_inside = true,
            '}' => is_inside = false,
            '?' if !is_inside => return (&url[..at], &url[at + 1..]),
            _ => {}
        }
    }
    (url, "")
}

/// Returns headers whose texts have no arguments: a declared tool would read a brace as the beginning of one.
fn escape_braces(headers: Value) -> Value {
    let Value::Object(headers) = headers else { return headers };
    let escaped = headers.into_iter().map(|(name, text)| match text {
        Value::String(text) => (name, text.replace('{', "{{").replace('}', "}}").into()),
        other => (name, other),
    });
    Value::Object(escaped.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::AgentConfig;

    fn read(tool: Value) -> Result<AgentConfig, String> {
        let model = json!({"provider": "openai", "name": "gpt"});
        let mut manifest = json!({"kind": "llm", "instruction": "Help.", "model": model});
        manifest["tools"] = Value::Array(vec![tool]);
        AgentConfig::parse(&manifest).map_err(|error| error.to_string())
    }

    #[test]
    fn an_endpoint_becomes_a_declared_tool() {
        let config = read(json!({
            "kind": "http", "name": "get_order", "description": "Gets an order.",
            "url": "https://a.example/o/{id}?v=2&expand={expand?}&team={team}",
            "headers": {"Authorization": "Bearer {{secrets.SHOP}}", "X-Form": "a{b}"}, "params": {"team": "{{teamId}}"}
        }))
        .unwrap();
        let headers = json!({"Authorization": {"$secret": "s/SHOP", "prefix": "Bearer "}, "X-Form": "a{{b}}"});
        let (text, name) = (json!({"type": "string"}), "http__get_order");
        assert_eq!(
            json!(config.tools),
            json!([{
                "name": name, "description": "Gets an order.", "operation": "v/ops/own/http__get_order",
                "input": {
                    "type": "object", "properties": {"id": text, "expand": text, "team": text}, "required": ["id", "team"],
                    "additionalProperties": false
                },
                "http": {
                    "url": "https://a.example/o/{id}?v=2", "query": {"expand": "{expand}", "team": "{team}"},
                    "headers": headers
                }
            }])
        );
        assert_eq!(json!(config.tool_arg_injection), json!({name: {"team": "teamId"}}));
        assert!(read(json!({"kind": "http", "name": "ping", "url": "https://a.example", "method": "POST"})).is_ok());
    }

    #[test]
    fn what_a_declared_tool_can_not_say_is_refused() {
        let with = |key: &str, value: Value| {
            let mut tool = json!({"kind": "http", "name": "t", "url": "https://a.example"});
            tool[key] = value;
            tool
        };
        for (tool, part) in [
            (json!({"kind": "http", "url": "https://a.example"}), "`tools[0]`: an `http` tool needs a `name`"),
            (with("url", json!("https://a.example/{id?}")), "`tools[0].url`: `{id?}`: an argument of the path"),
            (with("url", json!("https://a.example?q=a{b}")), "`tools[0].url`: `q=a{b}`: expected one placeholder"),
            (with("url", json!("https://{host}/x")), "`http.url`: the host is fixed"),
            (with("body", json!({})), "`tools[0].body`: declare the tool"),
            (with("auth", json!({})), "`tools[0].auth`: logins are not made here"),
            (with("timeout", json!(1)), "`tools[0].timeout`: unknown key"),
            (with("headers", json!({"A": "{{token}}"})), "`tools[0].headers.A`: expected"),
            (with("params", json!({"a": "{{secrets.K}}"})), "a secret is no argument"),
        ] {
            let error = read(tool.clone()).unwrap_err();
            assert!(error.contains(part), "{tool}: {error}");
        }
    }
}
