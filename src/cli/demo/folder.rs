//! The demo's folder and its contents; the files of `config/examples` are built in.

use super::super::exit::Failure;
use crate::domain::decode;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

const RULES: &str = include_str!("../../../config/examples/demo-rules.toml");
const TROUBLE: &str = include_str!("../../../config/examples/demo-trouble-rules.toml");
const SEED: &str = include_str!("../../../config/examples/seed.json");

/// Name of the agent that gets the tasks.
pub(crate) const CLERK_AGENT: &str = "accounts-payable";
/// Name of the agent that the clerk asks.
pub(crate) const HELPER_AGENT: &str = "vendor-enrichment";

const AGENTS: [(&str, &str); 2] = [
    (CLERK_AGENT, include_str!("../../../config/examples/accounts-payable.toml")),
    (HELPER_AGENT, include_str!("../../../config/examples/vendor-enrichment.toml")),
];

/// Text of the model's delay in the rules file.
const DELAY: &str = "delay_ms = 200";

/// A temporary folder, deleted when dropped unless it is kept.
pub(crate) struct DemoFolder {
    path: PathBuf,
    is_kept: bool,
}

impl DemoFolder {
    /// Creates a folder with the rules file; `delay` is the time that the model takes to answer.
    pub(crate) fn make(delay: Duration) -> Result<Self, Failure> {
        let name = format!("trellis-demo-{}", &uuid::Uuid::new_v4().simple().to_string()[..8]);
        let path = std::env::temp_dir().join(name);
        let cannot = |e: std::io::Error| Failure::internal(format!("folder `{}` can't be made: {e}", path.display()));
        std::fs::create_dir(&path).map_err(cannot)?;
        let folder = Self { path: path.clone(), is_kept: false };
        let rules = format!("{RULES}\n{TROUBLE}").replace(DELAY, &format!("delay_ms = {}", delay.as_millis()));
        std::fs::write(folder.rules(), rules).map_err(cannot)?;
        Ok(folder)
    }

    /// Returns the path of the folder.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the folder of the embedded store.
    pub(crate) fn data(&self) -> PathBuf {
        self.path.join("data")
    }

    /// Returns the rules file of the scripted model.
    pub(crate) fn rules(&self) -> PathBuf {
        self.path.join("rules.toml")
    }

    /// Returns the log of model calls.
    pub(crate) fn calls(&self) -> PathBuf {
        self.path.join("calls.jsonl")
    }

    /// Keeps the folder when this value is dropped.
    pub(crate) fn keep(&mut self) {
        self.is_kept = true;
    }
}

impl Drop for DemoFolder {
    fn drop(&mut self) {
        if !self.is_kept {
            // A killed process may still write its last line: another try deletes it.
            for _ in 0..3 {
                if std::fs::remove_dir_all(&self.path).is_ok() {
                    return;
                }
                std::thread::sleep(Duration::from_millis(50));
            }
        }
    }
}

/// Returns the initial values of the workspace, by path.
pub(crate) fn seed() -> Result<Map<String, Value>, Failure> {
    decode::from_json(SEED.as_bytes())
        .map_err(|e| Failure::internal(format!("the built-in workspace is malformed: {e}")))
}

/// An invoice of the initial workspace.
#[derive(Debug, Deserialize)]
pub(crate) struct SeededInvoice {
    /// Key of the vendor in `w/vendors`.
    pub(crate) vendor: String,
    /// Total in EUR.
    pub(crate) total: f64,
}

/// Returns the invoices of the initial workspace, by id.
pub(crate) fn invoices() -> Result<BTreeMap<String, SeededInvoice>, Failure> {
    let invoices = seed()?.get("w/invoices").cloned().unwrap_or_default();
    decode::into_type(invoices).map_err(|e| Failure::internal(format!("the built-in invoices are malformed: {e}")))
}

/// Returns the agents with their configurations.
pub(crate) fn agents() -> Result<Vec<(&'static str, Value)>, Failure> {
    let parse = |(name, text): (&'static str, &str)| {
        let config = decode::toml(text)
            .map_err(|e| Failure::internal(format!("the built-in agent `{name}` is malformed: {e}")))?;
        Ok((name, config))
    };
    AGENTS.into_iter().map(parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::rules::ScriptRules;

    #[test]
    fn demo_files_are_legal_and_answers_take_the_configured_time() {
        assert_eq!(invoices().unwrap().len(), 6);
        assert_eq!(agents().unwrap().len(), 2);
        let folder = DemoFolder::make(Duration::from_millis(901)).unwrap();
        let rules = std::fs::read_to_string(folder.rules()).unwrap();
        ScriptRules::parse(&rules).unwrap();
        assert!(rules.matches("delay_ms = 901").count() >= 10 && !rules.contains(DELAY));
        let path = folder.path().to_owned();
        drop(folder);
        assert!(!path.exists());
    }
}
