//! Values of settings that all sections read in the same way.

use crate::config::layers::{ConfigLayers, LayerEntry};
use crate::config::mask::error_value;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

/// Returns the text of a setting; empty if it is none.
pub(in crate::config) fn text(l: &ConfigLayers, key: &str) -> String {
    l.entry(key).value.as_str().unwrap_or_default().to_owned()
}

/// Returns the path of a setting; `None` if it is empty.
pub(in crate::config) fn path(l: &ConfigLayers, key: &str) -> Option<PathBuf> {
    Some(text(l, key)).filter(|text| !text.is_empty()).map(PathBuf::from)
}

/// Parses the text of a setting. An illegal one is recorded as an error and replaced by a placeholder.
pub(in crate::config) fn parse<T: Default>(
    l: &mut ConfigLayers,
    key: &str,
    expected: &str,
    read: impl Fn(&str) -> Option<T>,
) -> T {
    let LayerEntry { value, origin } = l.entry(key).clone();
    let text = value.as_str().unwrap_or_default();
    read(text).unwrap_or_else(|| {
        l.add_error(key, origin, format!("expected {expected}, got `{}`", error_value(key, text)));
        T::default()
    })
}

/// Returns a number in a range. Another one is recorded as an error and replaced by a placeholder.
pub(in crate::config) fn number<T: TryFrom<i64> + Default>(
    l: &mut ConfigLayers,
    key: &str,
    range: RangeInclusive<i64>,
) -> T {
    let LayerEntry { value, origin } = l.entry(key).clone();
    let given = value.as_integer().unwrap_or_default();
    let number = if range.contains(&given) { T::try_from(given).ok() } else { None };
    number.unwrap_or_else(|| {
        l.add_error(key, origin, format!("expected {} to {}, got `{given}`", range.start(), range.end()));
        T::default()
    })
}

/// Parses a duration in a range. Another one is recorded as an error and replaced by a placeholder.
pub(in crate::config) fn duration(l: &mut ConfigLayers, key: &str, range: RangeInclusive<Duration>) -> Duration {
    let (from, to) = (humantime::format_duration(*range.start()), humantime::format_duration(*range.end()));
    parse(l, key, &format!("a duration from {from} to {to} such as `30s` or `5m`"), |text| {
        humantime::parse_duration(text).ok().filter(|given| range.contains(given))
    })
}
