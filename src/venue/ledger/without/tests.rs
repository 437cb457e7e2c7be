//! What is left of a prompt without a path, as tables.

use super::*;
use crate::domain::chat::{Arguments, ToolCall};
use crate::domain::context::item::{Section, Tags};
use crate::domain::origin::{Origin, overlap};
use crate::domain::session::CallRecord;
use serde_json::{Value, json};

fn item(source: &str, content: Content, reads: &[&str]) -> Item {
    Item {
        section: Section::Context,
        key: format!("context/{source}"),
        label: None,
        source: Some(source.into()),
        allowed: None,
        asked: None,
        priority: 500,
        required: false,
        unresolved: Vec::new(),
        tags: Tags::default(),
        origin: Origin { reads: reads.iter().map(|path| Seen::new(*path)).collect(), ..Origin::default() },
        content,
        attachments: Vec::new(),
    }
}

fn called(read: &str, into: Option<&str>) -> TurnRecord {
    let call = ToolCall { id: "c".into(), name: "t".into(), arguments: Arguments::Json(json!({})) };
    let seen = Seen { into: into.map(str::to_owned), ..Seen::new(read) };
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
    let value = || Content::Value(json!({"x": {"y": 1, "z": 2}, "other": 3}));
    for (source, content, reads, kept) in [
        ("w/a/x", Content::Text("t".into()), &[][..], None),
        ("w/a/x/y", Content::Text("t".into()), &[], None),
        ("w/a", Content::Text("t".into()), &[], Some(json!("t"))),
        ("w/a", Content::Excerpt { text: "t".into(), of: 9 }, &[], None),
        ("w/a", value(), &[], Some(json!({"other": 3}))),
        ("w/b", Content::Text("t".into()), &[], Some(json!("t"))),
        ("w/b, w/a", Content::Text("t".into()), &[], None),
        ("v/ops/lattice/read", value(), &["w/a/x/y"], None),
        ("v/ops/lattice/read", Content::Text("t".into()), &["w/b"], Some(json!("t"))),
    ] {
        let item = item(source, content, reads);
        let path = PathSet::from_iter(["w/a/x"]);
        let left = strip_paths(item, &path, &mut false);
        let left = left.filter(|item| !item.origin.reads.iter().any(|seen| overlap(&seen.path, "w/a/x")));
        let left = left.map(|item| match item.content {
            Content::Text(text) => Value::from(text),
            Content::Value(value) => value,
            Content::Excerpt { .. } | Content::Absent(..) => Value::Null,
        });
        assert_eq!(left, kept, "{source} {reads:?}");
    }
}

#[test]
fn results_of_tools_and_of_children_say_that_they_are_left_out() {
    let mut record = called("w/a/x", None);
    assert!(!forget(&mut record, "w/b", &|seen| overlap(&seen.path, "w/b")));
    assert!(forget(&mut record, "w/a", &|seen| overlap(&seen.path, "w/a")));
    assert!(matches!(&record.said[1], ChatMessage::Tool { text, .. } if text.is_empty()));
    assert_eq!(record.calls[0].note.as_deref(), Some("left out: w/a"));
    let mut heard = Heard {
        job: None,
        text: "[Pending job results]\n- Job 0f status=COMPLETE output=1".into(),
        attachments: Vec::new(),
    };
    assert!(!unheard(&mut heard, "j/00", &|job| overlap(&job, "j/00")));
    assert!(unheard(&mut heard, "j/0f", &|job| overlap(&job, "j/0f")));
    assert_eq!(heard.text, "[left out: j/0f]");
}
