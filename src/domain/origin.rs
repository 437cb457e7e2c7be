//! Origin of a piece of context: what was read for it, in which version, by which capability.

use crate::canonical::canonical;
use crate::ids::sha256_hex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeSet;

/// One read of an owner's data. It is recorded at the read; the ledger, `why` and experiments know of reads from these
/// records alone.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SourceRead {
    /// The path: `w/…`, `j/<job>`, `a/<hash>`, `g/<agent>`, `r/<namespace>`, ….
    pub path: String,
    /// Version of the document that holds it; absent for data without a version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
    /// SHA-256 of a value of the tree that is kept in parts with versions of their own: of its canonical JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hash: Option<String>,
    /// Operation or tool that read it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub through: String,
    /// Capability that allowed the read; absent where nothing is limited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed: Option<String>,
    /// Path to which the bytes were copied, if they were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub into: Option<String>,
}

/// A set of paths that finds those which overlap another path.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PathSet(BTreeSet<String>);

impl PathSet {
    /// Adds a path; returns whether it is new.
    pub fn insert(&mut self, path: &str) -> bool {
        self.0.insert(path.trim_matches('/').to_owned())
    }

    /// Whether the set has exactly this path.
    pub fn contains(&self, path: &str) -> bool {
        self.0.contains(path.trim_matches('/'))
    }

    /// Number of paths.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether one of its paths equals this one, or lies above or below it.
    pub fn overlaps(&self, path: &str) -> bool {
        self.find_overlapping(path).next().is_some()
    }

    /// Returns its paths that equal this one, or lie above or below it.
    pub fn find_overlapping<'s>(&'s self, path: &'s str) -> impl Iterator<Item = &'s str> {
        let path = path.trim_matches('/');
        let above = std::iter::once(path).chain(ancestors(path)).filter_map(|path| self.0.get(path));
        let below = self.0.range(format!("{path}/")..).take_while(move |below| is_below(below, path));
        above.chain(below).map(String::as_str)
    }
}

impl<P: AsRef<str>> FromIterator<P> for PathSet {
    fn from_iter<I: IntoIterator<Item = P>>(paths: I) -> Self {
        let mut set = Self::default();
        for path in paths {
            set.insert(path.as_ref());
        }
        set
    }
}

/// Returns the paths above a path, the nearest first.
pub fn ancestors(path: &str) -> impl Iterator<Item = &str> {
    path.rmatch_indices('/').filter_map(|(at, _)| path.get(..at))
}

/// Returns a path with up to `most` places to which these reads copied its bytes, and whether there are more.
pub fn with_copies<'s>(path: &str, reads: impl IntoIterator<Item = &'s SourceRead>, most: usize) -> (PathSet, bool) {
    let mut places = PathSet::from_iter([path]);
    for seen in reads {
        let Some(into) = &seen.into else { continue };
        if !places.overlaps(&seen.path) || places.contains(into) {
            continue;
        }
        if places.len() > most {
            return (places, true);
        }
        places.insert(into);
    }
    (places, false)
}

impl SourceRead {
    /// Makes a read of a path.
    pub fn new(path: impl Into<String>) -> Self {
        Self { path: path.into(), version: None, hash: None, through: String::new(), allowed: None, into: None }
    }
}

/// What tells a value that was read from the same value after a change.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ValueState {
    /// Version of the document that holds the value; `None` if it has none, or lies in several documents.
    pub version: Option<u64>,
    /// Hash of a value that lies in several documents.
    pub hash: Option<String>,
}

/// Hashes the bytes of a text, and the canonical form of any other value.
pub fn content_hash(value: &Value) -> String {
    match value {
        Value::String(text) => sha256_hex(text.as_bytes()),
        value => sha256_hex(&canonical(value)),
    }
}

/// Known origin of a piece of context besides its source.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Origin {
    /// Version of the document at its source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
    /// SHA-256 of the source: of a text its bytes, of any other value its canonical JSON. None is kept for resources:
    /// it would outlive an erasure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hash: Option<String>,
    /// Reads of the operation that made the piece.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reads: Vec<SourceRead>,
}

impl Origin {
    /// Whether the origin is unknown.
    pub fn is_unknown(&self) -> bool {
        *self == Self::default()
    }
}

/// Number of reads that are kept with a text that is sent on.
const SOURCES: usize = 200;

/// Returns the reads for another party: places without the capabilities, each once. Of too many only the namespaces are
/// returned.
pub fn reads_to_hand_on(reads: &[SourceRead]) -> Vec<SourceRead> {
    let once = |mut seen: Vec<SourceRead>| {
        seen.sort();
        seen.dedup();
        seen
    };
    let places =
        once(reads.iter().map(|seen| SourceRead { into: seen.into.clone(), ..SourceRead::new(&seen.path) }).collect());
    if places.len() <= SOURCES {
        return places;
    }
    let top = |path: &str| path.split('/').next().unwrap_or_default().to_owned();
    once(places.iter().map(|seen| SourceRead::new(top(&seen.path))).collect())
}

/// Returns a path in full: `n/`, `c/` and `t/` are those of the agent and the session. Without an agent it stays.
pub fn full_path(path: &str, agent: &str, session: &str) -> String {
    let path = path.trim_matches('/');
    if agent.is_empty() {
        return path.to_owned();
    }
    match path.split('/').next() {
        Some("n") => format!("g/{agent}/{path}"),
        Some("c" | "t") => format!("g/{agent}/sessions/{session}/{path}"),
        Some(_) | None => path.to_owned(),
    }
}

/// Whether one of two paths equals the other, or lies below it.
pub fn overlap(a: &str, b: &str) -> bool {
    is_below(a, b) || is_below(b, a)
}

/// Whether a path equals another, or lies below it.
pub fn is_below(path: &str, above: &str) -> bool {
    let (path, above) = (path.trim_matches('/'), above.trim_matches('/'));
    path.strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_of_a_text_that_is_handed_on_are_bounded() {
        let read = |at: usize| SourceRead {
            version: Some(3),
            allowed: Some("x".into()),
            ..SourceRead::new(format!("w/{at}"))
        };
        let reads: Vec<SourceRead> = [1, 2, 1].map(read).into();
        assert_eq!(reads_to_hand_on(&reads), [SourceRead::new("w/1"), SourceRead::new("w/2")]);
        let many: Vec<SourceRead> = (0..1_000).map(read).collect();
        assert_eq!(reads_to_hand_on(&many), [SourceRead::new("w")], "and `w/7` overlaps it");
    }

    #[test]
    fn a_path_has_the_copies_that_were_made_of_it() {
        let read =
            |path: &str, into: Option<&str>| SourceRead { into: into.map(str::to_owned), ..SourceRead::new(path) };
        let reads = [read("w/a", Some("w/b")), read("w/b/1", Some("w/c")), read("w/d", Some("w/e")), read("w/b", None)];
        let copies = |path, most| with_copies(path, &reads, most);
        assert_eq!(copies("w/a/x", 9), (PathSet::from_iter(["w/a/x", "w/b", "w/c"]), false));
        assert_eq!(copies("w/e", 9), (PathSet::from_iter(["w/e"]), false));
        assert_eq!(copies("w/a/x", 1).0.len(), 2);
    }

    #[test]
    fn copies_of_a_path_are_bounded_and_more_are_told() {
        let reads: Vec<SourceRead> = (0..100)
            .flat_map(|n| [("w/a".to_owned(), "w/b".to_owned()), ("w/b".to_owned(), format!("w/a/x{n}"))])
            .map(|(from, into)| SourceRead { into: Some(into), ..SourceRead::new(from) })
            .collect();
        let (places, is_cut) = with_copies("w/a", &reads, 10);
        assert!(is_cut && places.len() == 11, "{places:?}");
        let (places, is_cut) = with_copies("w/a", &reads, 101);
        assert!(!is_cut && places.len() == 102, "{places:?}");
    }

    #[test]
    fn a_path_set_overlaps_as_its_paths_do() {
        let paths = ["w/a", "w/a-b/c", "w/a/x/y", "j/1/output", "g/k/n"];
        let set = PathSet::from_iter(paths);
        for asked in ["w", "w/a", "w/a/", "w/a/x", "w/a/z", "w/a-b", "w/a-", "w/ab", "j/1", "j/10", "g/k/n/1", "", "x"]
        {
            let expected: BTreeSet<&str> = paths.into_iter().filter(|path| overlap(asked, path)).collect();
            assert_eq!(set.find_overlapping(asked).collect::<BTreeSet<_>>(), expected, "{asked}");
            assert_eq!(set.overlaps(asked), !expected.is_empty(), "{asked}");
        }
    }

    #[test]
    fn paths_overlap_at_above_and_below() {
        for (a, b, expected) in [
            ("w/x", "w/x", true),
            ("w/x/y", "w/x", true),
            ("w", "w/x", true),
            ("w/xy", "w/x", false),
            ("n/x", "w/x", false),
            ("w/x/", "w/x", true),
        ] {
            assert_eq!(overlap(a, b), expected, "{a} {b}");
            assert_eq!(overlap(b, a), expected, "{b} {a}");
        }
    }
}
