//! `notifications.*`: webhooks that get the notifications of all owners.

use super::kinds::with_dot;
use crate::config::layers::{ConfigLayers, LayerEntry, SettingOrigin, WEBHOOKS};
use crate::config::mask::error_value;
use crate::config::settings::{NotificationsConfig, WebhookConfig};
use crate::config::url::parse_callable;
use crate::domain::limits::WEBHOOKS as MOST;
use crate::domain::notification::NotificationKind;
use crate::domain::webhook::WebhookName;
use std::collections::BTreeMap;

/// Values of one webhook by key.
type WebhookLeaves<'l> = BTreeMap<&'l str, &'l LayerEntry>;

pub(super) fn read(l: &mut ConfigLayers) -> NotificationsConfig {
    let named = l.free_entries(&WEBHOOKS);
    let (mut webhooks, mut errors) = (Vec::new(), Vec::new());
    for (name, leaves) in &named {
        let mut wrong = |leaf: &str, problem: String| {
            let entry = leaves.get(leaf).or_else(|| leaves.values().next());
            let origin = entry.map_or(SettingOrigin::Default, |entry| entry.origin.clone());
            errors.push((format!("{}{name}{leaf}", WEBHOOKS.prefix, leaf = with_dot(leaf)), origin, problem));
        };
        match WebhookName::new(name) {
            Err(problem) => wrong("", problem.to_string()),
            Ok(_) if webhooks.len() == MOST => wrong("", format!("expected at most {MOST} webhooks")),
            Ok(name) => webhooks.extend(webhook(name, leaves, &mut wrong)),
        }
    }
    for (key, origin, problem) in errors {
        l.add_error(&key, origin, problem);
    }
    NotificationsConfig { webhooks }
}

/// Reads one webhook; `None` if a value of it is illegal.
fn webhook(
    name: WebhookName,
    leaves: &WebhookLeaves<'_>,
    wrong: &mut impl FnMut(&str, String),
) -> Option<WebhookConfig> {
    let text = |leaf: &str| leaves.get(leaf).and_then(|entry| entry.value.as_str()).unwrap_or_default();
    let switch = |leaf: &str| leaves.get(leaf).and_then(|entry| entry.value.as_bool()).unwrap_or_default();
    let (url, secret_env) = (text("url").to_owned(), text("secret_env").to_owned());
    if let Err(problem) = parse_callable(&url) {
        let shown = error_value("url", &url);
        wrong("url", format!("expected a URL with `http://` or `https://`, got `{shown}`: {problem}"));
        return None;
    }
    if secret_env.is_empty() {
        let problem = "expected the environment variable that has the secret of the signatures, `whsec_` and base64";
        wrong("secret_env", problem.to_owned());
        return None;
    }
    let mut kinds = Vec::new();
    for word in text("kinds").split(',').map(str::trim).filter(|word| !word.is_empty()) {
        let Some(kind) = NotificationKind::parse(word) else {
            let words = NotificationKind::words();
            wrong("kinds", format!("expected {words} with commas between, or nothing for all, got `{word}`"));
            return None;
        };
        kinds.push(kind);
    }
    let (with_content, allow_private) = (switch("with_content"), switch("allow_private"));
    Some(WebhookConfig { name, url, kinds, secret_env, with_content, allow_private })
}

#[cfg(test)]
mod tests {
    use crate::config::{Config, NotificationsConfig};
    use crate::domain::notification::NotificationKind;
    use std::collections::BTreeMap;

    /// Settings `notifications.webhooks.<key>`, or the first error.
    fn load(flags: &[(&str, &str)]) -> Result<NotificationsConfig, String> {
        let flag = |(key, value): &(&str, &str)| (format!("notifications.webhooks.{key}"), (*value).to_owned());
        let flags: Vec<(String, String)> = flags.iter().map(flag).collect();
        let loaded = Config::load(None, &BTreeMap::new(), &flags);
        loaded.map(|loaded| loaded.config.notifications).map_err(|errors| errors.0[0].to_string())
    }

    #[test]
    fn webhooks_are_read_with_their_defaults() {
        let config = load(&[
            ("ops.url", "https://hooks.example.com/x"),
            ("ops.secret_env", "OPS_HOOK"),
            ("pager.url", "http://127.0.0.1:9/"),
            ("pager.secret_env", "PAGER"),
            ("pager.kinds", "job-dead, cap-reached"),
            ("pager.with_content", "true"),
            ("pager.allow_private", "true"),
        ])
        .unwrap();
        let [ops, pager] = &config.webhooks[..] else { panic!("{config:?}") };
        assert_eq!((ops.name.as_str(), ops.secret_env.as_str(), ops.kinds.len()), ("ops", "OPS_HOOK", 0));
        assert!(!ops.with_content && !ops.allow_private && pager.with_content && pager.allow_private);
        assert_eq!(pager.kinds, [NotificationKind::JobDead, NotificationKind::CapReached]);
    }

    #[test]
    fn illegal_webhooks_are_named_with_their_place() {
        let (url, secret) = (("a.url", "https://h/"), ("a.secret_env", "X"));
        for (flags, part) in [
            (vec![("a.url", "h"), secret], "`notifications.webhooks.a.url` (flag): expected a URL"),
            (vec![("a.url", "ftp://h/"), secret], "`notifications.webhooks.a.url` (flag): expected a URL"),
            (vec![url], "secret_env` (flag): expected the environment variable"),
            (vec![url, secret, ("a.kinds", "job-ded")], "kinds` (flag): expected `approval-asked`"),
            (vec![("a_b.url", "https://h/"), ("a_b.secret_env", "X")], "expected a name of 1 to 32"),
        ] {
            let error = load(&flags).unwrap_err();
            assert!(error.contains(part), "{flags:?}: {error}");
        }
    }
}
