//! Fills secrets into the arguments of one call, and masks them in its result.
//!
//! It is the last step before an operation runs: what is recorded, approved, logged or shown was made before it and has
//! only the references.

use crate::domain::authority::ResourcePath;
use crate::domain::ids::secret::SecretName;
use crate::domain::secret::{Destination, Mask, SecretReference, reference};
use crate::venue::operation::{Invocation, OpError, OpOutput, ParsedCall};
use crate::venue::secrets::{self, OpenedSecret};
use serde_json::Value;
use std::collections::BTreeMap;

/// Replaces every reference in the arguments of `parsed`. Returns what must be masked in the result.
pub async fn fill_secrets(call: &Invocation<'_>, parsed: &mut dyn ParsedCall) -> Result<Mask, OpError> {
    let Some(to) = parsed.destination() else { return Ok(Mask::default()) };
    fill_references(call, &to, parsed.secrets()).await
}

/// Replaces every reference in these values, which are sent to one place. Returns what must be masked in its answer.
pub(crate) async fn fill_references(
    call: &Invocation<'_>,
    to: &Destination,
    values: Vec<&mut Value>,
) -> Result<Mask, OpError> {
    let (mut mask, mut opened) = (Mask::default(), BTreeMap::new());
    for place in values.into_iter().flat_map(reference::references_mut) {
        let asked = SecretReference::parse(place).map_err(|error| OpError::Invalid(error.to_string()))?;
        if !opened.contains_key(&asked.name) {
            let secret = open_secret(call, &asked.name, to).await?;
            mask.add(&secret.name, &secret.value);
            opened.insert(asked.name.clone(), secret);
        }
        if let Some(secret) = opened.get(&asked.name) {
            *place = Value::String(format!("{}{}", asked.prefix, secret.value.reveal()));
        }
    }
    mask_others(call, to, &opened, &mut mask).await?;
    Ok(mask)
}

/// Returns one secret, if the caller may use it and it may be sent to `to`.
async fn open_secret(call: &Invocation<'_>, name: &SecretName, to: &Destination) -> Result<OpenedSecret, OpError> {
    call.permit("secret/use", ResourcePath::secret(name))?;
    let secret = call.venue.secrets.open(&*call.venue.store, &call.caller.owner, name).await?;
    if secret.hosts.permits(to) {
        return Ok(secret);
    }
    let hosts: Vec<_> = secret.hosts.hosts().iter().map(|host| format!("`{host}`")).collect();
    let hosts = if hosts.is_empty() { "no host".to_owned() } else { hosts.join(", ") };
    Err(OpError::Denied(format!(
        "secret `{name}` may not go to `{}`: it is bound to {hosts} (over plain http only where the port is named); \
         retrying will not help",
        to.origin()
    )))
}

/// Adds every other secret that may go to the host to the mask: it may have been given one before.
async fn mask_others(
    call: &Invocation<'_>,
    to: &Destination,
    opened: &BTreeMap<SecretName, OpenedSecret>,
    mask: &mut Mask,
) -> Result<(), OpError> {
    let owner = &call.caller.owner;
    for (name, record) in secrets::list(&*call.venue.store, owner).await? {
        if opened.contains_key(&name) || !record.stamp.hosts.permits(to) {
            continue;
        }
        match call.venue.secrets.unseal(owner, &name, &record) {
            Ok(secret) => mask.add(&secret.name, &secret.value),
            // The host can't have been sent this secret with the present keys; a call that doesn't need it continues.
            Err(error) => tracing::warn!(%owner, %error, "a secret can't be masked"),
        }
    }
    Ok(())
}

/// Masks secrets in a result.
pub fn mask_result(mask: &Mask, result: Result<OpOutput, OpError>) -> Result<OpOutput, OpError> {
    if mask.is_empty() {
        return result;
    }
    let text = |text: String| mask.text(&text).into_owned();
    let masked = result.map(|output| OpOutput { value: mask.value(output.value), ..output });
    masked.map_err(|error| error.map_text(text))
}
