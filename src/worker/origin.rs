//! Stage 5: the turns that one request causes are counted, for all workers together.
//!
//! What serves a person's request itself costs nothing here: its task has a limit of its own. Only what
//! turns have caused is counted, in one document for each origin and hour.

use super::Worker;
use crate::domain::job::ErrorCode;
use crate::domain::lineage::hour;
use crate::domain::turn::{Last, Setting};
use crate::store::{Change, Doc, DocWrite, Expect, StoreError, Written, keys};
use bytes::Bytes;

/// Tries of a count that siblings get in the way of. One that is given up is missing from the sum.
const TRIES: u32 = 16;

/// A turn that counts.
pub(super) struct Counted {
    key: String,
    doc: Doc,
}

/// Whether a turn may ask its model: not when its origin has used up its hour. `None` = it isn't counted.
pub(super) async fn check(worker: &Worker, setting: &Setting) -> Result<Result<Option<Counted>, Last>, StoreError> {
    let limit = worker.options.turns_per_origin;
    let lineage = &setting.mandate.envelope.lineage;
    let Some(origin) = lineage.origin.as_ref().filter(|_| limit > 0) else { return Ok(Ok(None)) };
    let key = keys::origin(hour(worker.venue.now()), origin);
    let store = &worker.venue.store;
    let doc = store.read(&setting.owner, std::slice::from_ref(&key)).await?.pop().unwrap_or_default();
    if let Some(reason) = lineage.exhausted(&setting.session.agent, number(&doc), limit) {
        tracing::warn!(owner = %setting.owner, session = %setting.session, reason, "turn refused");
        return Ok(Err(Last { code: ErrorCode::LimitReached, reason }));
    }
    Ok(Ok(Some(Counted { key, doc })))
}

/// The model was asked. A reply that is paid is not given up for the sake of a count.
pub(super) async fn count(worker: &Worker, setting: &Setting, counted: Counted) {
    let key = counted.key.clone();
    match add(worker, setting, counted).await {
        Ok(true) => {}
        Ok(false) => tracing::debug!(key, "a turn is not counted: others were always faster"),
        Err(error) => tracing::warn!(key, %error, "a turn is not counted"),
    }
}

async fn add(worker: &Worker, setting: &Setting, counted: Counted) -> Result<bool, StoreError> {
    let Counted { key, mut doc } = counted;
    let venue = &worker.venue;
    for _ in 0..TRIES {
        let change = Change::Put(Bytes::from((number(&doc) + 1).to_string()));
        let write = DocWrite { key: key.clone(), expect: Expect::Version(doc.version), change };
        if venue.store.write(venue.now(), &setting.owner, &[write]).await? == Written::Done {
            return Ok(true);
        }
        doc = venue.store.read(&setting.owner, std::slice::from_ref(&key)).await?.pop().unwrap_or_default();
    }
    Ok(false)
}

/// What a document says; a damaged one counts anew.
fn number(doc: &Doc) -> u32 {
    let text = doc.value.as_ref().and_then(|bytes| std::str::from_utf8(bytes).ok());
    text.and_then(|text| text.parse().ok()).unwrap_or_default()
}
