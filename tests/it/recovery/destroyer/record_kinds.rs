//! Kinds of records, as the tables of their layouts name them: what is in a store and in no table is a failure.

const DOCUMENTS: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/platform/store/keys.rs"));
const REDIS: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/platform/store/redis/keyspace.rs"));
const EMBEDDED: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/platform/store/embedded/layout.rs"));

/// The rows of the first table of a file: its columns.
fn table(file: &str) -> impl Iterator<Item = Vec<&str>> {
    let rows = file.lines().filter_map(|line| line.strip_prefix("//! | "));
    rows.skip(1).map(|row| row.trim_end_matches('|').split(" | ").map(str::trim).collect())
}

/// The names in a column: what stands between backticks.
fn names(column: &str) -> Vec<String> {
    column.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// Patterns of the keys of documents.
pub fn documents() -> Vec<String> {
    table(DOCUMENTS).flat_map(|row| names(row[0])).collect()
}

/// Layouts of the keys of Redis, and what their columns say of their fields.
pub fn redis() -> Vec<(String, String)> {
    table(REDIS).map(|row| (names(row[0]).remove(0), row[2].to_owned())).collect()
}

/// Keyspace and layout of the keys of an embedded store.
pub fn embedded() -> Vec<(String, String)> {
    table(EMBEDDED).map(|row| (names(row[0]).remove(0), names(row[1]).remove(0))).collect()
}

/// Whether a segment of a key is one of a pattern: literal parts around placeholders that are not empty.
fn is_segment(pattern: &str, mut text: &str) -> bool {
    let Some((literal, rest)) = pattern.split_once('<') else { return pattern == text };
    let Some(after) = text.strip_prefix(literal) else { return false };
    text = after;
    let Some((_, rest)) = rest.split_once('>') else { return false };
    match rest.find('<').map_or(rest, |next| &rest[..next]) {
        "" => !text.is_empty(),
        literal => {
            let mut at = text.match_indices(literal).map(|(at, _)| at).filter(|at| *at > 0);
            at.any(|at| is_segment(rest, &text[at..]))
        }
    }
}

/// Whether a key of a document is of a pattern.
fn is_of(pattern: &str, key: &str) -> bool {
    match pattern {
        // What lies below is of the same kind.
        "w/<collection>" | "o/<collection>" | "w.e/<collection>/<generation>/<entry>" | "x/<prefix>" => {
            key.split('/').next() == pattern.split('/').next()
        }
        _ => {
            let (wanted, parts): (Vec<_>, Vec<_>) = (pattern.split('/').collect(), key.split('/').collect());
            wanted.len() == parts.len() && wanted.iter().zip(parts).all(|(wanted, part)| is_segment(wanted, part))
        }
    }
}

/// The kind of a document: the pattern with the fewest placeholders.
pub fn kind_of_document(patterns: &[String], key: &str) -> Option<String> {
    let matching = patterns.iter().filter(|pattern| is_of(pattern, key));
    matching.min_by_key(|pattern| pattern.matches('<').count()).cloned()
}

#[test]
fn kinds_are_told_by_the_table_of_document_keys() {
    let patterns = documents();
    for (key, kind) in [
        ("w/a/b", Some("w/<collection>")),
        ("w.e/a/1/b", Some("w.e/<collection>/<generation>/<entry>")),
        ("g/helper", Some("g/<agent>")),
        ("g/helper/gate", Some("g/<agent>/gate")),
        ("g/helper/turn/s/0000000000000001", Some("g/<agent>/turn/<session>/<turn>")),
        ("j/00/s", Some("j/<job>/s")),
        ("j/00/c/01", Some("j/<job>/c/<child>")),
        ("b/00-agent", Some("b/<job>-agent")),
        ("m.due/1-2", Some("m.due/<due>-<timer>")),
        ("policy", Some("policy")),
        ("nothing/of/the/kind", None),
        ("j/00/z", None),
    ] {
        assert_eq!(kind_of_document(&patterns, key).as_deref(), kind, "{key}");
    }
    assert!(redis().iter().any(|(key, _)| key == "O:session:S"));
    assert!(embedded().contains(&("docs".to_owned(), "O\\0<document key>".to_owned())));
}
