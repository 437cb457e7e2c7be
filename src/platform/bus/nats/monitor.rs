//! What a server reports only on its monitoring port: how often it syncs its files.

use crate::domain::decode::{self, DataError};
use crate::store::BackendSetting;
use serde::Deserialize;
use std::time::Duration;

/// Longest wait for the server's answer.
const TIMEOUT: Duration = Duration::from_secs(3);

/// Most bytes of the answer that are read.
const ANSWER_BYTES: usize = 1 << 20;

/// Characters of another server's id that are shown.
const SHOWN: usize = 80;

const SYNC_INTERVAL: &str = "nats sync_interval";

/// Value of a setting that the server doesn't report to clients.
const UNKNOWN_VALUE: &str = "not shown to clients";

const ALONE: &str = "with one replica an acknowledged submission survives a power failure only with `sync_interval: always` (config/nats.conf has it)";

/// Reason why the monitoring port doesn't say what is asked.
#[derive(Debug, thiserror::Error)]
enum MonitorError {
    /// The port can't be asked.
    #[error(transparent)]
    Request(#[from] reqwest::Error),
    /// The answer has more bytes than are read.
    #[error("its answer is too long")]
    TooLong,
    /// The answer isn't one of `/jsz`.
    #[error("not what NATS answers: {0}")]
    Foreign(DataError),
}

/// The needed part of the answer of `/jsz`.
#[derive(Debug, Deserialize)]
struct Jsz {
    config: JszConfig,
    /// Id of the server that answers.
    #[serde(default)]
    server_id: String,
}

#[derive(Debug, Deserialize)]
struct JszConfig {
    /// Interval in nanoseconds.
    #[serde(default)]
    sync_interval: u64,
    #[serde(default)]
    sync_always: bool,
}

/// Returns how often the server with this id syncs what it stores, judged for a stream with `replicas`.
pub(super) async fn sync_setting(monitor: Option<&str>, replicas: usize, server: &str) -> BackendSetting {
    let Some(monitor) = monitor else {
        return unknown_setting(
            replicas,
            "the server's monitoring port says it: start it with `-m 8222` and set `bus.monitor`",
        );
    };
    match fetch(monitor).await {
        Ok(found) if found.server_id != server => {
            let other: String = found.server_id.chars().take(SHOWN).collect();
            let why = format!(
                "`{monitor}/jsz` (`bus.monitor`) is of another server, `{}`, and `bus.url` is served by `{server}`: set the \
                 monitoring port of that one",
                other.escape_debug()
            );
            unknown_setting(replicas, &why)
        }
        Ok(found) => check_interval(&found.config, replicas),
        Err(error) => unknown_setting(replicas, &format!("`{monitor}/jsz` (`bus.monitor`) doesn't say it: {error}")),
    }
}

fn unknown_setting(replicas: usize, why: &str) -> BackendSetting {
    let problem = (replicas == 1).then(|| format!("{ALONE}; {why}"));
    BackendSetting { name: SYNC_INTERVAL.to_owned(), value: UNKNOWN_VALUE.to_owned(), problem }
}

fn check_interval(found: &JszConfig, replicas: usize) -> BackendSetting {
    let value = if found.sync_always {
        "always".to_owned()
    } else {
        humantime::format_duration(Duration::from_nanos(found.sync_interval)).to_string()
    };
    let problem = (replicas == 1 && !found.sync_always).then(|| ALONE.to_owned());
    BackendSetting { name: SYNC_INTERVAL.to_owned(), value, problem }
}

async fn fetch(monitor: &str) -> Result<Jsz, MonitorError> {
    let client = reqwest::Client::builder().timeout(TIMEOUT).no_proxy().build()?;
    let mut answer = client.get(format!("{monitor}/jsz")).send().await?;
    let mut body = Vec::new();
    while let Some(piece) = answer.chunk().await? {
        body.extend_from_slice(&piece);
        if body.len() > ANSWER_BYTES {
            return Err(MonitorError::TooLong);
        }
    }
    decode::from_json(&body).map_err(MonitorError::Foreign)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_replica_is_durable_only_with_sync_always() {
        for (answer, replicas, value, fine) in [
            (r#"{"config": {"sync_interval": 120000000000}}"#, 1, "2m", false),
            (r#"{"config": {"sync_interval": 120000000000, "sync_always": true}}"#, 1, "always", true),
            (r#"{"config": {"sync_interval": 120000000000}}"#, 3, "2m", true),
        ] {
            let found: Jsz = decode::from_json(answer.as_bytes()).unwrap();
            let setting = check_interval(&found.config, replicas);
            assert_eq!((setting.value.as_str(), setting.problem.is_none()), (value, fine), "{answer}");
        }
    }
}
