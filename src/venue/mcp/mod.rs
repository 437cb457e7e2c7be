//! Tools of other servers: which are approved, published as operations before a turn begins, and called.
//!
//! ```text
//! configuration ─▶ approved definitions in the store ─▶ publication ─▶ tools of the turn ─▶ call
//!                        ▲ first use, or a person          (a change waits, and is refused until then)
//!                  tools/list, in the background
//! ```

mod pins;
mod prepare;
mod review;
mod tool;
mod warnings;

pub use prepare::{prepare_path, prepare_preview, prepare_stored, prepare_turn, watch};
pub use review::{NamedServer, approve, find_server, list_servers, list_tools, refresh, show_server};
pub use warnings::server_warnings;
