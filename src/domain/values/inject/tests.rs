//! The rules of injection, a table each.

use super::*;
use crate::values::{ContextMapping, Values};
use serde_json::json;

fn values(value: Value) -> Values {
    let Value::Object(map) = value else { panic!("expected a map") };
    map
}

fn resolver(rows: &Value) -> Resolver {
    Resolver::new(
        values(json!({"user_email": "s@x", "plan": "session"})),
        values(json!({"user_id": "u1"})),
        values(json!({"plan": "project", "user_email": "p@x", "from": "global"})),
        ContextMapping::parse("contextMapping", rows).unwrap(),
    )
}

fn bindings(value: &Value) -> Bindings {
    Bindings::parse("toolArgInjection", value).unwrap()
}

fn schema() -> Value {
    json!({
        "type": "object",
        "properties": {"from": {"type": "string"}, "to": {"type": "string"}, "user_id": {"type": "string"}},
        "required": ["from", "to"],
        "additionalProperties": false
    })
}

fn plan(bound: &Value, rows: &Value) -> Injection {
    let bound = bindings(&json!({"send_email": bound}));
    bound.plan(&["send_email"], &schema(), &resolver(rows)).unwrap().injection
}

#[test]
fn injected_arguments_are_hidden_from_properties_and_required() {
    let injection = plan(&json!({"from": "user_email"}), &json!([]));
    let reduced = injection.reduce(&schema());
    assert_eq!(
        reduced,
        json!({
            "type": "object",
            "properties": {"to": {"type": "string"}, "user_id": {"type": "string"}},
            "required": ["to"],
            "additionalProperties": false
        })
    );
}

#[test]
fn injected_arguments_are_hidden_in_repeated_schema_parts() {
    let injection = plan(&json!({"from": "user_email"}), &json!([]));
    let schema = json!({
        "properties": {"from": {}, "to": {}},
        "anyOf": [{"required": ["from"]}, {"required": ["from", "to"], "properties": {"from": {"minLength": 1}}}],
        "default": {"from": "a", "to": "b"},
        "examples": [{"from": "secret"}, 1]
    });
    let reduced = injection.reduce(&schema);
    assert!(!reduced.to_string().contains("from"), "{reduced}");
    assert_eq!(reduced["anyOf"][1]["required"], json!(["to"]));
}

#[test]
fn the_binding_always_wins_over_what_the_model_sent() {
    let injection = plan(&json!({"from": "user_email"}), &json!([]));
    let mut arguments = json!({"from": "mallory@x", "to": "bob"});
    assert_eq!(injection.apply(arguments.clone()).unwrap(), json!({"from": "s@x", "to": "bob"}));
    injection.strip(&mut arguments);
    assert_eq!(arguments, json!({"to": "bob"}));
    let unbound = plan(&json!({"from": "no_such_key"}), &json!([]));
    let mut arguments = json!({"from": "mallory@x"});
    unbound.strip(&mut arguments);
    assert_eq!(arguments, json!({}), "nor does it fill in what has no value");
}

#[test]
fn unresolved_without_fallback_names_the_key_and_stays_hidden() {
    let injection = plan(&json!({"from": "no_such_key"}), &json!([]));
    assert_eq!(
        injection.apply(json!({"to": "bob"})).unwrap_err().to_string(),
        "INJECT_UNRESOLVED: argument `from` is bound to `no_such_key`, which has no value and no fallback"
    );
    assert_eq!(injection.hidden_arguments().collect::<Vec<_>>(), ["from"]);
    let rows = json!([{"key": "no_such_key", "source": "session.no_such_key", "fallback": "nobody@x"}]);
    let injection = plan(&json!({"from": "no_such_key"}), &rows);
    assert_eq!(injection.apply(json!({"to": "bob"})).unwrap(), json!({"to": "bob", "from": "nobody@x"}));
}

#[test]
fn a_constant_beats_a_session_binding_beats_global_beats_auto() {
    let rows = json!([
        {"key": "user_id", "source": "_auto"},
        {"key": "const_key", "source": "CONSTANT:c"},
        {"key": "global_key", "source": "_global", "fallback": "gf"},
    ]);
    let schema = schema();
    for (by_name, by_path, expected) in [
        (Some("session.user_email"), Some("CONSTANT:fixed"), "fixed"),
        (Some("user_email"), Some("const_key"), "c"),
        (Some("_global"), Some("user_email"), "s@x"),
        (Some("_global"), None, "global"),
        (Some("global_key"), None, "gf"),
        (Some("global_key"), Some("session.plan"), "session"),
        (Some("no_such_key"), Some("_global"), "global"),
        (Some("no_such_key"), Some("global_key"), "gf"),
    ] {
        let mut tools = Map::new();
        tools.extend(by_name.map(|key| ("send_email".to_owned(), json!({"from": key}))));
        tools.extend(by_path.map(|key| ("v/ops/mail/send".to_owned(), json!({"from": key}))));
        let bound = bindings(&Value::Object(tools));
        let planned = bound.plan(&["send_email", "v/ops/mail/send"], &schema, &resolver(&rows)).unwrap();
        assert_eq!(planned.injection.values["from"], json!(expected), "{by_name:?} {by_path:?}");
        assert_eq!(planned.injection.values["user_id"], json!("u1"), "`_auto` binds what nothing else does");
    }
    for (key, expected) in [("session.plan", "session"), ("CONSTANT:x", "x"), ("_auto", "u1"), ("no_such_key", "u1")] {
        assert_eq!(plan(&json!({"user_id": key}), &rows).values["user_id"], json!(expected), "{key}");
    }
}

#[test]
fn auto_needs_a_declared_key_that_has_a_value_now() {
    let auto = |key: &str| plan(&json!({}), &json!([{"key": key, "source": "_auto"}])).values.contains_key("user_id");
    assert!(auto("user_id"));
    assert!(auto("userId"), "a value by another spelling");
    let rows = ContextMapping::parse("contextMapping", &json!({"user_id": "_auto"})).unwrap();
    let none = Resolver::new(Values::new(), Values::new(), Values::new(), rows);
    let planned = bindings(&json!({})).plan(&["send_email"], &schema(), &none).unwrap();
    assert!(!planned.injection.values.contains_key("user_id"), "declared, but without a value");
    assert!(!plan(&json!({}), &json!([])).values.contains_key("user_id"), "a value, but not declared");
}

#[test]
fn llm_leaves_an_argument_to_the_model() {
    let rows = json!([{"key": "user_id", "source": "_auto"}, {"key": "mine", "source": "LLM", "fallback": "dflt"}]);
    let injection = plan(&json!({"user_id": "LLM"}), &rows);
    assert!(injection.is_empty(), "and `_auto` doesn't take it: {injection:?}");
    let injection = plan(&json!({"to": "mine"}), &rows);
    let reduced = injection.reduce(&schema());
    assert!(reduced["properties"]["to"].is_object());
    assert_eq!(reduced["required"], json!(["from"]));
    assert_eq!(injection.apply(json!({})).unwrap()["to"], json!("dflt"));
    assert_eq!(injection.apply(json!({"to": "bob"})).unwrap()["to"], json!("bob"));
}

#[test]
fn a_binding_to_a_missing_argument_is_refused_or_reported() {
    let bound = bindings(&json!({"t": {"frm": "user_email"}}));
    let values = resolver(&json!([]));
    let unknown = bound.plan(&["t"], &schema(), &values).unwrap_err();
    let error = unknown.to_string();
    assert_eq!(error, "`toolArgInjection` binds argument `frm`, which the operation doesn't name, did you mean `from`");
    let unsaid = json!({"type": "object", "properties": {"from": {}}});
    assert_eq!(bound.plan(&["t"], &unsaid, &values).unwrap_err(), unknown, "nothing says that it takes others");
    let open = json!({"type": "object", "properties": {"from": {}}, "additionalProperties": true});
    let planned = bound.plan(&["t"], &open, &values).unwrap();
    assert_eq!((planned.injection.values.len(), planned.reports), (1, vec![error]));
    let bound = bindings(&json!({"send_emial": {"a": "b"}, "mail:send": {"a": "b"}}));
    assert_eq!(bound.unknown_tools(&["send_email", "v/ops/mail/send"]).collect::<Vec<_>>(), ["send_emial"]);
}

#[test]
fn bindings_of_a_hidden_path_go_to_its_tool() {
    let mut bound = bindings(&json!({"/o/look/": {"a": "b", "c": "d"}, "look": {"a": "own"}, "o/other": {"a": "b"}}));
    bound.rename(&[("o/look".into(), "look".into())]);
    assert_eq!(bound, bindings(&json!({"look": {"a": "own", "c": "d"}, "o/other": {"a": "b"}})));
}

#[test]
fn each_tool_of_one_path_has_its_bindings() {
    let mut bound = bindings(&json!({"o/pin": {"from": "user_email", "_auto": false}}));
    bound.rename(&[("o/pin".into(), "a".into()), ("o/pin".into(), "b".into())]);
    let both = json!({"a": {"from": "user_email", "_auto": false}, "b": {"from": "user_email", "_auto": false}});
    assert_eq!(bound, bindings(&both));
}

#[test]
fn older_builds_cannot_read_bindings_of_all_tools() {
    let bound = bindings(&json!({"_global": {"from": "user_email"}}));
    let stored = serde_json::to_value(&bound).unwrap();
    let is_readable = serde_json::from_value::<BTreeMap<String, BTreeMap<String, String>>>(stored.clone()).is_ok();
    assert!(!is_readable, "it would take `_global` for a tool's name: {stored}");
    assert_eq!(serde_json::from_value::<Bindings>(stored).unwrap(), bound);
}

#[test]
fn stored_bindings_above_the_limit_are_still_read() {
    let many: Map<String, Value> = (0..=BINDINGS).map(|n| (format!("t{n}"), json!({"a": "b"}))).collect();
    let many = Value::Object(many);
    assert!(Bindings::parse("toolArgInjection", &many).unwrap_err().to_string().contains("at most 256"));
    assert_eq!(serde_json::from_value::<Bindings>(many).unwrap().tools().count(), BINDINGS + 1);
}

#[test]
fn arguments_that_are_no_map_are_no_way_round_a_binding() {
    let injection = plan(&json!({"from": "user_email"}), &json!([]));
    assert_eq!(injection.apply(Value::Null).unwrap(), json!({"from": "s@x"}));
    for odd in [json!([{"from": "mallory@x"}]), json!("from=mallory@x"), json!(1)] {
        let refused = injection.apply(odd.clone()).unwrap_err().to_string();
        assert!(refused.starts_with("expected the arguments as a map, got "), "{odd}: {refused}");
        assert_eq!(Injection::default().apply(odd.clone()).unwrap(), odd);
    }
}

#[test]
fn undecided_auto_bindings_are_reported_and_left_to_the_model() {
    let rows = json!([{"key": "user_id", "source": "_auto"}, {"key": "uid", "source": "_auto", "fallback": 1}]);
    let planned = Bindings::default().plan(&["t"], &schema(), &resolver(&rows)).unwrap();
    assert!(planned.injection.is_empty());
    assert!(planned.reports[0].contains("`user_id` and `uid`"), "{:?}", planned.reports);
}

#[test]
fn bad_bindings_are_refused_with_their_place() {
    for (value, expected) in [
        (json!([]), "`toolArgInjection`: expected a map, got array"),
        (json!({"t": "x"}), "`toolArgInjection.t`: expected a map, got string"),
        (json!({"t": {"a": 1}}), "`toolArgInjection.t.a`: expected a key, got number"),
        (json!({"t": {"a": ""}}), "`toolArgInjection.t.a`: expected a key, got an empty text"),
    ] {
        assert_eq!(Bindings::parse("toolArgInjection", &value).unwrap_err().to_string(), expected);
    }
    let error = Bindings::parse("toolArgInjection", &json!({"t": {"a": "_globl"}})).unwrap_err().to_string();
    assert!(error.starts_with("`toolArgInjection.t.a`: unknown source `_globl`"), "{error}");
    assert!(error.ends_with("did you mean `_global`"), "{error}");
    let one = || bindings(&json!({"t": {"a": "k"}}));
    assert!(one().merge(bindings(&json!({"t": {"b": "k"}}))).is_ok());
    assert_eq!(one().merge(one()).unwrap_err().to_string(), "`toolArgInjection.t.a`: bound twice");
}

#[test]
fn an_injection_is_kept_with_its_call() {
    let rows = json!([{"key": "mine", "source": "LLM", "fallback": "dflt"}]);
    let injection = plan(&json!({"from": "user_email", "user_id": "gone", "to": "mine"}), &rows);
    let again: Injection = serde_json::from_value(serde_json::to_value(&injection).unwrap()).unwrap();
    assert_eq!(again, injection);
}

/// Platos's example: the tool expects `userId`, the session has `user_id`.
#[test]
fn auto_takes_another_spelling_of_the_key() {
    let schema =
        json!({"type": "object", "properties": {"userId": {"type": "string"}, "q": {}}, "required": ["userId", "q"]});
    for (rows, bound) in [
        (json!([{"key": "userId", "source": "_auto"}]), json!({})),
        (json!([]), json!({"lookup": {"userId": "_auto"}})),
    ] {
        let planned = bindings(&bound).plan(&["lookup"], &schema, &resolver(&rows)).unwrap();
        assert_eq!(planned.injection.values, *json!({"userId": "u1"}).as_object().unwrap(), "{rows} {bound}");
        assert_eq!(planned.reports, Vec::<String>::new());
    }
}
