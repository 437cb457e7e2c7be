//! `telemetry.otlp.*`: where traces are sent, and which of them.

use super::values::{duration, number, parse};
use crate::config::layers::ConfigLayers;
use crate::config::settings::TelemetryConfig;
use crate::config::url::parse_callable;
use std::time::Duration;

const ENDPOINT_RULE: &str = "nothing, or the URL of a collector of OpenTelemetry such as `http://localhost:4318`, without \
                             `/v1/traces`, `?` and `#`, whose credentials are in `telemetry.otlp.headers_env`";
const VARIABLE_RULE: &str = "nothing, or the name of an environment variable such as `COLLECTOR_HEADERS`";
const SERVICE_RULE: &str = "a name of 1 to 128 visible characters";

pub(super) fn read(l: &mut ConfigLayers) -> TelemetryConfig {
    TelemetryConfig {
        endpoint: parse(l, "telemetry.otlp.endpoint", ENDPOINT_RULE, |text| match text {
            "" => Some(None),
            text => endpoint(text).map(Some),
        }),
        headers_env: parse(l, "telemetry.otlp.headers_env", VARIABLE_RULE, |text| {
            let is_legal = text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') && text.len() <= 128;
            is_legal.then(|| text.to_owned())
        }),
        service: parse(l, "telemetry.otlp.service", SERVICE_RULE, |text| {
            let is_legal = (1..=128).contains(&text.chars().count()) && !text.chars().any(char::is_control);
            is_legal.then(|| text.to_owned())
        }),
        percent: number(l, "telemetry.otlp.percent", 0..=100),
        timeout: duration(l, "telemetry.otlp.timeout", Duration::from_millis(10)..=Duration::from_mins(1)),
    }
}

/// Returns the address without a slash at its end; `None` if nothing can be appended to it.
fn endpoint(text: &str) -> Option<String> {
    let url = parse_callable(text).ok()?;
    let is_base = url.query().is_none() && !url.path().trim_end_matches('/').ends_with("/v1/traces");
    is_base.then(|| text.trim_end_matches('/').to_owned())
}

#[cfg(test)]
mod tests {
    use crate::config::{Config, TelemetryConfig};
    use std::collections::BTreeMap;

    /// Settings `telemetry.otlp.<key>`, or the first error.
    fn load(flags: &[(&str, &str)]) -> Result<TelemetryConfig, String> {
        let flag = |(key, value): &(&str, &str)| (format!("telemetry.otlp.{key}"), (*value).to_owned());
        let flags: Vec<(String, String)> = flags.iter().map(flag).collect();
        let loaded = Config::load(None, &BTreeMap::new(), &flags);
        loaded.map(|loaded| loaded.config.telemetry).map_err(|errors| errors.0[0].to_string())
    }

    #[test]
    fn traces_are_off_by_default() {
        let config = load(&[]).unwrap();
        assert_eq!((config.endpoint, config.percent, config.service.as_str()), (None, 100, "trellis"));
    }

    #[test]
    fn a_collector_is_read_without_its_last_slash() {
        let config = load(&[("endpoint", "https://h:4318/otel/"), ("percent", "5")]).unwrap();
        assert_eq!((config.endpoint.as_deref(), config.percent), (Some("https://h:4318/otel"), 5));
    }

    #[test]
    fn an_illegal_collector_is_named_with_its_place() {
        for (key, value) in [
            ("endpoint", "localhost:4317"),
            ("endpoint", "ftp://h"),
            ("endpoint", "http://u:p@h"),
            ("endpoint", "http://h/?a=b"),
            ("endpoint", "http://h/#x"),
            ("endpoint", "http://h:4318/v1/traces"),
            ("headers_env", "a=b"),
            ("service", ""),
            ("percent", "101"),
            ("percent", "-1"),
            ("timeout", "0s"),
            ("timeout", "2h"),
        ] {
            let error = load(&[(key, value)]).unwrap_err();
            assert!(error.contains(&format!("`telemetry.otlp.{key}` (flag)")), "{value}: {error}");
        }
    }
}
