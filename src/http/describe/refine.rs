//! Rules that operations check when called, as patterns of a schema. They are here and not in the operation's own
//! schema, which every prompt that offers it contains.

use crate::domain::authority::grant::MAX_GRANTS;
use crate::domain::event::NAME;
use crate::domain::job::{ErrorCode, JobStatus};
use crate::domain::lattice::Namespace;
use crate::domain::limits::{ASSET_DESCRIPTION_BYTES, CONTEXT_IDS, LOADS};
use crate::domain::patch::merge;
use crate::ops::job::BatchAction;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Value, json};

/// Pattern of the cursor behind a job in a list.
pub(super) const CURSOR: &str = "^[0-9]{16}-[0-9a-f]{32}$";

/// Pattern of a host that a secret may be bound to: not every host, and not every name of a top-level domain.
const HOST: &str = "^((?!\\*)[A-Za-z0-9.-]+|\\*\\.[A-Za-z0-9-]*\\.[A-Za-z0-9.-]*|\\[[0-9A-Fa-f:.]+\\])(:([1-9][0-9]{0,3}|[1-5][0-9]{4}))?$";

const BASE64: &str = "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/][AQgw]==|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=)?$";

const MEDIA_TYPE: &str = "^(?=.{3,200}$)[A-Za-z0-9!#$&^_.+-]+/[A-Za-z0-9!#$&^_.+-]+(;[ -~]*)?$";

/// Pattern of a namespace of resources, without `r/`.
const RESOURCES: &str = "^(?!\\.{1,2}(/|$))[^/\\s\\u0000-\\u001f\\u007f-\\u009f*>]+(/(?!\\.{1,2}(/|$))[^/\\s\\u0000-\\u001f\\u007f-\\u009f*>]+)*$";

/// Pattern of a capability's resource: a scheme and a host, or a path; not all rules for resources.
const CAPABILITY_RESOURCE: &str = "^(?![^/]*://$)(?!r/)([A-Za-z0-9]+://)?((?!(\\.{1,2}|\\*)(/|$))[^/\\u0000-\\u001f\\u007f-\\u009f]+(/(?!(\\.{1,2}|\\*)(/|$))[^/\\u0000-\\u001f\\u007f-\\u009f]+)*)?/?$";

const LABEL: &str = "^[^\\u0000-\\u001f\\u007f-\\u009f]{1,200}$";

const CAPABILITY_ABILITY: &str = "^(\\*|(?!\\.{1,2}(/|$))[A-Za-z0-9_.:-]+(/(?!\\.{1,2}(/|$))[A-Za-z0-9_.:-]+)*)$";

/// Returns the pattern of a lattice path, with `slash` at its beginning and its end, as far as a pattern can express
/// it.
pub(super) fn path(slash: &str) -> String {
    let namespaces = Namespace::ALL.map(Namespace::prefix).join("|");
    format!("^{slash}({namespaces})(/(?!\\.{{1,2}}(/|$))[^/\\u0000-\\u001f\\u007f-\\u009f]{{1,256}}){{0,31}}{slash}$")
}

/// Returns the error codes of jobs.
pub(super) fn codes(types: &mut SchemaGenerator) -> Vec<String> {
    let codes = ErrorCode::json_schema(types).to_value();
    let known = codes["oneOf"].as_array().into_iter().flatten().filter_map(|code| code["const"].as_str());
    known.map(str::to_owned).collect()
}

/// Returns the rules of an operation beyond its schema.
fn operation_rules(operation: &str, types: &mut SchemaGenerator) -> Value {
    let at_most = json!({"maxLength": ASSET_DESCRIPTION_BYTES});
    match operation {
        "v/ops/agent/sessions" => json!({"properties": {"after": {"pattern": NAME}}}),
        "v/ops/agent/trigger" => json!({"properties": {
            "input": {"type": ["object", "array", "string", "number", "boolean"]},
        }}),
        "v/ops/asset/store" => json!({
            "properties": {
                "contentBase64": {"pattern": BASE64}, "contentType": {"pattern": MEDIA_TYPE},
                "name": at_most, "description": at_most,
            },
            "oneOf": [
                {"required": ["content"]}, {"required": ["contentText"]}, {"required": ["contentBase64"]},
                {
                    "required": ["metadata"], "properties": {"metadata": {"type": "object"}},
                    "not": {"anyOf": [
                        {"required": ["content"]}, {"required": ["contentText"]}, {"required": ["contentBase64"]},
                    ]},
                },
            ],
        }),
        "v/ops/job/bulk" => json!({
            "properties": {
                "status": {"items": {"enum": JobStatus::ALL.map(JobStatus::as_str)}},
                "code": {"items": {"enum": codes(types)}},
                "cursor": {"pattern": CURSOR},
            },
            "oneOf": BatchAction::ALL.map(|(name, action)| action_schema(name, action)),
            "anyOf": [
                {"required": ["expected"]}, {"required": ["cursor"]},
                {"required": ["dryRun"], "properties": {"dryRun": {"const": true}}},
            ],
        }),
        "v/ops/job/settle" => json!({
            "if": {"properties": {"done": {"const": false}}}, "then": {"properties": {"result": {"type": "null"}}},
        }),
        "v/ops/quota/set" => json!({"minProperties": 1}),
        "v/ops/secret/set" => json!({"properties": {"hosts": {"items": {"pattern": HOST}, "maxItems": 32}}}),
        _ => json!({}),
    }
}

/// Returns the schema of a batch request with one action: the statuses that it is for.
fn action_schema(name: &str, action: BatchAction) -> Value {
    let states = JobStatus::ALL.into_iter().filter(|status| action.accepts(*status)).map(JobStatus::as_str);
    let states: Vec<_> = states.collect();
    json!({
        "required": ["action"],
        "properties": {"action": {"const": name}, "status": {"items": {"enum": states}}},
    })
}

/// Adds the rules of an operation to its schema.
pub(super) fn refine_schema(mut schema: Value, operation: &str, types: &mut SchemaGenerator) -> Value {
    merge(&mut schema, operation_rules(operation, types));
    schema
}

/// Returns the rules of types beyond their schemas, by name.
pub(super) fn types() -> [(&'static str, Value); 2] {
    let grants = json!({"maxItems": MAX_GRANTS, "items": {"anyOf": [
        {"type": "string", "pattern": RESOURCES},
        {
            "type": "object", "required": ["with", "can"], "additionalProperties": false,
            "properties": {"with": {"type": "string", "pattern": CAPABILITY_RESOURCE}, "can": {"type": "string", "pattern": CAPABILITY_ABILITY, "maxLength": 256}},
        },
    ]}});
    let buckets = json!({"maxItems": CONTEXT_IDS, "items": {"pattern": RESOURCES}});
    let output = "^/?[wo](/(?!\\.{1,2}(/|$))[^/\\u0000-\\u001f\\u007f-\\u009f]{1,256}){1,31}/?$";
    [
        (
            "Submission",
            json!({"properties": {
                "context": grants, "contextIds": buckets, "loads": {"maxItems": LOADS}, "outputPath": {"pattern": output},
            }}),
        ),
        ("Load", json!({"properties": {"path": {"pattern": path("")}, "label": {"pattern": LABEL}}})),
    ]
}

/// Returns the schema of a message: that of a task without the keys that only a task may have.
pub(super) fn message(submission: &Value) -> Value {
    let mut schema = submission.clone();
    schema["properties"]["budget"] = json!({"type": "object", "maxProperties": 0});
    schema["properties"]["outputPath"] = json!({"type": "null"});
    schema["properties"]["responseSchema"] = json!({"type": "null"});
    schema["properties"]["priority"] = json!({"type": "integer", "const": 0});
    schema
}
