//! Paragraphs of the guide: short enough to be read once.

use super::Figure;
use std::path::Path;

/// Most words of a paragraph.
const WORDS: usize = 90;

/// Paragraphs of a page with their first lines: text without code, tables and headings; each item of a list is one.
fn paragraphs(text: &str) -> Vec<(usize, usize)> {
    let (mut found, mut is_code, mut is_open) = (Vec::new(), false, false);
    for (at, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.starts_with("```") {
            is_code = !is_code;
        }
        let is_item = ["- ", "* "].iter().any(|sign| line.starts_with(sign))
            || line.split_once(". ").is_some_and(|(number, _)| number.parse::<u32>().is_ok());
        if is_code || line.is_empty() || ["```", "|", "#"].iter().any(|sign| line.starts_with(sign)) {
            is_open = false;
            continue;
        }
        if !is_open || is_item {
            found.push((at + 1, 0));
            is_open = true;
        }
        if let Some((_, words)) = found.last_mut() {
            *words += line.split_whitespace().count();
        }
    }
    found
}

/// Paragraphs of more than [`WORDS`] words in the guide and the README.
pub fn long_paragraphs() -> Figure {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut pages: Vec<_> =
        std::fs::read_dir(root.join("src/guide")).unwrap().map(|entry| entry.unwrap().path()).collect();
    pages.push(root.join("README.md"));
    let mut places = Vec::new();
    for page in pages {
        let text = std::fs::read_to_string(&page).unwrap();
        let name = page.strip_prefix(root).unwrap().display().to_string();
        let long = paragraphs(&text).into_iter().filter(|(_, words)| *words > WORDS);
        places.extend(long.map(|(line, words)| format!("{name}:{line}: {words} words")));
    }
    Figure::new("paragraphs of the guide of more than 90 words", 0, 0, places)
}

#[test]
fn a_paragraph_ends_at_an_empty_line_a_table_or_an_item() {
    let text = "# Head\none two\nthree\n\n- four\n- five six\n  seven\n| a | b |\n```\ncode code\n```\neight";
    assert_eq!(paragraphs(text), [(2, 3), (5, 2), (6, 4), (12, 1)]);
}
