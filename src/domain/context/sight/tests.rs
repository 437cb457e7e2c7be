//! Which turns are shown, and with what marked, as tables.

use super::*;
use crate::chat::{Arguments, ToolCall};
use crate::context::item::{Absence, HandOffTags, Section};
use crate::ids::{AssetId, JobId, SessionKey};
use crate::lattice::layout::Scope;
use crate::session::CallRecord;
use serde_json::json;

fn cap(with: &str, can: &str) -> Capability {
    Capability { with: with.into(), can: can.into() }
}

fn holding(list: &[(&str, &str)]) -> Authority {
    Authority::new(Some(list.iter().map(|(with, can)| cap(with, can)).collect()))
}

/// A turn that said something and made calls, each by a capability.
fn turn(number: u64, used: &[&str], calls: &[&str]) -> TurnRecord {
    let call = |at: usize| ToolCall { id: format!("c{at}"), name: "t".into(), arguments: Arguments::Json(json!({})) };
    let result =
        |at: usize| ChatMessage::Tool { call: format!("c{at}"), name: "t".into(), text: format!("result {at}") };
    let made = |with: &&str| CallRecord {
        operation: "t".into(),
        outcome: "ok".into(),
        needs: Some(cap(with, "crud/read")).filter(|_| !with.is_empty()).into_iter().collect(),
        ..CallRecord::default()
    };
    let text = ChatMessage::assistant(format!("words {number}"), (0..calls.len()).map(call).collect());
    TurnRecord {
        turn: number,
        said: std::iter::once(text).chain((0..calls.len()).map(result)).collect(),
        calls: calls.iter().map(made).collect(),
        used: Some(used.iter().map(|with| cap(with, "crud/read")).collect()),
        ..TurnRecord::default()
    }
}

/// One letter per turn: `w`hole, `h`idden, `s` what it said is marked, `r` results are, `b`oth.
fn check(turns: &[TurnRecord], now: &Authority, bound: &Authority, open_from: u64, expected: &str) {
    let turns: Vec<_> = turns.iter().cloned().map(TranscriptTurn::from).map(Arc::new).collect();
    check_shown(&turns, now, bound, open_from, expected);
    // Again by the same, and by others in between: what was found out before changes nothing.
    check_shown(&turns, now, bound, open_from, expected);
    let (all, none) = (Authority::without_limits(), Authority::new(Some(Vec::new())));
    for other in [&all, &none] {
        turn_sights(&turns, Viewer { authority: other, bound: other }, |_| false);
        check_shown(&turns, now, bound, open_from, expected);
    }
}

fn check_shown(turns: &[Arc<TranscriptTurn>], now: &Authority, bound: &Authority, open_from: u64, expected: &str) {
    let seen = turn_sights(turns, Viewer { authority: now, bound }, |turn| turn.turn >= open_from);
    let letters = seen.iter().map(|sight| match sight {
        Sight::Whole => 'w',
        Sight::Hidden => 'h',
        Sight::Marked(RevokedMarks { said: Some(_), results }) if !results.is_empty() => 'b',
        Sight::Marked(RevokedMarks { said: Some(_), .. }) => 's',
        Sight::Marked(_) => 'r',
    });
    assert_eq!(letters.collect::<String>(), expected);
}

#[test]
fn a_revocation_hides_what_was_learned_by_it_and_nothing_else() {
    let all = Authority::without_limits();
    let turns = [
        turn(1, &[], &["w/log"]),
        turn(2, &["w/doc"], &["w/secret/pin", "w/log"]),
        turn(3, &[], &[]),
        turn(4, &[], &[""]),
    ];
    for (gone, answered, open) in [
        ("w/unrelated", "wwww", "wwww"),
        ("w/secret", "whhh", "wrss"),
        ("w/secret/pin/1", "whhh", "wrss"),
        ("w/log", "hhhh", "rbss"),
        ("w/doc", "whhh", "wsss"),
        ("", "hhhh", "rbss"),
    ] {
        let now = all.clone().except_resource(gone);
        check(&turns, &now, &all, 99, answered);
        check(&turns, &now, &all, 1, open);
    }
}

#[test]
fn a_turn_is_judged_without_the_turns_before_it() {
    let (all, wide) = (Authority::without_limits(), holding(&[("w", "crud")]));
    let narrow = holding(&[("w/a", "crud")]);
    let by = |number, authority: &Authority, used: &[&str]| TurnRecord {
        authority: authority.clone(),
        bound: authority.clone(),
        ..turn(number, used, &[])
    };
    let turns = [
        by(1, &narrow, &["w/a"]),
        by(2, &narrow, &["w/a"]),
        by(3, &wide, &["w/a"]),
        by(4, &narrow, &["w/a"]),
        by(5, &wide, &["w/b"]),
        by(6, &wide, &["w/b"]),
        by(7, &narrow, &["w/a"]),
    ];
    check(&turns, &all, &all, 99, "wwwwwww");
    check(&turns, &narrow, &narrow, 99, "wwhwhhw");
    check(&turns[..4], &narrow, &wide, 99, "wwww");
    check(&turns, &narrow, &wide, 99, "wwwwhhw");
    let other = TurnRecord { calls: turn(8, &[], &["w/b"]).calls, ..by(8, &narrow, &["w/a"]) };
    check(&[turns[0].clone(), other, turns[1].clone()], &narrow, &narrow, 99, "whw");
}

#[test]
fn viewers_are_told_apart_by_place_and_not_by_job() {
    let (all, session) = (Authority::without_limits(), SessionKey::from_token("a/s").unwrap());
    let at = |session: Option<&SessionKey>, job: Option<&str>| {
        let job = job.map(|job| JobId::new(job).unwrap());
        all.clone().bind_home(&Scope { session: session.cloned(), job })
    };
    let key =
        |authority: &Authority, bound: &Authority| Viewer { authority, bound }.key(&authority.clone().without_job());
    let (one, two) = ("1".repeat(32), "2".repeat(32));
    let here = key(&at(Some(&session), Some(&one)), &all);
    assert_eq!(here, key(&at(Some(&session), Some(&two)), &all));
    assert_eq!(here, key(&at(Some(&session), None), &all));
    assert_ne!(here, key(&at(None, None), &all));
    assert_ne!(here, key(&at(Some(&session), None).except_resource("w/secret"), &all));
    assert_ne!(here, key(&at(Some(&session), None), &all.clone().except_resource("w/secret")));
    // What a job wrote for itself, another of the same session may not know: whoever looks first.
    let narrow = |job: &str| {
        let job = Some(JobId::new(job).unwrap());
        holding(&[("w", "crud")]).bind_home(&Scope { session: Some(session.clone()), job })
    };
    let wrote = TurnRecord { authority: holding(&[("w", "crud")]), ..turn(1, &[], &[&format!("j/{one}/t/x")]) };
    let turns = [Arc::new(TranscriptTurn::from(wrote))];
    for (job, expected) in [(&one, "w"), (&two, "h"), (&one, "w"), (&two, "h")] {
        check_shown(&turns, &narrow(job), &all, 99, expected);
    }
    let used = |with: &str| turn(1, &[with], &[]);
    for with in ["t/x", "c/x", "w/x", "v/ops"] {
        for viewer in [at(Some(&session), None), at(Some(&session), Some(&one))] {
            check(&[used(with)], &viewer, &all, 99, "w");
        }
    }
}

#[test]
fn a_turn_without_access_to_revoked_data_is_shown() {
    let all = Authority::without_limits();
    let after =
        |number| TurnRecord { authority: all.clone().except_resource("w/secret"), ..turn(number, &[], &["w/log"]) };
    let now = all.clone().except_resource("w/secret");
    check(&[turn(1, &[], &["w/secret"]), after(2), after(3)], &now, &all, 99, "hww");
    // It was asked before, and its commit came after.
    let asked_before = TurnRecord { wider: Some(all.clone()), ..after(2) };
    check(&[turn(1, &[], &["w/secret"]), asked_before, after(3)], &now, &all, 99, "hhw");
}

#[test]
fn a_narrower_request_does_not_see_what_a_wider_one_said() {
    let (all, narrow) = (Authority::without_limits(), holding(&[("w/a", "crud")]));
    let of = |number, authority: &Authority, bound: &Authority| TurnRecord {
        authority: authority.clone(),
        bound: bound.clone(),
        ..turn(number, &[], &[])
    };
    let turns = [of(1, &all, &all), of(2, &narrow, &narrow), of(3, &narrow, &all)];
    check(&turns, &all, &all, 99, "www");
    // The last ran for somebody else, who might have said anything, but could do no more.
    check(&turns, &narrow, &narrow, 99, "hww");
    check(&turns, &narrow, &narrow, 1, "hww");
    check(&turns, &holding(&[]), &holding(&[]), 1, "hhh");
    // Roots or caps were narrowed meanwhile: the request is as wide as before.
    check(&turns, &narrow, &all, 99, "www");
    // Records of before don't say what they used: only their authority counts.
    let old = TurnRecord { used: None, ..of(1, &all, &all) };
    check(&[old], &narrow, &all, 99, "h");
}

#[test]
fn narrowed_roots_hide_what_was_read_outside_of_them() {
    let (all, now) = (Authority::without_limits(), holding(&[("w/a", "crud/read"), ("g", "agent")]));
    let turns = [turn(1, &[], &["w/a/x"]), turn(2, &[], &["w/b"]), turn(3, &[], &[])];
    check(&turns, &now, &all, 99, "whh");
    check(&turns, &now, &all, 2, "wrs");
    // What was written there may still be read.
    let mut wrote = turn(1, &[], &["w/a/x"]);
    wrote.calls[0].needs = vec![cap("w/a/x", "crud/write")];
    check(&[wrote], &now, &all, 99, "w");
}

#[test]
fn what_a_goal_read_counts_as_read_by_its_opener() {
    let all = Authority::without_limits();
    let mut opener = turn(1, &[], &[""]);
    opener.calls[0].operation = "subgoal".into();
    let inner = TurnRecord { frame: 1, ..turn(2, &[], &["w/secret"]) };
    let turns = [opener, inner, turn(3, &[], &[])];
    check(&turns, &all.clone().except_resource("w/secret"), &all, 1, "rrs");
    check(&turns, &all.clone().except_resource("w/other"), &all, 1, "www");
}

#[test]
fn omitted_pieces_leave_a_mark_in_their_place() {
    let all = Authority::without_limits();
    let now = all.clone().except_resource("w/secret");
    let turns =
        [turn(1, &[], &["w/secret", "w/log"]), turn(2, &[], &["w/log"])].map(TranscriptTurn::from).map(Arc::new);
    let seen = turn_sights(&turns, Viewer { authority: &now, bound: &all }, |_| true);
    let text = |at: usize| {
        let Sight::Marked(marks) = &seen[at] else { panic!("{:?}", seen[at]) };
        let mut said = turns[at].said.clone();
        marks.hide_marked(&mut said, &turns[at].calls);
        said.iter().map(|said| format!("{said:?}")).collect::<Vec<_>>()
    };
    let first = text(0);
    assert!(first[0].contains("words 1"), "it was said before anything was read: {first:?}");
    assert!(first[1].contains("This call was made, and came to: ok.") && first[1].contains("crud/read on w/secret"));
    assert!(!first[1].contains("result 0") && first[2].contains("result 1"), "{first:?}");
    let second = text(1);
    assert!(second[0].contains("What was said here is not shown") && !second[0].contains("words 2"), "{second:?}");
    assert!(second[1].contains("result 0"));
}

#[test]
fn each_reader_of_a_prompt_is_named_once_by_its_place() {
    let item = |source: Option<&str>, needs: &[(&str, &str)], content: ItemContent| PromptItem {
        section: Section::Context,
        key: "k".into(),
        label: None,
        source: source.map(str::to_owned),
        allowed: None,
        asked: None,
        priority: 0,
        required: false,
        unresolved: Vec::new(),
        tags: HandOffTags {
            needs: needs.iter().map(|(a, b)| ((*a).into(), (*b).into())).collect(),
            ..HandOffTags::default()
        },
        origin: crate::origin::Origin::default(),
        content,
        attachments: Vec::new(),
    };
    let text = || ItemContent::Text("x".into());
    let items = [
        item(Some("w/a"), &[("crud/read", "w/a")], text()),
        item(Some("w/a"), &[("crud/read", "w/a")], text()),
        item(None, &[], text()),
        item(Some("v/ops"), &[("crud/read", "v/ops")], text()),
        item(Some("op"), &[("crud/read", "w/b"), ("http/get", "https://x/")], text()),
        item(Some("w/gone"), &[("crud/read", "w/gone")], ItemContent::Absent(Absence::Denied, String::new())),
        item(Some("r/scratchpad/b"), &[], text()),
    ];
    let shown = Attachment::of_asset(AssetId::of_content(b"x"));
    let attachments = [shown.clone().withhold("gone"), shown];
    let found = used_capabilities(&items, &attachments[..1], &Authority::without_limits());
    assert_eq!(found, [cap("w/a", "crud/read"), cap("w/b", "crud/read"), cap("https://x", "http/get")]);
    let asset = format!("a/{}", AssetId::of_content(b"x"));
    assert_eq!(used_capabilities(&[], &attachments, &Authority::without_limits()), [cap(&asset, "crud/read")]);
}
