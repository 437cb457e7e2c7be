//! Trails of bytes: the copies, answers and conversations to which the bytes of a path went.

use super::path_uses::{ANSWER, PathUse};
use crate::domain::ids::SessionKey;
use crate::domain::origin::{ancestors, full_path, overlap};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Recorded reads that one search covers: about 50 MB.
pub const TRAIL_USES: usize = 100_000;

/// Places to which one search follows copies.
pub const TRAIL_PLACES: usize = 10_000;

/// A place that has bytes of a path.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct TrailPlace {
    /// The full path of the place.
    path: String,
    /// The session that made the place, `agent/session`, and the turn from which on it has the bytes; `None` if every
    /// reader finds them: a job's answer is written once, and a copy that a caller made belongs to no turn.
    since: Option<(String, u64)>,
    /// Whether only the whole place has the bytes: a read of what lies above it has read something else.
    is_whole: bool,
}

impl TrailPlace {
    /// Whether the place had the bytes when a use read it. That depends on the turn only in the session that made the
    /// place.
    fn has_bytes_for(&self, path_use: &PathUse) -> bool {
        match &self.since {
            Some((session, turn)) if is_by_session(path_use, session) => path_use.turn >= *turn,
            Some(_) | None => true,
        }
    }
}

/// Whether a use is by a session, `agent/session`.
fn is_by_session(path_use: &PathUse, session: &str) -> bool {
    session.split_once('/').is_some_and(|(agent, id)| agent == path_use.agent && id == path_use.session)
}

/// Returns the session of a use as `agent/session`.
fn session_of(path_use: &PathUse) -> String {
    format!("{}/{}", path_use.agent, path_use.session)
}

/// Uses by the paths that they read, so that a trail looks only at those of its places.
#[derive(Debug)]
pub struct UseIndex<'u> {
    uses: &'u [PathUse],
    /// Indices into `uses`, by the full path of a source.
    by_source: BTreeMap<String, Vec<usize>>,
}

impl<'u> UseIndex<'u> {
    /// Builds the index of these uses.
    pub fn new(uses: &'u [PathUse]) -> Self {
        let mut by_source = BTreeMap::<String, Vec<usize>>::new();
        for (number, path_use) in uses.iter().enumerate() {
            for source in path_use.sources() {
                by_source.entry(source).or_default().push(number);
            }
        }
        Self { uses, by_source }
    }

    /// Returns the trail of a path: the uses by which its bytes reached a model or went on, from the path or from a
    /// place that has them.
    pub fn trail(&self, path: &str) -> ByteTrail {
        let path = path.trim_matches('/');
        let mut search = TrailSearch::new(self.uses.len());
        for (number, path_use) in self.uses.iter().enumerate() {
            let is_its = |source: &str| overlap(source, path);
            if path_use.source.split(", ").any(is_its) || path_use.sources().any(|source| is_its(&source)) {
                search.add(number);
            }
        }
        while let Some(number) = search.queue.pop_front() {
            let Some(path_use) = self.uses.get(number) else { continue };
            for place in search.trail.add_places(path_use) {
                self.add_readers(&place, &mut search);
            }
        }
        search.trail
    }

    /// Adds the uses that read a place to the trail.
    fn add_readers(&self, place: &TrailPlace, search: &mut TrailSearch) {
        let own = self.by_source.get(&place.path).into_iter();
        let below_it = format!("{}/", place.path);
        let below = self.by_source.range(below_it.clone()..).take_while(|(source, _)| source.starts_with(&below_it));
        let above = ancestors(&place.path).filter(|_| !place.is_whole).filter_map(|path| self.by_source.get(path));
        for number in own.chain(below.map(|(_, numbers)| numbers)).chain(above).flatten() {
            let is_new = search.trail.carries.get(*number).is_some_and(|carries| !carries);
            if is_new && self.uses.get(*number).is_some_and(|path_use| place.has_bytes_for(path_use)) {
                search.add(*number);
            }
        }
    }
}

/// A trail while it is computed.
struct TrailSearch {
    trail: ByteTrail,
    /// Indices of uses whose places are not known yet.
    queue: VecDeque<usize>,
}

impl TrailSearch {
    fn new(uses: usize) -> Self {
        Self { trail: ByteTrail { carries: vec![false; uses], ..ByteTrail::default() }, queue: VecDeque::new() }
    }

    fn add(&mut self, number: usize) {
        if let Some(carries) = self.trail.carries.get_mut(number).filter(|carries| !**carries) {
            *carries = true;
            self.queue.push_back(number);
        }
    }
}

/// The places to which the bytes of a path went, and the uses that show it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ByteTrail {
    copies: BTreeSet<TrailPlace>,
    /// By `agent/session`, the turn from which on the conversation has the bytes.
    sessions: BTreeMap<String, u64>,
    timelines: BTreeSet<String>,
    /// For each use, whether it carried bytes of the path.
    carries: Vec<bool>,
    is_cut: bool,
}

impl ByteTrail {
    /// Whether there are copies beyond [`TRAIL_PLACES`] that were not followed.
    pub const fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Returns those of the uses of the index that carried bytes of the path.
    pub fn select(&self, uses: Vec<PathUse>) -> Vec<PathUse> {
        uses.into_iter().zip(&self.carries).filter(|(_, carries)| **carries).map(|(path_use, _)| path_use).collect()
    }

    /// Adds the places to which bytes went by a use: its copy, else its conversation and the timeline of its agent.
    /// Returns the new ones.
    fn add_places(&mut self, path_use: &PathUse) -> Vec<TrailPlace> {
        let session = session_of(path_use);
        if let Some(into) = &path_use.into {
            let path = full_path(into, &path_use.agent, &path_use.session);
            let since = (path_use.via != ANSWER && !path_use.agent.is_empty()).then_some((session, path_use.turn));
            return self.add_copy(TrailPlace { path, since, is_whole: false });
        }
        // The model sees the result of a call from the next turn on.
        let turn = path_use.turn + u64::from(path_use.via.starts_with("tool "));
        if self.sessions.get(&session).is_some_and(|before| *before <= turn) {
            return Vec::new();
        }
        self.sessions.insert(session.clone(), turn);
        let mut new = vec![conversation_place(&session, turn)];
        if self.timelines.insert(path_use.agent.clone()) {
            new.push(timeline_place(&path_use.agent));
        }
        new
    }

    fn add_copy(&mut self, place: TrailPlace) -> Vec<TrailPlace> {
        if self.copies.contains(&place) {
            return Vec::new();
        }
        if self.copies.len() >= TRAIL_PLACES {
            self.is_cut = true;
            return Vec::new();
        }
        self.copies.insert(place.clone());
        vec![place]
    }

    /// Returns the places as a turn of a session names them (`n/…` and `c/…` for its own notes and scratch space), without
    /// those that the session has made in this turn or later.
    pub fn places_in(&self, session: &SessionKey, turn: u64) -> Vec<String> {
        let own = format!("{}/{}", session.agent, session.session);
        let is_before =
            |place: &TrailPlace| place.since.as_ref().is_none_or(|(session, since)| *session != own || *since < turn);
        let notes = format!("g/{}/n/", session.agent);
        let scratch = format!("g/{}/sessions/{}/c/", session.agent, session.session);
        let name = |place: TrailPlace| match (place.path.strip_prefix(&notes), place.path.strip_prefix(&scratch)) {
            (Some(rest), _) => format!("n/{rest}"),
            (None, Some(rest)) => format!("c/{rest}"),
            (None, None) => place.path,
        };
        let conversations = self.sessions.iter().map(|(session, turn)| conversation_place(session, *turn));
        let timelines = self.timelines.iter().map(String::as_str).map(timeline_place);
        self.copies.iter().cloned().chain(conversations).chain(timelines).filter(is_before).map(name).collect()
    }
}

/// Returns the place of the turns of a session, `agent/session`.
fn conversation_place(session: &str, turn: u64) -> TrailPlace {
    let (agent, id) = session.split_once('/').unwrap_or((session, ""));
    TrailPlace { path: format!("g/{agent}/sessions/{id}"), since: Some((session.to_owned(), turn)), is_whole: true }
}

fn timeline_place(agent: &str) -> TrailPlace {
    TrailPlace { path: format!("g/{agent}/timeline"), since: None, is_whole: true }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::origin::SourceRead;

    fn path_use(session: &str, turn: u64, via: &str, source: &str, into: Option<&str>) -> PathUse {
        let (agent, session) = session.split_once('/').unwrap();
        let seen = SourceRead { into: into.map(str::to_owned), ..SourceRead::new(source) };
        let (agent, session, via) = (agent.to_owned(), session.to_owned(), via.to_owned());
        PathUse {
            agent,
            session,
            turn,
            via,
            removed: None,
            bytes: 1,
            ..PathUse::outside_copy(&seen, crate::domain::time::Millis(0))
        }
    }

    fn trail(path: &str, known: &[PathUse]) -> ByteTrail {
        UseIndex::new(known).trail(path)
    }

    /// Whether bytes of a path reached a use, by what else is known.
    fn leads_to(path: &str, known: &[PathUse], path_use: PathUse) -> bool {
        let all: Vec<_> = known.iter().cloned().chain([path_use]).collect();
        trail(path, &all).carries.last().copied().unwrap()
    }

    #[test]
    fn a_copy_leads_on_from_when_it_was_made() {
        let copies = [
            path_use("a/s", 3, "tool t", "w/b", Some("o/c")),
            path_use("a/s", 2, "tool t", "w/a", Some("w/b")),
            path_use("a/s", 1, "tool t", "w/z", Some("w/y")),
        ];
        for (session, turn, source, expected) in [
            ("a/s", 1, "w/a", true),
            ("a/s", 1, "w/b", false),
            ("a/s", 2, "w/b", true),
            ("a/s", 2, "o/c", false),
            ("a/s", 3, "o/c", true),
            ("a/s", 3, "o", true),
            ("a/s", 3, "o/c/below", true),
            ("a/s", 3, "o/c-other", false),
            ("a/other", 1, "o/c", true),
            ("b/s", 1, "o/c", true),
            ("a/s", 4, "w/y", false),
        ] {
            let found = leads_to("w/a", &copies, path_use(session, turn, "tool t", source, None));
            assert_eq!(found, expected, "{session} {turn} {source}");
        }
    }

    #[test]
    fn notes_are_those_of_their_agent() {
        let known = [path_use("a/s", 1, "tool t", "w/a", Some("n/x"))];
        assert!(leads_to("w/a", &known, path_use("a/other", 1, "context/n", "n/x", None)));
        assert!(!leads_to("w/a", &known, path_use("b/s", 1, "context/n", "n/x", None)));
        assert!(leads_to("w/a", &known, path_use("b/s", 1, "tool t", "g/a/n/x", None)));
    }

    #[test]
    fn answers_and_conversations_have_what_their_session_saw() {
        let known = [
            path_use("child/s", 2, "tool lattice_read", "w/a", None),
            path_use("child/s", 2, ANSWER, "g/child/sessions/s", Some("j/1/output")),
            path_use("child/s", 3, ANSWER, "g/child/sessions/s", Some("j/2/output")),
            path_use("child/other", 9, ANSWER, "g/child/sessions/other", Some("j/3/output")),
            path_use("parent/s", 1, "pending/2", "j/2/output", None),
            path_use("parent/s", 4, ANSWER, "g/parent/sessions/s", Some("j/4/output")),
        ];
        for (source, expected) in [
            ("j/1/output", false),
            ("j/2/output", true),
            ("j/2", true),
            ("j/3/output", false),
            ("j/4/output", true),
            ("g/child/timeline", true),
            ("g/child/timeline/0", true),
            ("g/child/sessions/s", true),
            ("g/child/sessions/other", false),
            ("g/child", false),
            ("g/child/n/x", false),
        ] {
            assert_eq!(leads_to("w/a", &known, path_use("x/s", 1, "tool t", source, None)), expected, "{source}");
        }
    }

    #[test]
    fn a_conversation_is_followed_from_its_earliest_knowledge() {
        let known = [
            path_use("a/s", 5, "context/w/a", "w/a", None),
            path_use("b/s", 1, "tool t", "w/a", Some("w/late")),
            path_use("a/s", 2, "context/w/late", "w/late", None),
            path_use("a/s", 3, ANSWER, "g/a/sessions/s", Some("j/1/output")),
        ];
        assert!(leads_to("w/a", &known, path_use("x/s", 1, "tool t", "j/1/output", None)));
        assert!(!leads_to("w/a", &known[..1], path_use("a/s", 3, "tool t", "g/a/sessions/s", None)));
    }

    #[test]
    fn copies_are_followed_to_a_bounded_number_of_places() {
        let copy = |n: usize| path_use("a/s", 1, "tool t", "w/a", Some(&format!("w/b/{n}")));
        let many: Vec<_> = (0..TRAIL_PLACES + 5).map(copy).collect();
        let followed = trail("w/a", &many);
        assert!(followed.is_cut() && followed.copies.len() == TRAIL_PLACES);
        assert_eq!(followed.select(many.clone()).len(), many.len(), "the copies themselves were read from the path");
        assert!(!trail("w/a", &many[..TRAIL_PLACES]).is_cut());
    }

    #[test]
    fn a_long_chain_of_copies_is_followed_to_its_end() {
        let step = |n: usize| path_use("a/s", 1, "tool t", &format!("w/{n}/x"), Some(&format!("w/{}/x", n + 1)));
        let mut chain: Vec<_> = (0..TRAIL_PLACES - 1).map(step).collect();
        chain.reverse();
        let end = format!("w/{}", TRAIL_PLACES - 1);
        assert!(leads_to("w/0", &chain, path_use("a/s", 1, "tool t", &end, None)));
    }
}
