//! The stable prefix of a session's prompts: the part that a provider's cache keeps from one model call to the next.
//!
//! A piece of context stays where a prompt of the session first showed it with the same bytes. A change costs
//! everything behind its old place, once; a piece that changes again moves behind everything that stays.
//!
//! ```text
//! Front ──changed──▶ Turn(now) ──changed──▶ Tail
//!   ▲                    │                    │
//!   └── rebuilt, unchanged since the last prompt ◀──┘
//! ```

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::num::ParseIntError;

/// Place of a piece of context in a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PiecePlace {
    /// Before the transcript.
    Front,
    /// In the transcript, behind the events of the turn with this number, which was the first to show it.
    Turn(u64),
    /// Behind everything that stays.
    Tail,
}

/// A piece of context as a prompt shows it. It is stored as a short text, because every commit writes all pieces of a
/// session: `HASH` in the front, `HASH@5` in the fifth turn, `HASH@` in the tail.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PlacedPiece {
    /// Short hash of its bytes.
    pub hash: String,
    /// Place of the piece.
    pub place: PiecePlace,
}

impl From<PlacedPiece> for String {
    fn from(PlacedPiece { hash, place }: PlacedPiece) -> Self {
        match place {
            PiecePlace::Front => hash,
            PiecePlace::Turn(turn) => format!("{hash}@{turn}"),
            PiecePlace::Tail => format!("{hash}@"),
        }
    }
}

impl TryFrom<String> for PlacedPiece {
    type Error = ParseIntError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let (hash, place) = match text.split_once('@') {
            None => (text.as_str(), PiecePlace::Front),
            Some((hash, "")) => (hash, PiecePlace::Tail),
            Some((hash, turn)) => (hash, PiecePlace::Turn(turn.parse()?)),
        };
        Ok(Self { hash: hash.to_owned(), place })
    }
}

/// Stable part of the last prompt of a session's goal frame.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct StablePrefix {
    /// Hash of the parts that come before all pieces of context: model, tools, system prompt, and the text before the
    /// turns. A change of it breaks the prefix.
    pub basis: String,
    /// Number of the first turn shown; 0 without turns.
    #[serde(default)]
    pub from: u64,
    /// Pieces of context by key.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub pieces: BTreeMap<String, PlacedPiece>,
}

/// A prompt whose pieces of context have no places yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnplacedPrompt {
    /// Same hash as [`StablePrefix::basis`].
    pub basis: String,
    /// Same number as [`StablePrefix::from`].
    pub from: u64,
    /// Number of the turn of the prompt.
    pub turn: u64,
    /// Key and hash of every piece.
    pub pieces: Vec<(String, String)>,
}

impl StablePrefix {
    /// Whether a provider's cache of the prompt before serves this one: the front is the same, and so is every piece in
    /// it.
    pub fn continues(&self, before: &Self) -> bool {
        let is_front = |piece: &&PlacedPiece| piece.place == PiecePlace::Front;
        let mut front = before.pieces.iter().filter(|(_, piece)| is_front(piece));
        let starts_there = before.from == 0 || before.from == self.from;
        before.basis == self.basis && starts_there && front.all(|(key, piece)| self.pieces.get(key) == Some(piece))
    }

    /// Returns the stable prefix of the next prompt. Pieces keep their places as long as the front stays the same; when
    /// the front changes, all pieces that haven't changed after the last prompt move to it.
    pub fn for_next_prompt(before: Option<&Self>, now: UnplacedPrompt, is_shown: impl Fn(u64) -> bool) -> Self {
        let UnplacedPrompt { basis, from, turn, pieces } = now;
        let hash_of = |key: &str| pieces.iter().find(|(known, _)| known == key).map(|(_, hash)| hash);
        let stands = |(key, piece): (&String, &PlacedPiece)| match piece.place {
            PiecePlace::Front => hash_of(key) == Some(&piece.hash),
            PiecePlace::Turn(turn) => is_shown(turn),
            PiecePlace::Tail => true,
        };
        let keeps = |before: &Self| {
            let starts_there = before.from == 0 || before.from == from;
            before.basis == basis && starts_there && before.pieces.iter().all(stands)
        };
        let is_rebuilt = !before.is_some_and(keeps);
        let place = |key: &str, hash: &str| match before.and_then(|before| before.pieces.get(key)) {
            Some(known) if known.hash != hash => match known.place {
                PiecePlace::Front => PiecePlace::Turn(turn),
                PiecePlace::Turn(_) | PiecePlace::Tail => PiecePlace::Tail,
            },
            Some(_) | None if is_rebuilt => PiecePlace::Front,
            Some(known) => known.place,
            None => PiecePlace::Turn(turn),
        };
        let placed = pieces.iter().map(|(key, hash)| {
            let place = place(key, hash);
            (key.clone(), PlacedPiece { hash: hash.clone(), place })
        });
        let pieces = placed.collect();
        Self { basis, from, pieces }
    }

    /// Returns the place of a piece; the tail for an unknown one.
    pub fn place_of(&self, key: &str) -> PiecePlace {
        self.pieces.get(key).map_or(PiecePlace::Tail, |piece| piece.place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prompt(turn: u64, basis: &str, from: u64, pieces: &str) -> UnplacedPrompt {
        let piece = |word: &str| {
            let (key, hash) = word.split_at(1);
            (key.to_owned(), hash.to_owned())
        };
        let pieces = pieces.split_whitespace().map(piece).collect();
        UnplacedPrompt { basis: basis.into(), from, turn, pieces }
    }

    /// Places after these prompts, each of one turn: `a` key, `1` hash.
    fn check(prompts: &[(&str, u64, &str)], expected: &str) {
        let mut prefix = None;
        for (turn, (basis, from, pieces)) in (1..).zip(prompts) {
            let now = prompt(turn, basis, *from, pieces);
            let from = *from;
            prefix = Some(StablePrefix::for_next_prompt(prefix.as_ref(), now, |shown| shown >= from && shown < turn));
        }
        let place = |(key, piece): (&String, &PlacedPiece)| match piece.place {
            PiecePlace::Front => format!("{key}:front"),
            PiecePlace::Turn(turn) => format!("{key}:{turn}"),
            PiecePlace::Tail => format!("{key}:tail"),
        };
        let places: Vec<_> = prefix.iter().flat_map(|prefix| &prefix.pieces).map(place).collect();
        assert_eq!(places.join(" "), expected, "{prompts:?}");
    }

    #[test]
    fn pieces_stay_where_they_were_first_shown() {
        check(&[("x", 0, "a1 b1")], "a:front b:front");
        check(&[("x", 0, "a1 b1"), ("x", 1, "a1 b1"), ("x", 1, "a1 b1")], "a:front b:front");
        // One that comes later stands where it came.
        check(&[("x", 0, "a1"), ("x", 1, "a1 b1"), ("x", 1, "a1 b1")], "a:front b:2");
        // A change takes it out of the front, and the others with it into a new one.
        check(&[("x", 0, "a1 b1"), ("x", 1, "a1 b2")], "a:front b:2");
        check(&[("x", 0, "a1"), ("x", 1, "a1 b1"), ("x", 1, "a2 b1")], "a:3 b:front");
        // What changes again is volatile.
        check(&[("x", 0, "a1"), ("x", 1, "a2"), ("x", 1, "a3")], "a:tail");
        check(&[("x", 0, "a1"), ("x", 1, "a2"), ("x", 1, "a3"), ("x", 1, "a3")], "a:tail");
        check(&[("x", 0, "a1"), ("x", 1, "a1 b1"), ("x", 1, "a1 b2")], "a:front b:tail");
        // One that leaves breaks the front as well.
        check(&[("x", 0, "a1 c1"), ("x", 1, "a1 b1 c1"), ("x", 1, "a1 b1")], "a:front b:front");
    }

    #[test]
    fn a_place_is_written_in_a_few_bytes() {
        for (place, text) in
            [(PiecePlace::Front, "\"1f\""), (PiecePlace::Turn(12), "\"1f@12\""), (PiecePlace::Tail, "\"1f@\"")]
        {
            let piece = PlacedPiece { hash: "1f".into(), place };
            assert_eq!(serde_json::to_string(&piece).unwrap(), text);
            assert_eq!(serde_json::from_str::<PlacedPiece>(text).unwrap(), piece);
        }
        assert!(serde_json::from_str::<PlacedPiece>("\"1f@x\"").is_err());
    }

    #[test]
    fn the_front_is_rebuilt_when_it_breaks_anyway() {
        let volatile = [("x", 0, "a1 b1"), ("x", 1, "a2 b1"), ("x", 1, "a3 b1 c1")];
        check(&volatile, "a:tail b:front c:3");
        // Another configuration; the oldest turns have left, and then the one where a piece stood.
        for next in [("y", 1, "a3 b1 c1"), ("x", 3, "a3 b1 c1"), ("x", 4, "a3 b1 c1")] {
            let prompts = [volatile.as_slice(), &[next]].concat();
            check(&prompts, "a:front b:front c:front");
            let changes = [volatile.as_slice(), &[(next.0, next.1, "a4 b1 c1")]].concat();
            check(&changes, "a:tail b:front c:front");
        }
    }
}
