//! A worker as a service of NATS (ADR-32): `nats micro ls`, `info` and `stats` show the workers of a fleet.

use super::NatsBus;
use super::line::NatsLine;
use async_nats::service::error::Error as ServiceError;
use async_nats::service::{Service, ServiceExt};
use bytes::Bytes;
use futures::StreamExt;
use serde::Serialize;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Pause after which a service that ended with its connection is registered again.
const RESTART_PAUSE: Duration = Duration::from_secs(1);

/// What a worker tells about itself.
#[derive(Debug, Clone)]
pub struct ServiceDescription {
    /// Version of the build, as in semantic versioning.
    pub version: String,
    /// Name of the worker, as in the list of workers.
    pub worker: String,
    /// Number of its slots.
    pub slots: usize,
}

/// The answer of the endpoint `status`, as JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ServiceStatus {
    /// Number of the worker's slots.
    pub slots: u64,
    /// Number of its slots in which a session runs.
    pub busy: u64,
}

/// Returns the present state of the worker.
pub type ServiceStatusSource = Arc<dyn Fn() -> ServiceStatus + Send + Sync>;

impl NatsBus {
    /// Serves `$SRV.PING|INFO|STATS` and the endpoint `<prefix>.srv.status` until `end`. Without the right to subscribe
    /// to `$SRV.>` the server refuses it: the driver logs that, and nothing else is affected.
    pub async fn serve_description(
        &self,
        about: ServiceDescription,
        status: ServiceStatusSource,
        end: CancellationToken,
    ) {
        while !end.is_cancelled() {
            let Ok(line) = self.working_line().await else {
                end.run_until_cancelled(tokio::time::sleep(RESTART_PAUSE)).await;
                continue;
            };
            tokio::select! {
                biased;
                () = end.cancelled() => return,
                served = self.serve_on(&line, &about, &status) => {
                    if let Err(error) = served {
                        tracing::warn!(%error, "this worker isn't shown as a service of NATS; it is tried again");
                    }
                }
            }
            end.run_until_cancelled(tokio::time::sleep(RESTART_PAUSE)).await;
        }
    }

    /// Serves on one connection until that ends for good; the driver subscribes again after reconnecting.
    async fn serve_on(
        &self,
        line: &NatsLine,
        about: &ServiceDescription,
        status: &ServiceStatusSource,
    ) -> Result<(), async_nats::Error> {
        let started = line.client.service_builder().description("a worker of Trellis").metadata(HashMap::from([
            ("worker".to_owned(), about.worker.clone()),
            ("build".to_owned(), about.version.clone()),
            ("slots".to_owned(), about.slots.to_string()),
        ]));
        let service = RunningService(Some(started.start(service_name(self.prefix()), &about.version).await?));
        let Some(running) = &service.0 else { return Ok(()) };
        let subject = format!("{}.srv.status", self.prefix());
        let mut requests = running.endpoint_builder().name("status").add(subject).await?;
        while let Some(request) = requests.next().await {
            let answer: Result<Bytes, ServiceError> = Ok(serde_json::to_vec(&status())?.into());
            // A stranger's request may name no place for the answer.
            if let Err(error) = request.respond(answer).await {
                tracing::debug!(%error, "a request for the state of this worker has no answer");
            }
        }
        Ok(())
    }
}

/// A registered service, whose task ends when this is dropped.
struct RunningService(Option<Service>);

impl Drop for RunningService {
    fn drop(&mut self) {
        if let Some(service) = self.0.take() {
            tokio::spawn(service.stop());
        }
    }
}

/// Returns the name of the service of workers: `<prefix>-worker`, in the letters that such a name may have.
fn service_name(prefix: &str) -> String {
    let legal = |c: char| if c.is_ascii_alphanumeric() || c == '_' { c } else { '-' };
    format!("{}-worker", prefix.chars().map(legal).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_service_has_legal_letters() {
        for (prefix, expected) in [("trellis", "trellis-worker"), ("a.b", "a-b-worker"), ("\u{e9}_1", "-_1-worker")] {
            assert_eq!(service_name(prefix), expected);
        }
    }
}
