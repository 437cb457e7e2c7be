//! Where a piece of context came from: what was read for it, in which version, by which right.

use serde::{Deserialize, Serialize};

/// Something of the owner's that was read. Written where it is read; the ledger, `why` and experiments
/// know of reads by nothing else.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Seen {
    /// The path: `w/…`, `j/<job>`, `a/<hash>`, `g/<agent>`, `r/<namespace>`, ….
    pub path: String,
    /// Version of the document that holds it; of what the venue keeps there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
    /// Operation or tool that read it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub through: String,
    /// The capability that allowed it; absent where nothing is bounded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed: Option<String>,
    /// Where its bytes went, when they were copied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub into: Option<String>,
}

/// A path, and where these reads say that its bytes were copied to. The earlier ones first.
pub fn with_copies<'s>(path: &str, reads: impl IntoIterator<Item = &'s Seen>) -> Vec<String> {
    let mut places = vec![path.to_owned()];
    for seen in reads {
        let Some(into) = &seen.into else { continue };
        if places.iter().any(|place| overlap(&seen.path, place)) && !places.contains(into) {
            places.push(into.clone());
        }
    }
    places
}

impl Seen {
    /// A read of a path.
    pub fn new(path: impl Into<String>) -> Self {
        Self { path: path.into(), version: None, through: String::new(), allowed: None, into: None }
    }
}

/// What is known of a piece's origin besides its source.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Origin {
    /// Version of the document at its source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
    /// SHA-256 of what was there: of a text its bytes, of anything else its canonical JSON. Of resources
    /// none is kept: it would outlive an erasure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hash: Option<String>,
    /// What an operation read for it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reads: Vec<Seen>,
}

impl Origin {
    /// Nothing is known.
    pub fn is_unknown(&self) -> bool {
        *self == Self::default()
    }
}

/// Reads that a text on its way to somebody else keeps.
const SOURCES: usize = 200;

/// What was read, for somebody else: places without the rights by which they were read, each once. Of
/// more than so many no more than the namespaces.
pub fn sources(reads: &[Seen]) -> Vec<Seen> {
    let once = |mut seen: Vec<Seen>| {
        seen.sort();
        seen.dedup();
        seen
    };
    let places = once(reads.iter().map(|seen| Seen { into: seen.into.clone(), ..Seen::new(&seen.path) }).collect());
    if places.len() <= SOURCES {
        return places;
    }
    let top = |path: &str| path.split('/').next().unwrap_or_default().to_owned();
    once(places.iter().map(|seen| Seen::new(top(&seen.path))).collect())
}

/// A path in full: `n/`, `c/` and `t/` are those of an agent and a session. Without an agent it stays.
pub fn physical(path: &str, agent: &str, session: &str) -> String {
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

/// One of two paths is the other, or lies below it.
pub fn overlap(a: &str, b: &str) -> bool {
    is_below(a, b) || is_below(b, a)
}

/// A path is another, or lies below it.
pub fn is_below(path: &str, above: &str) -> bool {
    let (path, above) = (path.trim_matches('/'), above.trim_matches('/'));
    path.strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_of_a_text_that_is_handed_on_are_bounded() {
        let read = |at: usize| Seen { version: Some(3), allowed: Some("x".into()), ..Seen::new(format!("w/{at}")) };
        let reads: Vec<Seen> = [1, 2, 1].map(read).into();
        assert_eq!(sources(&reads), [Seen::new("w/1"), Seen::new("w/2")]);
        let many: Vec<Seen> = (0..1_000).map(read).collect();
        assert_eq!(sources(&many), [Seen::new("w")], "and `w/7` overlaps it");
    }

    #[test]
    fn a_path_has_the_copies_that_were_made_of_it() {
        let read = |path: &str, into: Option<&str>| Seen { into: into.map(str::to_owned), ..Seen::new(path) };
        let reads = [read("w/a", Some("w/b")), read("w/b/1", Some("w/c")), read("w/d", Some("w/e")), read("w/b", None)];
        assert_eq!(with_copies("w/a/x", &reads), ["w/a/x", "w/b", "w/c"]);
        assert_eq!(with_copies("w/e", &reads), ["w/e"]);
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
