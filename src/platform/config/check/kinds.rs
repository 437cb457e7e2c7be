//! `resources.kinds.*`: kinds of resources that other servers provide.

use crate::config::layers::{ConfigLayers, KINDS, LayerEntry, SettingOrigin};
use crate::config::mask::error_value;
use crate::config::settings::{ResourceKind, ResourcesConfig};
use crate::config::url::parse_callable;
use crate::domain::authority::envelope::AccessMode;
use crate::domain::limits::REMOTE_KINDS;
use crate::domain::resource::remote::{check_kind, parse_operations};
use std::collections::BTreeMap;
use std::time::Duration;

/// Longest time that a turn waits for its context.
const LONGEST: Duration = Duration::from_mins(1);

pub(super) fn read(l: &mut ConfigLayers) -> ResourcesConfig {
    let named = l.free_entries(&KINDS);
    let mut kinds = BTreeMap::new();
    let mut errors = Vec::new();
    for (name, leaves) in &named {
        let mut wrong = |leaf: &str, problem: String| {
            let entry = leaves.get(leaf).or_else(|| leaves.values().next());
            let origin = entry.map_or(SettingOrigin::Default, |entry| entry.origin.clone());
            errors.push((format!("{}{name}{leaf}", KINDS.prefix, leaf = with_dot(leaf)), origin, problem));
        };
        if let Err(problem) = check_kind(name) {
            wrong("", problem.to_string());
        } else if kinds.len() == REMOTE_KINDS {
            wrong("", format!("expected at most {REMOTE_KINDS} kinds"));
        }
        kinds.insert(name.clone(), kind(leaves, &mut wrong));
    }
    for (key, origin, problem) in errors {
        l.add_error(&key, origin, problem);
    }
    ResourcesConfig { kinds }
}

pub(super) fn with_dot(leaf: &str) -> String {
    if leaf.is_empty() { String::new() } else { format!(".{leaf}") }
}

fn kind(leaves: &BTreeMap<&str, &LayerEntry>, wrong: &mut impl FnMut(&str, String)) -> ResourceKind {
    let given = |leaf: &str| leaves.get(leaf).and_then(|entry| entry.value.as_str());
    let text = |leaf: &str, default: &str| given(leaf).unwrap_or(default).to_owned();
    let place = text("url", "");
    if let Err(problem) = parse_callable(&place) {
        wrong(
            "url",
            format!("expected a URL with `http://` or `https://`, got `{}`: {problem}", error_value("url", &place)),
        );
    }
    let operations = parse_operations(&text("operations", "search, read")).unwrap_or_else(|expected| {
        wrong("operations", format!("expected {expected}, got `{}`", text("operations", "")));
        Vec::new()
    });
    let mode = match text("mode", "").as_str() {
        "" => None,
        "read" => Some(AccessMode::Read),
        "read-write" => Some(AccessMode::ReadWrite),
        other => {
            wrong("mode", format!("expected `read` or `read-write`, got `{other}`"));
            None
        }
    };
    let timeout = text("timeout", "10s");
    let range = Duration::from_millis(10)..=LONGEST;
    let timeout = humantime::parse_duration(&timeout).ok().filter(|given| range.contains(given)).unwrap_or_else(|| {
        wrong("timeout", format!("expected a duration from 10ms to 1m such as `10s`, got `{timeout}`"));
        LONGEST
    });
    let about = text("about", "");
    if about.len() > 500 || about.contains(char::is_control) {
        wrong("about", "expected one line of at most 500 bytes".into());
    }
    let header = text("header", "Authorization");
    if !header.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') || header.is_empty() {
        wrong("header", format!("expected a header's name such as `Authorization`, got `{header}`"));
    }
    let key_env = Some(text("key_env", "")).filter(|name| !name.is_empty());
    let prefix = text("prefix", if header.eq_ignore_ascii_case("authorization") { "Bearer " } else { "" });
    let allow_private = leaves.get("allow_private").and_then(|entry| entry.value.as_bool()).unwrap_or_default();
    ResourceKind { url: place, operations, mode, about, key_env, header, prefix, timeout, allow_private }
}
