//! Files: text assets under the granted namespaces; the name of a file begins with its namespace.

use super::{Ability, HeldNamespaces, NamespaceError, check_named, hash};
use crate::authority::capability::covers;
use crate::ids::encode_token;
use crate::limits::{FILE_BYTES, FILE_READ_BYTES};
use crate::time::Millis;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// Kind of the resource, and first segment of its documents.
pub const KIND: &str = "files";

/// Record of a file beside its content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct File {
    /// Name of the file: namespace and path.
    pub path: String,
    /// SHA-256 of the content, which is part of the content's key.
    pub hash: String,
    /// Bytes of the content.
    pub bytes: usize,
    /// Time of the last write.
    pub updated: Millis,
    /// Name of the writer.
    pub by: String,
}

/// Why files can't be configured or written as asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FilesError {
    /// The configuration has a setting; holds its name.
    #[error("unknown field `{0}`, `files` has no settings")]
    Setting(String),
    /// The content is larger than [`FILE_BYTES`]; holds its bytes.
    #[error("`content` has {0} bytes, expected at most {FILE_BYTES}; split the file")]
    TooLarge(usize),
    /// The file has another content than the call expects.
    #[error("`{path}` has changed: expected {}, there is {}", describe_hash(.expected), describe_hash(.actual))]
    Changed {
        /// Name of the file.
        path: String,
        /// Hash that the call expects; empty for no file.
        expected: String,
        /// Hash of the file; empty for no file.
        actual: String,
    },
}

fn describe_hash(hash: &str) -> String {
    if hash.is_empty() { "no file".to_owned() } else { format!("`{hash}`") }
}

/// Checks the settings of files in an agent's configuration: there are none.
pub fn check_settings(settings: &Map<String, Value>) -> Result<(), FilesError> {
    settings.keys().next().map_or(Ok(()), |key| Err(FilesError::Setting(key.clone())))
}

/// Returns the key of a file's document.
pub fn record_key(path: &str) -> String {
    format!("{}r", record_prefix(path))
}

/// Returns the key prefix of a file's document.
pub fn record_prefix(path: &str) -> String {
    format!("r/{KIND}/f/{}/", encode_token(path))
}

/// Returns the key of a file's content.
pub fn content_key(path: &str, hash: &str) -> String {
    format!("{}{hash}", content_prefix(path))
}

/// Returns the key prefix of a file's content.
pub fn content_prefix(path: &str) -> String {
    format!("r/{KIND}/c/{}/", encode_token(path))
}

/// Returns the key prefix of the files below a namespace, or (`contents`) of their contents.
pub fn prefix_below(namespace: &str, contents: bool) -> String {
    let place = if contents { "c" } else { "f" };
    let name = if namespace.is_empty() { String::new() } else { encode_token(&format!("{namespace}/")) };
    format!("r/{KIND}/{place}/{name}")
}

/// Returns the full name of a file. A path that begins with a granted namespace is a full name; any other belongs to
/// the only granted namespace.
pub fn full_name(held: &HeldNamespaces, tool: &str, ability: Ability, path: &str) -> Result<String, NamespaceError> {
    let path = path.strip_prefix("r/").unwrap_or(path).trim_end_matches('/');
    check_named("path", path)?;
    let below_one = |granted: &String| granted.is_empty() || (covers(granted, path) && granted != path);
    let full = if held.with_ability(ability).iter().any(below_one) {
        path.to_owned()
    } else {
        format!("{}/{path}", held.only_namespace(tool, ability, "path")?)
    };
    check_named("path", &full)?;
    held.check(tool, ability, &full)?;
    Ok(full)
}

/// Returns the record of a new content, if `expect` allows it: the hash that the file must have, `""` for no file.
pub fn new_record(
    path: &str,
    text: &str,
    expect: Option<&str>,
    there: Option<&File>,
    by: &str,
    now: Millis,
) -> Result<File, FilesError> {
    if text.len() > FILE_BYTES {
        return Err(FilesError::TooLarge(text.len()));
    }
    let actual = there.map_or("", |file| file.hash.as_str());
    if let Some(expected) = expect.filter(|expected| *expected != actual) {
        let (path, expected, actual) = (path.to_owned(), expected.to_owned(), actual.to_owned());
        return Err(FilesError::Changed { path, expected, actual });
    }
    Ok(File { path: path.to_owned(), hash: hash(text), bytes: text.len(), updated: now, by: by.to_owned() })
}

/// Returns a range of a file's text, moved to whole characters, with the offset at which to read on.
pub fn range(file: &File, text: &str, offset: usize, length: Option<usize>) -> Value {
    let start = text.floor_char_boundary(offset.min(text.len()));
    let length = length.unwrap_or(FILE_READ_BYTES).min(FILE_READ_BYTES);
    let mut end = text.floor_char_boundary(start.saturating_add(length).min(text.len()));
    if end == start {
        // At least one character is returned, because reading on would never end otherwise.
        end = text.ceil_char_boundary((start + 1).min(text.len()));
    }
    let mut shown = json!({
        "path": file.path, "hash": file.hash, "bytes": file.bytes, "offset": start, "length": end - start,
        "text": &text[start..end],
    });
    if end < text.len() {
        shown["next"] = end.into();
    }
    shown
}

/// Returns a file as a listing shows it.
pub fn to_json(file: &File) -> Value {
    json!({"path": file.path, "hash": file.hash, "bytes": file.bytes, "updated": file.updated.rfc3339(), "by": file.by})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authority::{Authority, Capability};

    fn held(grants: &[(&str, &str)]) -> HeldNamespaces {
        let caps = grants.iter().map(|(with, can)| Capability { with: (*with).into(), can: (*can).into() });
        HeldNamespaces::from_authority(&Authority::new(Some(caps.collect())))
    }

    #[test]
    fn a_name_is_full_or_lies_under_the_only_namespace() {
        let one = &[("r/app/u1", "*")][..];
        let two = &[("r/app/u1", "*"), ("r/app/team", "read")][..];
        for (grants, ability, path, expected) in [
            (one, Ability::Write, "notes.md", Ok("app/u1/notes.md")),
            (one, Ability::Write, "app/u1/notes.md", Ok("app/u1/notes.md")),
            (one, Ability::Read, "r/app/u1/a/b", Ok("app/u1/a/b")),
            (one, Ability::Read, "app/u2/notes.md", Ok("app/u1/app/u2/notes.md")),
            (one, Ability::Read, "../u2/x", Err("a segment `.` or `..`")),
            (one, Ability::Read, "", Err("it is empty")),
            (two, Ability::Read, "notes.md", Err("name the `path`: `app/u1`, `app/team` are granted")),
            (two, Ability::Read, "app/team/x", Ok("app/team/x")),
            (two, Ability::Write, "app/team/x", Ok("app/u1/app/team/x")),
            (&[], Ability::Read, "x", Err("requires read on r")),
        ] {
            let found = full_name(&held(grants), "files_read", ability, path);
            match (&found, expected) {
                (Ok(full), Ok(expected)) => assert_eq!(full, expected),
                (Err(error), Err(part)) => assert!(error.to_string().contains(part), "{path}: {error}"),
                _ => panic!("{path}: {found:?}"),
            }
        }
    }

    #[test]
    fn a_range_has_whole_characters_and_names_the_next_offset() {
        let text = "aé€x";
        let file = new_record("p", text, None, None, "clerk", Millis(0)).unwrap();
        for (offset, length, shown, next) in [
            (0, None, "aé€x", None),
            (0, Some(2), "a", Some(1)),
            (1, Some(1), "é", Some(3)),
            (2, Some(5), "é€", Some(6)),
            (6, Some(9), "x", None),
            (99, None, "", None),
        ] {
            let found = range(&file, text, offset, length);
            assert_eq!((found["text"].as_str(), found["next"].as_u64()), (Some(shown), next), "{offset} {length:?}");
        }
        let long = "x".repeat(FILE_READ_BYTES + 5);
        let file = new_record("p", &long, None, None, "clerk", Millis(0)).unwrap();
        assert_eq!(range(&file, &long, 0, Some(usize::MAX))["next"], FILE_READ_BYTES);
    }

    #[test]
    fn a_write_has_a_size_and_may_say_what_it_replaces() {
        let first = new_record("p", "one", Some(""), None, "clerk", Millis(1)).unwrap();
        assert_eq!((first.bytes, first.hash.len()), (3, 64));
        assert!(new_record("p", "two", Some(&first.hash), Some(&first), "clerk", Millis(2)).is_ok());
        assert!(new_record("p", "two", None, Some(&first), "clerk", Millis(2)).is_ok());
        let error = new_record("p", "two", Some(""), Some(&first), "clerk", Millis(2)).unwrap_err().to_string();
        assert!(error.starts_with("`p` has changed: expected no file, there is `"), "{error}");
        let error = new_record("p", &"x".repeat(FILE_BYTES + 1), None, None, "clerk", Millis(2)).unwrap_err();
        assert!(error.to_string().contains("expected at most 262144"), "{error}");
    }

    #[test]
    fn keys_are_pinned() {
        assert_eq!(record_key("app/u1/a.md"), "r/files/f/app%2Fu1%2Fa%2Emd/r");
        assert_eq!(content_key("app/x", "00"), "r/files/c/app%2Fx/00");
        assert_eq!(prefix_below("app/u1", false), "r/files/f/app%2Fu1%2F");
        assert_eq!(prefix_below("", true), "r/files/c/");
    }
}
