//! A server on the stdin and stdout of a program. One program serves all calls: it is started at the first one, and again
//! after it has ended. It is killed with the server.

use super::call::{Exchanged, PeerCall};
use super::error::McpFailure;
use super::list_changes::ListChangeCounter;
use crate::domain::decode;
use crate::domain::limits::{MCP_LIST_TIME, MCP_MESSAGE_BYTES, MCP_STREAM_BYTES, MCP_STREAM_MESSAGES};
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
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio_util::task::AbortOnDropHandle;

/// Messages that may wait for the program to read them.
const QUEUED: usize = 256;

/// Pause before a program is started again that could not be started.
const START_PAUSE: Duration = Duration::from_secs(5);

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
    list_changes: ListChangeCounter,
    slot: tokio::sync::Mutex<ProgramSlot>,
}

/// The program as it runs now, and its last failure to start with the pause after that.
#[derive(Default)]
struct ProgramSlot {
    running: Option<Arc<RunningProgram>>,
    failed: Option<(AbortOnDropHandle<()>, String)>,
}

/// A program that runs. It is killed with this value, and its pipes are closed, so that programs which it has started
/// itself come to the end of their stdin.
struct RunningProgram {
    /// Lines for its stdin.
    lines: mpsc::Sender<Vec<u8>>,
    waiting: Arc<WaitingCalls>,
    era: ProtocolEra,
    _child: Child,
    _pipes: [AbortOnDropHandle<()>; 2],
}

/// Where the messages of a call go.
struct AwaitedAnswer {
    answer: oneshot::Sender<ProgramAnswer>,
    progress: Arc<Notify>,
}

/// An answer of a program, with the bytes of its message.
struct ProgramAnswer {
    outcome: Result<Value, RpcError>,
    bytes: usize,
}

/// Calls that wait for messages of a program.
struct WaitingCalls {
    /// The calls by their id; `None` once the program has ended.
    calls: Mutex<Option<HashMap<u64, AwaitedAnswer>>>,
    list_changes: ListChangeCounter,
}

impl ProgramServer {
    /// Makes the server of a program; its notifications of another list of tools are counted in `list_changes`.
    pub(super) fn new(program: McpProgram, list_changes: ListChangeCounter) -> Self {
        Self { program, list_changes, slot: tokio::sync::Mutex::default() }
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
        if !self.program.may_start {
            let text = "only `trellis up` starts programs as MCP servers, unless `mcp.commands` says that others do";
            return Err(OpError::Denied(text.to_owned()).into());
        }
        let mut slot = self.slot.lock().await;
        if let Some(found) = slot.running.as_ref().filter(|found| !found.waiting.has_ended()) {
            return Ok(Arc::clone(found));
        }
        // What has ended is reaped before the next one starts.
        slot.running = None;
        if let Some((_, why)) = slot.failed.as_ref().filter(|(pause, _)| !pause.is_finished()) {
            let text = format!("{why}; it is started again {} s after that", START_PAUSE.as_secs());
            return Err(OpError::Upstream(text).into());
        }
        let started = self.start(choice).await;
        slot.failed = started.as_ref().err().map(|failure| {
            (AbortOnDropHandle::new(tokio::spawn(tokio::time::sleep(START_PAUSE))), failure.to_string())
        });
        let started = Arc::new(started?);
        slot.running = Some(Arc::clone(&started));
        Ok(started)
    }

    async fn start(&self, choice: RevisionChoice) -> Result<RunningProgram, McpFailure> {
        let McpProgram { command, env, .. } = &self.program;
        let name = self.name();
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
        let waiting = Arc::new(WaitingCalls::new(self.list_changes.clone()));
        let pipes = [
            AbortOnDropHandle::new(tokio::spawn(write_lines(stdin, queued))),
            AbortOnDropHandle::new(tokio::spawn(read_lines(stdout, Arc::clone(&waiting), lines.clone()))),
        ];
        let era = ProtocolEra::first_try(choice);
        RunningProgram { lines, waiting, era, _child: child, _pipes: pipes }.shake_hands(choice).await
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
            marks: None,
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
        let (mut answer, progress) = self.waiting.register(id)?;
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
            tokio::select! {
                biased;
                answered = &mut answer => {
                    guard.is_asked = false;
                    return take_answer(call, answered.map_err(|_| McpFailure::Ended)?);
                }
                () = progress.notified() => {}
                () = &mut patience => return Err(silent()),
            }
            if steps == MCP_STREAM_MESSAGES {
                return Err(StreamLimitError::Messages.into());
            }
            steps += 1;
            patience.set(tokio::time::sleep(call.patience));
        }
    }
}

fn take_answer(call: &PeerCall<'_>, answer: ProgramAnswer) -> Result<Exchanged, McpFailure> {
    let ProgramAnswer { outcome, bytes } = answer;
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
    fn new(list_changes: ListChangeCounter) -> Self {
        Self { calls: Mutex::new(Some(HashMap::new())), list_changes }
    }

    /// Returns where a call gets its answer, and the news that it makes progress.
    fn register(&self, id: u64) -> Result<(oneshot::Receiver<ProgramAnswer>, Arc<Notify>), McpFailure> {
        let ((answer, awaited), progress) = (oneshot::channel(), Arc::new(Notify::new()));
        match self.calls.lock().as_mut() {
            Some(calls) => {
                calls.insert(id, AwaitedAnswer { answer, progress: Arc::clone(&progress) });
                Ok((awaited, progress))
            }
            None => Err(McpFailure::Ended),
        }
    }

    fn forget(&self, id: u64) {
        if let Some(calls) = self.calls.lock().as_mut() {
            calls.remove(&id);
        }
    }

    /// Hands a message on to its call: however many there are, they cost other calls nothing. Returns the reply to a
    /// request of the program.
    fn hand_on(&self, line: &[u8]) -> Option<Value> {
        // What a program says on stdout by mistake is no message.
        match ServerMessage::read(line, HANDSHAKE_ID).ok()? {
            ServerMessage::Request { id, method } => return Some(reply_to_server(&id, &method)),
            ServerMessage::Answer { id: Some(id), outcome } => {
                let found = self.calls.lock().as_mut().and_then(|calls| calls.remove(&id));
                if let Some(call) = found {
                    let _ = call.answer.send(ProgramAnswer { outcome, bytes: line.len() });
                }
            }
            ServerMessage::ListChanged => self.list_changes.increment(),
            ServerMessage::Progress | ServerMessage::Notice => {
                let token = progress_token(line)?;
                let calls = self.calls.lock();
                calls.as_ref()?.get(&token)?.progress.notify_one();
            }
            ServerMessage::Answer { id: None, .. } => {}
        }
        None
    }

    fn has_ended(&self) -> bool {
        self.calls.lock().is_none()
    }

    /// Ends all calls: the program says nothing any more.
    fn end(&self) {
        *self.calls.lock() = None;
    }
}

/// Returns the token of a notification of progress, which is the id of its call.
fn progress_token(line: &[u8]) -> Option<u64> {
    let message = decode::answer_json(line).ok()?;
    let is_progress = message["method"] == "notifications/progress";
    message["params"]["progressToken"].as_u64().filter(|_| is_progress)
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

/// Reads lines until the end, hands them on, and answers requests of the program. A line that is too long is skipped: it
/// is of one call, and others wait for answers, too.
async fn read_lines(stdout: ChildStdout, waiting: Arc<WaitingCalls>, lines: mpsc::Sender<Vec<u8>>) {
    let (mut stdout, mut line) = (BufReader::new(stdout), Vec::new());
    let (limit, mut skipped) = (MCP_MESSAGE_BYTES as u64 + 1, 0);
    loop {
        line.clear();
        let read = (&mut stdout).take(limit).read_until(b'\n', &mut line).await;
        if !matches!(read, Ok(1..)) || skipped > MCP_STREAM_BYTES {
            return waiting.end();
        }
        if skipped > 0 || line.len() > MCP_MESSAGE_BYTES {
            skipped = if line.ends_with(b"\n") { 0 } else { skipped + line.len() };
            continue;
        }
        if let Some(reply) = waiting.hand_on(&line) {
            let _ = lines.try_send(line_of(&reply));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    #[test]
    fn messages_of_one_call_are_in_the_way_of_no_other() {
        let calls = WaitingCalls::new(ListChangeCounter::default());
        let (mut quiet, no_progress) = calls.register(1).unwrap();
        let (_loud, progress) = calls.register(2).unwrap();
        let step = br#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":2}}"#;
        let log = br#"{"jsonrpc":"2.0","method":"notifications/message","params":{"progressToken":1}}"#;
        for _ in 0..1_000 {
            assert!(calls.hand_on(step).is_none() && calls.hand_on(log).is_none());
        }
        assert!(progress.notified().now_or_never().is_some() && no_progress.notified().now_or_never().is_none());
        let reply = calls.hand_on(br#"{"jsonrpc":"2.0","id":2,"method":"ping"}"#).unwrap();
        assert_eq!(reply["id"], 2, "a request of the program has its own ids");
        assert!(calls.hand_on(b"not a message").is_none() && quiet.try_recv().is_err());
        assert!(calls.hand_on(br#"{"jsonrpc":"2.0","id":1,"result":{"a":1}}"#).is_none());
        assert_eq!(quiet.try_recv().unwrap().outcome.unwrap()["a"], 1);
        calls.end();
        assert!(calls.register(3).is_err() && calls.hand_on(step).is_none());
    }

    #[test]
    fn only_changes_of_the_tools_are_counted_as_such() {
        let counter = ListChangeCounter::default();
        let calls = WaitingCalls::new(counter.clone());
        for (method, expected) in [
            ("notifications/tools/list_changed", 1),
            ("notifications/prompts/list_changed", 1),
            ("notifications/message", 1),
            ("notifications/tools/list_changed", 2),
        ] {
            let line = format!(r#"{{"jsonrpc":"2.0","method":"{method}"}}"#);
            assert!(calls.hand_on(line.as_bytes()).is_none());
            assert_eq!(counter.count(), expected, "{method}");
        }
    }
}
