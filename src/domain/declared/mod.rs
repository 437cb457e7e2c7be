//! Tools that their author writes down: a call of a service over HTTP, or a job for an external worker.
//!
//! ```text
//! declaration ─▶ checked plan ─▶ + arguments ─▶ request ─▶ answer ─▶ meaning of its status ─▶ result
//! ```
//!
//! Scheme, host and port of a call are fixed. Arguments are encoded for their place, and secrets are references until
//! the call leaves.

mod answer;
mod error;
pub mod openapi;
mod plan;
mod status;
mod template;
mod url;

pub use answer::{AnswerFault, pick_result, refusal_text};
pub use error::{DeclarationError, DeclaredHeaderRule};
pub use plan::{HttpPlan, PlannedRequest, RequestFault};
pub use status::{AnswerVerdict, StatusMeaning, StatusRule, judge_status};
pub use template::{TemplateRule, TextTemplate, ValueTemplate};
pub use url::{UrlFault, UrlTemplate, UrlTemplateRule};

use crate::canonical::canonical;
use crate::decode::{self, DataError};
use crate::ids::{QueueName, sha256_hex};
use crate::lattice::catalog::{DECLARED, DECLARED_JOBS};
use crate::limits::{
    DECLARED_BYTES, OUTBOUND_DEADLINE_MAX, PUBLISHED_NAME_BYTES, PUBLISHED_SCHEMA_BYTES, PUBLISHED_SCHEMA_DEPTH,
    QUEUE_NAME_BYTES,
};
use crate::schema;
use crate::wire::dialect::SchemaSubset;
use crate::wire::schema::project;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// A tool as its author writes it down: in a file of the venue, or in a record below `o/`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolDeclaration {
    /// Name that the model sees.
    pub name: String,
    /// What the tool does, for the model.
    pub description: String,
    /// JSON Schema of the arguments; a map without keys when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Value>,
    /// Call of a service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<Box<HttpDeclaration>>,
    /// Job for an external worker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jobs: Option<Box<JobsDeclaration>>,
}

/// A call of a service over HTTP.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HttpDeclaration {
    /// Method of the request.
    #[serde(default, skip_serializing_if = "is_default")]
    pub method: DeclaredMethod,
    /// URL with `{argument}` in its path.
    pub url: String,
    /// Parameters of the query by name: texts with arguments, numbers, booleans or lists of them.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub query: Map<String, Value>,
    /// Headers by name: texts with arguments, or references to secrets.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub headers: Map<String, Value>,
    /// Body: a value with arguments in its texts, or a text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<Value>,
    /// Content type of the body; that of JSON when absent, or of plain text for a text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    /// What a call changes; by default what its method promises.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effect: Option<DeclaredEffect>,
    /// Milliseconds that a call may take, with all its attempts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<u64>,
    /// JSON pointer to the result within the answer; the whole answer when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<String>,
    /// JSON Schema of the result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
    /// Meanings of statuses (`404`) and of classes of them (`4xx`).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub status: BTreeMap<String, StatusMeaning>,
}

/// A job for an external worker: its input is the arguments, its output the result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct JobsDeclaration {
    /// Queue that the workers take jobs from.
    pub queue: QueueName,
    /// JSON Schema of the output; a worker's output that doesn't fit fails the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
    /// Milliseconds that a call waits for a fast result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait: Option<u64>,
    /// Seconds until a worker must have begun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_timeout: Option<u64>,
    /// Seconds that the worker may give no sign.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heartbeat_timeout: Option<u64>,
    /// Seconds until it must have ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<u64>,
}

/// HTTP method of a declared call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum DeclaredMethod {
    /// The method `GET`.
    #[default]
    Get,
    /// The method `POST`.
    Post,
    /// The method `PUT`.
    Put,
    /// The method `PATCH`.
    Patch,
    /// The method `DELETE`.
    Delete,
}

impl DeclaredMethod {
    /// Returns the name of the method.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Patch => "PATCH",
            Self::Delete => "DELETE",
        }
    }

    /// Returns the ability that a call needs on its URL.
    pub const fn ability(self) -> &'static str {
        match self {
            Self::Get => "http/get",
            Self::Post => "http/post",
            Self::Put => "http/put",
            Self::Patch => "http/patch",
            Self::Delete => "http/delete",
        }
    }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// What a declared call changes, which decides whether it may be repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DeclaredEffect {
    /// The call only reads, and may be repeated at any time.
    Read,
    /// Something, and the service recognises a repeated call by its `Idempotency-Key`, or does no more the second time.
    Repeatable,
    /// Something, and a second call would do it twice.
    Once,
}

impl HttpDeclaration {
    /// Returns what a call changes.
    pub fn effect(&self) -> DeclaredEffect {
        let reads = self.method == DeclaredMethod::Get;
        let by_method = if reads { DeclaredEffect::Read } else { DeclaredEffect::Once };
        self.effect.unwrap_or(by_method)
    }
}

impl ToolDeclaration {
    /// Returns the path of the tool's operation, where an agent's file or a record below `o/` declares it.
    pub fn own_path(&self) -> String {
        let group = if self.jobs.is_some() { DECLARED_JOBS } else { DECLARED };
        format!("{group}{}", self.name)
    }

    /// Returns the schema of the arguments.
    pub fn input(&self) -> Value {
        self.input.clone().unwrap_or_else(|| json!({"type": "object", "properties": {}, "additionalProperties": false}))
    }

    /// Returns how the tool's service is called; `None` if the tool calls none, or its rules are broken.
    pub fn http_plan(&self) -> Option<HttpPlan> {
        HttpPlan::new(self.http.as_ref()?, &self.input()).ok()
    }

    /// Returns the version of the declaration: another one wherever the declaration differs.
    pub fn version(&self) -> String {
        sha256_hex(&canonical(self))[..32].to_owned()
    }

    /// Checks every rule of the declaration.
    pub fn check(&self) -> Result<(), DeclarationError> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        if !(1..=PUBLISHED_NAME_BYTES).contains(&self.name.len()) || !self.name.bytes().all(is_plain) {
            return Err(DeclarationError::Name { name: self.name.clone() });
        }
        if self.description.trim().is_empty() {
            return Err(DeclarationError::Description);
        }
        let input = self.input();
        check_schema("input", &input)?;
        for subset in [SchemaSubset::OpenAi, SchemaSubset::Anthropic, SchemaSubset::Gemini] {
            project(&input, subset).map_err(|error| DeclarationError::Projection(Box::new(error)))?;
        }
        let checked = match (&self.http, &self.jobs) {
            (Some(http), None) => HttpPlan::new(http, &input).map(drop),
            (None, Some(jobs)) => jobs.check(),
            (Some(_), Some(_)) => Err(DeclarationError::Target { found: "both" }),
            (None, None) => Err(DeclarationError::Target { found: "none" }),
        };
        checked?;
        let bytes = canonical(self).len();
        if bytes > DECLARED_BYTES { Err(DeclarationError::Bytes { bytes }) } else { Ok(()) }
    }
}

impl JobsDeclaration {
    fn check(&self) -> Result<(), DeclarationError> {
        let most = OUTBOUND_DEADLINE_MAX.as_secs();
        let seconds = [
            ("startTimeout", self.start_timeout),
            ("heartbeatTimeout", self.heartbeat_timeout),
            ("deadline", self.deadline),
        ];
        for (key, given) in seconds {
            if let Some(found) = given.filter(|found| !(1..=most).contains(found)) {
                return Err(DeclarationError::JobNumber { key, most, found });
            }
        }
        let bytes = self.queue.as_str().len();
        if bytes > QUEUE_NAME_BYTES {
            return Err(DeclarationError::QueueName { bytes });
        }
        self.output.as_ref().map_or(Ok(()), |output| check_schema("jobs.output", output))
    }
}

impl ToolDeclaration {
    /// Reads the declaration in the record `o/<record>`, whose operation has the name of the record; its rules are not
    /// checked. `None` if the record is no declaration.
    pub fn of_record(record: &str, value: &Value) -> Option<Result<Self, DataError>> {
        let map = value.as_object().filter(|map| map.contains_key("http") || map.contains_key("jobs"))?;
        let mut map = map.clone();
        map.insert("name".to_owned(), record.into());
        Some(decode::into_type(Value::Object(map)))
    }
}

/// Checks that a value is a schema within the limits of published ones.
fn check_schema(key: &'static str, schema: &Value) -> Result<(), DeclarationError> {
    decode::check_to(schema, PUBLISHED_SCHEMA_DEPTH).map_err(|error| DeclarationError::SchemaDepth { key, error })?;
    let bytes = schema.to_string().len();
    if bytes > PUBLISHED_SCHEMA_BYTES {
        return Err(DeclarationError::SchemaBytes { key, bytes });
    }
    schema::compile(schema).map(drop).map_err(|error| DeclarationError::Schema { key, error })
}

#[cfg(test)]
mod tests;
