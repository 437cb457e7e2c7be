//! Data on stdout: readable lines for people, JSON for programs.

use super::client::read_view;
use super::escape;
use super::exit::{Exit, Failure};
use crate::view::to_json;
use clap::ValueEnum;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::ffi::OsString;
use std::io::{ErrorKind, IsTerminal, Write};

/// Form of the data on stdout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum Format {
    /// Lines and tables for people.
    #[default]
    Text,
    /// One indented JSON document.
    Json,
    /// One JSON value per line.
    Ndjson,
}

/// Output of a command's data.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CommandOutput {
    /// Form of the data.
    pub format: Format,
    colour: bool,
}

impl CommandOutput {
    /// Makes an output; it has colours only if stdout is a terminal and `NO_COLOR` is unset or empty.
    pub fn new(format: Format, no_color: bool) -> Self {
        Self { format, colour: !no_color && std::io::stdout().is_terminal() }
    }

    /// Prints one value; `text` is its readable form.
    pub fn value(self, value: &Value, text: impl FnOnce() -> String) -> Result<(), Failure> {
        match self.format {
            Format::Text => write_line(&text()),
            Format::Json => write_json(&format_indented(value)),
            Format::Ndjson => write_json(&value.to_string()),
        }
    }

    /// Prints the items of `key` in `page`; JSON output has the whole page.
    pub fn page(self, page: &Value, key: &str, text: impl FnOnce(&[Value]) -> String) -> Result<(), Failure> {
        let items = page[key].as_array().map_or(&[][..], Vec::as_slice);
        match self.format {
            Format::Text => match text(items) {
                // A list without a head that is empty: what it would show is noted on stderr.
                none if none.is_empty() => Ok(()),
                lines => write_line(&lines),
            },
            Format::Json => write_json(&format_indented(page)),
            Format::Ndjson => items.iter().try_for_each(|item| write_json(&item.to_string())),
        }
    }

    /// Prints the items of `key` in `page` as text made of their types; JSON output has the whole page.
    pub fn typed_page<T: DeserializeOwned>(
        self,
        page: &Value,
        key: &str,
        text: impl FnOnce(&[T]) -> String,
    ) -> Result<(), Failure> {
        let items: Vec<T> = match self.format {
            Format::Text => read_view(page[key].clone())?,
            Format::Json | Format::Ndjson => Vec::new(),
        };
        self.page(page, key, |_| text(&items))
    }

    /// Prints one value as text made of its type; JSON output has the value as it came.
    pub fn typed_value<T: DeserializeOwned>(
        self,
        value: Value,
        text: impl FnOnce(&T) -> String,
    ) -> Result<(), Failure> {
        match self.format {
            Format::Text => write_line(&text(&read_view(value)?)),
            Format::Json | Format::Ndjson => self.value(&value, String::new),
        }
    }

    /// Formats rows under their headings, in columns.
    pub fn table(self, headings: &[&str], rows: &[Vec<String>]) -> String {
        let rows: Vec<Vec<_>> = rows.iter().map(|row| row.iter().map(|text| escape::cell(text)).collect()).collect();
        let mut widths: Vec<usize> = headings.iter().map(|h| h.chars().count()).collect();
        for row in &rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        let line = |cells: &mut dyn Iterator<Item = &str>| {
            let padded: Vec<String> =
                cells.zip(&widths).map(|(cell, width)| self.status(cell, &format!("{cell:<width$}"))).collect();
            padded.join("  ").trim_end().to_owned()
        };
        let mut lines = vec![line(&mut headings.iter().copied())];
        lines.extend(rows.iter().map(|row| line(&mut row.iter().map(AsRef::as_ref))));
        lines.join("\n")
    }

    /// Formats `shown` in bold.
    pub fn bold(self, shown: &str) -> String {
        if self.colour { format!("\x1b[1m{shown}\x1b[0m") } else { shown.to_owned() }
    }

    /// Formats `shown` less bright.
    pub fn dim(self, shown: &str) -> String {
        if self.colour { format!("\x1b[2m{shown}\x1b[0m") } else { shown.to_owned() }
    }

    /// Formats `shown` in the colour of the status `word`.
    pub fn status(self, word: &str, shown: &str) -> String {
        let code = match word {
            _ if !self.colour => return shown.to_owned(),
            "COMPLETE" | "holds" | "ok" => "32",
            "FAILED" | "REJECTED" | "CANCELLED" | "broken" | "problem" => "31",
            "STARTED" | "RUNNING" | "unknown" => "33",
            _ => return shown.to_owned(),
        };
        format!("\x1b[{code}m{shown}\x1b[0m")
    }
}

fn format_indented(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_else(|_| value.to_string())
}

/// Formats indented JSON for people.
pub(crate) fn pretty(value: &Value) -> String {
    escape::json(&format_indented(value)).into_owned()
}

/// Formats a text unchanged, any other value as indented JSON.
pub(crate) fn format_plain(value: &Value) -> String {
    value.as_str().map_or_else(|| pretty(value), |text| escape::escape_data(text).into_owned())
}

/// Returns the text of a field, or an empty one.
pub(crate) fn field(value: &Value, key: &str) -> String {
    format_line(&value[key])
}

/// Formats a text unchanged, null as nothing, any other value as JSON in one line.
pub(crate) fn format_line(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => escape::escape_data(text).into_owned(),
        other => compact(other),
    }
}

/// Formats JSON in one line.
pub(crate) fn compact(value: &Value) -> String {
    escape::json(&value.to_string()).into_owned()
}

/// Writes a line to stdout.
pub(crate) fn write_line(text: &str) -> Result<(), Failure> {
    write(&format!("{text}\n"))
}

/// Writes a line of JSON to stdout; for a terminal, control characters are escaped.
pub(crate) fn write_json(text: &str) -> Result<(), Failure> {
    let stdout = std::io::stdout();
    let text = if stdout.is_terminal() { escape::json(text) } else { text.into() };
    write_stdout(&format!("{text}\n"))
}

/// Writes text to stdout, unbuffered; for a terminal, control characters are escaped.
pub(crate) fn write(text: &str) -> Result<(), Failure> {
    if std::io::stdout().is_terminal() { write_stdout(&escape::escape_text(text)) } else { write_stdout(text) }
}

fn write_stdout(text: &str) -> Result<(), Failure> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        // The reader, e.g. `head`, has closed the pipe: that is no failure.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Err(Failure::new(Exit::Ok, "")),
        Err(error) => Err(Failure::internal(format!("stdout can't be written: {error}"))),
        Ok(()) => Ok(()),
    }
}

/// Writes a remark to stderr if it is a terminal.
pub(crate) fn remark(text: &str) {
    if std::io::stderr().is_terminal() {
        note(text);
    }
}

/// Where a page ends, whatever its items are.
struct PageEnd {
    /// Items in the whole list.
    total: Option<u64>,
    /// Offset of the next page; `None` if there is none, or it has a cursor.
    next: Option<u64>,
}

impl PageEnd {
    /// Reads the end of a page whose items stay where they are.
    fn read(page: &Value) -> Self {
        let number = |key: &str| page.get(key).and_then(Value::as_u64);
        Self { total: number("total"), next: number("next") }
    }
}

/// Notes how a list with an `offset` goes on.
pub(crate) fn note_next(page: &Value) {
    if let PageEnd { total: Some(total), next: Some(next) } = PageEnd::read(page) {
        note(&format!("{total} in all; `--offset {next}` shows the next"));
    }
}

/// Notes `text` if a list is empty.
pub(crate) fn note_empty(page: &Value, text: &str) {
    if PageEnd::read(page).total == Some(0) {
        note(text);
    }
}

/// Notes what the server did not search for an answer, one line each.
pub(crate) fn note_incomplete(incomplete: &[String]) {
    for text in incomplete {
        note(&format!("incomplete: {text}"));
    }
}

/// Writes a line to stderr, without colours.
pub(crate) fn note(text: &str) {
    // Without a stderr the line is lost.
    let mut stderr = std::io::stderr();
    let text = if stderr.is_terminal() { escape::escape_styles(text) } else { text.into() };
    let _ = writeln!(stderr, "{text}");
}

/// What JSON output shows of a failure.
#[derive(Serialize)]
struct FailureDocument<'a> {
    error: &'a str,
    /// Exit code of the process.
    exit: u8,
}

/// Writes a failure to stderr: as a line, or for JSON output as a document `{"error", "exit"}`.
pub(crate) fn report(format: Format, failure: &Failure) {
    // Several errors are lines of one text.
    let text = failure.text.replace("\nerror: ", "\n");
    let document = || to_json(&FailureDocument { error: &text, exit: failure.exit as u8 });
    match format {
        Format::Text => note(&escape::escape_data(&format!("error: {failure}"))),
        Format::Json => note(&escape::json(&format_indented(&document()))),
        Format::Ndjson => note(&escape::json(&document().to_string())),
    }
}

/// Returns the output format that arguments ask for, even if they can't be parsed.
pub(crate) fn requested_format(arguments: &[OsString]) -> Option<Format> {
    let texts: Vec<&str> = arguments.iter().filter_map(|argument| argument.to_str()).collect();
    let joined = texts.iter().find_map(|text| text.strip_prefix("--output="));
    let apart =
        || texts.iter().zip(texts.iter().skip(1)).find_map(|(name, value)| (*name == "--output").then_some(*value));
    Format::from_str(joined.or_else(apart)?, false).ok().filter(|format| *format != Format::Text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let out = CommandOutput { format: Format::Text, colour: false };
        let rows = [vec!["a".to_owned(), "COMPLETE".to_owned()], vec!["lönger".to_owned(), String::new()]];
        assert_eq!(out.table(&["ID", "STATUS"], &rows), "ID      STATUS\na       COMPLETE\nlönger");
    }

    #[test]
    fn a_cell_is_one_line_without_control_characters() {
        let out = CommandOutput { format: Format::Text, colour: false };
        let rows = [vec!["a\x1b[2J\nb".to_owned(), "\u{202e}x".to_owned()]];
        assert_eq!(out.table(&["A", "B"], &rows), "A              B\na\\u{1b}[2J\\nb  \\u{202e}x");
        assert_eq!(format_plain(&"\x1b]0;t\x07".into()), "\\u{1b}]0;t\x07");
    }

    #[test]
    fn colours_do_not_count_as_width() {
        let out = CommandOutput { format: Format::Text, colour: true };
        let rows = [vec!["FAILED".to_owned(), "x".to_owned()]];
        assert_eq!(out.table(&["S", "T"], &rows), "S       T\n\x1b[31mFAILED\x1b[0m  x");
    }
}
