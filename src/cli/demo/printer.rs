//! Printer of captions, paragraphs and lines of at most 100 columns.

use super::super::exit::Failure;
use super::super::output::{CommandOutput, Format, write_line};
use std::cell::Cell;
use std::time::Duration;

/// Width of the output in columns.
pub(crate) const WIDTH: usize = 100;

/// Output of the demo: stdout for text, nothing for JSON.
pub(crate) struct Printer {
    pub(crate) out: CommandOutput,
    fast: bool,
    steps: Cell<u32>,
}

impl Printer {
    /// Makes a printer; `fast`: without pauses for a reader.
    pub(crate) const fn new(out: CommandOutput, fast: bool) -> Self {
        Self { out, fast, steps: Cell::new(0) }
    }

    /// Prints the numbered heading of the next step.
    pub(crate) fn caption(&self, text: &str) -> Result<(), Failure> {
        self.steps.set(self.steps.get() + 1);
        self.line("")?;
        self.line(&self.out.bold(&format!("{}. {text}", self.steps.get())))
    }

    /// Prints a line unchanged.
    pub(crate) fn line(&self, text: &str) -> Result<(), Failure> {
        if self.out.format == Format::Text { write_line(text) } else { Ok(()) }
    }

    /// Prints an indented paragraph.
    pub(crate) fn text(&self, text: &str) -> Result<(), Failure> {
        wrap(text, WIDTH - 3).iter().try_for_each(|line| self.line(&format!("   {line}")))
    }

    /// Prints a paragraph beside its name.
    pub(crate) fn entry(&self, name: &str, text: &str) -> Result<(), Failure> {
        let lines = wrap(text, WIDTH - 16);
        lines.iter().enumerate().try_for_each(|(at, line)| {
            let name = self.out.dim(&format!("{:<12}", if at == 0 { name } else { "" }));
            self.line(format!("   {name} {line}").trim_end())
        })
    }

    /// Pauses so that the text can be read.
    pub(crate) async fn pause(&self, time: Duration) {
        if !self.fast && self.out.format == Format::Text {
            tokio::time::sleep(time).await;
        }
    }
}

/// Wraps a text to lines of at most `width` characters, between words where possible.
pub(crate) fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let last = lines.last_mut().expect("there is always a line");
        let used = last.chars().count();
        if used > 0 && used + 1 + word.chars().count() > width {
            lines.push(fit_line(word, width));
        } else {
            let space = if used > 0 { " " } else { "" };
            last.push_str(space);
            last.push_str(&fit_line(word, width));
        }
    }
    lines
}

/// Cuts a text to one line of at most `width` characters.
pub(crate) fn fit_line(text: &str, width: usize) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(width) {
        Some(_) => line.chars().take(width.saturating_sub(1)).chain(['…']).collect(),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_line_is_wider_than_asked() {
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
        assert_eq!(wrap("one abcdefghij k", 5), ["one", "abcd…", "k"]);
        assert_eq!(wrap("", 5), [""]);
        assert_eq!(fit_line("äbc\n def", 5), "äbc …");
        assert_eq!(fit_line("äbc", 3), "äbc");
    }
}
