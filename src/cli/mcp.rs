//! `trellis mcp`: passes messages between a client on stdin and stdout and `/mcp` of a venue.
//!
//! It keeps the revision that the client has agreed on, and which requests run, so that it can drop those that the
//! client cancels.

use super::CliContext;
use super::client::{Client, ServerArgs};
use super::exit::{Exit, Failure};
use super::mcp_message::ClientMessage;
use super::mcp_servers::McpServersCommand;
use super::output::write_json;
use super::sse::SseParser;
use crate::view::mcp::{McpErrorMessage, McpFault};
use crate::view::to_json;
use clap::Args;
use futures::StreamExt;
use parking_lot::Mutex;
use reqwest::Response;
use reqwest::header::CONTENT_TYPE;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{BufRead, Read};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};

/// Longest line of stdin, in bytes: more than any venue takes.
const LINE_BYTES: usize = 1 << 20;

/// Messages that wait for a client which reads slowly.
const LINES: usize = 64;

/// Requests that run at once; further ones are refused. They don't wait on stdin, where a cancellation may be behind them.
const REQUESTS: usize = 64;

/// Time that running requests have once stdin has ended.
const GRACE: Duration = Duration::from_secs(2);

/// Longest answer, and longest piece of a stream without a whole message, in bytes.
const ANSWER_BYTES: usize = 16 << 20;

/// Code of a line that is no message.
const INVALID_REQUEST: i64 = -32_600;

/// Arguments of `trellis mcp`.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Example, in the configuration of a desktop client:\n  {\"mcpServers\": {\"trellis\": {\"command\": \"trellis\", \"args\": [\"mcp\", \"--url\", \"http://127.0.0.1:8420\"]}}}"
)]
pub(crate) struct McpArgs {
    #[command(subcommand)]
    command: Option<McpServersCommand>,
    /// Which server, and for whom
    #[command(flatten)]
    server: ServerArgs,
}

/// The way to the venue, and what is known of the client.
struct McpProxy {
    client: Client,
    /// Revision that the client has agreed on.
    agreed: Mutex<Option<String>>,
}

/// What the thread that reads stdin has found.
enum StdinLine {
    /// A whole line.
    Whole(Vec<u8>),
    /// A line that was too long, and was skipped.
    TooLong,
    /// The error after which nothing more is read.
    Broken(Failure),
}

impl McpArgs {
    pub async fn run(self, context: &CliContext) -> Result<Exit, Failure> {
        match self.command {
            Some(command) => command.run(context).await,
            None => pass_messages(&self.server).await,
        }
    }
}

/// Passes messages until stdin ends.
async fn pass_messages(server: &ServerArgs) -> Result<Exit, Failure> {
    let proxy = Arc::new(McpProxy { client: Client::new(server)?, agreed: Mutex::new(None) });
    let (lines, mut given) = mpsc::channel(1);
    // A thread of its own: a read of stdin can't be given up, and must not keep the process from ending.
    std::thread::spawn(move || read_lines(&lines));
    let (answers, mut answered) = mpsc::channel::<String>(LINES);
    let mut requests = RunningRequests::default();
    loop {
        tokio::select! {
            Some(answer) = answered.recv() => write_json(&answer)?,
            Some(_) = requests.tasks.join_next() => requests.forget_ended(),
            line = given.recv() => {
                let refused = match line {
                    Some(StdinLine::Whole(line)) => requests.begin(&proxy, ClientMessage::read(&line), &answers),
                    Some(StdinLine::TooLong) => Some(too_long_line()),
                    Some(StdinLine::Broken(failure)) => return Err(failure),
                    None => break,
                };
                if let Some(refused) = refused {
                    write_json(&refused)?;
                }
            }
        }
    }
    drop(answers);
    let rest = async {
        while let Some(answer) = answered.recv().await {
            write_json(&answer)?;
        }
        Ok::<_, Failure>(Exit::Ok)
    };
    tokio::time::timeout(GRACE, rest).await.unwrap_or(Ok(Exit::Ok))
}

/// Reads stdin line by line until its end.
fn read_lines(lines: &mpsc::Sender<StdinLine>) {
    let mut stdin = std::io::stdin().lock();
    loop {
        let mut line = Vec::new();
        let read = (&mut stdin).take(LINE_BYTES as u64 + 1).read_until(b'\n', &mut line);
        let broken = |error: std::io::Error| StdinLine::Broken(Failure::usage(format!("stdin can't be read: {error}")));
        let line = match read {
            Ok(0) => return,
            Ok(_) if line.len() > LINE_BYTES && !line.ends_with(b"\n") => {
                stdin.skip_until(b'\n').map_or_else(broken, |_| StdinLine::TooLong)
            }
            Ok(_) => StdinLine::Whole(line),
            Err(error) => broken(error),
        };
        let is_last = matches!(line, StdinLine::Broken(_));
        if lines.blocking_send(line).is_err() || is_last {
            return;
        }
    }
}

/// Returns the error of a line that was too long: its id is unknown.
fn too_long_line() -> String {
    let text = format!("a line of stdin has more than {LINE_BYTES} bytes");
    let fault = McpFault { code: INVALID_REQUEST, message: text, data: None };
    to_json(&McpErrorMessage::new(None, fault)).to_string()
}

/// Requests that have no answer yet.
#[derive(Default)]
struct RunningRequests {
    tasks: JoinSet<()>,
    /// Handles by the ids of the requests, as JSON.
    handles: BTreeMap<String, AbortHandle>,
}

impl RunningRequests {
    /// Begins to send a message. A cancellation drops the request that it names: its stream is closed. Returns the error
    /// of a request that is one too many.
    fn begin(
        &mut self,
        proxy: &Arc<McpProxy>,
        message: ClientMessage,
        answers: &mpsc::Sender<String>,
    ) -> Option<String> {
        if message.body.is_empty() {
            return None;
        }
        if let Some(id) = message.cancelled_request() {
            if let Some(handle) = self.handles.remove(&id.to_string()) {
                handle.abort();
            }
            return None;
        }
        if self.tasks.len() >= REQUESTS {
            let text = format!("{REQUESTS} requests run at once: wait for the end of one, or cancel it");
            return message.error_line(None, text);
        }
        let id = message.id().map(Value::to_string);
        let (proxy, answers) = (Arc::clone(proxy), answers.clone());
        let handle = self.tasks.spawn(async move { proxy.forward(message, &answers).await });
        if let Some(id) = id {
            self.handles.insert(id, handle);
        }
        None
    }

    fn forget_ended(&mut self) {
        self.handles.retain(|_, handle| !handle.is_finished());
    }
}

impl McpProxy {
    /// Sends a message, and gives on what comes back. A request always gets an answer.
    async fn forward(&self, message: ClientMessage, answers: &mpsc::Sender<String>) {
        let agreed = self.agreed.lock().clone();
        let headers = message.headers(agreed.as_deref());
        let sent = self.client.send_mcp(message.body.clone(), headers).await;
        let passed = match sent {
            Ok(response) => self.pass_answer(&message, response, answers).await,
            Err(failure) => message.error_line(None, failure.text),
        };
        if let Some(line) = passed {
            let _ = answers.send(line).await;
        }
    }

    /// Returns the message of an answer that is no stream; gives on those of a stream, and returns an error if it has no
    /// answer.
    async fn pass_answer(
        &self,
        message: &ClientMessage,
        response: Response,
        answers: &mpsc::Sender<String>,
    ) -> Option<String> {
        let status = response.status();
        let media = response.headers().get(CONTENT_TYPE).and_then(|media| media.to_str().ok()).unwrap_or_default();
        if media.starts_with("text/event-stream") {
            return pass_stream(message, response, answers).await;
        }
        let body = match read_body(response).await {
            Ok(body) => body,
            Err(text) => return message.error_line(None, text.to_owned()),
        };
        if body.is_empty() && status.is_success() {
            return None;
        }
        let mut answer: Value = serde_json::from_slice(&body).unwrap_or_default();
        if answer.get("jsonrpc").is_none() {
            let text = answer.get("error").and_then(Value::as_str).map(str::to_owned);
            return message.error_line(Some(status.as_u16()), text.unwrap_or_else(|| status.to_string()));
        }
        if let (true, Some(version)) = (message.is_initialize(), answer.pointer("/result/protocolVersion")) {
            *self.agreed.lock() = version.as_str().map(str::to_owned);
        }
        // The venue doesn't repeat an id that it can't read; the client waits for it all the same.
        if let (Some(id), Some(answer)) = (message.id(), answer.as_object_mut()) {
            answer.entry("id").or_insert_with(|| id.clone());
        }
        Some(answer.to_string())
    }
}

/// Gives on the messages of a stream, each in one line. Returns an error if none of them is the answer.
async fn pass_stream(message: &ClientMessage, response: Response, answers: &mpsc::Sender<String>) -> Option<String> {
    let (mut pieces, mut parser) = (response.bytes_stream(), SseParser::default());
    let (mut is_answered, mut unread) = (false, 0);
    while let Some(Ok(piece)) = pieces.next().await {
        unread += piece.len();
        for event in parser.feed(&piece) {
            unread = 0;
            let said: Value = serde_json::from_str(&event.data).unwrap_or_default();
            if said.is_object() {
                is_answered |= is_answer(&said);
                let _ = answers.send(said.to_string()).await;
            }
        }
        if unread > ANSWER_BYTES {
            return message.error_line(None, "a message of the venue is too long".to_owned());
        }
    }
    if is_answered {
        return None;
    }
    message.error_line(None, "the stream of the venue ended without an answer".to_owned())
}

/// Whether a message ends a request.
fn is_answer(message: &Value) -> bool {
    message.get("result").is_some() || message.get("error").is_some()
}

async fn read_body(response: Response) -> Result<Vec<u8>, &'static str> {
    let (mut pieces, mut body) = (response.bytes_stream(), Vec::new());
    while let Some(piece) = pieces.next().await {
        let piece = piece.map_err(|_| "the connection to the venue broke")?;
        if body.len() + piece.len() > ANSWER_BYTES {
            return Err("the answer of the venue is too long");
        }
        body.extend_from_slice(&piece);
    }
    Ok(body)
}
