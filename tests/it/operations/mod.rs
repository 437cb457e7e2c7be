//! The groups of the catalog, each through the API or the venue it runs in.

mod json;
mod schema;

use crate::support::http::Server;
use serde_json::{Value, json};

/// The refusal of an operation: status, and that its text has `part`.
async fn refused(server: &Server, operation: &str, input: Value, status: u16, part: &str) {
    let body = json!({"operation": operation, "input": input});
    server.post("/api/v1/run", body).await.is_problem(status, part);
}
