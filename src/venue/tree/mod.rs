//! The tree as a caller reads it: what the owner stores there, and what the venue shows as part of it.

mod agent;
pub mod shared;
pub mod virtuals;

use crate::domain::lattice::Path;
use crate::venue::operation::{Invocation, OpError};
use serde_json::Value;

/// Returns the value at `path`, from the tree or from the venue's records.
pub async fn value_at(call: &Invocation<'_>, path: &Path) -> Result<Option<Value>, OpError> {
    if path.namespace().is_writable() {
        let read = call.workspace.read(path).await?;
        call.reads.note_value(path, read.as_ref());
        return Ok(read.map(|read| read.value));
    }
    kept_value(call, path).await
}

/// Returns the value at `path` like [`value_at`], for an operation that copies it.
pub async fn value_to_copy(call: &Invocation<'_>, path: &Path) -> Result<Option<Value>, OpError> {
    if path.namespace().is_writable() {
        let read = call.workspace.read(path).await?;
        call.reads.note_value_to_copy(path, read.as_ref());
        return Ok(read.map(|read| read.value));
    }
    kept_value(call, path).await
}

async fn kept_value(call: &Invocation<'_>, path: &Path) -> Result<Option<Value>, OpError> {
    let value = virtuals::get(call, path).await?;
    call.reads.note(path, value.is_some());
    Ok(value)
}
