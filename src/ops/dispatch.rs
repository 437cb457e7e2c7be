//! One call, in the order of the rules: resolve, validate, authority, dispatch with a time limit.

use super::{Invocation, OpError, Output, Registered};
use crate::domain::limits::OPERATION_TIME;
use crate::domain::nearest::nearest;
use serde_json::Value;

/// Finds the operation that `path` means, with a proposal when there is none.
pub fn resolve<'c>(catalog: &'c super::Catalog, path: &str) -> Result<&'c Registered, OpError> {
    catalog.resolve(path).ok_or_else(|| {
        let known: Vec<_> = catalog.operations().map(|r| r.spec.path).collect();
        let hint = nearest(path, &known).map(|n| format!(", did you mean `{n}`")).unwrap_or_default();
        OpError::NotFound(format!("no operation `{path}`{hint}"))
    })
}

/// Runs one operation.
pub async fn invoke(call: &Invocation<'_>, path: &str, arguments: Value) -> Result<Output, OpError> {
    let found = resolve(&call.venue.catalog, path)?;
    let arguments = if arguments.is_null() { Value::Object(serde_json::Map::new()) } else { arguments };
    validate(found, &arguments)?;
    for need in found.operation.needs(&arguments)? {
        call.caller
            .authority
            .permits(need.ability, &need.resource)
            .map_err(|denied| OpError::Denied(denied.text(found.spec.path)))?;
    }
    match tokio::time::timeout(OPERATION_TIME, found.operation.invoke(call, arguments)).await {
        Ok(result) => result,
        Err(_) => Err(OpError::Timeout(format!(
            "operation `{}` took longer than {} s",
            found.spec.path,
            OPERATION_TIME.as_secs()
        ))),
    }
}

fn validate(found: &Registered, arguments: &Value) -> Result<(), OpError> {
    let problems: Vec<String> = found
        .validator
        .iter_errors(arguments)
        .take(5)
        .map(|error| {
            let place = error.instance_path().to_string();
            if place.is_empty() { error.to_string() } else { format!("at `{place}`: {error}") }
        })
        .collect();
    if problems.is_empty() {
        return Ok(());
    }
    Err(OpError::Invalid(format!("arguments of `{}` are not valid: {}", found.spec.path, problems.join("; "))))
}
