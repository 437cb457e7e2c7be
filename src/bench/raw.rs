//! The raw commit rate: commits of the size of a turn's, one after the other per session, without anything around them.

use super::BenchError;
use crate::domain::event::mailbox_key;
use crate::domain::event::{Event, Payload};
use crate::domain::ids::{EventId, Owner, SessionKey, sha256_hex};
use crate::domain::priority::Priority;
use crate::store::{
    Admit, Commit, CommitOutcome, DocWrite, EventKind, Grant, Lease, LeaseOutcome, LeaseRequest, LeaseUse, NewEvent,
    Store, keys,
};
use crate::venue::Venue;
use bytes::Bytes;
use futures::future::try_join_all;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes of a turn record and of a session state, about those of an `echo` turn.
const RECORD: usize = 900;
const STATE: usize = 60;

/// Measures the commits per second of `sessions` at the same time.
pub(super) async fn measure_rate(
    venue: &Arc<Venue>,
    owner: &Owner,
    sessions: usize,
    time: Duration,
) -> Result<f64, BenchError> {
    let mut leases = Vec::with_capacity(sessions);
    for number in 0..sessions {
        leases.push(lease(venue, owner, number).await?);
    }
    let start = Instant::now();
    let end = start + time;
    let loops = leases.into_iter().map(|lease| {
        let venue = Arc::clone(venue);
        tokio::spawn(async move { commits(&*venue.store, &venue, &lease, end).await })
    });
    let mut total = 0u64;
    for done in try_join_all(loops).await.map_err(|e| BenchError::TimedOut(e.to_string()))? {
        total += done?;
    }
    #[expect(clippy::cast_precision_loss, reason = "a count of seconds")]
    Ok(total as f64 / start.elapsed().as_secs_f64())
}

async fn lease(venue: &Venue, owner: &Owner, number: usize) -> Result<Lease, BenchError> {
    let session = format!("raw-{number}").parse().expect("a legal id");
    let session = SessionKey { agent: "bench-0".parse().expect("a legal id"), session };
    Ok(grant(venue, owner, session).await?.lease)
}

/// Returns the grant of a new session with a pending event.
pub(super) async fn grant(venue: &Venue, owner: &Owner, session: SessionKey) -> Result<Grant, BenchError> {
    let id = EventId::new(format!("{}-{}", session.agent, session.session)).expect("a legal id");
    let now = venue.now();
    let event = Event::new(id.clone(), now, Payload::Message { input: serde_json::Value::Null, to: None });
    let body = Bytes::from(serde_json::to_vec(&event).expect("events serialise"));
    let event = NewEvent {
        id,
        body_hash: sha256_hex(&body),
        kind: EventKind::Message,
        job: None,
        order: mailbox_key(EventKind::Message, Priority::Normal, now, 0),
        body,
        open: None,
        finish: None,
        outbox: Vec::new(),
        quota: None,
        may_replace: false,
    };
    let lease = LeaseRequest {
        token: uuid::Uuid::new_v4().simple().to_string(),
        worker: "bench".into(),
        ttl: Duration::from_mins(10),
        mailbox_limit: 1,
        crash_limit: 5,
        owner_cap: 0,
    };
    let admit = Admit { owner: owner.clone(), session, event: Some(event), lease: Some(lease) };
    match venue.store.admit(now, &admit).await?.lease {
        LeaseOutcome::Run(grant) => Ok(*grant),
        other => Err(BenchError::TimedOut(format!("no lease for a session of the measurement: {other:?}"))),
    }
}

async fn commits(store: &dyn Store, venue: &Venue, lease: &Lease, end: Instant) -> Result<u64, BenchError> {
    let mut turn = 0;
    while Instant::now() < end {
        turn += 1;
        let commit = Commit {
            turn,
            consume: Vec::new(),
            writes: vec![
                DocWrite::put(keys::turn(&lease.session, turn), vec![b'x'; RECORD]),
                DocWrite::index_entry(keys::timeline_entry(&lease.session, venue.now(), turn)),
            ],
            status: None,
            finish: Vec::new(),
            outbox: Vec::new(),
            state: Bytes::from(vec![b'x'; STATE]),
            unless_cancelled: None,
            after_commit: LeaseUse::Keep,
        };
        match store.commit(venue.now(), lease, &commit).await? {
            CommitOutcome::Done(_) => {}
            other => return Err(BenchError::TimedOut(format!("a raw commit was refused: {other:?}"))),
        }
    }
    Ok(turn)
}
