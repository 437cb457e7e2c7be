//! Section 7, the context map: what the context costs, what is loaded, what was left out.

use super::item::{Item, Section};
use super::ledger::{Row, Status};
use crate::foreign::{Foreign, name};
use crate::lines;
use std::borrow::Cow;
use std::fmt::Write;

/// From so many percent on, the model is warned.
const WARN_AT: usize = 70;
/// From so many percent on, it must make room.
const COMPACT_AT: usize = 90;
/// Bytes of the line that names what was left out.
const OMITTED: usize = 200;
/// Bytes of the lines that are always there, and the warning.
const FIXED: usize = 320;

/// At least as many bytes as [`text`] will have for these items.
pub(super) fn reserve(items: &[Cow<'_, Item>]) -> usize {
    FIXED + OMITTED + loads(items).map(|item| line(item).len()).sum::<usize>()
}

/// What the map tells.
pub(super) struct Map<'m> {
    /// Pieces of the prompt.
    pub(super) items: &'m [Cow<'m, Item>],
    /// What became of them, of results and of messages.
    pub(super) rows: &'m [&'m Row],
    /// What of the transcript isn't shown.
    pub(super) turns: Option<String>,
    /// Bytes allowed.
    pub(super) budget: usize,
    /// Its numbers and what is loaded are shown, and not only what was left out.
    pub(super) is_full: bool,
    /// The agent has the tool that makes room in its transcript.
    pub(super) compacts: bool,
}

impl Map<'_> {
    /// Its text. `fixed` are the bytes of everything else, `wanted` those that it would have, were there
    /// room: by these the model is warned. The map's own are counted in both.
    pub(super) fn text(&self, fixed: usize, wanted: usize) -> String {
        // Its length depends on the numbers in it, which are at most a digit longer the second time.
        let mut map = String::new();
        for _ in 0..3 {
            let own = map.len();
            map = self.with(fixed + own, wanted + own);
            if map.len() == own {
                break;
            }
        }
        map
    }

    fn with(&self, used: usize, wanted: usize) -> String {
        if !self.is_full {
            return self
                .omitted()
                .map_or_else(String::new, |omitted| format!("{}\nomitted: {omitted}", lines::CONTEXT_MAP));
        }
        let budget = self.budget;
        let mut map = format!(
            "{}\nbudget: {used}/{budget} bytes ({} remaining)",
            lines::CONTEXT_MAP,
            budget.saturating_sub(used)
        );
        let percent = wanted.max(used).saturating_mul(100) / budget;
        if percent >= WARN_AT {
            let _ = write!(map, "\nWARNING: {}% budget used. {}", percent.min(100), self.advice(percent));
            if wanted > budget {
                let _ = write!(map, " All of it would have {wanted} bytes.");
            }
        }
        let unpinned = |item: &Item| self.rows.iter().any(|row| row.key == item.key && is_unpinned(row));
        let mut loaded = loads(self.items).filter(|item| !unpinned(item)).peekable();
        if loaded.peek().is_some() {
            map.push_str("\nloaded:");
            map.extend(loaded.map(line));
        }
        if let Some(omitted) = self.omitted() {
            let _ = write!(map, "\nomitted: {omitted}");
        }
        map
    }

    /// What the model shall do, and what was done already.
    fn advice(&self, percent: usize) -> String {
        let unload = "unload what you no longer need with context_unload";
        if percent < COMPACT_AT {
            return if self.compacts { format!("Compact soon, and {unload}.") } else { capital(unload) };
        }
        let loads = self.rows.iter().any(|row| is_unpinned(row)).then_some("the newest loads are unloaded");
        let turns = self.turns.is_some().then_some("the oldest turns are not shown");
        let done: Vec<_> = loads.into_iter().chain(turns).collect();
        match (self.compacts, done.is_empty()) {
            (true, true) => "You must call compact now.".to_owned(),
            (true, false) => format!("You must call compact now: {}.", done.join(", ")),
            (false, true) => capital(unload),
            (false, false) => capital(&done.join(" and ")),
        }
    }

    /// What isn't in the prompt, as far as the line is long: first what was said, then what came, then
    /// what can be loaded and read again.
    fn omitted(&self) -> Option<String> {
        let rank = |row: &&&Row| match row.key.split('/').next() {
            Some("inbox") => 0,
            Some("pending") => 1,
            Some("loads") => 2,
            Some(_) | None => 3,
        };
        let is_gone = |row: &&&Row| match row.status {
            Status::Dropped => true,
            // The line that says so had no room either.
            Status::Missing | Status::Denied | Status::Failed => row.rendered == 0,
            Status::Full | Status::Shrunk => false,
        };
        let mut gone: Vec<&&Row> = self.rows.iter().filter(is_gone).collect();
        gone.sort_by_key(rank);
        let names = gone.iter().map(|row| name(&row.key));
        let gone: Vec<Cow<'_, str>> = self.turns.iter().map(Cow::from).chain(names).collect();
        listed(&gone)
    }
}

/// A sentence.
fn capital(text: &str) -> String {
    let (first, rest) = text.split_at(text.len().min(1));
    format!("{}{rest}.", first.to_uppercase())
}

fn loads<'i>(items: &'i [Cow<'_, Item>]) -> impl Iterator<Item = &'i Item> {
    items.iter().map(AsRef::as_ref).filter(|item: &&Item| item.section == Section::Loads)
}

fn is_unpinned(row: &Row) -> bool {
    row.reason.as_deref().is_some_and(|reason| reason.starts_with("unpinned"))
}

fn line(item: &Item) -> String {
    let path = item.source.as_deref().unwrap_or(&item.key);
    let budget = item.asked.unwrap_or(0);
    let begin = Foreign::text(name(path));
    match &item.label {
        Some(label) if label != path => format!("\n  {begin} — {} [{budget}B]", name(label)),
        Some(_) | None => format!("\n  {begin} [{budget}B]"),
    }
}

/// Names, as many as the line is long; how many more there are.
fn listed(gone: &[Cow<'_, str>]) -> Option<String> {
    let mut line = String::new();
    for (at, name) in gone.iter().enumerate() {
        // What is behind the last name that fits: ` and 10000 more`.
        if line.len() + name.len() + 20 > OMITTED {
            let _ = write!(line, "{}{} more", if at > 0 { " and " } else { "" }, gone.len() - at);
            break;
        }
        if at > 0 {
            line.push_str(", ");
        }
        line.push_str(name);
    }
    (!gone.is_empty()).then_some(line)
}
