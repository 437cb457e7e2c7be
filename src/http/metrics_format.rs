//! The text format of `/metrics`, by the header `Accept`.

/// Media type of the classic text format.
const CLASSIC: &str = "text/plain; version=0.0.4; charset=utf-8";
/// Media type of `OpenMetrics`.
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// Media ranges that are read of one header.
const RANGES_MAX: usize = 32;

/// Text format of metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MetricsFormat {
    /// The format 0.0.4 of Prometheus.
    Classic,
    /// `OpenMetrics` 1.0.0.
    OpenMetrics,
}

impl MetricsFormat {
    /// Returns the format that a client accepts: `OpenMetrics` if its header names that and prefers nothing else.
    pub(super) fn choose(header: &str) -> Self {
        let (mut open, mut plain) = (0, 0);
        for range in header.split(',').take(RANGES_MAX) {
            let mut parts = range.split(';').map(str::trim);
            let kind = parts.next().unwrap_or_default().to_ascii_lowercase();
            let (mut weight, mut is_known) = (1000, true);
            for part in parts {
                match part.split_once('=').map(|(name, value)| (name.trim().to_ascii_lowercase(), value.trim())) {
                    Some((name, value)) if name == "q" => weight = thousandths(value),
                    Some((name, value)) if name == "version" && kind == "application/openmetrics-text" => {
                        is_known = matches!(value.trim_matches('"'), "1.0.0" | "0.0.1");
                    }
                    _ => {}
                }
            }
            match kind.as_str() {
                "application/openmetrics-text" if is_known => open = open.max(weight),
                "text/plain" => plain = plain.max(weight),
                _ => {}
            }
        }
        if open > 0 && open >= plain { Self::OpenMetrics } else { Self::Classic }
    }

    /// Returns the media type of the format.
    pub(super) const fn media_type(self) -> &'static str {
        match self {
            Self::Classic => CLASSIC,
            Self::OpenMetrics => OPENMETRICS,
        }
    }
}

/// Returns a weight such as `0.5` in thousandths; 0 for what is none.
fn thousandths(weight: &str) -> u32 {
    let (whole, part) = weight.split_once('.').unwrap_or((weight, ""));
    let is_digits = part.len() <= 3 && part.bytes().all(|digit| digit.is_ascii_digit());
    match whole {
        "1" if is_digits && part.bytes().all(|digit| digit == b'0') => 1000,
        "0" if is_digits => format!("{part:0<3}").parse().unwrap_or(0),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn openmetrics_is_sent_to_clients_that_ask_for_it() {
        use MetricsFormat::{Classic, OpenMetrics};
        for (header, expected) in [
            ("", Classic),
            ("*/*", Classic),
            ("text/plain", Classic),
            ("text/html, application/*", Classic),
            ("application/openmetrics-text", OpenMetrics),
            ("Application/OpenMetrics-Text; Version=1.0.0; charset=utf-8", OpenMetrics),
            ("application/openmetrics-text;version=\"0.0.1\"", OpenMetrics),
            ("application/openmetrics-text;version=9.0.0", Classic),
            ("application/openmetrics-text;q=0", Classic),
            ("application/openmetrics-text;q=0.000, text/plain;q=0", Classic),
            ("application/openmetrics-text;q=0.3,text/plain;version=0.0.4;q=0.5", Classic),
            ("application/openmetrics-text;q=1.5", Classic),
            ("application/openmetrics-text;q=-1", Classic),
            ("application/openmetrics-text;q=0.0001", Classic),
            (
                "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
                OpenMetrics,
            ),
        ] {
            assert_eq!(MetricsFormat::choose(header), expected, "{header}");
        }
        let late = format!("{}application/openmetrics-text", "a/b,".repeat(RANGES_MAX));
        assert_eq!(MetricsFormat::choose(&late), Classic, "ranges beyond the bound are not read");
    }
}
