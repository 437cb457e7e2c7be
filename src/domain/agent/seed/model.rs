//! Models of Covia: an operation names the provider, or the model's own name does.

use super::config_map::{ConfigMap, invalid};
use crate::decode::DataError;
use crate::lattice::catalog::catalog_path;
use crate::lattice::value::type_name;
use serde_json::{Map, Value};

/// Covia's operations that call a model, with the provider here and the model that each uses when none is named.
const OPERATIONS: [(&str, &str, &str); 6] = [
    ("v/ops/langchain/openai", "openai", "gpt-5.4-mini"),
    ("v/ops/langchain/anthropic", "anthropic", "claude-sonnet-4-5"),
    ("v/ops/langchain/ollama", "ollama", "qwen"),
    ("v/ops/langchain/xai", "xai", "grok-4"),
    ("v/ops/langchain/gemini", "gemini", "gemini-2.5-flash"),
    ("v/ops/langchain/deepseek", "deepseek", "deepseek-chat"),
];

/// Beginnings of model names, and the providers of those models.
const FAMILIES: [(&str, &str); 16] = [
    ("gpt-", "openai"),
    ("chatgpt-", "openai"),
    ("o1", "openai"),
    ("o3", "openai"),
    ("o4", "openai"),
    ("claude-", "anthropic"),
    ("gemini-", "gemini"),
    ("grok-", "xai"),
    ("deepseek-", "deepseek"),
    ("command-", "cohere"),
    ("glm-", "zai"),
    ("llama", "ollama"),
    ("qwen", "ollama"),
    ("mistral", "ollama"),
    ("gemma", "ollama"),
    ("phi", "ollama"),
];

/// Keys beside `model`, and the keys inside of it that mean the same.
const OUTER_KEYS: [(&str, &str); 2] = [("url", "baseUrl"), ("apiKey", "key")];

/// Moves `model` as text, `llmOperation`, `url` and `apiKey` into the map of a model.
pub(super) fn set_model(config: &mut ConfigMap) -> Result<(), DataError> {
    let operation = config.shift_remove("llmOperation").map(|given| operation_model(&given)).transpose()?;
    let mut model = match (config.get("model"), operation) {
        (Some(Value::String(name)), Some((provider, _))) => model_map(provider, name),
        (Some(Value::String(name)), None) => parse_model(name)?,
        (None, Some((provider, default))) => model_map(provider, default),
        (Some(Value::Object(_)), Some(_)) => {
            return invalid("`llmOperation`: `model` names its provider already, leave one out");
        }
        (Some(Value::Object(model)), None) => model.clone(),
        // The decoder of configurations names the expected type.
        (Some(_), _) => return Ok(()),
        (None, None) => Map::new(),
    };
    for (key, inside) in OUTER_KEYS {
        let Some(value) = config.shift_remove(key) else { continue };
        if model.is_empty() {
            return invalid(format!("`{key}`: belongs to a `model`, name one"));
        }
        if model.insert(inside.into(), value).is_some() {
            return invalid(format!("`{key}`: `model.{inside}` says it already, leave one out"));
        }
    }
    name_fallbacks(&mut model)?;
    if !model.is_empty() {
        config.insert("model".into(), Value::Object(model));
    }
    Ok(())
}

/// Replaces fallbacks that are texts by the maps that they stand for.
fn name_fallbacks(model: &mut Map<String, Value>) -> Result<(), DataError> {
    let Some(Value::Array(fallback)) = model.get_mut("fallback") else { return Ok(()) };
    for entry in fallback {
        if let Value::String(name) = entry {
            *entry = Value::Object(parse_model(name)?);
        }
    }
    Ok(())
}

fn model_map(provider: &str, name: &str) -> Map<String, Value> {
    [("provider", provider), ("name", name)].into_iter().map(|(key, text)| (key.into(), text.into())).collect()
}

fn operation_model(given: &Value) -> Result<(&'static str, &'static str), DataError> {
    let Some(name) = given.as_str() else {
        return invalid(format!("`llmOperation`: expected text, got {}", type_name(given)));
    };
    let path = catalog_path(name);
    if let Some((_, provider, default)) = OPERATIONS.iter().find(|(operation, ..)| *operation == path) {
        return Ok((provider, default));
    }
    let known: Vec<_> = OPERATIONS.iter().map(|(path, ..)| format!("`{path}`")).collect();
    invalid(format!(
        "`llmOperation`: no model answers under `{name}`, expected one of {}; or `model = {{provider, name}}`",
        known.join(", ")
    ))
}

/// Returns the model of `provider/name`, or of a name that its family gives away.
fn parse_model(name: &str) -> Result<Map<String, Value>, DataError> {
    if let Some((provider, name)) =
        name.split_once('/').filter(|(provider, name)| !provider.is_empty() && !name.is_empty())
    {
        return Ok(model_map(provider, name));
    }
    let family = FAMILIES.iter().find(|(begin, _)| {
        // `o3-mini` is of the family `o3`, `o365` isn't.
        let rest = name.strip_prefix(begin);
        rest.is_some_and(|rest| begin.len() > 2 || rest.is_empty() || rest.starts_with('-'))
    });
    let Some((_, provider)) = family else {
        return invalid(format!(
            "`model`: no provider is known by the name `{name}`, write `PROVIDER/{name}` or `{{provider, name}}`"
        ));
    };
    Ok(model_map(provider, name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn settled(value: &Value) -> Result<Value, String> {
        let mut config = value.as_object().unwrap().clone();
        set_model(&mut config).map_err(|error| error.to_string())?;
        Ok(Value::Object(config))
    }

    #[test]
    fn the_provider_is_named_by_the_operation_or_by_the_model() {
        for (given, provider, name) in [
            (json!({"llmOperation": "v/ops/langchain/openai", "model": "gpt-5.4-mini"}), "openai", "gpt-5.4-mini"),
            (json!({"llmOperation": "langchain:anthropic"}), "anthropic", "claude-sonnet-4-5"),
            (json!({"llmOperation": "langchain/ollama", "model": "gpt-oss"}), "ollama", "gpt-oss"),
            (json!({"llmOperation": "langchain:gemini"}), "gemini", "gemini-2.5-flash"),
            (json!({"llmOperation": "v/ops/langchain/deepseek"}), "deepseek", "deepseek-chat"),
            (json!({"model": "gpt-5.4-mini"}), "openai", "gpt-5.4-mini"),
            (json!({"model": "o3"}), "openai", "o3"),
            (json!({"model": "o4-mini"}), "openai", "o4-mini"),
            (json!({"model": "claude-sonnet-4-5"}), "anthropic", "claude-sonnet-4-5"),
            (json!({"model": "gemini-2.5-flash"}), "gemini", "gemini-2.5-flash"),
            (json!({"model": "qwen3:8b"}), "ollama", "qwen3:8b"),
            (json!({"model": "scripted/echo"}), "scripted", "echo"),
            (json!({"model": "local/meta/llama"}), "local", "meta/llama"),
        ] {
            assert_eq!(settled(&given), Ok(json!({"model": {"provider": provider, "name": name}})), "{given}");
        }
    }

    #[test]
    fn address_and_key_beside_a_model_belong_to_it() {
        let given = json!({"model": "deepseek-chat", "url": "https://api.deepseek.com/v1", "apiKey": "s/DS"});
        let model = json!({
            "provider": "deepseek", "name": "deepseek-chat", "baseUrl": "https://api.deepseek.com/v1", "key": "s/DS"
        });
        assert_eq!(settled(&given), Ok(json!({"model": model})));
        assert_eq!(settled(&json!({"model": model})), Ok(json!({"model": model})));
        assert_eq!(settled(&json!({"tools": []})), Ok(json!({"tools": []})));
    }

    #[test]
    fn fallbacks_are_named_as_models_are() {
        let given =
            json!({"model": {"provider": "x", "name": "y", "fallback": ["gpt-5.4-mini", {"provider": "z"}, 1]}});
        let fallback = json!([{"provider": "openai", "name": "gpt-5.4-mini"}, {"provider": "z"}, 1]);
        assert_eq!(settled(&given), Ok(json!({"model": {"provider": "x", "name": "y", "fallback": fallback}})));
        let error = settled(&json!({"model": {"provider": "x", "name": "y", "fallback": ["wonder-1"]}})).unwrap_err();
        assert!(error.contains("no provider is known by the name `wonder-1`"), "{error}");
    }

    #[test]
    fn a_manifest_without_a_model_is_refused() {
        for (given, expected) in [
            (json!({"model": "wonder-1"}), "no provider is known by the name `wonder-1`, write `PROVIDER/wonder-1`"),
            (json!({"model": "o365"}), "no provider is known"),
            (json!({"model": ""}), "no provider is known"),
            (json!({"model": "/x"}), "no provider is known"),
            (json!({"llmOperation": "v/test/ops/llm"}), "no model answers under `v/test/ops/llm`, expected one of"),
            (json!({"llmOperation": 1}), "`llmOperation`: expected text, got"),
            (
                json!({"llmOperation": "langchain:openai", "model": {"provider": "x", "name": "y"}}),
                "`llmOperation`: `model` names its provider already",
            ),
            (json!({"url": "https://x"}), "`url`: belongs to a `model`"),
            (
                json!({"model": {"provider": "x", "name": "y", "baseUrl": "https://y"}, "url": "https://x"}),
                "`url`: `model.baseUrl` says it already",
            ),
        ] {
            let error = settled(&given).unwrap_err();
            assert!(error.contains(expected), "{given}: {error}");
        }
    }
}
