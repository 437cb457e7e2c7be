//! Reads for operators: messages in transit, stuck messages, settings of the server.

use super::super::{BusError, error_chain, subject};
use super::inbound::InboundStream;
use super::{NatsBus, claim_due, monitor, streams};
use crate::domain::limits::SUBMISSION_BYTES;
use crate::store::BackendSetting;
use async_nats::jetstream::stream::Info;
use std::time::Duration;

/// Most messages listed; an audit of a longer queue waits until it is shorter.
const MAX_LISTED: usize = 10_000;

/// Time between two searches for stuck messages, which cost space only and are few.
const JANITOR_EVERY: Duration = Duration::from_mins(10);

/// Least `max_payload` of a server, in bytes: the longest submission, its seal and its headers.
const LEAST_PAYLOAD: usize = SUBMISSION_BYTES + 100_000;

impl NatsBus {
    /// Implements [`super::Bus::in_transit`]: reads every stored message above the acknowledged ones. Messages without
    /// an id aren't listed.
    pub(super) async fn list_unacknowledged(&self) -> Result<Vec<String>, BusError> {
        let line = self.working_line().await?;
        let mut ids = Vec::new();
        let mut left = MAX_LISTED;
        for inbound in line.inbound().iter() {
            let mut next = self.ack_floor(inbound).await? + 1;
            let filter = inbound.filter(self.prefix());
            while let Some(message) = self.read_stored(inbound, next, &filter).await? {
                if left == 0 {
                    let bus = &self.name;
                    tracing::warn!(
                        "NATS at `{bus}`: more than {MAX_LISTED} messages in transit, only these are listed"
                    );
                    return Ok(ids);
                }
                left -= 1;
                ids.extend(message.id());
                next = message.sequence + 1;
            }
        }
        Ok(ids)
    }

    pub(super) async fn ack_floor(&self, inbound: &InboundStream) -> Result<u64, BusError> {
        let info = inbound.consumer.get_info().await.map_err(|error| self.unavailable(&error))?;
        Ok(info.ack_floor.stream_sequence)
    }

    /// Removes messages that are acknowledged and still stored, and returns how many. A killed server can leave such
    /// messages, which count against the stream's size limit.
    pub async fn remove_stuck(&self) -> Result<u64, BusError> {
        let line = self.working_line().await?;
        let mut purged = 0;
        for inbound in line.inbound().iter() {
            let floor = self.ack_floor(inbound).await?;
            let stream = inbound.stream.get_info().await.map_err(|error| self.unavailable(&error))?;
            if stream.state.messages == 0 || stream.state.first_sequence > floor {
                continue;
            }
            let purge = inbound.stream.purge().sequence(floor + 1).filter(inbound.filter(self.prefix()));
            purged += purge.await.map_err(|error| self.unavailable(&error))?.purged;
        }
        Ok(purged)
    }

    /// Runs [`NatsBus::remove_stuck`] if it is due.
    pub(super) async fn clean_when_due(&self) {
        if !claim_due(&self.janitor_due, JANITOR_EVERY) {
            return;
        }
        match self.remove_stuck().await {
            Ok(0) => {}
            Ok(n) => {
                tracing::info!("NATS at `{}`: removed {n} acknowledged messages that were still stored", self.name);
            }
            Err(error) => tracing::debug!("looking for stuck messages: {error}"),
        }
    }

    /// Returns the setting of the queue of jobs for external workers.
    async fn jobs_setting(&self) -> BackendSetting {
        let name = format!("nats jobs for external workers ({})", streams::jobs_name(self.prefix()));
        let stream = match self.last_line().context.get_stream(streams::jobs_name(self.prefix())).await {
            Ok(stream) => stream,
            Err(error) => {
                let problem = if streams::is_missing(&error) {
                    "jobs for external workers fail with `QUEUE_UNAVAILABLE`; a worker makes the stream when it starts"
                } else {
                    "it can't be asked, and jobs for external workers wait: most of the servers that have it must be up"
                };
                return BackendSetting { name, value: error_chain(&error), problem: Some(problem.to_owned()) };
            }
        };
        let info = stream.cached_info();
        let (state, limit) = (&info.state, u64::try_from(info.config.max_bytes).unwrap_or(u64::MAX));
        let value = format!(
            "{} waiting or being done, {} consumers, {} of {limit} bytes",
            state.messages, state.consumer_count, state.bytes
        );
        let problem = if state.bytes > limit / 10 * 9 {
            Some("nearly full, then jobs wait in the outbox; add external workers or raise `bus.max_bytes`")
        } else if state.messages > 0 && state.consumer_count == 0 {
            Some("nobody takes them: start external workers")
        } else {
            None
        };
        BackendSetting { name, value, problem: problem.map(str::to_owned) }
    }

    /// Implements [`super::Bus::settings`] by the server's answers.
    pub(super) async fn server_settings(&self) -> Result<Vec<BackendSetting>, BusError> {
        let line = self.working_line().await?;
        let server = line.client.server_info();
        let account = line.context.query_account().await.map_err(|error| self.unavailable(&error))?;
        let tested = line.client.is_server_compatible(2, 15, 0);
        let mut all = vec![
            setting(
                "version",
                server.version.clone(),
                (!tested).then_some("older than what is tested; 2.15 or newer is recommended"),
            ),
            setting("jetstream", format!("on, {} streams, {} bytes on disk", account.streams, account.storage), None),
            setting(
                "max_payload",
                format!("{} bytes; a completion with a larger output names its job", server.max_payload),
                (server.max_payload < LEAST_PAYLOAD).then_some(
                    "a task may have 900000 bytes, and one that doesn't fit is never delivered: set `max_payload: 1MB`",
                ),
            ),
        ];
        let inbound = match line.context.get_stream(streams::inbound_name(self.prefix(), None)).await {
            Ok(inbound) => Some(inbound),
            Err(error) if streams::is_missing(&error) => None,
            Err(error) => return Err(self.unavailable(&error)),
        };
        let replicas = inbound.as_ref().map_or(self.options.replicas, |found| found.cached_info().config.num_replicas);
        all.push(monitor::sync_setting(self.options.monitor.as_deref(), replicas, &server.server_id).await);
        all.extend(self.stream_settings().await?);
        if let Some(inbound) = inbound {
            all.extend(self.inbound_settings(inbound.cached_info()).await);
            all.push(self.jobs_setting().await);
        }
        Ok(all)
    }

    async fn inbound_settings(&self, inbound: &Info) -> Vec<BackendSetting> {
        let (config, state) = (&inbound.config, &inbound.state);
        let limit = u64::try_from(config.max_bytes).unwrap_or(u64::MAX);
        let full = config.max_bytes > 0 && state.bytes > limit / 10 * 9;
        let there = &config.subjects;
        let is_wrong =
            subject::merge_subjects(self.prefix(), &subject::inbound_patterns(self.prefix(), None), there) != *there;
        let mut all = Vec::from_iter(self.owner_setting(config));
        all.extend([
            setting(
                "inbound subjects",
                config.subjects.join(", "),
                is_wrong.then_some(
                    "the stream takes subjects that mean nothing, so that a misspelt one is acknowledged; a worker sets them when it starts and may update streams (`nats stream edit --subjects`)",
                ),
            ),
            setting(
                "stream size",
                format!("{} of {} bytes", state.bytes, config.max_bytes),
                full.then_some("nearly full, then submissions are refused; raise `bus.max_bytes` or add workers"),
            ),
            setting("completions kept", format!("in {}", streams::outbound_name(self.prefix())), None),
        ]);
        let timers = streams::timers_name(self.prefix());
        if let Ok(found) = self.last_line().context.get_stream(&timers).await {
            all.push(setting("timers", format!("{} set (in {timers})", found.cached_info().state.messages), None));
        }
        // A stream that stores any subject would store the probes.
        if !is_wrong {
            all.extend(self.partition_setting().await);
        }
        all.extend(self.replicas(inbound).await);
        all
    }
}

fn setting(name: &str, value: String, problem: Option<&str>) -> BackendSetting {
    BackendSetting { name: format!("nats {name}"), value, problem: problem.map(str::to_owned) }
}
