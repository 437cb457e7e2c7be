//! Streams of messages for agents, each with the consumer that all workers share: the one that everything goes through,
//! or those over which owners are spread (`bus.partitions`) beside it. A server's mapping spreads what others publish;
//! what it doesn't is in the first one, and taken all the same.

use super::super::{BusError, chain, subject};
use super::{NatsBus, streams};
use crate::domain::message::Address;
use crate::store::BackendSetting;
use async_nats::jetstream::consumer::PullConsumer;
use async_nats::jetstream::stream::Stream;
use futures::StreamExt;
use std::collections::BTreeSet;
use std::time::Duration;

/// Places of the stream of all are those of its messages, for which ids were made of them; those of a partition begin
/// so many bits higher.
const PART_BITS: u32 = 56;

/// For a probe to come back.
const PROBE: Duration = Duration::from_secs(2);

/// Of so many owners: few partitions have none of them.
const PROBES: usize = 64;

/// Of no kind that a stream takes: nobody keeps it.
const PROBE_KIND: &str = "probe";

/// One of them.
#[derive(Debug, Clone)]
pub(super) struct Inbound {
    /// `None` = what isn't spread.
    pub(super) part: Option<usize>,
    pub(super) stream: Stream,
    pub(super) consumer: PullConsumer,
}

impl Inbound {
    /// Every subject of its messages.
    pub(super) fn filter(&self, prefix: &str) -> String {
        self.part.map_or_else(|| subject::all_inbound(prefix), |part| subject::all_of_part(prefix, part))
    }

    /// Of a message: no other of any of these streams has it.
    pub(super) fn place(&self, sequence: u64) -> u64 {
        let part = self.part.map_or(0, |part| part as u64 + 1);
        (part << PART_BITS) | sequence
    }

    pub(super) fn name(&self) -> &str {
        &self.stream.cached_info().config.name
    }
}

/// What the server does with a message that others publish.
#[derive(Debug, PartialEq, Eq)]
enum Mapping {
    /// It goes on as it came.
    None,
    /// It is spread, over these and perhaps more.
    Over(BTreeSet<usize>),
    /// Nothing came back: nobody here may publish or listen there.
    Unknown(String),
}

impl NatsBus {
    /// Where a message goes.
    pub(super) fn subject(&self, to: &Address) -> String {
        match (to, self.options.partitions) {
            (Address::In { owner, agent, kind }, partitions @ 2..) => {
                subject::spread(self.prefix(), partitions, owner, agent, *kind)
            }
            (to, _) => subject::subject(self.prefix(), to),
        }
    }

    /// One line where messages are spread, or somebody believes that they are.
    pub(super) async fn partitions(&self) -> Option<BackendSetting> {
        let wanted = self.options.partitions;
        let there = self.last_line().inbound.iter().filter(|inbound| inbound.part.is_some()).count();
        let mapping = match self.mapping().await {
            Ok(mapping) => mapping,
            Err(error) => Mapping::Unknown(chain(&error)),
        };
        if wanted == 1 && there == 0 && !matches!(mapping, Mapping::Over(_)) {
            return None;
        }
        Some(setting(self.prefix(), (wanted, there), &mapping))
    }

    /// Sends probes of some owners as others would, and sees where they come out.
    async fn mapping(&self) -> Result<Mapping, BusError> {
        let prefix = self.prefix();
        let client = self.line().await?.client.clone();
        // A name that nobody else has: doctors may look at the same time.
        let name = client.new_inbox().replace('.', "-");
        let mut mapped = self.subscribed(format!("{prefix}.part.*.*.*.{name}.{PROBE_KIND}")).await?;
        let mut plain = self.subscribed(format!("{prefix}.in.*.*.{name}.{PROBE_KIND}")).await?;
        for n in 0..PROBES {
            let probe = format!("{prefix}.in.t{n}.u{n}.{name}.{PROBE_KIND}");
            client.publish(probe, bytes::Bytes::new()).await.map_err(|error| self.unavailable(&error))?;
        }
        let mut parts = BTreeSet::new();
        let came = async {
            for _ in 0..PROBES {
                tokio::select! {
                    Some(probe) = mapped.next() => parts.extend(subject::part_of(prefix, &probe.subject)),
                    Some(_) = plain.next() => return,
                    else => return,
                }
            }
        };
        let in_time = tokio::time::timeout(PROBE, came).await.is_ok();
        Ok(match (parts.is_empty(), in_time) {
            (false, _) => Mapping::Over(parts),
            (true, true) => Mapping::None,
            (true, false) => Mapping::Unknown("no probe came back".to_owned()),
        })
    }
}

/// With so many partitions by the settings, and by the streams that there are.
fn setting(prefix: &str, (wanted, there): (usize, usize), mapping: &Mapping) -> BackendSetting {
    let by_server = match mapping {
        Mapping::None => "the server spreads nothing".to_owned(),
        Mapping::Over(parts) => {
            let parts: Vec<_> = parts.iter().map(ToString::to_string).collect();
            format!("the server spreads over {}", parts.join(", "))
        }
        Mapping::Unknown(reason) => format!("whether the server spreads is unknown: {reason}"),
    };
    let name = |part| streams::inbound_name(prefix, Some(part));
    let beyond = match mapping {
        Mapping::Over(parts) => parts.last().copied().filter(|last| *last >= there),
        Mapping::None | Mapping::Unknown(_) => None,
    };
    let problem = if let Some(part) = beyond {
        Some(format!(
            "what the server maps to partition {part} has no stream and is refused: give its mapping as many as `bus.partitions`, and restart workers with that first"
        ))
    } else if there > spread_over(wanted) {
        Some(format!(
            "`{}` is only emptied, as `bus.partitions` is lower than it was: delete it when it is empty, the last one first",
            name(there - 1)
        ))
    } else if *mapping == Mapping::None {
        Some(format!(
            "what others publish goes through `{}` alone: put `{}` into the server's configuration, for the account of Trellis",
            streams::inbound_name(prefix, None),
            subject::mapping(prefix, wanted)
        ))
    } else {
        None
    };
    let value = format!("{there} streams beside `{}`; {by_server}", streams::inbound_name(prefix, None));
    BackendSetting { name: "nats partitions".to_owned(), value, problem }
}

/// Streams beside the one that takes everything.
pub(super) const fn spread_over(partitions: usize) -> usize {
    if partitions == 1 { 0 } else { partitions }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_with_partitions_is_said() {
        let over = |parts: &[usize]| Mapping::Over(parts.iter().copied().collect());
        for (wanted, there, mapping, value, problem) in [
            (4, 4, over(&[0, 1, 2, 3]), "4 streams beside `P`; the server spreads over 0, 1, 2, 3", ""),
            (4, 4, over(&[0, 1]), "4 streams beside `P`; the server spreads over 0, 1", ""),
            (
                2,
                2,
                over(&[0, 1, 2]),
                "2 streams beside `P`; the server spreads over 0, 1, 2",
                "partition 2 has no stream",
            ),
            (1, 0, over(&[0]), "0 streams beside `P`; the server spreads over 0", "partition 0 has no stream"),
            (2, 3, over(&[0, 1]), "3 streams beside `P`; the server spreads over 0, 1", "`P_PART_2` is only emptied"),
            (1, 2, Mapping::None, "2 streams beside `P`; the server spreads nothing", "`P_PART_1` is only emptied"),
            (2, 2, Mapping::None, "2 streams beside `P`; the server spreads nothing", "{{partition(2,1,2)}}"),
            (2, 2, Mapping::Unknown("x".into()), "2 streams beside `P`; whether the server spreads is unknown: x", ""),
        ] {
            let setting = setting("p", (wanted, there), &mapping);
            let said = setting.problem.unwrap_or_default();
            assert_eq!(setting.value, value);
            assert!(said.contains(problem) && said.is_empty() == problem.is_empty(), "{value}: {said}");
        }
    }
}
