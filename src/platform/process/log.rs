//! Log lines on stderr. Texts of others are limited and kept on one line.

use crate::config::{LogConfig, LogFormat};
use crate::domain::visible::is_unseen;
use serde_json::{Map, Value};
use std::fmt::{self, Debug};
use std::io::IsTerminal;
use tracing::Event;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::subscriber::Subscriber;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::fmt::format::{self, Writer};
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// Libraries whose lines are shown, with the lowest level; all others are silent, as their lines repeat what servers
/// report. `bus::nats` logs connection events itself; the databases log each file below these levels.
const LIBRARIES: &str = "async_nats=error,fjall=warn,lsm_tree=warn";
/// Most characters of one field: the longest own texts have a quarter of it.
const FIELD_CHARS: usize = 4_000;

/// Reason why log lines go nowhere.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LogInitError {
    /// The setting `log.level` is no filter.
    #[error("illegal `log.level`: {reason}")]
    Filter {
        /// Text of the library.
        reason: String,
    },
    /// The process has a subscriber of events already.
    #[error("{reason}")]
    Subscriber {
        /// Text of the library.
        reason: String,
    },
}

/// Sends log lines to stderr, once per process.
pub fn init(log: &LogConfig) -> Result<(), LogInitError> {
    let filter = EnvFilter::builder().parse(filter(&log.level));
    let filter = filter.map_err(|error| LogInitError::Filter { reason: error.to_string() })?;
    let base = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let done = match log.format {
        LogFormat::Text => {
            let colours =
                std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
            base.with_ansi(colours).fmt_fields(format::debug_fn(write_field).delimited(" ")).try_init()
        }
        LogFormat::Json => base.event_format(JsonLines).try_init(),
    };
    done.map_err(|error| LogInitError::Subscriber { reason: error.to_string() })
}

/// Converts `log.level` to a filter: a level alone applies to Trellis, libraries have to be named.
fn filter(level: &str) -> String {
    let directive = |part: &str| match part.trim().parse::<LevelFilter>() {
        Ok(level) => format!("trellis={level}"),
        Err(_) => platform_target(part.trim()),
    };
    let given = level.split(',').map(directive).collect::<Vec<_>>().join(",");
    format!("off,{LIBRARIES},{given}")
}

/// Returns a directive for `trellis::store` as one for `trellis_platform::store`, the crate that has it.
fn platform_target(part: &str) -> String {
    let is_of_platform = |rest: &&str| {
        ["bus", "config", "process", "store"].iter().any(|module| {
            let after = rest.strip_prefix(module);
            after.is_some_and(|after| !after.starts_with(|c: char| c.is_alphanumeric() || c == '_'))
        })
    };
    let rest = part.strip_prefix("trellis::").filter(is_of_platform);
    rest.map_or_else(|| part.to_owned(), |rest| format!("trellis_platform::{rest}"))
}

fn write_field(writer: &mut Writer<'_>, field: &Field, value: &dyn Debug) -> fmt::Result {
    let text = one_line(&format!("{value:?}"));
    if field.name() == "message" { write!(writer, "{text}") } else { write!(writer, "{}={text}", field.name()) }
}

/// Escapes characters that end the line, control a terminal or hide text.
fn one_line(text: &str) -> String {
    let text = shorten(text);
    let is_odd = |c: char| c.is_control() || is_unseen(c) || matches!(c, '\u{2028}' | '\u{2029}');
    let mut line = String::with_capacity(text.len());
    for c in text.chars() {
        if is_odd(c) { line.extend(c.escape_default()) } else { line.push(c) }
    }
    line
}

fn shorten(text: &str) -> String {
    match text.char_indices().nth(FIELD_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Formats one JSON object per line: `timestamp`, `level`, the fields, `target`.
struct JsonLines;

impl<S, N> FormatEvent<S, N> for JsonLines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let mut time = String::new();
        SystemTime.format_time(&mut Writer::new(&mut time))?;
        let mut line = JsonLine::default();
        line.0.insert("timestamp".into(), time.into());
        line.0.insert("level".into(), event.metadata().level().as_str().into());
        event.record(&mut line);
        line.0.insert("target".into(), event.metadata().target().into());
        writeln!(writer, "{}", Value::Object(line.0))
    }
}

#[derive(Default)]
struct JsonLine(Map<String, Value>);

impl JsonLine {
    fn set(&mut self, field: &Field, value: Value) {
        self.0.insert(field.name().to_owned(), value);
    }
}

impl Visit for JsonLine {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.set(field, value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.set(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.set(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.set(field, value.into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.set(field, shorten(value).into());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.set(field, shorten(&format!("{value:?}")).into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parking_lot::Mutex;
    use std::io::{self, Write};
    use std::sync::Arc;

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// What is written of lines in one format under a filter.
    fn written(format: LogFormat, level: &str, log: impl Fn()) -> String {
        let writer = Written::default();
        let copy = writer.clone();
        let filter = EnvFilter::builder().parse(filter(level)).unwrap();
        let base = tracing_subscriber::fmt().with_env_filter(filter).with_writer(move || copy.clone()).with_ansi(false);
        match format {
            LogFormat::Text => {
                let fields = format::debug_fn(write_field).delimited(" ");
                tracing::subscriber::with_default(base.fmt_fields(fields).finish(), log);
            }
            LogFormat::Json => tracing::subscriber::with_default(base.event_format(JsonLines).finish(), log),
        }
        let bytes = writer.0.lock().clone();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn foreign_text_in_the_log_is_one_bounded_line() {
        let forged = "no\n2026-01-01T00:00:00Z ERROR trellis: all is lost\r\u{1b}[2J\u{9b}1m\u{202e}x\u{2028}y\0";
        let endless = "é".repeat(70_000);
        let log = || {
            tracing::warn!(agent = %forged, tries = 3, "it says: {forged}");
            tracing::warn!("{endless}");
        };
        let text = written(LogFormat::Text, "info", log);
        let lines: Vec<&str> = text.lines().collect();
        let shown =
            "no\\n2026-01-01T00:00:00Z ERROR trellis: all is lost\\r\\u{1b}[2J\\u{9b}1m\\u{202e}x\\u{2028}y\\u{0}";
        assert_eq!(lines.len(), 2, "{text}");
        assert!(
            lines[0].ends_with(&format!(
                " WARN trellis_platform::process::log::tests: it says: {shown} agent={shown} tries=3"
            )),
            "{text}"
        );
        assert!(!text.contains(|c: char| c.is_control() && c != '\n' || is_unseen(c)), "{text}");
        assert_eq!(lines[1].matches('é').count(), FIELD_CHARS);

        let json = written(LogFormat::Json, "info", log);
        let lines: Vec<Value> = json.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let keys: Vec<&str> = lines[0].as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(keys, ["timestamp", "level", "message", "agent", "tries", "target"]);
        assert_eq!(lines[0]["agent"], forged);
        assert_eq!(lines[0]["message"], format!("it says: {forged}"));
        assert_eq!((&lines[0]["level"], &lines[0]["tries"]), (&"WARN".into(), &3.into()));
        assert_eq!(lines[1]["message"].as_str().unwrap().chars().count(), FIELD_CHARS + 1);
    }

    #[test]
    fn libraries_are_silent_but_for_those_that_are_named() {
        let log = || {
            tracing::error!(target: "genai::webc", "of a library");
            tracing::warn!(target: "fjall::journal", "of a database");
            tracing::info!(target: "fjall::journal", "of each file");
            tracing::info!(target: "trellis::worker", "own");
            tracing::debug!(target: "trellis::worker", "deep");
            tracing::debug!(target: "trellis_platform::store::redis", "deep in a store");
        };
        for (level, expected) in [
            ("info", "of a database, own"),
            ("trace", "of a database, own, deep, deep in a store"),
            ("warn", "of a database"),
            ("off", "of a database"),
            ("info,genai=error", "of a library, of a database, own"),
            ("info,fjall=info,trellis::worker=debug", "of a database, of each file, own, deep"),
            ("trellis::worker=info", "of a database, own"),
            ("trellis::store=debug", "of a database, deep in a store"),
            ("trellis::store_format=debug", "of a database"),
        ] {
            let text = written(LogFormat::Text, level, log);
            let said: Vec<&str> = text.lines().map(|line| line.rsplit(": ").next().unwrap()).collect();
            assert_eq!(said.join(", "), expected, "{level}");
        }
    }
}
