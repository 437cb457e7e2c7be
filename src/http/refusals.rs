//! Connections that are refused: a bounded number at once; the oldest is closed for the next.

use crate::domain::limits::HTTP_REFUSALS;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use tokio_util::sync::CancellationToken;

/// Connections that are being refused, in order of arrival.
#[derive(Default)]
pub(super) struct RefusedConnections(Mutex<RefusalSlots>);

#[derive(Default)]
struct RefusalSlots {
    count: u64,
    taken: BTreeMap<u64, CancellationToken>,
}

/// A place among them, until it is dropped.
pub(super) struct RefusalSlot<'a> {
    refused: &'a RefusedConnections,
    number: u64,
}

impl RefusedConnections {
    /// Takes a place. Returns it with a token that is cancelled when a newer connection takes it: clients that send
    /// nothing keep nobody out, so a health check always gets a place.
    pub(super) fn enter(&self) -> (RefusalSlot<'_>, CancellationToken) {
        let mut places = self.0.lock();
        if places.taken.len() >= HTTP_REFUSALS
            && let Some((_, oldest)) = places.taken.pop_first()
        {
            oldest.cancel();
        }
        places.count += 1;
        let (number, lost) = (places.count, CancellationToken::new());
        places.taken.insert(number, lost.clone());
        (RefusalSlot { refused: self, number }, lost)
    }
}

impl Drop for RefusalSlot<'_> {
    fn drop(&mut self) {
        self.refused.0.lock().taken.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_refusal_makes_room_for_the_next() {
        let refused = RefusedConnections::default();
        let mut all: Vec<_> = (0..HTTP_REFUSALS).map(|_| refused.enter()).collect();
        all.remove(5);
        all.push(refused.enter());
        assert!(all.iter().all(|(_, lost)| !lost.is_cancelled()));
        all.push(refused.enter());
        let lost: Vec<_> = (0..).zip(&all).filter(|(_, (_, lost))| lost.is_cancelled()).map(|(at, _)| at).collect();
        assert_eq!(lost, [0]);
        drop(all);
        assert!(refused.0.lock().taken.is_empty());
    }
}
