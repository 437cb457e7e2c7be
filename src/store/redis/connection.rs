//! The connections: several per process, functions loaded on demand, answers waited for.

use super::failure::{classify, is_unknown_function, passes};
use super::keyspace::LIBRARY;
use super::options::RedisOptions;
use super::servers::Servers;
use super::wire::{Place, RoundTrip, Wire};
use crate::store::StoreError;
use futures::future::try_join_all;
use redis::{Cmd, RedisError, Value};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Pauses while the server reads its append-only file, or a cluster moves a slot or makes a replica the primary (which
/// takes its `cluster-node-timeout` and some seconds); then the call fails.
const PAUSES: [Duration; 9] = [
    Duration::from_millis(20),
    Duration::from_millis(80),
    Duration::from_millis(400),
    Duration::from_secs(1),
    Duration::from_secs(2),
    // Of a cluster alone.
    Duration::from_secs(2),
    Duration::from_secs(2),
    Duration::from_secs(2),
    Duration::from_secs(2),
];
/// How long replicas have to confirm; their primary's connection stands still meanwhile.
const REPLICAS_TIMEOUT: Duration = Duration::from_secs(2);
/// How often one call puts the library on a server that lacks it.
const LOADS: usize = 3;

/// Connections to one server, or to all nodes of one cluster.
pub struct Pool {
    store: String,
    is_cluster: bool,
    wires: Vec<Wire>,
    next: AtomicUsize,
    wait_replicas: u32,
}

impl Pool {
    /// Connections that are opened when they are first used; only the `url` and the certificates are checked here.
    pub fn new(options: &RedisOptions) -> Result<Self, StoreError> {
        let bad = |reason: String| StoreError::Unavailable { store: "redis".to_owned(), reason };
        let servers = Servers::of(&options.url).map_err(|reason| bad(format!("illegal url: {reason}")))?;
        let tls = options.tls.as_ref().filter(|_| servers.is_tls);
        let wires = Wire::several(&servers, tls, options.connections.max(1)).map_err(|e| bad(e.to_string()))?;
        let (store, is_cluster) = (servers.shown, servers.is_cluster);
        Ok(Self { store, is_cluster, wires, next: AtomicUsize::new(0), wait_replicas: options.wait_replicas })
    }

    /// The server's address, or those of the nodes that are asked first, without credentials.
    pub fn store(&self) -> &str {
        &self.store
    }

    /// Several primaries divide the keys.
    pub const fn is_cluster(&self) -> bool {
        self.is_cluster
    }

    /// Replicas that must have a change before it counts.
    pub const fn wait_replicas(&self) -> u32 {
        self.wait_replicas
    }

    /// Runs a command, waiting a little for a server that loads, and loading the library when the
    /// server doesn't know it (a new server, or one whose functions were flushed).
    ///
    /// A server that restarted has dropped every connection of the pool, and each tells only when it
    /// is used: such a call is made again at once, on a new connection.
    pub async fn run(&self, cmd: &Cmd, again: Again) -> Result<Value, StoreError> {
        self.ask(cmd, again, false).await
    }

    /// The same of what changes something: it counts when as many replicas have it as it takes.
    pub async fn change(&self, cmd: &Cmd, again: Again) -> Result<Value, StoreError> {
        self.ask(cmd, again, self.wait_replicas > 0).await
    }

    async fn ask(&self, cmd: &Cmd, again: Again, waits: bool) -> Result<Value, StoreError> {
        // All over one wire: each knows by itself which node has a slot, and may know it later than others.
        let (wire, place) = (self.wire(), Place::Of(cmd));
        let once = async || {
            if !waits {
                return self.send(wire, RoundTrip::One(cmd), place, again).await;
            }
            // In one pipeline, so that both go over one connection: what is confirmed is what this one wrote.
            let mut pipe = redis::pipe();
            pipe.add_command(cmd.clone()).cmd("WAIT").arg(self.wait_replicas).arg(REPLICAS_TIMEOUT.as_millis() as u64);
            self.send(wire, RoundTrip::All(&pipe, 2), place, again).await
        };
        let mut answers = once().await;
        // More than once where slots move: the next node may not have it either.
        for _ in 0..LOADS {
            if !answers.as_ref().is_err_and(is_unknown_function) {
                break;
            }
            self.load(wire, place).await?;
            answers = once().await;
        }
        let answers = answers.map_err(|error| self.failed(&error))?;
        if let Some(Value::Int(have)) = answers.get(1)
            && *have < i64::from(self.wait_replicas)
        {
            return Err(self.too_few_replicas(*have));
        }
        Ok(answers.into_iter().next().unwrap_or(Value::Nil))
    }

    fn too_few_replicas(&self, have: i64) -> StoreError {
        StoreError::Unavailable {
            store: self.store.clone(),
            reason: format!(
                "its primary has it, but {have} of {} replicas confirmed it within {} s (`store.wait_replicas`)",
                self.wait_replicas,
                REPLICAS_TIMEOUT.as_secs()
            ),
        }
    }

    /// Asks several things at once; the answers are an array. None is a call of a function.
    pub async fn run_all(&self, cmds: &[Cmd]) -> Result<Value, StoreError> {
        let failed = |error| self.failed(&error);
        let Some(first) = cmds.first() else { return Ok(Value::Array(Vec::new())) };
        let wire = self.wire();
        if self.is_cluster {
            // Each goes where its key is; the driver sends what is of one node together.
            let one = |cmd| async move { self.send(wire, RoundTrip::One(cmd), Place::Of(cmd), Again::Yes).await };
            let answers = try_join_all(cmds.iter().map(one)).await.map_err(failed)?;
            return Ok(Value::Array(answers.into_iter().flatten().collect()));
        }
        let mut pipe = redis::pipe();
        for cmd in cmds {
            pipe.add_command(cmd.clone());
        }
        self.send(wire, RoundTrip::All(&pipe, cmds.len()), Place::Of(first), Again::Yes)
            .await
            .map(Value::Array)
            .map_err(failed)
    }

    /// Asks every primary the same, with its name where there are several; each answers for itself.
    pub async fn everywhere(&self, cmd: &Cmd) -> Result<Vec<(String, Result<Value, StoreError>)>, StoreError> {
        self.everywhere_over(self.wire(), cmd).await
    }

    async fn everywhere_over(
        &self,
        wire: &Wire,
        cmd: &Cmd,
    ) -> Result<Vec<(String, Result<Value, StoreError>)>, StoreError> {
        let mut pauses = self.pauses();
        loop {
            match (wire.ask_all(cmd).await, pauses.next()) {
                (Err(error), Some(pause)) if passes(&error) => tokio::time::sleep(*pause).await,
                (answers, _) => {
                    let each = |(node, answer): (_, Result<_, RedisError>)| (node, answer.map_err(|e| self.failed(&e)));
                    return Ok(answers.map_err(|error| self.failed(&error))?.into_iter().map(each).collect());
                }
            }
        }
    }

    /// Puts the library of this build on every primary that hasn't got it.
    pub async fn load_everywhere(&self) -> Result<(), StoreError> {
        let wire = self.wire();
        for (node, found) in self.everywhere_over(wire, &library_there()).await? {
            if !is_there(&found?) {
                self.load(wire, Place::Node(&node)).await?;
            }
        }
        Ok(())
    }

    /// Puts the library of this build on a server.
    ///
    /// Only when it isn't there: loading is refused at the memory limit, where commits must go on.
    async fn load(&self, wire: &Wire, place: Place<'_>) -> Result<(), StoreError> {
        let there = library_there();
        let found =
            self.send(wire, RoundTrip::One(&there), place, Again::Yes).await.map_err(|error| self.failed(&error))?;
        if found.iter().any(is_there) {
            return Ok(());
        }
        let mut load = redis::cmd("FUNCTION");
        load.arg("LOAD").arg("REPLACE").arg(&LIBRARY.code);
        self.send(wire, RoundTrip::One(&load), place, Again::Yes).await.map(drop).map_err(|error| self.failed(&error))
    }

    async fn send(
        &self,
        wire: &Wire,
        asked: RoundTrip<'_>,
        place: Place<'_>,
        again: Again,
    ) -> Result<Vec<Value>, RedisError> {
        let mut pauses = self.pauses();
        loop {
            let answers = match again {
                Again::Yes => wire.ask_twice(asked, place).await,
                // Whether the connection lasts is found out by a question that can be asked again.
                Again::No => match wire.ask_twice(RoundTrip::One(&redis::cmd("PING")), place).await {
                    Ok(_) => wire.ask(asked, place).await,
                    gone => gone,
                },
            };
            let Err(error) = &answers else { return answers };
            // Another node may be the primary soon.
            let lost = || self.is_cluster && (error.is_connection_dropped() || error.is_connection_refusal());
            match pauses.next() {
                Some(pause) if passes(error) || again == Again::Yes && lost() => tokio::time::sleep(*pause).await,
                _ => return answers,
            }
        }
    }

    fn pauses(&self) -> impl Iterator<Item = &'static Duration> {
        PAUSES.iter().take(if self.is_cluster { PAUSES.len() } else { 5 })
    }

    fn wire(&self) -> &Wire {
        &self.wires[self.next.fetch_add(1, Ordering::Relaxed) % self.wires.len()]
    }

    fn failed(&self, error: &RedisError) -> StoreError {
        classify(&self.store, error)
    }
}

/// Whether a command may be sent again when its connection broke: then nobody knows whether it was applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Again {
    /// Applied twice it does what it does once, and answers the same.
    Yes,
    /// Its second answer would be another one.
    No,
}

fn library_there() -> Cmd {
    let mut list = redis::cmd("FUNCTION");
    list.arg("LIST").arg("LIBRARYNAME").arg(&LIBRARY.name);
    list
}

fn is_there(found: &Value) -> bool {
    matches!(found, Value::Array(libraries) if !libraries.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_illegal_url_is_refused_and_a_legal_one_shown_without_its_password() {
        assert!(Pool::new(&RedisOptions::new("http://x")).is_err());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let _guard = runtime.enter();
        let pool = Pool::new(&RedisOptions::new("redis://me:secret@127.0.0.1:7/0")).unwrap();
        assert_eq!(pool.store(), "redis://127.0.0.1:7");
    }
}
