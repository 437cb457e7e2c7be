//! Calls of the API as tables write them: an operation with its input, or a method with its path and perhaps a body.

use reqwest::{Client, Method, RequestBuilder};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::TcpListener;

/// Ids by the names that calls use for them, as `$name.job`.
#[derive(Default)]
pub struct CallNames(pub BTreeMap<String, String>);

impl CallNames {
    /// Puts the ids in place of their names.
    pub fn fill(&self, text: &str) -> String {
        // The longest names first: one may begin another.
        self.0.iter().rev().fold(text.to_owned(), |text, (name, id)| text.replace(&format!("${name}"), id))
    }

    /// Keeps the ids of an answer under a name.
    pub fn keep(&mut self, name: &str, answer: &Value) {
        for key in ["job", "id", "timer", "sessionId", "hash"] {
            if let Some(id) = answer[key].as_str() {
                self.0.insert(format!("{name}.{key}"), id.to_owned());
            }
        }
        // Of a policy the newest revocation.
        if let Some(id) = answer["revocations"].as_array().and_then(|all| all.last()?["id"].as_str()) {
            self.0.insert(format!("{name}.revocation"), id.to_owned());
        }
    }
}

/// Makes the request of a call. A path after `//` is one of the server, any other one of the API.
pub fn request(client: &Client, url: &str, call: &str) -> RequestBuilder {
    let (first, rest) = call.split_once(' ').unwrap();
    let typed = |text: &str| -> Value { serde_json::from_str(text).unwrap_or_else(|error| panic!("{call}: {error}")) };
    if !rest.starts_with('/') {
        let body = json!({"operation": format!("v/ops/{first}"), "input": typed(rest)});
        return client.post(format!("{url}/api/v1/run")).json(&body);
    }
    let (path, body) = rest.split_once(' ').unwrap_or((rest, ""));
    let path = path.strip_prefix("//").map_or_else(|| format!("/api/v1{path}"), |root| format!("/{root}"));
    let request = client.request(Method::from_bytes(first.as_bytes()).unwrap(), format!("{url}{path}"));
    if body.is_empty() { request } else { request.json(&typed(body)) }
}

/// Starts a server that takes a request and answers nothing. Returns its port.
pub fn closing_site() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let _ = std::io::Read::read(&mut stream.unwrap(), &mut [0; 4096]);
        }
    });
    port
}
