//! The score card of the code: whether a newcomer can read it and walk through it. It is printed by each run.

mod circles;
mod guide;
mod language;
mod reading;

use super::{Source, sources};
use reading::Reading;
use std::collections::BTreeSet;
use std::io::Write;

/// One figure of the card.
struct Figure {
    name: &'static str,
    /// What it is now.
    now: usize,
    /// The most that it may be: lowered with each step, never raised.
    most: usize,
    /// Where it is to come.
    goal: usize,
    /// Places, the worst first.
    places: Vec<String>,
}

impl Figure {
    fn new(name: &'static str, most: usize, goal: usize, places: Vec<String>) -> Self {
        Self { name, now: places.len(), most, goal, places }
    }

    fn size(name: &'static str, now: usize, most: usize) -> Self {
        Self { name, now, most, goal: most, places: Vec::new() }
    }
}

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

fn sizes(all: &[Source]) -> Vec<Figure> {
    let (mut sizes, mut modules) = (Vec::new(), BTreeSet::new());
    for source in all {
        sizes.push(lines(source).0);
        let top = source.path["src/".len()..].split('/').next().unwrap_or_default();
        modules.insert(top.strip_suffix(".rs").unwrap_or(top).to_owned());
    }
    sizes.sort_unstable();
    let modules = modules.iter().filter(|name| !matches!(name.as_str(), "lib" | "main")).count();
    vec![
        Figure::size("lines of code of a file, median", sizes[sizes.len() / 2], 110),
        Figure::size("lines of code of a file, 90th percentile", sizes[sizes.len() * 9 / 10], 260),
        Figure::size("modules at the top", modules, 14),
    ]
}

#[test]
fn the_score_card_is_kept() {
    let all = sources();
    let production: Vec<_> =
        all.into_iter().filter(|source| source.path.starts_with("src/") && source.production > 0).collect();
    let readings: Vec<Reading> = production.iter().map(Reading::of).collect();
    let mut figures = language::figures(&readings);
    figures.extend(sizes(&production));
    figures.push(circles::largest(&readings));
    figures.push(guide::long_paragraphs());
    // Not `println`: the runner keeps that back.
    let mut out = std::io::stderr();
    writeln!(out, "score card of {} files (now, at most, goal):", production.len()).unwrap();
    for Figure { name, now, most, goal, .. } in &figures {
        writeln!(out, "  {now:>5} {most:>5} {goal:>5}  {name}").unwrap();
    }
    let all_places = std::env::var_os("TRELLIS_SCORE_PLACES").is_some();
    for figure in figures.iter().filter(|figure| all_places || figure.now > figure.most) {
        writeln!(out, "{}:\n  {}", figure.name, figure.places.join("\n  ")).unwrap();
    }
    assert!(
        figures.iter().all(|figure| figure.now <= figure.most),
        "a figure of the score card above is larger than it may be; its places stand there"
    );
}
