//! Live text of jobs with its places, kept for a while so that a watcher whose connection broke goes
//! on where it was.

use super::super::Piece;
use crate::domain::ids::JobId;
use crate::domain::time::Millis;
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::{BoxStream, iter, unfold};
use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};
use tokio::sync::broadcast;

/// Pieces that are kept, and their bytes: some minutes of busy watching.
const PIECES: usize = 20_000;
const BYTES: usize = 16 * 1024 * 1024;

/// A watcher that is further behind loses the oldest: what is sent live may be lost.
const BEHIND: usize = 4_096;

pub(super) struct Pieces(Mutex<Kept>);

struct Kept {
    /// Place of the newest.
    last: u64,
    bytes: usize,
    pieces: VecDeque<(JobId, Piece)>,
    watched: HashMap<JobId, broadcast::Sender<Piece>>,
}

impl Pieces {
    /// Places grow over restarts, too: they begin with the time in microseconds.
    pub(super) fn since(now: Millis) -> Self {
        let last = now.0.saturating_mul(1_000);
        Self(Mutex::new(Kept { last, bytes: 0, pieces: VecDeque::new(), watched: HashMap::new() }))
    }

    pub(super) fn send(&self, job: &JobId, body: &Bytes) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.last += 1;
        let piece = Piece { sequence: kept.last, body: body.clone() };
        kept.bytes += body.len();
        kept.pieces.push_back((job.clone(), piece.clone()));
        while kept.pieces.len() > PIECES || kept.bytes > BYTES {
            let Some((_, old)) = kept.pieces.pop_front() else { break };
            kept.bytes -= old.body.len();
        }
        if let Some(sender) = kept.watched.get(job)
            && sender.send(piece).is_err()
        {
            kept.watched.remove(job);
        }
    }

    pub(super) fn follow(&self, job: &JobId, after: Option<u64>) -> BoxStream<'static, Piece> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Jobs that everybody left without another piece go here.
        kept.watched.retain(|_, sender| sender.receiver_count() > 0);
        let receiver = kept.watched.entry(job.clone()).or_insert_with(|| broadcast::channel(BEHIND).0).subscribe();
        let from = after.unwrap_or(u64::MAX);
        let before: Vec<_> = kept
            .pieces
            .iter()
            .filter(|(of, piece)| of == job && piece.sequence > from)
            .map(|(_, p)| p.clone())
            .collect();
        let new = unfold(receiver, |mut receiver| async {
            loop {
                match receiver.recv().await {
                    Ok(piece) => return Some((piece, receiver)),
                    Err(broadcast::error::RecvError::Lagged(_)) => {}
                    Err(broadcast::error::RecvError::Closed) => return None,
                }
            }
        });
        iter(before).chain(new).boxed()
    }
}
