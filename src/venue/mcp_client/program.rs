//! A server on the stdin and stdout of a program. One program serves all calls: it is started at the first one, and again
//! after it has ended. It is killed with the server.

use super::call::{Exchanged, PeerCall};
use super::error::McpFailure;
use crate::domain::limits::{MCP_LIST_TIME, MCP_MESSAGE_BYTES, MCP_STREAM_MESSAGES};
use crate::domain::mcp::message::{
    McpRequest, RpcError, ServerMessage, cancelled_notice, initialized_notice, reply_to_server,
};
use crate::domain::mcp::revision::{ProtocolEra, RevisionChoice, check_chosen};
use crate::domain::mcp::stream::StreamLimitError;
use crate::venue::failure::OpError;
use crate::venue::outbound::departure::Departure;
use parking_lot::Mutex;
use serde_json::Value;
use std::collections::HashMap;
use std::process::Stdio;
use std::sync::Arc;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::mpsc;

/// Messages that may wait for one who reads or writes them.
const QUEUED: usize = 256;

/// Id of the request that begins a session; those of calls are greater.
const HANDSHAKE_ID: u64 = 0;

/// A program that is a server.
#[derive(Clone)]
pub struct McpProgram {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Its whole environment.
    pub env: Vec<(String, String)>,
    /// Whether this process may start it.
    pub may_start: bool,
}

/// The server that a program is, whether it runs or not.
pub(super) struct ProgramServer {
    program: McpProgram,
    running: tokio::sync::Mutex<Option<Arc<RunningProgram>>>,
}

/// A program that runs; it is killed with this value.
struct RunningProgram {
    /// Lines for its stdin.
    lines: mpsc::Sender<Vec<u8>>,
    waiting: Arc<WaitingCalls>,
    era: ProtocolEra,
    _child: Child,
}

/// Where each call reads messages, by the id of the call.
type Readers = HashMap<u64, mpsc::Sender<Arc<[u8]>>>;

/// Calls that wait for messages of a program; `None` once it has ended.
struct WaitingCalls(Mutex<Option<Readers>>);

impl ProgramServer {
    pub(super) fn new(program: McpProgram) -> Self {
        Self { program, running: tokio::sync::Mutex::default() }
    }

    /// Returns the name of the program, for errors.
    pub(super) fn name(&self) -> &str {
        self.program.command.first().map(String::as_str).unwrap_or_default()
    }

    /// Whether this process may start the program.
    pub(super) const fn may_start(&self) -> bool {
        self.program.may_start
    }

    /// Sends a request. `departure` says afterwards whether the program may have got it.
    pub(super) async fn ask(
        &self,
        call: &PeerCall<'_>,
        choice: RevisionChoice,
        departure: &Departure,
    ) -> Result<Exchanged, McpFailure> {
        let started = self.get_or_start(choice).await;
        let program = started.map_err(|failure| McpFailure::Handshake(Box::new(failure)))?;
        program.ask(call, departure).await
    }

    async fn get_or_start(&self, choice: RevisionChoice) -> Result<Arc<RunningProgram>, McpFailure> {
        let mut running = self.running.lock().await;
        if let Some(found) = running.as_ref().filter(|found| !found.waiting.has_ended()) {
            return Ok(Arc::clone(found));
        }
        // What has ended is reaped before the next one starts.
        *running = None;
        let started = Arc::new(self.start(choice).await?);
        *running = Some(Arc::clone(&started));
        Ok(started)
    }

    async fn start(&self, choice: RevisionChoice) -> Result<RunningProgram, McpFailure> {
        let McpProgram { command, env, may_start } = &self.program;
        let name = self.name();
        if !may_start {
            let text = "only `trellis up` starts programs as MCP servers, unless `mcp.commands` says that others do";
            return Err(OpError::Denied(text.to_owned()).into());
        }
        let mut child = Command::new(name)
            .args(command.iter().skip(1))
            .env_clear()
            .envs(env.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| OpError::Failed(format!("the program `{name}` can't be started: {error}")))?;
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(McpFailure::Ended);
        };
        let (lines, queued) = mpsc::channel(QUEUED);
        let waiting = Arc::new(WaitingCalls(Mutex::new(Some(Readers::new()))));
        tokio::spawn(write_lines(stdin, queued));
        tokio::spawn(read_lines(stdout, Arc::clone(&waiting), lines.clone()));
        let era = ProtocolEra::first(choice);
        RunningProgram { lines, waiting, era, _child: child }.shake_hands(choice).await
    }
}

impl RunningProgram {
    /// Begins the session, unless the program speaks the stateless revision.
    async fn shake_hands(self, choice: RevisionChoice) -> Result<Self, McpFailure> {
        if choice == RevisionChoice::Stateless {
            return Ok(self);
        }
        let with_session = Self { era: ProtocolEra::Handshake, ..self };
        let hello = PeerCall {
            request: McpRequest::initialize(HANDSHAKE_ID),
            params: &[],
            patience: MCP_LIST_TIME,
            max_bytes: MCP_MESSAGE_BYTES,
            repeatable: true,
        };
        match with_session.ask(&hello, &Departure::default()).await {
            Ok(answer) => {
                let chosen = answer.result["protocolVersion"].as_str().unwrap_or_default();
                check_chosen(chosen).map_err(|error| McpFailure::Answer(error.to_string()))?;
                with_session.send(&initialized_notice()).await?;
                Ok(with_session)
            }
            // A program of the stateless revision knows no handshake.
            Err(McpFailure::Rpc { .. }) if choice == RevisionChoice::Auto => {
                Ok(Self { era: ProtocolEra::Stateless, ..with_session })
            }
            Err(other) => Err(other),
        }
    }

    async fn send(&self, message: &Value) -> Result<(), McpFailure> {
        self.lines.send(line_of(message)).await.map_err(|_| McpFailure::Ended)
    }

    async fn ask(&self, call: &PeerCall<'_>, departure: &Departure) -> Result<Exchanged, McpFailure> {
        let id = call.request.id;
        let mut messages = self.waiting.register(id)?;
        let mut guard = ProgramCall { waiting: &self.waiting, lines: &self.lines, id, is_asked: false };
        let patience = tokio::time::sleep(call.patience);
        let mut patience = std::pin::pin!(patience);
        let silent = || McpFailure::Silent { seconds: call.patience.as_secs() };
        let body = call.request.body(self.era, call.request.method == "tools/call");
        departure.mark_left();
        guard.is_asked = id != HANDSHAKE_ID;
        tokio::select! {
            biased;
            sent = self.send(&body) => sent?,
            () = &mut patience => return Err(silent()),
        }
        let mut steps = 0;
        loop {
            let message = tokio::select! {
                biased;
                message = messages.recv() => message,
                () = &mut patience => return Err(silent()),
            };
            let Some(message) = message else {
                guard.is_asked = false;
                return Err(McpFailure::Ended);
            };
            match ServerMessage::read(&message, id) {
                Ok(ServerMessage::Answer { id: Some(answered), outcome }) if answered == id => {
                    guard.is_asked = false;
                    return take_answer(call, message.len(), outcome);
                }
                Ok(ServerMessage::Progress) if steps == MCP_STREAM_MESSAGES => {
                    return Err(StreamLimitError::Messages.into());
                }
                Ok(ServerMessage::Progress) => {
                    steps += 1;
                    patience.set(tokio::time::sleep(call.patience));
                }
                // Messages of other calls, notifications, and what a program says on stdout by mistake.
                Ok(_) | Err(_) => {}
            }
        }
    }
}

fn take_answer(call: &PeerCall<'_>, bytes: usize, outcome: Result<Value, RpcError>) -> Result<Exchanged, McpFailure> {
    if bytes > call.max_bytes {
        return Err(McpFailure::Answer(format!("its answer has more than {} bytes", call.max_bytes)));
    }
    match outcome {
        Ok(result) => Ok(Exchanged { result, session: None, bytes }),
        Err(error) => Err(McpFailure::Rpc { status: 200, error }),
    }
}

/// A call that a program works on. When it is dropped while it is asked for, the program is told.
struct ProgramCall<'a> {
    waiting: &'a WaitingCalls,
    lines: &'a mpsc::Sender<Vec<u8>>,
    id: u64,
    is_asked: bool,
}

impl Drop for ProgramCall<'_> {
    fn drop(&mut self) {
        self.waiting.forget(self.id);
        if self.is_asked {
            // A program that reads nothing any more isn't told.
            let _ = self.lines.try_send(line_of(&cancelled_notice(self.id, "nobody waits for the answer")));
        }
    }
}

impl WaitingCalls {
    /// Returns what a call will read.
    fn register(&self, id: u64) -> Result<mpsc::Receiver<Arc<[u8]>>, McpFailure> {
        let (send, receive) = mpsc::channel(QUEUED);
        match self.0.lock().as_mut() {
            Some(calls) => {
                calls.insert(id, send);
                Ok(receive)
            }
            None => Err(McpFailure::Ended),
        }
    }

    fn forget(&self, id: u64) {
        if let Some(calls) = self.0.lock().as_mut() {
            calls.remove(&id);
        }
    }

    /// Hands a message on to all calls. One that reads too slowly is given up.
    fn hand_on(&self, message: &[u8]) {
        let message: Arc<[u8]> = message.into();
        if let Some(calls) = self.0.lock().as_mut() {
            calls.retain(|_, call| call.try_send(Arc::clone(&message)).is_ok());
        }
    }

    fn has_ended(&self) -> bool {
        self.0.lock().is_none()
    }

    /// Ends all calls: the program says nothing any more.
    fn end(&self) {
        *self.0.lock() = None;
    }
}

/// Returns a message as a line.
fn line_of(message: &Value) -> Vec<u8> {
    let mut line = message.to_string().into_bytes();
    line.push(b'\n');
    line
}

/// Writes lines until there are none any more, or the program reads none.
async fn write_lines(mut stdin: ChildStdin, mut lines: mpsc::Receiver<Vec<u8>>) {
    while let Some(line) = lines.recv().await {
        if stdin.write_all(&line).await.is_err() || stdin.flush().await.is_err() {
            return;
        }
    }
}

/// Reads lines until the end, hands them on, and answers requests of the program.
async fn read_lines(stdout: ChildStdout, waiting: Arc<WaitingCalls>, lines: mpsc::Sender<Vec<u8>>) {
    let (mut stdout, mut line) = (BufReader::new(stdout), Vec::new());
    let limit = MCP_MESSAGE_BYTES as u64 + 1;
    loop {
        line.clear();
        let read = (&mut stdout).take(limit).read_until(b'\n', &mut line).await;
        if !matches!(read, Ok(1..)) || line.len() > MCP_MESSAGE_BYTES {
            return waiting.end();
        }
        if let Ok(ServerMessage::Request { id, method }) = ServerMessage::read(&line, HANDSHAKE_ID) {
            let _ = lines.try_send(line_of(&reply_to_server(&id, &method)));
        } else {
            waiting.hand_on(&line);
        }
    }
}
