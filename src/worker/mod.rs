//! The worker: takes one event from its delivery to the messages that its turn publishes, as the core decides.
//!
//! ```text
//! intake ─▶ lease ─▶ session ─▶ turn: context ─▶ model ─▶ (record) ─▶ tools ─▶ commit ─▶ outbox
//! operations  what callers have invoked, beside turns
//! rounds      periodic tasks: clock comparison, sweep, timers, audit, clean-up, registry of workers
//! state       what all of these share: options, caches, slots, tasks that run here
//! ```
//!
//! The stages stand in that order, and each uses only those after it; the exception is the lease, which all stages of
//! a turn may use. The intake also starts operations, and rounds use both; no stage of a turn uses them. `state` uses
//! none of these: it holds the `Worker` that every stage is given.

mod run;

mod intake;
mod lease;
mod session;
mod turn;
mod context;
mod model;
mod tools;
mod commit;
mod outbox;

mod operations;
mod rounds;

mod turn_base;
mod live_text;
pub mod stage;
mod spans;
mod state;

pub use run::run;
pub use state::WorkerOptions;
