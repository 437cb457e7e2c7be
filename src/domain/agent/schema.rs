//! The JSON Schema of agent files, for editors; the parser decides.

use serde_json::Value;

/// JSON Schema of draft 2020-12. The parser refuses all that the schema refuses; a test checks it.
pub const TEXT: &str = include_str!("schema.json");

/// Returns the schema as a value.
pub fn schema() -> Value {
    serde_json::from_str(TEXT).expect("a test reads it")
}

#[cfg(test)]
mod tests {
    use super::super::{AgentConfig, KEYS, UNSUPPORTED_KEYS};
    use super::*;
    use crate::chat::ModelSettings;
    use crate::schema::find_misfits;
    use serde_json::json;
    use std::collections::BTreeSet;

    /// Keys of files that are none of a configuration.
    const BESIDE: [&str; 21] = [
        "id",
        "operation",
        "state",
        "name",
        "llmOperation",
        "url",
        "apiKey",
        "responseFormat",
        "kind",
        "instruction",
        "outputSchema",
        "maxSteps",
        "tokenBudget",
        "timeoutMs",
        "steps",
        "branches",
        "tool",
        "until",
        "maxIterations",
        "output",
        "examples",
    ];

    fn fits(value: &Value) -> bool {
        find_misfits(&schema(), value, 1).unwrap().0.is_empty()
    }

    #[test]
    fn the_schema_has_exactly_the_keys_of_an_agent() {
        assert!(jsonschema::draft202012::meta::is_valid(&schema()));
        let schema = schema();
        let properties = schema["properties"].as_object().unwrap();
        for key in KEYS {
            assert!(properties.contains_key(key), "`{key}` is missing in `src/domain/agent/schema.json`");
        }
        for key in properties.keys() {
            assert!(KEYS.contains(&key.as_str()) || BESIDE.contains(&key.as_str()), "`{key}` is no key of agent files");
        }
        assert!(UNSUPPORTED_KEYS.iter().all(|key| !properties.contains_key(*key)));
    }

    #[test]
    fn every_agent_file_of_the_repository_fits() {
        for name in ["accounts-payable", "vendor-enrichment"] {
            let path = format!("{}/../../config/examples/{name}.toml", env!("CARGO_MANIFEST_DIR"));
            let text = std::fs::read_to_string(path).unwrap();
            let value: Value = serde_json::to_value(text.parse::<toml::Table>().unwrap()).unwrap();
            assert!(fits(&value), "{name}: {:?}", find_misfits(&schema(), &value, 5).unwrap());
        }
    }

    #[test]
    fn it_has_every_setting_of_a_model() {
        let mut settings = json!(ModelSettings::new("x", "y"));
        let given = json!({
            "baseUrl": "https://x", "temperature": 1.0, "topP": 0.5, "stop": ["END"], "seed": 1, "reasoning": "low",
            "toolChoice": "auto", "parallelToolCalls": true, "extra": {"top_k": 3}, "maxTokens": 9, "contextWindow": 99,
            "price": {"input": 1.0, "output": 2.0}, "key": "s/KEY", "headers": {"X-Team": "a", "X-Key": {"$secret": "s/K"}},
            "fallback": [{"provider": "x", "name": "z", "headers": {"X-Auth": {"$secret": "s/K", "prefix": "Bearer "}}}],
        });
        settings.as_object_mut().unwrap().extend(given.as_object().unwrap().clone());
        let parsed: ModelSettings = serde_json::from_value(settings.clone()).unwrap();
        assert_eq!(json!(parsed), settings, "every key is given");
        let schema = schema();
        let properties = schema["$defs"]["modelSettings"]["properties"].as_object().unwrap();
        let [mut known, mut keys] =
            [properties, settings.as_object().unwrap()].map(|map| map.keys().collect::<Vec<_>>());
        known.sort();
        keys.sort();
        assert_eq!(known, keys);
        let value = json!({"model": settings});
        AgentConfig::parse(&value).unwrap();
        assert!(fits(&value), "{:?}", find_misfits(&schema, &value, 5).unwrap());
    }

    /// Blocks of a guide page in TOML or JSON, as values.
    fn snippets(page: &str) -> Vec<Value> {
        let mut found = Vec::new();
        for block in page.split("```").skip(1).step_by(2) {
            let (language, text) = block.split_once('\n').unwrap_or_default();
            let value = match language {
                "toml" => text.parse::<toml::Table>().ok().and_then(|table| serde_json::to_value(table).ok()),
                "json" => serde_json::from_str(text).ok(),
                _ => None,
            };
            found.extend(value);
        }
        found
    }

    #[test]
    fn every_agent_file_of_the_guide_fits() {
        let guide = format!("{}/../guide", env!("CARGO_MANIFEST_DIR"));
        let pages = std::fs::read_dir(guide).unwrap().map(|page| page.unwrap().path());
        let pages = pages.chain([format!("{}/../../README.md", env!("CARGO_MANIFEST_DIR")).into()]);
        let (mut agents, mut keys) = (0, BTreeSet::new());
        for page in pages {
            for snippet in snippets(&std::fs::read_to_string(&page).unwrap()) {
                // Pages also show parts of files.
                let mut whole = snippet.clone();
                if let Some(map) = whole.as_object_mut() {
                    let model = map.entry("model").or_insert_with(|| json!({}));
                    if let Some(model) = model.as_object_mut() {
                        model.entry("provider").or_insert_with(|| "scripted".into());
                        model.entry("name").or_insert_with(|| "echo".into());
                    }
                }
                if AgentConfig::parse(&whole).is_err() {
                    continue;
                }
                agents += 1;
                keys.extend(whole["model"].as_object().into_iter().flat_map(|model| model.keys().cloned()));
                let misfits = find_misfits(&schema(), &whole, 5).unwrap();
                assert!(misfits.0.is_empty(), "{}: {whole}: {misfits:?}", page.display());
            }
        }
        assert!(agents >= 5 && keys.contains("fallback") && keys.contains("headers"), "{agents} {keys:?}");
    }

    #[test]
    fn the_schema_accepts_what_the_parser_accepts() {
        let model = json!({"provider": "scripted", "name": "echo"});
        for value in [
            json!({"model": model}),
            json!({"state": {"config": {"model": model}}, "operation": "llmagent:chat"}),
            json!({"llmOperation": "v/ops/langchain/openai", "model": "gpt-5.4-mini", "responseFormat": "json"}),
            json!({"llmOperation": "v/ops/langchain/xai"}),
            json!({"model": "claude-sonnet-4-5", "url": "https://x", "apiKey": "s/KEY", "name": "Reader"}),
            json!({"kind": "llm", "instruction": "Help.", "model": model, "outputSchema": {"answer": "string"}}),
            json!({"kind": "llm", "model": model, "maxSteps": 3, "tokenBudget": 9, "timeoutMs": 10, "tools": [{"kind": "agent", "agent": "x"}]}),
            json!({"kind": "llm", "instruction": "Help.", "model": model, "prompt": "On {{a}}", "inputSchema": {"a": "string"},
                "examples": [{"input": "x", "output": "y"}]}),
            json!({"kind": "sequential", "inputSchema": {"a": "string"}, "steps": [
                {"ref": "x", "input": {"b": "{{a}}"}}, {"agent": {"id": "y", "kind": "llm", "model": model}, "when": "{{x}}"}
            ], "until": "{{y}} == 1", "maxIterations": 3, "output": {"r": "{{y}}"}}),
            json!({"kind": "parallel", "branches": [{"ref": "x"}, {"ref": "y"}]}),
            json!({"kind": "tool", "tool": {"kind": "local", "name": "add", "params": {"a": 1}}}),
            json!({"pipeline": {"kind": "sequential", "steps": [{"stateKey": "a", "ref": "x"}]}}),
            json!({"model": model, "taskPrompt": "{{topic}}", "inputSchema": {"type": "object", "properties": {"topic": {}}}}),
            json!({"model": model, "state": {"context": ["w/x"]}}),
            json!({"model": model, "tools": [
                {"type": "object", "description": "d", "properties": {"_tool": {"const": "t"}}}, {"_tool": "s", "_delegate": "x"}
            ]}),
            json!({"model": model, "tools": ["v/ops/lattice/read", {"name": "t", "description": "d", "input": {}}]}),
            json!({"model": model, "tools": [
                {"name": "get_order", "description": "d", "input": {"type": "object", "properties": {"id": {}}, "required": ["id"]},
                 "http": {"url": "https://a.example/{id}", "headers": {"X-Key": {"$secret": "s/KEY"}}, "status": {"404": "nothing"}}},
                {"name": "ocr", "description": "d", "jobs": {"queue": "ocr", "output": {"type": "object"}, "deadline": 60}}
            ]}),
            json!({"model": model, "caps": [{"with": "w", "can": "crud"}], "delegable": []}),
            json!({"model": model, "context": ["w/x", {"ref": "w/y", "required": true}], "busy": "replace"}),
            json!({"model": model, "loop": "goalTree", "outputs": {"complete": {"schema": {"type": "object"}}}}),
            json!({"model": model, "contextMapping": [{"key": "a", "source": "session.b"}]}),
            json!({"model": model, "contextMapping": {"greeting": "CONSTANT:hello"}}),
            json!({"model": model, "contextMapping": {
                "declaredKeys": ["user_id"], "constants": {"send": {"limit": 5}}, "entityIdsKey": "ids",
                "toolArgInjection": {"send": {"_auto": false, "to": "user_email"}, "_global": {"tid": "tenant_id"}}
            }}),
            json!({"model": model, "toolArgInjection": {"send": {"to": "user_email"}}, "entityIdsKey": "ids"}),
            json!({"model": model, "limits": {"turns": 1, "tokens": 10, "wallClock": 5, "windDown": true}}),
            json!({"model": {"provider": "x", "name": "y", "price": {"input": 1.0, "output": 2.0}}, "limits": {"cost": 1.0}}),
            json!({"model": {"provider": "x", "name": "y", "price": {"input": 1, "output": 2, "cacheRead": 0.1, "cacheWrite": 2}}}),
            json!({"model": {"provider": "x", "name": "y", "topP": 0.5, "stop": ["END"], "seed": -1, "reasoning": "low"}}),
            json!({"model": {"provider": "x", "name": "y", "reasoning": 2000, "toolChoice": {"tool": "f"}}}),
            json!({"model": {"provider": "x", "name": "y", "toolChoice": "required", "parallelToolCalls": false, "extra": {"top_k": 3}}}),
            json!({"model": model, "resources": {"memory": {}}, "contextBudget": {"bytes": 10000}}),
            json!({"model": model, "session": {"ttl": "30m"}}),
            json!({"model": model, "published": true}),
            json!({"model": model, "published": {"title": "T", "input": {"type": "object"}}}),
            json!({"model": model, "a2a": {}}),
            json!({"model": model, "a2a": {"name": "N", "wholeMessages": true, "skills": [
                {"id": "s", "name": "S", "description": "d", "tags": ["t"], "examples": ["e"]}
            ]}}),
            json!({"model": model, "mcp": [
                {"name": "a", "url": "https://h/", "headers": {"X-Key": {"$secret": "s/K"}}, "tools": ["*"], "timeout": 9},
                {"name": "b", "url": "http://h/", "repeatable": ["y"], "once": ["z"], "revision": "2025-11-25"}
            ]}),
            json!({"model": model, "a2aAgents": [
                {"name": "a", "url": "https://h/", "headers": {"X-Key": {"$secret": "s/K"}}, "skills": ["*"], "timeout": 9},
                {"name": "b", "url": "http://h/", "deadline": 60, "repeatable": true, "keys": [{"kty": "OKP", "x": "y"}]}
            ]}),
        ] {
            AgentConfig::parse(&value).unwrap_or_else(|error| panic!("{value}: {error}"));
            assert!(fits(&value), "{value}: {:?}", find_misfits(&schema(), &value, 5).unwrap());
            let kept = json!(AgentConfig::parse(&value).unwrap());
            assert!(fits(&kept), "{kept}");
        }
    }

    #[test]
    fn the_parser_refuses_what_the_schema_refuses() {
        let model = json!({"provider": "scripted", "name": "echo"});
        let with = |key: &str, value: Value| json!({"model": model, key: value});
        for value in [
            json!([]),
            json!({}),
            json!({"model": {"provider": "scripted"}}),
            json!({"model": {"provider": "scripted", "name": "echo", "temprature": 1}}),
            json!({"model": {"provider": "x", "name": "y", "key": "sk-123"}}),
            json!({"model": {"provider": "x", "name": "y", "topP": 2}}),
            json!({"model": {"provider": "x", "name": "y", "temperature": -1}}),
            json!({"model": {"provider": "x", "name": "y", "stop": [" "]}}),
            json!({"model": {"provider": "x", "name": "y", "stop": ["a", "b", "c", "d", "e"]}}),
            json!({"model": {"provider": "x", "name": "y", "reasoning": "much"}}),
            json!({"model": {"provider": "x", "name": "y", "toolChoice": {"tool": ""}}}),
            json!({"model": {"provider": "x", "name": "y", "toolChoice": "maybe"}}),
            json!({"model": {"provider": "x", "name": "y", "extra": ["top_k"]}}),
            with("systemPromt", json!("x")),
            with("systemPrompt", json!(1)),
            with("tools", json!("x")),
            with("tools", json!([1])),
            with("tools", json!([{"opration": "x"}])),
            with(
                "tools",
                json!([{"name": "t", "description": "d", "http": {"url": "https://a.example", "effect": "twice"}}]),
            ),
            with("tools", json!([{"name": "t", "description": "d", "http": {"method": "GET"}}])),
            with("tools", json!([{"name": "t", "description": "d", "jobs": {"queue": "q", "deadline": 0}}])),
            with("defaultTools", json!("yes")),
            with("context", json!([1])),
            with("contextBudget", json!({"bytes": 0})),
            with("contextBudget", json!({"chars": 1})),
            with("caps", json!([{"with": "w"}])),
            with("caps", json!("all")),
            with("concurrency", json!(0)),
            with("concurrency", json!(1.5)),
            with("mailbox", json!(0)),
            with("busy", json!("drop")),
            with("completion", json!("maybe")),
            with("limits", json!({"turns": 0})),
            with("limits", json!({"minutes": 3})),
            with("limits", json!({"cost": -1})),
            with("contextMapping", json!(3)),
            with("toolArgInjection", json!({"t": 1})),
            with("entityIdsRequired", json!("yes")),
            with("entityIdsKey", json!("")),
            with("operation", json!("x:y")),
            with("state", json!({"cursor": 1})),
            with("state", json!({"config": 1})),
            with("session", json!({"ttl": 30})),
            with("session", json!({"tll": "30m"})),
            with("session", json!("30m")),
            with("outputs", json!({"done": {"schema": {}}})),
            with("outputs", json!({"complete": {}})),
            with("loop", json!("tree")),
            with("llmOperation", json!(1)),
            with("kind", json!("sequential")),
            with("responseFormat", json!("xml")),
            with("maxSteps", json!(0)),
            with("visibility", json!("x")),
            with("a2a", json!(true)),
            with("a2a", json!({"skill": []})),
            with("a2a", json!({"skills": [{"id": "s"}]})),
            with("a2a", json!({"name": ""})),
        ] {
            assert!(!fits(&value), "the schema takes {value}");
            assert!(AgentConfig::parse(&value).is_err(), "the parser takes {value}");
        }
    }

    #[test]
    fn the_parser_refuses_steps_and_agents_that_the_schema_refuses() {
        let model = json!({"provider": "scripted", "name": "echo"});
        let with = |key: &str, value: Value| json!({"model": model, key: value});
        for value in [
            with("a2aAgents", json!([{"name": "a"}])),
            with("a2aAgents", json!([{"name": "a", "url": "https://h/", "timeout": 0}])),
            with("kind", json!("image")),
            with("prompt", json!("On {{a}}")),
            with("inputSchema", json!("text")),
            with("taskPrompt", json!(1)),
            json!({"pipeline": {"kind": "loop"}}),
            json!({"pipeline": {"kind": "sequential", "steps": [{"ref": "x"}]}}),
            json!({"kind": "sequential", "steps": {}}),
        ] {
            assert!(!fits(&value), "the schema takes {value}");
            assert!(AgentConfig::parse(&value).is_err(), "the parser takes {value}");
        }
    }
}
