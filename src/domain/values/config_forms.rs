//! The forms in which a configuration writes `contextMapping` and `toolArgInjection`, and their stored form.

use super::inject::Bindings;
use super::mapping::{ContextMapping, MappingError};
use crate::lattice::value::type_name;
use serde_json::{Map, Value, json};

/// Keys of other systems' `contextMapping` without a meaning here, and what to use instead.
const REFUSED: [(&str, &str); 4] = [
    ("promptVars", "every placeholder is filled in by its key; leave the list out"),
    ("envelopeKeys", "values reach a tool as its arguments, by `toolArgInjection`; leave the list out"),
    ("_auto", "expected it as the `source` of a row, or as `true` or `false` of a tool in `toolArgInjection`"),
    ("_global", "expected it as the `source` of a row, or in the place of a tool in `toolArgInjection`"),
];

/// Settings of an agent that may be written inside `contextMapping`: both spellings, and whether it is a boolean
/// (otherwise it is a key).
const SETTINGS: [(&str, &str, bool); 3] = [
    ("entityIdsRequired", "entity_ids_required", true),
    ("entityIdsKey", "entity_ids_key", false),
    ("strictPlaceholders", "strict_placeholders", true),
];

/// Reads `contextMapping` and `toolArgInjection` in all their forms and replaces them by the stored one. A
/// `contextMapping` that is a map may also hold: `toolArgInjection`, `constants` by tool and argument, `declaredKeys`,
/// each of which is a row with the source `_auto`, and the settings of values. `keys` are those of a configuration.
pub fn normalise(map: &mut Map<String, Value>, keys: &[&str]) -> Result<(), MappingError> {
    let (mut bindings, mut constants) = (Bindings::default(), None);
    if let Some(mut mapping) = map.remove("contextMapping") {
        if let Value::Object(rows) = &mut mapping {
            bindings = take_bindings(rows)?;
            constants = take_constants(rows);
            take_declared(rows)?;
            take_settings(rows, map)?;
            refuse_without_effect(rows)?;
            refuse_keys(rows, keys)?;
        }
        refuse_settings(&mapping)?;
        map.insert("contextMapping".into(), (&ContextMapping::parse("contextMapping", &mapping)?).into());
    }
    if let Some(outside) = map.remove("toolArgInjection") {
        bindings = bindings.merge(Bindings::parse("toolArgInjection", &outside)?)?;
    }
    if let Some(constants) = constants {
        bindings = bindings.overlay(Bindings::constants("contextMapping.constants", &constants)?);
    }
    if !bindings.is_empty() {
        map.insert("toolArgInjection".into(), json!(bindings));
    }
    Ok(())
}

fn form_error(place: impl Into<String>, reason: impl Into<String>) -> MappingError {
    MappingError { place: place.into(), reason: reason.into() }
}

fn take_bindings(rows: &mut Map<String, Value>) -> Result<Bindings, MappingError> {
    let inside = rows.shift_remove("toolArgInjection");
    inside.map_or_else(|| Ok(Bindings::default()), |inside| Bindings::parse("contextMapping.toolArgInjection", &inside))
}

/// Takes the constants by tool and argument. A constant goes before another binding of its argument.
fn take_constants(rows: &mut Map<String, Value>) -> Option<Value> {
    // A row of this name has a text as its source.
    let is_row = |value: &Value| !value.is_object() || value["source"].is_string();
    rows.get("constants").filter(|value| !is_row(value))?;
    rows.shift_remove("constants")
}

fn take_declared(rows: &mut Map<String, Value>) -> Result<(), MappingError> {
    let Some(declared) = rows.shift_remove("declaredKeys") else { return Ok(()) };
    let place = "contextMapping.declaredKeys";
    let Value::Array(keys) = declared else {
        return Err(form_error(place, format!("expected a list of keys, got {}", type_name(&declared))));
    };
    for (at, key) in keys.iter().enumerate() {
        let Value::String(key) = key else {
            return Err(form_error(format!("{place}[{at}]"), format!("expected a key, got {}", type_name(key))));
        };
        rows.entry(key.clone()).or_insert_with(|| "_auto".into());
    }
    Ok(())
}

/// Moves the settings out of the mapping, where each would be a row without effect.
fn take_settings(rows: &mut Map<String, Value>, map: &mut Map<String, Value>) -> Result<(), MappingError> {
    for (key, spelling, is_flag) in SETTINGS {
        for written in [key, spelling] {
            let Some(value) = rows.shift_remove(written) else { continue };
            let place = format!("contextMapping.{written}");
            if (is_flag && !value.is_boolean()) || (!is_flag && !value.is_string()) {
                let expected = if is_flag { "`true` or `false`" } else { "a key" };
                return Err(form_error(place, format!("expected {expected}, got {}", type_name(&value))));
            }
            if map.get(key).is_some_and(|other| *other != value) {
                return Err(form_error(place, format!("the configuration has another `{key}` beside it")));
            }
            map.insert(key.into(), value);
        }
    }
    Ok(())
}

/// Refuses rows that are named like a setting.
fn refuse_settings(mapping: &Value) -> Result<(), MappingError> {
    for (at, row) in mapping.as_array().into_iter().flatten().enumerate() {
        let name = row["key"].as_str().unwrap_or_default();
        if let Some((key, ..)) = SETTINGS.iter().find(|(key, spelling, _)| [*key, *spelling].contains(&name)) {
            let why = format!("`{key}` is a setting of the agent and no value, write it beside `contextMapping`");
            return Err(form_error(format!("contextMapping[{at}].key"), why));
        }
    }
    Ok(())
}

/// Refuses other keys of an agent's configuration inside the mapping, where each would be a constant without effect.
fn refuse_keys(rows: &Map<String, Value>, keys: &[&str]) -> Result<(), MappingError> {
    let is_row = |value: &Value| value.is_string() || value["source"].is_string();
    for (name, _) in rows.iter().filter(|(_, value)| !is_row(value)) {
        let plain = |name: &str| name.replace('_', "").to_lowercase();
        if let Some(key) = keys.iter().find(|key| plain(key) == plain(name)) {
            let why = format!(
                "it is a key of the agent, write `{key}` beside `contextMapping`; a constant of this name is \
                 `{{source: \"CONSTANT:…\"}}`"
            );
            return Err(form_error(format!("contextMapping.{name}"), why));
        }
    }
    Ok(())
}

fn refuse_without_effect(rows: &Map<String, Value>) -> Result<(), MappingError> {
    match REFUSED.iter().find(|(key, _)| rows.contains_key(*key)) {
        Some((key, reason)) => Err(form_error(format!("contextMapping.{key}"), *reason)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: [&str; 5] = ["caps", "concurrency", "model", "defaultTools", "context"];

    fn check(config: &Value, expected: Result<Value, &str>) {
        let Value::Object(mut map) = config.clone() else { panic!("expected a map") };
        match (normalise(&mut map, &KEYS), expected) {
            (Ok(()), Ok(expected)) => {
                assert_eq!(Value::Object(map.clone()), expected, "{config}");
                let kept = map.clone();
                normalise(&mut map, &KEYS).unwrap();
                assert_eq!(map, kept, "what is kept is read again");
            }
            (Err(error), Err(part)) => assert!(error.to_string().starts_with(part), "{config}: {error}"),
            (found, expected) => panic!("{config}: expected {expected:?}, got {found:?}"),
        }
    }

    #[test]
    fn the_sources_spellings_are_kept_in_one_form() {
        let rows = json!({
            "city": "session.city", "declaredKeys": ["user_id", "city"], "entityIdsKey": "shops",
            "constants": {"send": {"limit": 5, "text": "42", "tags": ["a"]}},
            "toolArgInjection": {"send": {"from": "user_email", "_auto": false}, "save": {"_auto": true}, "_global": {"tid": "tenant_id"}}
        });
        let bindings = json!({
            "send": {"from": "user_email", "limit": "CONSTANT:5", "tags": "CONSTANT:[\"a\"]", "text": "CONSTANT:\"42\"", "_auto": false},
            // As stored; it says no more than without it.
            "_global": {"tid": "tenant_id", "_auto": true},
        });
        let mapping = json!([{"key": "city", "source": "session.city"}, {"key": "user_id", "source": "_auto"}]);
        let kept = json!({"entityIdsKey": "shops", "contextMapping": mapping, "toolArgInjection": bindings});
        check(&json!({"contextMapping": rows}), Ok(kept));
        let row = json!({"constants": {"source": "session.c"}});
        let kept = json!({"contextMapping": [{"key": "constants", "source": "session.c"}]});
        check(&json!({"contextMapping": row}), Ok(kept));
    }

    #[test]
    fn settings_of_values_count_inside_and_no_row_has_their_name() {
        for (given, key, value) in [
            ("entityIdsRequired", "entityIdsRequired", json!(true)),
            ("entity_ids_required", "entityIdsRequired", json!(true)),
            ("entityIdsRequired", "entityIdsRequired", json!(false)),
            ("entityIdsKey", "entityIdsKey", json!("shops")),
            ("entity_ids_key", "entityIdsKey", json!("shops")),
            ("strictPlaceholders", "strictPlaceholders", json!(true)),
            ("strict_placeholders", "strictPlaceholders", json!(true)),
        ] {
            let kept = json!({"contextMapping": [], key: value});
            check(&json!({"contextMapping": {given: value}}), Ok(kept.clone()));
            check(
                &json!({"contextMapping": {given: value}, key: value}),
                Ok(json!({key: value, "contextMapping": []})),
            );
            let other = json!({"contextMapping": {given: value}, key: "another"});
            check(&other, Err(&format!("`contextMapping.{given}`: the configuration has another `{key}` beside it")));
            for wrong in [json!("yes, please"), json!({"source": "CONSTANT:true"}), json!(null), json!(1)] {
                if key == "entityIdsKey" && wrong.is_string() {
                    continue;
                }
                check(&json!({"contextMapping": {given: wrong}}), Err(&format!("`contextMapping.{given}`: expected")));
            }
            let row = json!([{"key": "city", "source": "_auto"}, {"key": given, "source": "CONSTANT:true"}]);
            check(
                &json!({"contextMapping": row}),
                Err(&format!("`contextMapping[1].key`: `{key}` is a setting of the agent")),
            );
        }
    }

    #[test]
    fn a_key_of_the_agent_inside_is_refused_unless_it_is_a_row() {
        for (key, value) in [
            ("caps", json!([])),
            ("concurrency", json!(2)),
            ("model", json!({"name": "x"})),
            ("defaultTools", json!(false)),
            ("default_tools", json!(false)),
            ("context", json!(["w/x"])),
        ] {
            let part = format!("`contextMapping.{key}`: it is a key of the agent");
            check(&json!({"contextMapping": {key: value}}), Err(&part));
        }
        let rows = json!({"model": "session.car", "concurrency": {"source": "CONSTANT:2"}, "city": 7});
        let kept = json!([
            {"key": "concurrency", "source": "CONSTANT:2"}, {"key": "city", "source": "CONSTANT:7"},
            {"key": "model", "source": "session.car"}
        ]);
        check(&json!({"contextMapping": rows}), Ok(json!({"contextMapping": kept})));
    }

    #[test]
    fn settings_without_effect_are_refused_by_name() {
        let of = |key: &str, value: Value| json!({"contextMapping": {key: value}});
        for key in ["promptVars", "envelopeKeys"] {
            check(&of(key, json!(["a"])), Err(&format!("`contextMapping.{key}`: ")));
        }
        check(&of("_auto", json!(true)), Err("`contextMapping._auto`: expected it as the `source` of a row"));
        check(&of("_global", json!({"a": "b"})), Err("`contextMapping._global`: expected it as the `source` of a row"));
        check(
            &of("declaredKeys", json!("a")),
            Err("`contextMapping.declaredKeys`: expected a list of keys, got string"),
        );
        check(&of("declaredKeys", json!([1])), Err("`contextMapping.declaredKeys[0]`: expected a key, got number"));
        check(&of("constants", json!({"t": 1})), Err("`contextMapping.constants.t`: expected a map, got number"));
        check(
            &of("constants", json!({"t": {"a": null}})),
            Err("`contextMapping.constants.t.a`: expected a value, got null"),
        );
        let twice = json!({"constants": {"t": {"a": 1}}, "toolArgInjection": {"t": {"a": "k"}}});
        let constant = json!({"toolArgInjection": {"t": {"a": "CONSTANT:1"}}, "contextMapping": []});
        check(&json!({"contextMapping": twice}), Ok(constant.clone()));
        let outside = json!({"contextMapping": {"constants": {"t": {"a": 1}}}, "toolArgInjection": {"t": {"a": "k"}}});
        check(&outside, Ok(constant));
        let twice =
            json!({"toolArgInjection": {"t": {"a": "x"}}, "contextMapping": {"toolArgInjection": {"t": {"a": "k"}}}});
        check(&twice, Err("`toolArgInjection.t.a`: bound twice"));
        let other = json!({"entityIdsKey": "a", "contextMapping": {"entityIdsKey": "b"}});
        check(&other, Err("`contextMapping.entityIdsKey`: the configuration has another"));
        let auto = |value: Value| json!({"toolArgInjection": {"t": {"_auto": value}}});
        check(&auto(json!("yes")), Err("`toolArgInjection.t._auto`: expected `true` or `false`, got string"));
        check(&json!({"toolArgInjection": {"_global": {"_auto": false}}}), Err("`toolArgInjection._global._auto`: "));
    }
}
