//! The score card of the code: sizes that say whether a newcomer can walk through it. It is printed by each run.

use super::{Source, sources};
use std::collections::BTreeSet;
use std::io::Write;

/// Lines of code of a file in the middle.
const MEDIAN: usize = 110;
/// Lines of code that nine files of ten have at most.
const P90: usize = 350;
/// Modules at the top.
const MODULES: usize = 16;

/// Lines of production code and of comments.
fn lines(source: &Source) -> (usize, usize) {
    let lines = source.text.lines().take(source.production).map(str::trim).filter(|line| !line.is_empty());
    lines.fold(
        (0, 0),
        |(code, comments), line| {
            if line.starts_with("//") { (code, comments + 1) } else { (code + 1, comments) }
        },
    )
}

#[test]
fn the_score_card_is_kept() {
    let (mut sizes, mut comments, mut modules) = (Vec::new(), 0, BTreeSet::new());
    let all = sources();
    for source in all.iter().filter(|source| source.path.starts_with("src/") && source.production > 0) {
        let (code, said) = lines(source);
        sizes.push(code);
        comments += said;
        let top = source.path["src/".len()..].split('/').next().unwrap_or_default();
        modules.insert(top.strip_suffix(".rs").unwrap_or(top).to_owned());
    }
    sizes.sort_unstable();
    let modules = modules.iter().filter(|name| !matches!(name.as_str(), "lib" | "main")).count();
    let (median, p90) = (sizes[sizes.len() / 2], sizes[sizes.len() * 9 / 10]);
    let code: usize = sizes.iter().sum();
    // Not `println`: the runner keeps that back.
    writeln!(
        std::io::stderr(),
        "score card: {} files, {code} lines of code, median {median} (at most {MEDIAN}), p90 {p90} (at most {P90}), longest {}; \
         {modules} modules at the top (at most {MODULES}), {} % comments",
        sizes.len(),
        sizes[sizes.len() - 1],
        100 * comments / (code + comments)
    )
    .unwrap();
    assert!(median <= MEDIAN && p90 <= P90 && modules <= MODULES, "the score card above");
}
