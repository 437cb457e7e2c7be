//! The HTTP API: Covia's routes and JSON shapes, submissions, live text of jobs, health, and the Model Context Protocol.
//!
//! `routes` lists every route with its access rule, its input and its answers: the router, the guard and the API's
//! description are made from this list. Answers are types of [`crate::view`], and every error is a `problem`. `a2a` has
//! routes for programs that speak another protocol, with its errors; `console` has pages for people.

mod a2a;
mod agents;
mod api;
mod approvals;
mod assets;
mod body;
pub(crate) mod catalog;
mod connection_limits;
mod console;
mod describe;
mod extract;
mod guard;
mod health;
mod holding_body;
mod jobs;
mod json_rpc;
mod lane;
mod listen;
mod load;
mod mcp;
mod mcp_extension;
mod metrics_format;
mod operate;
mod origin;
mod problem;
mod refusals;
mod route;
mod router;
mod routes;
mod runs;
mod connection;
mod secrets;
mod server;
mod sse;
mod turns;

pub(crate) use api::Api;
pub use api::HttpOptions;
pub use connection_limits::ConnectionLimits;
pub use mcp_extension::{McpExtension, McpExtensionRequest};
pub(crate) use server::VERSION_HEADER;
pub use server::{serve, serve_health};
