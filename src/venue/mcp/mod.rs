//! Tools of other servers: which are approved, published as operations before a turn begins, and called.
//!
//! ```text
//! configuration ─▶ approved definitions in the store ─▶ publication ─▶ tools of the turn ─▶ call
//!                        ▲ first use, or a person          (a change waits, and is refused until then)
//!                  tools/list, in the background
//! ```
//!
//! A call that goes on after its turn is a job, see `pending`.

mod login;
mod output;
mod pending;
mod pins;
mod prepare;
mod review;
mod tool;

pub(crate) use login::{begin_login, finish_login, logout};
pub use pending::{is_pending_call, run, stop_cancelled};
pub(crate) use review::{NamedServer, approve, find_server, list_servers, list_tools, refresh, show_server};
