//! What is left of a prompt without a path, as tables.

use super::*;
use crate::domain::chat::{Arguments, ToolCall};
use crate::domain::context::item::{HandOffTags, Section};
use crate::domain::origin::{Origin, overlap};
use crate::domain::session::CallRecord;
use serde_json::{Value, json};

fn item(source: &str, content: ItemContent, reads: &[&str]) -> PromptItem {
    PromptItem {
        section: Section::Context,
        key: format!("context/{source}"),
        label: None,
        source: Some(source.into()),
        allowed: None,
        asked: None,
        priority: 500,
        required: false,
        unresolved: Vec::new(),
        tags: HandOffTags::default(),
        origin: Origin { reads: reads.iter().map(|path| SourceRead::new(*path)).collect(), ..Origin::default() },
        content,
        attachments: Vec::new(),
    }
}

fn called(read: &str, into: Option<&str>) -> TurnRecord {
    let call = ToolCall { id: "c".into(), name: "t".into(), arguments: Arguments::Json(json!({})) };
    let seen = SourceRead { into: into.map(str::to_owned), ..SourceRead::new(read) };
    let made = CallRecord {
        tool: "t".into(),
        operation: "v/ops/t".into(),
        outcome: "ok".into(),
        reads: Some(vec![seen]),
        ..CallRecord::default()
    };
    let said = vec![
        ChatMessage::assistant(String::new(), vec![call]),
        ChatMessage::Tool { call: "c".into(), name: "t".into(), text: "answer".into() },
    ];
    TurnRecord { said, calls: vec![made], ..TurnRecord::default() }
}

#[test]
fn a_piece_goes_by_what_it_came_from_and_what_was_read_for_it() {
    let value = || ItemContent::Value(json!({"x": {"y": 1, "z": 2}, "other": 3}));
    for (source, content, reads, kept) in [
        ("w/a/x", ItemContent::Text("t".into()), &[][..], None),
        ("w/a/x/y", ItemContent::Text("t".into()), &[], None),
        ("w/a", ItemContent::Text("t".into()), &[], Some(json!("t"))),
        ("w/a", ItemContent::Excerpt { text: "t".into(), of: 9 }, &[], None),
        ("w/a", value(), &[], Some(json!({"other": 3}))),
        ("w/b", ItemContent::Text("t".into()), &[], Some(json!("t"))),
        ("w/b, w/a", ItemContent::Text("t".into()), &[], None),
        ("v/ops/lattice/read", value(), &["w/a/x/y"], None),
        ("v/ops/lattice/read", ItemContent::Text("t".into()), &["w/b"], Some(json!("t"))),
    ] {
        let item = item(source, content, reads);
        let path = PathSet::from_iter(["w/a/x"]);
        let left = strip_paths(item, &path, &mut false);
        let left = left.filter(|item| !item.origin.reads.iter().any(|seen| overlap(&seen.path, "w/a/x")));
        let left = left.map(|item| match item.content {
            ItemContent::Text(text) => Value::from(text),
            ItemContent::Value(value) => value,
            ItemContent::Excerpt { .. } | ItemContent::Absent(..) => Value::Null,
        });
        assert_eq!(left, kept, "{source} {reads:?}");
    }
}

#[test]
fn results_of_tools_and_of_children_say_that_they_are_left_out() {
    let mut record = called("w/a/x", None);
    assert!(!clear_results(&mut record, "w/b", &|seen| overlap(&seen.path, "w/b")));
    assert!(clear_results(&mut record, "w/a", &|seen| overlap(&seen.path, "w/a")));
    assert!(matches!(&record.said[1], ChatMessage::Tool { text, .. } if text.is_empty()));
    assert_eq!(record.calls[0].note.as_deref(), Some("left out: w/a"));
    let mut heard = CallerMessage {
        job: None,
        text: "[Pending job results]\n- Job 0f status=COMPLETE output=1".into(),
        attachments: Vec::new(),
    };
    assert!(!leave_out_heard(&mut heard, "j/00", &|job| overlap(&job, "j/00")));
    assert!(leave_out_heard(&mut heard, "j/0f", &|job| overlap(&job, "j/0f")));
    assert_eq!(heard.text, "[left out: j/0f]");
}
