//! Holding, settling and what is left, to the last token.

use super::*;
use crate::limits::MODEL_CALL_MAX;
use serde_json::json;

fn account(limits: serde_json::Value) -> Account {
    Account::new(LimitOrigin::Request, serde_json::from_value(limits).unwrap())
}

fn call(session: &str, prompt: u64, reply: u32) -> BudgetedCall<'_> {
    BudgetedCall { session, prompt, reply: Some(reply), price: Some(Price::new(3.0, 15.0)), now: Millis(1) }
}

fn usage(input: u64, output: u64) -> TokenUsage {
    TokenUsage::new(input, output)
}

#[test]
fn a_call_is_held_in_full_and_pays_what_it_used() {
    let mut accounts = [account(json!({"tokens": 1_000}))];
    assert_eq!(hold(&mut accounts, call("a", 400, 300)).map(|granted| granted.reply), Ok(300));
    assert_eq!(accounts[0].held["a"].used.tokens, 700);
    // A sibling gets what is left, and no more, and it is known whose limit cuts it off.
    let cut = Allotment { reply: 100, cut_by: Some(LimitOrigin::Request) };
    assert_eq!(hold(&mut accounts, call("b", 200, 300)), Ok(cut));
    assert_eq!(hold(&mut accounts, call("c", 10, 300)), Err(HoldError::Held), "they may give it back");
    settle(&mut accounts, "a", Some((usage(400, 20), None)));
    assert_eq!((accounts[0].spent.tokens, accounts[0].spent.turns), (420, 1));
    assert_eq!(hold(&mut accounts, call("c", 10, 300)).map(|granted| granted.reply), Ok(270));
    settle(&mut accounts, "b", Some((usage(200, 100), None)));
    settle(&mut accounts, "c", None);
    settle(&mut accounts, "c", Some((usage(9, 9), None)));
    assert_eq!(accounts[0].spent.tokens, 720, "what was not made costs nothing, and nothing is paid twice");
    assert!(accounts[0].held.is_empty());
}

#[test]
fn spending_stays_within_the_limit_if_calls_keep_their_holds() {
    // A deterministic walk of three sessions over one account.
    let mut state = 7_u64;
    let mut next = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let (mut made, mut refused) = (0, 0);
    for _ in 0..200 {
        let mut accounts =
            [account(json!({"tokens": 5_000, "cost": 0.05})), account(json!({"tokens": 4_000, "turns": 30}))];
        let mut running: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
        for _ in 0..60 {
            let session = ["a", "b", "c"][usize::try_from(next(3)).unwrap()];
            if let Some((prompt, reply)) = running.remove(session) {
                let price = Some(Price::new(3.0, 15.0));
                let used = (next(4) > 0).then(|| (usage(prompt, next(reply + 1)), price));
                settle(&mut accounts, session, used);
            } else {
                let prompt = next(500);
                if let Ok(granted) = hold(&mut accounts, call(session, prompt, 400)) {
                    running.insert(session, (prompt, granted.reply));
                    made += 1;
                } else {
                    refused += 1;
                }
            }
            assert!(accounts[0].spent_and_held().tokens <= 5_000 && accounts[0].spent_and_held().nano <= 50_000_000);
            assert!(accounts[1].spent_and_held().tokens <= 4_000 && accounts[1].spent_and_held().turns <= 30);
        }
    }
    assert!(made > 1_000 && refused > 1_000, "{made} calls were made, {refused} refused");
}

#[test]
fn a_refused_call_says_what_is_used_up_and_holds_nothing() {
    for (limits, prompt, part) in [
        (json!({"tokens": 100}), 200, "0 of 100 tokens are used, the next call needs 200"),
        (json!({"tokens": 205}), 200, "what is left is too little"),
        (json!({"cost": 0.0001}), 200, "$0.000000 of $0.0001 are used, the next call needs $0.000600"),
    ] {
        let mut accounts = [account(json!({})), account(limits)];
        let Err(HoldError::Spent { reason, origin }) = hold(&mut accounts, call("a", prompt, 100)) else {
            panic!("expected to be refused");
        };
        assert!(reason.contains(part) && origin == LimitOrigin::Request, "{reason}");
        assert!(accounts.iter().all(|account| account.held.is_empty()), "all or none");
    }
    let mut accounts = [account(json!({"turns": 1}))];
    hold(&mut accounts, call("a", 1, 100)).unwrap();
    settle(&mut accounts, "a", Some((usage(1, 1), None)));
    let Err(HoldError::Spent { reason, .. }) = hold(&mut accounts, call("a", 1, 100)) else { panic!("refused") };
    assert_eq!(reason, "1 model calls were made");
    let free = BudgetedCall { price: None, ..call("a", 1, 100) };
    let Err(HoldError::Spent { reason, .. }) = hold(&mut [account(json!({"cost": 1.0}))], free) else {
        panic!("refused")
    };
    assert!(reason.contains("no `price`"), "{reason}");
}

#[test]
fn the_hold_of_a_dead_worker_counts_as_spent() {
    let mut accounts = [account(json!({"tokens": 1_000}))];
    hold(&mut accounts, call("a", 100, 100)).unwrap();
    hold(&mut accounts, call("a", 100, 100)).unwrap();
    assert_eq!((accounts[0].spent.tokens, accounts[0].held["a"].used.tokens), (200, 200));
}

#[test]
fn money_is_counted_to_the_billionth_and_rounded_up() {
    let price = |input: f64, output: f64| Price::new(input, output);
    assert_eq!(price(3.0, 15.0).ceiling(1_000_000, 1_000_000), 18_000_000_000);
    assert_eq!(price(3.0, 15.0).ceiling(1, 0), 3_000);
    assert_eq!(price(0.0001, 0.0).ceiling(1, 0), 1, "a tenth of a billionth is one");
    assert_eq!(price(0.0001, 0.0).ceiling(10, 0), 1);
    assert_eq!(price(0.0, 0.0).ceiling(u64::MAX, u64::MAX), 0);
    // The reply is cut to what the money buys: $0.0105 - $0.003 for the prompt = 500 tokens.
    let mut accounts = [account(json!({"cost": 0.0105}))];
    assert_eq!(hold(&mut accounts, call("a", 1_000, 4_000)).map(|granted| granted.reply), Ok(500));
    assert!(price(-1.0, 0.0).check().is_err() && price(f64::NAN, 0.0).check().is_err());
}

#[test]
fn limits_that_can_t_be_meant_are_refused() {
    for (limits, key) in [
        (json!({"tokens": 0}), "tokens"),
        (json!({"cost": 0.0}), "cost"),
        (json!({"cost": -1.0}), "cost"),
        (json!({"turns": 0}), "turns"),
        (json!({"wallClock": 0}), "wallClock"),
    ] {
        let budget: Budget = serde_json::from_value(limits).unwrap();
        let error = budget.check().unwrap_err();
        assert_eq!(error.to_string(), format!("`{key}`: expected more than 0, got {}", error.found));
    }
    assert!(serde_json::from_value::<Budget>(json!({"token": 1})).is_err());
    assert!(serde_json::from_value::<Budget>(json!({"tokens": 5, "wallClock": 60})).unwrap().check().is_ok());
}

#[test]
fn a_prompt_s_tokens_are_estimated_upwards() {
    assert_eq!(tokens(0, 4_000), 0);
    assert_eq!(tokens(1, 4_000), 1);
    assert_eq!(tokens(4_001, 4_000), 1_001);
    assert_eq!(with_estimates(usage(0, 0), 7, 9), usage(7, 9));
    assert_eq!(with_estimates(usage(3, 0), 7, 9), usage(3, 9));
}

#[test]
fn an_unreturned_hold_counts_as_spent_after_its_time() {
    let mut accounts = [account(json!({"tokens": 1_000}))];
    hold(&mut accounts, call("a", 500, 400)).unwrap();
    assert_eq!(hold(&mut accounts, call("b", 500, 400)), Err(HoldError::Held));
    let later = BudgetedCall { now: Millis(1).plus(BUDGET_HOLD), ..call("b", 50, 400) };
    assert_eq!(hold(&mut accounts, later).map(|granted| granted.reply), Ok(50));
    assert_eq!(accounts[0].spent.tokens, 900);
}

#[test]
fn a_hold_outlives_the_longest_call() {
    let mut accounts = [account(json!({"tokens": 1_000}))];
    hold(&mut accounts, call("a", 500, 400)).unwrap();
    let end = Millis(1).plus(MODEL_CALL_MAX);
    // Others wait as long as it runs: nothing of it counts as spent before it has said what it used.
    assert_eq!(hold(&mut accounts, BudgetedCall { now: end, ..call("b", 500, 400) }), Err(HoldError::Held));
    settle(&mut accounts, "a", Some((usage(100, 20), None)));
    assert_eq!(accounts[0].spent.tokens, 120);
    assert_eq!(
        hold(&mut accounts, BudgetedCall { now: end, ..call("b", 50, 400) }).map(|granted| granted.reply),
        Ok(400)
    );
}

#[test]
fn the_last_call_of_a_task_is_made_whatever_is_left() {
    let mut accounts = [account(json!({"tokens": 10}))];
    assert_eq!(hold_last(&mut accounts, call("a", 100, 50)).reply, 50);
    settle(&mut accounts, "a", Some((usage(100, 20), None)));
    assert_eq!(accounts[0].spent.tokens, 120);
}

#[test]
fn a_purse_has_all_accounts_above_and_the_earliest_deadline() {
    let job = JobId::new(&"0f".repeat(16)).unwrap();
    let agent: Budget = serde_json::from_value(json!({"tokens": 5, "wallClock": 60})).unwrap();
    let request: Budget = serde_json::from_value(json!({"wallClock": 30})).unwrap();
    let above = vec!["above".to_owned()];
    let purse = |deadline| Purse::for_task(&job, Millis(1_000), &agent, &request, &above, deadline);
    let found = purse(None);
    assert_eq!(found.accounts().cloned().collect::<Vec<_>>(), ["above".to_owned(), format!("{job}-agent")]);
    assert_eq!(found.deadline, Some(Deadline { at: Millis(31_000), origin: LimitOrigin::Request }));
    assert_eq!(purse(Some(Millis(2_000))).deadline, Some(Deadline { at: Millis(2_000), origin: LimitOrigin::Request }));
    let free = Purse::for_task(&job, Millis(0), &Budget::default(), &Budget::default(), &[], None);
    assert!(free.is_empty() && free.deadline.is_none());
}
