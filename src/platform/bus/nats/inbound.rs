//! A stream of messages to agents, with its consumer.

use crate::bus::subject;
use async_nats::jetstream::consumer::PullConsumer;
use async_nats::jetstream::stream::Stream;

/// Bits by which the places of a partition are shifted. Places of the first stream are its sequences, because ids were
/// made of them.
const PART_BITS: u32 = 56;

/// One stream of messages to agents, with its consumer.
#[derive(Debug, Clone)]
pub(crate) struct InboundStream {
    /// Number of the partition; `None` = messages that aren't spread.
    pub(crate) part: Option<usize>,
    pub(crate) stream: Stream,
    pub(crate) consumer: PullConsumer,
}

impl InboundStream {
    /// Returns a filter for all its messages.
    pub(crate) fn filter(&self, prefix: &str) -> String {
        subject::all_inbound(prefix, self.part)
    }

    /// Returns the place of a message, unique over all these streams.
    pub(crate) fn message_place(&self, sequence: u64) -> u64 {
        let part = self.part.map_or(0, |part| part as u64 + 1);
        (part << PART_BITS) | sequence
    }

    /// Returns the name of the stream.
    pub(crate) fn name(&self) -> &str {
        &self.stream.cached_info().config.name
    }
}

/// Returns the number of streams beside the first one.
pub(crate) const fn partition_streams(partitions: usize) -> usize {
    if partitions == 1 { 0 } else { partitions }
}
