//! Sends the spans of traces to a collector of OpenTelemetry, apart from all work: a collector that is down or hangs costs
//! spans, which are counted, and nothing else.

use super::error_causes;
use super::proxy::ProxyRoute;
use crate::process::telemetry::Metrics;
use crate::process::tracer::TraceSpan;
use crate::process::tracer::otlp::{self, TracedService};
use bytes::Bytes;
use reqwest::header::{CONTENT_TYPE, HeaderMap, RETRY_AFTER};
use reqwest::{Client, StatusCode, Url, redirect};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::mpsc::Receiver;
use tokio_util::sync::CancellationToken;

/// Most spans of one request.
const BATCH: usize = 512;
/// Time for which the first span of a request waits for more.
const GATHER: Duration = Duration::from_secs(1);
/// Attempts of one request.
const ATTEMPTS: u32 = 3;
/// Longest pause between two attempts, whatever the collector asks for.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// Time in which the last spans are sent when the process ends.
const LAST: Duration = Duration::from_secs(2);

/// How the collector is called.
#[derive(Debug, Clone)]
pub struct CollectorSettings {
    /// URL that spans are posted to.
    pub url: Url,
    /// Headers of each request, credentials included.
    pub headers: HeaderMap,
    /// Longest time of one attempt.
    pub timeout: Duration,
    /// Proxy that carries the requests.
    pub proxy: ProxyRoute,
    /// The process that the spans are of.
    pub service: TracedService,
}

/// Why spans weren't taken.
#[derive(Debug, thiserror::Error)]
enum SendFailure {
    #[error("{0}")]
    Connection(String),
    #[error("it answers {0}")]
    Status(StatusCode),
}

/// Client of one collector.
pub struct TraceSender {
    settings: CollectorSettings,
    client: Client,
    metrics: Arc<Metrics>,
    /// Spans of the request that is being sent.
    in_hand: AtomicU64,
    /// Requests that failed since the last that was taken.
    failures: AtomicU64,
}

impl TraceSender {
    /// Makes the client. No connection is opened yet.
    pub fn new(settings: CollectorSettings, metrics: Arc<Metrics>) -> reqwest::Result<Self> {
        let builder = Client::builder()
            .redirect(redirect::Policy::none())
            .timeout(settings.timeout)
            .user_agent(concat!("trellis/", env!("CARGO_PKG_VERSION")));
        let client = if settings.proxy.carries(&settings.url) {
            settings.proxy.configure(builder)?.build()?
        } else {
            builder.no_proxy().build()?
        };
        Ok(Self { settings, client, metrics, in_hand: AtomicU64::new(0), failures: AtomicU64::new(0) })
    }

    /// Sends what is queued until the process ends, and then for 2 seconds at most.
    pub async fn run(self, mut queue: Receiver<TraceSpan>, end: CancellationToken) {
        let deadline = async {
            end.cancelled().await;
            tokio::time::sleep(LAST).await;
        };
        tokio::select! {
            biased;
            () = self.send_all(&mut queue, &end) => {}
            () = deadline => {
                let lost = self.in_hand.load(Ordering::Relaxed) + queue.len() as u64;
                self.metrics.traces.dropped.inc_by(lost);
                tracing::warn!("{lost} spans of traces are lost: the collector didn't take them within {LAST:?}");
            }
        }
    }

    async fn send_all(&self, queue: &mut Receiver<TraceSpan>, end: &CancellationToken) {
        let mut batch = Vec::new();
        loop {
            tokio::select! {
                biased;
                _ = queue.recv_many(&mut batch, BATCH) => {}
                () = end.cancelled() => {}
            }
            if batch.is_empty() {
                return;
            }
            if batch.len() < BATCH {
                tokio::select! {
                    () = tokio::time::sleep(GATHER) => {}
                    () = end.cancelled() => {}
                }
                while batch.len() < BATCH
                    && let Ok(span) = queue.try_recv()
                {
                    batch.push(span);
                }
            }
            let count = batch.len() as u64;
            self.in_hand.store(count, Ordering::Relaxed);
            let body = Bytes::from(otlp::encode(&self.settings.service, batch.drain(..)));
            self.send(&body, count).await;
            self.in_hand.store(0, Ordering::Relaxed);
        }
    }

    /// Sends one request, again after failures that may pass; then its spans are dropped.
    async fn send(&self, body: &Bytes, count: u64) {
        let mut attempt = 1;
        let failure = loop {
            let (failure, pause) = match self.post(body.clone()).await {
                Ok(()) => {
                    let failures = self.failures.swap(0, Ordering::Relaxed);
                    if failures > 0 {
                        tracing::info!("the collector of traces takes spans again, after {failures} lost requests");
                    }
                    return;
                }
                Err(failure) => failure,
            };
            match pause.filter(|_| attempt < ATTEMPTS) {
                Some(pause) => tokio::time::sleep(pause.clamp(GATHER * attempt, LONGEST_PAUSE)).await,
                None => break failure,
            }
            attempt += 1;
        };
        self.metrics.traces.dropped.inc_by(count);
        if self.failures.fetch_add(1, Ordering::Relaxed) == 0 {
            let place = self.settings.url.origin().ascii_serialization();
            tracing::warn!(
                "the collector of traces at {place} takes no spans: {failure}; they are dropped until it does, and \
                 `trellis_trace_spans_dropped_total` counts them"
            );
        }
    }

    /// Posts a body; a failure that may pass has the pause that the collector asks for, or zero.
    async fn post(&self, body: Bytes) -> Result<(), (SendFailure, Option<Duration>)> {
        let request = self
            .client
            .post(self.settings.url.clone())
            .headers(self.settings.headers.clone())
            .header(CONTENT_TYPE, "application/x-protobuf")
            .body(body);
        let response = request.send().await.map_err(|error| {
            let text = error_causes(&error.without_url()).join(": ");
            (SendFailure::Connection(text), Some(Duration::ZERO))
        })?;
        let status = response.status();
        if status.is_success() {
            return Ok(());
        }
        let asked = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
        let may_pass = matches!(
            status,
            StatusCode::TOO_MANY_REQUESTS
                | StatusCode::BAD_GATEWAY
                | StatusCode::SERVICE_UNAVAILABLE
                | StatusCode::GATEWAY_TIMEOUT
        );
        let pause = may_pass.then(|| asked.map_or(Duration::ZERO, Duration::from_secs));
        Err((SendFailure::Status(status), pause))
    }
}
