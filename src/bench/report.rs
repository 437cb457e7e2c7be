//! The document that `trellis bench` prints.

use super::context::ContextReport;
use super::fairness::FairnessReport;
use super::growth::GrowthReport;
use super::idle::IdleReport;
use super::latency::LatencyReport;
use super::ledger::DurableGrowth;
use super::prefix::PrefixReport;
use super::readers::ReadersReport;
use super::sessions::SessionsReport;
use super::turns::TurnsReport;
use serde::Serialize;

/// A measurement with its circumstances.
#[derive(Debug, Clone, Serialize)]
pub struct BenchReport {
    /// Name of the measurement, e.g. `turns`.
    pub bench: &'static str,
    /// Kind of the store that was measured.
    pub store: &'static str,
    /// Sessions that a worker runs at once.
    pub slots: usize,
    /// Figures of the measurement.
    pub result: BenchResult,
}

/// Figures of one measurement.
#[derive(Debug, Clone, Serialize)]
#[serde(untagged)]
pub enum BenchResult {
    /// Result of `bench turns`.
    Turns(TurnsReport),
    /// Result of `bench latency`.
    Latency(LatencyReport),
    /// Result of `bench context`.
    Context(PromptCosts),
    /// Result of `bench prefix`.
    Prefix(PrefixReport),
    /// Result of `bench sessions`.
    Sessions(SessionsReport),
    /// Result of `bench idle`.
    Idle(IdleReport),
    /// Result of `bench growth`.
    Growth(GrowthReport),
    /// Result of `bench fairness`.
    Fairness(FairnessReport),
    /// Result of `bench readers`.
    Readers(ReadersReport),
}

/// Costs of prompts.
#[derive(Debug, Clone, Serialize)]
pub struct PromptCosts {
    /// Times without a store or a model.
    #[serde(flatten)]
    pub times: ContextReport,
    /// Durable bytes of real turns.
    pub durable: Vec<DurableGrowth>,
}

impl BenchResult {
    /// Returns the number of jobs that the audit could not account for; 0 of a measurement without an audit.
    pub const fn unaccounted(&self) -> u64 {
        match self {
            Self::Turns(report) => report.unaccounted,
            Self::Sessions(report) => report.unaccounted,
            Self::Latency(_)
            | Self::Context(_)
            | Self::Prefix(_)
            | Self::Idle(_)
            | Self::Growth(_)
            | Self::Fairness(_)
            | Self::Readers(_) => 0,
        }
    }
}
