//! `trellis config show|check`: shows and checks the configuration.

use super::CliContext;
use super::exit::{Exit, Failure};
use super::output::note;
use crate::view::to_json;
use clap::Subcommand;
use serde::Serialize;
use serde_json::{Map, Value};

/// The configuration of all layers: defaults, file, environment, flags.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Print every setting in effect, credentials hidden
    #[command(after_help = "Example:\n  trellis config show --origin --config fleet.toml")]
    Show {
        /// With where each value comes from
        #[arg(long)]
        origin: bool,
    },
    /// Check all layers and report every error
    #[command(after_help = "Example:\n  trellis config check --config fleet.toml")]
    Check,
}

/// What JSON output shows of a setting with its origin.
#[derive(Serialize)]
struct SettingDocument {
    value: Value,
    origin: String,
}

impl ConfigCommand {
    pub fn run(&self, context: &CliContext) -> Result<Exit, Failure> {
        let loaded = context.load(Vec::new())?;
        match self {
            Self::Check => note(&format!("the configuration is valid ({} settings)", loaded.entries.len())),
            Self::Show { origin } => {
                let entries: Map<String, Value> = loaded
                    .entries
                    .iter()
                    .map(|e| {
                        let value = if *origin {
                            to_json(&SettingDocument { value: toml_to_json(&e.value), origin: e.origin.to_string() })
                        } else {
                            toml_to_json(&e.value)
                        };
                        (e.key.clone(), value)
                    })
                    .collect();
                context.out.value(&Value::Object(entries), || {
                    let width = loaded.entries.iter().map(|e| e.key.len() + e.value.len() + 3).max().unwrap_or(0);
                    let line = |e: &crate::config::ShownKey| {
                        let setting = format!("{} = {}", e.key, e.value);
                        if *origin { format!("{setting:<width$}  # {}", e.origin) } else { setting }
                    };
                    loaded.entries.iter().map(line).collect::<Vec<_>>().join("\n")
                })?;
            }
        }
        Ok(Exit::Ok)
    }
}

/// Converts a value in TOML syntax to JSON: integers and booleans have the same syntax in both.
fn toml_to_json(toml: &str) -> Value {
    format!("x = {toml}")
        .parse::<toml::Table>()
        .ok()
        .and_then(|table| serde_json::to_value(table.get("x")?).ok())
        .unwrap_or_else(|| toml.into())
}
