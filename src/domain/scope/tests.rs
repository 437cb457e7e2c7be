//! Scopes, one table per rule.

use super::*;

fn scopes(value: Value) -> Result<Scopes, String> {
    serde_json::from_value::<Scopes>(value).map_err(|error| error.to_string())
}

#[test]
fn both_spellings_are_read_and_one_is_kept() {
    for (given, kept) in [
        (json!({"const": ["input"]}), json!({"const": ["input"]})),
        (json!({"const": []}), json!({"const": []})),
        (json!({"enum": ["state", "input", "state"]}), json!({"enum": ["state", "input"]})),
        (json!({"enum": ["state"], "approval": "ask"}), json!({"enum": ["state"], "approval": "ask"})),
        (json!({"enum": ["state"], "approval": "none"}), json!({"enum": ["state"]})),
        (
            json!({"type": "array", "items": {"enum": ["context/a b", "loads/w/x"]}}),
            json!({"enum": ["context/a b", "loads/w/x"]}),
        ),
    ] {
        let read = scopes(given.clone()).unwrap();
        assert_eq!(json!(read), kept, "{given}");
        assert_eq!(scopes(kept).unwrap(), read);
    }
}

#[test]
fn what_can_t_be_handed_on_is_refused_by_name() {
    for (given, expected) in [
        (json!(["input"]), "expected `{const: [names]}` or `{enum: [names]}`"),
        (json!({}), "expected one of `const` and `enum`"),
        (json!({"const": [], "enum": ["input"]}), "expected one of `const` and `enum`"),
        (json!({"enum": []}), "`scopes.enum`: expected at least one section"),
        (json!({"enum": "input"}), "`scopes.enum`: expected a list of sections"),
        (json!({"enum": [1]}), "`scopes.enum`: expected names of sections, got 1"),
        (json!({"const": ["system"]}), "`scopes.const`: section `system` can't be handed on"),
        (json!({"enum": ["tools"]}), "section `tools` can't be handed on"),
        (json!({"enum": ["s/KEY"]}), "section `s/KEY` can't be handed on"),
        (json!({"enum": ["loads/s/KEY"]}), "section `loads/s/KEY` can't be handed on"),
        (json!({"enum": ["inptu"]}), "no section `inptu`, expected one of `input`"),
        (json!({"enum": ["context/"]}), "no section `context/`"),
        (json!({"enum": ["input"], "approval": "yes"}), "`scopes.approval`: expected \"none\" or \"ask\""),
        (json!({"const": ["input"], "approval": "ask"}), "the model asks for nothing here"),
        (json!({"enum": ["input"], "enmu": 1}), "unknown key `enmu`"),
    ] {
        let error = scopes(given.clone()).unwrap_err();
        assert!(error.contains(expected), "{given}: {error}");
    }
}

#[test]
fn sections_of_one_key_are_a_list() {
    let scoped = |key: &str, text: &str| ScopedSection {
        key: key.into(),
        source: None,
        needs: Vec::new(),
        received: false,
        under: None,
        reads: Vec::new(),
        content: text.into(),
        bytes: text.len(),
        of: text.len(),
        missing: None,
        empty: false,
    };
    let gone = ScopedSection { missing: Some("nothing is there".into()), ..scoped("pending", "") };
    let all = [scoped("state", "a"), scoped("input", "b"), scoped("state", "c"), gone];
    assert_eq!(Value::Object(contents_by_key(&all)), json!({"state": ["a", "c"], "input": "b"}));
}

#[test]
fn a_section_is_handed_on_by_who_may_still_read_it() {
    let cap = |with: &str| crate::authority::Capability { with: with.into(), can: "crud/read".into() };
    let held = Authority::new(Some(vec![cap("w/a")]));
    let own = ScopedSection {
        key: "context/a".into(),
        source: Some("w/a/x".into()),
        needs: vec![("crud/read".into(), "w/a/x".into())],
        received: false,
        under: None,
        reads: Vec::new(),
        content: Value::Null,
        bytes: 0,
        of: 0,
        missing: None,
        empty: false,
    };
    let got = own.for_receiver().unwrap();
    for (scoped, authority, expected) in [
        (&own, held.clone(), None),
        (
            &own,
            held.clone().except_resource("w/a/x"),
            Some("section `context/a` requires crud/read on w/a/x, which was revoked"),
        ),
        (&own, Authority::new(Some(vec![cap("w/b")])), Some("section `context/a` requires crud/read on w/a/x.")),
        (&got, Authority::new(Some(vec![cap("w/b")])), None),
        (&got, Authority::new(Some(vec![cap("w/b")])).except_resource("w/a"), Some("requires crud/read on w/a/x")),
    ] {
        match (scoped.check_authority(&authority), expected) {
            (Ok(()), None) => {}
            (Err(error), Some(part)) => assert!(error.to_string().contains(part), "{error}"),
            (found, expected) => panic!("expected {expected:?}, got {found:?}"),
        }
    }
    let under = |under: &Authority, received| ScopedSection {
        under: Some(under.clone()),
        received,
        needs: Vec::new(),
        ..own.clone()
    };
    assert!(under(&held, false).check_authority(&held).is_ok());
    assert!(
        under(&Authority::without_limits(), false).check_authority(&held).is_err(),
        "it shows turns that could do more"
    );
    assert!(under(&Authority::without_limits(), true).check_authority(&held).is_ok(), "its giver was asked");
    assert!(under(&held, true).check_authority(&held.clone().except_resource("w/z")).is_err(), "revoked since");
}

#[test]
fn a_schema_shows_what_can_be_asked_for_and_nothing_else() {
    let enumerated = ToolContext { scopes: scopes(json!({"enum": ["input"]})).ok(), input: None, instanced: true };
    let schema = enumerated.extend(json!({"type": "object", "properties": {"a": {}}, "additionalProperties": false}));
    assert_eq!(schema["properties"]["_scopes"]["items"], json!({"enum": ["input"]}));
    let schema = enumerated.extend_instances(schema, &["1".into(), "2".into()]);
    assert_eq!(schema["properties"]["_instance"]["enum"], json!(["1", "2"]));
    let constant = ToolContext { scopes: scopes(json!({"const": ["input"]})).ok(), ..ToolContext::default() };
    let schema = json!({"type": "object"});
    assert_eq!(constant.extend_instances(constant.extend(schema.clone()), &[]), schema);
}
