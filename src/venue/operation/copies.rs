//! Copies that callers outside turns make; they are recorded for `why`, because no turn has a record of them.

use super::{Invocation, Site};
use crate::domain::ids::sha256_hex;
use crate::store::{DocWrite, StoreError, keys};
use crate::venue::ledger::path_uses::PathUse;

/// Records where the bytes went that a call has read, within the owner's quota. The call has taken effect already: a
/// failure to record it changes nothing for its caller.
pub(super) async fn record_copies(call: &Invocation<'_>) {
    if matches!(call.site, Site::Turn(_)) {
        return;
    }
    let now = call.venue.now();
    let copies = call.reads.found_reads().into_iter().filter_map(|seen| {
        let into = seen.into.clone()?;
        // Each pair of paths has one document, however often it is copied.
        let key = keys::outside_copy(&sha256_hex(format!("{}\n{into}", seen.path).as_bytes()));
        Some(DocWrite::json(key, &[PathUse::outside_copy(&seen, now)]))
    });
    let writes: Vec<DocWrite> = copies.collect();
    if writes.is_empty() {
        return;
    }
    let (owner, operation) = (&call.caller.owner, call.named);
    match call.venue.write_within_quota(owner, &writes).await {
        Ok(_) => {}
        // A caller can cause this as often as it likes.
        Err(error @ StoreError::Over(_)) => {
            tracing::debug!(%owner, operation, %error, "a copy is not recorded for `why`");
        }
        Err(error) => tracing::warn!(%owner, operation, %error, "a copy is not recorded for `why`"),
    }
}
