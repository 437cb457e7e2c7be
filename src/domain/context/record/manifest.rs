//! Manifests: the lines of a turn's record, stored as the change since the turn before.
//!
//! ```text
//! ledger 2 2943 base 11   ledger 2 2943: whole, without a base; 2943 is the period of the parts that its lines name
//! =0,12                   the lines 0 to 11 of the base
//! transcript [1,11,11]    a line of its own
//! =13,8
//! ```

use super::part::PartName;
use super::period::Period;
use std::collections::{HashMap, HashSet};
use std::fmt::Write;

/// First word of every stored manifest; the version of its layout follows. Version 1 has no period.
const WORD: &str = "ledger";
/// Number of turns of which the first is stored whole; it limits the cost of reading a manifest.
pub const WHOLE_EVERY: u64 = 50;
/// Most positions of an equal line that are tried; the same line rarely has more.
const PLACES: usize = 8;

/// The lines of one turn's record.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Manifest {
    /// Lines without their line ends.
    pub lines: Vec<String>,
}

/// Why a stored manifest can't be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DamagedManifest {
    /// The first line is invalid.
    #[error("expected a manifest that begins with `{WORD} 1` or `{WORD} 2`, got `{0}`")]
    Head(String),
    /// The manifest before it is not the one that it is a change of.
    #[error("expected the manifest of turn {expected}, and of the same period, before it, got {got}")]
    Base {
        /// Turn of the expected manifest.
        expected: u64,
        /// Turn of the manifest that was found, or 0.
        got: u64,
    },
    /// A line is invalid.
    #[error("a line of a manifest makes no sense: `{0}`")]
    Line(String),
}

impl DamagedManifest {
    /// Makes the error of an invalid line, with its first 120 characters.
    pub fn line(line: &str) -> Self {
        Self::Line(line.chars().take(120).collect())
    }
}

/// A manifest with its turn, on which the next one is based.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BaseManifest {
    /// Turn of the manifest.
    pub turn: u64,
    /// Period of the parts that its lines name.
    pub period: Period,
    /// The manifest itself.
    pub manifest: Manifest,
}

/// Returns the first turn of the stretch of turns with `turn`: its manifest is whole, so the others can be read from
/// it.
pub const fn stretch_start(turn: u64) -> u64 {
    turn.saturating_sub(1) / WHOLE_EVERY * WHOLE_EVERY + 1
}

impl BaseManifest {
    /// Reads the stored manifest of the next turn.
    pub fn read(before: Option<&Self>, turn: u64, stored: &str) -> Result<Self, DamagedManifest> {
        let (head, body) = stored.split_once('\n').unwrap_or((stored, ""));
        let bad = || DamagedManifest::Head(head.chars().take(40).collect());
        let (period, base) = parse_head(head).ok_or_else(bad)?;
        let lines = match (base, before) {
            (None, _) => &[][..],
            (Some(expected), Some(before)) if before.turn == expected && before.period == period => {
                &before.manifest.lines[..]
            }
            (Some(expected), other) => {
                return Err(DamagedManifest::Base { expected, got: other.map_or(0, |base| base.turn) });
            }
        };
        Ok(Self { turn, period, manifest: Manifest { lines: apply_steps(lines, body)? } })
    }
}

/// Reads the period of a manifest, and the turn of the manifest that it is a change of.
fn parse_head(head: &str) -> Option<(Period, Option<u64>)> {
    let mut words = head.split(' ');
    let period = match (words.next()?, words.next()?) {
        (WORD, "1") => Period::NO_PERIOD,
        (WORD, "2") => Period::parse(words.next()?)?,
        _ => return None,
    };
    let base = match words.next() {
        None => None,
        Some("base") => Some(words.next()?.parse().ok()?),
        Some(_) => return None,
    };
    words.next().is_none().then_some((period, base))
}

impl Manifest {
    /// Writes the manifest for `turn` of a period: as a change of `base` if both are of the same stretch and period, or
    /// else whole.
    pub fn to_stored(&self, turn: u64, period: Period, base: Option<&BaseManifest>) -> String {
        let fits = |base: &&BaseManifest| {
            base.period == period && base.turn < turn && stretch_start(base.turn) == stretch_start(turn)
        };
        let head = format!("{WORD} 2 {}", period.number());
        match base.filter(fits) {
            None => self.lines.iter().fold(head, |text, line| text + "\n" + line),
            Some(base) => {
                let mut text = format!("{head} base {}", base.turn);
                for step in diff_steps(&base.manifest.lines, &self.lines) {
                    let _ = match step {
                        ManifestStep::Copy(from, count) => write!(text, "\n={from},{count}"),
                        ManifestStep::Line(line) => write!(text, "\n{line}"),
                    };
                }
                text
            }
        }
    }

    /// Iterates over the parts that its lines name; those of `#` lines are lists of parts.
    pub fn parts(&self) -> impl Iterator<Item = PartName> {
        self.lines.iter().filter_map(|line| PartName::parse(line.strip_prefix(['@', '#'])?))
    }

    /// Returns its lines that name parts.
    pub(super) fn part_lines(&self) -> HashSet<&str> {
        self.lines.iter().map(String::as_str).filter(|line| line.starts_with(['@', '#'])).collect()
    }
}

#[derive(Debug, PartialEq, Eq)]
enum ManifestStep<'l> {
    Copy(usize, usize),
    Line(&'l str),
}

/// Finds the longest runs of equal lines, greedily.
fn diff_steps<'l>(base: &[String], lines: &'l [String]) -> Vec<ManifestStep<'l>> {
    let mut places: HashMap<&str, Vec<usize>> = HashMap::with_capacity(base.len());
    for (at, line) in base.iter().enumerate() {
        let here = places.entry(line).or_default();
        if here.len() < PLACES {
            here.push(at);
        }
    }
    let run = |from: usize, at: usize| base[from..].iter().zip(&lines[at..]).take_while(|(a, b)| a == b).count();
    let (mut steps, mut at, mut next) = (Vec::new(), 0, 0);
    while at < lines.len() {
        let known = places.get(lines[at].as_str()).map_or(&[][..], Vec::as_slice);
        let onward = (next < base.len()).then_some(next);
        let best = onward.into_iter().chain(known.iter().copied()).map(|from| (run(from, at), from));
        // Of runs with the same length the first: where the last run ended.
        let best = best.fold((0, 0), |best, new| if new.0 > best.0 { new } else { best });
        let (count, from) = best;
        let bytes: usize = lines[at..at + count].iter().map(|line| line.len() + 1).sum();
        if bytes > format!("={from},{count}").len() + 1 {
            steps.push(ManifestStep::Copy(from, count));
            (at, next) = (at + count, from + count);
        } else {
            steps.push(ManifestStep::Line(&lines[at]));
            (at, next) = (at + 1, next + 1);
        }
    }
    steps
}

fn apply_steps(base: &[String], body: &str) -> Result<Vec<String>, DamagedManifest> {
    let mut lines = Vec::new();
    for line in body.lines() {
        match line.strip_prefix('=') {
            None => lines.push(line.to_owned()),
            Some(copy) => {
                let range = copy.split_once(',').and_then(|(from, count)| {
                    let (from, count): (usize, usize) = (from.parse().ok()?, count.parse().ok()?);
                    base.get(from..from.checked_add(count)?)
                });
                lines.extend_from_slice(range.ok_or_else(|| DamagedManifest::line(line))?);
            }
        }
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Millis;

    fn manifest(text: &str) -> Manifest {
        Manifest { lines: text.split(' ').map(|word| format!("line of {word}")).collect() }
    }

    fn first() -> Period {
        Period::from_start(Millis(0))
    }

    fn base(turn: u64, text: &str) -> BaseManifest {
        BaseManifest { turn, period: first(), manifest: manifest(text) }
    }

    #[test]
    fn a_manifest_is_stored_as_what_changed() {
        let before = base(3, "a b c d e");
        for (now, stored) in [
            ("a b c d e", "ledger 2 1 base 3\n=0,5"),
            ("a b X d e", "ledger 2 1 base 3\n=0,2\nline of X\n=3,2"),
            ("a b d e", "ledger 2 1 base 3\n=0,2\n=3,2"),
            ("X a b c d e Y", "ledger 2 1 base 3\nline of X\n=0,5\nline of Y"),
            ("d e a b", "ledger 2 1 base 3\n=3,2\n=0,2"),
            ("X", "ledger 2 1 base 3\nline of X"),
        ] {
            assert_eq!(manifest(now).to_stored(4, first(), Some(&before)), stored);
            assert_eq!(BaseManifest::read(Some(&before), 4, stored), Ok(base(4, now)));
        }
    }

    #[test]
    fn the_first_of_a_stretch_is_whole() {
        for (turn, before, whole) in [(1, 0, true), (2, 1, false), (50, 49, false), (51, 50, true), (52, 50, true)] {
            let before = base(before, "a b");
            let stored = manifest("a b").to_stored(turn, first(), Some(&before).filter(|base| base.turn > 0));
            assert_eq!(stored == "ledger 2 1\nline of a\nline of b", whole, "{turn}: {stored}");
        }
        assert_eq!([1, 50, 51, 100, 101].map(stretch_start), [1, 1, 51, 51, 101]);
    }

    #[test]
    fn the_first_of_a_period_is_whole() {
        let (before, week) = (base(3, "a b"), Period::from_start(Millis(604_800_000)));
        let stored = manifest("a b").to_stored(4, week, Some(&before));
        assert_eq!(stored, "ledger 2 2\nline of a\nline of b");
        let read = BaseManifest::read(Some(&before), 4, &stored).unwrap();
        assert_eq!((read.period, read.manifest), (week, manifest("a b")));
    }

    #[test]
    fn records_from_before_periods_are_read() {
        let whole = BaseManifest::read(None, 3, "ledger 1\nline of a\nline of b").unwrap();
        assert_eq!(whole, BaseManifest { period: Period::NO_PERIOD, ..base(3, "a b") });
        let next = BaseManifest::read(Some(&whole), 4, "ledger 1 base 3\n=0,2\nline of c").unwrap();
        assert_eq!(next, BaseManifest { period: Period::NO_PERIOD, ..base(4, "a b c") });
    }

    #[test]
    fn short_lines_are_not_worth_a_copy() {
        let before =
            BaseManifest { turn: 1, period: first(), manifest: Manifest { lines: vec!["x".into(), "remind".into()] } };
        let now = Manifest { lines: vec!["y".into(), "remind".into()] };
        assert_eq!(now.to_stored(2, first(), Some(&before)), "ledger 2 1 base 1\ny\n=1,1");
        let now = Manifest { lines: vec!["x".into(), "y".into()] };
        assert_eq!(now.to_stored(2, first(), Some(&before)), "ledger 2 1 base 1\nx\ny");
    }

    #[test]
    fn a_damaged_manifest_says_how_it_is_damaged() {
        let before = base(3, "a b");
        for (stored, expected) in [
            ("", "expected a manifest that begins with `ledger 1` or `ledger 2`, got ``"),
            ("ledger 3\nx", "expected a manifest that begins with `ledger 1` or `ledger 2`, got `ledger 3`"),
            ("ledger 2\nx", "got `ledger 2`"),
            ("ledger 2 x\nx", "got `ledger 2 x`"),
            ("ledger 2 1 base\nx", "got `ledger 2 1 base`"),
            ("ledger 2 1 base 3 4\nx", "got `ledger 2 1 base 3 4`"),
            ("ledger 2 2 base 3\nx", "expected the manifest of turn 3, and of the same period, before it, got 3"),
            ("ledger 2 1 base 2\nx", "expected the manifest of turn 2, and of the same period, before it, got 3"),
            ("ledger 2 1 base 3\n=1,2", "a line of a manifest makes no sense: `=1,2`"),
            ("ledger 2 1 base 3\n=x", "a line of a manifest makes no sense: `=x`"),
            ("ledger 2 1 base 3\n=1,18446744073709551615", "makes no sense"),
        ] {
            let error = BaseManifest::read(Some(&before), 4, stored).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        assert!(matches!(
            BaseManifest::read(None, 4, "ledger 2 1 base 3"),
            Err(DamagedManifest::Base { expected: 3, got: 0 })
        ));
    }

    #[test]
    fn random_manifests_come_back() {
        let mut seed = 1_u64;
        let mut random = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % below
        };
        for _ in 0..300 {
            let lines = random(40);
            let before: Vec<String> = (0..lines).map(|_| format!("a line {}", random(20))).collect();
            let mut after = before.clone();
            for _ in 0..random(8) {
                let at = usize::try_from(random(after.len() as u64 + 1)).unwrap();
                match random(3) {
                    0 => after.insert(at, format!("new {}", random(30))),
                    1 if at < after.len() => drop(after.remove(at)),
                    _ => after.rotate_left(at),
                }
            }
            let before = BaseManifest { turn: 2, period: first(), manifest: Manifest { lines: before } };
            let after = Manifest { lines: after };
            let stored = after.to_stored(3, first(), Some(&before));
            let read = BaseManifest::read(Some(&before), 3, &stored).unwrap();
            assert_eq!(read.manifest, after, "{stored}");
        }
    }
}
