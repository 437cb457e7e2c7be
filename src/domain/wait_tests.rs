//! Texts, records and advice of reasons to wait.

use super::*;

fn job(digit: &str) -> JobId {
    JobId::new(&digit.repeat(32)).unwrap()
}

#[test]
fn a_reason_says_what_is_waited_for_and_what_to_do() {
    let agent: AgentId = "a".parse().unwrap();
    let person = WaitReason::Person { approvals: vec![job("2")] };
    let child = |wait| WaitReason::Child { job: job("1"), agent: agent.clone(), wait, others: 0 };
    let limit = |owner_limit| WaitReason::AgentLimit { agent: agent.clone(), limit: 2, owner_limit };
    let suspended = |why: &str| WaitReason::Suspended { agent: agent.clone(), why: Some(why.into()) };
    let two = job("2");
    for (reason, kind, text, advice) in [
        (WaitReason::NoWorker { last: None }, "no-worker", "no worker runs".to_owned(), Some("`trellis worker`")),
        (
            limit(None),
            "agent-limit",
            "agent `a` runs as many sessions as it may: 2 (`concurrency`)".into(),
            Some("update a"),
        ),
        (
            limit(Some(9)),
            "agent-limit",
            "agent `a` runs as many sessions as it may: 2 (`concurrency`), or its owner does: 9 (`worker.owner_cap`)"
                .into(),
            Some("update a"),
        ),
        (suspended("tired"), "suspended", "agent `a` is suspended: tired".into(), Some("agent resume a")),
        (
            suspended("x; `trellis agent resume a`"),
            "suspended",
            "agent `a` is suspended: x; `trellis agent resume a`".into(),
            None,
        ),
        (person.clone(), "person", format!("a person must answer approval `{two}`"), Some("`trellis approvals`")),
        (
            child(Some(Box::new(person.clone()))),
            "child",
            format!(
                "job `{}` of agent `a`, which it has started, has not ended: a person must answer approval `{two}`",
                job("1")
            ),
            Some("`trellis approvals`"),
        ),
        (child(None), "child", format!("job `{}` of agent `a`, which it has started, has not ended", job("1")), None),
        (
            WaitReason::Noted { cause: WaitCause::Damaged, text: "`g/a` can't be read".into(), until: Some(Millis(7)) },
            "damaged",
            "`g/a` can't be read".into(),
            Some("`trellis audit`"),
        ),
    ] {
        assert_eq!((reason.kind(), reason.to_string()), (kind, text));
        let given = reason.advice();
        assert_eq!(given.is_some(), advice.is_some(), "{reason}: {given:?}");
        assert!(given.unwrap_or_default().contains(advice.unwrap_or_default()), "{reason}");
    }
}

#[test]
fn a_withheld_reason_has_its_kind_and_no_name() {
    let agent: AgentId = "secret-agent".parse().unwrap();
    let boxed = |wait: WaitReason| Some(Box::new(wait));
    let person = WaitReason::Person { approvals: vec![job("2")] };
    let child = |wait| WaitReason::Child { job: job("1"), agent: agent.clone(), wait, others: 0 };
    let noted = |cause| WaitReason::Noted { cause, text: "secret text".into(), until: Some(Millis(7)) };
    for (reason, kind, root, needs_person) in [
        (person.clone(), "person", "person", true),
        (child(boxed(person.clone())), "child", "person", true),
        (child(boxed(child(boxed(person.clone())).withhold())), "child", "person", true),
        (child(None), "child", "child", false),
        (WaitReason::Behind { job: job("1"), wait: boxed(noted(WaitCause::Other)) }, "behind", "other", false),
        (WaitReason::Paused { job: job("1"), by: Some("secret name".into()) }, "paused", "paused", true),
        (WaitReason::Suspended { agent: agent.clone(), why: Some("secret".into()) }, "suspended", "suspended", true),
        (noted(WaitCause::BackingOff { tries: 3 }), "backing-off", "backing-off", false),
        (
            WaitReason::AgentLimit { agent: agent.clone(), limit: 2, owner_limit: None },
            "agent-limit",
            "agent-limit",
            false,
        ),
        (WaitReason::ResultDue { job: job("1") }, "result-due", "result-due", false),
        (
            WaitReason::External { queue: "secret queue".into(), begun: true },
            "external-worker",
            "external-worker",
            false,
        ),
        (WaitReason::Timer { until: Millis(7) }, "timer", "timer", false),
    ] {
        let withheld = reason.clone().withhold();
        assert_eq!((withheld.kind(), withheld.needs_person()), (kind, needs_person), "{reason}");
        let end = withheld.withheld_root();
        assert_eq!(end.map_or(kind, |(end, _)| end), root);
        assert_eq!((withheld.resume_time(), withheld.advice()), (None, None));
        let text = format!("{withheld} {}", end.map_or("", |(_, text)| text));
        for secret in ["secret", job("1").as_str(), job("2").as_str()] {
            assert!(!text.contains(secret), "`{secret}` in {text}");
        }
        assert_eq!(withheld.clone().withhold(), withheld);
    }
    for public in [WaitReason::NoWorker { last: None }, WaitReason::Due, WaitReason::OwnerShare] {
        assert_eq!(public.clone().withhold(), public);
    }
}

#[test]
fn causes_are_read_as_written_and_unknown_ones_as_other() {
    for cause in [
        WaitCause::ProviderLimit,
        WaitCause::SpendingLimit,
        WaitCause::BackingOff { tries: 3 },
        WaitCause::Paused,
        WaitCause::NotPublished,
        WaitCause::Damaged,
        WaitCause::Other,
    ] {
        let written = json!(cause);
        assert_eq!(written["kind"], cause.kind());
        assert_eq!(WaitCause::deserialize(written).unwrap(), cause);
    }
    assert_eq!(WaitCause::deserialize(json!({"kind": "brand-new"})).unwrap(), WaitCause::Other);
}
