//! The setting `model.extra`: fields of a body that Trellis doesn't know.

use super::EncodeError;
use serde_json::{Map, Value};

/// Fields that `extra` may never set: they decide what is asked, of which model, what it costs and how the reply is
/// read. They are compared without case and `_`, because some providers read both spellings.
const OWN_KEYS: [&str; 48] = [
    "model",
    "models",
    "route",
    "messages",
    "input",
    "instructions",
    "prompt",
    "contents",
    "systeminstruction",
    "system",
    "tools",
    "toolchoice",
    "toolconfig",
    "functions",
    "functioncall",
    "plugins",
    "websearchoptions",
    "mcpservers",
    "container",
    "stream",
    "streamoptions",
    "n",
    "bestof",
    "responseformat",
    "text",
    "outputconfig",
    "outputformat",
    "store",
    "background",
    "previousresponseid",
    "conversation",
    "cachedcontent",
    "maxtokens",
    "maxcompletiontokens",
    "maxoutputtokens",
    "maxnewtokens",
    "npredict",
    "numpredict",
    "maxtokenstosample",
    "servicetier",
    "speed",
    "include",
    "modalities",
    "audio",
    "prediction",
    "provideroptions",
    "agent",
    "fallbacks",
];
/// Fields of `generationConfig` that `extra` may never set.
const OWN_GENERATION_KEYS: [&str; 6] = [
    "maxoutputtokens",
    "candidatecount",
    "responsemimetype",
    "responseschema",
    "responsejsonschema",
    "responsemodalities",
];

/// Normalises a key as providers compare it: lower case, without `_`.
fn normalise_key(key: &str) -> String {
    key.chars().filter(|c| *c != '_').flat_map(char::to_lowercase).collect()
}

/// Checks that `extra` sets no field that Trellis writes itself.
pub fn check(extra: &Map<String, Value>) -> Result<(), EncodeError> {
    let refused = |key: String| Err(EncodeError::OwnKey { key });
    if let Some(key) = extra.keys().find(|key| OWN_KEYS.contains(&normalise_key(key).as_str())) {
        return refused(key.clone());
    }
    let generation = extra.iter().filter(|(key, _)| normalise_key(key) == "generationconfig");
    let inside = generation.filter_map(|(key, value)| Some((key, value.as_object()?)));
    let mut keys = inside.flat_map(|(name, map)| map.keys().map(move |key| (name, key)));
    match keys.find(|(_, key)| OWN_GENERATION_KEYS.contains(&normalise_key(key).as_str())) {
        Some((name, key)) => refused(format!("{name}.{key}")),
        None => Ok(()),
    }
}

/// Merges `extra` into a body. Maps are merged field by field; any other field that the body has already is an error.
pub(super) fn merge(body: &mut Value, extra: &Map<String, Value>) -> Result<(), EncodeError> {
    check(extra)?;
    let Some(body) = body.as_object_mut() else { return Ok(()) };
    merge_at("", body, extra)
}

fn merge_at(place: &str, body: &mut Map<String, Value>, extra: &Map<String, Value>) -> Result<(), EncodeError> {
    for (key, value) in extra {
        match (body.get_mut(key), value) {
            (None, _) => {
                body.insert(key.clone(), value.clone());
            }
            (Some(Value::Object(inside)), Value::Object(value)) => {
                merge_at(&format!("{place}{key}."), inside, value)?;
            }
            (Some(_), _) => return Err(EncodeError::OwnKey { key: format!("{place}{key}") }),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn keys_are_merged_and_those_of_ours_refused() {
        let check = |extra: Value| {
            let mut body = json!({"model": "m", "temperature": 1, "thinking": {"type": "enabled"}});
            merge(&mut body, extra.as_object().unwrap()).map(|()| body).map_err(|error| error.to_string())
        };
        let merged = json!({"model": "m", "temperature": 1, "thinking": {"type": "enabled", "a": 1}, "top_k": 3});
        assert_eq!(check(json!({"thinking": {"a": 1}, "top_k": 3})), Ok(merged));
        for (extra, key) in [
            (json!({"model": "x"}), "model"),
            (json!({"max_tokens": 9}), "max_tokens"),
            (json!({"temperature": 0}), "temperature"),
            (json!({"thinking": {"type": "disabled"}}), "thinking.type"),
            (json!({"generationConfig": {"candidateCount": 9}}), "generationConfig.candidateCount"),
            (json!({"generation_config": {"candidate_count": 9}}), "generation_config.candidate_count"),
            (json!({"system_instruction": "x"}), "system_instruction"),
            (json!({"MaxTokens": 9}), "MaxTokens"),
            (json!({"service_tier": "priority"}), "service_tier"),
        ] {
            let expected = format!("`model.extra.{key}`: Trellis writes this key itself; use the setting of the agent");
            assert_eq!(check(extra), Err(expected));
        }
    }
}
