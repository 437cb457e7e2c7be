//! Rules that operations check when called, as patterns of a schema. They are here and not in the operation's own
//! schema, which every prompt that offers it contains.

use crate::domain::authority::grant::MAX_GRANTS;
use crate::domain::event::NAME;
use crate::domain::ids::JobId;
use crate::domain::job::{ErrorCode, JobStatus};
use crate::domain::lattice::Namespace;
use crate::domain::limits::{ASSET_DESCRIPTION_BYTES, CONTEXT_IDS, LOAD_BYTES, LOADS};
use crate::domain::patch::merge;
use crate::ops::job::BatchAction;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Value, json};

/// Pattern of the cursor in a list of jobs: the time of creation in milliseconds since 1970, and the id of the job.
pub(super) const CURSOR: &str = "^[0-9]{16}-[0-9a-f]{32}$";

/// Pattern of a host that a secret may be bound to: not every host, and not every name of a top-level domain.
const HOST: &str = "^((?!\\*)[A-Za-z0-9.-]+|\\*\\.[A-Za-z0-9-]*\\.[A-Za-z0-9.-]*|\\[[0-9A-Fa-f:.]+\\])(:([1-9][0-9]{0,3}|[1-5][0-9]{4}))?$";

/// Pattern of base64 of the standard alphabet with padding, whose unused bits are 0.
const BASE64: &str = "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/][AQgw]==|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=)?$";

/// Pattern of a media type with its parameters, such as `text/plain; charset=utf-8`.
const MEDIA_TYPE: &str = "^(?=.{3,200}$)[A-Za-z0-9!#$&^_.+-]+/[A-Za-z0-9!#$&^_.+-]+(;[ -~]*)?$";

/// Pattern of a namespace of resources, without `r/`.
const RESOURCES: &str = "^(?!\\.{1,2}(/|$))[^/\\s\\u0000-\\u001f\\u007f-\\u009f*>]+(/(?!\\.{1,2}(/|$))[^/\\s\\u0000-\\u001f\\u007f-\\u009f*>]+)*$";

/// Pattern of a capability's resource: a scheme and a host, or a path; not all rules for resources.
const CAPABILITY_RESOURCE: &str = "^(?![^/]*://$)(?!r/)([A-Za-z0-9]+://)?((?!(\\.{1,2}|\\*)(/|$))[^/\\u0000-\\u001f\\u007f-\\u009f]+(/(?!(\\.{1,2}|\\*)(/|$))[^/\\u0000-\\u001f\\u007f-\\u009f]+)*)?/?$";

/// Pattern of the label of a loaded value: 1 to 200 characters, none of them a control character.
const LABEL: &str = "^[^\\u0000-\\u001f\\u007f-\\u009f]{1,200}$";

/// Pattern of a capability's ability: `*`, or segments such as `crud/read`.
const CAPABILITY_ABILITY: &str = "^(\\*|(?!\\.{1,2}(/|$))[A-Za-z0-9_.:-]+(/(?!\\.{1,2}(/|$))[A-Za-z0-9_.:-]+)*)$";

/// Returns the pattern of a lattice path, as far as a pattern can express it. `slash` is the pattern of what may stand
/// at both ends: empty, or `/?`.
pub(super) fn lattice_path(slash: &str) -> String {
    let namespaces = Namespace::ALL.map(Namespace::prefix).join("|");
    format!("^{slash}({namespaces})(/(?!\\.{{1,2}}(/|$))[^/\\u0000-\\u001f\\u007f-\\u009f]{{1,256}}){{0,31}}{slash}$")
}

/// Returns the error codes of jobs, as `code` has them.
pub(super) fn error_codes(generator: &mut SchemaGenerator) -> Vec<String> {
    let codes = ErrorCode::json_schema(generator).to_value();
    let known = codes["oneOf"].as_array().into_iter().flatten().filter_map(|code| code["const"].as_str());
    known.map(str::to_owned).collect()
}

/// Returns the rules of an operation beyond its schema, as a patch of that schema; `operation` is its path.
fn operation_rules(operation: &str, generator: &mut SchemaGenerator) -> Value {
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
        "v/ops/job/bulk" => {
            // Named jobs go with no part of a filter.
            let beside_only = ["status", "code", "agent", "session", "since", "until", "q", "cursor", "expected"];
            json!({
                "properties": {
                    "status": {"items": {"enum": JobStatus::ALL.map(JobStatus::as_str)}},
                    "code": {"items": {"enum": error_codes(generator)}},
                    "cursor": {"pattern": CURSOR}, "only": {"items": {"pattern": JobId::PATTERN}},
                },
                "not": {"anyOf": beside_only.map(|key| json!({"required": ["only", key]}))},
                "oneOf": BatchAction::ALL.map(|(name, action)| action_schema(name, action)),
                "anyOf": [
                    {"required": ["expected"]}, {"required": ["cursor"]}, {"required": ["only"]},
                    {"required": ["dryRun"], "properties": {"dryRun": {"const": true}}},
                ],
            })
        }
        "v/ops/job/settle" => json!({
            "if": {"properties": {"done": {"const": false}}}, "then": {"properties": {"result": {"type": "null"}}},
        }),
        "v/ops/quota/set" => json!({"minProperties": 1}),
        "v/ops/secret/set" => json!({"properties": {"hosts": {"items": {"pattern": HOST}, "maxItems": 32}}}),
        _ => json!({}),
    }
}

/// Returns the schema of a batch request with the action `name`: `status` selects only jobs that the action accepts.
fn action_schema(name: &str, action: BatchAction) -> Value {
    let states = JobStatus::ALL.into_iter().filter(|status| action.accepts(*status)).map(JobStatus::as_str);
    let states: Vec<_> = states.collect();
    json!({
        "required": ["action"],
        "properties": {"action": {"const": name}, "status": {"items": {"enum": states}}},
    })
}

/// Returns the schema of an operation's arguments with the rules that only the operation checks; `operation` is its
/// path.
pub(super) fn refine_schema(mut schema: Value, operation: &str, generator: &mut SchemaGenerator) -> Value {
    merge(&mut schema, operation_rules(operation, generator));
    schema
}

/// Returns the rules of types beyond their schemas, as patches by the names of the types.
pub(super) fn type_rules() -> [(&'static str, Value); 2] {
    let grants = json!({"maxItems": MAX_GRANTS, "items": {"anyOf": [
        {"type": "string", "pattern": RESOURCES},
        {
            "type": "object", "required": ["with", "can"], "additionalProperties": false,
            "properties": {"with": {"type": "string", "pattern": CAPABILITY_RESOURCE}, "can": {"type": "string", "pattern": CAPABILITY_ABILITY, "maxLength": 256}},
        },
    ]}});
    let buckets = json!({"maxItems": CONTEXT_IDS, "items": {"pattern": RESOURCES}});
    let path = json!({"type": "string", "pattern": lattice_path("")});
    let budget = json!({"type": ["integer", "null"], "minimum": LOAD_BYTES.start(), "maximum": LOAD_BYTES.end()});
    let loads = json!({"maxItems": LOADS, "items": {"anyOf": [path, {
        "type": "object", "required": ["path"], "additionalProperties": false,
        "properties": {"path": path, "label": {"type": ["string", "null"], "pattern": LABEL}, "budget": budget},
    }]}});
    let output = "^/?[wo](/(?!\\.{1,2}(/|$))[^/\\u0000-\\u001f\\u007f-\\u009f]{1,256}){1,31}/?$";
    [
        (
            "Submission",
            json!({"properties": {
                "context": grants, "contextIds": buckets, "loads": loads, "outputPath": {"pattern": output},
            }}),
        ),
        ("Load", json!({"properties": {"path": {"pattern": lattice_path("")}, "label": {"pattern": LABEL}}})),
    ]
}

/// Returns the schema of a message's body, made of the schema of [`Submission`](crate::domain::event::Submission): keys
/// that only a task may have are absent, null, empty or 0.
pub(super) fn message_schema(submission: &Value) -> Value {
    let mut schema = submission.clone();
    schema["properties"]["budget"] = json!({"type": "object", "maxProperties": 0});
    schema["properties"]["outputPath"] = json!({"type": "null"});
    schema["properties"]["responseSchema"] = json!({"type": "null"});
    schema["properties"]["priority"] = json!({"type": "integer", "const": 0});
    schema
}
