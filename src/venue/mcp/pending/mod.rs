//! Calls of tools that go on after their turn, as jobs whose results go to the session: tasks of servers, and questions
//! to people. No step holds a slot while something is waited for, and each may be made by another worker.
//!
//! ```text
//! turn ─▶ call ─▶ job with the task, or with the question ─▶ session waits
//!                    ├─ tasks/get … tasks/get ─▶ result to the session
//!                    └─ approval … answer ─▶ tools/call again, or tasks/update
//! ```

mod agent;
mod question;
mod server;
mod server_step;
mod start;
mod step;
mod stop;

pub(super) use start::start;
pub use step::{is_pending_call, run};
pub(super) use stop::cancel_at_server;
pub use stop::stop_cancelled;
