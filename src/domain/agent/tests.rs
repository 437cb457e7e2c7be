//! Configurations: defaults, mistakes and what they mean.

use super::*;
use serde_json::json;

fn error(value: &Value) -> String {
    AgentConfig::parse(value).unwrap_err().to_string()
}

#[test]
fn the_smallest_configuration_gets_the_defaults() {
    let config = AgentConfig::parse(&json!({"model": {"provider": "scripted", "name": "echo"}})).unwrap();
    assert!(config.default_tools);
    assert_eq!((config.concurrency, config.mailbox, config.limits.turns), (None, 1000, 50));
    assert_eq!(config.caps, None);
}

#[test]
fn mistakes_are_named() {
    let model = json!({"provider": "scripted", "name": "echo"});
    for (value, expected) in [
        (json!([]), "expected an agent configuration as a map, got array"),
        (json!({"systemPromt": "x", "model": model}), "unknown key `systemPromt`, did you mean `systemPrompt`"),
        (
            json!({"model": model, "tools": [{"name": "t", "description": "d", "scopes": {"enum": ["input"], "approval": "ask"}}]}),
            "`tools[0].scopes.approval`: a tool without `operation` and `delegate` hands nothing on; set `approval` of the tool",
        ),
        (json!({"visibility": "all", "model": model}), "key `visibility` is not supported by this version"),
        (json!({"outputs": {"complete": {}}, "model": model}), "`outputs.complete`: missing field `schema`"),
        (
            json!({"outputs": {"complete": {"schema": 1}}, "model": model}),
            "`outputs.complete.schema`: expected a JSON Schema as a map, got 1",
        ),
        (json!({"tools": ["subgoal"], "model": model}), "`tools[0]`: `subgoal` needs `loop = \"goalTree\"`"),
        (json!({"loop": "tree", "model": model}), "`loop`: unknown variant `tree`, expected `chat` or `goalTree`"),
        (json!({}), "missing field `model`"),
        (
            json!({"operation": "v/ops/llmagent/chat", "systemPrompt": "You summarise documents."}),
            "missing field `model`: there is no default here; Covia's is `llmOperation: \"v/ops/langchain/openai\"`",
        ),
        (
            json!({"model": {"provider": "x", "name": "y", "contextWindow": 100, "maxTokens": 200}}),
            "`model.contextWindow`: expected more than `model.maxTokens` (200), got 100",
        ),
        (
            json!({"model": model, "contextBudget": {"bytes": 0}}),
            "`contextBudget.bytes`: expected 4096 to 4000000, got 0",
        ),
        (json!({"model": model, "concurrency": 0}), "`concurrency`: expected at least 1, got 0"),
        (
            json!({"model": model, "tools": (0..513).map(|n| format!("v/ops/x/{n}")).collect::<Vec<_>>()}),
            "`tools`: expected at most 512 entries, got 513; `more_tools` finds the others",
        ),
        (
            json!({"model": model, "caps": vec![json!({"with": "w", "can": "crud"}); 1025]}),
            "`caps`: expected at most 1024 capabilities, got 1025",
        ),
    ] {
        assert_eq!(error(&value), expected);
    }
    let far = error(&json!({"zzz": 1, "model": model}));
    assert!(far.starts_with("unknown key `zzz`; known are `description`, `systemPrompt`, `model`, "), "{far}");
    assert!(error(&json!({"model": model, "busy": "drop"})).contains("unknown variant `drop`"));
    assert!(error(&json!({"model": model, "context": [{"rfe": "w/x"}]})).contains("unknown field `rfe`"));
}

#[test]
fn each_fallback_is_checked_like_the_model() {
    let with = |fallback: Value| json!({"model": {"provider": "scripted", "name": "echo", "fallback": fallback}});
    let config = AgentConfig::parse(&with(json!(["openai/a", {"provider": "x", "name": "b", "topP": 1}]))).unwrap();
    let ids: Vec<_> = config.model.in_order().map(ModelSettings::id).collect();
    assert_eq!(ids, ["scripted/echo", "openai/a", "x/b"]);
    let one = json!({"provider": "openai", "name": "a"});
    let and = |key: &str, value: Value| {
        let mut model = one.clone();
        model[key] = value;
        with(json!([one, model]))
    };
    for (value, expected) in [
        (with(json!([one, one, one, one, one])), "`model.fallback`: expected at most 4 models, got 5"),
        (
            and("fallback", json!([one])),
            "`model.fallback[1].fallback`: a fallback has none of its own, list all models in `model.fallback`",
        ),
        (and("topP", json!(2)), "`model.fallback[1].topP`: expected a number from 0 to 1, got 2"),
        (and("extra", json!({"messages": []})), "`model.fallback[1].extra.messages`: Trellis writes this key itself"),
        (and("key", json!("sk-1")), "`model.fallback[1].key`: `key` expected the name of a secret"),
    ] {
        let error = error(&value);
        assert!(error.starts_with(expected), "{error}");
    }
    let priced = json!({"provider": "x", "name": "y", "price": {"input": 1, "output": 1}, "fallback": [one]});
    let error = error(&json!({"model": priced, "limits": {"cost": 1.0}}));
    assert_eq!(error, "`limits.cost`: `openai/a` needs a `price`, as `{input, output}` in dollars per million tokens");
}

#[test]
fn values_are_read_in_every_form_and_kept_in_one() {
    let model = json!({"provider": "scripted", "name": "echo"});
    let seed = json!({
        "model": model,
        "contextMapping": {
            "user_email": {"source": "session.user_email", "fallback": "nobody@example.org"},
            "greeting": "CONSTANT:hello",
            "toolArgInjection": {"send_email": {"from": "user_email"}},
        },
        "toolArgInjection": {"send_email": {"tenant_id": "tenant_id"}},
        "entityIdsRequired": true,
        "strictPlaceholders": true,
    });
    let config = AgentConfig::parse(&seed).unwrap();
    assert_eq!(config.context_mapping.rows().len(), 2);
    assert_eq!(
        json!(config.tool_arg_injection),
        json!({"send_email": {"from": "user_email", "tenant_id": "tenant_id"}})
    );
    assert_eq!((config.entity_ids_required, config.entity_ids_key.as_str()), (true, "entity_ids"));
    assert!(config.uses_values() && config.has_turn_tools() && config.strict_placeholders);
    let kept = serde_json::to_value(&config).unwrap();
    assert_eq!(serde_json::from_value::<AgentConfig>(kept.clone()).unwrap(), config);
    assert_eq!(AgentConfig::parse(&kept).unwrap(), config);
    for (key, value, expected) in [
        (
            "contextMapping",
            json!([{"key": "a", "source": "b"}, {"key": "c", "source": "_glob"}]),
            "`contextMapping[1].source`: unknown source",
        ),
        (
            "contextMapping",
            json!({"toolArgInjection": {"t": 1}}),
            "`contextMapping.toolArgInjection.t`: expected a map",
        ),
        ("toolArgInjection", json!({"t": {"a": 1}}), "`toolArgInjection.t.a`: expected a key"),
        ("entityIdsKey", json!(""), "`entityIdsKey`: expected a key"),
        ("entityIdsRequired", json!("yes"), "expected a boolean"),
    ] {
        let error = error(&json!({"model": model, key: value}));
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn values_are_needed_where_something_names_them() {
    let model = json!({"provider": "scripted", "name": "echo"});
    for (key, value, uses) in [
        ("systemPrompt", json!("Hello"), false),
        ("systemPrompt", json!("Hello ${user.name}"), true),
        ("context", json!(["Hello {{user.name}}"]), true),
        ("context", json!(["w/notes"]), false),
        ("contextMapping", json!({"a": 1}), true),
    ] {
        let config = AgentConfig::parse(&json!({"model": model, key: value})).unwrap();
        assert_eq!((config.uses_values(), config.has_turn_tools()), (uses, false), "{key} {value}");
    }
}

#[test]
fn an_agent_that_answers_and_calls_nothing_has_a_plain_prompt() {
    let of = |keys: Value| {
        let mut config = json!({"model": {"provider": "scripted", "name": "echo"}, "defaultTools": false});
        config.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
        AgentConfig::parse(&config).map(|config| config.prompt_style())
    };
    let typed = json!({"complete": {"schema": {"type": "object"}}});
    for (keys, expected) in [
        (json!({}), PromptStyle::Plain),
        (json!({"tools": []}), PromptStyle::Plain),
        (json!({"prompt": "full"}), PromptStyle::Full),
        (json!({"completion": "explicit"}), PromptStyle::Full),
        (json!({"tools": ["lattice/read"]}), PromptStyle::Full),
        (json!({"loop": "goalTree"}), PromptStyle::Full),
        (json!({"outputs": typed}), PromptStyle::Plain),
        (json!({"outputs": typed, "prompt": "full"}), PromptStyle::Full),
        (json!({"outputs": typed, "tools": ["lattice/read"]}), PromptStyle::Full),
        (json!({"outputs": typed, "defaultTools": true}), PromptStyle::Full),
        (json!({"outputs": typed, "loop": "goalTree"}), PromptStyle::Full),
        (json!({"prompt": "plain"}), PromptStyle::Plain),
    ] {
        assert_eq!(of(keys.clone()).unwrap(), expected, "{keys}");
    }
    let error = of(json!({"prompt": "plain", "loop": "goalTree"})).unwrap_err().to_string();
    assert!(error.contains("`prompt`: expected `full` with `loop = \"goalTree\"`"), "{error}");
    let error = of(json!({"prompt": "short"})).unwrap_err().to_string();
    assert!(error.contains("`full`") && error.contains("`plain`"), "{error}");
}

#[test]
fn schemas_that_no_provider_takes_are_refused_at_once() {
    let tool = |input: Value| json!({"tools": [{"name": "note", "description": "d", "input": input}]});
    let output = |key: &str, schema: Value| json!({"outputs": {key: {"schema": schema}}});
    let circle = json!({"type": "object", "properties": {"a": {"$ref": "#/properties/a"}}});
    for provider in ["openai", "openai_resp", "anthropic", "gemini", "ollama", "scripted"] {
        let parse = |mut config: Value| {
            config["model"] = json!({"provider": provider, "name": "m"});
            AgentConfig::parse(&config).map(|_| ()).map_err(|wrong| wrong.to_string())
        };
        for (config, place, reason) in [
            (tool(json!({"type": "array"})), "tools[0].input", "at `#`: arguments are a map"),
            (tool(circle.clone()), "tools[0].input", "at `#/properties/a`: "),
            (output("complete", circle.clone()), "outputs.complete.schema", "at `#/properties/"),
            (output("fail", circle.clone()), "outputs.fail.schema", "at `#/properties/"),
        ] {
            let error = parse(config.clone()).unwrap_err();
            let expected = format!("`{place}` can't be offered to a model of `{provider}`: {reason}");
            assert!(error.contains(&expected), "{config}: {error}");
        }
        for config in [
            tool(json!({"anyOf": [{"properties": {"a b": {"type": "array"}}}, {"type": "string"}]})),
            output("complete", json!({"type": ["array", "string"]})),
            output("fail", json!({"oneOf": [{"type": "object"}, {"const": 3}]})),
        ] {
            assert_eq!(parse(config.clone()), Ok(()), "{config}");
        }
    }
}

/// Every field of a schema of a map, with the way to it.
fn fields(schema: &Value, way: &[String], found: &mut Vec<Vec<String>>) {
    for (key, field) in schema["properties"].as_object().into_iter().flatten() {
        let way: Vec<_> = way.iter().cloned().chain([key.clone()]).collect();
        fields(field, &way, found);
        let items: Vec<_> = way.iter().cloned().chain(["0".to_owned()]).collect();
        fields(&field["items"], &items, found);
        found.push(way);
    }
    for form in schema["anyOf"].as_array().into_iter().flatten() {
        fields(form, way, found);
    }
}

/// What needs `value` at the end of a way, and nothing else.
fn on_the_way(way: &[String], value: Value) -> Value {
    way.iter().rev().fold(value, |inner, key| if key == "0" { json!([inner]) } else { json!({key: inner}) })
}

#[test]
fn a_wrong_type_in_any_field_is_reported_with_its_place() {
    let mut ways = Vec::new();
    fields(&schema::schema(), &[], &mut ways);
    assert!(ways.len() > 80, "{}", ways.len());
    let is_a_type = |word: &str| {
        let humps = word.chars().filter(char::is_ascii_uppercase).count();
        word.starts_with(|c: char| c.is_ascii_uppercase()) && humps > 1 && word.chars().any(|c| c.is_ascii_lowercase())
            || ["u8", "u16", "u32", "u64", "usize", "i32", "i64", "f64", "struct", "tuple"].contains(&word)
    };
    let mut refused = 0;
    for way in ways {
        for value in [json!(7.5), json!("x y"), json!(true), json!([[7]]), json!({"x": {"y": []}}), json!([{}])] {
            let mut config = on_the_way(&way, value);
            if way[0] != "model" && way[0] != "llmOperation" {
                config["model"] = json!({"provider": "scripted", "name": "echo"});
            }
            let Err(wrong) = AgentConfig::parse(&config) else { continue };
            refused += 1;
            let text = wrong.to_string();
            let named = text.split(|c: char| !c.is_alphanumeric()).find(|word| is_a_type(word));
            assert!(named.is_none() && !text.contains("enum "), "{config}: {text}");
            // Other spellings are said by the key that they stand for.
            let placed = text.contains('`');
            assert!(placed, "{config}: {text}");
        }
    }
    assert!(refused > 300, "{refused}");
}

#[test]
fn errors_name_the_expectation_and_the_nearest_form() {
    let model = json!({"provider": "scripted", "name": "echo"});
    for (key, value, expected) in [
        (
            "contextBudget",
            json!(8000),
            "`contextBudget`: expected a map with `bytes` and `tokens`, got number 8000, did you mean `{\"bytes\":8000}`",
        ),
        ("contextBudget", json!({"bytes": "8000"}), "got text \"8000\", did you mean `8000`"),
        ("defaultTools", json!("no"), "`defaultTools`: expected a boolean, got text \"no\", did you mean `false`"),
        (
            "tools",
            json!("v/ops/json/merge"),
            "`tools`: expected a list, got text \"v/ops/json/merge\", did you mean `[",
        ),
        (
            "session",
            json!("30m"),
            "`session`: expected a map with `ttl`, got text \"30m\", did you mean `{\"ttl\":\"30m\"}`",
        ),
        (
            "limits",
            json!(5),
            "`turns`, `tokens`, `cost`, `session`, `wallClock`, `toolTimeout` and `windDown`, got number 5, did you mean `{\"turns\":5}`",
        ),
        ("systemPrompt", json!(5), "`systemPrompt`: expected a string, got number 5, did you mean `\"5\"`"),
    ] {
        let error = error(&json!({"model": model, key: value}));
        assert!(error.contains(expected), "{error}");
    }
    let wrong = AgentConfig::parse(&json!({"model": model, "contextBudget": {"bytes": 1}})).unwrap_err();
    assert_eq!(wrong.pointer, "/contextBudget/bytes");
    let facts = (wrong.fact.expected.as_deref(), wrong.fact.found.as_deref());
    assert_eq!(facts, (Some("4096 to 4000000"), Some("1")));
}
