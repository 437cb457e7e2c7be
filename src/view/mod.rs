//! The answers of the API, one type each. Operations and routes make them, the API's description takes its schemas
//! from them, and the command line reads them back. [`request`] also has the arguments that several callers send.
//!
//! Keys go out in the order in which a type declares its fields. Readers skip keys that they don't know, so that clients
//! and venues of neighbouring builds understand each other.

pub mod a2a;
pub mod agent;
pub mod approval;
pub mod asset;
pub mod audit;
pub mod catalog;
pub mod dead;
pub mod http;
pub mod identity;
pub mod job;
pub mod job_list;
pub mod lattice;
pub mod ledger;
pub mod mcp;
pub mod mcp_login;
pub mod mcp_server;
pub mod notification;
pub mod remote_agent;
pub mod outcome;
pub mod pipeline;
pub mod policy;
pub mod problem;
pub mod queue;
pub mod quota;
pub mod request;
pub mod resource;
pub mod scheduler;
pub mod secret;
pub mod session;
pub mod spend;
pub mod timer;
pub mod token;
pub mod tree;
pub mod venue;
pub mod worker;

use serde::Serialize;
use serde_json::Value;

/// Returns an answer as JSON.
pub fn to_json(view: &impl Serialize) -> Value {
    serde_json::to_value(view).expect("views have text keys only")
}
