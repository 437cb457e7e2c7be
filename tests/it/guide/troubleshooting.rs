//! *Troubleshooting*: each error code has a row, and each line of the log is one that is written.

use super::{read, root};
use std::path::PathBuf;
use trellis::domain::job::ErrorCode;

const PAGE: &str = "src/guide/troubleshooting.md";

/// The texts in backquotes in the first cells of the rows below a heading.
fn first_cells(heading: &str) -> Vec<String> {
    let page = read(PAGE);
    let (_, below) = page.split_once(&format!("\n## {heading}\n")).unwrap_or_else(|| panic!("no `{heading}`"));
    let section = below.split("\n## ").next().unwrap_or_default();
    let cells = section.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` |"));
    cells.map(|(cell, _)| cell.to_owned()).collect()
}

/// The names of the variants of `ErrorCode`, as they are in answers.
fn codes() -> Vec<String> {
    let text = read("src/domain/job.rs");
    let (_, variants) = text.split_once("pub enum ErrorCode {").unwrap();
    let (variants, _) = variants.split_once('}').unwrap();
    let names = variants.lines().map(str::trim).filter_map(|line| line.strip_suffix(','));
    let names = names.filter(|line| !line.starts_with("//") && line.chars().all(char::is_alphanumeric));
    names
        .map(|name| {
            let words = name.char_indices().map(|(at, c)| {
                let gap = if at > 0 && c.is_uppercase() { "_" } else { "" };
                format!("{gap}{}", c.to_ascii_uppercase())
            });
            words.collect()
        })
        .collect()
}

#[test]
fn each_error_code_has_a_row() {
    let rows = first_cells("Error codes");
    let codes = codes();
    assert!(codes.len() > 20, "{codes:?}");
    for code in &codes {
        assert!(rows.contains(code), "{PAGE} has no row of `{code}`");
    }
    for row in &rows {
        assert!(ErrorCode::parse(row).is_some(), "{PAGE}: `{row}` is no error code");
    }
}

#[test]
fn each_line_of_the_log_is_one_that_is_written() {
    let (mut sources, mut folders) = (String::new(), vec![root().join("src")]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path: PathBuf = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "rs") {
                sources.push_str(&std::fs::read_to_string(path).unwrap());
            }
        }
    }
    let rows = first_cells("What the log says");
    assert!(rows.len() > 20, "{rows:?}");
    for row in rows {
        assert!(sources.contains(&row), "{PAGE}: no source writes `{row}`");
    }
}
