//! What goes with calls is recorded with their reply, and bounded with it.

use super::*;
use crate::chat::ToolSpec;
use crate::context::item::HandOffTags;
use crate::limits::{HAND_OFF_BYTES, HAND_OFFS_BYTES};
use crate::scope::{Scopes, ToolContext};

/// The record of a reply that calls a tool so many times, each with the same long section.
fn recorded(times: usize) -> RecordedReply {
    let spec = ToolSpec { name: "ask".into(), description: String::new(), schema: json!({}) };
    let scopes: Scopes = serde_json::from_value(json!({"const": ["context/doc"]})).unwrap();
    let reaches = vec![ToolContext { scopes: Some(scopes), ..ToolContext::default() }];
    let target = ToolTarget::Operation("v/ops/test/echo".into());
    let table = ToolTable { reaches, ..ToolTable::new(vec![spec], vec![target], Vec::new()) };
    let (mut turn, _) = Turn::begin(turn_input("implicit", begun(1, 0, false), vec![task(1)]), NOW);
    let doc = PromptItem {
        section: Section::Context,
        key: "context/doc".into(),
        label: Some("doc".into()),
        source: Some("w/doc".into()),
        allowed: None,
        asked: Some(300),
        priority: 500,
        required: false,
        unresolved: Vec::new(),
        tags: HandOffTags { needs: vec![("crud/read".into(), "w/doc".into())], ..HandOffTags::default() },
        origin: crate::origin::Origin::default(),
        content: ItemContent::Text("x".repeat(2 * HAND_OFF_BYTES)),
        attachments: Vec::new(),
    };
    let Observation::Gathered(mut gathered, scribe) = inputs(&turn, vec![doc]) else { unreachable!() };
    gathered.tools = table.into();
    turn.step(Observation::Gathered(gathered, scribe), NOW);
    let reply = calls(&vec![("ask", json!({"n": 1})); times]);
    let action = turn.step(Observation::Answered(Ok(reply)), NOW);
    let Action::Record(recorded) = action else { panic!("expected a record, got {action:?}") };
    *recorded
}

#[test]
fn a_successor_finds_what_goes_with_the_calls() {
    let first = recorded(1);
    let kept: RecordedReply = serde_json::from_str(&serde_json::to_string(&first).unwrap()).unwrap();
    assert_eq!(kept.calls, first.calls);
    let scoped = &kept.calls[0].scoped[0];
    assert_eq!((scoped.key.as_str(), scoped.source.as_deref()), ("context/doc", Some("w/doc")));
    assert_eq!(scoped.needs, [("crud/read".to_owned(), "w/doc".into())]);
    assert!(scoped.bytes <= HAND_OFF_BYTES && scoped.of == 2 * HAND_OFF_BYTES, "more than its 300 bytes of the prompt");
}

#[test]
fn the_calls_of_one_reply_hand_on_no_more_than_its_record_takes() {
    let calls = recorded(20).calls;
    let handed: usize = calls.iter().flat_map(|call| &call.scoped).map(|scoped| scoped.bytes).sum();
    assert!(handed <= HAND_OFFS_BYTES && handed > HAND_OFFS_BYTES - HAND_OFF_BYTES, "{handed}");
    let refused: Vec<_> = calls.iter().filter_map(|call| call.what.as_ref().err()).collect();
    assert!(
        !refused.is_empty() && refused[0].text.contains("the calls of one reply hand on at most 1048576 bytes"),
        "{refused:?}"
    );
}
