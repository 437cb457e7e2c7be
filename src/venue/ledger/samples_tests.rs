//! Inputs of a prompt for tests.

use crate::domain::agent::{CompletionRule, PromptStyle};
use crate::domain::authority::Authority;
use crate::domain::chat::ModelSettings;
use crate::domain::context::budget::PromptBudget;
use crate::domain::context::inputs::{Inputs, Layout, Moment, PromptFrame, ServedEvents};
use crate::domain::tools::ToolTable;
use crate::domain::values::inserted_values::KnownValues;
use std::sync::Arc;

/// Inputs of the first turn of `clerk`, in session `main` of user `u`, with nothing in them.
pub(super) fn inputs() -> Inputs {
    Inputs {
        frame: PromptFrame {
            agent: "clerk".parse().unwrap(),
            venue: "test".into(),
            model: ModelSettings::new("scripted", "x"),
            authority: Authority::default(),
            disclosure: None,
            bound: Authority::default(),
            completion: CompletionRule::Implicit,
            strict: false,
            aliases: false,
            bare: false,
            prompt: PromptStyle::Full,
        },
        moment: Moment { turn: "t/u/clerk/main/1".into(), date: "2026-01-02".into(), budget: PromptBudget::default() },
        system: String::new(),
        values: KnownValues::default(),
        items: Vec::new(),
        tools: Arc::new(ToolTable::new(Vec::new(), Vec::new(), Vec::new())),
        transcript: Vec::new(),
        served: ServedEvents::default(),
        layout: Layout::StableFirst(None),
        attachments: Vec::new(),
    }
}
