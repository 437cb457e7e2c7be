//! Confirmation at the terminal before a change that can't be undone.

use super::exit::Failure;
use std::io::{BufRead, IsTerminal, Write};

/// Asks whether to go on; fails without a terminal, or with another answer than yes. `what` begins a sentence, e.g. "3
/// jobs would be cancelled".
pub(crate) fn confirm(what: &str) -> Result<(), Failure> {
    if !std::io::stdin().is_terminal() {
        return Err(Failure::usage(format!("{what}; nobody is there to ask: `--yes` does it")));
    }
    eprint!("{what}. Go on? [y/N] ");
    let _ = std::io::stderr().flush();
    let mut line = String::new();
    let read = std::io::stdin().lock().read_line(&mut line);
    let is_yes = read.is_ok() && matches!(line.trim(), "y" | "Y" | "yes");
    if is_yes { Ok(()) } else { Err(Failure::usage("nothing was done")) }
}
