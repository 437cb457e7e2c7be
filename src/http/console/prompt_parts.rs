//! The parts of a prompt as a page shows them: a bar of their bytes, a table, and what differs from another turn.

use super::lattice::path_address;
use super::text::{size_text, summary};
use crate::domain::context::ledger::RowStatus;
use crate::domain::origin::SourceRead;
use crate::domain::percent::percent_encode;
use crate::view::ledger::{LedgerRowView, LedgerView};

/// Width of the bar in its own units.
const BAR_UNITS: usize = 1_000;

/// Digits of a hash by which people tell two apart.
const HASH_DIGITS: usize = 12;

/// A part of a prompt in the table.
pub(super) struct PartRow {
    /// Number in the prompt, from 1.
    pub(super) number: usize,
    pub(super) key: String,
    /// Class of the part's colour.
    pub(super) class: &'static str,
    /// Path or other source; empty without one.
    pub(super) source: String,
    /// Address of the source in the lattice; empty for other sources.
    pub(super) source_address: String,
    /// Address of the prompt that is built without the source; empty if it can't be.
    pub(super) without: String,
    pub(super) version: String,
    pub(super) hash: String,
    pub(super) size: String,
    /// Bytes that it asked for, where it got fewer.
    pub(super) asked: String,
    pub(super) allowed: String,
    pub(super) glyph: &'static str,
    pub(super) status: &'static str,
    pub(super) reason: String,
    /// Reads of the operation that made the part.
    pub(super) reads: Vec<String>,
    /// Difference to the turn that it is compared with; empty without one.
    pub(super) change: String,
    /// Whether nothing of it is in the prompt.
    pub(super) is_absent: bool,
    /// Whether it is the first part that differs.
    pub(super) is_first_change: bool,
}

/// A stretch of the bar, in units of its whole width.
pub(super) struct BarStretch {
    pub(super) number: usize,
    pub(super) class: &'static str,
    pub(super) start: usize,
    pub(super) width: usize,
    pub(super) label: String,
}

/// The parts of a prompt, perhaps compared with those of another turn.
pub(super) struct PromptParts {
    pub(super) rows: Vec<PartRow>,
    pub(super) bar: Vec<BarStretch>,
    /// Parts that only the other turn has.
    pub(super) removed: Vec<String>,
    /// Bytes, tokens and budget in words.
    pub(super) total: String,
    /// Name of the turn that they are compared with; empty without one.
    pub(super) compared: String,
    /// Whether a provider's cache of system prompt and tools may still count; `None` without a comparison.
    pub(super) has_same_prefix: Option<bool>,
}

/// A ledger that another one is compared with.
#[derive(Clone)]
pub(super) struct ComparedLedger<'a> {
    pub(super) ledger: &'a LedgerView,
    /// Name of its turn.
    pub(super) name: String,
}

impl PromptParts {
    /// Makes the parts of a ledger, compared with those of another turn. `turn` is the address of its turn.
    pub(super) fn new(ledger: &LedgerView, compared: Option<ComparedLedger<'_>>, turn: &str) -> Self {
        let other = compared.as_ref().map(|compared| compared.ledger);
        let (mut rows, mut has_changed) = (Vec::new(), false);
        for (at, row) in ledger.rows.iter().enumerate() {
            let mut shown = part_row(at + 1, row, turn);
            if let Some(other) = other {
                let before = other.rows.iter().find(|other| is_same_part(row, other));
                shown.change = describe_change(row, before);
                shown.is_first_change = !has_changed && !shown.change.is_empty();
                has_changed |= shown.is_first_change;
            }
            rows.push(shown);
        }
        let removed = other.iter().flat_map(|other| &other.rows);
        let removed = removed.filter(|before| !ledger.rows.iter().any(|row| is_same_part(row, before)));
        let total = format!(
            "{} of {} ({} %), about {} tokens",
            size_text(ledger.used),
            size_text(ledger.budget.bytes),
            ledger.percent,
            ledger.tokens
        );
        Self {
            rows,
            bar: bar(&ledger.rows),
            removed: removed.map(part_name).collect(),
            total,
            has_same_prefix: other.map(|other| other.prefix == ledger.prefix),
            compared: compared.map(|compared| compared.name).unwrap_or_default(),
        }
    }
}

fn is_same_part(row: &LedgerRowView, other: &LedgerRowView) -> bool {
    row.key == other.key && row.source == other.source
}

fn part_name(row: &LedgerRowView) -> String {
    let source = row.source.as_ref().map(|source| format!(" from {source}")).unwrap_or_default();
    summary(&format!("{}{source}, {}", row.key, size_text(row.rendered)))
}

fn part_row(number: usize, row: &LedgerRowView, turn: &str) -> PartRow {
    let (glyph, is_absent) = match row.status {
        RowStatus::Full => ("✓", false),
        RowStatus::Shrunk => ("✂", false),
        RowStatus::Dropped => ("✂", true),
        RowStatus::Missing => ("∅", true),
        RowStatus::Denied => ("⊗", true),
        RowStatus::Failed => ("✕", true),
    };
    let source = row.source.clone().unwrap_or_default();
    let address = lattice_address(&source).unwrap_or_default();
    // System prompt and tools come from the configuration, which an experiment changes as a whole.
    let may_leave_out = !is_absent && !address.is_empty() && part_class(row) == "part-context";
    PartRow {
        number,
        key: summary(&row.key),
        class: part_class(row),
        without: if may_leave_out { without_address(turn, &source) } else { String::new() },
        source_address: address,
        source: summary(&source),
        version: row.version.map(|version| version.to_string()).unwrap_or_default(),
        hash: row.hash.as_ref().map(|hash| hash.chars().take(HASH_DIGITS).collect()).unwrap_or_default(),
        size: size_text(row.rendered),
        asked: if row.asked > row.rendered { size_text(row.asked) } else { String::new() },
        allowed: row.allowed.as_deref().filter(|_| row.status != RowStatus::Denied).map(summary).unwrap_or_default(),
        glyph,
        status: row.status.as_str(),
        reason: row.reason.as_deref().map(summary).unwrap_or_default(),
        reads: row.reads.iter().map(read_text).collect(),
        change: String::new(),
        is_absent,
        is_first_change: false,
    }
}

fn without_address(turn: &str, source: &str) -> String {
    format!("{turn}/replay?without={}", percent_encode(source))
}

fn read_text(read: &SourceRead) -> String {
    let version = read.version.map(|version| format!(" version {version}")).unwrap_or_default();
    let through = if read.through.is_empty() { String::new() } else { format!(" through {}", read.through) };
    let allowed = read.allowed.as_ref().map(|allowed| format!(", allowed by {allowed}")).unwrap_or_default();
    summary(&format!("{}{version}{through}{allowed}", read.path))
}

/// Returns the address of a source that is a path of the lattice.
fn lattice_address(source: &str) -> Option<String> {
    crate::domain::lattice::Path::parse(source).ok().map(|path| path_address(&path.to_string()))
}

fn part_class(row: &LedgerRowView) -> &'static str {
    if row.status == RowStatus::Denied {
        return "part-denied";
    }
    match row.key.split('/').next().unwrap_or_default() {
        "system" => "part-system",
        "tools" => "part-tools",
        "context" | "loads" | "map" | "scope" => "part-context",
        "transcript" => "part-transcript",
        "pending" | "inbox" | "input" => "part-input",
        _ => "part-other",
    }
}

/// Returns the stretches of the parts that are in the prompt, each at least one unit wide.
fn bar(rows: &[LedgerRowView]) -> Vec<BarStretch> {
    let total = rows.iter().map(|row| row.rendered).sum::<usize>().max(1);
    let (mut stretches, mut before) = (Vec::new(), 0);
    for (at, row) in rows.iter().enumerate().filter(|(_, row)| row.rendered > 0) {
        let start = before * BAR_UNITS / total;
        before += row.rendered;
        let width = (before * BAR_UNITS / total - start).max(1);
        stretches.push(BarStretch { number: at + 1, class: part_class(row), start, width, label: part_name(row) });
    }
    stretches
}

/// Returns what has changed in a part; empty if nothing has.
fn describe_change(row: &LedgerRowView, before: Option<&LedgerRowView>) -> String {
    let Some(before) = before else { return "added".to_owned() };
    let has_same_source = row.version == before.version && row.hash == before.hash;
    if row.status != before.status {
        return format!("{} → {}", before.status.as_str(), row.status.as_str());
    }
    match (has_same_source, row.rendered == before.rendered) {
        (true, true) => String::new(),
        (_, false) => format!("{} → {}", size_text(before.rendered), size_text(row.rendered)),
        (false, true) => match (before.version, row.version) {
            (Some(old), Some(new)) if old != new => format!("version {old} → {new}"),
            _ => "other content".to_owned(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::context::ledger::PromptLedger;

    fn row(key: &str, bytes: usize) -> LedgerRowView {
        LedgerRowView::from(&crate::domain::context::ledger::Row::new_fixed(key, bytes))
    }

    fn ledger(rows: Vec<LedgerRowView>) -> LedgerView {
        LedgerView { rows, ..LedgerView::from(&PromptLedger::default()) }
    }

    #[test]
    fn a_bar_has_a_stretch_for_each_part_in_the_prompt() {
        let parts = PromptParts::new(&ledger(vec![row("system", 600), row("tools", 0), row("input", 200)]), None, "");
        let stretches: Vec<_> = parts.bar.iter().map(|part| (part.number, part.start, part.width)).collect();
        assert_eq!(stretches, [(1, 0, 750), (3, 750, 250)]);
    }

    #[test]
    fn a_comparison_names_the_first_change_and_what_is_gone() {
        let before = ledger(vec![row("system", 600), row("context/old", 9), row("input", 200)]);
        let after = ledger(vec![row("system", 600), row("input", 210), row("inbox/1", 5)]);
        let parts = PromptParts::new(&after, Some(ComparedLedger { ledger: &before, name: "turn 1".into() }), "");
        let changes: Vec<_> = parts.rows.iter().map(|row| (row.change.as_str(), row.is_first_change)).collect();
        assert_eq!(changes, [("", false), ("200 B → 210 B", true), ("added", false)]);
        assert_eq!(parts.removed, ["context/old, 9 B"]);
    }

    #[test]
    fn a_denied_part_is_shown_and_has_no_bytes() {
        let denied = LedgerRowView { status: RowStatus::Denied, rendered: 0, ..row("context/pay", 0) };
        let parts = PromptParts::new(&ledger(vec![denied]), None, "");
        assert!(parts.bar.is_empty() && parts.rows[0].is_absent);
        assert_eq!((parts.rows[0].glyph, parts.rows[0].class), ("⊗", "part-denied"));
    }
}
