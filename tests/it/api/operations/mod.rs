//! The groups of the catalog, each through the API or the venue it runs in.

mod asset;
mod http;
mod job;
mod json;
mod lattice;
mod pin;
mod published;
mod schema;

use crate::support::http::Server;
use crate::support::operate::operate;
use serde_json::{Value, json};
use trellis::domain::authority::capability::covers;
use trellis::domain::authority::{Authority, Capability};
use trellis::venue::Venue;
use trellis::venue::operation::{Caller, Need, dispatch, offers};

/// Arguments by which an operation can be called, as its schema names them.
fn sample(schema: &Value) -> Value {
    let argument = |name: &str, property: &Value| match name {
        "path" => json!("w/x"),
        "url" => json!("https://host.example/x"),
        "id" | "taskId" | "job" | "handle" | "timer" => json!("ab".repeat(16)),
        "operation" => json!("v/ops/agent/message"),
        "input" => json!({"agentId": "x", "message": "m"}),
        _ => match property["type"].as_str() {
            Some("integer" | "number") => json!(1),
            Some("boolean") => json!(true),
            Some("array") => json!([]),
            Some("object") => json!({}),
            _ => json!("x"),
        },
    };
    let required: Vec<&str> = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let properties = schema["properties"].as_object().into_iter().flatten();
    let wanted = properties.filter(|(name, _)| required.contains(&name.as_str()) || *name == "path");
    Value::Object(wanted.map(|(name, property)| (name.clone(), argument(name, property))).collect())
}

/// What decides whether `more_tools` finds an operation is what its calls need.
#[test]
fn operations_are_found_by_what_their_calls_need() {
    let catalog = trellis::ops::catalog(true).compiled_view();
    let free = Authority::without_limits();
    let mut checked = 0;
    for found in catalog.operations().filter(|found| offers::find_obstacle(&free, found).is_none()) {
        let path = &*found.spec.path;
        let call = dispatch::resolve_call(&catalog, path, sample(&found.spec.input), false);
        let Ok(needs) = call.and_then(|call| call.needs()) else { continue };
        let is_near = |place: &&str, need: &Need| covers(place, need.resource.as_str());
        if let Some((abilities, places)) = offers::abilities(path) {
            for ability in abilities {
                let need = needs.iter().find(|need| need.ability == *ability);
                let need = need.unwrap_or_else(|| panic!("{path} needs no {ability}: {needs:?}"));
                assert!(places.iter().any(|place| is_near(place, need)), "{path}: {need:?}");
            }
        } else {
            let own = |need: &Need| need.ability.starts_with("crud/") || need.ability == "job/complete";
            // `job/run` needs what it runs, `asset/pin` an asset for an operation of the catalog alone.
            let is_known = ["v/ops/job/run", "v/ops/asset/pin"].contains(&path);
            assert!(is_known || needs.iter().all(own), "{path}: {needs:?}");
        }
        checked += 1;
    }
    assert!(checked > 45, "only {checked} operations were called");
}

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
