//! What an approval is named by, and which answers fit.

use super::answer::check_answers;
use super::*;
use serde_json::Map;

fn place(owner: &Owner, session: &SessionKey, call: u32) -> Approval {
    let place = CallPlace { owner, session, turn: 3, call, start: None };
    Approval::new(b"key", place, "pay", subject(json!({"amount": 5}), &["input"]), Millis(1), Millis(2))
}

fn subject(arguments: Value, scopes: &[&str]) -> ApprovalSubject {
    let section = |key: &&str| CallSection { key: (*key).to_owned(), digest: "d".into(), bytes: 1 };
    ApprovalSubject::Call {
        operation: "v/ops/shop/pay".into(),
        arguments,
        fixed: Vec::new(),
        scopes: scopes.iter().map(section).collect(),
    }
}

fn names() -> (Owner, SessionKey) {
    ("t/u".parse().unwrap(), SessionKey { agent: "a".parse().unwrap(), session: "s".parse().unwrap() })
}

#[test]
fn an_approval_is_named_by_everything_that_is_shown() {
    let (owner, session) = names();
    let first = place(&owner, &session, 0);
    assert_eq!(first.id, place(&owner, &session, 0).id, "asked again after a crash it is the same");
    assert_ne!(first.id, place(&owner, &session, 1).id);
    let here = CallPlace { owner: &owner, session: &session, turn: 3, call: 0, start: None };
    for other in [subject(json!({"amount": 6}), &["input"]), subject(json!({"amount": 5}), &["input", "state"])] {
        assert_ne!(other.digest(here), first.digest, "{other:?}");
    }
    assert_eq!(subject(json!({"amount": 5}), &["input"]).digest(here), first.digest);
}

#[test]
fn an_answer_fits_what_is_asked_and_only_narrows() {
    let (owner, session) = names();
    let approval = place(&owner, &session, 0);
    let approved = |scopes: Option<&[&str]>| ApprovalVerdict::Approved {
        arguments: None,
        scopes: scopes.map(|keys| keys.iter().map(|key| (*key).to_owned()).collect()),
    };
    for (verdict, digest, wrong) in [
        (approved(None), None, None),
        (approved(None), Some(approval.digest.as_str()), None),
        (approved(None), Some("other"), Some("what was shown is something else")),
        (approved(Some(&["input"])), None, None),
        (approved(Some(&[])), None, None),
        (approved(Some(&["state"])), None, Some("section `state` doesn't go with this call, expected some of `input`")),
        (ApprovalVerdict::Rejected { reason: None }, None, None),
        (ApprovalVerdict::Answered { answers: Map::new() }, None, Some("approve or reject it")),
    ] {
        let found = approval.accepts(&verdict, digest).err().map(|error| error.to_string());
        match (found, wrong) {
            (None, None) => {}
            (Some(found), Some(wrong)) => assert!(found.contains(wrong), "{verdict:?}: {found}"),
            (found, wrong) => panic!("{verdict:?}: expected {wrong:?}, got {found:?}"),
        }
    }
}

fn question(id: &str, kind: QuestionKind, choices: &[&str]) -> Question {
    let choices = choices.iter().map(|choice| (*choice).to_owned()).collect();
    Question { id: id.into(), kind, prompt: "?".into(), choices, required: None }
}

#[test]
fn every_question_is_answered_with_what_it_asks_for() {
    let asks = [
        question("why", QuestionKind::Text, &[]),
        question("size", QuestionKind::Choice, &["S", "L"]),
        question("sure", QuestionKind::Approval, &[]),
    ];
    check_questions(&asks).unwrap();
    for (answers, wrong) in [
        (json!({"why": "so", "size": "L", "sure": false}), None),
        (json!({"why": "so", "size": "L"}), Some("question `sure`: expected true or false, got nothing")),
        (json!({"why": "so", "size": "M", "sure": true}), Some("question `size`: expected one of S, L, got `\"M\"`")),
        (json!({"why": 1, "size": "L", "sure": true}), Some("question `why`: expected a text, got `1`")),
        (json!({"hwy": "so"}), Some("question `hwy`: was not asked, expected `why`, `size`, `sure`")),
    ] {
        let Value::Object(answers) = answers else { panic!("a map") };
        let found = check_answers(&asks, &answers).err().map(|error| error.to_string());
        assert_eq!(found.as_deref(), wrong);
    }
    let asks = [
        question("which", QuestionKind::Checkboxes, &["S", "L"]),
        Question { required: Some(false), ..question("note", QuestionKind::Text, &[]) },
        question("key", QuestionKind::Token, &[]),
    ];
    check_questions(&asks).unwrap();
    for (answers, wrong) in [
        (json!({"which": ["L", "S"], "key": "s/SHOP"}), None),
        (json!({"which": [], "note": "n", "key": "s/SHOP"}), None),
        (
            json!({"which": ["M"], "key": "s/SHOP"}),
            Some("question `which`: expected a list of any of S, L, got `[\"M\"]`"),
        ),
        (json!({"which": "S", "key": "s/SHOP"}), Some("question `which`: expected a list of any of S, L, got `\"S\"`")),
        (json!({"which": [], "note": 1, "key": "s/SHOP"}), Some("question `note`: expected a text, got `1`")),
        (
            json!({"which": [], "key": "tok-123"}),
            Some(
                "question `key`: expected `s/NAME`, a secret that was set with the token as its value (`trellis secret set`), got something else",
            ),
        ),
    ] {
        let Value::Object(answers) = answers else { panic!("a map") };
        let found = check_answers(&asks, &answers).err().map(|error| error.to_string());
        assert_eq!(found.as_deref(), wrong);
    }
    for (asks, wrong) in [
        (vec![question("a", QuestionKind::Checkboxes, &[])], "expected at least one"),
        (vec![question("a", QuestionKind::Text, &[]), question("a", QuestionKind::Text, &[])], "`a` is taken"),
        (vec![question("", QuestionKind::Text, &[])], "expected a name"),
        (vec![question("a", QuestionKind::Choice, &[])], "expected at least one"),
        (vec![question("a", QuestionKind::Text, &["x"])], "are for the types `choice` and `checkboxes`"),
    ] {
        assert!(check_questions(&asks).unwrap_err().to_string().contains(wrong));
    }
}

#[test]
fn an_edit_keeps_injected_values_and_secret_references() {
    let secret = |name: &str| json!({"$secret": format!("s/{name}")});
    let original = json!({"url": "u", "user": "ann", "headers": {"auth": secret("key")}, "body": [secret("pin")]});
    let fixed = ["user".to_owned()];
    let (keep, lost) = (secret("key"), "is a secret of the call, and an approval can't change it: repeat it");
    let new = "would be a secret that the call doesn't have";
    let fill = "is filled in by the venue, and an approval can't change it: leave it out";
    for (edited, refused) in [
        (original.clone(), None),
        (json!({"url": "v", "headers": {"auth": keep}, "body": [secret("pin")]}), None),
        (json!({"user": "bob", "headers": {"auth": keep}, "body": [secret("pin")]}), Some(("user", fill))),
        (json!({"user": null, "headers": {"auth": keep}, "body": [secret("pin")]}), Some(("user", fill))),
        (json!({"headers": {"auth": secret("other")}, "body": [secret("pin")]}), Some(("/headers/auth", lost))),
        (json!({"headers": {"auth": "mine"}, "body": [secret("pin")]}), Some(("/headers/auth", lost))),
        (json!({"headers": {"auth": keep}, "body": [1, secret("pin")]}), Some(("/body/0", lost))),
        (json!({"headers": {"auth": keep, "more": keep}, "body": [secret("pin")]}), Some(("/headers/more", new))),
        (json!({}), Some(("/body/0", lost))),
    ] {
        let found = super::answer::check_edit(&original, &edited, &fixed).map_err(|error| error.to_string());
        match refused {
            None => assert_eq!(found, Ok(()), "{edited}"),
            Some((place, rule)) => {
                let text = found.unwrap_err();
                assert!(text.starts_with(&format!("argument `{place}` {rule}")), "{edited}: {text}");
            }
        }
    }
    let filled = super::answer::check_edit(&json!({"to": secret("k")}), &json!({}), &["to".to_owned()]);
    assert_eq!(filled, Ok(()));
}

#[test]
fn fixed_arguments_that_an_edit_leaves_out_come_back() {
    let original = json!({"path": "w/notes", "value": 1});
    let fixed = ["path".to_owned(), "absent".to_owned()];
    for (edited, expected) in [
        (json!({"value": "sun"}), json!({"value": "sun", "path": "w/notes"})),
        (json!({"path": "w/notes", "value": 2}), json!({"path": "w/notes", "value": 2})),
        (json!({"path": "w/evil"}), json!({"path": "w/evil"})),
        (json!("text"), json!("text")),
    ] {
        assert_eq!(super::answer::with_fixed(&original, &edited, &fixed), expected, "{edited}");
    }
}
