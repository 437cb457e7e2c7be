//! The record of a turn: writes its inputs and its ledger as lines and parts, and reads them back.
//!
//! ```text
//! Inputs + Ledger ─▶ Scribe::write ─▶ manifest (what changed) + new parts ─▶ the turn's commit
//! manifests of a stretch + parts + turn records ─▶ read ─▶ Inputs + Ledger ─▶ assemble again
//! ```
//!
//! Of the context values of a turn, the record holds only those that the prompt shows. Values filled into calls and
//! unused values are not stored.
//!
//! A manifest has these lines, in this order. The content of a component follows its line: in place (`"…"`), by chunk
//! (`@part`), or as a list of chunks (`#part`).
//!
//! | line | component |
//! |---|---|
//! | `frame`, `system`, `tools` | [`Inputs`] fields of these names |
//! | `filled` | values of the placeholders, by key |
//! | `moment […]` | date and budget |
//! | `layout 2` | the stable prefix of the session's last prompt; absent where the map stands before the transcript |
//! | `item {…}` | an item without its content, with its key and its source |
//! | `attachments` | facts about the referenced assets; never their bytes |
//! | `task`, `result "key"`, `message "key"`, `pending` | the served events and jobs |
//! | `goals` | the frames above, and the compacted turns |
//! | `remind` | the reminder |
//! | `last` | the note that the task ends with the turn |
//! | `missed […]` | placeholders of the `taskPrompt` without a value |
//! | `transcript [first,last,count]` | turn records by number |
//! | `row […]` | a row of the ledger |
//! | `values …`, `unresolved …`, `cut …`, `used …`, `prefix …`, `prompt …` | other fields of the ledger |

pub mod erase;
pub mod manifest;
pub mod part;
pub mod period;
mod read;
mod write;

#[cfg(test)]
mod tests;

use super::inputs::Inputs;
use super::ledger::PromptLedger;
use crate::tools::ToolTable;
use manifest::BaseManifest;
use part::{PackedContent, PartName, PartNamer};
use period::Period;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

pub use read::{PartContents, TurnSpan, read};

/// Writes the record of one turn.
#[derive(Debug, Clone)]
pub struct RecordWriter {
    /// Makes the names of the parts.
    pub namer: PartNamer,
    /// Period of the turn and of its parts.
    pub period: Period,
    /// Record of the turn before.
    pub base: Option<Arc<BaseManifest>>,
    /// Packed tool table, shared by the turns with the same tools.
    pub tools: Arc<PackedContent>,
    /// Packed system prompt, shared by the turns with the same prompt.
    pub system: Arc<PackedContent>,
}

/// The record of a turn as its commit writes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LedgerWrite {
    /// The manifest as it is stored.
    pub manifest: String,
    /// Period of the parts.
    #[serde(default)]
    pub period: Period,
    /// Parts that the turn before didn't have in this period.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<(PartName, String)>,
}

/// A record that was read back.
#[derive(Debug, Clone, PartialEq)]
pub struct RestoredRecord {
    /// Inputs of the prompt, or else the names of components whose content is erased or purged.
    pub inputs: Result<Inputs, Vec<String>>,
    /// The ledger as it was recorded.
    pub ledger: PromptLedger,
}

/// Packs a tool table for the record.
pub fn pack_tools(namer: &PartNamer, tools: &ToolTable) -> PackedContent {
    // Bytes and hash follow from the specs; injected arguments change with the values of a turn; versions are recorded
    // with the calls.
    let ToolTable {
        specs,
        targets,
        refused,
        reports,
        injections: _,
        reaches: _,
        guards: _,
        versions: _,
        bytes: _,
        hash: _,
    } = tools;
    let json = serde_json::to_string(&(specs.as_ref(), targets, refused, reports)).expect("tool tables serialise");
    namer.bundle(&json)
}

/// Packs a system prompt for the record.
pub fn pack_system(namer: &PartNamer, system: &str) -> PackedContent {
    namer.bundle(system)
}

impl RecordWriter {
    /// Makes the record of `turn`, as a change of the one before it.
    pub fn write(&self, turn: u64, inputs: &Inputs, ledger: &PromptLedger) -> LedgerWrite {
        let base = self.base.as_deref().filter(|base| base.period == self.period);
        let (manifest, parts) = write::lines(self, base, inputs, ledger);
        LedgerWrite { manifest: manifest.to_stored(turn, self.period, base), period: self.period, parts }
    }
}
