//! The lease of a session as a state machine: its record, and the effect of each step.
//!
//! A store loads the record, takes one step, writes the record and does what the answer says: hands out the mailbox,
//! wakes waiting sessions, deletes. The embedded store runs this code; `tests/it/store/differential.rs` checks the
//! Redis functions against it case by case. Every state with every step is in `steps.txt`.
//!
//! ```text
//!            append                grant                     go_on: seen all
//!   resting ───────▶ due or waiting ─────▶ held ──────────────────────────────▶ resting, due or backing off
//!                         ▲                │  ▲ renew, commit, go_on: more came
//!                         │ grant (a crash)│  └──┐
//!                         └──── lapsed ◀───┴─────┘ its end passes
//! ```

mod record;
mod step;
#[cfg(test)]
mod tests;

pub use record::{LeaseRecord, LeasedEvents, SessionRecord, Ticket};
pub use step::{
    Availability, CheckpointState, DUE_AFTER, Handout, HolderState, LeaseResult, LeaseUse, StateAmendment, StateChange,
    TaskStart, TurnClaim,
};
