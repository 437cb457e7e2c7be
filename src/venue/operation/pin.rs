//! Pins of operations: `o/<name>` is run as the operation that it names.

use super::OpError;
use crate::domain::authority::Authority;
use crate::domain::ids::Owner;
use crate::domain::lattice::Path;
use crate::domain::lattice::catalog::is_pin;
use crate::domain::lattice::own::own;
use crate::venue::workspace::Workspace;

/// The path of a pin; `None`: it is no pin's.
fn pin_of(owner: &Owner, path: &str) -> Result<Option<Path>, OpError> {
    if !is_pin(path) {
        return Ok(None);
    }
    let plain = own(owner, path).map_err(|error| OpError::Denied(error.to_string()))?;
    Path::parse(plain).map(Some).map_err(|error| OpError::Invalid(error.to_string()))
}

/// The operation that a path means: of a pin the one that it names, to whoever may read it; any other path
/// stays as it is.
pub async fn meant(owner: &Owner, authority: &Authority, workspace: &Workspace, path: &str) -> Result<String, OpError> {
    let Some(pin) = pin_of(owner, path)? else { return Ok(path.to_owned()) };
    authority.permits("crud/read", &pin).map_err(|denied| OpError::Denied(denied.text(path)))?;
    let Some(found) = workspace.get(&pin).await? else {
        return Err(OpError::NotFound(format!("there is no pin `{pin}`; `asset/pin` makes one of an operation")));
    };
    match found["operation"].as_str() {
        Some(operation) => Ok(operation.to_owned()),
        None => Err(OpError::Invalid(format!(
            "`{pin}` pins no operation, but `{}`",
            found["from"].as_str().unwrap_or("a value")
        ))),
    }
}
