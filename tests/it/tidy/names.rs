//! One meaning per word: no two public types have one name.

use super::{report, sources};
use std::collections::BTreeMap;

/// The name of the public type that a line begins.
fn named(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("pub ")?;
    let kinds = ["struct ", "enum ", "trait ", "type ", "union "];
    let rest = kinds.iter().find_map(|kind| rest.strip_prefix(kind))?;
    rest.split(|c: char| !c.is_alphanumeric() && c != '_').next()
}

#[test]
fn names_of_public_types_are_unique() {
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for source in sources().iter().filter(|source| source.path.starts_with("src/")) {
        for (number, line) in source.code() {
            if let Some(name) = named(line) {
                places.entry(name.to_owned()).or_default().push(format!("{}:{number}", source.path));
            }
        }
    }
    assert!(places.len() > 300, "{} types are found", places.len());
    let twice = places.iter().filter(|(_, places)| places.len() > 1);
    report(&twice.map(|(name, places)| format!("`{name}` is {}", places.join(" and "))).collect::<Vec<_>>());
}
