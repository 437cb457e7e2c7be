//! `trellis bench context`: measures how long a prompt takes to build, without a store or a model.

use crate::domain::agent::{AgentConfig, CompletionRule, PromptStyle};
use crate::domain::authority::Authority;
use crate::domain::context::assemble::assemble;
use crate::domain::context::budget::PromptBudget;
use crate::domain::context::inputs::{Inputs, Layout, Moment, PromptFrame, ServedEvents};
use crate::domain::context::item::{ItemContent, PromptItem, Section};
use crate::domain::ids::{AgentId, IdError};
use crate::domain::render::{RenderOptions, render};
use crate::domain::tools::ToolTable;
use crate::domain::values::Resolver;
use crate::domain::values::inserted_values::KnownValues;
use crate::ops;
use serde::Serialize;
use serde_json::{Value, json};
use std::hint::black_box;
use std::time::Instant;

/// Number of paths in the context.
const PATHS: usize = 40;
/// Size of the context in bytes.
const CONTEXT_BYTES: usize = 180_000;
/// Size of the large value in bytes.
const LARGE_VALUE_BYTES: usize = 10_000_000;
/// Repetitions of each measurement; the median is reported.
const ROUNDS: usize = 201;

/// Times in microseconds, each the median of 201 repetitions.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ContextReport {
    /// Time to build a prompt of 180 KB from 40 paths of JSON and text, ledger and hashes included.
    pub assemble_us: f64,
    /// Size of that prompt in bytes.
    pub prompt_bytes: usize,
    /// Part of `assemble_us` that hashes the prompt for the ledger.
    pub hash_us: f64,
    /// Time to render a value of 10 MB at 500 bytes.
    pub render_500_us: f64,
    /// Time to render a value of 10 MB at 10,000 bytes.
    pub render_10000_us: f64,
}

/// Measures all of these times.
pub fn context() -> Result<ContextReport, IdError> {
    let inputs = inputs("bench".parse()?);
    let Ok(built) = assemble(&inputs) else { unreachable!("the budget is twice of what is in it") };
    let large = large_value();
    let rendered = |budget| median(|| render(black_box(&large), RenderOptions { budget, pretty: false }));
    Ok(ContextReport {
        assemble_us: median(|| assemble(black_box(&inputs))),
        prompt_bytes: built.ledger.used,
        hash_us: median(|| crate::domain::context::digest::prompt_hash(black_box(&built.request))),
        render_500_us: rendered(500),
        render_10000_us: rendered(10_000),
    })
}

fn median<T>(mut work: impl FnMut() -> T) -> f64 {
    let mut times: Vec<_> = (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            black_box(work());
            start.elapsed()
        })
        .collect();
    times.sort_unstable();
    times[ROUNDS / 2].as_secs_f64() * 1e6
}

/// Makes inputs of half texts, half records, together as large as the default budget.
fn inputs(agent: AgentId) -> Inputs {
    let each = CONTEXT_BYTES / PATHS;
    let item = |n: usize| {
        let name = format!("w/docs/{n}");
        let content =
            if n.is_multiple_of(2) { ItemContent::Text(prose(each)) } else { ItemContent::Value(records(each)) };
        PromptItem {
            section: Section::Context,
            key: format!("context/{name}"),
            label: Some(name.clone()),
            source: Some(name),
            allowed: Some("crud/read on w/docs".into()),
            asked: Some(each * 2),
            priority: Section::Context.priority(),
            required: false,
            unresolved: Vec::new(),
            tags: crate::domain::context::item::HandOffTags::default(),
            origin: crate::domain::origin::Origin::default(),
            content,
            attachments: Vec::new(),
        }
    };
    let config = AgentConfig::parse(&json!({"model": {"provider": "scripted", "name": "echo"}}));
    let config = config.unwrap_or_else(|_| unreachable!("the smallest configuration is valid"));
    Inputs {
        frame: PromptFrame {
            agent,
            venue: "bench".into(),
            model: config.model.clone(),
            authority: Authority::default(),
            disclosure: None,
            bound: Authority::default(),
            completion: CompletionRule::Implicit,
            strict: false,
            aliases: false,
            bare: false,
            prompt: PromptStyle::Full,
        },
        moment: Moment {
            turn: "bench/run/bench/s/1".into(),
            date: "2026-01-01".into(),
            budget: PromptBudget { bytes: CONTEXT_BYTES * 2, ..PromptBudget::default() },
        },
        system: "You check invoices against the policy.".into(),
        values: KnownValues::default(),
        items: (0..PATHS).map(item).collect(),
        tools: tools(&config).into(),
        transcript: Vec::new(),
        served: ServedEvents::default(),
        layout: Layout::StableFirst(None),
        attachments: Vec::new(),
    }
}

fn tools(config: &AgentConfig) -> ToolTable {
    let catalog = ops::catalog(false).compiled_view();
    crate::domain::tools::resolve(
        config,
        &[],
        crate::domain::tools::TurnEnds::for_task(false),
        &Resolver::default(),
        &catalog,
    )
}

fn prose(bytes: usize) -> String {
    "Invoices over the limit need a second signature.\n".chars().cycle().take(bytes).collect()
}

fn record(n: usize) -> Value {
    json!({"id": n, "vendor": format!("vendor-{n}"), "total": 12.5, "paid": n.is_multiple_of(3), "tags": ["a", "b"]})
}

fn records(bytes: usize) -> Value {
    let one = record(100).to_string().len() + 2;
    Value::Array((0..bytes / one).map(record).collect())
}

fn large_value() -> Value {
    let part = |n: usize| (format!("part{n}"), records(LARGE_VALUE_BYTES / 100));
    Value::Object((0..100).map(part).collect())
}
