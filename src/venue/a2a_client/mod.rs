//! Client of the Agent2Agent protocol: cards and requests of the agents elsewhere that configurations name, in both
//! bindings, under the venue's rules for calls to other hosts.
//!
//! The messages are written and read here, as those of [`mcp_client`](super::mcp_client) are: it is known whether a request
//! has left, each answer is bounded before it is decoded, and nothing of an agent is kept that another process would need.

mod agents;
mod endpoint;
mod exchange;
mod signature;

pub use agents::{A2aAgents, VenueRemoteAgent};
pub use endpoint::{A2aCredential, A2aEndpoint, A2aEndpointError};
pub use signature::CardSignatureError;

pub(crate) use agents::{KnownRemoteAgent, RemoteAgentKey};
pub(crate) use exchange::{AgentPeer, PeerFailure};
