//! Links of the pages: files that are there, and headings that are there.

use super::{pages, read, root};
use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

/// A page without its blocks and without code in its lines.
fn prose(text: &str) -> String {
    let mut is_code = false;
    let lines = text.lines().filter(|line| {
        let is_fence = line.starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    });
    let without_code = |line: &str| line.split('`').step_by(2).collect::<Vec<_>>().join("");
    lines.map(without_code).collect::<Vec<_>>().join("\n")
}

/// The targets of the links of a page.
fn targets(text: &str) -> Vec<String> {
    let prose = prose(text);
    let parts = prose.split("](").skip(1);
    parts.filter_map(|part| part.split_once(')')).map(|(target, _)| target.to_owned()).collect()
}

/// The names under which a page's headings are linked, as GitHub makes them, and its own anchors.
fn anchors(text: &str) -> BTreeSet<String> {
    let (mut found, mut is_code) = (BTreeSet::new(), false);
    for line in text.lines() {
        is_code ^= line.starts_with("```");
        if !is_code && line.starts_with('#') {
            found.insert(slug(line.trim_start_matches('#')));
        }
    }
    let own = text.split("<a id=\"").skip(1).filter_map(|part| part.split_once('"'));
    found.extend(own.map(|(name, _)| name.to_owned()));
    found
}

fn slug(heading: &str) -> String {
    let kept = heading.trim().chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// A path without `.` and `..`.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                plain.pop();
            }
            Component::CurDir => {}
            other => plain.push(other),
        }
    }
    plain
}

#[test]
fn every_link_leads_to_a_file_and_a_heading() {
    let (mut dead, mut seen) = (Vec::new(), 0);
    for page in pages() {
        let text = read(&page);
        for target in targets(&text).iter().filter(|target| !target.starts_with("http")) {
            seen += 1;
            let (file, anchor) = target.split_once('#').unwrap_or((target.as_str(), ""));
            let folder = Path::new(&page).parent().unwrap();
            let path = if file.is_empty() { PathBuf::from(&page) } else { plain(&folder.join(file)) };
            if !root().join(&path).exists() {
                dead.push(format!("{page}: `{target}` is no file"));
            } else if !anchor.is_empty() && !anchors(&read(&path.display().to_string())).contains(anchor) {
                dead.push(format!("{page}: `{target}`: {} has no such heading", path.display()));
            }
        }
    }
    assert!(seen > 200, "{seen} links are found");
    assert!(dead.is_empty(), "{} dead links:\n{}", dead.len(), dead.join("\n"));
}

#[test]
fn every_page_is_named_in_the_readme_and_in_llms_txt() {
    let (readme, index) = (targets(&read("README.md")), targets(&read("src/guide/llms.txt")));
    for page in pages() {
        let Some(name) = page.strip_prefix("src/guide/").filter(|name| *name != "llms.txt") else { continue };
        assert!(readme.contains(&page), "README.md doesn't name {page}");
        assert!(index.iter().any(|target| target == name), "llms.txt doesn't name {page}");
    }
}

#[test]
fn headings_are_linked_as_github_links_them() {
    for (heading, expected) in [
        (" What a failover can lose", "what-a-failover-can-lose"),
        (" Nats-Msg-Id", "nats-msg-id"),
        (" The kinds of `trellis.in` and `trellis.do`", "the-kinds-of-trellisin-and-trellisdo"),
        (" Quotas: what an owner may keep", "quotas-what-an-owner-may-keep"),
    ] {
        assert_eq!(slug(heading), expected);
    }
    let text = "[a](x.md#b) `[no](y.md)`\n```\n[no](z.md)\n```\n[c](w.md)";
    assert_eq!(targets(text), ["x.md#b", "w.md"]);
}
