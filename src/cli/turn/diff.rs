//! Differences of two prompts: parts of the ledger, and lines of the text.

use super::super::client::read_view;
use super::super::escape::escape_data;
use super::super::exit::{Exit, Failure};
use super::super::output::CommandOutput;
use super::table::prompt;
use crate::view::ledger::{LedgerRowView, TurnView};
use crate::view::to_json;
use serde::Serialize;
use serde_json::Value;

/// Unchanged lines shown around a change.
const CONTEXT_LINES: usize = 2;
/// Lines at most that are compared one by one; changes of more lines are shown as a replacement.
const COMPARED_LINES_MAX: usize = 4_000;

/// A part that differs between two prompts.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct ChangedPart {
    key: String,
    /// Part of the earlier prompt, if it had one of this key.
    before: Option<LedgerRowView>,
    /// Part of the later prompt, if it has one of this key.
    after: Option<LedgerRowView>,
}

/// Differences of the prompts of two turns.
#[derive(Serialize)]
struct PromptDifference<'a> {
    /// Name of the earlier turn.
    before: &'a str,
    /// Name of the later turn.
    after: &'a str,
    /// Whether the hashes of the prompts are equal.
    same: bool,
    parts: &'a [ChangedPart],
    /// Changed lines with some around them; null if one of the prompts can't be assembled.
    lines: Option<&'a [String]>,
}

pub(crate) fn show(out: CommandOutput, before: Value, after: Value) -> Result<Exit, Failure> {
    let (before, after): (TurnView, TurnView) = (read_view(before)?, read_view(after)?);
    let parts = changed_parts(ledger_rows(&before), ledger_rows(&after));
    let lines = match (before.request(), after.request()) {
        (Some(before), Some(after)) => Some(changes(&prompt(before), &prompt(after))),
        _ => None,
    };
    let difference = PromptDifference {
        before: &before.name,
        after: &after.name,
        same: prompt_hash(&before) == prompt_hash(&after),
        parts: &parts,
        lines: lines.as_deref(),
    };
    out.value(&to_json(&difference), || text(out, [&before.name, &after.name], &parts, lines.as_deref()))?;
    Ok(Exit::Ok)
}

/// Returns the parts of a turn's prompt; none if there was no prompt.
fn ledger_rows(turn: &TurnView) -> &[LedgerRowView] {
    turn.ledger.as_ref().map_or(&[][..], |ledger| ledger.rows.as_slice())
}

/// Returns the hash of a turn's prompt.
fn prompt_hash(turn: &TurnView) -> Option<&str> {
    turn.ledger.as_ref().map(|ledger| ledger.prompt.as_str())
}

fn text(out: CommandOutput, names: [&String; 2], parts: &[ChangedPart], lines: Option<&[String]>) -> String {
    let [before, after] = names.map(|name| escape_data(name));
    let head = out.bold(&format!("{before} → {after}"));
    let parts = table(out, parts);
    let lines = match lines {
        None => "the text of one of them can't be built again".to_owned(),
        Some([]) => "the prompts are equal".to_owned(),
        Some(lines) => lines.join("\n"),
    };
    format!("{head}\n\n{parts}\n\n{lines}")
}

/// Formats the parts that differ as a table.
pub(crate) fn table(out: CommandOutput, parts: &[ChangedPart]) -> String {
    if parts.is_empty() {
        return "no part has another size or status".to_owned();
    }
    let cells = |part: &ChangedPart| {
        let side = |row: Option<&LedgerRowView>| {
            row.map_or_else(|| "–".to_owned(), |row| format!("{} {}", row.rendered, row.status.as_str()))
        };
        vec![part.key.clone(), side(part.before.as_ref()), side(part.after.as_ref())]
    };
    out.table(&["PART", "BEFORE", "AFTER"], &parts.iter().map(cells).collect::<Vec<_>>())
}

/// Returns the parts that differ.
pub(crate) fn changed_parts(before: &[LedgerRowView], after: &[LedgerRowView]) -> Vec<ChangedPart> {
    let find = |rows: &[LedgerRowView], key: &str| rows.iter().find(|row| row.key == key).cloned();
    let mut changed = Vec::new();
    for row in before {
        let other = find(after, &row.key);
        if other.as_ref() != Some(row) {
            changed.push(ChangedPart { key: row.key.clone(), before: Some(row.clone()), after: other });
        }
    }
    for row in after.iter().filter(|row| find(before, &row.key).is_none()) {
        changed.push(ChangedPart { key: row.key.clone(), before: None, after: Some(row.clone()) });
    }
    changed
}

/// Returns changed lines (`-`, `+`) with some lines around them (two spaces); `…` stands for other lines.
pub(crate) fn changes(before: &str, after: &str) -> Vec<String> {
    let (a, b): (Vec<&str>, Vec<&str>) = (before.lines().collect(), after.lines().collect());
    let head = a.iter().zip(&b).take_while(|(a, b)| a == b).count();
    let tail = a[head..].iter().rev().zip(b[head..].iter().rev()).take_while(|(a, b)| a == b).count();
    let middle = steps(&a[head..a.len() - tail], &b[head..b.len() - tail]);
    let all: Vec<(char, &str)> = a[..head]
        .iter()
        .map(|line| (' ', *line))
        .chain(middle)
        .chain(a[a.len() - tail..].iter().map(|line| (' ', *line)))
        .collect();
    let changed: Vec<usize> = (0..all.len()).filter(|at| all[*at].0 != ' ').collect();
    let near = |at: usize| {
        let next = changed.partition_point(|changed| *changed < at);
        let after = changed.get(next).is_some_and(|changed| changed - at <= CONTEXT_LINES);
        after || next.checked_sub(1).is_some_and(|before| at - changed[before] <= CONTEXT_LINES)
    };
    let mut shown: Vec<String> = Vec::new();
    for (at, (sign, line)) in all.iter().enumerate() {
        if near(at) {
            shown.push(format!("{sign} {line}"));
        } else if shown.last().is_some_and(|last| last != "…") {
            shown.push("…".to_owned());
        }
    }
    if shown.last().is_some_and(|last| last == "…") {
        shown.pop();
    }
    shown
}

/// Returns the fewest changed lines, by the longest common subsequence.
fn steps<'t>(a: &[&'t str], b: &[&'t str]) -> Vec<(char, &'t str)> {
    if a.len() > COMPARED_LINES_MAX || b.len() > COMPARED_LINES_MAX {
        return a.iter().map(|line| ('-', *line)).chain(b.iter().map(|line| ('+', *line))).collect();
    }
    let width = b.len() + 1;
    let mut common = vec![0_u16; (a.len() + 1) * width];
    for i in (0..a.len()).rev() {
        for j in (0..b.len()).rev() {
            let (down, right) = (common[(i + 1) * width + j], common[i * width + j + 1]);
            common[i * width + j] = if a[i] == b[j] { common[(i + 1) * width + j + 1] + 1 } else { down.max(right) };
        }
    }
    let (mut i, mut j, mut steps) = (0, 0, Vec::new());
    while i < a.len() || j < b.len() {
        if i < a.len() && j < b.len() && a[i] == b[j] {
            steps.push((' ', a[i]));
            (i, j) = (i + 1, j + 1);
        } else if j == b.len() || i < a.len() && common[(i + 1) * width + j] >= common[i * width + j + 1] {
            steps.push(('-', a[i]));
            i += 1;
        } else {
            steps.push(('+', b[j]));
            j += 1;
        }
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::context::ledger::Row;

    #[test]
    fn changed_lines_are_shown_with_some_around_them() {
        for (before, after, expected) in [
            ("a b c", "a b c", vec![]),
            ("a b c d e f g", "a b c X e f g", vec!["  b", "  c", "- d", "+ X", "  e", "  f"]),
            ("a", "a b", vec!["  a", "+ b"]),
            ("a b", "b", vec!["- a", "  b"]),
            ("x 1 2 3 4 5 6 y", "X 1 2 3 4 5 6 Y", vec!["- x", "+ X", "  1", "  2", "…", "  5", "  6", "- y", "+ Y"]),
        ] {
            let lines = |text: &str| text.replace(' ', "\n");
            assert_eq!(changes(&lines(before), &lines(after)), expected, "{before} → {after}");
        }
    }

    #[test]
    fn parts_that_differ_are_named() {
        let row = |key: &str, rendered: usize| LedgerRowView::from(&Row::new_fixed(key, rendered));
        let found = changed_parts(&[row("a", 1), row("b", 2), row("c", 3)], &[row("a", 1), row("b", 5), row("d", 4)]);
        let out = CommandOutput::new(super::super::super::output::Format::Text, true);
        assert_eq!(
            table(out, &found),
            "PART  BEFORE  AFTER\nb     2 full  5 full\nc     3 full  –\nd     –       4 full"
        );
    }
}
