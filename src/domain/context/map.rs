//! The context map of a prompt: what the context costs, what is loaded, and what was left out.

use super::item::{PromptItem, Section};
use super::ledger::{Row, RowStatus};
use crate::foreign::{ForeignText, fit_name};
use crate::lines;
use std::borrow::Cow;
use std::fmt::Write;

/// Percentage of the budget from which on the model is warned.
const WARN_AT: usize = 70;
/// Percentage of the budget from which on the model must make room.
const COMPACT_AT: usize = 90;
/// Most bytes of the line that names what was left out.
const OMITTED: usize = 200;
/// Bytes of the lines that are always there, with the warning.
const FIXED: usize = 320;

/// Returns an upper bound of the bytes that the map will have for these items.
pub(super) fn reserved_bytes(items: &[Cow<'_, PromptItem>]) -> usize {
    FIXED + OMITTED + loads(items).map(|item| load_line(item).len()).sum::<usize>()
}

/// The data of a context map.
pub(super) struct ContextMap<'m> {
    /// Pieces of context in the prompt.
    pub(super) items: &'m [Cow<'m, PromptItem>],
    /// Ledger rows of the pieces, results and messages.
    pub(super) rows: &'m [&'m Row],
    /// Description of the turns that are not shown.
    pub(super) turns: Option<String>,
    /// Bytes of the budget.
    pub(super) budget: usize,
    /// Numbers and loads are shown, not only what was left out.
    pub(super) is_full: bool,
    /// The agent has the tool that compacts its transcript.
    pub(super) compacts: bool,
}

impl ContextMap<'_> {
    /// Writes the map. `fixed` are the bytes of everything else, `wanted` those with enough room for everything; the
    /// warning depends on `wanted`. Both exclude the map's own bytes, which are added here.
    pub(super) fn text(&self, fixed: usize, wanted: usize) -> String {
        // The length depends on the numbers in the text, which may get one digit longer in the second pass.
        let mut map = String::new();
        for _ in 0..3 {
            let own = map.len();
            map = self.write_text(fixed + own, wanted + own);
            if map.len() == own {
                break;
            }
        }
        map
    }

    fn write_text(&self, used: usize, wanted: usize) -> String {
        if !self.is_full {
            return self
                .omitted_names()
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
        let unpinned = |item: &PromptItem| self.rows.iter().any(|row| row.key == item.key && is_unpinned(row));
        let mut loaded = loads(self.items).filter(|item| !unpinned(item)).peekable();
        if loaded.peek().is_some() {
            map.push_str("\nloaded:");
            map.extend(loaded.map(load_line));
        }
        if let Some(omitted) = self.omitted_names() {
            let _ = write!(map, "\nomitted: {omitted}");
        }
        map
    }

    /// Returns what the model should do, and what was done already.
    fn advice(&self, percent: usize) -> String {
        let unload = "unload what you no longer need with context_unload";
        if percent < COMPACT_AT {
            return if self.compacts { format!("Compact soon, and {unload}.") } else { capitalise(unload) };
        }
        let loads = self.rows.iter().any(|row| is_unpinned(row)).then_some("the newest loads are unloaded");
        let turns = self.turns.is_some().then_some("the oldest turns are not shown");
        let done: Vec<_> = loads.into_iter().chain(turns).collect();
        match (self.compacts, done.is_empty()) {
            (true, true) => "You must call compact now.".to_owned(),
            (true, false) => format!("You must call compact now: {}.", done.join(", ")),
            (false, true) => capitalise(unload),
            (false, false) => capitalise(&done.join(" and ")),
        }
    }

    /// Lists what isn't in the prompt, within the line's limit: first turns, then events, then what can be loaded and
    /// read again.
    fn omitted_names(&self) -> Option<String> {
        let rank = |row: &&&Row| match row.key.split('/').next() {
            Some("inbox") => 0,
            Some("pending") => 1,
            Some("loads") => 2,
            Some(_) | None => 3,
        };
        let is_gone = |row: &&&Row| match row.status {
            RowStatus::Dropped => true,
            // The note about it had no room either.
            RowStatus::Missing | RowStatus::Denied | RowStatus::Failed => row.rendered == 0,
            RowStatus::Full | RowStatus::Shrunk => false,
        };
        let mut gone: Vec<&&Row> = self.rows.iter().filter(is_gone).collect();
        gone.sort_by_key(rank);
        let names = gone.iter().map(|row| fit_name(&row.key));
        let gone: Vec<Cow<'_, str>> = self.turns.iter().map(Cow::from).chain(names).collect();
        list_names(&gone)
    }
}

/// Capitalises a text and ends it as a sentence.
fn capitalise(text: &str) -> String {
    let (first, rest) = text.split_at(text.len().min(1));
    format!("{}{rest}.", first.to_uppercase())
}

fn loads<'i>(items: &'i [Cow<'_, PromptItem>]) -> impl Iterator<Item = &'i PromptItem> {
    items.iter().map(AsRef::as_ref).filter(|item: &&PromptItem| item.section == Section::Loads)
}

fn is_unpinned(row: &Row) -> bool {
    row.reason.as_deref().is_some_and(|reason| reason.starts_with("unpinned"))
}

fn load_line(item: &PromptItem) -> String {
    let path = item.source.as_deref().unwrap_or(&item.key);
    let budget = item.asked.unwrap_or(0);
    let begin = ForeignText::text(fit_name(path));
    match &item.label {
        Some(label) if label != path => format!("\n  {begin} — {} [{budget}B]", fit_name(label)),
        Some(_) | None => format!("\n  {begin} [{budget}B]"),
    }
}

/// Lists as many names as fit in the line, and the number of the others.
fn list_names(gone: &[Cow<'_, str>]) -> Option<String> {
    let mut line = String::new();
    for (at, name) in gone.iter().enumerate() {
        // Reserves 20 bytes for the separator and ` and 10000 more`.
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
