//! The connections: several per process, functions loaded on demand, answers waited for.

use super::attempts::{Attempts, Patience};
use super::barrier::Barrier;
use super::failure::{classify, is_cut, is_unknown_function, passes};
use super::keyspace::{Keyspace, LIBRARY};
use super::millis;
use super::options::RedisOptions;
use super::sentinel::SentinelReport;
use super::servers::Servers;
use super::wire::{Place, RoundTrip, Wire, key};
use crate::store::StoreError;
use futures::future::join_all;
use redis::{Cmd, RedisError, Value};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// How long replicas have to confirm; the connection that waits stands still meanwhile.
const REPLICAS_TIMEOUT: Duration = Duration::from_secs(1);
/// How often one call puts the library on a server that lacks it.
const LOADS: usize = 3;

/// Connections to one server, to all nodes of one cluster, or to the primary that sentinels name.
pub struct Pool {
    store: String,
    is_cluster: bool,
    /// Another server may be the primary soon.
    can_fail_over: bool,
    wires: Wires,
    /// Of calls that wait for replicas, where some must: nothing else is sent on these, for it would wait as well.
    waiting: Option<Wires>,
    wait_replicas: u32,
    prefix: String,
    patience: Patience,
    /// Behind a broken connection calls wait here.
    pub(super) barrier: Barrier,
    reads_only: bool,
}

/// Used in turn.
struct Wires(Vec<Wire>, AtomicUsize);

impl Wires {
    fn next(&self) -> &Wire {
        &self.0[self.1.fetch_add(1, Ordering::Relaxed) % self.0.len()]
    }
}

impl Pool {
    /// Connections that are opened when they are first used; only the `url` and the certificates are checked here.
    pub fn new(options: &RedisOptions) -> Result<Self, StoreError> {
        let bad = |reason: String| StoreError::Unavailable { store: "redis".to_owned(), reason };
        let servers = Servers::of(&options.url).map_err(|reason| bad(format!("illegal url: {reason}")))?;
        let tls = options.tls.as_ref().filter(|_| servers.is_tls);
        let (count, waits) = (options.connections.max(1), options.wait_replicas > 0);
        // Made together: what one of them learns of another primary counts for all.
        let wires = Wire::several(&servers, tls, if waits { 2 * count } else { count });
        let mut wires = wires.map_err(|error| bad(error.to_string()))?;
        let waiting = waits.then(|| Wires(wires.split_off(count), AtomicUsize::new(0)));
        let can_fail_over = servers.is_cluster || servers.primary.is_some();
        let long = can_fail_over && options.waits_for_failover;
        Ok(Self {
            wires: Wires(wires, AtomicUsize::new(0)),
            waiting,
            wait_replicas: options.wait_replicas,
            prefix: options.prefix.clone(),
            reads_only: options.reads_only,
            patience: if long { Patience::Failover } else { Patience::Restart },
            barrier: Barrier::default(),
            store: servers.shown,
            is_cluster: servers.is_cluster,
            can_fail_over,
        })
    }

    /// The server's address, or those of the nodes that are asked first, without credentials.
    pub fn store(&self) -> &str {
        &self.store
    }

    /// Several primaries divide the keys.
    pub const fn is_cluster(&self) -> bool {
        self.is_cluster
    }

    /// Another server may be the primary soon.
    pub const fn can_fail_over(&self) -> bool {
        self.can_fail_over
    }

    /// Nothing is changed on the servers.
    pub const fn reads_only(&self) -> bool {
        self.reads_only
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
        let mut answers = self.ask(self.wires.next(), RoundTrip::One(cmd), cmd, again, self.patience).await?;
        Ok(answers.pop().unwrap_or(Value::Nil))
    }

    /// The same of what may be asked again at any time, without waiting for a primary that is away where another takes over.
    pub async fn run_now(&self, cmd: &Cmd) -> Result<Value, StoreError> {
        let patience = if self.can_fail_over { Patience::Once } else { self.patience };
        let mut answers = self.ask(self.wires.next(), RoundTrip::One(cmd), cmd, Again::Yes, patience).await?;
        Ok(answers.pop().unwrap_or(Value::Nil))
    }

    /// The same of what changes something: it counts when as many replicas have it as it takes.
    pub async fn change(&self, cmd: &Cmd, again: Again) -> Result<Value, StoreError> {
        let Some(waiting) = &self.waiting else { return self.run(cmd, again).await };
        let mut mark = redis::cmd("FCALL");
        mark.arg(LIBRARY.function("mark")).arg(1).arg(Keyspace::mark(&self.prefix, key(cmd).unwrap_or_default()));
        // In one pipeline, so that all of it goes over one connection: what is confirmed is what this one wrote.
        let mut pipe = redis::pipe();
        pipe.add_command(mark).add_command(cmd.clone());
        pipe.cmd("WAIT").arg(self.wait_replicas).arg(millis(REPLICAS_TIMEOUT));
        let answers = self.ask(waiting.next(), RoundTrip::Waiting(&pipe), cmd, again, self.patience).await?;
        let mut answers = answers.into_iter();
        match (answers.next(), answers.next()) {
            (Some(answer), Some(Value::Int(have))) if have >= i64::from(self.wait_replicas) => Ok(answer),
            (_, confirmed) => Err(self.unconfirmed(confirmed)),
        }
    }

    fn unconfirmed(&self, answer: Option<Value>) -> StoreError {
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

    /// Asks over one wire: each knows by itself which node has a slot, and may know it later than others.
    async fn ask(
        &self,
        wire: &Wire,
        asked: RoundTrip<'_>,
        of: &Cmd,
        again: Again,
        patience: Patience,
    ) -> Result<Vec<Value>, StoreError> {
        let (place, mut attempts) = (Place::Of(of), patience.start());
        let mut answers = self.send(wire, asked, place, again, &mut attempts).await;
        // More than once where slots move: the next node may not have it either.
        for _ in 0..LOADS {
            if self.reads_only || !answers.as_ref().is_err_and(is_unknown_function) {
                break;
            }
            self.load(wire, place, &mut attempts).await?;
            answers = self.send(wire, asked, place, again, &mut attempts).await;
        }
        answers.map_err(|error| self.failed(&error))
    }

    /// Asks several things at once, without waiting for a server that is away; each answers for itself. None is a call
    /// of a function.
    pub async fn run_each(&self, cmds: &[Cmd]) -> Vec<Result<Value, StoreError>> {
        let wire = self.wires.next();
        if self.is_cluster {
            // Each goes where its key is; the driver sends what is of one node together.
            let one = |cmd| async move {
                let asked = self.ask_twice(wire, RoundTrip::One(cmd), Place::Of(cmd));
                let answers = Patience::Once.start().run(asked).await;
                answers.map(|mut answers| answers.pop().unwrap_or(Value::Nil)).map_err(|error| self.failed(&error))
            };
            return join_all(cmds.iter().map(one)).await;
        }
        let Some(first) = cmds.first() else { return Vec::new() };
        let mut pipe = redis::pipe();
        for cmd in cmds {
            pipe.add_command(cmd.clone());
        }
        let (asked, mut attempts) = (RoundTrip::All(&pipe, cmds.len()), self.patience.start());
        match self.send(wire, asked, Place::Of(first), Again::Yes, &mut attempts).await {
            Ok(answers) => answers.into_iter().map(Ok).collect(),
            Err(error) => cmds.iter().map(|_| Err(self.failed(&error))).collect(),
        }
    }

    /// Why no node of a cluster can be reached, by a plain connection to the first that was named: the driver doesn't say.
    pub async fn why_unreachable(&self, options: &RedisOptions) -> Option<String> {
        let servers = Servers::of(&options.url).ok().filter(|servers| servers.is_cluster)?;
        let alone = Servers { nodes: servers.nodes.into_iter().take(1).collect(), is_cluster: false, ..servers };
        let tls = options.tls.as_ref().filter(|_| alone.is_tls);
        let wire = Wire::several(&alone, tls, 1).ok()?.pop()?;
        let cmd = redis::cmd("CLUSTER").arg("SLOTS").clone();
        let address = alone.nodes.first()?.addr().to_string();
        wire.ask(RoundTrip::One(&cmd), Place::Of(&cmd)).await.err().map(|error| format!("{address}: {error}"))
    }

    /// Asks every primary the same, with its name where there are several; each answers for itself.
    pub async fn everywhere(&self, cmd: &Cmd) -> Result<Vec<(String, Result<Value, StoreError>)>, StoreError> {
        self.everywhere_over(self.wires.next(), cmd, &mut self.patience.start()).await
    }

    async fn everywhere_over(
        &self,
        wire: &Wire,
        cmd: &Cmd,
        attempts: &mut Attempts,
    ) -> Result<Vec<(String, Result<Value, StoreError>)>, StoreError> {
        loop {
            let answers = attempts.run(wire.ask_all(cmd, |error| self.barrier.note(error))).await;
            if let Err(error) = &answers {
                self.barrier.note(error);
            }
            match answers {
                Err(error) if passes(&error) && attempts.pause(&error).await => {}
                answers => {
                    let each = |(node, answer): (_, Result<_, RedisError>)| (node, answer.map_err(|e| self.failed(&e)));
                    return Ok(answers.map_err(|error| self.failed(&error))?.into_iter().map(each).collect());
                }
            }
        }
    }

    /// Asks one of the primaries, by the name that [`everywhere`](Self::everywhere) gives it.
    pub async fn run_on(&self, node: &str, cmd: &Cmd) -> Result<Value, StoreError> {
        if !self.is_cluster {
            return self.run(cmd, Again::Yes).await;
        }
        let mut attempts = self.patience.start();
        let answers =
            self.send(self.wires.next(), RoundTrip::One(cmd), Place::Node(node), Again::Yes, &mut attempts).await;
        answers.map(|mut answers| answers.pop().unwrap_or(Value::Nil)).map_err(|error| self.failed(&error))
    }

    /// The same at once, of those that answer.
    pub async fn everywhere_now(&self, cmd: &Cmd) -> Vec<Value> {
        let asked = self.wires.next().ask_all(cmd, |error| self.barrier.note(error));
        let answers = Patience::Once.start().run(asked).await.inspect_err(|error| self.barrier.note(error));
        answers.unwrap_or_default().into_iter().filter_map(|(_, answer)| answer.ok()).collect()
    }

    /// What Sentinels say, where they name the primary.
    pub async fn sentinels(&self) -> Option<SentinelReport> {
        self.wires.next().sentinels().await
    }

    /// Whether the servers answer; nothing is changed on them.
    pub async fn ping(&self) -> Result<(), StoreError> {
        self.everywhere(&redis::cmd("PING")).await.map(drop)
    }

    /// Puts the library of this build on every primary that hasn't got it.
    pub async fn load_everywhere(&self) -> Result<(), StoreError> {
        let (wire, mut attempts) = (self.wires.next(), self.patience.start());
        for (node, found) in self.everywhere_over(wire, &library_there(), &mut attempts).await? {
            if !is_there(&found?) {
                self.load(wire, Place::Node(&node), &mut attempts).await?;
            }
        }
        Ok(())
    }

    /// Puts the library of this build on a server.
    ///
    /// Only when it isn't there: loading is refused at the memory limit, where commits must go on.
    async fn load(&self, wire: &Wire, place: Place<'_>, attempts: &mut Attempts) -> Result<(), StoreError> {
        let there = library_there();
        let found = self
            .send(wire, RoundTrip::One(&there), place, Again::Yes, attempts)
            .await
            .map_err(|error| self.failed(&error))?;
        if found.iter().any(is_there) {
            return Ok(());
        }
        let mut load = redis::cmd("FUNCTION");
        load.arg("LOAD").arg("REPLACE").arg(&LIBRARY.code);
        self.send(wire, RoundTrip::One(&load), place, Again::Yes, attempts)
            .await
            .map(drop)
            .map_err(|error| self.failed(&error))
    }

    async fn send(
        &self,
        wire: &Wire,
        asked: RoundTrip<'_>,
        place: Place<'_>,
        again: Again,
        attempts: &mut Attempts,
    ) -> Result<Vec<Value>, RedisError> {
        loop {
            self.barrier.pass().await?;
            let answers = match again {
                Again::Yes => attempts.run(self.ask_twice(wire, asked, place)).await,
                // Whether the connection lasts is found out by a question that can be asked again.
                Again::No => {
                    match attempts.run(self.ask_twice(wire, RoundTrip::One(&redis::cmd("PING")), place)).await {
                        Ok(_) => {
                            attempts.has_whole_time();
                            attempts.run(wire.ask(asked, place)).await
                        }
                        gone => gone,
                    }
                }
            };
            let Err(error) = &answers else { return answers };
            self.barrier.note(error);
            let lost = || self.can_fail_over && !error.is_timeout() && (is_cut(error) || error.is_io_error());
            let helps = passes(error) || again == Again::Yes && lost();
            if !helps || !attempts.pause(error).await {
                return answers;
            }
        }
    }

    /// [`Wire::ask_twice`], which passes the barrier between the two.
    async fn ask_twice(&self, wire: &Wire, asked: RoundTrip<'_>, place: Place<'_>) -> Result<Vec<Value>, RedisError> {
        let check = async |error: &RedisError| {
            self.barrier.note(error);
            self.barrier.pass().await
        };
        wire.ask_twice(asked, place, check).await
    }

    fn failed(&self, error: &RedisError) -> StoreError {
        classify(&self.store, self.is_cluster, error)
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

    #[tokio::test(start_paused = true)]
    async fn a_server_that_is_silent_is_told_in_time() {
        // The system takes its connections; nobody reads them.
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("redis://{}", silent.local_addr().unwrap());
        let pool = Pool::new(&RedisOptions::new(url)).unwrap();
        let start = tokio::time::Instant::now();
        for again in [Again::Yes, Again::No] {
            let error = pool.run(redis::cmd("GET").arg("x"), again).await.unwrap_err();
            assert!(matches!(error, StoreError::Unavailable { .. }), "{error}");
        }
        assert!(start.elapsed().as_secs() <= 11, "{:?}", start.elapsed());
    }
}
