//! `a2a.agents.*`: agents elsewhere that the agents of all owners may give work to.

use super::kinds::with_dot;
use crate::config::layers::{A2A_AGENTS, ConfigLayers, LayerEntry, SettingOrigin};
use crate::config::mask::error_value;
use crate::config::settings::{A2aConfig, VenueA2aAgent};
use crate::config::url::parse_callable;
use crate::domain::a2a::remote::RemoteAgent;
use crate::domain::chat::HeaderText;
use crate::domain::decode;
use crate::domain::headers::is_name;
use crate::domain::ids::secret::SecretName;
use crate::domain::limits::A2A_AGENTS as MOST;
use crate::domain::mcp::name::ServerName;
use serde_json::Value;
use std::collections::BTreeMap;

/// Values of one agent by key.
type AgentLeaves<'l> = BTreeMap<&'l str, &'l LayerEntry>;

pub(super) fn read(l: &mut ConfigLayers) -> A2aConfig {
    let named = l.free_entries(&A2A_AGENTS);
    let (mut agents, mut errors) = (Vec::new(), Vec::new());
    for (name, leaves) in &named {
        let mut wrong = |leaf: &str, problem: String| {
            let entry = leaves.get(leaf).or_else(|| leaves.values().next());
            let origin = entry.map_or(SettingOrigin::Default, |entry| entry.origin.clone());
            errors.push((format!("{}{name}{leaf}", A2A_AGENTS.prefix, leaf = with_dot(leaf)), origin, problem));
        };
        match ServerName::new(name) {
            Err(problem) => wrong("", problem.to_string()),
            Ok(_) if agents.len() == MOST => wrong("", format!("expected at most {MOST} agents")),
            Ok(name) => agents.extend(agent(name, leaves, &mut wrong)),
        }
    }
    for (key, origin, problem) in errors {
        l.add_error(&key, origin, problem);
    }
    A2aConfig { agents }
}

fn text_of<'l>(leaves: &AgentLeaves<'l>, leaf: &str) -> Option<&'l str> {
    leaves.get(leaf).and_then(|entry| entry.value.as_str()).filter(|text| !text.is_empty())
}

/// Reads one agent; `None` if a value of it is illegal.
fn agent(name: ServerName, leaves: &AgentLeaves<'_>, wrong: &mut impl FnMut(&str, String)) -> Option<VenueA2aAgent> {
    let switch = |leaf: &str| leaves.get(leaf).and_then(|entry| entry.value.as_bool()).unwrap_or_default();
    let Some(url) = text_of(leaves, "url") else {
        wrong("url", "expected the URL of the agent's card, or the address below which it is".to_owned());
        return None;
    };
    if let Err(problem) = parse_callable(url) {
        let shown = error_value("url", url);
        wrong("url", format!("expected a URL with `http://` or `https://`, got `{shown}`: {problem}"));
        return None;
    }
    let skills = text_of(leaves, "skills").unwrap_or_default().split(',').map(str::trim);
    let skills: Vec<String> = skills.filter(|part| !part.is_empty()).map(str::to_owned).collect();
    let mut found = RemoteAgent {
        skills: Some(skills).filter(|skills| !skills.is_empty()),
        timeout: seconds(leaves, "timeout", wrong).ok()?,
        deadline: seconds(leaves, "deadline", wrong).ok()?,
        repeatable: switch("repeatable"),
        keys: keys(leaves, wrong)?,
        ..RemoteAgent::at_url(name, url)
    };
    let header = text_of(leaves, "header").unwrap_or("Authorization").to_owned();
    if !is_name(&header) {
        wrong("header", format!("expected a header's name such as `Authorization`, got `{header}`"));
        return None;
    }
    let default = if header.eq_ignore_ascii_case("authorization") { "Bearer " } else { "" };
    let prefix = leaves.get("prefix").and_then(|entry| entry.value.as_str()).unwrap_or(default).to_owned();
    let key_env = text_of(leaves, "key_env").map(str::to_owned);
    if let Some(path) = text_of(leaves, "secret") {
        if key_env.is_some() {
            wrong("secret", "expected one of `key_env` and `secret`, got both".to_owned());
            return None;
        }
        let Ok(name) = SecretName::from_path(path) else {
            wrong("secret", "expected the path of a secret that each owner has, such as `s/PARTNER`".to_owned());
            return None;
        };
        found.headers.insert(header.clone(), HeaderText::Secret { name, prefix: prefix.clone() });
    }
    if key_env.is_none()
        && found.headers.is_empty()
        && ["header", "prefix"].iter().any(|leaf| leaves.contains_key(leaf))
    {
        wrong("header", "expected `key_env` or `secret` beside it: it says where that key goes".to_owned());
        return None;
    }
    if let Err(problem) = found.check() {
        wrong("", problem.to_string());
        return None;
    }
    if key_env.is_some() {
        // The venue's own key goes where a text could go, too.
        let mut with_key = found.clone();
        with_key.headers.insert(header.clone(), HeaderText::Plain(format!("{prefix}key")));
        if let Err(problem) = with_key.check() {
            wrong("header", problem.to_string());
            return None;
        }
    }
    Some(VenueA2aAgent { agent: found, key_env, header, prefix, allow_private: switch("allow_private") })
}

/// Mark of a value that is illegal, and was reported.
struct IllegalValue;

/// Reads a time.
fn seconds(
    leaves: &AgentLeaves<'_>,
    leaf: &str,
    wrong: &mut impl FnMut(&str, String),
) -> Result<Option<u64>, IllegalValue> {
    let Some(text) = text_of(leaves, leaf) else { return Ok(None) };
    let time = humantime::parse_duration(text).ok().filter(|time| time.subsec_nanos() == 0);
    time.map(|time| Some(time.as_secs())).ok_or_else(|| {
        wrong(leaf, format!("expected whole seconds such as `30s` or `2h`, got `{text}`"));
        IllegalValue
    })
}

/// Reads the keys that may sign the card: a JWK, or a set of them; `None` if the text is neither.
fn keys(leaves: &AgentLeaves<'_>, wrong: &mut impl FnMut(&str, String)) -> Option<Vec<Value>> {
    let Some(text) = text_of(leaves, "keys") else { return Some(Vec::new()) };
    match decode::json(text.as_bytes()) {
        Ok(Value::Object(mut map)) => Some(match map.shift_remove("keys") {
            Some(Value::Array(keys)) => keys,
            _ => vec![Value::Object(map)],
        }),
        Ok(_) => {
            wrong("keys", "expected a JWK as JSON, or `{\"keys\": […]}`".to_owned());
            None
        }
        Err(problem) => {
            wrong("keys", format!("expected a JWK as JSON, or `{{\"keys\": […]}}`: {problem}"));
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::config::{A2aConfig, Config};
    use serde_json::json;
    use std::collections::BTreeMap;

    /// Settings `a2a.<key>`, or the first error.
    fn load(flags: &[(&str, &str)]) -> Result<A2aConfig, String> {
        let flag = |(key, value): &(&str, &str)| (format!("a2a.{key}"), (*value).to_owned());
        let flags: Vec<(String, String)> = flags.iter().map(flag).collect();
        let loaded = Config::load(None, &BTreeMap::new(), &flags);
        loaded.map(|loaded| loaded.config.a2a).map_err(|errors| errors.0[0].to_string())
    }

    #[test]
    fn agents_are_read_with_their_defaults() {
        let config = load(&[
            ("agents.partner.url", "https://partner.example.com/a2a/clerk"),
            ("agents.partner.key_env", "PARTNER"),
            ("agents.own.url", "http://127.0.0.1:9/card.json"),
            ("agents.own.secret", "s/OWN"),
            ("agents.own.header", "X-Key"),
            ("agents.own.skills", "get_*, find"),
            ("agents.own.timeout", "5s"),
            ("agents.own.deadline", "2h"),
            ("agents.own.repeatable", "true"),
            ("agents.own.keys", r#"{"keys": [{"kty": "OKP", "x": "y"}]}"#),
        ])
        .unwrap();
        let [own, partner] = &config.agents[..] else { panic!("{config:?}") };
        assert_eq!((partner.header.as_str(), partner.prefix.as_str()), ("Authorization", "Bearer "));
        assert_eq!(partner.key_env.as_deref(), Some("PARTNER"));
        let expected = json!({
            "name": "own", "url": "http://127.0.0.1:9/card.json", "headers": {"X-Key": {"$secret": "s/OWN"}},
            "skills": ["get_*", "find"], "timeout": 5, "deadline": 7200, "repeatable": true,
            "keys": [{"kty": "OKP", "x": "y"}],
        });
        assert_eq!(json!(own.agent), expected);
    }

    #[test]
    fn illegal_agents_are_named_with_the_reason() {
        let url = ("agents.a.url", "https://h/a");
        for (flags, part) in [
            (vec![("agents.a.header", "X")], "`a2a.agents.a.url`"),
            (vec![("agents.a.url", "ftp://h")], "expected a URL with `http://`"),
            (vec![("agents.a__b.url", "https://h/")], "single `_`"),
            (vec![url, ("agents.a.timeout", "5m")], "`timeout`: expected 1 to 120 seconds, got 300"),
            (vec![url, ("agents.a.deadline", "soon")], "expected whole seconds"),
            (vec![url, ("agents.a.header", "a b")], "expected a header's name"),
            (vec![url, ("agents.a.header", "X-Key")], "`key_env` or `secret` beside it"),
            (vec![url, ("agents.a.prefix", "Token ")], "`key_env` or `secret` beside it"),
            (vec![url, ("agents.a.key_env", "A"), ("agents.a.header", "A2A-Version")], "`headers.A2A-Version`"),
            (vec![url, ("agents.a.key_env", "A"), ("agents.a.header", "Host")], "`headers.Host`"),
            (vec![url, ("agents.a.secret", "OWN")], "expected the path of a secret"),
            (vec![url, ("agents.a.secret", "s/A"), ("agents.a.key_env", "A")], "got both"),
            (vec![url, ("agents.a.keys", "[]")], "expected a JWK"),
            (vec![url, ("agents.a.keys", "{\"kty\": \"oct\"}")], "`keys[0]`: expected a public key"),
            (vec![url, ("agents.a.nothing", "x")], "nothing"),
        ] {
            let error = load(&flags).unwrap_err();
            assert!(error.contains(part), "{flags:?}: {error}");
        }
    }
}
