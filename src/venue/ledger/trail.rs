//! Where the bytes of a path went: copies, answers, and the conversations that others read.

use super::why::{ANSWER, PathUse};
use crate::domain::ids::SessionKey;
use crate::domain::origin::{is_below, overlap, physical};
use std::collections::BTreeMap;

/// A place that has bytes of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Place {
    /// In full.
    path: String,
    /// Session that made it, `agent/session`, and the turn from which on it has them there.
    since: Option<(String, u64)>,
    /// It has them as a whole: who reads what lies above it has read something else.
    is_whole: bool,
}

impl Place {
    fn has_reached(&self, source: &str, reached: &PathUse) -> bool {
        let is_later = match &self.since {
            Some((session, turn)) if *session == session_of(reached) => reached.turn >= *turn,
            Some(_) | None => true,
        };
        is_later && if self.is_whole { is_below(source, &self.path) } else { overlap(source, &self.path) }
    }
}

/// A path, and the places where its bytes went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ByteTrail {
    path: String,
    places: Vec<Place>,
}

fn session_of(reached: &PathUse) -> String {
    format!("{}/{}", reached.agent, reached.session)
}

impl ByteTrail {
    /// The places of a path, by everything that is known of what was read.
    pub fn new(path: &str, known: &[PathUse]) -> Self {
        let mut trail = Self { path: path.trim_matches('/').to_owned(), places: Vec::new() };
        let mut rest: Vec<&PathUse> = known.iter().collect();
        let mut sessions: BTreeMap<String, u64> = BTreeMap::new();
        loop {
            let (led, others): (Vec<_>, Vec<_>) = rest.into_iter().partition(|reached| trail.leads_to(reached));
            let mut has_grown = false;
            for reached in led {
                has_grown |= trail.grow(reached, &mut sessions);
            }
            rest = others;
            if !has_grown {
                return trail;
            }
        }
    }

    /// Bytes of the path reached a model so, or went on so: from there, or from a place that has them. In the session
    /// that made a copy not before that; in others whenever.
    pub fn leads_to(&self, reached: &PathUse) -> bool {
        reached.source.split(", ").any(|source| overlap(source, &self.path))
            || reached.sources().any(|source| {
                overlap(&source, &self.path) || self.places.iter().any(|place| place.has_reached(&source, reached))
            })
    }

    /// Takes the places in to which bytes went from a use. Returns whether any of them is new.
    fn grow(&mut self, reached: &PathUse, sessions: &mut BTreeMap<String, u64>) -> bool {
        let session = session_of(reached);
        if let Some(into) = &reached.into {
            let path = physical(into, &reached.agent, &reached.session);
            let since = (reached.via != ANSWER && !reached.agent.is_empty()).then_some((session, reached.turn));
            let place = Place { path, since, is_whole: false };
            let is_new = !self.places.contains(&place);
            self.places.extend(is_new.then_some(place));
            return is_new;
        }
        // The model sees the result of a call from the next turn on.
        let turn = reached.turn + u64::from(reached.via.starts_with("tool "));
        let before = sessions.get(&session).copied();
        if before.is_some_and(|before| before <= turn) {
            return false;
        }
        sessions.insert(session.clone(), turn);
        let own = format!("g/{}/sessions/{}", reached.agent, reached.session);
        self.places.retain(|place| place.path != own || place.since.is_none());
        self.places.push(Place { path: own, since: Some((session, turn)), is_whole: true });
        let timeline = Place { path: format!("g/{}/timeline", reached.agent), since: None, is_whole: true };
        if !self.places.contains(&timeline) {
            self.places.push(timeline);
        }
        true
    }

    /// The places as a turn of a session names them, those left out that the session has made in this turn or later.
    pub fn places_in(&self, session: &SessionKey, turn: u64) -> Vec<String> {
        let own = format!("{}/{}", session.agent, session.session);
        let is_before =
            |place: &&Place| place.since.as_ref().is_none_or(|(session, since)| *session != own || *since < turn);
        let notes = format!("g/{}/n/", session.agent);
        let scratch = format!("g/{}/sessions/{}/c/", session.agent, session.session);
        let name = |place: &Place| match (place.path.strip_prefix(&notes), place.path.strip_prefix(&scratch)) {
            (Some(rest), _) => format!("n/{rest}"),
            (None, Some(rest)) => format!("c/{rest}"),
            (None, None) => place.path.clone(),
        };
        self.places.iter().filter(is_before).map(name).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::origin::Seen;

    fn reached(session: &str, turn: u64, via: &str, source: &str, into: Option<&str>) -> PathUse {
        let (agent, session) = session.split_once('/').unwrap();
        let seen = Seen { into: into.map(str::to_owned), ..Seen::new(source) };
        let (agent, session, via) = (agent.to_owned(), session.to_owned(), via.to_owned());
        PathUse {
            agent,
            session,
            turn,
            via,
            removed: None,
            bytes: 1,
            ..PathUse::copy(&seen, crate::domain::time::Millis(0))
        }
    }

    #[test]
    fn a_copy_leads_on_from_when_it_was_made() {
        let copies = vec![
            reached("a/s", 3, "tool t", "w/b", Some("o/c")),
            reached("a/s", 2, "tool t", "w/a", Some("w/b")),
            reached("a/s", 1, "tool t", "w/z", Some("w/y")),
        ];
        let trail = ByteTrail::new("w/a", &copies);
        for (session, turn, source, expected) in [
            ("a/s", 1, "w/a", true),
            ("a/s", 1, "w/b", false),
            ("a/s", 2, "w/b", true),
            ("a/s", 2, "o/c", false),
            ("a/s", 3, "o/c", true),
            ("a/other", 1, "o/c", true),
            ("b/s", 1, "o/c", true),
            ("a/s", 4, "w/y", false),
        ] {
            let found = trail.leads_to(&reached(session, turn, "tool t", source, None));
            assert_eq!(found, expected, "{session} {turn} {source}");
        }
    }

    #[test]
    fn notes_are_those_of_their_agent() {
        let trail = ByteTrail::new("w/a", &[reached("a/s", 1, "tool t", "w/a", Some("n/x"))]);
        assert!(trail.leads_to(&reached("a/other", 1, "context/n", "n/x", None)));
        assert!(!trail.leads_to(&reached("b/s", 1, "context/n", "n/x", None)));
        assert!(trail.leads_to(&reached("b/s", 1, "tool t", "g/a/n/x", None)));
    }

    #[test]
    fn answers_and_conversations_have_what_their_session_saw() {
        let known = [
            reached("child/s", 2, "tool lattice_read", "w/a", None),
            reached("child/s", 2, ANSWER, "g/child/sessions/s", Some("j/1/output")),
            reached("child/s", 3, ANSWER, "g/child/sessions/s", Some("j/2/output")),
            reached("child/other", 9, ANSWER, "g/child/sessions/other", Some("j/3/output")),
            reached("parent/s", 1, "pending/2", "j/2/output", None),
            reached("parent/s", 4, ANSWER, "g/parent/sessions/s", Some("j/4/output")),
        ];
        let trail = ByteTrail::new("w/a", &known);
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
            assert_eq!(trail.leads_to(&reached("x/s", 1, "tool t", source, None)), expected, "{source}");
        }
    }
}
