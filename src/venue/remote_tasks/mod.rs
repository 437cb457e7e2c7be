//! Jobs that stand for tasks of agents elsewhere: the message is sent once, and the task is asked for until it has ended,
//! on whatever worker, without a slot in between.
//!
//! ```text
//! turn ─▶ job ─▶ intent stored ─▶ SendMessage ─▶ id of the task stored ─▶ GetTask … GetTask ─▶ result to the session
//!                     └─ a crash here: sent again under the same id if that is harmless, else the outcome is unknown
//! ```
//!
//! A job that is cancelled has its task cancelled, too, as far as the agent lets it.

mod cancel;
mod output;
mod step;

pub use cancel::stop_cancelled;
pub use step::{is_remote, run};
