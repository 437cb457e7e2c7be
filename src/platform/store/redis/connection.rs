//! The connections: several per process, functions loaded on demand, replicas waited for.

use super::attempts::{Attempts, Patience};
use super::barrier::Barrier;
use super::failure::{classify, is_cut, is_temporary, is_unknown_function};
use super::keyspace::{Keyspace, LIBRARY};
use super::millis::millis;
use super::options::RedisOptions;
use super::sentinel::SentinelReport;
use super::server_connection::{RoundTrip, ServerConnection, TargetNode, first_key};
use super::servers::Servers;
use crate::store::StoreError;
use futures::future::join_all;
use redis::{Cmd, RedisError, Value};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Time for replicas to confirm; the connection that waits sends nothing else meanwhile.
const REPLICAS_TIMEOUT: Duration = Duration::from_secs(1);
/// Most times that one call loads the library on a server that lacks it.
const LOADS: usize = 3;

/// Connections to one server, to all nodes of one cluster, or to the primary that Sentinels name.
pub struct Pool {
    store: String,
    is_cluster: bool,
    /// Whether another server may become the primary.
    can_fail_over: bool,
    wires: ConnectionRing,
    /// Connections of calls that wait for replicas, if some must: any other command on them would wait as well.
    waiting: Option<ConnectionRing>,
    wait_replicas: u32,
    prefix: String,
    patience: Patience,
    /// Calls wait here after a broken connection.
    pub(super) barrier: Barrier,
    reads_only: bool,
}

/// Connections used in turn.
struct ConnectionRing(Vec<ServerConnection>, AtomicUsize);

impl ConnectionRing {
    fn next_connection(&self) -> &ServerConnection {
        &self.0[self.1.fetch_add(1, Ordering::Relaxed) % self.0.len()]
    }
}

impl Pool {
    /// Returns connections that are opened at their first use; only the `url` and the certificates are checked here.
    pub fn new(options: &RedisOptions) -> Result<Self, StoreError> {
        let bad = |reason: String| StoreError::Unavailable { store: "redis".to_owned(), reason };
        let servers = Servers::parse(&options.url).map_err(|reason| bad(format!("illegal url: {reason}")))?;
        let tls = options.tls.as_ref().filter(|_| servers.is_tls);
        let (count, waits) = (options.connections.max(1), options.wait_replicas > 0);
        // Created together, so that what one of them learns of a new primary counts for all.
        let wires = ServerConnection::open_many(&servers, tls, if waits { 2 * count } else { count });
        let mut wires = wires.map_err(|error| bad(error.to_string()))?;
        let waiting = waits.then(|| ConnectionRing(wires.split_off(count), AtomicUsize::new(0)));
        let can_fail_over = servers.is_cluster || servers.primary.is_some();
        let long = can_fail_over && options.waits_for_failover;
        Ok(Self {
            wires: ConnectionRing(wires, AtomicUsize::new(0)),
            waiting,
            wait_replicas: options.wait_replicas,
            prefix: options.prefix.clone(),
            reads_only: options.reads_only,
            patience: if long { Patience::Failover } else { Patience::Restart },
            barrier: Barrier::default(),
            store: servers.masked_url,
            is_cluster: servers.is_cluster,
            can_fail_over,
        })
    }

    /// Returns the address of the server, or of the configured nodes, without credentials.
    pub fn store(&self) -> &str {
        &self.store
    }

    /// Whether several primaries divide the keys.
    pub const fn is_cluster(&self) -> bool {
        self.is_cluster
    }

    /// Whether another server may become the primary.
    pub const fn can_fail_over(&self) -> bool {
        self.can_fail_over
    }

    /// Whether nothing may be changed on the servers.
    pub const fn reads_only(&self) -> bool {
        self.reads_only
    }

    /// Returns how many replicas must confirm a change.
    pub const fn wait_replicas(&self) -> u32 {
        self.wait_replicas
    }

    /// Runs a command. Waits a little for a server that loads, and loads the library when the server doesn't know it (a
    /// new server, or one whose functions were flushed).
    ///
    /// A server that restarted has dropped every connection of the pool, and each shows that only at its next use: such
    /// a call is made again at once, on a new connection.
    pub async fn run(&self, cmd: &Cmd, again: Repeatability) -> Result<Value, StoreError> {
        let mut answers = self
            .send_with_library(self.wires.next_connection(), RoundTrip::One(cmd), cmd, again, self.patience)
            .await?;
        Ok(answers.pop().unwrap_or(Value::Nil))
    }

    /// [`Pool::run`] for commands that may be repeated; doesn't wait for a failover.
    pub async fn run_now(&self, cmd: &Cmd) -> Result<Value, StoreError> {
        let patience = if self.can_fail_over { Patience::Once } else { self.patience };
        let mut answers = self
            .send_with_library(self.wires.next_connection(), RoundTrip::One(cmd), cmd, Repeatability::Yes, patience)
            .await?;
        Ok(answers.pop().unwrap_or(Value::Nil))
    }

    /// [`Pool::run`] for changes: fails unless as many replicas confirm as are configured.
    pub async fn change(&self, cmd: &Cmd, again: Repeatability) -> Result<Value, StoreError> {
        let Some(waiting) = &self.waiting else { return self.run(cmd, again).await };
        let mut mark = redis::cmd("FCALL");
        mark.arg(LIBRARY.function("mark")).arg(1).arg(Keyspace::mark(&self.prefix, first_key(cmd).unwrap_or_default()));
        // One pipeline uses one connection, and `WAIT` confirms what this connection wrote.
        let mut pipe = redis::pipe();
        pipe.add_command(mark).add_command(cmd.clone());
        pipe.cmd("WAIT").arg(self.wait_replicas).arg(millis(REPLICAS_TIMEOUT));
        let answers = self
            .send_with_library(waiting.next_connection(), RoundTrip::Waiting(&pipe), cmd, again, self.patience)
            .await?;
        let mut answers = answers.into_iter();
        match (answers.next(), answers.next()) {
            (Some(answer), Some(Value::Int(have))) if have >= i64::from(self.wait_replicas) => Ok(answer),
            (_, confirmed) => Err(self.unconfirmed_error(confirmed)),
        }
    }

    fn unconfirmed_error(&self, answer: Option<Value>) -> StoreError {
        let confirmed = match answer.unwrap_or(Value::Nil).extract_error() {
            Ok(Value::Int(have)) => format!("{have} confirmed it within {} s", REPLICAS_TIMEOUT.as_secs()),
            Ok(_) => "it doesn't say how many have it".to_owned(),
            Err(error) => error.to_string(),
        };
        let wanted = self.wait_replicas;
        StoreError::Unavailable {
            store: self.store.clone(),
            reason: format!("its primary has it, and {wanted} replicas must (`store.wait_replicas`): {confirmed}"),
        }
    }

    /// Sends over one connection: each one knows by itself which node has a slot, maybe later than others.
    async fn send_with_library(
        &self,
        wire: &ServerConnection,
        asked: RoundTrip<'_>,
        of: &Cmd,
        again: Repeatability,
        patience: Patience,
    ) -> Result<Vec<Value>, StoreError> {
        let (place, mut attempts) = (TargetNode::KeyOf(of), patience.start());
        let mut answers = self.send_with_retries(wire, asked, place, again, &mut attempts).await;
        // More than once while slots move: the next node may lack the library, too.
        for _ in 0..LOADS {
            if self.reads_only || !answers.as_ref().is_err_and(is_unknown_function) {
                break;
            }
            self.load(wire, place, &mut attempts).await?;
            answers = self.send_with_retries(wire, asked, place, again, &mut attempts).await;
        }
        answers.map_err(|error| self.store_error(&error))
    }

    /// Sends several commands at once, without waiting for a server that is away; each has its own answer. None may
    /// call a function.
    pub async fn run_each(&self, cmds: &[Cmd]) -> Vec<Result<Value, StoreError>> {
        let wire = self.wires.next_connection();
        if self.is_cluster {
            // Each is sent to the node of its key; the driver groups commands of one node.
            let one = |cmd| async move {
                let asked = self.ask_twice(wire, RoundTrip::One(cmd), TargetNode::KeyOf(cmd));
                let answers = Patience::Once.start().run(asked).await;
                answers.map(|mut answers| answers.pop().unwrap_or(Value::Nil)).map_err(|error| self.store_error(&error))
            };
            return join_all(cmds.iter().map(one)).await;
        }
        let Some(first) = cmds.first() else { return Vec::new() };
        let mut pipe = redis::pipe();
        for cmd in cmds {
            pipe.add_command(cmd.clone());
        }
        let (asked, mut attempts) = (RoundTrip::All(&pipe, cmds.len()), self.patience.start());
        match self.send_with_retries(wire, asked, TargetNode::KeyOf(first), Repeatability::Yes, &mut attempts).await {
            Ok(answers) => answers.into_iter().map(Ok).collect(),
            Err(error) => cmds.iter().map(|_| Err(self.store_error(&error))).collect(),
        }
    }

    /// Returns why no node of a cluster can be reached, by a plain connection to the first configured one: the driver
    /// doesn't say.
    pub async fn why_unreachable(&self, options: &RedisOptions) -> Option<String> {
        let servers = Servers::parse(&options.url).ok().filter(|servers| servers.is_cluster)?;
        let alone = Servers { nodes: servers.nodes.into_iter().take(1).collect(), is_cluster: false, ..servers };
        let tls = options.tls.as_ref().filter(|_| alone.is_tls);
        let wire = ServerConnection::open_many(&alone, tls, 1).ok()?.pop()?;
        let cmd = redis::cmd("CLUSTER").arg("SLOTS").clone();
        let address = alone.nodes.first()?.addr().to_string();
        wire.ask(RoundTrip::One(&cmd), TargetNode::KeyOf(&cmd)).await.err().map(|error| format!("{address}: {error}"))
    }

    /// Sends a command to every primary; returns the answers, each with the node's name if it is a cluster.
    pub async fn run_everywhere(&self, cmd: &Cmd) -> Result<Vec<(String, Result<Value, StoreError>)>, StoreError> {
        self.run_everywhere_over(self.wires.next_connection(), cmd, &mut self.patience.start()).await
    }

    async fn run_everywhere_over(
        &self,
        wire: &ServerConnection,
        cmd: &Cmd,
        attempts: &mut Attempts,
    ) -> Result<Vec<(String, Result<Value, StoreError>)>, StoreError> {
        loop {
            let answers = attempts.run(wire.ask_all(cmd, |error| self.barrier.note(error))).await;
            if let Err(error) = &answers {
                self.barrier.note(error);
            }
            match answers {
                Err(error) if is_temporary(&error) && attempts.pause(&error).await => {}
                answers => {
                    let each =
                        |(node, answer): (_, Result<_, RedisError>)| (node, answer.map_err(|e| self.store_error(&e)));
                    return Ok(answers.map_err(|error| self.store_error(&error))?.into_iter().map(each).collect());
                }
            }
        }
    }

    /// Sends a command to one of the primaries, by the name that [`everywhere`](Self::everywhere) returned.
    pub async fn run_on(&self, node: &str, cmd: &Cmd) -> Result<Value, StoreError> {
        if !self.is_cluster {
            return self.run(cmd, Repeatability::Yes).await;
        }
        let mut attempts = self.patience.start();
        let answers = self
            .send_with_retries(
                self.wires.next_connection(),
                RoundTrip::One(cmd),
                TargetNode::Node(node),
                Repeatability::Yes,
                &mut attempts,
            )
            .await;
        answers.map(|mut answers| answers.pop().unwrap_or(Value::Nil)).map_err(|error| self.store_error(&error))
    }

    /// Sends a command to every primary, without waiting; returns the answers of those that answer.
    pub async fn run_everywhere_now(&self, cmd: &Cmd) -> Vec<Value> {
        let asked = self.wires.next_connection().ask_all(cmd, |error| self.barrier.note(error));
        let answers = Patience::Once.start().run(asked).await.inspect_err(|error| self.barrier.note(error));
        answers.unwrap_or_default().into_iter().filter_map(|(_, answer)| answer.ok()).collect()
    }

    /// Returns the answers of the Sentinels, if Sentinels name the primary.
    pub async fn sentinels(&self) -> Option<SentinelReport> {
        self.wires.next_connection().sentinels().await
    }

    /// Checks that the servers answer; changes nothing on them.
    pub async fn ping(&self) -> Result<(), StoreError> {
        self.run_everywhere(&redis::cmd("PING")).await.map(drop)
    }

    /// Loads the library of this build on every primary that lacks it.
    pub async fn load_everywhere(&self) -> Result<(), StoreError> {
        let (wire, mut attempts) = (self.wires.next_connection(), self.patience.start());
        for (node, found) in self.run_everywhere_over(wire, &list_library_cmd(), &mut attempts).await? {
            if !has_library(&found?) {
                self.load(wire, TargetNode::Node(&node), &mut attempts).await?;
            }
        }
        Ok(())
    }

    /// Loads the library of this build on a server.
    ///
    /// Only if the server lacks it: a load is refused at the memory limit, where commits must go on.
    async fn load(
        &self,
        wire: &ServerConnection,
        place: TargetNode<'_>,
        attempts: &mut Attempts,
    ) -> Result<(), StoreError> {
        let there = list_library_cmd();
        let found = self
            .send_with_retries(wire, RoundTrip::One(&there), place, Repeatability::Yes, attempts)
            .await
            .map_err(|error| self.store_error(&error))?;
        if found.iter().any(has_library) {
            return Ok(());
        }
        let mut load = redis::cmd("FUNCTION");
        load.arg("LOAD").arg("REPLACE").arg(&LIBRARY.code);
        self.send_with_retries(wire, RoundTrip::One(&load), place, Repeatability::Yes, attempts)
            .await
            .map(drop)
            .map_err(|error| self.store_error(&error))
    }

    async fn send_with_retries(
        &self,
        wire: &ServerConnection,
        asked: RoundTrip<'_>,
        place: TargetNode<'_>,
        again: Repeatability,
        attempts: &mut Attempts,
    ) -> Result<Vec<Value>, RedisError> {
        loop {
            self.barrier.pass().await?;
            let answers = match again {
                Repeatability::Yes => attempts.run(self.ask_twice(wire, asked, place)).await,
                // A repeatable command finds out whether the connection still works.
                Repeatability::No => {
                    match attempts.run(self.ask_twice(wire, RoundTrip::One(&redis::cmd("PING")), place)).await {
                        Ok(_) => {
                            attempts.reset_deadline();
                            attempts.run(wire.ask(asked, place)).await
                        }
                        gone => gone,
                    }
                }
            };
            let Err(error) = &answers else { return answers };
            self.barrier.note(error);
            let lost = || self.can_fail_over && !error.is_timeout() && (is_cut(error) || error.is_io_error());
            let helps = is_temporary(error) || again == Repeatability::Yes && lost();
            if !helps || !attempts.pause(error).await {
                return answers;
            }
        }
    }

    /// [`ServerConnection::ask_twice`] that waits at the barrier between the two attempts.
    async fn ask_twice(
        &self,
        wire: &ServerConnection,
        asked: RoundTrip<'_>,
        place: TargetNode<'_>,
    ) -> Result<Vec<Value>, RedisError> {
        let check = async |error: &RedisError| {
            self.barrier.note(error);
            self.barrier.pass().await
        };
        wire.ask_twice(asked, place, check).await
    }

    fn store_error(&self, error: &RedisError) -> StoreError {
        classify(&self.store, self.is_cluster, error)
    }
}

/// Whether a command may be sent again when its connection broke and it may have been applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repeatability {
    /// The second run changes nothing more and returns the same answer.
    Yes,
    /// The second answer would differ.
    No,
}

fn list_library_cmd() -> Cmd {
    let mut list = redis::cmd("FUNCTION");
    list.arg("LIST").arg("LIBRARYNAME").arg(&LIBRARY.name);
    list
}

fn has_library(found: &Value) -> bool {
    matches!(found, Value::Array(libraries) if !libraries.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn illegal_urls_are_refused_and_passwords_hidden() {
        assert!(Pool::new(&RedisOptions::new("http://x")).is_err());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let _guard = runtime.enter();
        let pool = Pool::new(&RedisOptions::new("redis://me:secret@127.0.0.1:7/0")).unwrap();
        assert_eq!(pool.store(), "redis://127.0.0.1:7");
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_is_silent_is_told_in_time() {
        // The system takes its connections; nobody reads them.
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("redis://{}", silent.local_addr().unwrap());
        let pool = Pool::new(&RedisOptions::new(url)).unwrap();
        let start = tokio::time::Instant::now();
        for again in [Repeatability::Yes, Repeatability::No] {
            let error = pool.run(redis::cmd("GET").arg("x"), again).await.unwrap_err();
            assert!(matches!(error, StoreError::Unavailable { .. }), "{error}");
        }
        assert!(start.elapsed().as_secs() <= 11, "{:?}", start.elapsed());
    }
}
