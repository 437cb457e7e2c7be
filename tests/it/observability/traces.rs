//! Traces of turns through the public binary, at a collector that reads OTLP over HTTP.

use crate::support::cli::{Done, Up};
use crate::support::port;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as AnyValue;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use serde_json::json;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const SENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const WAIT: Duration = Duration::from_secs(30);

/// Requests by their path: lower-case heads, and bodies.
type Requests = Arc<Mutex<Vec<(String, Vec<u8>)>>>;

/// A collector, which is the service of a declared tool, too. One that hangs answers nothing.
struct Collector {
    port: u16,
    requests: Requests,
}

impl Collector {
    fn start(hangs: bool) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", port::lasting())).unwrap();
        let port = listener.local_addr().unwrap().port();
        let requests = Requests::default();
        let log = Arc::clone(&requests);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let log = Arc::clone(&log);
                std::thread::spawn(move || serve(stream, hangs, &log));
            }
        });
        Self { port, requests }
    }

    fn up(&self, more: &[&str]) -> Up {
        let endpoint = format!("telemetry.otlp.endpoint=http://127.0.0.1:{}/otel/", self.port);
        let host = format!("http_client.allow_hosts=127.0.0.1:{}", self.port);
        let settings = [endpoint.as_str(), host.as_str(), "http_client.allow_private=true"];
        Up::start_with(&settings.into_iter().chain(more.iter().copied()).collect::<Vec<_>>())
    }

    fn of(&self, path: &str) -> Vec<(String, Vec<u8>)> {
        let requests = self.requests.lock().unwrap();
        requests.iter().filter(|(head, _)| head.starts_with(&format!("post {path} "))).cloned().collect()
    }

    fn spans(&self) -> Vec<Span> {
        let bodies = self.of("/otel/v1/traces");
        let read = bodies.iter().map(|(_, body)| ExportTraceServiceRequest::decode(body.as_slice()).unwrap());
        read.flat_map(|sent| sent.resource_spans)
            .flat_map(|process| process.scope_spans)
            .flat_map(|scope| scope.spans)
            .collect()
    }

    /// Waits until the spans have so many of this name.
    fn wait_for(&self, name: &str, count: usize) -> Vec<Span> {
        let start = Instant::now();
        loop {
            let spans = self.spans();
            if spans.iter().filter(|span| span.name == name).count() >= count {
                return spans;
            }
            let names: Vec<_> = spans.iter().map(|span| &span.name).collect();
            assert!(start.elapsed() < WAIT, "{count} of `{name}` expected, got {names:?}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

fn serve(stream: TcpStream, hangs: bool, log: &Requests) {
    let mut reader = BufReader::new(stream);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head).unwrap_or(0) == 0 {
                return;
            }
        }
        let head = head.to_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.trim().parse().ok());
        let mut body = vec![0; length.unwrap_or(0)];
        if reader.read_exact(&mut body).is_err() {
            return;
        }
        let is_trace = head.starts_with("post /otel/v1/traces ");
        log.lock().unwrap().push((head, body));
        if hangs && is_trace {
            std::thread::sleep(Duration::from_mins(5));
            return;
        }
        let answer = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 11\r\n\r\n{\"ok\":true}";
        if reader.get_mut().write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

fn text(span: &Span, name: &str) -> Option<String> {
    let attribute = span.attributes.iter().find(|attribute| attribute.key == name)?;
    match attribute.value.as_ref()?.value.as_ref()? {
        AnyValue::StringValue(text) => Some(text.clone()),
        AnyValue::IntValue(number) => Some(number.to_string()),
        other => panic!("{other:?}"),
    }
}

fn find<'a>(spans: &'a [Span], name: &str) -> &'a Span {
    spans.iter().find(|span| span.name == name).unwrap_or_else(|| panic!("no `{name}`"))
}

const RULES: &str = r#"
[[rule]]
when = { turn = 1 }
then = { calls = [{ tool = "refund", arguments = { id = "A-7" } }] }

[[rule]]
then = { text = "done" }
"#;

/// Applies an agent with a tool of the service.
fn apply(up: &Up, collector: &Collector) -> Done {
    up.file("clerk.rules", RULES);
    let url = format!("http://127.0.0.1:{}/refunds", collector.port);
    let tool = json!({
        "name": "refund", "description": "Refunds an order.",
        "input": {"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]},
        "http": {"method": "POST", "url": url, "body": {"order": "{id}"}},
    });
    let config = json!({"tools": [tool], "model": {"provider": "scripted", "name": "clerk.rules"}});
    up.file("clerk.json", &config.to_string());
    up.run(&["agent", "apply", "clerk.json"])
}

/// Submits a task over HTTP with a trace context, and waits for its end.
fn submit(up: &Up, trace: &str) {
    let address = up.url.trim_start_matches("http://");
    let mut stream = TcpStream::connect(address).unwrap();
    let body = r#"{"input":"go","sessionId":"main"}"#;
    let head = format!("POST /api/v1/agents/clerk/tasks HTTP/1.1\r\nhost: {address}\r\ntraceparent: {trace}\r\n");
    let rest =
        format!("content-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}", body.len());
    stream.write_all((head + &rest).as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 2"), "{answer}");
}

#[test]
fn a_turn_with_a_tool_is_a_tree_with_links() {
    let collector = Collector::start(false);
    let up = collector.up(&[]);
    apply(&up, &collector).ok();
    submit(&up, SENT);
    let spans = collector.wait_for("invoke_agent clerk", 2);
    let root = find(&spans, "invoke_agent clerk");
    assert!(root.parent_span_id.is_empty());
    for name in ["lease", "context", "chat clerk.rules", "execute_tool refund", "commit"] {
        let span = find(&spans, name);
        assert_eq!((&span.trace_id, &span.parent_span_id), (&root.trace_id, &root.span_id), "{name}");
    }
    for span in spans.iter().filter(|span| span.name != "relay") {
        for name in ["session.id", "user.id", "gen_ai.operation.name"] {
            assert!(text(span, name).is_some_and(|value| !value.is_empty()), "{name} of {}", span.name);
        }
    }
    assert_eq!(text(root, "trellis.prompt.sha256").map(|hash| hash.len()), Some(64));
    assert!(text(root, "trellis.turn").is_some_and(|turn| turn.ends_with("/1")), "{root:?}");
    assert!(text(find(&spans, "chat clerk.rules"), "gen_ai.usage.input_tokens").is_some());
    // The submission's trace goes on with the admission, to which the turn is linked.
    let admit = find(&spans, "admit");
    assert_eq!(format!("00-{}-{}-01", hex::encode(&admit.trace_id), hex::encode(&admit.parent_span_id)), SENT);
    assert!(root.links.iter().any(|link| link.span_id == admit.span_id && link.trace_id == admit.trace_id));
    let second = spans.iter().filter(|span| span.name == "invoke_agent clerk").nth(1).unwrap();
    assert!(second.links.iter().any(|link| link.span_id == root.span_id), "{second:?}");
    // What the tool's request says is the place of its span.
    let (head, _) = collector.of("/refunds").remove(0);
    let tool = find(&spans, "execute_tool refund");
    let named = format!("traceparent: 00-{}-{}-01", hex::encode(&tool.trace_id), hex::encode(&tool.span_id));
    assert!(head.contains(&named), "{named} in {head}");
    let all = format!("{spans:?}");
    assert!(!all.contains("A-7") && !all.contains("\"done\""), "content is in the spans");
}

#[test]
fn a_hostile_trace_context_begins_another_trace() {
    let collector = Collector::start(false);
    let up = collector.up(&[]);
    apply(&up, &collector).ok();
    submit(&up, &format!("00-{}-00f067aa0ba902b7-01", "0".repeat(32)));
    let spans = collector.wait_for("admit", 1);
    let admit = find(&spans, "admit");
    assert!(admit.parent_span_id.is_empty() && admit.trace_id.iter().any(|byte| *byte != 0));
}

#[test]
fn a_collector_that_hangs_delays_no_turn_and_no_end() {
    let collector = Collector::start(true);
    let mut up = collector.up(&["telemetry.otlp.timeout=20s"]);
    apply(&up, &collector).ok();
    let start = Instant::now();
    up.run(&["submit", "clerk", "go", "--wait"]).ok();
    assert!(start.elapsed() < Duration::from_secs(15), "{:?}", start.elapsed());
    let end = Instant::now();
    up.process.signal("TERM");
    assert!(up.process.ended().success());
    assert!(end.elapsed() < Duration::from_secs(15), "{:?}", end.elapsed());
    assert!(up.process.log().contains("spans of traces are lost"), "{}", up.process.log());
}

#[test]
fn without_a_collector_nothing_is_sent() {
    let collector = Collector::start(false);
    let host = format!("http_client.allow_hosts=127.0.0.1:{}", collector.port);
    let up = Up::start_with(&[&host, "http_client.allow_private=true"]);
    apply(&up, &collector).ok();
    up.run(&["submit", "clerk", "go", "--wait"]).ok();
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(collector.of("/otel/v1/traces").len(), 0);
    assert_eq!(collector.of("/refunds").len(), 1);
}
