//! The record of a turn: its inputs and its ledger as lines and parts, and back.
//!
//! ```text
//! Inputs + Ledger ─▶ Scribe::write ─▶ manifest (what changed) + new parts ─▶ the turn's commit
//! manifests of a stretch + parts + turn records ─▶ read ─▶ Inputs + Ledger ─▶ assemble again
//! ```
//!
//! Of the values of a turn it keeps what the prompt shows, and no more: what is filled into calls,
//! and what the prompt didn't use, is gone with the request.
//!
//! A manifest has these lines, in this order. The content of a component follows its line: in place
//! (`"…"`), by chunk (`@part`), or as a list of chunks (`#part`).
//!
//! | line | component |
//! |---|---|
//! | `frame`, `system`, `tools` | [`Inputs`] fields of these names |
//! | `filled` | what the placeholders inserted, by key |
//! | `moment […]` | date and budget |
//! | `layout 2` | the stable prefix of the session's last prompt; absent where the map stands before the transcript |
//! | `item {…}` | an item without its content, with its key and its source |
//! | `attachments` | what is known of the assets that are referred to; never their bytes |
//! | `task`, `result "key"`, `message "key"`, `pending` | what is served |
//! | `goals` | the frames above, and what was compacted |
//! | `remind` | the reminder |
//! | `last` | the note that the task ends with the turn |
//! | `transcript [first,last,count]` | turn records by number |
//! | `row […]` | a row of the ledger |
//! | `values …`, `unresolved …`, `cut …`, `used …`, `prefix …`, `prompt …` | the rest of it |

pub mod erase;
pub mod manifest;
pub mod part;
pub mod period;
mod read;
mod write;

#[cfg(test)]
mod tests;

use super::inputs::Inputs;
use super::ledger::Ledger;
use crate::tools::ToolTable;
use manifest::Base;
use part::{Namer, Packed, PartName};
use period::Period;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

pub use read::{Parts, Span, read};

/// Writes the record of one turn.
#[derive(Debug, Clone)]
pub struct Scribe {
    /// Names the parts.
    pub namer: Namer,
    /// To which the turn belongs, and its parts.
    pub period: Period,
    /// The record of the turn before.
    pub base: Option<Arc<Base>>,
    /// The tool table, packed: worked out once for the turns that share it.
    pub tools: Arc<Packed>,
    /// The system prompt, packed: the same.
    pub system: Arc<Packed>,
}

/// What the commit of a turn writes of its record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LedgerWrite {
    /// The manifest as it is stored.
    pub manifest: String,
    /// To which the parts belong.
    #[serde(default)]
    pub period: Period,
    /// Parts that the turn before didn't have, or not in this period.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<(PartName, String)>,
}

/// A record that was read.
#[derive(Debug, Clone, PartialEq)]
pub struct Restored {
    /// What the turn's prompt was made of; else the components whose content is gone.
    pub inputs: Result<Inputs, Vec<String>>,
    /// The ledger as it was recorded.
    pub ledger: Ledger,
}

/// A tool table as it is recorded.
pub fn pack_tools(namer: &Namer, tools: &ToolTable) -> Packed {
    // Bytes and hash follow from the specs; what is filled in changes with the values of a turn.
    let ToolTable { specs, targets, refused, reports, injections: _, reaches: _, guards: _, bytes: _, hash: _ } = tools;
    let json = serde_json::to_string(&(specs.as_ref(), targets, refused, reports)).expect("tool tables serialise");
    namer.bundle(&json)
}

/// A system prompt as it is recorded.
pub fn pack_system(namer: &Namer, system: &str) -> Packed {
    namer.bundle(system)
}

impl Scribe {
    /// The record of `turn`, as a change of the one before it.
    pub fn write(&self, turn: u64, inputs: &Inputs, ledger: &Ledger) -> LedgerWrite {
        let base = self.base.as_deref().filter(|base| base.period == self.period);
        let (manifest, parts) = write::lines(self, base, inputs, ledger);
        LedgerWrite { manifest: manifest.stored(turn, self.period, base), period: self.period, parts }
    }
}
