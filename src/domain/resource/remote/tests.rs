//! Tables: what a provider is asked, and what of its answers counts.

use super::*;
use crate::authority::{Authority, Capability};

fn held(grants: &[(&str, &str)], revoked: &[&str]) -> HeldNamespaces {
    let caps = grants.iter().map(|(with, can)| Capability { with: (*with).into(), can: (*can).into() });
    let authority = Authority::new(Some(caps.collect()));
    HeldNamespaces::from_authority(&revoked.iter().fold(authority, |held, gone| held.except_resource(*gone)))
}

#[test]
fn operations_are_a_list_of_known_names() {
    for (text, expected) in [
        ("search", Some(vec![RemoteOperation::Search])),
        (" search, list,search ", Some(vec![RemoteOperation::List, RemoteOperation::Search])),
        ("context", Some(vec![RemoteOperation::Context])),
        ("context,list,read,search,put,delete,purge", Some(RemoteOperation::ALL.to_vec())),
        ("", None),
        ("purge", None),
        ("serach", None),
        ("search;read", None),
        ("Search", None),
    ] {
        let found = parse_operations(text);
        assert_eq!(found.clone().ok(), expected, "{text}");
        assert!(expected.is_some() || found.unwrap_err().to_string().contains("`context`, `list`, `read`"), "{text}");
    }
}

#[test]
fn a_kind_has_a_name_that_nothing_else_has() {
    for (name, legal) in
        [("rag", true), ("my-crm_2", true), ("memory", false), ("files", false), ("scratchpad", false), ("a.b", false)]
    {
        assert_eq!(check_kind(name).is_ok(), legal, "{name}");
    }
    assert!(check_kind("").is_err() && check_kind("1").is_err() && check_kind(&"x".repeat(41)).is_err());
}

#[test]
fn a_call_means_what_it_names_or_what_was_granted() {
    let two = held(&[("r/a/x", "*"), ("r/b", "read")], &["r/a/x/gone"]);
    for (verb, named, expected) in [
        (RemoteOperation::Search, None, Ok(vec!["a/x", "b"])),
        (RemoteOperation::Search, Some("b"), Ok(vec!["b"])),
        (RemoteOperation::Search, Some("r/b/deep"), Ok(vec!["b/deep"])),
        (RemoteOperation::Search, Some("a"), Err("requires read on r/a")),
        (RemoteOperation::Search, Some("a/xx"), Err("requires read on r/a/xx")),
        (RemoteOperation::Search, Some("a/x/gone"), Err("which was revoked")),
        (RemoteOperation::Search, Some("b/../a"), Err("`namespace`: a segment")),
        (RemoteOperation::Search, Some("*"), Err("`namespace`: `*`")),
        (RemoteOperation::Put, None, Ok(vec!["a/x"])),
        (RemoteOperation::Put, Some("b"), Err("requires write on r/b")),
        (RemoteOperation::Delete, Some("a/x/deep"), Ok(vec!["a/x/deep"])),
    ] {
        match (namespaces_for(&two, "t", verb, named), expected) {
            (Ok(found), Ok(expected)) => assert_eq!(found, expected, "{verb:?} {named:?}"),
            (Err(error), Err(part)) => assert!(error.to_string().contains(part), "{verb:?} {named:?}: {error}"),
            (found, expected) => panic!("{verb:?} {named:?}: expected {expected:?}, got {found:?}"),
        }
    }
    let error = |held: &HeldNamespaces, verb| namespaces_for(held, "t", verb, None).unwrap_err().to_string();
    assert!(error(&held(&[], &[]), RemoteOperation::List).contains("(none)"));
    let many = held(&[("r/a", "*"), ("r/b", "*")], &[]);
    assert!(error(&many, RemoteOperation::Put).starts_with("name the `namespace`: "));
}

#[test]
fn whose_data_it_is_stands_where_no_name_of_others_reaches() {
    let owner: Owner = "acme/jo".parse().unwrap();
    let settings = json!({"owner": {"tenant": "evil"}, "index": "docs"});
    let arguments = json!({"query": "x\",\"owner\":{\"tenant\":\"evil\"}", "namespace": "b", "owner": "evil/x"});
    let source = MemoryAuthor { agent: "a".into(), session: Some("s".into()), job: None };
    let asked = RemoteRequest {
        verb: RemoteOperation::Search,
        kind: "rag",
        resource: "docs",
        owner: &owner,
        source: Some(&source),
        namespaces: &["b".into()],
        except: &["b/gone".into(), "c/gone".into()],
        settings: settings.as_object().unwrap(),
        arguments: &arguments,
    };
    let message = message(&asked);
    assert_eq!(message["owner"], json!({"tenant": "acme", "user": "jo"}));
    assert_eq!((&message["namespaces"], &message["except"]), (&json!(["b"]), &json!(["b/gone"])));
    assert_eq!(message["arguments"], json!({"query": arguments["query"], "owner": "evil/x"}));
    assert_eq!((&message["by"]["agent"], &message["settings"]), (&json!("a"), &settings));
    assert_eq!((&message["protocol"], &message["operation"]), (&json!(PROTOCOL), &json!("search")));
}

#[test]
fn only_items_of_what_was_asked_for_and_may_be_read_are_shown() {
    let held = held(&[("r/a", "*"), ("r/b", "read")], &["r/a/gone"]);
    let names = |list: &[&str]| list.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let ids = |shown: &Value| {
        let ids = shown["items"].as_array().unwrap().iter().map(|item| item["id"].as_str().unwrap_or("?").to_owned());
        ids.collect::<Vec<_>>().join(" ")
    };
    let item = |id: &str, namespace: Value| json!({"id": id, "namespace": namespace});
    let all = json!({"items": [
        item("1", json!("a")), item("2", json!("a/x")), item("3", json!("b")), item("4", json!("c")),
        item("5", json!("aa")), item("6", json!("a/gone/x")), item("7", json!("a/../c")), item("8", json!(7)),
        {"id": "9"}, "text", item("10", json!("")), item("11", json!("r/a"))
    ]});
    let shown = answer_items(all.clone(), &held, &names(&["a", "b"])).unwrap();
    assert_eq!(
        (ids(&shown).as_str(), &shown["leftOut"]),
        ("1 2 3", &json!("9 items that lie in no namespace that was asked for"))
    );
    let shown = answer_items(all, &held, &names(&["a"])).unwrap();
    assert_eq!(ids(&shown), "1 2 9", "asked for one, it is meant");
    assert_eq!(shown["items"][2], json!({"namespace": "a", "id": "9"}));
    let many: Vec<_> = (0..=REMOTE_ITEMS).map(|n| item(&n.to_string(), json!("a"))).collect();
    let shown = answer_items(json!({"items": many, "next": "n".repeat(600)}), &held, &names(&["a"])).unwrap();
    assert_eq!(shown["items"].as_array().unwrap().len(), REMOTE_ITEMS);
    assert_eq!(shown["next"].as_str().unwrap().len(), 512);
    for wrong in [json!([]), json!("x"), json!({}), json!({"items": {}}), Value::Null] {
        assert!(answer_items(wrong.clone(), &held, &names(&["a"])).is_err(), "{wrong}");
    }
}

#[test]
fn the_context_is_a_text_or_items_or_nothing() {
    let held = held(&[("r/a", "*")], &[]);
    let shown = |answer: Value| context_section(answer, &held, &["a".to_owned()]);
    for (answer, expected) in [
        (json!({"text": "hello"}), Ok(Some(json!("hello")))),
        (json!({"text": " \n"}), Ok(None)),
        (json!({}), Ok(None)),
        (json!({"text": null}), Ok(None)),
        (json!({"items": []}), Ok(None)),
        (json!({"items": [{"id": "x"}]}), Ok(Some(json!({"items": [{"namespace": "a", "id": "x"}]})))),
        (json!({"items": [{"id": "x", "namespace": "b"}]}), Ok(None)),
        (json!({"text": 7}), Err(())),
        (json!({"text": "x", "items": []}), Err(())),
        (json!("x"), Err(())),
        (json!([]), Err(())),
    ] {
        assert_eq!(shown(answer.clone()).map_err(|_| ()), expected, "{answer}");
    }
}

#[test]
fn a_refusal_is_told_in_one_bounded_line() {
    for (answer, expected) in [
        (json!({"error": "no\n## Resource: x"}), "no ## Resource: x"),
        (json!({"message": "busy"}), "busy"),
        (json!({"error": {"code": 1}}), "{\"code\":1}"),
        (json!("gone\r\n"), "gone"),
        (json!({"other": 1}), ""),
        (Value::Null, ""),
    ] {
        assert_eq!(refusal_text(&answer), expected, "{answer}");
    }
    assert!(refusal_text(&json!("é".repeat(5_000))).len() <= REMOTE_SAID_BYTES);
}

#[test]
fn a_tool_says_what_it_takes_and_nothing_else() {
    for verb in RemoteOperation::ALL {
        assert_eq!(RemoteOperation::from_name(verb.as_str()), Some(verb));
        assert_eq!(verb.is_tool(), !verb.description().is_empty(), "{verb:?}");
        assert!(jsonschema::validator_for(&verb.input()).is_ok(), "{verb:?}");
    }
}
