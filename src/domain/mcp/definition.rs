//! Definitions of tools as servers list them: read leniently, kept as they are.

use crate::foreign::visible_line;
use crate::limits::{MCP_CURSOR_BYTES, MCP_ERROR_BYTES, MCP_FRESH_RANGE, MCP_LISTED_TOOLS};
use crate::mcp::header::{ParamHeaderError, param_headers};
use crate::mcp::name::is_tool_name;
use crate::mcp::server::McpServer;
use crate::visible::quote_foreign;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::time::Duration;

/// A tool as its server defines it: what its approval is about.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolDefinition {
    /// Name of the tool at its server.
    pub name: String,
    /// Name for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// What the tool does, for models.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// JSON Schema of the arguments.
    pub input_schema: Value,
    /// JSON Schema of the structured result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Value>,
    /// What the server says of its behaviour; nobody checks it.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub annotations: Value,
}

/// What a call of a tool may do to the world, which decides whether it may be repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolEffect {
    /// The tool changes nothing.
    Read,
    /// The tool may be called again.
    Repeatable,
    /// The tool must not be called again.
    Once,
}

/// Why a tool of a list isn't used; the other tools are.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ToolDefinitionError {
    /// The entry is no map.
    #[error("expected a map")]
    NoMap,
    /// The name is missing or illegal.
    #[error("`name`: expected 1 to 128 bytes on one line")]
    Name,
    /// The schema of the arguments is missing or no map.
    #[error("`inputSchema`: expected a JSON Schema as a map")]
    InputSchema,
    /// A field has another type.
    #[error("`{key}`: expected {expected}")]
    Field {
        /// Key of the field.
        key: &'static str,
        /// Type that it has, in words.
        expected: &'static str,
    },
    /// The headers that the schema asks for break a rule.
    #[error(transparent)]
    Header(#[from] ParamHeaderError),
}

/// A tool that isn't used, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SkippedTool {
    /// Name of the tool as the server gives it, cut to a readable length.
    pub name: String,
    /// Reason in one line.
    pub reason: String,
}

/// A page of a list of tools.
#[derive(Debug, Clone, PartialEq)]
pub struct DefinitionPage {
    /// Tools that can be used.
    pub tools: Vec<ToolDefinition>,
    /// Tools that can't.
    pub skipped: Vec<SkippedTool>,
    /// Names of tools whose calls the server works on as tasks (`execution.taskSupport`).
    pub with_tasks: Vec<String>,
    /// Cursor of the next page.
    pub next: Option<String>,
    /// Age at which the server says that its list is old; `None` if it says none.
    pub fresh: Option<Duration>,
}

/// Why a page of a list can't be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DefinitionPageError {
    /// The result has no list.
    #[error("expected a list `tools`")]
    NoList,
    /// The list is too long.
    #[error("expected at most {MCP_LISTED_TOOLS} tools, got more")]
    TooMany,
    /// The cursor is too long or no text.
    #[error("`nextCursor`: expected a text of at most {MCP_CURSOR_BYTES} bytes")]
    Cursor,
}

impl ToolDefinition {
    /// Reads an entry of a list.
    pub fn read(entry: &Value) -> Result<Self, ToolDefinitionError> {
        let map = entry.as_object().ok_or(ToolDefinitionError::NoMap)?;
        let name = map.get("name").and_then(Value::as_str).filter(|name| is_tool_name(name));
        let name = name.ok_or(ToolDefinitionError::Name)?.to_owned();
        let text = |key: &'static str| match map.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(_) => Err(ToolDefinitionError::Field { key, expected: "a text" }),
        };
        let part = |key: &'static str| match map.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(value @ Value::Object(_)) => Ok(Some(value.clone())),
            Some(_) => Err(ToolDefinitionError::Field { key, expected: "a map" }),
        };
        let input_schema = part("inputSchema").ok().flatten().ok_or(ToolDefinitionError::InputSchema)?;
        param_headers(&input_schema)?;
        Ok(Self {
            name,
            title: text("title")?,
            description: text("description")?,
            input_schema,
            output_schema: part("outputSchema")?,
            annotations: part("annotations")?.unwrap_or_default(),
        })
    }

    /// Returns what a call may do: the configuration says it, else the server.
    pub fn effect(&self, server: &McpServer) -> ToolEffect {
        let says = |hint: &str| self.annotations[hint] == true;
        match server.may_repeat(&self.name) {
            Some(false) => ToolEffect::Once,
            _ if says("readOnlyHint") => ToolEffect::Read,
            Some(true) => ToolEffect::Repeatable,
            None if says("idempotentHint") => ToolEffect::Repeatable,
            None => ToolEffect::Once,
        }
    }
}

impl DefinitionPage {
    /// Reads the result of a request for a page.
    pub fn read(result: &Value) -> Result<Self, DefinitionPageError> {
        let entries = result["tools"].as_array().ok_or(DefinitionPageError::NoList)?;
        if entries.len() > MCP_LISTED_TOOLS {
            return Err(DefinitionPageError::TooMany);
        }
        let (mut tools, mut skipped, mut with_tasks) = (Vec::new(), Vec::new(), Vec::new());
        for entry in entries {
            match ToolDefinition::read(entry) {
                Ok(tool) => {
                    if matches!(entry["execution"]["taskSupport"].as_str(), Some("optional" | "required")) {
                        with_tasks.push(tool.name.clone());
                    }
                    tools.push(tool);
                }
                Err(error) => skipped.push(SkippedTool::new(entry["name"].as_str().unwrap_or_default(), &error)),
            }
        }
        let next = match &result["nextCursor"] {
            Value::Null => None,
            Value::String(cursor) if cursor.len() <= MCP_CURSOR_BYTES => Some(cursor.clone()),
            _ => return Err(DefinitionPageError::Cursor),
        };
        Ok(Self { tools, skipped, with_tasks, next, fresh: fresh_time(&result["ttlMs"]) })
    }
}

/// Returns the time that a server gives its list, within the bounds; `None` if it gives none.
fn fresh_time(given: &Value) -> Option<Duration> {
    let millis = given.as_f64().filter(|millis| *millis >= 0.0)?;
    // A float of any size becomes the nearest number of milliseconds that a duration has.
    let given = Duration::try_from_secs_f64(millis / 1000.0).unwrap_or(Duration::MAX);
    Some(given.clamp(*MCP_FRESH_RANGE.start(), *MCP_FRESH_RANGE.end()))
}

impl SkippedTool {
    /// Makes the record of a tool that isn't used.
    pub fn new(name: &str, reason: &impl std::fmt::Display) -> Self {
        Self { name: quote_foreign(name), reason: visible_line(&reason.to_string(), MCP_ERROR_BYTES) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::name::ServerName;
    use serde_json::json;

    #[test]
    fn one_bad_tool_leaves_the_others() {
        let page = DefinitionPage::read(&json!({
            "tools": [
                {"name": "good", "inputSchema": {"type": "object"}, "execution": {"taskSupport": "required"}, "_meta": {}},
                {"name": "good too", "description": "d", "inputSchema": {}, "annotations": {"readOnlyHint": true}},
                {"name": "", "inputSchema": {}},
                {"name": "no schema"},
                {"name": "null schema", "inputSchema": null},
                {"name": "text", "inputSchema": {}, "description": 1},
                {"name": "header", "inputSchema": {"properties": {"a": {"type": "number", "x-mcp-header": "A"}}}},
                "tool"
            ],
            "nextCursor": "c", "ttlMs": 300_000, "resultType": "complete"
        }))
        .unwrap();
        let names: Vec<_> = page.tools.iter().map(|tool| tool.name.as_str()).collect();
        assert_eq!((names, page.skipped.len()), (vec!["good", "good too"], 6));
        assert_eq!(page.with_tasks, ["good"]);
        assert_eq!((page.next.as_deref(), page.fresh), (Some("c"), Some(Duration::from_mins(5))));
        let kept = json!(page.tools[1]);
        assert_eq!(serde_json::from_value::<ToolDefinition>(kept).unwrap(), page.tools[1]);
    }

    #[test]
    fn a_list_counts_as_new_for_a_bounded_time() {
        for (given, expected) in [
            (json!(null), None),
            (json!("x"), None),
            (json!(-1), None),
            (json!(0), Some(Duration::from_mins(1))),
            (json!(600_000), Some(Duration::from_mins(10))),
            (json!(1_000_000_000_000_000_000_u64), Some(Duration::from_hours(1))),
            (json!(1e300), Some(Duration::from_hours(1))),
        ] {
            assert_eq!(fresh_time(&given), expected, "{given}");
        }
        for result in [json!({}), json!({"tools": {}}), json!({"tools": [], "nextCursor": 1})] {
            assert!(DefinitionPage::read(&result).is_err(), "{result}");
        }
        let many = json!({"tools": vec![json!({}); MCP_LISTED_TOOLS + 1]});
        assert_eq!(DefinitionPage::read(&many), Err(DefinitionPageError::TooMany));
    }

    #[test]
    fn hints_and_configuration_give_a_tool_its_effect() {
        let server = |repeatable: &[&str], once: &[&str]| McpServer {
            repeatable: repeatable.iter().map(|name| (*name).to_owned()).collect(),
            once: once.iter().map(|name| (*name).to_owned()).collect(),
            ..McpServer::at_url(ServerName::new("a").unwrap(), "https://h/")
        };
        let tool = |annotations: Value| {
            ToolDefinition::read(&json!({"name": "t", "inputSchema": {}, "annotations": annotations})).unwrap()
        };
        for (annotations, repeatable, once, expected) in [
            (json!({}), &[][..], &[][..], ToolEffect::Once),
            (json!({"readOnlyHint": true}), &[], &[], ToolEffect::Read),
            (json!({"idempotentHint": true}), &[], &[], ToolEffect::Repeatable),
            (json!({"readOnlyHint": "true"}), &[], &[], ToolEffect::Once),
            (json!({}), &["t"], &[], ToolEffect::Repeatable),
            (json!({"readOnlyHint": true}), &[], &["*"], ToolEffect::Once),
            (json!({"destructiveHint": true}), &[], &[], ToolEffect::Once),
        ] {
            assert_eq!(tool(annotations.clone()).effect(&server(repeatable, once)), expected, "{annotations}");
        }
    }
}
