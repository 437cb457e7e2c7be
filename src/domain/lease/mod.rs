//! Who may run a session, as one machine: its record, and what becomes of it step by step.
//!
//! A store loads the record, takes one step, writes the record and does what the answer says: hands the
//! mailbox out, wakes who waits, deletes. The embedded store runs it; the Redis functions are held to it
//! case by case by `tests/it/store_differential`. Every state with every step is in `steps.txt`.
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

pub use record::{LeaseRecord, Serving, SessionRecord, Ticket};
pub use step::{
    After, Amending, Availability, Claim, DUE_AFTER, Handout, Onward, Recording, StateChange, TaskStart, TurnClaim,
};
