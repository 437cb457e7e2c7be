//! How a collection lies in documents: a root, and one document per entry or per chunk.
//!
//! `w/<collection>` is the root. A map has one document per entry, so that a large collection is
//! never read or written whole; an array is chunked, so that an append touches one chunk; anything
//! else lies in the root. Entry keys carry the root's generation: replacing or deleting the
//! collection makes a new one, and the old entries are garbage that nobody can reach.

use super::path::{Namespace, Path};
use crate::ids::{JobId, SessionKey, encode_token};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Elements of an array per document: small enough that an append rewrites little.
pub const CHUNK: u64 = 64;

/// Root document of a collection.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Root {
    /// Grows whenever the collection is replaced.
    #[serde(rename = "gen")]
    pub generation: u64,
    /// What it is.
    #[serde(flatten)]
    pub shape: Shape,
}

/// What a collection is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "shape", rename_all = "lowercase")]
pub enum Shape {
    /// One document per entry.
    Map,
    /// Chunks of [`CHUNK`] elements.
    Array {
        /// Elements.
        len: u64,
    },
    /// The value itself.
    Leaf {
        /// A scalar.
        value: Value,
    },
}

/// Whose `n/`, `c/` and `t/` a relative path means.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Scope {
    /// `n/` and `c/`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionKey>,
    /// `t/`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<JobId>,
}

/// Where a collection's documents lie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Collection {
    base: String,
    name: String,
}

/// Key prefix of a namespace; `None` when it has no documents of its own, or there is no agent,
/// session or job to which it could belong.
pub fn base(namespace: Namespace, scope: &Scope) -> Option<String> {
    let session = scope.session.as_ref();
    match namespace {
        Namespace::Workspace => Some("w".into()),
        Namespace::Pins => Some("o".into()),
        Namespace::Notes => session.map(|s| format!("g/{}/n", s.agent.token())),
        Namespace::Session => session.map(|s| format!("g/{}/c/{}", s.agent.token(), s.session.token())),
        Namespace::Job => scope.job.as_ref().map(|j| format!("j/{j}/t")),
        Namespace::Agents | Namespace::Jobs | Namespace::Secrets | Namespace::Assets | Namespace::Venue => None,
    }
}

impl Collection {
    /// The collection that `path` lies in, and the segments below it.
    pub fn of<'p>(path: &'p Path, scope: &Scope) -> Option<(Self, &'p [String])> {
        let (name, rest) = path.segments().split_first()?;
        Some((Self { base: base(path.namespace(), scope)?, name: encode_token(name) }, rest))
    }

    /// Key of the root document.
    pub fn root(&self) -> String {
        format!("{}/{}", self.base, self.name)
    }

    /// Key prefix of the entries of a generation.
    pub fn entries(&self, generation: u64) -> String {
        format!("{}.e/{}/{generation}/", self.base, self.name)
    }

    /// Key of a map entry.
    pub fn entry(&self, generation: u64, name: &str) -> String {
        format!("{}{}", self.entries(generation), encode_token(name))
    }

    /// Key of the chunk that holds element `index`.
    pub fn chunk(&self, generation: u64, index: u64) -> String {
        format!("{}{:016}", self.entries(generation), index / CHUNK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_roots_are_pinned() {
        let path = Path::parse("w/vendor records/acme/name").unwrap();
        let (collection, rest) = Collection::of(&path, &Scope::default()).unwrap();
        assert_eq!(collection.root(), "w/vendor%20records");
        assert_eq!(collection.entry(3, "acme"), "w.e/vendor%20records/3/acme");
        assert_eq!(collection.chunk(3, 130), "w.e/vendor%20records/3/0000000000000002");
        assert_eq!(rest, ["acme", "name"]);
        let root = Root { generation: 1, shape: Shape::Array { len: 2 } };
        assert_eq!(serde_json::to_string(&root).unwrap(), r#"{"gen":1,"shape":"array","len":2}"#);
    }

    #[test]
    fn relative_namespaces_need_their_scope() {
        let scope = Scope::default();
        for path in ["n/x", "c/x", "t/x", "g/x", "v/x"] {
            assert_eq!(Collection::of(&Path::parse(path).unwrap(), &scope), None, "{path}");
        }
        let session = SessionKey { agent: "a".parse().unwrap(), session: "s".parse().unwrap() };
        let scope = Scope { session: Some(session), job: None };
        let path = Path::parse("c/x").unwrap();
        assert_eq!(Collection::of(&path, &scope).unwrap().0.root(), "g/a/c/s/x");
    }
}
