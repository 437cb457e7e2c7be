//! What is held, settled, refused and left over, to the last token.

use super::*;
use crate::chat::ModelSettings;
use crate::chat::Price;
use crate::limits::MODEL_CALL_MAX;
use crate::tenant_users::TenantUserLimits;

const PRICE: Price = Price::new(3.0, 15.0);

fn capped(limits: &str) -> CapAccount {
    let ceiling = Ceiling::parse(limits).unwrap();
    let limits = Budget { tokens: ceiling.tokens, cost: ceiling.cost, ..Budget::default() };
    let day = Some(Zone::default().day(Millis(5)));
    CapAccount {
        cap: Cap { of: CapScope::Owner, name: "the cap".into(), limits, day, whole: false },
        book: CapUse::default(),
    }
}

fn call(session: &str, prompt: u64, reply: u32) -> BudgetedCall<'_> {
    BudgetedCall { session, prompt, reply: Some(reply), price: Some(PRICE), now: Millis(1) }
}

fn used(tokens: u64) -> BudgetUse {
    BudgetUse { tokens, nano: 0, turns: 1 }
}

fn reply(got: Result<Allotment, HoldError>) -> Result<u64, HoldError> {
    got.map(|granted| granted.reply)
}

#[test]
fn calls_at_the_same_time_can_t_pass_a_cap_together() {
    let mut caps = [capped("tokens=1000")];
    assert_eq!(reply(hold(&mut caps, call("a", 400, 300))), Ok(300));
    // It would fit if the first gave back what it doesn't use; nothing is cut while somebody may.
    assert_eq!(hold(&mut caps, call("b", 200, 300)), Err(HoldError::Held));
    settle(&mut caps, "a", Some(used(420)));
    assert_eq!(reply(hold(&mut caps, call("b", 200, 300))), Ok(300));
    settle(&mut caps, "b", Some(used(350)));
    // 230 are left, and nobody holds any: the reply is cut.
    let cut = Allotment { reply: 30, cut_by: Some(LimitOrigin::Cap) };
    assert_eq!(hold(&mut caps, call("c", 200, 300)), Ok(cut));
    settle(&mut caps, "c", None);
    assert_eq!((caps[0].book.spent.tokens, caps[0].book.held.len()), (770, 0), "what was not made costs nothing");
}

#[test]
fn a_cap_that_is_reached_says_which_it_is_and_when_it_resets() {
    let mut caps = [capped("tokens=1000")];
    caps[0].book.spent = used(900);
    let Err(HoldError::Capped { reason, resets }) = hold(&mut caps, call("a", 400, 300)) else { panic!("no room") };
    assert_eq!(
        reason,
        "the cap is reached: 900 of 1000 tokens are used, the next call needs 400; \
         it resets at 1970-01-02T00:00:00.000Z (UTC)"
    );
    assert_eq!(resets, Some(Millis(86_400_000)));
    // Of what all owners share nobody is told how much it is.
    caps[0].cap.of = CapScope::Model("openai".into());
    let Err(HoldError::Capped { reason, .. }) = hold(&mut caps, call("a", 400, 300)) else { panic!("no room") };
    assert!(!reason.contains("900") && reason.contains("it resets at"), "{reason}");
    caps[0].cap = Cap { of: CapScope::Session, day: None, ..caps[0].cap.clone() };
    let Err(HoldError::Capped { reason, resets: None }) = hold(&mut caps, call("a", 400, 300)) else {
        panic!("no room")
    };
    assert!(reason.ends_with("a session's cap never resets, a new session has its own"), "{reason}");
    let Err(HoldError::Capped { reason, .. }) = hold(&mut caps, call("a", 1_400, 300)) else { panic!("no room") };
    assert!(reason.ends_with("; no session has room for a call like this"), "{reason}");
}

#[test]
fn a_call_that_may_wait_is_not_cut_unless_no_day_has_more() {
    let mut caps = [capped("tokens=1000")];
    caps[0].cap.whole = true;
    assert_eq!(reply(hold(&mut caps, call("a", 800, 300))), Ok(200), "no day has room for all of it");
    settle(&mut caps, "a", Some(used(900)));
    let Err(HoldError::Capped { resets: Some(_), .. }) = hold(&mut caps, call("a", 50, 100)) else {
        panic!("it waits")
    };
    assert_eq!(reply(hold(&mut caps, call("a", 50, 40))), Ok(40));
    settle(&mut caps, "a", None);
    caps[0].book = CapUse::default();
    let Err(HoldError::Capped { resets: None, .. }) = hold(&mut caps, call("a", 1_001, 9)) else {
        panic!("never fits")
    };
}

#[test]
fn all_caps_of_a_call_are_held_or_none() {
    let mut caps = [capped("tokens=10000"), capped("tokens=500")];
    let before = caps.clone();
    assert!(matches!(hold(&mut caps, call("a", 600, 10)), Err(HoldError::Capped { .. })));
    assert_eq!(caps, before);
    assert_eq!(reply(hold(&mut caps, call("a", 300, 300))), Ok(200));
    assert_eq!(caps[0].book.held["a"].used.tokens, 500);
    assert_eq!(caps[1].book.held["a"].used.tokens, 500);
}

#[test]
fn the_holds_of_dead_workers_are_charged_once() {
    let mut caps = [capped("tokens=1000")];
    hold(&mut caps, call("dead", 100, 100)).unwrap();
    // Its successor makes the call again: both may have to be paid.
    hold(&mut caps, call("dead", 100, 100)).unwrap();
    assert_eq!((caps[0].book.spent.tokens, caps[0].book.spent_and_held().tokens), (200, 400));
    // Nobody comes: others take it for spent, some time later.
    let later = BudgetedCall { now: Millis(1).plus(BUDGET_HOLD), ..call("b", 10, 10) };
    hold(&mut caps, later).unwrap();
    assert_eq!(caps[0].book.spent.tokens, 400);
    // The first comes back after all: it was spent in full, and is not spent again.
    settle(&mut caps, "dead", Some(used(150)));
    assert_eq!(caps[0].book.spent.tokens, 400);
}

#[test]
fn the_book_of_a_session_that_begins_anew_is_new() {
    let old = CapUse { spent: used(900), ..CapUse::default() };
    assert_eq!(old.clone().for_conversation(0), old);
    let new = old.for_conversation(7);
    assert_eq!(new, CapUse { since: 7, ..CapUse::default() });
    let later = CapUse { spent: used(5), ..new };
    assert_eq!(later.clone().for_conversation(7), later, "it goes on");
    assert_eq!(later.clone().for_conversation(3), later, "nor does one who knows less empty it");
    assert_eq!(later.for_conversation(9).spent, BudgetUse::default());
}

#[test]
fn a_hold_outlives_the_longest_call() {
    let mut caps = [capped("tokens=1000")];
    hold(&mut caps, call("a", 500, 400)).unwrap();
    let end = Millis(1).plus(MODEL_CALL_MAX);
    assert_eq!(hold(&mut caps, BudgetedCall { now: end, ..call("b", 10, 400) }), Err(HoldError::Held));
    settle(&mut caps, "a", Some(used(120)));
    assert_eq!(caps[0].book.spent.tokens, 120, "what it has used, and not what it had held");
}

#[test]
fn money_is_held_by_the_price_and_needs_one() {
    let mut caps = [capped("cost=0.01")];
    // A thousand tokens of a prompt cost $0.003, the other $0.007 are 466 tokens of a reply.
    assert_eq!(reply(hold(&mut caps, call("a", 1_000, 1_000))), Ok(466));
    assert!(caps[0].book.spent_and_held().nano <= 10_000_000);
    settle(&mut caps, "a", None);
    let free = BudgetedCall { price: None, ..call("a", 1, 1) };
    let Err(HoldError::Capped { reason, .. }) = hold(&mut caps, free) else { panic!("no price") };
    assert!(reason.contains("no `price`"), "{reason}");
}

#[test]
fn spending_never_passes_a_cap_in_any_order() {
    let mut state = 3_u64;
    let mut next = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let (mut made, mut refused) = (0, 0);
    for _ in 0..200 {
        let mut caps = [capped("tokens=5000:cost=0.05"), capped("tokens=4000")];
        let mut running: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
        for _ in 0..60 {
            let session = ["a", "b", "c"][usize::try_from(next(3)).unwrap()];
            if let Some((prompt, reply)) = running.remove(session) {
                let output = next(reply + 1);
                let used = BudgetUse { tokens: prompt + output, nano: PRICE.ceiling(prompt, output), turns: 1 };
                settle(&mut caps, session, (next(4) > 0).then_some(used));
            } else {
                let prompt = next(500);
                match hold(&mut caps, call(session, prompt, 400)) {
                    Ok(granted) => drop(running.insert(session, (prompt, granted.reply))),
                    Err(_) => refused += 1,
                }
                made += 1;
            }
            for capped in &caps {
                let (taken, limits) = (capped.book.spent_and_held(), capped.cap.limits);
                assert!(taken.tokens <= limits.tokens.unwrap(), "{capped:?}");
                assert!(limits.cost.is_none() || taken.nano <= 50_000_000, "{capped:?}");
            }
        }
    }
    assert!(made > 1_000 && refused > 1_000, "{made} made, {refused} refused");
}

#[test]
fn settings_are_read_and_what_can_t_be_meant_is_not() {
    let both = Ceiling { tokens: Some(5), cost: Some(2.5) };
    for (text, expected) in [
        ("", Some(Ceiling::default())),
        ("none", Some(Ceiling::default())),
        ("tokens=5:cost=2.5", Some(both)),
        (" cost=2.5 : tokens=5 ", Some(both)),
        ("tokens=0", None),
        ("cost=-1", None),
        ("cost=inf", None),
        ("tokens=1.5", None),
        ("turns=5", None),
        ("5", None),
        (":", None),
        ("none:tokens=5", None),
        ("tokens=5:", None),
        ("tokens=1:tokens=2", None),
    ] {
        assert_eq!(Ceiling::parse(text), expected, "{text}");
    }
    for (text, good) in [
        ("", true),
        ("acme/ann:tokens=5, acme:cost=1", true),
        ("acme/ann:none", true),
        ("acme:tokens=5, acme:cost=1", false),
        ("acme", false),
        (":tokens=5", false),
        ("a b:tokens=5", false),
        ("acme/ann:tokens=5, acme/ann:tokens=9", false),
        ("acme:", false),
        ("acme:tokens=5, ,", false),
        ("/:tokens=5", false),
        ("a/b/c:tokens=5", false),
    ] {
        assert_eq!(Ceiling::parse_owners(text).is_some(), good, "{text}");
    }
    for (text, good) in [
        ("", true),
        ("openai:tokens=5, openai/gpt-4o:cost=1, openrouter/meta/llama:none", true),
        ("openai:", false),
        ("/x:tokens=5", false),
        ("openai/:tokens=5", false),
        ("openai:tokens=5,", false),
    ] {
        assert_eq!(Ceiling::parse_models(text).is_some(), good, "{text}");
    }
    for (text, good) in [
        ("openai/gpt-4o:input=2.5:output=10", true),
        ("openai/gpt-4o:input=2.5", false),
        ("openai/x:input=a:output=1", false),
        ("openai:input=1:output=1", false),
        ("openai/x:input=1:output=1:output=2", false),
    ] {
        assert_eq!(parse_prices(text).is_some(), good, "{text}");
    }
}

fn settings() -> SpendSettings {
    SpendSettings {
        session: Ceiling::parse("tokens=100").unwrap(),
        owner: Ceiling::parse("tokens=200").unwrap(),
        owners: Ceiling::parse_owners("acme/ann:none, acme:tokens=300").unwrap(),
        user: Ceiling::parse("tokens=150").unwrap(),
        models: Ceiling::parse_models("openai:tokens=400, openai/big:cost=5, other:tokens=1").unwrap(),
        prices: parse_prices("openai/big:input=1:output=2").unwrap(),
        ..SpendSettings::default()
    }
}

#[test]
fn a_call_falls_under_the_caps_of_session_owner_user_and_model() {
    let settings = settings();
    let names = |owner: &str, model: &str, agents: &str| -> Vec<(String, Option<u64>)> {
        let model = ModelSettings::new("openai", model);
        let agents = Ceiling::parse(agents).unwrap();
        let caps = settings.caps_of_call(&owner.parse().unwrap(), "ann", &model, agents, Millis(1));
        caps.into_iter().map(|cap| (cap.name, cap.limits.tokens)).collect()
    };
    let session = |tokens: u64| ("the cap of this session".to_owned(), Some(tokens));
    let owner = |owner: &str, tokens: u64| (format!("the cap of owner `{owner}` for a day"), Some(tokens));
    let model = |model: &str, tokens: Option<u64>| (format!("the venue's cap of `{model}` for a day"), tokens);
    let (provider, user) = (model("openai", Some(400)), ("the cap of user `ann` for a day".to_owned(), Some(150)));
    assert_eq!(names("me/me", "mini", ""), [session(100), owner("me/me", 200), user.clone(), provider.clone()]);
    let of_bob = names("acme/bob", "mini", "tokens=50");
    assert_eq!(of_bob, [session(50), owner("acme/bob", 300), user.clone(), provider.clone()]);
    assert_eq!(names("acme/ann", "big", "tokens=500"), [session(100), user, provider, model("openai/big", None)]);
    assert_eq!(
        SpendSettings::default().caps_of_call(
            &"a/b".parse().unwrap(),
            "ann",
            &ModelSettings::new("x", "y"),
            Ceiling::default(),
            Millis(1)
        ),
        []
    );
}

#[test]
fn a_tenants_cap_is_its_own_or_the_general_one() {
    let settings = SpendSettings {
        tenant: Ceiling::parse("tokens=200").unwrap(),
        tenants: Ceiling::parse_tenants("acme:tokens=300, globex:none").unwrap(),
        ..SpendSettings::default()
    };
    let model = ModelSettings::new("openai", "mini");
    for (owner, expected) in [
        ("acme/ann", Some(("the cap of tenant `acme` for a day", 300))),
        ("acme/bob", Some(("the cap of tenant `acme` for a day", 300))),
        ("globex/ann", None),
        ("acme2/ann", Some(("the cap of tenant `acme2` for a day", 200))),
    ] {
        let caps = settings.caps_of_call(&owner.parse().unwrap(), "", &model, Ceiling::default(), Millis(1));
        let found: Vec<_> = caps.iter().map(|cap| (cap.name.as_str(), cap.limits.tokens.unwrap())).collect();
        assert_eq!(found, expected.into_iter().collect::<Vec<_>>(), "{owner}");
        assert!(caps.iter().all(|cap| cap.of == CapScope::Tenant && cap.day.is_some()), "{caps:?}");
    }
    for (text, good) in [("", true), ("acme:tokens=5", true), ("acme/ann:tokens=5", false), ("acme:", false)] {
        assert_eq!(Ceiling::parse_tenants(text).is_some(), good, "{text}");
    }
    let in_money = Ceiling::parse("cost=1").unwrap();
    for settings in [
        SpendSettings { tenant: in_money, ..SpendSettings::default() },
        SpendSettings { tenants: vec![("acme".to_owned(), in_money)], ..SpendSettings::default() },
    ] {
        assert_eq!(settings.check(), Err(SpendSettingsError::NoPrices));
        let why = settings.price_error(&"acme/ann".parse().unwrap(), &model).unwrap();
        assert!(why.contains("the cap of tenant `acme`") && why.contains("`spend.prices`"), "{why}");
    }
}

#[test]
fn a_cap_in_money_needs_a_price_that_the_venue_says() {
    let owner = "me/me".parse().unwrap();
    let mut settings = settings();
    assert_eq!(settings.check(), Ok(()));
    let big = ModelSettings { price: Some(PRICE), ..ModelSettings::new("openai", "big") };
    assert_eq!(settings.price(&big), Some(Price::new(1.0, 2.0)), "the venue's counts");
    assert_eq!(settings.price_error(&owner, &big), None);
    settings.owner.cost = Some(1.0);
    let own = ModelSettings { price: Some(PRICE), ..ModelSettings::new("openai", "own") };
    assert_eq!(settings.price(&own), Some(PRICE));
    let why = settings.price_error(&owner, &own).unwrap();
    assert!(why.contains("owner `me/me`") && why.contains("`openai/own`") && why.contains("`spend.prices`"), "{why}");
    settings.prices.clear();
    assert!(settings.check().unwrap_err().to_string().contains("`openai/big`"));
    assert_eq!(settings.money_setting(), "spend.models");
    settings.models.clear();
    assert_eq!(settings.check(), Err(SpendSettingsError::NoPrices));
    assert_eq!(settings.money_setting(), "spend.owner", "the error names the setting that needs prices");
}

#[test]
fn old_books_decode() {
    let book: CapUse = serde_json::from_str("{}").unwrap();
    assert_eq!(book, CapUse::default());
    let text = r#"{"spent":{"tokens":7},"held":{"a":{"tokens":1,"nano":2,"turns":1,"until":9}}}"#;
    let book: CapUse = serde_json::from_str(text).unwrap();
    assert_eq!((book.spent.tokens, book.spent_and_held().tokens, book.held["a"].until), (7, 8, Millis(9)));
}

#[test]
fn every_setting_by_names_takes_the_same_names() {
    let caps = |read: Option<Vec<(String, Ceiling)>>| read.map(|all| all[0].0.clone());
    for name in ["acme", "did:key:z6Mk", "urn:uuid:7", "a.b-c", "ünï"] {
        let cap = format!("{name}:tokens=5:cost=1, other:none");
        assert_eq!(caps(Ceiling::parse_tenants(&cap)).as_deref(), Some(name));
        assert_eq!(caps(Ceiling::parse_owners(&cap)).as_deref(), Some(name));
        let user = format!("{name}/{name}:none");
        assert_eq!(caps(Ceiling::parse_owners(&user)), Some(format!("{name}/{name}")));
        let users = TenantUserLimits::parse_named(&format!("{name}:5")).unwrap();
        assert_eq!(users[0].0.as_str(), name);
    }
    for name in ["", " ", "a b", "a\u{200b}b", ".", "acme:none"] {
        let cap = format!("{name}:tokens=5");
        assert_eq!(Ceiling::parse_tenants(&cap), None, "{name}");
        assert_eq!(Ceiling::parse_owners(&cap), None, "{name}");
    }
    for model in ["openai/gpt-4o", "ollama/qwen3:8b", "openrouter/meta/llama:free"] {
        assert_eq!(caps(Ceiling::parse_models(&format!("{model}:cost=1"))).as_deref(), Some(model));
        let prices = parse_prices(&format!("{model}:input=1:output=2")).unwrap();
        assert_eq!(prices[0].0, model);
    }
    for slip in ["openai:gpt-4o:tokens=5", "openai/x:none:tokens=5", "a:b/x:cost=1", "acme/a/b:cost=1:"] {
        assert_eq!(Ceiling::parse_models(slip), None, "{slip}");
    }
}
