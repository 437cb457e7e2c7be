//! Tables of schedules, and of what is due after a downtime.

use super::*;
use crate::authority::envelope::Envelope;
use crate::time::cron::Cron;
use serde_json::json;
use std::time::Duration;

fn at(text: &str) -> Millis {
    parse_instant(&json!(text), None).unwrap()
}

fn check_cron(expression: &str, zone: &str, after: &str, expected: &[&str]) {
    let cron = Cron::parse(expression, Some(zone)).unwrap();
    let mut last = at(after);
    for expected in expected {
        last = cron.next_after(last).unwrap();
        assert_eq!(last.rfc3339(), at(expected).rfc3339(), "`{expression}` {zone} after {after}");
    }
}

#[test]
fn cron_follows_the_wall_clock_of_its_zone() {
    let berlin = "Europe/Berlin";
    check_cron("0 9 * * MON-FRI", berlin, "2026-03-27T09:00:00Z", &["2026-03-30T07:00:00Z", "2026-03-31T07:00:00Z"]);
    check_cron("*/15 * * * *", "UTC", "2026-01-01T00:00:00.001Z", &["2026-01-01T00:15:00Z", "2026-01-01T00:30:00Z"]);
    // A time that is due is not its own successor.
    check_cron("0 0 1 * *", "UTC", "2026-01-01T00:00:00Z", &["2026-02-01T00:00:00Z", "2026-03-01T00:00:00Z"]);
    check_cron("@daily", "Asia/Kolkata", "2026-01-01T00:00:00Z", &["2026-01-01T18:30:00Z"]);
    check_cron("59 23 31 12 *", "Pacific/Auckland", "2026-06-01T00:00:00Z", &["2026-12-31T10:59:00Z"]);
}

/// A time that a person names is what cron makes of it.
#[test]
fn a_named_time_that_a_clock_change_touches_is_the_one_of_cron() {
    for (zone, shown, expression, after, expected) in [
        ("Europe/Berlin", "2026-03-29T02:30", "30 2 * * *", "2026-03-28T12:00:00Z", "2026-03-29T01:00:00Z"),
        ("America/New_York", "2026-03-08T02:00:01", "0 2 * * *", "2026-03-07T12:00:00Z", "2026-03-08T07:00:00Z"),
        ("Australia/Lord_Howe", "2026-10-04T02:15", "15 2 * * *", "2026-10-03T10:00:00Z", "2026-10-03T15:30:00Z"),
        ("Pacific/Apia", "2011-12-30T12:00", "0 12 30 12 *", "2011-12-29T00:00:00Z", "2011-12-30T10:00:00Z"),
        ("Europe/Berlin", "2026-10-25T02:30", "30 2 * * *", "2026-10-24T12:00:00Z", "2026-10-25T00:30:00Z"),
    ] {
        assert_eq!(parse_instant(&json!(shown), Some(zone)), Ok(at(expected)), "{zone} {shown}");
        check_cron(expression, zone, after, &[expected]);
    }
}

#[test]
fn a_time_zone_behind_a_time_counts_or_is_refused() {
    for (named, timezone, expected) in [
        ("2027-06-01T12:00:00[Europe/Berlin]", None, Ok("2027-06-01T10:00:00Z")),
        ("2027-06-01T12:00[Europe/Berlin]", Some("Europe/Berlin"), Ok("2027-06-01T10:00:00Z")),
        ("2027-06-01T12:00:00+02:00[Europe/Berlin]", None, Ok("2027-06-01T10:00:00Z")),
        ("2027-06-01T12:00:00+02:00[!Europe/Berlin]", Some("europe/berlin"), Ok("2027-06-01T10:00:00Z")),
        ("2027-06-01T12:00:00Z[Europe/Berlin]", None, Ok("2027-06-01T12:00:00Z")),
        ("2026-03-29T02:30:00[Europe/Berlin]", None, Ok("2026-03-29T01:00:00Z")),
        ("2027-06-01T12:00:00+01:00[Europe/Berlin]", None, Err("its clocks show 2027-06-01T13:00:00")),
        ("2027-06-01T12:00:00[Europe/Berlin]", Some("UTC"), Err("another time zone than `timezone`")),
        ("2027-06-01T12:00:00[Europe/Nowhere]", None, Err("no time zone `Europe/Nowhere`")),
        ("2027-06-01T12:00:00[Europe/Berlin", None, Err("expected a time such as")),
        ("2027-06-01T12:00:00Z[Europe/Berlin][u-ca=japanese]", None, Err("expected a time such as")),
        ("2027-06-01T12:00:00Z[u-ca=japanese]", None, Err("expected a time such as")),
        ("[Europe/Berlin]", None, Err("expected a time such as")),
        ("2027-06-01T12:00:00Z[]", None, Err("no time zone ``")),
    ] {
        match (parse_instant(&json!(named), timezone), expected) {
            (Ok(found), Ok(expected)) => assert_eq!(found, at(expected), "{named}"),
            (Err(why), Err(part)) => assert!(why.to_string().contains(part), "{named}: {why}"),
            (found, _) => panic!("{named}: {found:?}"),
        }
    }
}

#[test]
fn leap_days_and_month_ends() {
    check_cron("0 0 29 2 *", "UTC", "2026-01-01T00:00:00Z", &["2028-02-29T00:00:00Z", "2032-02-29T00:00:00Z"]);
    check_cron("0 0 31 * *", "UTC", "2026-01-15T00:00:00Z", &["2026-01-31T00:00:00Z", "2026-03-31T00:00:00Z"]);
    check_cron("0 12 L * *", "UTC", "2028-01-31T12:00:00Z", &["2028-02-29T12:00:00Z", "2028-03-31T12:00:00Z"]);
    assert_eq!(Cron::parse("0 0 30 2 *", None).unwrap().next_after(at("2026-01-01T00:00:00Z")), None);
}

#[test]
fn a_time_that_spring_leaves_out_fires_at_the_next_instant_once() {
    // 2026-03-29, 02:00 becomes 03:00, at 01:00 UTC.
    let berlin = "Europe/Berlin";
    check_cron(
        "30 2 * * *",
        berlin,
        "2026-03-28T00:00:00Z",
        &["2026-03-28T01:30:00Z", "2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"],
    );
    check_cron("*/20 2 * * *", berlin, "2026-03-28T23:00:00Z", &["2026-03-29T01:00:00Z", "2026-03-30T00:00:00Z"]);
    check_cron("0 2,3 * * *", berlin, "2026-03-28T23:00:00Z", &["2026-03-29T01:00:00Z", "2026-03-30T00:00:00Z"]);
    // Every hour is every hour that there is.
    check_cron("30 * * * *", berlin, "2026-03-29T00:00:00Z", &["2026-03-29T00:30:00Z", "2026-03-29T01:30:00Z"]);
    check_cron("0 * * * *", berlin, "2026-03-29T00:00:00Z", &["2026-03-29T01:00:00Z", "2026-03-29T02:00:00Z"]);
}

#[test]
fn a_time_that_autumn_has_twice_fires_once() {
    // 2026-10-25, 03:00 becomes 02:00, at 01:00 UTC.
    let berlin = "Europe/Berlin";
    check_cron("30 2 * * *", berlin, "2026-10-24T12:00:00Z", &["2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"]);
    check_cron("*/30 2 * * *", berlin, "2026-10-25T01:10:00Z", &["2026-10-26T01:00:00Z"]);
    check_cron("0 3 * * *", berlin, "2026-10-25T00:30:00Z", &["2026-10-25T02:00:00Z"]);
    // Every hour is every hour that passes.
    check_cron(
        "30 * * * *",
        berlin,
        "2026-10-24T23:45:00Z",
        &["2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z", "2026-10-25T02:30:00Z"],
    );
    check_cron("0 * * * *", berlin, "2026-10-25T00:00:00Z", &["2026-10-25T01:00:00Z", "2026-10-25T02:00:00Z"]);
}

#[test]
fn a_bad_expression_is_refused_with_the_name_of_the_field() {
    for (expression, zone, parts) in [
        ("61 * * * *", None, &["minute `61`", "0..=59"][..]),
        ("* 24 * * *", None, &["hour `24`"]),
        ("* * 0 * *", None, &["day of month `0`"]),
        ("* * * 13 *", None, &["month `13`"]),
        ("* * * * MUN", None, &["day of week `MUN`"]),
        ("5-1 * * * *", None, &["minute `5-1`", "ascending"]),
        ("* * * *", None, &["expected 5 fields", "got 4"]),
        ("0 0 9 * * *", None, &["expected 5 fields", "got 6", "`every`"]),
        ("0 9 * * * Europe/Berlin", None, &["`timezone`"]),
        ("@often", None, &["expected 5 fields"]),
        ("0 9 * * *", Some("Europe/Berlim"), &["`timezone`", "Europe/Berlim", "IANA"]),
    ] {
        let error = Cron::parse(expression, zone).unwrap_err().to_string();
        assert!(parts.iter().all(|part| error.contains(part)), "`{expression}`: {error}");
        assert!(!error.contains('\n'), "{error}");
    }
}

#[test]
fn times_and_durations_as_people_name_them() {
    for (named, zone, expected) in [
        (json!("2026-03-29T09:00:00Z"), None, Some("2026-03-29T09:00:00.000Z")),
        (json!("2026-03-29T09:00:00+02:00"), Some("UTC"), Some("2026-03-29T07:00:00.000Z")),
        (json!("2026-03-29T09:00"), Some("Europe/Berlin"), Some("2026-03-29T07:00:00.000Z")),
        (json!("2026-03-29T09:00"), None, Some("2026-03-29T09:00:00.000Z")),
        (json!(1_000), None, Some("1970-01-01T00:00:01.000Z")),
        (json!("tomorrow"), None, None),
        (json!("1960-01-01T00:00:00Z"), None, None),
        (json!("2026-03-29T09:00"), Some("Nowhere"), None),
    ] {
        assert_eq!(parse_instant(&named, zone).ok().map(Millis::rfc3339).as_deref(), expected, "{named}");
    }
    assert_eq!(parse_duration(&json!("5m")), Ok(Duration::from_mins(5)));
    assert_eq!(parse_duration(&json!(250)), Ok(Duration::from_millis(250)));
    assert!(parse_duration(&json!("soon")).unwrap_err().to_string().contains("such as `90s`"));
}

#[test]
fn every_counts_from_its_start() {
    let every = Schedule::Every { every: 1_000, start: Millis(5_000) };
    for (after, expected) in [(0, 6_000), (5_000, 6_000), (5_999, 6_000), (6_000, 7_000), (9_500, 10_000)] {
        assert_eq!(every.next_after(Millis(after)), Some(Millis(expected)), "after {after}");
    }
    assert_eq!(Schedule::At(Millis(5)).next_after(Millis(4)), Some(Millis(5)));
    assert_eq!(Schedule::At(Millis(5)).next_after(Millis(5)), None);
}

fn timer_request(schedule: Schedule, catch_up: CatchUpPolicy) -> TimerRequest {
    TimerRequest {
        id: TimerId::from_text("x"),
        name: None,
        origin: EventId::new("o").unwrap(),
        asked: None,
        place: None,
        agent: "a".parse().unwrap(),
        kind: TimerKind::Task,
        submission: Submission::default(),
        schedule,
        catch_up,
        overlap: OverlapPolicy::Queue,
    }
}

/// Every ten seconds from 0 on, set at 0.
fn ticking(catch_up: CatchUpPolicy) -> Timer {
    let schedule = Schedule::Every { every: 10_000, start: Millis(0) };
    Timer::new(timer_request(schedule, catch_up), 0, Millis(0), Millis(0)).unwrap()
}

fn check_due(timer: &Timer, now: u64, fire: &[u64], skipped: u64, next: Option<u64>) {
    let expected = DueTimes { fire: fire.iter().copied().map(Millis).collect(), skipped, next: next.map(Millis) };
    assert_eq!(timer.due(Millis(now)), expected, "{:?} at {now}", timer.catch_up);
}

#[test]
fn catch_up_says_what_a_downtime_leaves() {
    for catch_up in [CatchUpPolicy::One, CatchUpPolicy::All, CatchUpPolicy::Skip] {
        check_due(&ticking(catch_up), 9_999, &[], 0, Some(10_000));
        check_due(&ticking(catch_up), 10_000, &[10_000], 0, Some(20_000));
    }
    check_due(&ticking(CatchUpPolicy::One), 95_000, &[10_000], 8, Some(100_000));
    check_due(&ticking(CatchUpPolicy::All), 35_000, &[10_000, 20_000, 30_000], 0, Some(40_000));
    check_due(&ticking(CatchUpPolicy::Skip), 95_000, &[], 9, Some(100_000));
}

#[test]
fn catch_up_skip_leaves_out_what_a_short_downtime_missed() {
    // What is a sweep late has not been missed.
    check_due(&ticking(CatchUpPolicy::Skip), 19_999, &[10_000], 0, Some(20_000));
    // Behind others that were missed only what is due now is not.
    check_due(&ticking(CatchUpPolicy::Skip), 29_000, &[], 2, Some(30_000));
    check_due(&ticking(CatchUpPolicy::Skip), 65_000, &[], 6, Some(70_000));
    check_due(&ticking(CatchUpPolicy::Skip), 62_000, &[60_000], 5, Some(70_000));
    let minutely = Schedule::Every { every: 60_000, start: Millis(0) };
    let minutely = Timer::new(timer_request(minutely, CatchUpPolicy::Skip), 0, Millis(0), Millis(0)).unwrap();
    check_due(&minutely, 70_000, &[60_000], 0, Some(120_000));
    check_due(&minutely, 70_001, &[], 1, Some(120_000));
    // A full mailbox is tried again for a minute.
    let full = |timer: Timer| {
        timer.clone().after_delivery(&timer.due(Millis(61_000)), vec![DeliveryResult::Later], Millis(61_000))
    };
    let tried = full(minutely);
    check_due(&tried, 119_000, &[60_000], 0, Some(120_000));
    check_due(&tried, 120_001, &[120_000], 1, Some(180_000));
}

#[test]
fn a_very_long_downtime_is_bounded() {
    // 100 days of ten seconds each.
    let now = 864_000_000 * 10 + 5_000;
    let next = Some(now + 5_000);
    check_due(&ticking(CatchUpPolicy::One), now, &[10_000], 100, next);
    let first: Vec<u64> = (1..=100).map(|n| n * 10_000).collect();
    check_due(&ticking(CatchUpPolicy::All), now, &first, 100, next);
    check_due(&ticking(CatchUpPolicy::Skip), now, &[], 100, next);
}

#[test]
fn once_is_once_late_or_not() {
    let once =
        |catch_up| Timer::new(timer_request(Schedule::At(Millis(5)), catch_up), 0, Millis(0), Millis(0)).unwrap();
    check_due(&once(CatchUpPolicy::One), 4, &[], 0, Some(5));
    check_due(&once(CatchUpPolicy::One), 10_000_000, &[5], 0, None);
    check_due(&once(CatchUpPolicy::Skip), 10_000_000, &[], 1, None);
    let over = once(CatchUpPolicy::Skip).after_delivery(
        &DueTimes { skipped: 1, ..DueTimes::default() },
        Vec::new(),
        Millis(9),
    );
    assert_eq!((over.phase, over.skipped, over.next), (TimerPhase::Fired, 1, None));
    assert_eq!(over.due, Millis(9).plus(TIMER_KEPT));
}

#[test]
fn the_time_of_the_request_behind_it_ends_a_timer() {
    let mut timer = ticking(CatchUpPolicy::One);
    timer.submission.envelope = Envelope { deadline: Some(Millis(25_000)), ..Envelope::default() };
    check_due(&timer, 10_000, &[10_000], 0, Some(20_000));
    check_due(&Timer { next: Some(Millis(20_000)), ..timer }, 20_000, &[20_000], 0, None);
}

fn sent(timer: &Timer, at: Millis) -> DeliveryResult {
    DeliveryResult::Sent(SentEvent {
        at,
        event: timer.event_id(b"k", &"t/u".parse().unwrap(), at),
        job: None,
        session: "main".parse().unwrap(),
    })
}

#[test]
fn a_timer_advances_by_the_outcome_of_its_fires() {
    let timer = ticking(CatchUpPolicy::All);
    let (now, due) = (Millis(25_000), timer.due(Millis(25_000)));
    let done = vec![sent(&timer, Millis(10_000)), DeliveryResult::Skipped];
    let moved = timer.clone().after_delivery(&due, done, now);
    assert_eq!((moved.fired, moved.skipped, moved.next, moved.due), (1, 1, Some(Millis(30_000)), Millis(30_000)));
    assert_eq!(moved.last.map(|sent| sent.at), Some(Millis(10_000)));

    // A full mailbox: what it refused is tried again, ever later, and goes before the rest.
    let mut later = timer.clone().after_delivery(&due, vec![sent(&timer, Millis(10_000)), DeliveryResult::Later], now);
    assert_eq!((later.fired, later.next, later.due), (1, Some(Millis(20_000)), Millis(30_000)));
    for pause in [10, 20, 40, 80, 160, 300, 300] {
        let due = later.due(now);
        later = later.after_delivery(&due, vec![DeliveryResult::Later], now);
        assert_eq!((later.next, later.due.elapsed_since(now)), (Some(Millis(20_000)), Duration::from_secs(pause)));
    }
    let due_again = later.due(now);
    let through = later.clone().after_delivery(&due_again, vec![sent(&later, Millis(20_000))], now);
    assert_eq!((through.fired, through.tries, through.next), (2, 0, Some(Millis(30_000))));

    let failed = timer.clone().after_delivery(&due, vec![DeliveryResult::Failed("gone".into())], now);
    assert_eq!((&failed.phase, failed.next), (&TimerPhase::Failed { error: "gone".into() }, None));
    assert_eq!(failed.due(Millis(u64::MAX)), DueTimes::default(), "what has ended fires no more");
}

#[test]
fn setting_the_same_again_changes_nothing() {
    let timer = ticking(CatchUpPolicy::One);
    let same = |change: fn(&mut TimerRequest)| {
        let mut again = timer_request(Schedule::Every { every: 10_000, start: Millis(7) }, CatchUpPolicy::One);
        again.origin = EventId::new("another").unwrap();
        change(&mut again);
        timer.is_same_as(&again)
    };
    assert!(same(|_| {}));
    assert!(same(|wanted| {
        wanted.schedule = Schedule::At(Millis(5));
        wanted.origin = EventId::new("o").unwrap();
    }));
    assert!(!same(|wanted| wanted.schedule = Schedule::At(Millis(5))));
    assert!(!same(|wanted| wanted.kind = TimerKind::Message));
    assert!(!same(|wanted| wanted.submission.input = json!(1)));
    assert!(!same(|wanted| wanted.overlap = OverlapPolicy::Skip));
    // Under a producer's id: what was asked, by whom.
    let asked = |mark: &str| Some(mark.to_owned());
    let set = Timer { asked: asked("a"), ..timer.clone() };
    for (mark, anothers) in [(asked("a"), false), (asked("b"), true), (None, true)] {
        let again = TimerRequest { asked: mark, ..timer_request(Schedule::At(Millis(9)), CatchUpPolicy::One) };
        assert_eq!(set.conflicts_with(&again), anothers, "{again:?}");
        assert!(!timer.conflicts_with(&again), "of an older version nobody knows");
        assert!(!set.conflicts_with(&TimerRequest { origin: EventId::new("another").unwrap(), ..again }));
    }
    // Of a session's one wake the call that comes later in the conversation counts.
    let place = |turn, call, start| Some(TimerOrigin { turn, call, start: Millis(start) });
    let wake = Timer { place: place(3, 1, 50), ..timer };
    for (turn, call, start, stays) in [
        (3, 0, 50, true),
        (2, 5, 40, true),
        (3, 2, 50, false),
        (4, 0, 60, false),
        // Clocks of two workers are apart.
        (4, 0, 45, false),
        // The session began anew under its name.
        (1, 0, 70, false),
        (3, 1, 70, false),
    ] {
        let mut again = timer_request(Schedule::At(Millis(9)), CatchUpPolicy::One);
        again.origin = EventId::new("another").unwrap();
        again.place = place(turn, call, start);
        assert_eq!(wake.is_same_as(&again), stays, "{turn}/{call} at {start}");
    }
}

#[test]
fn a_fire_is_named_by_timer_generation_and_planned_time() {
    let timer = ticking(CatchUpPolicy::One);
    let event = timer.event_id(b"k", &"t/u".parse().unwrap(), Millis(10));
    assert!(event.as_str().starts_with(&format!("venue:timer-{}-1-10-", timer.id)), "{event}");
    let text = serde_json::to_string(&timer).unwrap();
    assert_eq!(serde_json::from_str::<Timer>(&text).unwrap(), timer, "{text}");
}
