//! Streams that were deleted while the venue runs, and made again: what was in them is lost.

use super::options::NatsOptions;
use crate::config::mask_url;
use crate::domain::time::Millis;
use crate::store::BackendSetting;
use async_nats::jetstream::Context;
use async_nats::jetstream::stream::Stream;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::time::Duration;

/// Name of the metadata entry of a stream that was made again.
const MADE_AGAIN: &str = "trellis-made-again";

/// Time for which `trellis doctor` shows it.
const TOLD_FOR: Duration = Duration::from_hours(7 * 24);

/// Least difference between the times of creation of two streams of one name. Servers of a cluster may round one time
/// each in its own way.
const APART: Duration = Duration::from_secs(1);

/// What the loss of a stream means, and what to do.
const LOST: &str = "what was in it is lost; submit again what `trellis audit` doesn't know";

/// Times at which the streams were created, as this process saw them last.
#[derive(Default)]
pub(super) struct StreamCreations(Mutex<HashMap<String, Millis>>);

impl StreamCreations {
    /// Records when a stream was created; returns whether it is another one than at the last look.
    fn record(&self, stream: &str, created: Millis) -> bool {
        let before = self.0.lock().insert(stream.to_owned(), created);
        before.is_some_and(|before| created.elapsed_since(before) >= APART)
    }

    /// Compares when a stream was created with what this process knows. One that was made again since is logged, and
    /// marked for other processes. Returns the row of a stream that was made again lately.
    pub(super) async fn check(
        &self,
        options: &NatsOptions,
        context: &Context,
        stream: &Stream,
        now: Millis,
    ) -> Option<BackendSetting> {
        let info = stream.cached_info();
        let name = &info.config.name;
        let created = Millis(u64::try_from(info.created.unix_timestamp_nanos() / 1_000_000).unwrap_or_default());
        let is_another = self.record(name, created);
        if is_another {
            let (bus, at) = (mask_url(&options.url), created.rfc3339());
            tracing::warn!("NATS at `{bus}`: stream `{name}` was deleted, and made again at {at}: {LOST}");
            if !options.reads_only {
                mark_made_again(context, stream, at).await;
            }
        }
        let is_marked = is_another || info.config.metadata.contains_key(MADE_AGAIN);
        let setting = || BackendSetting {
            name: format!("nats stream made again of {name}"),
            value: created.rfc3339(),
            problem: Some(format!("it had been deleted: {LOST}")),
        };
        (is_marked && now.elapsed_since(created) < TOLD_FOR).then(setting)
    }
}

async fn mark_made_again(context: &Context, stream: &Stream, at: String) {
    let mut config = stream.cached_info().config.clone();
    config.metadata.insert(MADE_AGAIN.to_owned(), at);
    if let Err(error) = context.update_stream(&config).await {
        tracing::debug!("stream `{}` is not marked as made again: {error}", config.name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_of_another_time_is_another_stream() {
        let known = StreamCreations::default();
        for (stream, created, expected) in [
            ("A", 10_000, false),
            ("A", 10_000, false),
            ("A", 10_004, false),
            ("B", 90_000, false),
            ("A", 20_000, true),
            ("A", 20_000, false),
        ] {
            assert_eq!(known.record(stream, Millis(created)), expected, "{stream} {created}");
        }
    }
}
