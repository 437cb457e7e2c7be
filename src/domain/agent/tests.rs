//! Configurations: defaults, mistakes and what they mean.

use super::*;

fn error(value: &Value) -> String {
    AgentConfig::parse(value).unwrap_err().to_string()
}

#[test]
fn the_smallest_configuration_gets_the_defaults() {
    let config = AgentConfig::parse(&json!({"model": {"provider": "scripted", "name": "echo"}})).unwrap();
    assert!(config.default_tools);
    assert_eq!((config.concurrency, config.mailbox, config.limits.turns), (8, 1000, 50));
    assert_eq!(config.caps, None);
}

#[test]
fn mistakes_are_named() {
    let model = json!({"provider": "scripted", "name": "echo"});
    for (value, expected) in [
        (json!([]), "expected an agent configuration as a map, got array"),
        (json!({"systemPromt": "x", "model": model}), "unknown key `systemPromt`, did you mean `systemPrompt`"),
        (json!({"zzz": 1, "model": model}), "unknown key `zzz`"),
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
            json!({"model": {"provider": "x", "name": "y", "contextWindow": 100, "maxTokens": 200}}),
            "`model.contextWindow`: expected more than `model.maxTokens` (200), got 100",
        ),
        (
            json!({"model": model, "contextBudget": {"bytes": 0}}),
            "`contextBudget.bytes`: expected 4096 to 4000000, got 0",
        ),
        (json!({"model": model, "concurrency": 0}), "`concurrency`: expected at least 1, got 0"),
    ] {
        assert_eq!(error(&value), expected);
    }
    assert!(error(&json!({"model": model, "busy": "drop"})).contains("unknown variant `drop`"));
    assert!(error(&json!({"model": model, "context": [{"rfe": "w/x"}]})).contains("unknown field `rfe`"));
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
    assert!(config.uses_values() && config.injects() && config.strict_placeholders);
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
        assert_eq!((config.uses_values(), config.injects()), (uses, false), "{key} {value}");
    }
}
