//! The tree as a caller reads it: what the owner stores there, and what the venue shows as part of it.

mod agent;
pub mod shared;
pub mod virtuals;

use crate::domain::lattice::Path;
use crate::venue::operation::{Invocation, OpError};
use serde_json::Value;

/// Returns the value at `path`, from the tree or from the venue's records.
pub async fn value_at(call: &Invocation<'_>, path: &Path) -> Result<Option<Value>, OpError> {
    let (version, value) = if path.namespace().is_writable() {
        call.workspace.read(path).await?.unzip()
    } else {
        (None, virtuals::get(call, path).await?)
    };
    call.reads.note(path, version, value.is_some());
    Ok(value)
}
