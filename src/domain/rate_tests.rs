//! Limits by the minute and by calls at once, second by second.

use super::*;

const NOW: Millis = Millis(1_000_000);

fn limit(text: &str) -> RateLimit {
    RateLimit::parse(text).unwrap()
}

fn call(id: &str, tokens: u64) -> RatedCall {
    RatedCall { id: id.to_owned(), tokens, until: NOW.plus(Duration::from_mins(2)) }
}

fn booked(limit: &RateLimit, meter: &mut Meter, call: &RatedCall, now: Millis) -> Result<(), (u64, String)> {
    book(std::slice::from_ref(limit), std::slice::from_mut(meter), call, now)
        .map_err(|wait| (wait.until.0 - now.0, wait.reason))
}

#[test]
fn limits_are_read_and_written_in_one_form() {
    for text in ["openai:requests=500:tokens=200000", "openai/gpt-4o:concurrency=10"] {
        assert_eq!(limit(text).to_string(), text);
    }
    let both = RateLimit::list("openai:requests=500, openai/gpt-4o:concurrency=10").unwrap();
    let model = |provider: &str, name: &str| ModelSettings::new(provider, name);
    let covers = |model: &ModelSettings| both.iter().map(|limit| limit.covers(model)).collect::<Vec<_>>();
    assert_eq!(covers(&model("openai", "gpt-4o")), [true, true]);
    assert_eq!(covers(&model("openai", "gpt-4o-mini")), [true, false]);
    assert_eq!(covers(&model("anthropic", "gpt-4o")), [false, false]);
    for bad in
        ["openai", "openai:rpm=1", "openai:requests=0", ":requests=1", "a:requests=1,a:tokens=2", "a b:requests=1"]
    {
        assert_eq!(RateLimit::list(bad), None, "{bad}");
    }
}

#[test]
fn concurrent_calls_are_bounded_and_lost_ones_expire() {
    let (limit, mut meter) = (limit("openai:concurrency=2"), Meter::default());
    for id in ["a", "b"] {
        assert_eq!(booked(&limit, &mut meter, &call(id, 1), NOW), Ok(()));
    }
    let wait = booked(&limit, &mut meter, &call("c", 1), NOW).unwrap_err();
    assert_eq!(wait, (1_000, "rate limit of `openai`: 2 calls at once".to_owned()));
    assert_eq!(booked(&limit, &mut meter, &call("a", 1), NOW), Ok(()), "the same call again");
    let told = settle(std::slice::from_ref(&limit), std::slice::from_mut(&mut meter), &call("b", 1), 1, NOW);
    assert_eq!(told, ["c"]);
    assert_eq!(booked(&limit, &mut meter, &call("c", 1), NOW), Ok(()));
    let later = NOW.plus(Duration::from_mins(3));
    assert_eq!(booked(&limit, &mut meter, &call("d", 1), later), Ok(()), "a and c are lost");
}

#[test]
fn waiters_for_a_call_slot_are_woken_in_order() {
    let (limit, mut meter) = (limit("openai:concurrency=1"), Meter::default());
    let limits = [limit.clone()];
    let settle = |meter: &mut Meter, id: &str| settle(&limits, std::slice::from_mut(meter), &call(id, 1), 1, NOW);
    assert_eq!(booked(&limit, &mut meter, &call("a", 1), NOW), Ok(()));
    for id in ["b", "c", "b"] {
        assert!(booked(&limit, &mut meter, &call(id, 1), NOW).is_err());
    }
    assert_eq!(settle(&mut meter, "a"), ["b"]);
    assert_eq!(booked(&limit, &mut meter, &call("b", 1), NOW), Ok(()));
    assert_eq!(booked(&limit, &mut meter, &call("c", 1), NOW).map_err(|_| ()), Err(()));
    assert_eq!(settle(&mut meter, "b"), ["c"]);
    assert_eq!(settle(&mut meter, "c"), [""; 0]);
}

#[test]
fn a_minutes_quota_may_burst_and_the_rest_comes_evenly() {
    let (limit, mut meter) = (limit("openai:requests=60"), Meter::default());
    for n in 0..60 {
        assert_eq!(booked(&limit, &mut meter, &call(&n.to_string(), 1), NOW), Ok(()), "{n}");
    }
    let mut now = NOW;
    for n in 60..70 {
        let (pause, reason) = booked(&limit, &mut meter, &call(&n.to_string(), 1), now).unwrap_err();
        assert_eq!((pause, reason.as_str()), (1_000, "rate limit of `openai`: 60 requests per minute"));
        now = now.plus(Duration::from_secs(1));
        assert_eq!(booked(&limit, &mut meter, &call(&n.to_string(), 1), now), Ok(()));
    }
}

#[test]
fn bookings_keep_the_limit_and_at_most_double_in_a_minute() {
    let (limit, mut meter, mut seed) = (limit("openai:requests=30"), Meter::default(), 7_u64);
    let (mut now, mut calls) = (NOW, 0_u64);
    for n in 0..20_000 {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        now = Millis(now.0 + (seed >> 33) % 700);
        calls += u64::from(booked(&limit, &mut meter, &call(&n.to_string(), 1), now).is_ok());
    }
    let minutes = (now.0 - NOW.0).div_ceil(60_000);
    assert!(calls <= 30 * (minutes + 1) && calls >= 30 * (minutes - 1), "{calls} in {minutes} minutes");
}

#[test]
fn tokens_are_reserved_and_settled_with_what_was_used() {
    let (limit, mut meter) = (limit("openai:tokens=1000"), Meter::default());
    assert_eq!(booked(&limit, &mut meter, &call("a", 900), NOW), Ok(()));
    let (pause, reason) = booked(&limit, &mut meter, &call("b", 600), NOW).unwrap_err();
    assert_eq!((pause, reason.as_str()), (30_000, "rate limit of `openai`: 1000 tokens per minute"));
    settle(std::slice::from_ref(&limit), std::slice::from_mut(&mut meter), &call("a", 900), 400, NOW);
    assert_eq!(booked(&limit, &mut meter, &call("b", 600), NOW), Ok(()));
    // One that is larger than the limit waits until nothing else runs, and then passes.
    let (pause, _) = booked(&limit, &mut meter, &call("c", 5_000), NOW).unwrap_err();
    assert_eq!(pause, 60_000);
    let later = NOW.plus(Duration::from_mins(1));
    assert_eq!(booked(&limit, &mut meter, &call("c", 5_000), later), Ok(()));
}

#[test]
fn a_call_that_no_minute_has_room_for_is_refused() {
    let limits = RateLimit::list("openai:tokens=1000, openai/gpt:tokens=600, openai/o:requests=1").unwrap();
    let check = |name: &str, prompt, reply| {
        reserve(&limits, &ModelSettings::new("openai", name), prompt, reply, 500)
            .map_err(|error| error.to_string().split(':').next().unwrap_or_default().to_owned())
    };
    assert_eq!(check("gpt", 500, Some(100)), Ok(600));
    assert_eq!(check("gpt", 500, None), Ok(600), "a guess alone refuses nothing");
    assert_eq!(check("o", 500, Some(500)), Ok(1_000));
    assert_eq!(check("o", 100, None), Ok(600));
    let said = "the call takes up to 601 tokens, 500 of its prompt and 101 of its reply, and the rate limit of \
                `openai/gpt` is 600 tokens per minute";
    assert_eq!(check("gpt", 500, Some(101)), Err(said.to_owned()));
    assert!(check("o", 1_001, None).is_err());
    assert!(check("gpt", u64::MAX, Some(u64::MAX)).is_err());
    let free = ModelSettings::new("anthropic", "gpt");
    assert_eq!(reserve(&limits, &free, 10_000, None, 500), Ok(10_500));
}

#[test]
fn later_small_calls_leave_room_for_the_first_waiter() {
    let (limit, mut meter) = (limit("openai:tokens=1000"), Meter::default());
    assert_eq!(booked(&limit, &mut meter, &call("a", 900), NOW), Ok(()));
    let (pause, _) = booked(&limit, &mut meter, &call("large", 800), NOW).unwrap_err();
    assert_eq!(pause, 42_000);
    // There is room for a small one now, but then the large one would wait on and on.
    let (pause, _) = booked(&limit, &mut meter, &call("small", 100), NOW).unwrap_err();
    assert_eq!(pause, 48_000);
    let then = NOW.plus(Duration::from_secs(42));
    assert!(booked(&limit, &mut meter, &call("small", 100), then).is_err());
    assert_eq!(booked(&limit, &mut meter, &call("large", 800), then), Ok(()));
    let later = then.plus(Duration::from_secs(6));
    assert_eq!(booked(&limit, &mut meter, &call("small", 100), later), Ok(()));
    // One that waits first and never comes, because it was cancelled, keeps nobody waiting for long.
    assert!(booked(&limit, &mut meter, &call("gone", 900), later).is_err());
    assert!(booked(&limit, &mut meter, &call("b", 200), later).is_err());
    let late = later.plus(Duration::from_mins(2));
    assert_eq!(booked(&limit, &mut meter, &call("b", 200), late), Ok(()));
}

#[test]
fn an_oversized_call_passes_despite_steady_traffic() {
    let (limit, mut meter) = (limit("openai:tokens=1000"), Meter::default());
    assert_eq!(booked(&limit, &mut meter, &call("first", 500), NOW), Ok(()));
    let (pause, _) = booked(&limit, &mut meter, &call("huge", 5_000), NOW).unwrap_err();
    for second in 1..pause / 1_000 {
        let now = NOW.plus(Duration::from_secs(second));
        assert!(booked(&limit, &mut meter, &call(&second.to_string(), 10), now).is_err(), "{second}");
    }
    assert_eq!(booked(&limit, &mut meter, &call("huge", 5_000), NOW.plus(Duration::from_millis(pause))), Ok(()));
}

/// Makes calls as workers do, each tried again when its wait is over; ids in the order in which they were made.
fn make_calls(limits: &[RateLimit], calls: &[(u64, &str, u64)], until: Millis) -> Vec<(u64, String)> {
    let mut meters = vec![Meter::default(); limits.len()];
    let mut due: Vec<_> = calls.iter().map(|(at, id, tokens)| (NOW.0 + at, (*id).to_owned(), *tokens)).collect();
    let mut made = Vec::new();
    loop {
        due.sort();
        if due.is_empty() || due[0].0 > until.0 {
            return made;
        }
        let (at, id, tokens) = due.remove(0);
        let call = RatedCall { until: Millis(at).plus(Duration::from_mins(2)), ..call(&id, tokens) };
        match book(limits, &mut meters, &call, Millis(at)) {
            Ok(()) => made.push((at - NOW.0, id)),
            Err(wait) => due.push((wait.until.0, id, tokens)),
        }
    }
}

#[test]
fn the_longest_waiter_goes_before_steady_smaller_calls() {
    let limits = [limit("openai:tokens=1000")];
    let names: Vec<_> = (0..400_u64).map(|n| format!("small-{n:03}")).collect();
    let small = names.iter().zip(0..).map(|(name, n)| (n * 1_000, name.as_str(), 100));
    let mut calls: Vec<_> = small.collect();
    calls.push((20_500, "large", 900));
    let made = make_calls(&limits, &calls, NOW.plus(Duration::from_mins(10)));
    let order: Vec<_> = made.iter().map(|(_, id)| id.as_str()).collect();
    let place = order.iter().position(|id| *id == "large").expect("it is made");
    assert!(order[..place].iter().all(|id| *id < "small-021"), "none passes that came later: {order:?}");
    let rest: Vec<_> = order.iter().filter(|id| **id != "large").collect();
    assert!(rest.is_sorted() && rest.len() > 90, "{order:?}");
}

#[test]
fn owners_that_wait_for_tokens_take_turns() {
    let limits = [limit("openai:tokens=1200")];
    let large: Vec<_> = (0..1_000).map(|n| format!("acme/ada/s{n:04}/1")).collect();
    let mut calls: Vec<(u64, &str, u64)> = (0..).zip(&large).map(|(at, id)| (at, id.as_str(), 900)).collect();
    calls.push((20_000, "bob/b/s/1", 100));
    calls.push((20_001, "eve/e/s/1", 900));
    let made = make_calls(&limits, &calls, NOW.plus(Duration::from_mins(10)));
    let order: Vec<_> = made.iter().map(|(_, id)| id.as_str()).collect();
    let before = |id: &str| {
        let place = order.iter().position(|made| *made == id).unwrap_or_else(|| panic!("{id} is not made: {order:?}"));
        made[..place].iter().filter(|(at, id)| *at > 20_000 && owner_of(id) == "acme/ada").count()
    };
    assert!(before("bob/b/s/1") <= 1 && before("eve/e/s/1") <= 1, "one call of another owner goes before: {order:?}");
    let others: Vec<_> = order.iter().filter(|id| owner_of(id) == "acme/ada").collect();
    assert!(others.len() > 5 && others.is_sorted(), "within an owner the longest wait goes first: {others:?}");
}

/// Whoever gives tokens makes users at will: all of a tenant's together have the turns of one.
#[test]
fn tenants_take_turns_for_tokens_whatever_their_users() {
    let limits = [limit("openai:tokens=1200")];
    let large: Vec<_> = (0..1_000).map(|n| format!("acme/u{n:04}/s/1")).collect();
    let mut calls: Vec<(u64, &str, u64)> = (0..).zip(&large).map(|(at, id)| (at, id.as_str(), 900)).collect();
    calls.push((20_000, "bob/b/s/1", 100));
    calls.push((20_001, "eve/e/s/1", 900));
    calls.push((20_002, "eve/f/s/1", 900));
    let made = make_calls(&limits, &calls, NOW.plus(Duration::from_mins(12)));
    let order: Vec<_> = made.iter().map(|(_, id)| id.as_str()).collect();
    let before = |id: &str| {
        let place = order.iter().position(|made| *made == id).unwrap_or_else(|| panic!("{id} is not made: {order:?}"));
        made[..place].iter().filter(|(at, id)| *at > 20_000 && tenant_of(id) == "acme").count()
    };
    assert_eq!((before("bob/b/s/1") <= 1, before("eve/e/s/1") <= 1, before("eve/f/s/1") <= 2), (true, true, true));
    let others: Vec<_> = order.iter().filter(|id| tenant_of(id) == "acme").collect();
    assert!(others.len() > 5 && others.is_sorted(), "within a tenant the longest wait goes first: {others:?}");
}

#[test]
fn of_a_line_the_tenant_with_the_fewest_calls_is_next() {
    let limit = limit("openai:concurrency=3");
    let mut meter = Meter::default();
    for id in ["acme/a/s/1", "acme/b/s/1", "acme/c/s/1"] {
        assert_eq!(booked(&limit, &mut meter, &call(id, 1), NOW), Ok(()));
    }
    for id in ["acme/a/s/2", "acme/d/s/1", "bob/b/s/1", "bob/b/s/2"] {
        assert!(booked(&limit, &mut meter, &call(id, 1), NOW).is_err());
    }
    let mut settle = |id: &str| {
        let told = settle(std::slice::from_ref(&limit), std::slice::from_mut(&mut meter), &call(id, 1), 1, NOW);
        assert_eq!(booked(&limit, &mut meter, &call(&told[0], 1), NOW), Ok(()));
        told
    };
    assert_eq!(settle("acme/b/s/1"), ["bob/b/s/1"], "its tenant has none");
    assert_eq!(settle("acme/c/s/1"), ["acme/d/s/1"], "each tenant has one, and this owner none");
    assert_eq!(settle("acme/a/s/1"), ["acme/a/s/2"], "each tenant has one, and this owner none");
}

#[test]
fn a_full_line_has_a_place_for_an_owner_that_has_none() {
    let limit = limit("openai:concurrency=1");
    let mut meter = Meter::default();
    assert_eq!(booked(&limit, &mut meter, &call("acme/ada/s/1", 1), NOW), Ok(()));
    for n in 0..2 * LINE_LENGTH {
        assert!(booked(&limit, &mut meter, &call(&format!("acme/ada/s{n}/1"), 1), NOW).is_err());
    }
    assert!(booked(&limit, &mut meter, &call("bob/b/s/1", 1), NOW).is_err());
    assert_eq!(meter.line.len(), LINE_LENGTH);
    let ended = call("acme/ada/s/1", 1);
    assert!(booked(&limit, &mut meter, &call("bob/b/s/2", 1), NOW).is_err());
    let told = settle(std::slice::from_ref(&limit), std::slice::from_mut(&mut meter), &ended, 1, NOW);
    assert_eq!(told, ["acme/ada/s0/1"], "nobody has one that runs: the first goes");
    assert_eq!(booked(&limit, &mut meter, &call("acme/ada/s0/1", 1), NOW), Ok(()));
    meter.running.insert("acme/ada/x/1".to_owned(), RunningCall { until: NOW.plus(GRACE), tokens: 0 });
    let told =
        settle(std::slice::from_ref(&limit), std::slice::from_mut(&mut meter), &call("acme/ada/s0/1", 1), 1, NOW);
    assert_eq!(told, ["bob/b/s/1"], "whose owner has the fewest that run");
}

#[test]
fn the_longest_waiter_of_one_limit_is_first_under_both() {
    let limits = [limit("openai:tokens=1000"), limit("openai/gpt:tokens=600")];
    let calls = vec![(0, "a", 600), (1, "b", 500), (2, "c", 600), (3, "d", 100), (4, "e", 600)];
    let made = make_calls(&limits, &calls, NOW.plus(Duration::from_mins(10)));
    assert_eq!(made.iter().map(|(_, id)| id.as_str()).collect::<Vec<_>>(), ["a", "b", "c", "d", "e"]);
}

#[test]
fn a_waiter_for_tokens_is_woken_once_they_are_free() {
    let (limit, mut meter) = (limit("openai:tokens=1000"), Meter::default());
    assert_eq!(booked(&limit, &mut meter, &call("a", 900), NOW), Ok(()));
    assert_eq!(booked(&limit, &mut meter, &call("b", 100), NOW), Ok(()));
    for (n, id) in (1..).zip(["c", "d", "e"]) {
        assert!(booked(&limit, &mut meter, &call(id, 450), Millis(NOW.0 + n)).is_err());
    }
    let limits = [limit.clone()];
    let settle = |meter: &mut Meter, id, tokens, used| {
        settle(&limits, std::slice::from_mut(meter), &call(id, tokens), used, Millis(NOW.0 + 10))
    };
    assert_eq!(settle(&mut meter, "a", 900, 0), ["c", "d"]);
    assert_eq!(settle(&mut meter, "b", 100, 0), [""; 0]);
    assert_eq!(booked(&limit, &mut meter, &call("c", 450), Millis(NOW.0 + 11)), Ok(()));
    assert_eq!(booked(&limit, &mut meter, &call("d", 450), Millis(NOW.0 + 11)), Ok(()));
    assert_eq!(settle(&mut meter, "c", 450, 400), [""; 0], "50 and 100 of a minute are free");
    assert_eq!(settle(&mut meter, "d", 450, 100), ["e"]);
}

#[test]
fn places_are_bounded_and_lost_by_calls_that_do_not_come_again() {
    let (limit, mut meter) = (limit("openai:tokens=1000"), Meter::default());
    assert_eq!(booked(&limit, &mut meter, &call("a", 1_000), NOW), Ok(()));
    for n in 0..QUEUE_LENGTH + 10 {
        let (pause, _) = booked(&limit, &mut meter, &call(&format!("{n:04}"), 500), NOW).unwrap_err();
        assert!(pause <= 60_000, "{n}: {pause}");
    }
    assert_eq!(meter.behind.len() + 1, QUEUE_LENGTH);
    let stored: Meter = serde_json::from_str(&serde_json::to_string(&meter).unwrap()).unwrap();
    assert_eq!(stored, meter);
    let later = NOW.plus(Duration::from_mins(2));
    let mut late = RatedCall { until: later.plus(Duration::from_mins(2)), ..call("late", 500) };
    assert_eq!(booked(&limit, &mut meter, &late, later), Ok(()), "all others were cancelled");
    // One of them was only late: it stands where it stood.
    for id in ["0-new", "0009"] {
        assert!(booked(&limit, &mut meter, &call(id, 1_000), later).is_err());
    }
    let standing = meter.first.iter().chain(&meter.behind).filter(|other| is_current(other.until, later));
    assert_eq!(standing.map(|other| other.id.as_str()).collect::<Vec<_>>(), ["0009", "0-new"]);
    let much_later = later.plus(Duration::from_mins(12));
    late.until = much_later.plus(Duration::from_mins(2));
    assert_eq!(booked(&limit, &mut meter, &late, much_later), Ok(()));
    assert_eq!((meter.first.is_none(), meter.behind.len()), (true, 0));
    // An older build writes no time: whom it names has waited longest.
    let old = r#"{"tokens": 1120000000, "first": {"id": "old", "share": 54000000, "until": 1180000}}"#;
    let mut meter: Meter = serde_json::from_str(old).unwrap();
    late.id = "new".into();
    late.until = later.plus(Duration::from_mins(2));
    assert!(booked(&limit, &mut meter, &late, later).is_err());
    assert_eq!(meter.first.as_ref().map(|first| first.id.as_str()), Some("old"));
}

#[test]
fn oversized_calls_do_not_wait_for_each_other() {
    let limits = [limit("openai:tokens=1000"), limit("openai/gpt:tokens=600")];
    let mut meters = vec![Meter::default(); 2];
    let mut book = |call: &RatedCall, now| book(&limits, &mut meters, call, now);
    assert_eq!(book(&call("now", 50), NOW), Ok(()));
    let (one, two) = (call("one", 900), call("two", 1_100));
    let (mut waits, mut now) = (vec![one, two], NOW);
    for _ in 0..200 {
        waits.retain(|call| book(call, now).is_err());
        now = now.plus(Duration::from_secs(5));
    }
    assert_eq!(waits, [], "each of them has been made");
}

#[test]
fn tokens_of_past_minutes_are_not_given_back() {
    let (limit, mut meter) = (limit("openai:tokens=1000"), Meter::default());
    assert_eq!(booked(&limit, &mut meter, &call("a", 900), NOW), Ok(()));
    let (late, end) = (NOW.plus(Duration::from_secs(55)), NOW.plus(Duration::from_mins(1)));
    assert_eq!(booked(&limit, &mut meter, &call("b", 900), late), Ok(()));
    settle(std::slice::from_ref(&limit), std::slice::from_mut(&mut meter), &call("a", 900), 10, end);
    assert!(booked(&limit, &mut meter, &call("c", 900), end).is_err(), "b has just had its 900");
}

#[test]
fn a_wrong_clock_does_not_block_the_fleet() {
    let (limit, mut meter) = (limit("openai:requests=60:tokens=1000:concurrency=1"), Meter::default());
    let tomorrow = NOW.plus(Duration::from_hours(24));
    let lost = RatedCall { until: tomorrow.plus(Duration::from_mins(2)), ..call("a", 900) };
    assert_eq!(booked(&limit, &mut meter, &lost, tomorrow), Ok(()));
    assert_eq!(booked(&limit, &mut meter, &call("b", 900), NOW), Ok(()));
}

#[test]
fn a_call_is_booked_under_all_of_its_limits_or_none() {
    let (all, one) = (limit("openai:requests=100"), limit("openai/gpt-4o:requests=1"));
    let mut meters = [Meter::default(), Meter::default()];
    assert_eq!(book(&[all.clone(), one.clone()], &mut meters, &call("a", 1), NOW), Ok(()));
    let before = meters.clone();
    let wait = book(&[all.clone(), one.clone()], &mut meters, &call("b", 1), NOW).unwrap_err();
    assert!(wait.reason.contains("`openai/gpt-4o`"), "{}", wait.reason);
    assert_eq!(meters, before);
}

#[test]
fn a_place_is_kept_as_long_as_it_is_renewed() {
    let (limit, mut meter) = (limit("openai:concurrency=1:tokens=1000"), Meter::default());
    let until = |seconds| NOW.plus(Duration::from_secs(seconds));
    let first = RatedCall { until: until(30), ..call("a", 10) };
    assert_eq!(booked(&limit, &mut meter, &first, NOW), Ok(()));
    renew(std::slice::from_mut(&mut meter), "a", until(50));
    assert!(booked(&limit, &mut meter, &call("b", 10), until(40)).is_err());
    assert_eq!(booked(&limit, &mut meter, &call("b", 10), until(51)), Ok(()), "its worker is gone");
}

#[test]
fn a_call_that_was_renewed_too_late_has_a_place_again() {
    let (limit, mut meter) = (limit("openai:concurrency=2"), Meter::default());
    let until = |seconds| NOW.plus(Duration::from_secs(seconds));
    let of = |id: &str, from: u64| RatedCall { until: until(from + 30), ..call(id, 1) };
    for id in ["a", "b"] {
        assert_eq!(booked(&limit, &mut meter, &of(id, 0), NOW), Ok(()));
    }
    // The store stood still for so long that another has taken their place.
    assert_eq!(booked(&limit, &mut meter, &of("c", 31), until(31)), Ok(()));
    for id in ["a", "b"] {
        renew(std::slice::from_mut(&mut meter), id, until(62));
    }
    for id in ["a", "b"] {
        assert!(booked(&limit, &mut meter, &of("d", 32), until(32)).is_err(), "three run");
        settle(std::slice::from_ref(&limit), std::slice::from_mut(&mut meter), &of(id, 0), 1, until(32));
    }
    assert_eq!(booked(&limit, &mut meter, &of("d", 32), until(32)), Ok(()));
}

#[test]
fn unrenewed_calls_return_tokens_and_old_bookings_are_dropped() {
    let (limit, mut meter) = (limit("openai:tokens=1000"), Meter::default());
    let long = RatedCall { until: NOW.plus(Duration::from_secs(10)), ..call("a", 900) };
    assert_eq!(booked(&limit, &mut meter, &long, NOW), Ok(()));
    let later = NOW.plus(Duration::from_secs(20));
    assert_eq!(booked(&limit, &mut meter, &call("b", 10), later), Ok(()));
    settle(std::slice::from_ref(&limit), std::slice::from_mut(&mut meter), &long, 0, later);
    assert_eq!(booked(&limit, &mut meter, &call("c", 900), later), Ok(()), "none of its tokens were used");
    let (tiny, mut meter) = (RateLimit { tokens: Some(1_000_000), ..limit }, Meter::default());
    for n in 0..10_000_u64 {
        let now = NOW.plus(Duration::from_secs(n));
        assert_eq!(booked(&tiny, &mut meter, &call(&n.to_string(), 1), now), Ok(()));
    }
    assert!(meter.running.len() < 200, "{}", meter.running.len());
}
