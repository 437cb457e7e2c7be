//! The catalogue in the lattice, `v/ops/`: paths of operations.

use super::path::check_segment;
use super::{Namespace, PathRule};
use crate::limits::PUBLISHED_NAME_BYTES;
use crate::visible::quote_foreign;
use std::fmt;
use std::sync::Arc;

/// Path prefix of the catalogue.
pub const OPERATIONS: &str = "v/ops/";

/// Path of the operation that runs another one: `operation` names it, `input` is its input.
pub const RUN: &str = "v/ops/job/run";

/// Path prefix of the tools that an agent's file or a record below `o/` declares: calls of services.
pub const DECLARED: &str = "v/ops/own/";

/// Path prefix of the declared tools that give jobs to external workers.
pub const DECLARED_JOBS: &str = "v/ops/jobs/";

/// Returns the full path of an operation: `lattice/read`, `lattice:read` and `/v/ops/lattice/read` →
/// `v/ops/lattice/read`.
pub fn catalog_path(path: &str) -> String {
    let path = path.trim_matches('/').replace(':', "/");
    if path.starts_with(OPERATIONS) { path } else { format!("{OPERATIONS}{path}") }
}

/// Why a name can't stand in the path of a published operation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("name `{}`: {rule}", quote_foreign(.name))]
pub struct CatalogNameError {
    /// The refused name, cut to a readable length.
    pub name: String,
    /// The rule that it breaks.
    pub rule: CatalogNameRule,
}

/// The rule that the name of a published operation or of its source breaks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CatalogNameRule {
    /// The name breaks a rule of all paths.
    #[error(transparent)]
    Segment(#[from] PathRule),
    /// The name is longer than [`PUBLISHED_NAME_BYTES`].
    #[error("expected at most {PUBLISHED_NAME_BYTES} bytes, got {bytes}")]
    TooLong {
        /// Bytes of the name.
        bytes: usize,
    },
    /// The name has a character that paths of the catalogue don't have.
    #[error("expected letters of ASCII, digits, `-` and `_`, got {found:?}")]
    Character {
        /// The first such character.
        found: char,
    },
    /// The name is that of a namespace: a path without `v/ops/` would have two meanings.
    #[error("the name is that of a namespace, expected another one")]
    Namespace,
}

fn check_name(name: &str) -> Result<(), CatalogNameError> {
    let fail = |rule: CatalogNameRule| CatalogNameError { name: name.chars().take(120).collect(), rule };
    check_segment(name).map_err(|rule| fail(rule.into()))?;
    if name.len() > PUBLISHED_NAME_BYTES {
        return Err(fail(CatalogNameRule::TooLong { bytes: name.len() }));
    }
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    name.chars().find(|c| !is_plain(*c)).map_or(Ok(()), |found| Err(fail(CatalogNameRule::Character { found })))
}

/// Name of a source of published operations, `<source>` of their paths `v/ops/<source>/<name>`; of servers of one kind
/// their group and the name, `mcp/<server>`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceName(Arc<str>);

impl SourceName {
    /// Makes the name of a source.
    ///
    /// # Errors
    /// The name breaks a rule of paths, or has other characters than letters of ASCII, digits, `-` and `_`.
    pub fn new(name: &str) -> Result<Self, CatalogNameError> {
        check_name(name)?;
        if Namespace::ALL.iter().any(|namespace| namespace.prefix() == name) {
            return Err(CatalogNameError { name: name.to_owned(), rule: CatalogNameRule::Namespace });
        }
        Ok(Self(name.into()))
    }

    /// Makes the name of a source whose operations have paths one level deeper, `v/ops/<group>/<source>/<name>`.
    ///
    /// # Errors
    /// A part of the name breaks a rule of such names.
    pub fn in_group(group: &str, name: &str) -> Result<Self, CatalogNameError> {
        check_name(group)?;
        check_name(name)?;
        Ok(Self(format!("{group}/{name}").into()))
    }

    /// Returns the name as it was given.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the segments of the paths of its operations behind `v/ops/`, without the last.
    pub fn segments(&self) -> impl Iterator<Item = &str> {
        self.0.split('/')
    }

    /// Returns the path of an operation of this source.
    ///
    /// # Errors
    /// The operation's name breaks a rule of such names.
    pub fn operation_path(&self, name: &str) -> Result<String, CatalogNameError> {
        check_name(name)?;
        Ok(format!("{OPERATIONS}{self}/{name}"))
    }
}

impl fmt::Display for SourceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Whether an operation is [`RUN`], by its own path or one of Covia's.
pub fn is_run(path: &str) -> bool {
    [RUN, "v/ops/grid/run", "v/ops/grid/invoke"].contains(&path)
}

/// Namespaces in which a value may stand for an operation: pins, the workspace and assets.
const STORED: [&str; 3] = ["o/", "w/", "a/"];

/// Whether a path leads to a value that stands for an operation: a pin `o/<name>`, a definition below `w/`, or an asset
/// `a/<hash>`, each with or without its owner; or the hash of an asset alone.
pub fn is_stored_operation(path: &str) -> bool {
    let plain = strip_owner(path);
    STORED.iter().any(|namespace| plain.starts_with(namespace)) || is_hash(plain)
}

/// Whether a text is 64 hex digits, with or without `0x`.
fn is_hash(text: &str) -> bool {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    digits.len() == 64 && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Returns the path behind `did:…/` or `/tenant/user/`, or behind its first slash.
pub fn strip_owner(path: &str) -> &str {
    let is_namespace = |segment: &str| Namespace::ALL.iter().any(|namespace| namespace.prefix() == segment);
    if path.starts_with("did:") {
        return path.split_once('/').map_or("", |(_, rest)| rest);
    }
    let Some(rest) = path.strip_prefix('/') else { return path };
    let mut parts = rest.splitn(3, '/');
    match (parts.next(), parts.next(), parts.next()) {
        (Some(tenant), Some(_), Some(plain)) if !is_namespace(tenant) => plain,
        _ => rest,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_published_operations_are_plain_segments() {
        let source = SourceName::new("git_hub-2").unwrap();
        assert_eq!(source.operation_path("search_code").unwrap(), "v/ops/git_hub-2/search_code");
        for (name, rule) in [
            ("", "empty segment"),
            ("..", "segment `..` is not allowed"),
            ("a\u{0}", "control characters are not allowed"),
            ("a/b", "expected letters of ASCII, digits, `-` and `_`, got '/'"),
            ("a:b", "got ':'"),
            ("a b", "got ' '"),
            ("\u{fc}", "got '\u{fc}'"),
            (&"x".repeat(65), "expected at most 64 bytes, got 65"),
            (&"x".repeat(300), "a segment has 300 bytes, expected at most 256"),
        ] {
            let error = source.operation_path(name).unwrap_err();
            assert!(error.rule.to_string().contains(rule), "{error}");
            assert_eq!(SourceName::new(name), Err(error));
        }
        let nested = SourceName::in_group("mcp", "github").unwrap();
        assert_eq!(nested.operation_path("search").unwrap(), "v/ops/mcp/github/search");
        assert_eq!(nested.segments().collect::<Vec<_>>(), ["mcp", "github"]);
        assert!(SourceName::in_group("mcp", "a/b").is_err() && SourceName::in_group("", "a").is_err());
        for namespace in Namespace::ALL {
            let error = SourceName::new(namespace.prefix()).unwrap_err();
            assert_eq!(error.rule, CatalogNameRule::Namespace, "{error}");
            assert!(source.operation_path(namespace.prefix()).is_ok());
        }
    }

    #[test]
    fn pins_definitions_and_assets_stand_for_operations() {
        let hash = "ab".repeat(32);
        for (path, expected) in [
            ("o/look", true),
            ("/o/look/", true),
            ("w/ops/look", true),
            ("/acme/ann/o/look", true),
            ("/acme/ann/w/look", true),
            ("did:key:z6Mk/o/look", true),
            (&*hash, true),
            (&format!("0x{hash}"), true),
            (&format!("a/{hash}"), true),
            ("v/ops/o/x", false),
            ("/v/ops/w/x", false),
            ("lattice/read", false),
            ("asset:get", false),
            ("did:key:z6Mk", false),
            ("/acme/ann/v/ops/json/merge", false),
        ] {
            assert_eq!(is_stored_operation(path), expected, "{path}");
        }
    }
}
