//! Erases contents from a record. A name to which no part belongs replaces them, so a reader learns that they were
//! erased.

use super::manifest::Manifest;
use super::part::PartName;
use super::write::ItemLine;
use std::collections::BTreeSet;

/// Name in place of an erased content; no content has this name.
const ERASED: &str = "@AAAAAAAAAAAAAAAAAAAAAA";

/// Components with requests and answers, besides items.
const SPOKEN_COMPONENTS: [&str; 5] = ["task", "result", "message", "filled", "attachments"];

impl Manifest {
    /// Returns the content lines that an erasure of some sources removes: those of items from these sources, and those
    /// of requests and answers.
    pub fn contents_of(&self, is_source: impl Fn(&str) -> bool) -> BTreeSet<&str> {
        let mut taken = BTreeSet::new();
        let mut within = false;
        for line in &self.lines {
            if line.starts_with(['"', '@', '#']) {
                if within && line != ERASED {
                    taken.insert(line.as_str());
                }
                continue;
            }
            let (name, about) = line.split_once(' ').unwrap_or((line, ""));
            within = SPOKEN_COMPONENTS.contains(&name) || (name == "item" && comes_from(about, &is_source));
        }
        taken
    }
}

fn comes_from(about: &str, is_source: &impl Fn(&str) -> bool) -> bool {
    let item: Option<ItemLine> = serde_json::from_str(about).ok();
    item.and_then(|item| item.source).is_some_and(|source| source.split(", ").any(is_source))
}

/// Replaces these lines of a stored manifest. Nothing else in it changes, nor in manifests that are changes of it.
pub fn replace_lines(stored: &str, lines: &BTreeSet<&str>) -> String {
    let kept = stored.split('\n').map(|line| if lines.contains(line) { ERASED } else { line });
    kept.collect::<Vec<_>>().join("\n")
}

/// Returns the parts that lines name, and those of them that are lists of parts.
pub fn named_parts(lines: &BTreeSet<&str>) -> (Vec<PartName>, Vec<PartName>) {
    let (mut parts, mut lists) = (Vec::new(), Vec::new());
    for line in lines {
        let list = line.starts_with('#');
        let Some(name) = line.strip_prefix(['@', '#']).and_then(PartName::parse) else { continue };
        if list {
            lists.push(name.clone());
        }
        parts.push(name);
    }
    (parts, lists)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::record::manifest::BaseManifest;

    const PART: &str = "LZlWEJPXmGQDmK7nCnuWag";

    fn item(source: &str, key: &str) -> String {
        format!(r#"item {{"section":"resource","key":"{key}","source":"{source}","priority":300,"content":"text"}}"#)
    }

    #[test]
    fn erasure_removes_a_sources_pieces_and_nothing_else() {
        let stored = [
            "ledger 2 2943",
            "system",
            "\"You remember.\"",
            &item("r/app/u1, r/app/team", "resource/memory"),
            &format!("@{PART}"),
            "\"- and more\"",
            &item("r/app/u2", "resource/other"),
            "\"of another\"",
            "task",
            &format!("#{PART}"),
            "prompt 00",
        ]
        .join("\n");
        let base = BaseManifest::read(None, 1, &stored).unwrap();
        let lines = base.manifest.contents_of(|source| source == "r/app/u1");
        let (part, list) = (format!("@{PART}"), format!("#{PART}"));
        assert_eq!(lines, BTreeSet::from([part.as_str(), "\"- and more\"", list.as_str()]));
        let (parts, lists) = named_parts(&lines);
        assert_eq!((parts.len(), lists.len()), (2, 1));
        let left = replace_lines(&stored, &lines);
        assert!(left.contains("You remember.") && left.contains("of another") && !left.contains("and more"), "{left}");
        let again = BaseManifest::read(None, 1, &left).unwrap();
        assert_eq!(again.manifest.lines.len(), base.manifest.lines.len(), "what builds on it counts lines");
        assert!(again.manifest.contents_of(|source| source == "r/app/u1").is_empty(), "once is enough");
        assert!(PartName::parse(&ERASED[1..]).is_some());
    }
}
