//! Reports for operators on the settings of streams and consumers, and on the store that they belong to.

use super::differences::{self, Consequence, Difference};
use super::{NatsBus, error_chain, expected, now, ownership, streams};
use crate::bus::BusError;
use crate::store::BackendSetting;
use async_nats::jetstream::consumer::{IntoConsumerConfig, pull};
use async_nats::jetstream::stream::{Config, RetentionPolicy, Stream};

/// Numbers of compared streams and consumers, and rows of those that differ.
#[derive(Default)]
struct Findings {
    streams: usize,
    consumers: usize,
    missing: Vec<String>,
    rows: Vec<BackendSetting>,
    /// Rows of streams that were made again lately.
    made_again: Vec<BackendSetting>,
}

impl NatsBus {
    /// Returns one row if all settings are right, else one for each stream or consumer that differs.
    pub(super) async fn stream_settings(&self) -> Result<Vec<BackendSetting>, BusError> {
        let line = self.working_line().await?;
        let mut findings = Findings::default();
        for (config, consumer) in expected::all_streams(&self.options) {
            match line.context.get_stream(&config.name).await {
                Ok(stream) => {
                    // The stream of live text holds nothing that was accepted.
                    if config.name != streams::live_name(self.prefix()) {
                        let looked = self.creations.check(&self.options, &line.context, &stream, now()).await;
                        findings.made_again.extend(looked);
                    }
                    findings.compare(self.prefix(), &stream, &config, consumer).await;
                }
                Err(error) if streams::is_missing(&error) => findings.missing.push(format!("stream `{}`", config.name)),
                Err(error) => findings.rows.push(row(
                    &format!("settings of {}", config.name),
                    error_chain(&error),
                    Some("it can't be asked: most of the servers that have it must be up".to_owned()),
                )),
            }
        }
        Ok(findings.into_rows())
    }

    /// Returns the row of the store that the queue belongs to, if its inbound stream names one.
    pub(super) fn owner_setting(&self, inbound: &Config) -> Option<BackendSetting> {
        let owner = ownership::owner_of(inbound)?;
        let problem = match &self.options.owner {
            Some(own) if own.store == owner.store => None,
            Some(own) => {
                Some(format!("no process starts on it: this one has {own}; set `store.url`, or another `bus.prefix`"))
            }
            None => Some(
                "no process starts on it: the store that is set is a new one; set `store.url`, or another `bus.prefix`"
                    .to_owned(),
            ),
        };
        Some(row("owner", owner.to_string(), problem))
    }
}

impl Findings {
    async fn compare(&mut self, prefix: &str, stream: &Stream, expected: &Config, consumer: Option<pull::Config>) {
        let name = &expected.name;
        self.streams += 1;
        let found = differences::compare_streams(prefix, &stream.cached_info().config, expected);
        self.rows.extend(difference_rows(name, &found));
        let Some(consumer) = consumer else { return };
        let own = consumer.durable_name.clone().unwrap_or_default();
        let what = format!("{name}, consumer `{own}`");
        match streams::find_consumer_config(stream, &own).await {
            Ok(Some(found)) => {
                self.consumers += 1;
                self.rows.extend(difference_rows(
                    &what,
                    &differences::compare_consumers(&found, &consumer.into_consumer_config()),
                ));
            }
            Ok(None) => self.missing.push(format!("consumer `{own}` of stream `{name}`")),
            Err(error) => {
                let problem = "it can't be asked: most of the servers that have it must be up".to_owned();
                self.rows.push(row(&format!("settings of {what}"), error_chain(&error), Some(problem)));
            }
        }
        if expected.retention == RetentionPolicy::WorkQueue {
            for other in streams::foreign_consumers(stream, &own).await {
                let problem = format!(
                    "it takes messages that no worker gets then, and no worker starts: delete it (`nats consumer rm {name} {other}`)"
                );
                self.rows.push(row(&format!("settings of {name}"), format!("consumer `{other}`"), Some(problem)));
            }
        }
    }

    fn into_rows(self) -> Vec<BackendSetting> {
        let Self { streams, consumers, missing, mut rows, made_again } = self;
        if streams == 0 && rows.is_empty() {
            return vec![row("streams", "none yet, a worker that starts makes them".to_owned(), None)];
        }
        if !missing.is_empty() {
            let problem = "gone, with what was in it; a worker makes it again".to_owned();
            rows.push(row("streams", format!("missing: {}", missing.join(", ")), Some(problem)));
        } else if rows.is_empty() {
            let value = format!("{streams} streams and {consumers} consumers are as they must be");
            rows.push(row("streams", value, None));
        }
        rows.extend(made_again);
        rows
    }
}

fn row(name: &str, value: String, problem: Option<String>) -> BackendSetting {
    BackendSetting { name: format!("nats {name}"), value, problem }
}

/// Returns rows of differences: one for those that lose or stop something, one for the rest.
fn difference_rows(what: &str, found: &[Difference]) -> Vec<BackendSetting> {
    let is_grave = |one: &&Difference| matches!(one.consequence, Consequence::Repaired(_) | Consequence::Fatal(_));
    let (grave, light): (Vec<_>, Vec<_>) = found.iter().partition(is_grave);
    let said = |some: &[&Difference]| some.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
    let mut rows = Vec::new();
    if !grave.is_empty() {
        let stops = grave.iter().any(|one| !one.is_repaired());
        let problem = if stops {
            "no worker starts: change it back, or empty it, delete it and let a worker make it anew"
        } else {
            "somebody changed it; a worker puts it right when it starts, and within a minute where one runs"
        };
        rows.push(row(&format!("settings of {what}"), said(&grave), Some(problem.to_owned())));
    }
    if !light.is_empty() {
        let problem = "a worker that starts sets what the configuration says".to_owned();
        rows.push(row(&format!("options of {what}"), said(&light), Some(problem)));
    }
    rows
}
