//! A call of an API request that must not be repeated: its end may stay unknown, if the client disconnects or the
//! process dies.

use crate::domain::ids::{EventId, JobId, Owner, VenueIdSubject};
use crate::domain::limits::OPERATION_TIME;
use crate::domain::outcome::{CallMaker, OpenCall, UnknownOutcome};
use crate::domain::unknown_fields::UnknownFields;
use crate::store::{DocKey, DocWrite, StoreError};
use crate::venue::Venue;
use crate::venue::open_calls;
use crate::venue::operation::Caller;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use uuid::Uuid;

/// Time after the longest time of an operation at which a call counts as ended.
const GRACE: Duration = Duration::from_secs(30);

/// A call that a request has begun. If it is dropped before its end, it is listed as of unknown outcome.
pub struct RequestCall {
    venue: Arc<Venue>,
    owner: Owner,
    open: OpenCall,
    /// Key of the record; `None` after the end.
    record: Option<DocKey>,
}

impl RequestCall {
    /// Records that a request begins the operation at this catalogue path. After it: if the process dies, the call is
    /// listed. `job` is the job that will record its end, if there is one.
    pub async fn begin(
        venue: &Arc<Venue>,
        caller: &Caller,
        operation: &str,
        job: Option<&JobId>,
    ) -> Result<Self, StoreError> {
        let owner = &caller.owner;
        let fresh = || {
            let key = EventId::new(Uuid::now_v7().to_string()).expect("a UUID is a legal id");
            JobId::derive(
                &venue.key,
                owner,
                &EventId::of_venue(&venue.key, VenueIdSubject::Operation { owner, key: &key }),
            )
        };
        let listed = UnknownOutcome {
            job: job.cloned(),
            caller: Some(caller.name.clone()).filter(|_| job.is_none()),
            ..UnknownOutcome::new(job.cloned().unwrap_or_else(fresh), operation, venue.now())
        };
        let open = OpenCall { listed, maker: CallMaker::Request, repeatable: false, kept: UnknownFields::default() };
        let (record, write) = open_calls::record_write(&open, venue.now().plus(OPERATION_TIME + GRACE));
        if let Err(error) = venue.store.write(venue.now(), owner, &[write]).await {
            // The record may be written although the answer is lost, so it is deleted: the call isn't made.
            let _ = venue.store.write(venue.now(), owner, &[DocWrite::delete(record)]).await;
            return Err(error);
        }
        Ok(Self { venue: Arc::clone(venue), owner: owner.clone(), open, record: Some(record) })
    }

    /// Deletes the record: the end is known, and was returned to the caller or recorded with its job.
    pub async fn end(mut self) {
        let Some(record) = self.record.take() else { return };
        let (venue, owner) = (&self.venue, &self.owner);
        if let Err(error) = venue.store.write(venue.now(), owner, &[DocWrite::delete(record)]).await {
            let (outcome, operation) = (&self.open.listed.id, &self.open.listed.operation);
            tracing::warn!(%owner, %outcome, operation, %error, "the end of a call is known and not recorded; it will be listed");
        }
    }

    /// Lists the call, because its end is unknown; if the store is away, the sweep lists it.
    pub async fn end_unknown(mut self) {
        let Some(record) = self.record.take() else { return };
        list_unknown(&self.venue, &self.owner, &self.open, record).await;
    }
}

impl Drop for RequestCall {
    fn drop(&mut self) {
        let (Some(record), Ok(runtime)) = (self.record.take(), Handle::try_current()) else { return };
        let (venue, owner, open) = (Arc::clone(&self.venue), self.owner.clone(), self.open.clone());
        runtime.spawn(async move { list_unknown(&venue, &owner, &open, record).await });
    }
}

async fn list_unknown(venue: &Venue, owner: &Owner, open: &OpenCall, record: DocKey) {
    if let Err(error) = open_calls::list_unknown(venue, owner, open, DocWrite::delete(record)).await {
        let (outcome, operation) = (&open.listed.id, &open.listed.operation);
        tracing::warn!(%owner, %outcome, operation, %error, "a call of unknown outcome is not listed yet; a sweep will");
    }
}
