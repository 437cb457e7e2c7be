//! What an operation says of its arguments when it is called, as patterns and rules of a schema: here, and not in the
//! operation's own, which every prompt that offers it would carry.

use crate::domain::event::NAME;
use crate::domain::job::{ErrorCode, JobStatus};
use crate::domain::lattice::Namespace;
use crate::domain::limits::ASSET_DESCRIPTION_BYTES;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Value, json};

/// Place behind a job, as lists of jobs name it.
pub(super) const CURSOR: &str = "^[0-9]{16}-[0-9a-f]{32}$";

/// A host that a secret may be bound to: not every one, and not every name of a top-level domain.
const HOST: &str = "^((?!\\*)[A-Za-z0-9.-]+|\\*\\.[A-Za-z0-9-]*\\.[A-Za-z0-9.-]*|\\[[0-9A-Fa-f:.]+\\])(:([1-9][0-9]{0,3}|[1-5][0-9]{4}))?$";

const BASE64: &str = "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/][AQgw]==|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=)?$";

const MEDIA_TYPE: &str = "^(?=.{3,200}$)[A-Za-z0-9!#$&^_.+-]+/[A-Za-z0-9!#$&^_.+-]+(;[ -~]*)?$";

/// A lattice path, as far as a pattern can say it.
pub(super) fn path() -> String {
    let namespaces = Namespace::ALL.map(Namespace::prefix).join("|");
    format!("^/?({namespaces})(/(?!\\.{{1,2}}(/|$))[^/\\u0000-\\u001f\\u007f-\\u009f]{{1,256}}){{0,31}}/?$")
}

/// Names of errors of jobs.
pub(super) fn codes(types: &mut SchemaGenerator) -> Vec<String> {
    let codes = ErrorCode::json_schema(types).to_value();
    let known = codes["oneOf"].as_array().into_iter().flatten().filter_map(|code| code["const"].as_str());
    known.map(str::to_owned).collect()
}

/// What is said beyond the schema of an operation; null where that says all.
fn more(operation: &str, types: &mut SchemaGenerator) -> Value {
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
            "oneOf": [{"required": ["content"]}, {"required": ["contentBase64"]}],
        }),
        "v/ops/job/bulk" => json!({
            "properties": {
                "status": {"items": {"enum": JobStatus::ALL.map(JobStatus::as_str)}},
                "code": {"items": {"enum": codes(types)}},
                "cursor": {"pattern": CURSOR},
            },
            "anyOf": [
                {"required": ["expected"]}, {"required": ["cursor"]},
                {"required": ["dryRun"], "properties": {"dryRun": {"const": true}}},
            ],
        }),
        "v/ops/quota/set" => json!({"minProperties": 1}),
        "v/ops/secret/set" => json!({"properties": {"hosts": {"items": {"pattern": HOST}, "maxItems": 32}}}),
        _ => Value::Null,
    }
}

/// The same with what is said beyond it.
pub(super) fn refined(mut schema: Value, operation: &str, types: &mut SchemaGenerator) -> Value {
    merge(&mut schema, more(operation, types));
    schema
}

fn merge(into: &mut Value, more: Value) {
    match (into, more) {
        (_, Value::Null) => {}
        (Value::Object(into), Value::Object(more)) => {
            for (key, value) in more {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, more) => *into = more,
    }
}
