//! The groups of the catalog, each through the API or the venue it runs in.

mod asset;
mod http;
mod job;
mod json;
mod lattice;
mod pin;
mod schema;

use crate::support::http::Server;
use crate::support::operate::operate;
use serde_json::{Value, json};
use trellis::domain::authority::{Authority, Capability};
use trellis::venue::Venue;
use trellis::venue::operation::Caller;

/// The refusal of an operation: status, and that its text has `part`.
async fn refused(server: &Server, operation: &str, input: Value, status: u16, part: &str) {
    let body = json!({"operation": operation, "input": input});
    server.post("/api/v1/run", body).await.is_problem(status, part);
}

/// A caller that may do one thing.
fn agent(can: &str, with: &str) -> Caller {
    let capability = Capability { with: with.to_owned(), can: can.to_owned() };
    let authority = Authority::new(Some(vec![capability]));
    Caller::new("local/me".parse().unwrap(), "agent:limited".to_owned(), authority)
}

/// A call by somebody with less than all authority.
async fn call(server: &Server, caller: &Caller, operation: &str, input: Value) -> Result<Value, String> {
    call_at(&server.venue, caller, operation, input).await
}

async fn call_at(venue: &Venue, caller: &Caller, operation: &str, input: Value) -> Result<Value, String> {
    operate(venue, caller, operation, input).await.map_err(|error| error.to_string())
}
