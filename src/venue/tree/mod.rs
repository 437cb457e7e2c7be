//! The tree as a caller reads it: what the owner stores there, and what the venue shows as part of it.

mod agent;
pub mod shared;
pub mod virtuals;

use crate::domain::lattice::Path;
use crate::venue::operation::{Invocation, OpError, Reads};
use crate::venue::workspace::TreeValue;
use serde_json::Value;

/// Returns the value at `path`, from the tree or from the venue's records.
pub async fn value_at(call: &Invocation<'_>, path: &Path) -> Result<Option<Value>, OpError> {
    read_value(call, path, Reads::note_value).await
}

/// Returns the value at `path` like [`value_at`], for an operation that copies it.
pub async fn value_to_copy(call: &Invocation<'_>, path: &Path) -> Result<Option<Value>, OpError> {
    read_value(call, path, Reads::note_value_to_copy).await
}

/// Returns the value at `path`; `note` records the read of a value of the tree.
async fn read_value(
    call: &Invocation<'_>,
    path: &Path,
    note: fn(&Reads, &Path, Option<&TreeValue>),
) -> Result<Option<Value>, OpError> {
    if path.namespace().is_writable() {
        let read = call.workspace.read(path).await?;
        note(call.reads, path, read.as_ref());
        return Ok(read.map(|read| read.value));
    }
    let value = virtuals::get(call, path).await?;
    call.reads.note(path, value.is_some());
    Ok(value)
}
