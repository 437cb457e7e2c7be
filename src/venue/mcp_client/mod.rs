//! Client of the Model Context Protocol: requests to the servers that configurations name, in both revisions, under the
//! venue's rules for calls to other hosts.
//!
//! The messages are written and read here, and not by the official library: each request is one that leaves by the
//! venue's own client, so that it is known whether it has left; each answer is bounded before it is decoded; and nothing
//! of a server is kept that another process would need.
//!
//! ```text
//! tools/list, tools/call ─▶ era known? ─▶ stateless request ─▶ HTTP ─▶ JSON or stream ─▶ result
//!                               └─▶ handshake, session of the turn ─┘
//!                 a program? ─▶ its stdin and stdout
//! ```

mod call;
mod endpoint;
mod error;
mod exchange;
mod list;
mod list_changes;
mod login;
mod peer;
mod program;
mod servers;
mod session;
mod task_session;

pub use endpoint::{McpEndpoint, McpEndpointError};
pub use program::McpProgram;
pub use servers::{McpServers, VenueServer};

pub(crate) use call::PeerCall;
pub(crate) use endpoint::resolve_headers;
pub(crate) use error::{FailureMeaning, McpFailure};
pub(crate) use list::{ToolListing, list_tools};
pub(crate) use peer::McpPeer;
pub(crate) use session::SessionOwner;
