//! Agents elsewhere: which cards are approved, and the operations that are published of them before a turn begins.
//!
//! ```text
//! configuration ─▶ approved card in the store ─▶ publication ─▶ tool of the turn ─▶ job that stands for the task
//!                        ▲ first use, or a person   (a change waits, and is refused until then)
//!                  card of the agent, in the background
//! ```

mod pins;
mod prepare;
mod review;

pub(crate) use review::{
    NamedRemoteAgent, approve, approved_card, find_remote_agent, list_remote_agents, refresh, show_remote_agent,
};
