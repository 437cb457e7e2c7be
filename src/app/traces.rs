//! Traces: the queue of spans, and the client that sends them.

use super::AppError;
use crate::config::Config;
use crate::process::clock::Clock;
use crate::process::telemetry::Metrics;
use crate::process::tracer::otlp::TracedService;
use crate::process::tracer::{TraceSpan, Tracer};
use crate::venue::outbound::proxy::ProxyRoute;
use crate::venue::outbound::trace_sender::{CollectorSettings, TraceSender};
use reqwest::Url;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use std::sync::Arc;
use tokio::sync::mpsc::Receiver;

/// Most headers of a request to the collector.
const HEADERS: usize = 32;

/// Reason why the collector of traces can't be called.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TracesProblem {
    /// The environment has no headers.
    #[error(
        "`telemetry.otlp.headers_env`: the environment variable `{variable}` isn't set; set it, or empty the setting"
    )]
    NoHeaders {
        /// Name of the variable.
        variable: String,
    },
    /// The variable has another text. The error doesn't show it: it may be a credential.
    #[error(
        "`telemetry.otlp.headers_env`: expected `name=value` with commas between in `{variable}`, at most {HEADERS}; part \
         {part} is none"
    )]
    Header {
        /// Name of the variable.
        variable: String,
        /// Number of the part, from 1.
        part: usize,
    },
    /// No client can be made.
    #[error("`telemetry.otlp.endpoint`: {reason}")]
    Client {
        /// Text of the library.
        reason: String,
    },
}

/// Spans on their way out, and what sends them.
pub(super) struct TraceOutlet {
    pub(super) queue: Receiver<TraceSpan>,
    pub(super) sender: TraceSender,
}

/// Opens traces for a process with this name; off if the configuration names no collector.
pub(super) fn open(
    config: &Config,
    process: String,
    clock: &Clock,
    metrics: &Arc<Metrics>,
) -> Result<(Tracer, Option<TraceOutlet>), AppError> {
    let given = &config.telemetry;
    let Some(endpoint) = &given.endpoint else { return Ok((Tracer::default(), None)) };
    let failed = |reason: String| AppError::Traces(TracesProblem::Client { reason });
    let url = Url::parse(&format!("{endpoint}/v1/traces")).map_err(|error| failed(error.to_string()))?;
    let settings = CollectorSettings {
        url,
        headers: headers(&given.headers_env).map_err(AppError::Traces)?,
        timeout: given.timeout,
        proxy: ProxyRoute::new(&config.http_client.proxy, "http_client.proxy"),
        service: TracedService { name: given.service.clone(), instance: process, version: env!("CARGO_PKG_VERSION") },
    };
    let sender = TraceSender::new(settings, Arc::clone(metrics)).map_err(|error| failed(error.to_string()))?;
    let (tracer, queue) = Tracer::open(given.percent, clock.clone(), Arc::clone(metrics));
    Ok((tracer, Some(TraceOutlet { queue, sender })))
}

/// Reads the headers that an environment variable has.
fn headers(variable: &str) -> Result<HeaderMap, TracesProblem> {
    if variable.is_empty() {
        return Ok(HeaderMap::new());
    }
    let text = std::env::var(variable).map_err(|_| TracesProblem::NoHeaders { variable: variable.to_owned() })?;
    parse_headers(&text).map_err(|part| TracesProblem::Header { variable: variable.to_owned(), part })
}

/// Parses headers; fails with the number of the first part that is none.
fn parse_headers(text: &str) -> Result<HeaderMap, usize> {
    let mut headers = HeaderMap::new();
    for (at, part) in text.split(',').enumerate() {
        let header = part.split_once('=').and_then(|(name, value)| {
            let name = HeaderName::from_bytes(name.trim().as_bytes()).ok()?;
            let mut value = HeaderValue::from_str(value.trim()).ok()?;
            value.set_sensitive(true);
            Some((name, value))
        });
        let (name, value) = header.filter(|_| at < HEADERS).ok_or(at + 1)?;
        headers.insert(name, value);
    }
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_of_the_collector_are_read_by_parts() {
        let read = parse_headers("authorization=Bearer a=b, x-tenant = acme").unwrap();
        assert_eq!(
            (&read["authorization"], &read["x-tenant"]),
            (&"Bearer a=b".parse().unwrap(), &"acme".parse().unwrap())
        );
        for (text, part) in [("", 1), ("a=b,c", 2), ("a b=c", 1), ("a=b\nc", 1), (&"a=b,".repeat(40), 33)] {
            assert_eq!(parse_headers(text).unwrap_err(), part, "{text}");
        }
    }
}
