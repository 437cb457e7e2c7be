//! Options and environment that every command is given.

use super::exit::Failure;
use super::output::{CommandOutput, Format};
use crate::config::{Config, LoadedConfig};
use clap::Args;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Options of every command.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Options of every command")]
pub(crate) struct Global {
    /// Configuration file (TOML); `config/default.toml` documents every key
    #[arg(long, global = true, value_name = "FILE", env = "TRELLIS_CONFIG")]
    pub config: Option<PathBuf>,
    /// Replace one setting, e.g. `--set worker.slots=4`
    #[arg(long, global = true, value_name = "KEY=VALUE", value_parser = setting)]
    pub set: Vec<(String, String)>,
    /// Form of the data on stdout
    #[arg(long, global = true, value_enum, value_name = "FORM", default_value_t)]
    pub output: Format,
}

/// A text is no setting; the error of the argument parser shows the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected `key=value`, e.g. `worker.slots=4`")]
struct SettingArgumentError;

fn setting(text: &str) -> Result<(String, String), SettingArgumentError> {
    let (key, value) = text.split_once('=').ok_or(SettingArgumentError)?;
    Ok((key.trim().to_owned(), value.to_owned()))
}

/// Global options and environment of a command.
#[derive(Debug, Clone)]
pub(crate) struct CliContext {
    /// Output of the command's data.
    pub out: CommandOutput,
    global: Global,
    /// Environment of the process.
    pub env: BTreeMap<String, String>,
}

impl CliContext {
    /// Makes the context of a command from its global options and the environment of the process.
    pub fn new(global: Global, env: BTreeMap<String, String>) -> Self {
        let no_color = env.get("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self { out: CommandOutput::new(global.output, no_color), global, env }
    }

    /// Loads the configuration of all layers; `flags` of the command come last.
    pub fn load(&self, flags: Vec<(&str, String)>) -> Result<LoadedConfig, Failure> {
        let set = &self.global.set;
        let other = |(flag, value): &(&str, String)| set.iter().any(|(key, other)| key == flag && other != value);
        if flags.iter().any(|flag| flag.0 == "store.url" && other(flag)) {
            return Err(Failure::usage("`--data` and `--set store.url=…` name two stores; leave one out"));
        }
        let mut overrides = set.clone();
        overrides.extend(flags.into_iter().map(|(key, value)| (key.to_owned(), value)));
        Config::load(self.global.config.as_deref(), &self.env, &overrides).map_err(|e| Failure::usage(e.to_string()))
    }
}
