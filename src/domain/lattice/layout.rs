//! Layout of a collection in documents: a root, and one document per entry or per chunk.
//!
//! | key | holds |
//! |---|---|
//! | `w/<collection>` | a [`Root`], and a scalar itself |
//! | `w.e/<collection>/<generation>/<entry>` | an [`EntryDocument`] of a map |
//! | `w.e/<collection>/<generation>/<number>` | [`CHUNK`] elements of an array |
//! | `w.e/<collection>/<generation>.e/<entry>/<generation>/…` | the same of an entry that is a collection of its own |
//!
//! A large collection is never read or written whole, and an append writes one chunk. Entries that have grown are
//! collections of their own, at any depth, so that changes of different parts don't conflict. Keys contain the root's
//! generation: replacing or deleting a collection begins a new one, and the documents of the old one are garbage out of
//! reach.

use super::path::{Namespace, Path};
use crate::decode;
use crate::ids::{JobId, SessionKey, encode_token};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Elements of an array per document: small enough that an append rewrites little.
pub const CHUNK: u64 = 64;

/// Number of entries above which a map that is an entry is stored in parts from its next partial write on; so is one of
/// at least two entries and more bytes than [`SPLIT_BYTES`]. A record of a few fields stays one document.
pub const SPLIT_ENTRIES: usize = 32;

/// Bytes above which a map that is an entry is stored in parts, see [`SPLIT_ENTRIES`].
pub const SPLIT_BYTES: usize = 8 * 1024;

/// First byte of an entry that is a collection; no JSON begins with it.
const BRANCH: u8 = b'>';

/// Root document of a collection.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Root {
    /// Number of the generation; it grows whenever the collection is replaced.
    #[serde(rename = "gen")]
    pub generation: u64,
    /// Form of the collection.
    #[serde(flatten)]
    pub shape: CollectionShape,
}

/// Form of a collection.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "shape", rename_all = "lowercase")]
pub enum CollectionShape {
    /// A map with one document per entry.
    Map,
    /// An array in chunks of [`CHUNK`] elements.
    Array {
        /// Number of elements.
        len: u64,
    },
    /// A scalar within the root document.
    Leaf {
        /// Value of the scalar.
        value: Value,
    },
}

impl CollectionShape {
    /// Whether the value lies in documents of its own, beside the root.
    pub const fn is_in_parts(&self) -> bool {
        match self {
            Self::Map | Self::Array { .. } => true,
            Self::Leaf { .. } => false,
        }
    }
}

/// Content of the document of a map's entry.
#[derive(Debug, Clone, PartialEq)]
pub enum EntryDocument {
    /// The value of the entry.
    Value(Value),
    /// The root of a collection of its own: a map or an array.
    Branch(Root),
}

impl EntryDocument {
    /// Reads the stored form of an entry.
    pub fn parse(bytes: &[u8]) -> serde_json::Result<Self> {
        match bytes.split_first() {
            Some((&BRANCH, root)) => decode::read_stored(root).map(Self::Branch),
            Some(_) | None => decode::read_stored(bytes).map(Self::Value),
        }
    }
}

/// Whether an entry of `bytes` bytes is stored in parts.
pub fn is_large(value: &Value, bytes: usize) -> bool {
    match value {
        Value::Object(map) => map.len() > SPLIT_ENTRIES || (map.len() > 1 && bytes > SPLIT_BYTES),
        Value::Array(items) => items.len() as u64 > CHUNK,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// Returns the key prefixes of everything under a prefix that ends with `/`: documents, and the entries of roots.
pub fn prefixes_below(prefix: &str) -> [String; 2] {
    [prefix.to_owned(), format!("{}.e/", prefix.trim_end_matches('/'))]
}

/// Returns what is added to the versions of the documents beside an entry's or a chunk's key. Documents of a new
/// generation begin at version 1 again; a version of an older generation must not pass as theirs.
pub fn version_base(key: &str) -> u64 {
    let prefix = key.rsplit_once('/').map_or(key, |(prefix, _)| prefix);
    let is_first = prefix.ends_with("/1") && prefix.matches(".e/").count() == 1;
    // 32 bits above 20 for counting: the sum is exact as a number of JSON.
    if is_first { 0 } else { u64::from(fnv(prefix)) << 20 }
}

fn fnv(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

/// Agent, session and job to which relative paths under `n/`, `c/` and `t/` belong.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scope {
    /// Session of `n/` and `c/`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionKey>,
    /// Job of `t/`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<JobId>,
}

/// Position of a collection's documents: parts of their keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Collection {
    base: String,
    name: String,
    is_branch: bool,
}

/// Returns the key prefix of a namespace; `None` when it has no documents of its own, or when the scope has no agent,
/// session or job for it.
pub fn base_key(namespace: Namespace, scope: &Scope) -> Option<String> {
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
    /// Returns the collection that holds `path`, and the segments below it.
    pub fn locate<'p>(path: &'p Path, scope: &Scope) -> Option<(Self, &'p [String])> {
        let (name, rest) = path.segments().split_first()?;
        let base = base_key(path.namespace(), scope)?;
        Some((Self { base, name: encode_token(name), is_branch: false }, rest))
    }

    /// Returns the entry of this name as a collection of its own.
    #[must_use]
    pub fn branch(&self, generation: u64, name: &str) -> Self {
        let base = format!("{}.e/{}/{generation}", self.base, self.name);
        Self { base, name: encode_token(name), is_branch: true }
    }

    /// Whether it is the entry of another collection.
    pub const fn is_branch(&self) -> bool {
        self.is_branch
    }

    /// Returns the stored form of its root.
    pub fn encode(&self, root: &Root) -> Vec<u8> {
        let mut bytes = if self.is_branch { vec![BRANCH] } else { Vec::new() };
        serde_json::to_writer(&mut bytes, root).expect("roots serialise");
        bytes
    }

    /// Returns the key of the root document.
    pub fn root_key(&self) -> String {
        format!("{}/{}", self.base, self.name)
    }

    /// Returns the key prefix of the entries of a generation.
    pub fn entries_prefix(&self, generation: u64) -> String {
        format!("{}.e/{}/{generation}/", self.base, self.name)
    }

    /// Returns the key of a map's entry.
    pub fn entry_key(&self, generation: u64, name: &str) -> String {
        format!("{}{}", self.entries_prefix(generation), encode_token(name))
    }

    /// Returns the key of the chunk that holds the element `index`.
    pub fn chunk_key(&self, generation: u64, index: u64) -> String {
        format!("{}{:016}", self.entries_prefix(generation), index / CHUNK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn keys_and_roots_are_pinned() {
        let path = Path::parse("w/vendor records/acme/name").unwrap();
        let (collection, rest) = Collection::locate(&path, &Scope::default()).unwrap();
        assert_eq!(collection.root_key(), "w/vendor%20records");
        assert_eq!(collection.entry_key(3, "acme"), "w.e/vendor%20records/3/acme");
        assert_eq!(collection.chunk_key(3, 130), "w.e/vendor%20records/3/0000000000000002");
        assert_eq!(rest, ["acme", "name"]);
        let root = Root { generation: 1, shape: CollectionShape::Array { len: 2 } };
        assert_eq!(serde_json::to_string(&root).unwrap(), r#"{"gen":1,"shape":"array","len":2}"#);
    }

    #[test]
    fn versions_of_generations_differ() {
        assert_eq!(version_base("w.e/records/1/acme"), 0);
        let keys =
            ["w.e/records/2/acme", "w.e/records/3/acme", "w.e/s/1.e/10/1/x", "w.e/s/1.e/10/2/x", "w.e/s/2.e/10/1/x"];
        let mut bases: Vec<_> = keys.into_iter().map(version_base).collect();
        assert!(bases.iter().all(|base| (1 << 20..1 << 52).contains(base)), "{bases:?}");
        bases.sort_unstable();
        bases.dedup();
        assert_eq!(bases.len(), keys.len());
    }

    #[test]
    fn a_branch_lies_beside_the_entries_that_it_is_one_of() {
        let path = Path::parse("w/s/a.b/c").unwrap();
        let (collection, _) = Collection::locate(&path, &Scope::default()).unwrap();
        let branch = collection.branch(3, "a.b");
        assert_eq!(branch.root_key(), collection.entry_key(3, "a.b"));
        assert_eq!(branch.entry_key(8, "c"), "w.e/s/3.e/a%2Eb/8/c");
        assert_eq!(branch.branch(8, "c").entry_key(1, "d"), "w.e/s/3.e/a%2Eb/8.e/c/1/d");
        let all = prefixes_below(&collection.entries_prefix(3));
        assert_eq!(all, ["w.e/s/3/", "w.e/s/3.e/"]);
        assert!(branch.branch(8, "c").entry_key(1, "d").starts_with(&all[1]));
        assert!(
            !collection.entry_key(30, "x").starts_with(&all[0]) && !collection.entry_key(30, "x").starts_with(&all[1])
        );
    }

    #[test]
    fn an_entry_is_its_value_or_the_root_of_its_own() {
        let path = Path::parse("w/s/a").unwrap();
        let (collection, _) = Collection::locate(&path, &Scope::default()).unwrap();
        let root = Root { generation: 2, shape: CollectionShape::Map };
        let bytes = collection.branch(1, "a").encode(&root);
        assert_eq!(std::str::from_utf8(&bytes).unwrap(), r#">{"gen":2,"shape":"map"}"#);
        assert_eq!(EntryDocument::parse(&bytes).unwrap(), EntryDocument::Branch(root.clone()));
        assert_eq!(collection.encode(&root), br#"{"gen":2,"shape":"map"}"#);
        // What a user writes is never taken for a root.
        for value in [json!(">{\"gen\":2,\"shape\":\"map\"}"), json!({"gen": 2, "shape": "map"}), json!(null)] {
            let bytes = serde_json::to_vec(&value).unwrap();
            assert_eq!(EntryDocument::parse(&bytes).unwrap(), EntryDocument::Value(value));
        }
        assert!(
            EntryDocument::parse(b"").is_err()
                && EntryDocument::parse(b">").is_err()
                && EntryDocument::parse(b">1").is_err()
        );
    }

    #[test]
    fn large_values_are_kept_in_parts() {
        let map = |entries: usize| Value::Object((0..entries).map(|n| (n.to_string(), json!(n))).collect());
        let cases = [
            (map(32), 500, false),
            (map(33), 500, true),
            (map(2), 8193, true),
            (map(2), 8192, false),
            (map(1), 100_000, false),
            (Value::Array(vec![json!(1); 64]), 100_000, false),
            (Value::Array(vec![json!(1); 65]), 200, true),
            (json!("text"), 100_000, false),
        ];
        for (value, bytes, large) in cases {
            assert_eq!(is_large(&value, bytes), large, "{bytes} {value}");
        }
    }

    #[test]
    fn relative_namespaces_need_their_scope() {
        let scope = Scope::default();
        for path in ["n/x", "c/x", "t/x", "g/x", "v/x"] {
            assert_eq!(Collection::locate(&Path::parse(path).unwrap(), &scope), None, "{path}");
        }
        let session = SessionKey { agent: "a".parse().unwrap(), session: "s".parse().unwrap() };
        let scope = Scope { session: Some(session), job: None };
        let path = Path::parse("c/x").unwrap();
        assert_eq!(Collection::locate(&path, &scope).unwrap().0.root_key(), "g/a/c/s/x");
    }
}
