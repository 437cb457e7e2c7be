//! Client of the Agent2Agent protocol: cards and requests of the agents elsewhere that configurations name, in both
//! bindings, under the venue's rules for calls to other hosts.
//!
//! The messages are written and read here, as those of [`mcp_client`](super::mcp_client) are: it is known whether a request
//! has left, each answer is bounded before it is decoded, and nothing of an agent is kept that another process would need.

mod endpoint;
mod exchange;
mod signature;

pub use endpoint::{A2aEndpoint, A2aEndpointError};
pub use signature::CardSignatureError;

pub(crate) use exchange::{AgentPeer, PeerFailure};

use crate::venue::places::{KnownPlace, Places, VenuePlace};

/// An agent elsewhere of the venue's configuration.
pub type VenueRemoteAgent = VenuePlace<A2aEndpoint>;
/// The agents elsewhere of a process.
pub type A2aAgents = Places<A2aEndpoint>;
/// What this process knows of an agent elsewhere in use.
pub(crate) type KnownRemoteAgent = KnownPlace<A2aEndpoint>;
