//! `trellis completions SHELL`: prints a completion script.

use super::Cli;
use super::exit::{Exit, Failure};
use super::output::write;
use clap::{Args, CommandFactory};
use clap_complete::Shell;

/// Prints a script that completes commands and options.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  trellis completions bash > ~/.local/share/bash-completion/completions/trellis")]
pub(crate) struct Completions {
    /// For which shell
    #[arg(value_enum)]
    shell: Shell,
}

impl Completions {
    pub fn run(&self) -> Result<Exit, Failure> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "trellis", &mut script);
        write(&String::from_utf8_lossy(&script))?;
        Ok(Exit::Ok)
    }
}
