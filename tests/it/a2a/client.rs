//! A client of one agent that knows nothing but the protocol's JSON.

use reqwest::{Client, Method, RequestBuilder, Response};
use serde_json::{Map, Value, json};
use std::collections::VecDeque;
use std::time::Duration;

/// Longest wait for one event.
const EVENT_TIME: Duration = Duration::from_mins(1);

/// How requests are spelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Binding {
    Rpc,
    Rest,
}

pub const BINDINGS: [Binding; 2] = [Binding::Rpc, Binding::Rest];

/// A client of one agent.
#[derive(Debug, Clone)]
pub struct A2aClient {
    /// Address of the agent.
    pub url: String,
    pub binding: Binding,
    headers: Vec<(String, String)>,
    http: Client,
}

/// An error of either binding.
#[derive(Debug)]
pub struct Refused {
    /// HTTP status.
    pub http: u16,
    /// Code of JSON-RPC, or again the HTTP status.
    pub code: i64,
    pub reason: String,
    pub domain: String,
    pub text: String,
}

impl A2aClient {
    /// For an agent `tenant/user/agent`.
    pub fn new(base: &str, agent: &str, binding: Binding) -> Self {
        let headers = vec![("A2A-Version".to_owned(), "1.0".to_owned())];
        Self { url: format!("{base}/a2a/{agent}"), binding, headers, http: Client::new() }
    }

    /// The same with another header, or another value of one.
    pub fn with_header(mut self, name: &str, value: &str) -> Self {
        self.headers.retain(|(known, _)| known != name);
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    fn request(&self, operation: &str, arguments: &Value) -> RequestBuilder {
        let (method, path, body) = match self.binding {
            Binding::Rpc => {
                let body = json!({"jsonrpc": "2.0", "id": 7, "method": operation, "params": arguments});
                (Method::POST, String::new(), Some(body))
            }
            Binding::Rest => rest(operation, arguments.as_object().unwrap().clone()),
        };
        let mut request = self.http.request(method, format!("{}{path}", self.url));
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        match body {
            Some(body) => request.header("content-type", "application/json").body(body.to_string()),
            None => request,
        }
    }

    /// The answer of an operation, or its error.
    pub async fn ask(&self, operation: &str, arguments: Value) -> Result<Value, Refused> {
        let response = self.request(operation, &arguments).send().await.unwrap();
        self.read(response).await
    }

    async fn read(&self, response: Response) -> Result<Value, Refused> {
        let http = response.status().as_u16();
        let media = response.headers()["content-type"].to_str().unwrap().to_owned();
        let text = response.text().await.unwrap();
        let body: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
        match self.binding {
            Binding::Rpc => {
                assert_eq!((media.as_str(), &body["jsonrpc"]), ("application/json", &json!("2.0")), "{body}");
                let Some(error) = body.get("error") else {
                    assert_eq!((http, &body["id"]), (200, &json!(7)), "{body}");
                    return Ok(body["result"].clone());
                };
                Err(refused(http, error, &error["data"]))
            }
            Binding::Rest => {
                assert_eq!(media, "application/a2a+json", "{body}");
                if http < 300 {
                    return Ok(body);
                }
                assert_eq!(body["error"]["code"], http, "{body}");
                Err(refused(http, &body["error"], &body["error"]["details"]))
            }
        }
    }

    /// The answer of an operation.
    pub async fn ok(&self, operation: &str, arguments: Value) -> Value {
        let answer = self.ask(operation, arguments).await;
        answer.unwrap_or_else(|error| panic!("{operation} by {:?}: {error:?}", self.binding))
    }

    /// The error of an operation.
    pub async fn refused(&self, operation: &str, arguments: Value) -> Refused {
        match self.ask(operation, arguments).await {
            Ok(answer) => panic!("{operation} by {:?} is answered: {answer}", self.binding),
            Err(error) => error,
        }
    }

    /// The stream of an operation, or the error in its place.
    pub async fn open(&self, operation: &str, arguments: Value) -> Result<EventReader, Refused> {
        let response = self.request(operation, &arguments).send().await.unwrap();
        if response.headers()["content-type"] != "text/event-stream" {
            return Err(self.read(response).await.unwrap_err());
        }
        Ok(EventReader { binding: self.binding, response, text: String::new(), waiting: VecDeque::new() })
    }

    /// All events of a stream that ends by itself.
    pub async fn stream(&self, operation: &str, arguments: Value) -> Vec<Event> {
        let mut reader = self.open(operation, arguments).await.unwrap();
        let mut all = Vec::new();
        while let Some(event) = reader.next().await {
            all.push(event);
        }
        all
    }
}

fn refused(http: u16, error: &Value, details: &Value) -> Refused {
    let info = &details[0];
    assert_eq!(info["@type"], "type.googleapis.com/google.rpc.ErrorInfo", "{error}");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let code = error["code"].as_i64().unwrap();
    Refused { http, code, reason: text(&info["reason"]), domain: text(&info["domain"]), text: text(&error["message"]) }
}

/// Method, path and body of an operation in the HTTP+JSON binding.
fn rest(operation: &str, mut arguments: Map<String, Value>) -> (Method, String, Option<Value>) {
    let mut take = |key: &str| match arguments.shift_remove(key) {
        Some(Value::String(text)) => text,
        other => other.map(|value| value.to_string()).unwrap_or_default(),
    };
    let (method, path, has_body) = match operation {
        "SendMessage" => (Method::POST, "/message:send".to_owned(), true),
        "SendStreamingMessage" => (Method::POST, "/message:stream".to_owned(), true),
        "GetTask" => (Method::GET, format!("/tasks/{}", take("id")), false),
        "ListTasks" => (Method::GET, "/tasks".to_owned(), false),
        "CancelTask" => (Method::POST, format!("/tasks/{}:cancel", take("id")), true),
        "SubscribeToTask" => (Method::GET, format!("/tasks/{}:subscribe", take("id")), false),
        "GetExtendedAgentCard" => (Method::GET, "/extendedAgentCard".to_owned(), false),
        other => {
            let all = format!("/tasks/{}/pushNotificationConfigs", take("taskId"));
            match other {
                "CreateTaskPushNotificationConfig" => (Method::POST, all, true),
                "ListTaskPushNotificationConfigs" => (Method::GET, all, false),
                "GetTaskPushNotificationConfig" => (Method::GET, format!("{all}/{}", take("id")), false),
                "DeleteTaskPushNotificationConfig" => (Method::DELETE, format!("{all}/{}", take("id")), false),
                unknown => panic!("no operation {unknown}"),
            }
        }
    };
    if has_body {
        return (method, path, Some(Value::Object(arguments)));
    }
    let query = arguments.iter().map(|(key, value)| match value {
        Value::String(text) => format!("{key}={text}"),
        other => format!("{key}={other}"),
    });
    let query: Vec<String> = query.collect();
    let path = if query.is_empty() { path } else { format!("{path}?{}", query.join("&")) };
    (method, path, None)
}

/// An event of a stream.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    pub id: Option<String>,
    pub value: Value,
}

impl Event {
    /// `task`, `statusUpdate` or `artifactUpdate`.
    pub fn kind(&self) -> &str {
        self.value.as_object().unwrap().keys().next().unwrap()
    }

    /// The state of a status update; empty for other events.
    pub fn state(&self) -> &str {
        self.value["statusUpdate"]["status"]["state"].as_str().unwrap_or_default().trim_start_matches("TASK_STATE_")
    }

    /// The kind, with the state of a status update.
    pub fn name(&self) -> String {
        if self.state().is_empty() { self.kind().to_owned() } else { self.state().to_owned() }
    }
}

/// Reads the events of a stream.
pub struct EventReader {
    binding: Binding,
    response: Response,
    text: String,
    waiting: VecDeque<Event>,
}

impl EventReader {
    /// The next event; `None` at the end of the stream.
    pub async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.waiting.pop_front() {
                return Some(event);
            }
            let piece = tokio::time::timeout(EVENT_TIME, self.response.chunk()).await;
            // A process that dies ends its streams with an error.
            let piece = piece.expect("an event or a sign of life").ok().flatten()?;
            self.text.push_str(std::str::from_utf8(&piece).unwrap());
            while let Some((block, rest)) = self.text.split_once("\n\n") {
                let (block, rest) = (block.to_owned(), rest.to_owned());
                let event = self.parse(&block);
                self.waiting.extend(event);
                self.text = rest;
            }
        }
    }

    fn parse(&self, block: &str) -> Option<Event> {
        let field =
            |name: &str| block.lines().find_map(|line| line.strip_prefix(name)).map(|text| text.trim().to_owned());
        let value: Value = serde_json::from_str(&field("data:")?).unwrap();
        let value = match self.binding {
            Binding::Rest => value,
            Binding::Rpc => {
                assert_eq!((&value["jsonrpc"], &value["id"]), (&json!("2.0"), &json!(7)), "{value}");
                value["result"].clone()
            }
        };
        Some(Event { id: field("id:"), value })
    }
}
