//! Results and messages: shown whole while there is room, else left in the mailbox or cut with a way to the rest.

use super::*;

/// Bytes of the default budget.
const BUDGET: usize = 180_000;

fn served(messages: Vec<(String, Event)>) -> ServedEvents {
    ServedEvents { messages, ..doing(task(1, "x")) }
}

#[test]
fn a_message_is_shown_whole_while_the_budget_has_room() {
    for input in [json!("m".repeat(40_000)), json!({"to": "me", "text": "m".repeat(40_000), "n": 1, "k": [1, 2]})] {
        let assembled = built(&inputs(BUDGET, vec![], served(vec![message(3, input.clone())])));
        assert_eq!(row(&assembled, "inbox/e3").status, RowStatus::Full, "{input:.20}");
        assert!(text(&assembled).contains(&"m".repeat(40_000)) && assembled.shown.len() == 1);
    }
}

#[test]
fn a_message_without_room_beside_others_waits() {
    let large = || vec![message(3, "a".repeat(60_000)), message(4, "b".repeat(60_000)), message(5, "short")];
    let assembled = built(&inputs(BUDGET, vec![], served(large())));
    let shown: Vec<_> = assembled.shown.iter().map(|event| event.key.as_str()).collect();
    assert_eq!(shown, ["k3", "k5"]);
    let left = row(&assembled, "inbox/e4");
    assert_eq!((left.status, left.rendered), (RowStatus::Dropped, 0));
    assert!(left.reason.as_deref().unwrap().starts_with("left in the mailbox: it takes 60000 bytes, and "), "{left:?}");
    let alone = built(&inputs(BUDGET, vec![], served(large().drain(1..2).collect())));
    assert_eq!(row(&alone, "inbox/e4").status, RowStatus::Full);
}

#[test]
fn a_message_that_no_prompt_has_room_for_names_its_rest() {
    let assembled = built(&inputs(BUDGET, vec![], served(vec![message(3, "m".repeat(300_000)), message(4, "short")])));
    let (cut, prompt) = (row(&assembled, "inbox/e3"), text(&assembled));
    assert_eq!(cut.status, RowStatus::Shrunk);
    assert!(cut.rendered > 80_000 && prompt.contains(&"m".repeat(cut.rendered - 150)), "{cut:?}");
    let mark =
        format!(" [cut to {} of 300000 bytes; read on with lattice_slice, path `c/messages/e3`, offset ", cut.given);
    assert!(prompt.contains(&mark), "{mark}");
    assert_eq!(row(&assembled, "inbox/e4").status, RowStatus::Dropped, "it waits");
}

#[test]
fn a_result_is_shown_to_its_cap_and_names_its_rest() {
    let (text_output, rows) = (json!("r".repeat(50_000)), json!({"ok": true, "rows": vec!["r"; 20_000]}));
    for (output, ends) in [(text_output, "/output`, offset 3"), (rows, "/output/rows`]")] {
        let results = vec![result(2, output), result(3, "short")];
        let assembled = built(&inputs(BUDGET, vec![], ServedEvents { results, ..doing(task(1, "x")) }));
        let shown = row(&assembled, &format!("pending/{}", job(2)));
        assert!(shown.rendered <= 32_768 && shown.rendered > 32_500, "{shown:?}");
        let rest = format!("; read on with lattice_slice, path `j/{}{ends}", job(2));
        assert!(text(&assembled).contains(&rest), "{rest}");
        assert_eq!(assembled.shown.len(), 2);
    }
}

#[test]
fn a_small_budget_keeps_a_quarter_for_events() {
    let results = vec![result(2, "r".repeat(30_000))];
    let assembled = built(&inputs(20_000, vec![entry("doc", 8_000)], ServedEvents { results, ..doing(task(1, "x")) }));
    let shown = row(&assembled, &format!("pending/{}", job(2)));
    assert!((5_000..=11_000).contains(&shown.rendered) && shown.status == RowStatus::Shrunk, "{shown:?}");
}
