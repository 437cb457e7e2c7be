//! One connection: its phase, its time limits, and its bytes.

use super::connection_limits::{ConnectionDecision, ConnectionLimits, Connections, Requester, ShareExceeded};
use crate::domain::share::Sharers;
use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Sleep, sleep};
use tokio_util::sync::CancellationToken;

/// Phase of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ConnectionPhase {
    /// The last request is answered.
    Idle,
    /// The connection waits for the header of a request, or for its rest.
    Header,
    /// The connection waits for the body of a request.
    Body,
    /// A request is handled and answered.
    Work,
}

/// All connections of a server.
pub(super) struct ConnectionTable(Mutex<ConnectionState>);

struct ConnectionState {
    connections: Connections,
    close: HashMap<u64, CancellationToken>,
}

impl ConnectionTable {
    pub(super) fn new(room: ConnectionLimits) -> Arc<Self> {
        Arc::new(Self(Mutex::new(ConnectionState { connections: Connections::new(room), close: HashMap::new() })))
    }

    fn lock(&self) -> MutexGuard<'_, ConnectionState> {
        self.0.lock()
    }

    /// Adds a connection, which may close another one; the error says why it is refused.
    pub(super) fn add_connection(
        self: &Arc<Self>,
        from: IpAddr,
        all: &CancellationToken,
    ) -> Result<Arc<ConnectionHandle>, ConnectionDecision> {
        let mut state = self.lock();
        match state.connections.accept(from) {
            ConnectionDecision::Open { number, instead_of } => {
                if let Some(other) = instead_of.and_then(|other| state.close.remove(&other)) {
                    other.cancel();
                }
                let close = all.child_token();
                state.close.insert(number, close.clone());
                let (phase, _) = watch::channel(ConnectionPhase::Header);
                Ok(Arc::new(ConnectionHandle {
                    table: Arc::clone(self),
                    number,
                    close,
                    phase,
                    stuck: AtomicBool::new(false),
                }))
            }
            refused @ (ConnectionDecision::Full | ConnectionDecision::FullOfAddress) => Err(refused),
        }
    }
}

/// An open connection; dropping this removes it from the table.
pub(super) struct ConnectionHandle {
    table: Arc<ConnectionTable>,
    number: u64,
    /// Cancelled when the connection must end.
    pub(super) close: CancellationToken,
    phase: watch::Sender<ConnectionPhase>,
    /// The client reads nothing of what is written.
    stuck: AtomicBool,
}

impl ConnectionHandle {
    /// Marks the connection as working on a whole request, unless the requester has used its share of the connections.
    pub(super) fn start_work(&self, requester: Requester, sharers: Sharers) -> Result<(), ShareExceeded> {
        self.table.lock().connections.start_work(self.number, requester, sharers)?;
        self.phase.send_replace(ConnectionPhase::Work);
        Ok(())
    }

    /// Marks the connection as waiting for a body.
    pub(super) fn await_body(&self) {
        self.end_work(ConnectionPhase::Body);
    }

    fn end_work(&self, phase: ConnectionPhase) {
        if self.phase.send_replace(phase) == ConnectionPhase::Work {
            self.table.lock().connections.mark_idle(self.number);
        }
    }

    /// Whether a request is being handled.
    pub(super) fn is_working(&self) -> bool {
        *self.phase.borrow() == ConnectionPhase::Work
    }

    /// Records that bytes have come; after an answer they begin the next request.
    fn note_bytes_received(&self) {
        self.phase.send_if_modified(|phase| {
            let begins = *phase == ConnectionPhase::Idle;
            if begins {
                *phase = ConnectionPhase::Header;
            }
            begins
        });
    }

    /// Resolves when the connection was idle, or at its header, for too long. Body and work have the limits of their
    /// request.
    pub(super) async fn wait_until_overdue(&self, header: Duration, idle: Duration) {
        let mut phase = self.phase.subscribe();
        loop {
            let now = *phase.borrow_and_update();
            let time = match now {
                ConnectionPhase::Idle => idle,
                ConnectionPhase::Header => header,
                ConnectionPhase::Body | ConnectionPhase::Work => Duration::MAX,
            };
            tokio::select! {
                // The sender lives as long as this value.
                _ = phase.changed() => {}
                () = sleep(time) => {
                    // The end of a long answer may still be on its way.
                    if now != ConnectionPhase::Idle || !self.stuck.load(Ordering::Relaxed) {
                        tracing::debug!(?now, "connection closed: it sent nothing for too long");
                        return;
                    }
                }
            }
        }
    }
}

impl Drop for ConnectionHandle {
    fn drop(&mut self) {
        let mut state = self.table.lock();
        state.connections.remove(self.number);
        state.close.remove(&self.number);
    }
}

/// Keeps a connection working until its answer is sent.
pub(super) struct AnswerGuard(pub(super) Arc<ConnectionHandle>);

impl Drop for AnswerGuard {
    fn drop(&mut self) {
        self.0.end_work(ConnectionPhase::Idle);
    }
}

/// The bytes of a connection; it ends with an error if the client reads nothing for `stall`.
pub(super) struct ConnectionStream {
    stream: TcpStream,
    handle: Arc<ConnectionHandle>,
    stall: Duration,
    stuck: Option<Pin<Box<Sleep>>>,
}

impl ConnectionStream {
    pub(super) const fn new(stream: TcpStream, handle: Arc<ConnectionHandle>, stall: Duration) -> Self {
        Self { stream, handle, stall, stuck: None }
    }

    fn check_write_time(&mut self, cx: &mut Context<'_>, wrote: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        self.handle.stuck.store(wrote.is_pending(), Ordering::Relaxed);
        if wrote.is_ready() {
            self.stuck = None;
            return wrote;
        }
        let stall = self.stall;
        let end = self.stuck.get_or_insert_with(|| Box::pin(sleep(stall)));
        ready!(end.as_mut().poll(cx));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the other side takes nothing")))
    }
}

impl AsyncRead for ConnectionStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        if buf.filled().len() > before {
            self.handle.note_bytes_received();
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for ConnectionStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let wrote = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.check_write_time(cx, wrote)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let wrote = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.check_write_time(cx, wrote)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
