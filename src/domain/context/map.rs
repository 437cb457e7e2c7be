//! Section 6, the context map: what the context costs, what is loaded, what was left out.

use super::item::{Item, Section};
use super::ledger::{Row, Status};
use std::borrow::Cow;
use std::fmt::Write;

/// From so many percent on, the model is warned.
const WARN_AT: usize = 70;
/// From so many percent on, it must make room.
const COMPACT_AT: usize = 90;
/// Bytes of the line that names what was left out.
const OMITTED: usize = 200;
/// Bytes of the lines that are always there, and the warning.
const FIXED: usize = 260;

/// At least as many bytes as [`text`] will have for these items.
pub(super) fn reserve(items: &[Cow<'_, Item>]) -> usize {
    FIXED + OMITTED + loads(items).map(|item| line(item).len()).sum::<usize>()
}

/// The map. `fixed` are the bytes of everything else; its own are counted in what it says.
/// `compacts`: the agent has the tool that makes room in its transcript.
pub(super) fn text(items: &[Cow<'_, Item>], rows: &[&Row], fixed: usize, (budget, compacts): (usize, bool)) -> String {
    // Its length depends on the number in it, which is at most a digit longer the second time.
    let mut used = fixed;
    let mut map = String::new();
    for _ in 0..3 {
        map = with(items, rows, used, (budget, compacts));
        if used == fixed + map.len() {
            break;
        }
        used = fixed + map.len();
    }
    map
}

fn with(items: &[Cow<'_, Item>], rows: &[&Row], used: usize, (budget, compacts): (usize, bool)) -> String {
    let mut map = format!("[Context Map]\nbudget: {used}/{budget} bytes ({} remaining)", budget.saturating_sub(used));
    let percent = used.saturating_mul(100) / budget;
    if percent >= WARN_AT {
        let advice = match (percent >= COMPACT_AT, compacts) {
            (true, true) => {
                "You must call compact now: the newest loads are unloaded, the oldest turns no longer shown."
            }
            (true, false) => "The newest loads are unloaded and the oldest turns are no longer shown.",
            (false, true) => "Compact soon, and unload what you no longer need with context_unload.",
            (false, false) => "Unload what you no longer need with context_unload.",
        };
        let _ = write!(map, "\nWARNING: {percent}% budget used. {advice}");
    }
    let unpinned = |item: &Item| rows.iter().any(|row| row.key == item.key && is_unpinned(row));
    let mut loaded = loads(items).filter(|item| !unpinned(item)).peekable();
    if loaded.peek().is_some() {
        map.push_str("\nloaded:");
        map.extend(loaded.map(line));
    }
    if let Some(omitted) = omitted(rows) {
        let _ = write!(map, "\nomitted: {omitted}");
    }
    map
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
    match &item.label {
        Some(label) if label != path => format!("\n  {path} — {label} [{budget}B]"),
        Some(_) | None => format!("\n  {path} [{budget}B]"),
    }
}

/// What isn't in the prompt, by key, as far as the line is long.
fn omitted(rows: &[&Row]) -> Option<String> {
    let gone: Vec<_> = rows.iter().filter(|row| row.status == Status::Dropped).map(|row| row.key.as_str()).collect();
    let mut line = String::new();
    for (at, key) in gone.iter().enumerate() {
        // What is behind the last name that fits: ` and 10000 more`.
        if line.len() + key.len() + 20 > OMITTED {
            let _ = write!(line, "{}{} more", if at > 0 { " and " } else { "" }, gone.len() - at);
            break;
        }
        if at > 0 {
            line.push_str(", ");
        }
        line.push_str(key);
    }
    (!gone.is_empty()).then_some(line)
}
