//! Jobs as results of tools: text for models, and a structure for programs.

use crate::domain::ids::{AgentId, JobId};
use crate::domain::job::JobStatus;
use crate::view::approval::ApprovalView;
use crate::view::job::JobView;
use crate::view::to_json;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

/// Result of a tool.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct McpToolResult {
    /// Result for models.
    pub content: Vec<McpTextContent>,
    /// Result for programs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub structured_content: Option<Value>,
    /// Whether the tool failed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_error: bool,
}

/// Text in a result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct McpTextContent {
    #[serde(rename = "type")]
    kind: &'static str,
    /// Text for models.
    pub text: String,
}

impl McpToolResult {
    /// Makes the result of a tool that failed.
    pub fn error(text: impl Into<String>) -> Self {
        Self { content: vec![McpTextContent::new(text.into())], structured_content: None, is_error: true }
    }

    /// Makes the result with a value and its text.
    pub fn value(text: impl Into<String>, value: Value) -> Self {
        Self { content: vec![McpTextContent::new(text.into())], structured_content: Some(value), is_error: false }
    }

    /// Makes the result with the record of a job.
    pub fn of_job(record: &JobView) -> Self {
        let shown = McpJobView::from(record);
        Self::value(shown.text(), to_json(&shown))
    }

    /// Makes the result of a call that a job serves: it failed if the job ended without an output.
    pub fn of_call(record: &JobView) -> Self {
        let is_error = record.status.is_terminal() && record.status != JobStatus::Complete;
        Self { is_error, ..Self::of_job(record) }
    }
}

impl McpTextContent {
    const fn new(text: String) -> Self {
        Self { kind: "text", text }
    }
}

/// A job as the structured result of a tool.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct McpJobView {
    /// Id of the job.
    pub job: JobId,
    /// Status of the job.
    pub status: JobStatus,
    /// Agent that serves it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentId>,
    /// Session that serves it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// Output of a complete job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
    /// The output is a text that the model's limit of tokens cut off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub truncated: Option<bool>,
    /// Why it ended without an output.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Code of the error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_code: Option<String>,
    /// Why it does not run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting: Option<String>,
    /// Approvals that it waits for.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<serde_json::Map<String, Value>>>")]
    pub approvals: Option<Vec<ApprovalView>>,
    /// Why input, output and error are left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hidden: Option<String>,
}

impl From<&JobView> for McpJobView {
    fn from(record: &JobView) -> Self {
        Self {
            job: record.id.clone(),
            status: record.status,
            agent: record.agent.clone(),
            session: record.session.as_ref().map(ToString::to_string),
            output: record.output.clone(),
            truncated: record.truncated,
            error: record.error.clone(),
            error_code: record.error_code.clone(),
            waiting: record.waiting.as_ref().map(|waiting| waiting.reason.clone()),
            approvals: record.approvals.clone().filter(|approvals| !approvals.is_empty()),
            hidden: record.hidden.clone(),
        }
    }
}

impl McpJobView {
    /// Returns the job in words: the output of a complete one, and what to do about an open one.
    pub fn text(&self) -> String {
        let Self { job, status, .. } = self;
        if let Some(hidden) = &self.hidden {
            return format!("job {job} is {}; its content is hidden: {hidden}", status.as_str());
        }
        match (&self.output, &self.error) {
            (Some(Value::String(text)), _) => text.clone(),
            (Some(output), _) => output.to_string(),
            (None, Some(error)) => format!("job {job} is {}: {error}", status.as_str()),
            (None, None) => self.open_text(),
        }
    }

    fn open_text(&self) -> String {
        let Self { job, status, .. } = self;
        let status_text = status.as_str();
        if status.is_terminal() {
            return format!("job {job} is {status_text}");
        }
        let why = self.waiting.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
        let next = match self.approvals.as_deref() {
            Some([first, ..]) => format!("a person answers approval {} by `answer_approval`", first.id),
            Some([]) | None => format!("call `wait_for_job` with job {job} for its end"),
        };
        format!("job {job} is {status_text}{why}; {next}")
    }
}

/// Place of an agent's output in the schema of the structured result of its tool.
const OUTPUT_PLACE: &str = "/properties/output";

/// Returns the schema of the structured result of an agent's tool; `output` is the schema of the agent's output, if it
/// has one. Shared definitions and the dialect move to the top; other references into the schema lead to its new place.
pub fn ask_output_schema(output: Option<&Value>) -> Value {
    let mut schema = json!({
        "type": "object",
        "properties": {
            "job": {"type": "string", "description": "Id of the job."},
            "status": {"type": "string", "description": "Status of the job; `COMPLETE` with an output."},
            "error": {"type": "string", "description": "Why it ended without an output."},
            "errorCode": {"type": "string"}
        },
        "required": ["job", "status"]
    });
    let Some(output) = output else { return schema };
    let mut inner = output.clone();
    move_references(&mut inner);
    if let Some(map) = inner.as_object_mut() {
        // Below an address of its own, references would look in the output alone.
        for key in ["$id", "id"] {
            if map.get(key).is_some_and(Value::is_string) {
                map.shift_remove(key);
            }
        }
        for key in ["$schema", "$defs", "definitions"] {
            if let Some(shared) = map.shift_remove(key) {
                schema[key] = shared;
            }
        }
    }
    schema["properties"]["output"] = inner;
    schema
}

/// Changes references to places of a schema that do not move to the top: `#`, and `#/…` outside of its definitions.
fn move_references(schema: &mut Value) {
    match schema {
        Value::Object(map) => {
            for (key, inner) in map.iter_mut() {
                match (key.as_str(), inner) {
                    ("$ref" | "$dynamicRef" | "$recursiveRef", Value::String(reference)) => {
                        if let Some(moved) = moved_reference(reference) {
                            *reference = moved;
                        }
                    }
                    (
                        "properties" | "patternProperties" | "dependentSchemas" | "$defs" | "definitions",
                        Value::Object(named),
                    ) => {
                        named.values_mut().for_each(move_references);
                    }
                    // Values, no schemas.
                    ("const" | "enum" | "default" | "examples", _) => {}
                    (_, inner) => move_references(inner),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(move_references),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Returns where a reference leads from now on; `None` if that is where it led before.
fn moved_reference(reference: &str) -> Option<String> {
    let place = reference.strip_prefix('#')?;
    let is_shared = ["/$defs/", "/definitions/"].iter().any(|shared| place.starts_with(shared));
    let is_pointer = place.is_empty() || place.starts_with('/');
    (is_pointer && !is_shared).then(|| format!("#{OUTPUT_PLACE}{place}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::schema::find_misfits;

    fn record(more: &Value) -> JobView {
        let mut record = json!({
            "id": "0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f", "op": "v/ops/agent/request", "status": "STARTED", "created": 1,
            "updated": 1, "agent": "a", "session": "s"
        });
        record.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        serde_json::from_value(record).unwrap()
    }

    #[test]
    fn an_open_job_says_what_to_call_next() {
        for (more, part, is_error) in [
            (json!({}), "call `wait_for_job` with job 0f0f", false),
            (json!({"status": "COMPLETE", "output": "hello"}), "hello", false),
            (json!({"status": "COMPLETE", "output": {"n": 1}}), "{\"n\":1}", false),
            (json!({"status": "FAILED", "error": "no key"}), "is FAILED: no key", true),
            (json!({"status": "CANCELLED"}), "is CANCELLED", true),
            (json!({"status": "COMPLETE", "hidden": "not yours"}), "hidden: not yours", false),
        ] {
            let result = McpToolResult::of_call(&record(&more));
            assert!(result.content[0].text.contains(part), "{more}: {:?}", result.content);
            assert_eq!(result.is_error, is_error, "{more}");
            assert!(!McpToolResult::of_job(&record(&more)).is_error);
        }
    }

    #[test]
    fn definitions_of_an_output_stay_where_references_look() {
        let output =
            json!({"$defs": {"n": {"type": "number"}}, "type": "object", "properties": {"n": {"$ref": "#/$defs/n"}}});
        let schema = ask_output_schema(Some(&output));
        assert_eq!(schema["$defs"]["n"]["type"], "number");
        assert_eq!(schema["properties"]["output"]["properties"]["n"]["$ref"], "#/$defs/n");
        assert_eq!(ask_output_schema(None)["properties"].get("output"), None);
    }

    #[test]
    fn references_into_an_output_lead_to_its_new_place() {
        let output = json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "https://x.example/tree",
            "$defs": {"leaf": {"$ref": "#/properties/name"}},
            "type": "object",
            "properties": {
                "name": {"type": "string"},
                "children": {"type": "array", "items": {"$ref": "#"}},
                "leaf": {"$ref": "#/$defs/leaf"},
                "$ref": {"type": "string", "const": "#", "default": {"$ref": "#"}}
            }
        });
        let schema = ask_output_schema(Some(&output));
        let inner = &schema["properties"]["output"];
        assert_eq!((inner.get("$id"), inner.get("$schema")), (None, None));
        assert_eq!(schema["$schema"], output["$schema"]);
        assert_eq!(schema["$defs"]["leaf"]["$ref"], "#/properties/output/properties/name");
        assert_eq!(inner["properties"]["children"]["items"]["$ref"], "#/properties/output");
        assert_eq!(inner["properties"]["leaf"]["$ref"], "#/$defs/leaf");
        assert_eq!(inner["properties"]["$ref"], output["properties"]["$ref"]);
    }

    #[test]
    fn results_fit_the_schema_of_their_tool() {
        let tree = json!({
            "type": "object", "required": ["name"],
            "properties": {"name": {"type": "string"}, "children": {"type": "array", "items": {"$ref": "#"}}}
        });
        let schema = ask_output_schema(Some(&tree));
        for (more, fits) in [
            (json!({"status": "COMPLETE", "output": {"name": "a", "children": [{"name": "b"}]}}), true),
            (json!({"status": "COMPLETE", "output": {"name": "a", "children": [{}]}}), false),
            (json!({"status": "FAILED", "error": "no key"}), true),
        ] {
            let result = McpToolResult::of_job(&record(&more)).structured_content.unwrap();
            let (found, _) = find_misfits(&schema, &result, 5).unwrap();
            assert_eq!(found.is_empty(), fits, "{more}: {found:?}");
        }
    }
}
