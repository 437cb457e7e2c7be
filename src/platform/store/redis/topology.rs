//! Which servers a store is on, for `trellis doctor`: a cluster, or a primary that Sentinels name.

use super::connection::Pool;
use super::sentinel::SentinelReport;
use super::server_connection::answer_text;
use crate::store::{BackendSetting, StoreError};
use std::collections::BTreeMap;

/// Number of slots of a cluster.
const SLOTS: u64 = 16_384;

/// Returns the setting of a cluster or of Sentinels; `None` for a single server.
pub(super) async fn setting(pool: &Pool) -> Result<Option<BackendSetting>, StoreError> {
    if let Some(report) = pool.sentinels().await {
        return Ok(Some(sentinel_setting(&report)));
    }
    if !pool.is_cluster() {
        return Ok(None);
    }
    let answers = pool.run_everywhere(redis::cmd("CLUSTER").arg("INFO")).await?;
    let known: Vec<_> = answers.into_iter().filter_map(|(_, answer)| answer.ok()).collect();
    // The user may lack the right to ask.
    if known.is_empty() {
        return Ok(None);
    }
    Ok(Some(cluster_setting(&known.iter().map(answer_text).collect::<Vec<_>>())))
}

fn servers_setting(value: String, problem: Option<String>) -> BackendSetting {
    BackendSetting { name: "redis servers".to_owned(), value, problem }
}

fn sentinel_setting(report: &SentinelReport) -> BackendSetting {
    let SentinelReport { name, all, answering, primaries, is_down } = report;
    let named: Vec<_> = primaries.iter().map(|(address, count)| format!("{address} by {count}")).collect();
    let named = if named.is_empty() { "nobody".to_owned() } else { named.join(", ") };
    let value = format!("{answering} of {all} Sentinels answer; primary `{name}`: {named}");
    let majority = all / 2 + 1;
    let problem = if *is_down {
        Some("they say that it is down: nothing can be committed until another takes over".to_owned())
    } else if primaries.len() > 1 {
        Some("they don't agree who is the primary: a failover is under way, or one of them is behind".to_owned())
    } else if primaries.is_empty() {
        Some("nobody names a primary: see the name behind the last `/` of `store.url`".to_owned())
    } else if *answering < majority {
        Some(format!("without {majority} of them no other server takes over when the primary is lost: bring them back"))
    } else if *all < 3 {
        Some(
            "fewer than three Sentinels can't outvote one that is wrong: run three and name all in `store.url`"
                .to_owned(),
        )
    } else {
        None
    };
    servers_setting(value, problem)
}

/// Returns the facts of `CLUSTER INFO` over all primaries that answer: the worst of each counts.
fn cluster_setting(answers: &[String]) -> BackendSetting {
    let facts = |answer: &String| -> BTreeMap<String, String> {
        let pairs = answer.lines().filter_map(|line| line.trim().split_once(':'));
        pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    };
    let all: Vec<_> = answers.iter().map(facts).collect();
    let number = |name: &str| all.iter().filter_map(|facts| facts.get(name)?.parse::<u64>().ok()).min().unwrap_or(0);
    let (slots, primaries, nodes) = (number("cluster_slots_ok"), number("cluster_size"), number("cluster_known_nodes"));
    let is_ok =
        !all.is_empty() && all.iter().all(|facts| facts.get("cluster_state").is_some_and(|state| state == "ok"));
    let state = if is_ok { "ok" } else { "fail" };
    let value =
        format!("cluster, state {state}: {primaries} primaries of {nodes} nodes, {slots} of {SLOTS} slots served");
    let problem = if !is_ok || slots < SLOTS {
        Some(
            "owners in slots that nobody serves can't be read or changed: bring their primary or a replica back"
                .to_owned(),
        )
    } else if primaries < 3 {
        Some(
            "fewer than three primaries can't agree that one is lost: nobody takes over; have three or more".to_owned(),
        )
    } else {
        None
    };
    servers_setting(value, problem)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_sentinel_settings_are_problems() {
        let report = |answering, primaries: &[(&str, usize)], is_down| SentinelReport {
            name: "m".to_owned(),
            all: 3,
            answering,
            primaries: primaries.iter().map(|(address, count)| ((*address).to_owned(), *count)).collect(),
            is_down,
        };
        for (report, value, problem) in [
            (report(3, &[("a:1", 3)], false), "3 of 3 Sentinels answer; primary `m`: a:1 by 3", ""),
            (report(1, &[("a:1", 1)], false), "1 of 3 Sentinels answer; primary `m`: a:1 by 1", "without 2 of them"),
            (
                report(3, &[("a:1", 1), ("b:1", 2)], false),
                "3 of 3 Sentinels answer; primary `m`: a:1 by 1, b:1 by 2",
                "don't agree",
            ),
            (report(3, &[("a:1", 3)], true), "3 of 3 Sentinels answer; primary `m`: a:1 by 3", "it is down"),
            (report(3, &[], false), "3 of 3 Sentinels answer; primary `m`: nobody", "nobody names"),
        ] {
            let row = sentinel_setting(&report);
            let said = row.problem.unwrap_or_default();
            assert_eq!(row.value, value);
            assert!(said.contains(problem) && said.is_empty() == problem.is_empty(), "{value}: {said}");
        }
    }

    #[test]
    fn a_cluster_that_lacks_slots_is_a_problem() {
        let info = |state: &str, slots: u64| {
            format!("cluster_state:{state}\r\ncluster_slots_ok:{slots}\r\ncluster_known_nodes:6\r\ncluster_size:3\r\n")
        };
        let whole = cluster_setting(&[info("ok", SLOTS), info("ok", SLOTS)]);
        assert_eq!(whole.value, "cluster, state ok: 3 primaries of 6 nodes, 16384 of 16384 slots served");
        assert_eq!(whole.problem, None);
        let broken = cluster_setting(&[info("ok", SLOTS), info("fail", 11_000)]);
        assert!(broken.problem.unwrap().contains("slots that nobody serves"), "{}", broken.value);
    }
}
