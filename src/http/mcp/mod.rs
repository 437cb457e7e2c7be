//! `/mcp`: the venue as a server of the Model Context Protocol, revisions 2025-11-25 (and two before it) and 2026-07-28.
//!
//! No process keeps anything between two requests: a task is a job, and each request says whose it is, so that any
//! process of a fleet answers it. Messages are read by `domain::decode`, as all data from outside. Of the library
//! `rmcp` nothing is used: its service reads the body itself, keeps tasks in memory, and without its sessions takes no
//! answer of a client; its types bring crates of their own for a dozen methods.
//!
//! ```text
//! POST /mcp ─▶ endpoint ─▶ message ─▶ client ─▶ methods ─▶ tools, agent_tools, tasks, resources ─▶ operations of the venue
//!                                        └────▶ listen (a stream of notifications)
//! ```

mod agent_tools;
mod call;
mod client;
mod endpoint;
mod inputs;
mod job_tools;
mod job_wait;
mod listen;
mod message;
mod metadata;
mod methods;
mod refusal;
mod reply;
mod resource_address;
mod resources;
mod site;
mod tasks;
mod tools;

pub(super) use endpoint::post;
pub(super) use metadata::{add_challenge, client_metadata, protected_resource, server_address};
