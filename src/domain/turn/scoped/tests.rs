//! What goes with calls, one table per rule.

use super::capture::SectionPart;
use super::*;
use crate::call::{CallRefusal, Outcome};
use crate::context::item::ItemContent;
use crate::lattice::catalog::RUN;
use crate::limits::HAND_OFF_BYTES;
use crate::scope::empty_hand_off_note;
use crate::scope::{NAMES, ScopedSection, Scopes, ToolContext};
use serde_json::{Value, json};

fn part(key: &str, instance: Option<&str>, text: &str) -> SectionPart {
    SectionPart {
        key: key.to_owned(),
        names: vec![key.to_owned()],
        instance: instance.map(str::to_owned),
        source: None,
        needs: Vec::new(),
        received: false,
        under: None,
        reads: Vec::new(),
        content: ItemContent::Text(text.to_owned()),
    }
}

fn sections() -> Sections {
    let parts = vec![
        part("context/rules", None, "rules"),
        part("state", Some("1"), "first"),
        part("state", Some("2"), "second"),
        part("inbox", None, "mail"),
        SectionPart { received: true, ..part("input", None, "from above") },
        part("input", None, "for all"),
        part("input", Some("2"), "for two"),
    ];
    Sections { parts, instances: vec!["1".into(), "2".into()] }
}

fn check(reach: Value, said: &Value, expected: Result<&[&str], &str>) {
    let reach = ToolContext {
        scopes: (!reach.is_null()).then(|| serde_json::from_value::<Scopes>(reach).unwrap()),
        ..ToolContext::default()
    };
    let mut arguments = said.clone();
    let taken = take_scope_choice(None, &mut arguments);
    let chosen = sections().choose("ask", &reach, &taken);
    let chosen = chosen
        .map(|chosen| chosen.scoped.iter().filter_map(|s| Some(s.content.as_str()?.to_owned())).collect::<Vec<_>>());
    match (chosen, expected) {
        (Ok(got), Ok(expected)) => assert_eq!(got, expected, "{said}"),
        (Err(got), Err(part)) => assert!(got.text.contains(part), "{said}: {got:?}"),
        (got, expected) => panic!("{said}: expected {expected:?}, got {got:?}"),
    }
}

#[test]
fn a_call_gets_what_its_tool_allows_and_its_model_asks_for() {
    let all = || json!({"enum": ["input", "inbox", "context/rules", "state"]});
    for (reach, said, expected) in [
        (all(), json!({}), Ok(&[][..])),
        (all(), json!({"_scopes": null}), Ok(&[])),
        (all(), json!({"_scopes": []}), Ok(&[])),
        (all(), json!({"_scopes": ["inbox", "context/rules", "inbox"]}), Ok(&["rules", "mail"])),
        (
            all(),
            json!({"_scopes": ["transcript"]}),
            Err(
                "`_scopes` of `ask`: `transcript` can't be handed on by this call, expected some of `input`, `inbox`, `context/rules`, `state`",
            ),
        ),
        (all(), json!({"_scopes": "inbox"}), Err("expected a list of sections, got \"inbox\"")),
        (all(), json!({"_scopes": [1]}), Err("expected a list of sections, got 1")),
        (json!({"const": ["inbox"]}), json!({}), Ok(&["mail"])),
        (json!({"const": ["inbox"]}), json!({"_scopes": []}), Ok(&["mail"])),
        (
            json!({"const": ["inbox"]}),
            json!({"_scopes": ["input"]}),
            Err("`input` can't be handed on by this call, leave it out"),
        ),
        (json!({"const": []}), json!({}), Ok(&[])),
        (Value::Null, json!({}), Ok(&[])),
        (Value::Null, json!({"_scopes": ["input"]}), Err("leave it out")),
        (json!({"const": ["pending", "goal"]}), json!({}), Ok(&[])),
    ] {
        check(reach, &said, expected);
    }
}

#[test]
fn an_empty_section_says_why() {
    for (names, said, expected) in [
        (json!(["pending"]), json!({}), "no result has arrived and no job is running"),
        (json!(["transcript"]), json!({}), "nothing was said before"),
        (json!(["loads/w/x"]), json!({}), "the path is not loaded"),
        (json!(["context/none"]), json!({}), "no entry of the context is labelled so, or it shows nothing"),
    ] {
        let reach = ToolContext {
            scopes: Some(serde_json::from_value(json!({"const": names})).unwrap()),
            ..ToolContext::default()
        };
        let chosen = sections().choose("ask", &reach, &take_scope_choice(None, &mut said.clone())).unwrap();
        let [only] = chosen.scoped.as_slice() else { panic!("{chosen:?}") };
        assert_eq!(only.missing.as_deref(), Some(expected));
        let line = empty_hand_off_note(&chosen.scoped).unwrap();
        assert!(line.ends_with(&format!("`{}`: {expected}]", only.key)), "{line}");
    }
    let own = Sections { parts: vec![part("input", Some("1"), "first")], instances: vec!["1".into(), "2".into()] };
    let reach = ToolContext {
        scopes: Some(serde_json::from_value(json!({"const": ["input"]})).unwrap()),
        ..ToolContext::default()
    };
    for (said, expected) in [
        (json!({}), "it is of instances alone, and this call names no `_instance`"),
        (json!({"_instance": "2"}), "it is of other instances alone, and this call is about `2`"),
    ] {
        let chosen = own.choose("ask", &reach, &take_scope_choice(None, &mut said.clone())).unwrap();
        assert_eq!(chosen.scoped[0].missing.as_deref(), Some(expected), "{said}");
    }
}

#[test]
fn an_empty_section_reveals_no_instances_or_labels() {
    let names = json!([
        "input",
        "state",
        "session",
        "pending",
        "inbox",
        "transcript",
        "goal",
        "context/x",
        "loads/w/x",
        "resource/x",
    ]);
    let reach = ToolContext {
        scopes: Some(serde_json::from_value(json!({"const": names})).unwrap()),
        ..ToolContext::default()
    };
    let instances = || vec!["1".into(), "2".into()];
    let of_one = names.as_array().unwrap().iter().map(|name| part(name.as_str().unwrap(), Some("1"), "first"));
    let (with, without) = (
        Sections { parts: of_one.collect(), instances: instances() },
        Sections { parts: Vec::new(), instances: instances() },
    );
    let handed = |sections: &Sections, said: Value| -> Vec<ScopedSection> {
        let chosen = sections.choose("ask", &reach, &take_scope_choice(None, &mut said.clone())).unwrap();
        assert_eq!(chosen.scoped.len(), 10, "its caller is told of each");
        chosen.scoped.iter().filter_map(ScopedSection::for_receiver).collect()
    };
    let nothing = handed(&without, json!({}));
    assert_eq!(nothing.iter().map(|section| section.key.as_str()).collect::<Vec<_>>(), NAMES);
    for said in [json!({}), json!({"_instance": "2"})] {
        assert_eq!(handed(&with, said), nothing, "whether another instance has any, it can't tell");
    }
    assert!(!json!(nothing).to_string().contains("instance"), "{nothing:?}");
}

#[test]
fn a_call_for_an_instance_sees_what_is_of_that_one_and_of_all() {
    let all = || json!({"enum": ["input", "context/rules", "state"]});
    let asked = || json!(["input", "context/rules", "state"]);
    for (instance, expected) in [
        (Value::Null, Ok(&["rules", "from above", "for all"][..])),
        (json!("1"), Ok(&["rules", "first", "from above", "for all"])),
        (json!("2"), Ok(&["rules", "second", "from above", "for two"])),
        (json!("3"), Err("`_instance` of `ask`: no instance \"3\", expected one of `1`, `2`")),
        (json!(1), Err("no instance 1, expected one of `1`, `2`")),
    ] {
        check(all(), &json!({"_instance": instance, "_scopes": asked()}), expected);
    }
    let none = Sections::default();
    let said = take_scope_choice(None, &mut json!({"_instance": "1"}));
    let error = none.choose("ask", &ToolContext::default(), &said).unwrap_err();
    assert_eq!(error, CallRefusal::arguments("`_instance` of `ask`: this turn has no instances, leave it out"));
    let fixed = ToolContext {
        scopes: Some(serde_json::from_value(json!({"const": ["input"]})).unwrap()),
        ..ToolContext::default()
    };
    let refused = |said: Value| {
        sections().choose("ask", &fixed, &take_scope_choice(None, &mut said.clone())).unwrap_err().outcome
    };
    assert_eq!(refused(json!({"_scopes": ["inbox"]})), Outcome::Scope);
    assert_eq!(refused(json!({"_scopes": "inbox"})), Outcome::Arguments);
}

#[test]
fn underscore_keys_are_no_arguments_at_any_depth_of_a_run() {
    for (operation, given, expected) in [
        (None, json!({"a": 1, "_scopes": ["input"], "_x": 2}), json!({"a": 1})),
        (None, json!({"a": {"_b": 1}}), json!({"a": {"_b": 1}})),
        (None, json!([1]), json!([1])),
        (Some("v/ops/test/echo"), json!({"input": {"_b": 1}}), json!({"input": {"_b": 1}})),
        (
            Some(RUN),
            json!({"operation": "test/echo", "input": {"_scopes": ["input"], "x": 1}}),
            json!({"operation": "test/echo", "input": {"x": 1}}),
        ),
        (
            Some(RUN),
            json!({"operation": "job:run", "input": {"operation": "test/echo", "input": {"_instance": "1", "x": {"_y": 1}}}}),
            json!({"operation": "job:run", "input": {"operation": "test/echo", "input": {"x": {"_y": 1}}}}),
        ),
    ] {
        let mut arguments = given.clone();
        take_scope_choice(operation, &mut arguments);
        assert_eq!(arguments, expected, "{given}");
    }
}

#[test]
fn a_hand_off_has_a_limit_and_says_what_was_left_out() {
    let long = "x".repeat(200_000);
    let sections = Sections {
        parts: vec![part("context/long", None, &long), part("input", None, "short"), part("inbox", None, &long)],
        instances: Vec::new(),
    };
    let reach = ToolContext {
        scopes: serde_json::from_value(json!({"const": ["input", "inbox", "context/long"]})).ok(),
        ..ToolContext::default()
    };
    let scoped = sections.choose("ask", &reach, &ScopeChoice::default()).unwrap().scoped;
    let bytes: Vec<usize> = scoped.iter().map(|s| s.bytes).collect();
    assert!(bytes.iter().sum::<usize>() <= HAND_OFF_BYTES && bytes[0] > 32_000 && bytes[2] > 32_000, "{bytes:?}");
    assert_eq!((scoped[1].content.as_str(), scoped[1].to_record().of), (Some("short"), None));
    assert_eq!(scoped[0].to_record().of, Some(200_000));
    assert!(scoped[0].content.as_str().unwrap().contains("bytes omitted]"));
}
