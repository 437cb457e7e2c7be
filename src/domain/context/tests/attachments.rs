//! Pictures and files: where they stand, what they take of the budget, and what stands in their place.

use super::*;
use crate::chat::ModelRequest;
use crate::ids::AssetId;
use crate::media::{Attachment, MediaType, reference};

/// Bytes of the default budget.
const BUDGET: usize = 180_000;

fn asset(n: usize) -> AssetId {
    AssetId::of_content(&n.to_le_bytes())
}

/// A picture of 1,000 tokens: 4,000 bytes of the budget.
fn picture(n: usize) -> Attachment {
    Attachment { media: Some(MediaType::Png), size: 1_000, tokens: 1_000, ..Attachment::of_asset(asset(n)) }
}

fn heard(turn: u64, assets: &[usize]) -> TurnRecord {
    let mut record = spoken(turn, 5);
    record.heard[0].attachments = assets.iter().map(|n| asset(*n)).collect();
    record
}

fn turns(turns: Vec<TurnRecord>) -> Vec<Arc<TranscriptTurn>> {
    turns.into_iter().map(TranscriptTurn::from).map(Arc::new).collect()
}

/// Attachments of a request in their order: the number of the asset, or why it is not shown.
fn shown(request: &ModelRequest, of: usize) -> Vec<Result<usize, String>> {
    let attachments = request.messages.iter().flat_map(|message| match message {
        ChatMessage::User { attachments, .. } => attachments.as_slice(),
        ChatMessage::Assistant { .. } | ChatMessage::Tool { .. } => &[],
    });
    let number = |attachment: &Attachment| (0..of).find(|n| asset(*n) == attachment.asset).unwrap();
    attachments.map(|attachment| attachment.withheld.clone().map_or_else(|| Ok(number(attachment)), Err)).collect()
}

#[test]
fn attachments_stand_where_they_are_referred_to_and_count() {
    let note = PromptItem { attachments: vec![asset(0)], ..entry("note", 5) };
    let served = ServedEvents {
        messages: vec![message(3, json!({"see": reference(&asset(2))}))],
        results: vec![result(2, json!([reference(&asset(3))]))],
        ..doing(task(1, json!({"look": reference(&asset(4)), "and": reference(&asset(1))})))
    };
    let known: Vec<_> = (0..5).map(picture).collect();
    let plain = Inputs { transcript: turns(vec![heard(1, &[1])]), ..inputs(BUDGET, vec![note], served) };
    let inputs = Inputs { attachments: known, ..plain.clone() };
    let assembled = built(&inputs);
    let again = Err("it stands above".to_owned());
    // Context, the turn before, result, message, task.
    assert_eq!(shown(&assembled.request, 5), [Ok(0), Ok(1), Ok(3), Ok(2), Ok(4), again]);
    let full = row(&assembled, &format!("attachment/{}", &asset(4).as_str()[..12]));
    assert_eq!(
        (full.status, full.rendered, full.source.clone()),
        (RowStatus::Full, 4_000, Some(format!("a/{}", asset(4))))
    );
    let without = Inputs {
        attachments: inputs.attachments.iter().cloned().map(|known| known.withhold("no")).collect(),
        served: ServedEvents { task: Some(task(1, "look")), ..plain.served.clone() },
        ..plain
    };
    let difference = assembled.ledger.used - built(&without).ledger.used;
    // With a line for each attachment of the task.
    assert!((21_000..21_600).contains(&difference), "{difference}");
    assert_eq!(assembled.shown.iter().flat_map(|event| event.attachments.clone()).count(), 2, "they are recorded");
    assert_eq!(built(&inputs).ledger.prompt, assembled.ledger.prompt);
    assert_ne!(built(&without).ledger.prompt, assembled.ledger.prompt);
}

#[test]
fn a_new_task_whose_attachment_cannot_be_shown_gets_no_prompt() {
    let check = |input: Value, known: Vec<Attachment>, expected: &str| {
        let inputs = Inputs { attachments: known, ..inputs(BUDGET, vec![], doing(task(1, input))) };
        let error = refused(&inputs);
        assert!(matches!(error, ContextError::RequiredMissing { .. }), "{error}");
        assert!(error.to_string().contains(expected), "{error}");
        // Later it is a line: the session lives on.
        let begun = TurnRecord { job: Some(job(1)), ..heard(1, &[]) };
        assert!(built(&Inputs { transcript: turns(vec![begun]), ..inputs }).ledger.used > 0);
    };
    let one = || json!([reference(&asset(1))]);
    check(one(), vec![picture(1).withhold("provider `p` takes no images")], "takes no images");
    check(json!({"$asset": "o/pin"}), vec![], "a/HASH");
    let many: Vec<_> = (0..21).map(|n| reference(&asset(n))).collect();
    check(json!(many), (0..21).map(picture).collect(), "20 attachments, got 21");
    let large = |n| Attachment { size: 3_900_000, ..picture(n) };
    let four: Vec<_> = (0..4).map(|n| reference(&asset(n))).collect();
    check(json!(four), (0..4).map(large).collect(), "12582912 bytes together");
}

#[test]
fn a_task_whose_attachments_have_no_room_overflows() {
    let large = Attachment { tokens: 50_000, ..picture(1) };
    let inputs = Inputs { attachments: vec![large], ..inputs(BUDGET, vec![], doing(task(1, reference(&asset(1))))) };
    let ContextError::Overflow { sizes, .. } = refused(&inputs) else { panic!("expected an overflow") };
    assert!(sizes.contains("attachments 200600"), "{sizes}");
}

#[test]
fn the_newest_attachments_of_earlier_turns_are_shown() {
    let of = |count: usize, tokens: usize, budget: usize| {
        let transcript = turns((0..count).map(|n| heard(n as u64 + 1, &[n])).collect());
        let attachments = (0..count).map(|n| Attachment { tokens, ..picture(n) }).collect();
        let served = doing(task(9, "next"));
        built(&Inputs { transcript, attachments, ..inputs(budget, vec![], served) })
    };
    for (count, first) in [(1, 0), (20, 0), (21, 5), (25, 5), (26, 10), (40, 20)] {
        let found = shown(&of(count, 10, BUDGET).request, count);
        let places: Vec<_> = found.iter().map(Result::is_ok).collect();
        assert_eq!(places, (0..count).map(|n| n >= first).collect::<Vec<_>>(), "{count}");
        assert!(found.iter().take(first).flatten().next().is_none());
    }
    // A third of the budget holds fifteen of 4,000 bytes.
    let crowded = of(18, 1_000, BUDGET);
    assert_eq!(shown(&crowded.request, 18).iter().filter(|found| found.is_ok()).count(), 13);
    assert!(crowded.ledger.used < BUDGET);
    let map = text(&crowded);
    assert!(map.contains("omitted: attachment/"), "{map}");
}

#[test]
fn an_attachment_repeated_in_later_turns_counts_once() {
    let transcript = turns((1..=30).map(|n| heard(n, &[7])).collect());
    let inputs = Inputs { transcript, attachments: vec![picture(7)], ..inputs(BUDGET, vec![], doing(task(9, "x"))) };
    let found = shown(&built(&inputs).request, 8);
    assert_eq!((found.len(), found[0].clone(), found.iter().filter(|found| found.is_ok()).count()), (30, Ok(7), 1));
}

#[test]
fn an_asset_that_was_not_looked_up_is_a_line() {
    let transcript = turns(vec![heard(1, &[1])]);
    let found = shown(&built(&Inputs { transcript, ..inputs(BUDGET, vec![], doing(task(9, "x"))) }).request, 2);
    assert!(found[0].as_ref().unwrap_err().contains("older"), "{found:?}");
}

#[test]
fn lines_count_so_that_many_references_never_pass_the_budget() {
    let transcript = turns((1..200).map(|n| heard(n, &(0..60).collect::<Vec<_>>())).collect());
    let attachments = (0..60).map(|n| picture(n).withhold("r".repeat(300))).collect();
    let messages =
        (2..5).map(|n| message(n, json!((0..60).map(|n| reference(&asset(n))).collect::<Vec<_>>()))).collect();
    let served = ServedEvents { messages, ..doing(task(1, "x")) };
    let assembled = built(&Inputs { transcript, attachments, ..inputs(BUDGET, vec![], served) });
    let of = |message: &ChatMessage| match message {
        ChatMessage::User { text, attachments } => {
            let lines = attachments.iter().map(|known| known.line(known.withheld.as_deref()).len());
            text.len() + lines.sum::<usize>()
        }
        ChatMessage::Assistant { text, .. } | ChatMessage::Tool { text, .. } => text.len(),
    };
    let sent: usize = assembled.request.messages.iter().map(of).sum();
    assert!(sent <= assembled.ledger.used && assembled.ledger.used <= BUDGET, "{sent} {}", assembled.ledger.used);
    assert!(sent > BUDGET / 4, "{sent}");
}
