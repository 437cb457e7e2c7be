//! `bench readers`: measures small requests of many owners over HTTP while one owner reads large values.

use super::{BenchError, Percentiles, user};
use crate::domain::ids::Owner;
use crate::domain::lattice::Path;
use crate::domain::lattice::layout::Scope;
use crate::http::{self, HttpOptions};
use crate::venue::Venue;
use crate::venue::workspace::{Workspace, WriteOp};
use serde::Serialize;
use serde_json::{Value, json};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Items of one entry of the large value, about a hundred bytes each.
const ITEMS: usize = 2_000;
/// Pause of a reader after a refusal, as the answer asks for.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// Longest body in bytes that the server accepts.
const BODY_LIMIT: usize = 1 << 20;

/// Load of `bench readers`.
#[derive(Debug, Clone, Copy)]
pub struct ReadersLoad {
    /// Concurrent requests of the one owner.
    pub readers: usize,
    /// Approximate size in bytes of the value that it reads.
    pub bytes: usize,
    /// Other owners, each with one small request at a time.
    pub owners: usize,
    /// Time that is measured, once without the one owner and once beside it.
    pub time: Duration,
}

/// Result of `bench readers`.
#[derive(Debug, Clone, Serialize)]
pub struct ReadersReport {
    /// Small requests while nobody else sends any.
    pub alone: Percentiles,
    /// Small requests while one owner reads large values.
    pub beside: Percentiles,
    /// Ratio of the 99th percentiles, `beside` to `alone`.
    pub p99_ratio: f64,
    /// Large reads per second meanwhile.
    pub large_reads_per_second: f64,
    /// Large reads that were refused, because their owner had used its share.
    pub large_reads_refused: u32,
}

/// Measures small requests alone, and beside the large reads of one owner.
pub async fn readers(venue: &Arc<Venue>, owner: &Owner, crowd: ReadersLoad) -> Result<ReadersReport, BenchError> {
    let stuck = |what: &str, error: io::Error| BenchError::TimedOut(format!("{what}: {error}"));
    let one = user(owner, "greedy");
    write_values(venue, &one, crowd.bytes).await?;
    let others: Vec<_> = (0..crowd.owners).map(|n| user(owner, &format!("small-{n}"))).collect();
    for other in &others {
        write(venue, other, "w/small", json!({"n": 1})).await?;
    }
    let listener = TcpListener::bind("127.0.0.1:0").await.map_err(|e| stuck("no port", e))?;
    let address = listener.local_addr().map_err(|e| stuck("no port", e))?;
    let end = CancellationToken::new();
    let options = HttpOptions::new(format!("http://{address}"), BODY_LIMIT);
    let serving = tokio::spawn(http::serve(listener, Arc::clone(venue), options, end.clone().cancelled_owned()));
    let small = |others: Vec<Owner>| run_on_own_thread(move || measure_small_reads(address, others, crowd.time));
    let measured = async {
        let alone = small(others.clone()).await?;
        let before = Instant::now();
        let reading = run_on_own_thread(move || read_large(address, one, crowd));
        let (beside, large) = tokio::try_join!(small(others), reading)?;
        Ok::<_, io::Error>((alone, beside, large, before.elapsed()))
    };
    let (alone, beside, large, took) = measured.await.map_err(|e| stuck("a request failed", e))?;
    end.cancel();
    serving.await.map_err(|e| BenchError::TimedOut(e.to_string()))?;
    let (alone, beside) = (Percentiles::from_times(alone), Percentiles::from_times(beside));
    let p99_ratio = beside.p99_ms / alone.p99_ms;
    let (served, large_reads_refused) = large;
    let large_reads_per_second = f64::from(served) / took.as_secs_f64();
    Ok(ReadersReport { alone, beside, p99_ratio, large_reads_per_second, large_reads_refused })
}

async fn write(venue: &Venue, owner: &Owner, path: &str, value: Value) -> Result<(), BenchError> {
    let tree = Workspace::new(Arc::clone(&venue.store), owner.clone(), Scope::default());
    let path = Path::parse(path).map_err(|e| BenchError::TimedOut(e.to_string()))?;
    let written = tree.apply_now(venue.now(), &WriteOp::Write { path, value, expect: None }).await;
    written.map(drop).map_err(|e| BenchError::TimedOut(e.to_string()))
}

/// Writes a map of about so many bytes, in entries that are written one by one.
async fn write_values(venue: &Venue, owner: &Owner, bytes: usize) -> Result<(), BenchError> {
    let entry: Vec<_> = (0..ITEMS).map(|n| json!({"n": n, "text": "x".repeat(80)})).collect();
    let size = json!(entry).to_string().len();
    for n in 0..bytes.div_ceil(size) {
        write(venue, owner, &format!("w/large/{n}"), json!(entry)).await?;
    }
    Ok(())
}

/// Runs clients on a thread of their own, so that they don't wait for the server's threads.
async fn run_on_own_thread<T: Send + 'static, F: Future<Output = io::Result<T>>>(
    clients: impl FnOnce() -> F + Send + 'static,
) -> io::Result<T> {
    let run = move || tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(clients());
    tokio::task::spawn_blocking(run).await.map_err(io::Error::other)?
}

/// Sends small reads for all these owners during `time`. Returns how long each took.
async fn measure_small_reads(address: SocketAddr, owners: Vec<Owner>, time: Duration) -> io::Result<Vec<Duration>> {
    let (until, mut clients) = (Instant::now() + time, JoinSet::new());
    for owner in owners {
        clients.spawn(async move {
            let mut times = Vec::new();
            while Instant::now() < until {
                let before = Instant::now();
                if !read(address, &owner, "w/small").await? {
                    return Err(io::Error::other("a small request was refused"));
                }
                times.push(before.elapsed());
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            Ok::<_, io::Error>(times)
        });
    }
    let mut all = Vec::new();
    while let Some(times) = clients.join_next().await {
        all.extend(times.map_err(io::Error::other)??);
    }
    Ok(all)
}

/// Sends large reads for one owner while the others are measured. Returns how many were served, and refused.
async fn read_large(address: SocketAddr, owner: Owner, crowd: ReadersLoad) -> io::Result<(u32, u32)> {
    let (until, mut clients) = (Instant::now() + crowd.time, JoinSet::new());
    for _ in 0..crowd.readers {
        let owner = owner.clone();
        clients.spawn(async move {
            let (mut served, mut refused) = (0, 0);
            while Instant::now() < until {
                if read(address, &owner, "w/large").await? {
                    served += 1;
                } else {
                    refused += 1;
                    tokio::time::sleep(RETRY_AFTER).await;
                }
            }
            Ok::<_, io::Error>((served, refused))
        });
    }
    let mut all = (0, 0);
    while let Some(count) = clients.join_next().await {
        let (served, refused) = count.map_err(io::Error::other)??;
        all = (all.0 + served, all.1 + refused);
    }
    Ok(all)
}

/// Reads and drops a value; `false` if the request is refused because its owner has used its share.
async fn read(address: SocketAddr, owner: &Owner, path: &str) -> io::Result<bool> {
    let body = json!({"operation": "v/ops/lattice/read", "input": {"path": path, "maxSize": 1 << 24}}).to_string();
    let size = body.len();
    let request = format!(
        "POST /api/v1/run HTTP/1.1\r\nhost: {address}\r\nx-trellis-owner: {owner}\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {size}\r\n\r\n{body}"
    );
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(request.as_bytes()).await?;
    let mut buffer = vec![0; 256 * 1024];
    let count = stream.read(&mut buffer).await?;
    let answer = &buffer[..count];
    if [b"HTTP/1.1 429", b"HTTP/1.1 503"].iter().any(|refused| answer.starts_with(*refused)) {
        return Ok(false);
    }
    if !answer.starts_with(b"HTTP/1.1 200") {
        let said = String::from_utf8_lossy(&answer[..count.min(500)]).into_owned();
        return Err(io::Error::other(format!("expected status 200, got: {said}")));
    }
    while stream.read(&mut buffer).await? > 0 {}
    Ok(true)
}
