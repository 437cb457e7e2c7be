//! Tools by declaration, through the public binary against a small service with faults.

mod bad_input;
mod calls;
mod crashes;
mod faults;
mod import;
mod service;

use crate::support::cli::{Done, Up};
use serde_json::{Value, json};
use service::Service;

/// A venue that may call the service.
fn venue(service: &Service, more: &[&str]) -> Up {
    let settings = service.settings();
    let settings: Vec<&str> = settings.iter().map(String::as_str).chain(more.iter().copied()).collect();
    Up::start_with(&settings)
}

/// The declaration of a tool with one argument, `id`.
fn tool(name: &str, http: Value) -> Value {
    let input = if http["url"].as_str().is_some_and(|url| url.contains("{id}")) || http.to_string().contains("{id}") {
        json!({"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]})
    } else {
        json!({"type": "object", "properties": {}})
    };
    let mut tool = json!({"name": name, "description": format!("Does {name}."), "input": input});
    tool["http"] = http;
    tool
}

/// Applies an agent with these tools and rules of a scripted model.
fn apply(up: &Up, agent: &str, rules: &str, mut config: Value) -> Done {
    up.file(&format!("{agent}.rules"), rules);
    config["model"] = json!({"provider": "scripted", "name": format!("{agent}.rules")});
    let file = format!("{agent}.json");
    up.file(&file, &config.to_string());
    up.run(&["agent", "apply", &file])
}

/// Sets a secret that may go to the service.
fn set_secret(up: &Up, service: &Service, name: &str, value: &str) {
    up.file("secret", value);
    up.run(&["secret", "set", name, "@secret", "--host", &format!("127.0.0.1:{}", service.port)]).ok();
}

/// The records of the calls of an agent's first turn.
fn calls_of(up: &Up, agent: &str) -> Vec<Value> {
    let list: Value = serde_json::from_str(&up.run(&["turn", "list", agent, "--output", "json"]).ok()).unwrap();
    let turns = list["turns"].as_array().unwrap();
    let first = turns.iter().find(|turn| turn["turn"] == 1).unwrap();
    let name = first["name"].as_str().unwrap();
    let turn: Value = serde_json::from_str(&up.run(&["turn", "show", name, "--output", "json"]).ok()).unwrap();
    turn["record"]["calls"].as_array().unwrap().clone()
}
