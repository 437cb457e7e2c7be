//! The result within the answer of a service.

use super::HttpDeclaration;
use super::template::value_text;
use crate::decode;
use crate::foreign::visible_line;
use crate::limits::DECLARED_REFUSAL_BYTES;
use crate::schema::{SchemaError, SchemaMisfit, veiled_misfits};
use serde_json::Value;

/// Misfits of a result that an error names.
const MISFITS_SHOWN: usize = 3;

/// Why an answer is not as it was declared. No text shows a value of the answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AnswerFault {
    /// The answer has nothing at the place of the result.
    #[error("the answer has nothing at `{pointer}`")]
    Missing {
        /// Place of the result, a JSON pointer.
        pointer: String,
    },
    /// The result doesn't fit its schema.
    #[error("the result isn't as declared: {}", .misfits.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Misfit {
        /// The first misfits.
        misfits: Vec<SchemaMisfit>,
    },
    /// The result can't be checked.
    #[error("the result can't be checked: {0}")]
    Schema(#[from] SchemaError),
}

/// Returns the result within the body of an answer, which is JSON where its declaration names a place or a schema.
pub fn pick_result(http: &HttpDeclaration, body: Value) -> Result<Value, AnswerFault> {
    let is_typed = http.result.as_ref().is_some_and(|pointer| !pointer.is_empty()) || http.output.is_some();
    let body = match body {
        // Some services send JSON as plain text.
        Value::String(text) if is_typed => decode::lenient_json(text.as_bytes()).unwrap_or(Value::String(text)),
        body => body,
    };
    let result = match http.result.as_deref() {
        None | Some("") => body,
        Some(pointer) => {
            let found = body.pointer(pointer).cloned();
            found.ok_or_else(|| AnswerFault::Missing { pointer: pointer.to_owned() })?
        }
    };
    if let Some(output) = &http.output {
        let misfits = veiled_misfits(output, &result, MISFITS_SHOWN)?;
        if !misfits.is_empty() {
            return Err(AnswerFault::Misfit { misfits });
        }
    }
    Ok(result)
}

/// Returns the body of a refusing answer as one short line.
pub fn refusal_text(body: &Value) -> String {
    visible_line(&value_text(body), DECLARED_REFUSAL_BYTES)
}
