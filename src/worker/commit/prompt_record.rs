//! The record of a turn's prompt: its manifest, and the parts that are not stored yet.

use crate::domain::context::record::LedgerWrite;
use crate::domain::context::record::period::Period;
use crate::domain::ids::SessionKey;
use crate::domain::time::Millis;
use crate::store::{DocWrite, keys};

/// Returns the writes of a record. A record written after its week restarts the scan of that week's parts.
pub(crate) fn record_writes(
    now: Millis,
    session: &SessionKey,
    turn: u64,
    write: &LedgerWrite,
) -> impl Iterator<Item = DocWrite> {
    let period = write.period;
    let manifest = DocWrite::put(keys::ledger(session, turn), write.manifest.clone());
    let late = (period < Period::from_start(now)).then(|| DocWrite::delete(keys::part_scan(period)));
    let parts = write.parts.iter().map(move |(name, content)| DocWrite::put(keys::part(period, name), content.clone()));
    parts.chain([manifest]).chain(late)
}
