//! The turns of a session that a prompt can show. They are read once and then kept current.

use crate::domain::context::transcript_turn::TranscriptTurn;
use crate::domain::ids::{Owner, SessionKey};
use crate::domain::limits::TRANSCRIPT_BYTES;
use crate::domain::session::TurnRecord;
use crate::store::{Store, StoreError, decode, keys, steps};
use std::collections::VecDeque;
use std::sync::Arc;

/// Turns of a transcript: more than fit into any prompt.
const TRANSCRIPT: usize = 500;

/// The newest turn records of a session, oldest first; together at most twice as large as the largest prompt.
#[derive(Debug, Default)]
pub(crate) struct Transcript {
    /// Records with their bytes as they are stored.
    turns: VecDeque<(Arc<TranscriptTurn>, usize)>,
    bytes: usize,
}

impl Transcript {
    /// Reads the turns of a session of this version. Turns up to `since` belong to a conversation that has expired.
    pub(crate) async fn read(
        store: &dyn Store,
        owner: &Owner,
        session: &SessionKey,
        version: u64,
        since: u64,
    ) -> Result<Self, StoreError> {
        // Turns above the session's version are left by an interrupted fork and aren't its own.
        let end = keys::turn(session, version + 1);
        let turns = keys::turns(session);
        let range = steps::KeyRange::descending(&turns).start_after(&end);
        let found = steps::scan(store, owner, range, TRANSCRIPT, TRANSCRIPT_BYTES).await?.docs;
        let mut transcript = Self::default();
        for (key, doc) in found.into_iter().rev() {
            let Some(bytes) = doc.value else { continue };
            let record: TurnRecord = decode(&key, &bytes)?;
            if record.turn > since {
                transcript.push(record, bytes.len());
            }
        }
        Ok(transcript)
    }

    /// Adds a committed turn of so many bytes, and removes the oldest turns above the limits.
    pub(crate) fn push(&mut self, record: TurnRecord, bytes: usize) {
        self.turns.push_back((Arc::new(record.into()), bytes));
        self.bytes += bytes;
        while self.turns.len() > TRANSCRIPT || self.bytes > TRANSCRIPT_BYTES && self.turns.len() > 1 {
            self.bytes -= self.turns.pop_front().map_or(0, |(_, bytes)| bytes);
        }
    }

    /// Replaces the record of an earlier turn.
    pub(crate) fn amend(&mut self, record: TurnRecord) {
        if let Some((place, _)) = self.turns.iter_mut().find(|(known, _)| known.turn == record.turn) {
            *place = Arc::new(record.into());
        }
    }

    /// Returns the records for a prompt.
    pub(crate) fn records(&self) -> Vec<Arc<TranscriptTurn>> {
        self.turns.iter().map(|(record, _)| Arc::clone(record)).collect()
    }

    /// Returns the record of a turn, if it is in the transcript.
    pub(crate) fn turn(&self, turn: u64) -> Option<&TurnRecord> {
        self.turns.iter().rev().map(|(record, _)| &***record).find(|record| record.turn == turn)
    }

    /// Returns the record of the newest turn.
    pub(crate) fn last(&self) -> Option<&TurnRecord> {
        self.turns.back().map(|(record, _)| &***record)
    }

    /// Returns the bytes of all records, as they are stored.
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(sizes: impl IntoIterator<Item = usize>) -> Transcript {
        let mut transcript = Transcript::default();
        for (turn, bytes) in (1..).zip(sizes) {
            transcript.push(TurnRecord { turn, ..TurnRecord::default() }, bytes);
        }
        transcript
    }

    #[test]
    fn the_oldest_turns_leave_by_number_and_size() {
        let check = |sizes: Vec<usize>, first: u64, last: u64| {
            let transcript = of(sizes);
            let turns: Vec<_> = transcript.records().iter().map(|record| record.turn).collect();
            assert_eq!((turns.first(), turns.last()), (Some(&first), Some(&last)));
            assert_eq!(turns.len() as u64, last - first + 1);
        };
        check(vec![1; 3], 1, 3);
        check(vec![1; TRANSCRIPT + 2], 3, TRANSCRIPT as u64 + 2);
        check(vec![TRANSCRIPT_BYTES / 2, TRANSCRIPT_BYTES / 2, 1], 2, 3);
        // The newest is there however large it is.
        check(vec![1, TRANSCRIPT_BYTES + 1], 2, 2);
    }

    #[test]
    fn an_amended_turn_stands_in_the_place_of_the_one_before() {
        let mut transcript = of([1, 1]);
        let shared = transcript.records();
        transcript.amend(TurnRecord { turn: 1, frame: 7, ..TurnRecord::default() });
        assert_eq!(transcript.turn(1).unwrap().frame, 7);
        assert_eq!(shared[0].frame, 0, "a prompt that was made keeps what it had");
        assert_eq!((transcript.last().unwrap().turn, transcript.turn(3)), (2, None));
    }
}
