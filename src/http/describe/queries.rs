//! Schemas of queries.
#![expect(dead_code, reason = "they are described; handlers take what they need by its name")]

use super::portable::LARGEST_NUMBER;
use super::refine;
use crate::domain::event::NAME;
use crate::domain::job::JobStatus;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::Value;

/// Operations offered at `values/…`.
pub(in crate::http) const VALUES: [&str; 6] = ["read", "list", "slice", "inspect", "count", "aggregate"];

/// Schema of `wait` in a query: `true`, or milliseconds.
pub(in crate::http) fn wait(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"anyOf": [{"type": "boolean"}, {"type": "integer", "minimum": 0, "maximum": LARGEST_NUMBER}]})
}

/// Schema of `wait` in a body, where clients may write it as a text; see [`wait()`].
pub(in crate::http) fn wait_body_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"anyOf": [
        {"type": "boolean"}, {"type": "integer", "minimum": 0, "maximum": LARGEST_NUMBER},
        {"type": "string", "pattern": "^(true|false|[0-9]{1,15})$"}
    ]})
}

fn time(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"anyOf": [
        {"type": "integer", "minimum": 0, "maximum": LARGEST_NUMBER}, {"type": "string", "format": "date-time"}
    ]})
}

/// Schema of a list of these names, separated by commas.
fn comma_list(names: &[&str]) -> Schema {
    let any = names.join("|");
    json_schema!({"type": "string", "pattern": format!("^({any})(,({any}))*$")})
}

fn statuses(_: &mut SchemaGenerator) -> Schema {
    comma_list(&JobStatus::ALL.map(JobStatus::as_str))
}

fn codes(generator: &mut SchemaGenerator) -> Schema {
    let codes = refine::error_codes(generator);
    comma_list(&codes.iter().map(String::as_str).collect::<Vec<_>>())
}

fn path(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "pattern": refine::lattice_path("/?")})
}

fn name(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "pattern": NAME})
}

#[derive(JsonSchema)]
pub(in crate::http) struct WaitQuery {
    /// Wait for the end of the job: `true` (120 s) or milliseconds, at most 120000.
    #[serde(default)]
    #[schemars(schema_with = "wait")]
    wait: Option<Value>,
}

#[derive(JsonSchema)]
pub(in crate::http) struct StrictQuery {
    /// Refuse a configuration that names a provider, operation or ability that the venue doesn't know; without it
    /// these are `warnings` of the answer. It counts here and in the body: `false` in one undoes no `true` in the other.
    strict: Option<bool>,
}

#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::http) struct ValuesQuery {
    /// Lattice path, e.g. `w/records/123`.
    path: Option<String>,
    /// `read`: bytes above which only the size is returned.
    max_size: Option<u64>,
    /// `list`, `slice`: first entry.
    offset: Option<u64>,
    /// `list`, `slice`: most entries.
    limit: Option<u64>,
    /// `inspect`: bytes of the text.
    budget: Option<u64>,
    /// `inspect`: without line breaks.
    compact: Option<bool>,
    /// `count`, `aggregate`: steps below the path at which entries are counted; 1 when absent.
    #[schemars(range(min = 1))]
    depth: Option<u64>,
    /// `aggregate`: field whose text makes the groups.
    group_by: Option<String>,
}

#[derive(JsonSchema)]
pub(in crate::http) struct JobsQuery {
    /// Jobs in one of these states, with commas.
    #[serde(default)]
    #[schemars(schema_with = "statuses")]
    status: Option<String>,
    /// Jobs that ended with one of these error codes, with commas.
    #[serde(default)]
    #[schemars(schema_with = "codes")]
    code: Option<String>,
    /// Accepted then or later: milliseconds since the epoch or RFC 3339.
    #[serde(default)]
    #[schemars(schema_with = "time")]
    since: Option<Value>,
    /// Accepted then or earlier.
    #[serde(default)]
    #[schemars(schema_with = "time")]
    until: Option<Value>,
    /// With this text; case does not matter.
    q: Option<String>,
    /// `next` of the page before. One request looks at no more than 1000 records, so that a page may be empty and
    /// have a `next`.
    #[schemars(regex(pattern = refine::CURSOR))]
    cursor: Option<String>,
    /// Served by this agent.
    #[serde(default)]
    #[schemars(schema_with = "name")]
    agent: Option<String>,
    /// In this session.
    #[serde(default)]
    #[schemars(schema_with = "name")]
    session: Option<String>,
    /// First job; only of a list without a filter, which goes on with `cursor`.
    offset: Option<u64>,
    /// Jobs of the page, 1 to 1000; 0 counts as 1.
    limit: Option<u64>,
    /// Records instead of ids.
    details: Option<bool>,
}

#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::http) struct AgentsQuery {
    /// Terminated ones, too.
    include_terminated: Option<bool>,
    /// `next` of the page before.
    #[serde(default)]
    #[schemars(schema_with = "name")]
    after: Option<String>,
    /// Agents of a page, at most 1000.
    limit: Option<u64>,
}

#[derive(JsonSchema)]
pub(in crate::http) struct SessionQuery {
    /// The turn before the page.
    after: Option<u64>,
    /// Of one page.
    #[schemars(range(min = 1))]
    limit: Option<u64>,
}

#[derive(JsonSchema)]
pub(in crate::http) struct TurnsQuery {
    /// Turns that ended a job in one of these states, with commas.
    #[serde(default)]
    #[schemars(schema_with = "statuses")]
    status: Option<String>,
    /// Begun then or later: milliseconds since the epoch or RFC 3339.
    #[serde(default)]
    #[schemars(schema_with = "time")]
    since: Option<Value>,
    /// Begun then or earlier.
    #[serde(default)]
    #[schemars(schema_with = "time")]
    until: Option<Value>,
    /// With this text; case does not matter.
    q: Option<String>,
    /// `next` of the page before. One request looks at no more than 1000 records, so that a page may be empty and
    /// have a `next`.
    cursor: Option<String>,
    /// Of this session only.
    #[serde(default)]
    #[schemars(schema_with = "name")]
    session: Option<String>,
    /// Turns to show, at most 1000.
    #[schemars(extend("default" = 50))]
    limit: Option<u64>,
}

#[derive(JsonSchema)]
pub(in crate::http) struct TurnQuery {
    /// Also the exact model request, built again from the record.
    prompt: Option<bool>,
}

#[derive(JsonSchema)]
pub(in crate::http) struct WhyQuery {
    /// The path; what lies above and below it counts too.
    #[schemars(schema_with = "path")]
    path: String,
    /// Of this agent only.
    #[serde(default)]
    #[schemars(schema_with = "name")]
    agent: Option<String>,
}

#[derive(JsonSchema)]
pub(in crate::http) struct AssetContentQuery {
    /// A name for people, of a content that is new.
    name: Option<String>,
}

#[derive(JsonSchema)]
pub(in crate::http) struct AssetsQuery {
    /// Assets to skip.
    offset: Option<u64>,
    /// Assets of the page.
    limit: Option<u64>,
    /// `operation`, those whose metadata define one, or `data`.
    #[schemars(extend("enum" = ["operation", "data"]))]
    kind: Option<String>,
    /// Those whose metadata have this type.
    r#type: Option<String>,
    /// Metadata instead of hashes.
    details: Option<bool>,
}
