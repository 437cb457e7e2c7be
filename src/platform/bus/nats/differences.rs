//! Settings of streams and consumers that differ from what Trellis needs: which a start sets back, and which stop it.

use super::super::subject;
use crate::domain::decode;
use async_nats::jetstream::{consumer, stream};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::fmt;
use std::time::Duration;

/// The consequence of a setting that differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Consequence {
    /// The configuration has another value: a start sets it.
    Configured,
    /// An operator changed it: a start sets it back, and says what may have been lost.
    Repaired(&'static str),
    /// It can't be changed in place, or only an operator knows why it was set: nothing starts.
    Fatal(&'static str),
    /// It can't be changed in place and loses nothing: it is only reported.
    Reported(&'static str),
}

use Consequence::{Configured, Fatal, Repaired, Reported};

/// A setting whose value differs from the expected one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Difference {
    /// Name of the setting on the server.
    setting: &'static str,
    found: Value,
    expected: Value,
    pub(super) consequence: Consequence,
}

/// Settings of a stream, by the server's names. Others are the operator's choice: placement, compression, direct reads,
/// republishing, description.
const STREAM: [(&str, Consequence); 29] = [
    ("subjects", Configured),
    ("discard", Configured),
    ("num_replicas", Configured),
    ("max_bytes", Configured),
    ("allow_atomic", Configured),
    ("max_age", Repaired("it deletes messages by their age")),
    ("duplicate_window", Configured),
    ("max_msgs", Repaired("it drops or refuses messages by their number")),
    ("max_msgs_per_subject", Repaired("it drops or refuses messages of an agent that has others waiting")),
    ("max_msg_size", Repaired("it refuses longer messages")),
    ("discard_new_per_subject", Repaired("it refuses messages of an agent that has others waiting")),
    ("no_ack", Repaired("it acknowledges nothing, so that no publisher knows what is stored")),
    ("allow_rollup_hdrs", Repaired("a publisher can delete messages of others with `Nats-Rollup`")),
    ("subject_transform", Repaired("it stores messages under subjects that nobody reads")),
    ("consumer_limits", Repaired("it limits the consumers of workers")),
    ("subject_delete_marker_ttl", Repaired("it puts markers among the messages")),
    ("retention", Fatal("it keeps or drops messages by another rule")),
    ("storage", Fatal("it keeps messages elsewhere")),
    ("sealed", Fatal("it takes no messages")),
    ("deny_delete", Fatal("messages that break connections can't be taken out")),
    ("deny_purge", Fatal("messages that are done with can't be removed")),
    ("mirror", Fatal("its messages are those of another stream")),
    ("sources", Fatal("it takes messages of other streams")),
    ("persist_mode", Fatal("it acknowledges messages before they are stored")),
    ("allow_msg_counter", Fatal("it takes nothing but counters")),
    ("allow_msg_ttl", Fatal("a message TTL deletes accepted work")),
    ("allow_msg_schedules", Fatal("schedules reach other owners' subjects")),
    ("template_owner", Reported("it belongs to a template of streams")),
    ("max_consumers", Reported("it limits how many can watch, or take jobs, at the same time")),
];

/// Settings of a shared consumer. Others are the operator's choice: description, sampling, metadata.
const CONSUMER: [(&str, Consequence); 25] = [
    ("ack_wait", Configured),
    ("max_deliver", Repaired("it gives up messages after some deliveries, and they stay where nobody gets them")),
    ("filter_subject", Repaired("messages on other subjects are delivered to nobody")),
    ("filter_subjects", Repaired("messages on other subjects are delivered to nobody")),
    ("max_ack_pending", Repaired("it limits the turns of the whole fleet")),
    ("headers_only", Repaired("it delivers messages without their bodies")),
    ("max_batch", Repaired("it refuses what workers ask for")),
    ("max_bytes", Repaired("it refuses what workers ask for")),
    ("max_expires", Repaired("it refuses what workers ask for")),
    ("inactive_threshold", Repaired("it is deleted while no worker runs")),
    ("num_replicas", Repaired("its acknowledgements have other copies than its messages")),
    ("backoff", Repaired("it delivers again before a turn can be over")),
    ("pause_until", Repaired("it delivers nothing")),
    ("priority_groups", Repaired("it delivers to some workers only")),
    ("priority_policy", Repaired("it delivers to some workers only")),
    ("priority_timeout", Repaired("it delivers to some workers only")),
    ("rate_limit_bps", Repaired("it delivers more slowly than workers take")),
    ("durable_name", Fatal("it is not durable")),
    ("deliver_subject", Fatal("it pushes messages to whoever listens")),
    ("deliver_policy", Fatal("it passes over messages")),
    ("opt_start_seq", Fatal("it passes over messages")),
    ("opt_start_time", Fatal("it passes over messages")),
    ("ack_policy", Fatal("messages count as done before they are")),
    ("replay_policy", Fatal("it delivers at the pace of the publishers")),
    ("max_waiting", Reported("it limits how many workers can wait for messages")),
];

/// Returns how a stream differs from the expected one. `prefix` is the first token of the venue's subjects.
pub(super) fn compare_streams(prefix: &str, found: &stream::Config, expected: &stream::Config) -> Vec<Difference> {
    let subjects = subject::merge_subjects(prefix, &expected.subjects, &found.subjects);
    // Batches of other publishers harm nobody.
    let allow_atomic_publish = expected.allow_atomic_publish || found.allow_atomic_publish;
    let expected = stream::Config { subjects, allow_atomic_publish, ..expected.clone() };
    let is_queue = expected.retention == stream::RetentionPolicy::WorkQueue;
    let ages = expected.max_age > Duration::ZERO;
    let mut all = compare(&STREAM, found, &expected);
    for difference in &mut all {
        difference.consequence = match difference.setting {
            // Only an age that the configuration doesn't have loses messages.
            "max_age" if ages => Configured,
            // For streams that only the venue publishes to; and a stream of an earlier version has no schedules yet.
            "allow_msg_ttl" if !is_queue => Reported("it lets messages say when they expire"),
            "allow_msg_schedules" if expected.allow_message_schedules => Configured,
            _ => difference.consequence,
        };
    }
    all
}

/// Returns how a shared consumer differs from the expected one.
pub(super) fn compare_consumers(found: &consumer::Config, expected: &consumer::Config) -> Vec<Difference> {
    compare(&CONSUMER, found, expected)
}

/// Returns the settings to write: those that can be set back are as expected, all others as found.
pub(super) fn repaired_settings<T: Serialize + DeserializeOwned>(
    found: &T,
    all: &[Difference],
) -> Result<T, decode::DataError> {
    let mut settings = object(found);
    for difference in all.iter().filter(|difference| difference.is_repaired()) {
        settings.insert(difference.setting.to_owned(), difference.expected.clone());
    }
    settings.retain(|_, value| !value.is_null());
    decode::into_type(Value::Object(settings))
}

/// Returns the differences that stop a start, in words; `None` if there are none.
pub(super) fn describe_fatal(all: &[Difference]) -> Option<String> {
    let fatal: Vec<_> = all.iter().filter(|one| matches!(one.consequence, Fatal(_))).map(ToString::to_string).collect();
    (!fatal.is_empty()).then(|| fatal.join("; "))
}

fn compare<T: Serialize>(rules: &[(&'static str, Consequence)], found: &T, expected: &T) -> Vec<Difference> {
    let (found, expected) = (object(found), object(expected));
    let differs = |(setting, consequence): &(&'static str, Consequence)| {
        let value = |settings: &Map<String, Value>| settings.get(*setting).cloned().unwrap_or_default();
        let (found, expected) = (value(&found), value(&expected));
        let differs = without_default(setting, &found) != without_default(setting, &expected);
        differs.then_some(Difference { setting, found, expected, consequence: *consequence })
    };
    rules.iter().filter_map(differs).collect()
}

fn object<T: Serialize>(settings: &T) -> Map<String, Value> {
    match serde_json::to_value(settings) {
        Ok(Value::Object(settings)) => settings,
        Ok(_) | Err(_) => Map::new(),
    }
}

/// Returns a value without its default, which a server may leave out or state.
fn without_default(setting: &str, value: &Value) -> Value {
    let is_default = match value {
        Value::Null | Value::Bool(false) => true,
        Value::Number(number) => number.as_i64() == Some(0),
        Value::String(text) => text.is_empty() || text == "default" || text == "none",
        Value::Array(values) => values.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(true) => false,
    };
    // -1 and 0 both mean no limit.
    let is_unlimited = setting.starts_with("max_") && value.as_i64() == Some(-1);
    if is_default || is_unlimited { Value::Null } else { value.clone() }
}

impl Difference {
    /// Whether a start sets the setting back.
    pub(super) const fn is_repaired(&self) -> bool {
        matches!(self.consequence, Configured | Repaired(_))
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [found, expected] = [&self.found, &self.expected].map(|value| value_text(self.setting, value));
        write!(f, "`{}` is {found}, expected {expected}", self.setting)?;
        match self.consequence {
            Configured => Ok(()),
            Repaired(why) | Fatal(why) | Reported(why) => write!(f, ": {why}"),
        }
    }
}

/// Settings that are durations, in nanoseconds.
const TIMES: [&str; 7] = [
    "max_age",
    "duplicate_window",
    "ack_wait",
    "max_expires",
    "inactive_threshold",
    "priority_timeout",
    "subject_delete_marker_ttl",
];

/// Characters of a value that are shown: an operator may have written any text.
const SHOWN: usize = 200;

/// Formats a value of a setting for people.
fn value_text(setting: &str, value: &Value) -> String {
    match value.as_u64() {
        Some(nanos) if TIMES.contains(&setting) && nanos > 0 => {
            humantime::format_duration(Duration::from_nanos(nanos)).to_string()
        }
        _ if *value == Value::Null || without_default(setting, value) == Value::Null => "not set".to_owned(),
        _ => value.to_string().chars().take(SHOWN).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stream::{Config, RetentionPolicy};

    fn expected() -> Config {
        Config {
            retention: RetentionPolicy::WorkQueue,
            subjects: vec!["p.in.>".to_owned()],
            max_bytes: 9,
            max_messages: -1,
            ..Config::default()
        }
    }

    #[test]
    fn default_settings_show_no_difference() {
        let found = Config { max_messages: 0, sources: Some(Vec::new()), ..expected() };
        assert_eq!(compare_streams("p", &found, &expected()), []);
        let free = Config { description: Some("ours".to_owned()), allow_direct: true, ..expected() };
        assert_eq!(compare_streams("p", &free, &expected()), []);
    }

    #[test]
    fn only_fixable_settings_are_changed() {
        let found = Config {
            max_messages_per_subject: 1,
            max_age: Duration::from_secs(90),
            max_bytes: 8,
            description: Some("ours".to_owned()),
            ..expected()
        };
        let all = compare_streams("p", &found, &expected());
        assert!(describe_fatal(&all).is_none() && all.iter().all(Difference::is_repaired), "{all:?}");
        let said: Vec<_> = all.iter().map(ToString::to_string).collect();
        assert!(said.contains(&"`max_bytes` is 8, expected 9".to_owned()), "{said:?}");
        assert!(said[1].starts_with("`max_age` is 1m 30s, expected not set: it deletes"), "{said:?}");
        let mended = repaired_settings(&found, &all).unwrap();
        assert_eq!(mended.description.as_deref(), Some("ours"));
        assert_eq!(compare_streams("p", &mended, &expected()), []);
    }

    #[test]
    fn a_setting_that_cannot_be_fixed_stops_the_start() {
        let found = Config { retention: RetentionPolicy::Limits, deny_purge: true, ..expected() };
        let said = describe_fatal(&compare_streams("p", &found, &expected())).unwrap();
        assert!(said.contains("`retention` is \"limits\", expected \"workqueue\": it keeps"), "{said}");
        assert!(said.contains("; `deny_purge` is true, expected not set: "), "{said}");
    }
}
