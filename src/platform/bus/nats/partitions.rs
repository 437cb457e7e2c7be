//! Streams of messages to agents, each with the consumer that all workers share: the one for everything, or beside it
//! those over which owners are spread (`bus.partitions`). A server's mapping spreads what others publish; what it
//! doesn't spread is in the first one, and is received all the same.

use super::super::{BusError, error_chain, subject};
use super::inbound::partition_streams;
use super::{NatsBus, streams};
use crate::domain::message::MessageAddress;
use crate::store::BackendSetting;
use futures::StreamExt;
use std::collections::BTreeSet;
use std::time::Duration;

/// Longest wait for a probe to come back.
const PROBE: Duration = Duration::from_secs(2);

/// Number of probes, each of another owner, so that few partitions get none.
const PROBES: usize = 64;

/// Kind of the probes, which no stream stores.
const PROBE_KIND: &str = "probe";

/// What the server does with a message that others publish.
#[derive(Debug, PartialEq, Eq)]
enum ServerMapping {
    /// It keeps the subject.
    None,
    /// It maps the subject as Trellis does.
    Same,
    /// It maps to other subjects, such as this one.
    Other(String),
    /// No probe came back: this user may not publish or listen there.
    Unknown(String),
}

impl NatsBus {
    /// Returns the subject for an address, spread over partitions if there are some.
    pub(super) fn subject(&self, to: &MessageAddress) -> String {
        match (to, self.options.partitions) {
            (MessageAddress::In { owner, agent, kind }, partitions @ 2..) => {
                subject::partition_subject(self.prefix(), partitions, owner, agent, *kind)
            }
            (to, _) => subject::for_address(self.prefix(), to),
        }
    }

    /// Returns a setting if messages are spread or a mapping exists.
    pub(super) async fn partition_setting(&self) -> Option<BackendSetting> {
        let wanted = self.options.partitions;
        let there = self.last_line().inbound().iter().filter(|inbound| inbound.part.is_some()).count();
        let mapping = match self.probe_mapping().await {
            Ok(mapping) => mapping,
            Err(error) => ServerMapping::Unknown(error_chain(&error)),
        };
        if wanted == 1 && there == 0 && !matches!(mapping, ServerMapping::Other(_)) {
            return None;
        }
        Some(setting(self.prefix(), wanted, there, &mapping))
    }

    /// Publishes probes of some owners, and compares the subjects on which they arrive.
    async fn probe_mapping(&self) -> Result<ServerMapping, BusError> {
        let prefix = self.prefix();
        let client = self.working_line().await?.client.clone();
        // A unique name: several doctors may probe at the same time.
        let name = client.new_inbox().replace('.', "-");
        let mut mapped = self.subscribe_confirmed(format!("{prefix}.part.*.*.*.{name}.{PROBE_KIND}")).await?;
        let mut plain = self.subscribe_confirmed(format!("{prefix}.in.*.*.{name}.{PROBE_KIND}")).await?;
        // With one partition there is no expected place, and any probe shows whether there is a mapping.
        let probes = if self.options.partitions == 1 { 1 } else { PROBES };
        for n in 0..probes {
            let probe = format!("{prefix}.in.t{n}.u{n}.{name}.{PROBE_KIND}");
            client.publish(probe, bytes::Bytes::new()).await.map_err(|error| self.unavailable(&error))?;
        }
        let expected = |n| {
            let part = subject::partition_of(self.options.partitions, &format!("t{n}"), &format!("u{n}"));
            format!("{prefix}.part.{part}.t{n}.u{n}.{name}.{PROBE_KIND}")
        };
        let expected: BTreeSet<String> = (0..probes).filter(|_| self.options.partitions > 1).map(expected).collect();
        let came = async {
            for _ in 0..probes {
                tokio::select! {
                    Some(probe) = mapped.next() => {
                        if !expected.contains(probe.subject.as_str()) {
                            return ServerMapping::Other(probe.subject.replace(&name, "x"));
                        }
                    }
                    Some(_) = plain.next() => return ServerMapping::None,
                    else => break,
                }
            }
            ServerMapping::Same
        };
        let silence = |_| ServerMapping::Unknown("no probe came back".to_owned());
        Ok(tokio::time::timeout(PROBE, came).await.unwrap_or_else(silence))
    }
}

/// Returns the setting for the configured number of partitions and the number of existing streams.
fn setting(prefix: &str, wanted: usize, there: usize, mapping: &ServerMapping) -> BackendSetting {
    let by_server = match mapping {
        ServerMapping::None => "the server spreads nothing".to_owned(),
        ServerMapping::Same => "the server spreads as Trellis does".to_owned(),
        ServerMapping::Other(subject) => format!("the server spreads otherwise, e.g. to `{subject}`"),
        ServerMapping::Unknown(reason) => format!("whether the server spreads is unknown: {reason}"),
    };
    let is_more = there > partition_streams(wanted);
    let problem = match mapping {
        ServerMapping::Other(_) if wanted == 1 => Some(
            "it has a mapping, and `bus.partitions` is 1: what has no stream is refused; take the mapping away"
                .to_owned(),
        ),
        ServerMapping::Other(_) => Some(format!(
            "what goes elsewhere than Trellis puts it has no stream, or another owner's place: its mapping shall be `{}`",
            subject::server_mapping(prefix, wanted)
        )),
        _ if is_more => Some(format!(
            "`{}` is only emptied, as `bus.partitions` is lower than it was: delete it when it is empty, the last one first",
            streams::inbound_name(prefix, Some(there - 1))
        )),
        ServerMapping::None => Some(format!(
            "what others publish goes through `{}` alone: put `{}` into the server's configuration, for the account of \
             Trellis, and give users who may publish to `{prefix}.in.…` the same behind `{prefix}.part.*.`",
            streams::inbound_name(prefix, None),
            subject::server_mapping(prefix, wanted)
        )),
        ServerMapping::Same | ServerMapping::Unknown(_) => None,
    };
    let value = format!("{there} streams beside `{}`; {by_server}", streams::inbound_name(prefix, None));
    BackendSetting { name: "nats partitions".to_owned(), value, problem }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_partition_settings_are_named() {
        let other = || ServerMapping::Other("p.part.7.t1.u1.x.probe".to_owned());
        for (wanted, there, mapping, value, problem) in [
            (4, 4, ServerMapping::Same, "the server spreads as Trellis does", ""),
            (2, 2, other(), "the server spreads otherwise, e.g. to `p.part.7.t1.u1.x.probe`", "{{partition(2,1,2)}}"),
            (1, 0, other(), "the server spreads otherwise, e.g. to `p.part.7.t1.u1.x.probe`", "take the mapping away"),
            (2, 3, ServerMapping::Same, "the server spreads as Trellis does", "`P_PART_2` is only emptied"),
            (1, 2, ServerMapping::None, "the server spreads nothing", "`P_PART_1` is only emptied"),
            (2, 2, ServerMapping::None, "the server spreads nothing", "{{partition(2,1,2)}}"),
            (2, 2, ServerMapping::Unknown("x".into()), "whether the server spreads is unknown: x", ""),
        ] {
            let setting = setting("p", wanted, there, &mapping);
            let said = setting.problem.unwrap_or_default();
            assert_eq!(setting.value, format!("{there} streams beside `P`; {value}"));
            assert!(said.contains(problem) && said.is_empty() == problem.is_empty(), "{value}: {said}");
        }
    }
}
