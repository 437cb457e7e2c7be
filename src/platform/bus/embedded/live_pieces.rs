//! Live text of jobs with its places, kept for a while so that a watcher whose connection broke can continue.

use super::super::{BusError, LiveFeed, LivePiece};
use super::topics::TopicListeners;
use crate::domain::ids::JobId;
use crate::domain::time::Millis;
use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::{BoxStream, iter};
use parking_lot::Mutex;
use std::collections::{HashSet, VecDeque};

/// Most pieces kept, and their bytes: some minutes of busy watching.
const PIECES: usize = 20_000;
const BYTES: usize = 16 * 1024 * 1024;

/// Pieces that a watcher may be behind before it loses the oldest.
const BEHIND: usize = 4_096;

pub(super) struct LivePieces {
    kept: Mutex<PieceBuffer>,
    watched: TopicListeners<JobId, LivePiece>,
}

struct PieceBuffer {
    /// Place of the newest piece.
    last: u64,
    bytes: usize,
    pieces: VecDeque<(JobId, LivePiece)>,
}

impl LivePieces {
    /// Returns an empty feed. Places begin with the time in microseconds, so that they grow over restarts, too.
    pub(super) fn starting_at(now: Millis) -> Self {
        let last = now.0.saturating_mul(1_000);
        let kept = Mutex::new(PieceBuffer { last, bytes: 0, pieces: VecDeque::new() });
        Self { kept, watched: TopicListeners::new(BEHIND) }
    }

    pub(super) fn send(&self, job: &JobId, body: &Bytes) {
        let mut kept = self.kept.lock();
        kept.last += 1;
        let piece = LivePiece { sequence: kept.last, body: body.clone() };
        // Under the lock: a new follower gets the piece from the store or from the topic, and only once.
        self.watched.publish(job, piece.clone());
        kept.bytes += body.len();
        kept.pieces.push_back((job.clone(), piece));
        while kept.pieces.len() > PIECES || kept.bytes > BYTES {
            let Some((_, old)) = kept.pieces.pop_front() else { break };
            kept.bytes -= old.body.len();
        }
    }
}

#[async_trait]
impl LiveFeed for LivePieces {
    async fn follow(&self, job: &JobId, after: Option<u64>) -> Result<BoxStream<'static, LivePiece>, BusError> {
        let kept = self.kept.lock();
        let new = self.watched.listen(job);
        let from = after.filter(|after| *after <= kept.last).unwrap_or_default();
        let missed = kept.pieces.iter().filter(|(of, piece)| of == job && piece.sequence > from);
        let missed: Vec<_> = missed.map(|(_, piece)| piece.clone()).collect();
        Ok(iter(missed).chain(new).boxed())
    }

    async fn last_piece(&self, job: &JobId) -> Result<Option<u64>, BusError> {
        let kept = self.kept.lock();
        Ok(kept.pieces.iter().rev().find(|(of, _)| of == job).map(|(_, piece)| piece.sequence))
    }

    async fn forget(&self, jobs: &[JobId]) -> Result<(), BusError> {
        let jobs: HashSet<&JobId> = jobs.iter().collect();
        let mut kept = self.kept.lock();
        kept.pieces.retain(|(of, _)| !jobs.contains(of));
        kept.bytes = kept.pieces.iter().map(|(_, piece)| piece.body.len()).sum();
        Ok(())
    }
}
