//! The server's settings on which the guarantees depend, for `trellis doctor`.

use super::connection::Pool;
use super::options::ServerOrInjected;
use super::server_connection::answer_text;
use super::topology;
use crate::domain::time::Millis;
use crate::store::{BackendSetting, Fill, StoreError};
use redis::Value;

/// A setting, the value that it must have, and what fails otherwise.
const EXPECTED: [(&str, &str, &str); 5] = [
    ("appendonly", "yes", "a restart loses everything; set `appendonly yes`"),
    ("appendfsync", "always", "a kill can lose acknowledged commits; set `appendfsync always`"),
    ("no-appendfsync-on-rewrite", "no", "commits are not durable while the log is rewritten; set it to `no`"),
    ("maxmemory-policy", "noeviction", "at the memory limit accepted work is evicted; set `noeviction`"),
    ("save", "", "snapshots fork the server beside the log and add no safety; set `save \"\"`"),
];

/// Oldest version of Redis with functions.
const OLDEST: (u32, u32) = (7, 0);

/// Reads all settings of every primary. A server that refuses (managed ones rename `CONFIG`) gets the value `unknown`
/// with a problem, no error.
pub async fn read(pool: &Pool) -> Result<Vec<BackendSetting>, StoreError> {
    let versions = ask_primaries(pool, &["INFO", "server"]).await?;
    let mut settings =
        merge_nodes(versions, |answer| version_setting(&answer.map(|value| answer_text(&value)).unwrap_or_default()));
    for (name, expected, problem) in EXPECTED {
        let values = ask_primaries(pool, &["CONFIG", "GET", name]).await?;
        settings.extend(merge_nodes(values, |answer| {
            check_setting(name, expected, problem, answer.and_then(|value| value_of(&value)).as_deref())
        }));
    }
    let behind = ask_primaries(pool, &["INFO", "replication"]).await?;
    let behind = behind
        .into_iter()
        .map(|(_, answer)| connected_replicas(&answer.map(|value| answer_text(&value)).unwrap_or_default()));
    settings.extend(replica_settings(pool.can_fail_over(), pool.wait_replicas(), behind.min().unwrap_or(0)));
    settings.extend(topology::setting(pool).await?);
    if pool.is_cluster() {
        let nodes = ask_primaries(pool, &["CLUSTER", "NODES"]).await?;
        settings.push(moving_slots(
            nodes.into_iter().map(|(_, answer)| answer.map(|value| answer_text(&value)).unwrap_or_default()),
        ));
    }
    settings.push(memory_setting(measure_fill(pool).await));
    Ok(settings)
}

/// Implements [`crate::store::StoreInspection::history`]: a server takes a new replication id when it starts and when
/// it becomes a primary.
pub async fn history(pool: &Pool) -> Vec<String> {
    let answers = pool.run_everywhere_now(redis::cmd("INFO").arg("replication")).await;
    let id = |answer: &Value| {
        answer_text(answer).lines().find_map(|line| line.strip_prefix("master_replid:")).map(|id| id.trim().to_owned())
    };
    answers.iter().filter_map(id).collect()
}

/// Implements [`crate::store::StoreInspection::time`] by the command `TIME`.
pub async fn time(pool: &Pool, clock: ServerOrInjected) -> Result<Option<Millis>, StoreError> {
    if clock == ServerOrInjected::Injected {
        return Ok(None);
    }
    let mut times: Vec<_> = pool.run_everywhere_now(&redis::cmd("TIME")).await.iter().filter_map(parse_time).collect();
    times.sort_unstable();
    let reason = || "no server tells the time".to_owned();
    let middle = times.get(times.len() / 2).copied();
    middle.map(Some).ok_or_else(|| StoreError::Unavailable { store: pool.store().to_owned(), reason: reason() })
}

/// Parses the answer of `TIME`: seconds, and microseconds.
fn parse_time(answer: &Value) -> Option<Millis> {
    let Value::Array(parts) = answer else { return None };
    let [seconds, micros] = parts.as_slice() else { return None };
    let (seconds, micros): (u64, u64) = (answer_text(seconds).parse().ok()?, answer_text(micros).parse().ok()?);
    Some(Millis(seconds.checked_mul(1_000)?.checked_add(micros / 1_000)?))
}

/// Returns the answer of each primary; `None` where it refuses.
async fn ask_primaries(pool: &Pool, words: &[&str]) -> Result<Vec<(String, Option<Value>)>, StoreError> {
    let mut cmd = redis::cmd(words[0]);
    cmd.arg(&words[1..]);
    let each = |(node, answer): (String, Result<Value, StoreError>)| match answer {
        Ok(value) => Ok((node, Some(value))),
        Err(error) if error.is_transient() => Err(error),
        Err(_) => Ok((node, None)),
    };
    pool.run_everywhere(&cmd).await?.into_iter().map(each).collect()
}

/// Returns one setting if all nodes agree, else one of each node with its name.
fn merge_nodes(
    answers: Vec<(String, Option<Value>)>,
    judge: impl Fn(Option<Value>) -> BackendSetting,
) -> Vec<BackendSetting> {
    let mut all: Vec<_> = answers.into_iter().map(|(node, answer)| (node, judge(answer))).collect();
    if all.iter().all(|(_, setting)| setting.value == all[0].1.value) {
        return all.drain(..).take(1).map(|(_, setting)| setting).collect();
    }
    let named = |(node, setting): (String, BackendSetting)| {
        let name = format!("{} at {node}", setting.name);
        BackendSetting { name, ..setting }
    };
    all.into_iter().map(named).collect()
}

/// Returns how many replicas are connected to a primary.
fn connected_replicas(info: &str) -> u32 {
    info.lines().find_map(|line| line.strip_prefix("connected_slaves:")?.trim().parse().ok()).unwrap_or(0)
}

/// Returns where an acknowledged commit is stored, and what stops when a server does. A single server without replicas
/// has no such settings.
fn replica_settings(can_fail_over: bool, waits: u32, behind: u32) -> Vec<BackendSetting> {
    if !can_fail_over && waits == 0 && behind == 0 {
        return Vec::new();
    }
    let lost = (waits == 0 && behind > 0)
        .then(|| "a failover can lose acknowledged commits; set `store.wait_replicas = 1`".to_owned());
    let away = match behind {
        0 if waits == 0 => {
            Some("a primary has no replica: what it keeps is away for as long as it is; add one".to_owned())
        }
        behind if waits > behind => Some(format!(
            "a primary has {behind} replicas, so that nothing can be committed there; add some or set `store.wait_replicas = {behind}`"
        )),
        behind if waits == behind => Some(
            "while one of them is away nothing can be committed there; add one more than `store.wait_replicas`"
                .to_owned(),
        ),
        _ => None,
    };
    let setting = |name: &str, value: String, problem| BackendSetting { name: name.to_owned(), value, problem };
    vec![
        setting("redis commits", format!("on the primary and {waits} of {behind} replicas"), lost),
        setting("redis replicas", behind.to_string(), away),
    ]
}

/// Returns how many slots are being moved, by each primary's own list of nodes.
fn moving_slots(nodes: impl Iterator<Item = String>) -> BackendSetting {
    let moved: usize = nodes.map(|text| text.matches("->-").count()).sum();
    let problem = (moved > 0).then(|| {
        "calls on their shards wait, and a failover of the node that they leave would leave them in two parts; let the \
         move come to its end"
            .to_owned()
    });
    BackendSetting { name: "redis slots on the move".to_owned(), value: moved.to_string(), problem }
}

/// Returns the used memory that the servers compare with their limit, of the fullest primary; [`Fill::default`] if none
/// answers.
pub async fn measure_fill(pool: &Pool) -> Fill {
    // A server that doesn't answer is reported by the next call that needs it.
    let nodes = pool.run_everywhere_now(redis::cmd("INFO").arg("memory")).await;
    let fills = nodes.iter().map(|answer| parse_memory(&answer_text(answer)));
    fills.max_by_key(|fill| fill.percent()).unwrap_or_default()
}

fn parse_memory(info: &str) -> Fill {
    let number = |name: &str| info.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok());
    let used = number("used_memory:").unwrap_or(0).saturating_sub(number("mem_not_counted_for_evict:").unwrap_or(0));
    Fill { used, limit: number("maxmemory:").filter(|limit| *limit > 0) }
}

fn memory_setting(fill: Fill) -> BackendSetting {
    let problem = fill.is_tight().then(|| "no new work is taken; free memory or raise `maxmemory`".to_owned());
    BackendSetting { name: "redis memory".to_owned(), value: fill.to_string(), problem }
}

fn check_setting(name: &str, expected: &str, problem: &str, value: Option<&str>) -> BackendSetting {
    let problem = match value {
        None => Some(format!("the server doesn't say; make sure of this: {problem}")),
        Some(value) if value != expected => Some(problem.to_owned()),
        Some(_) => None,
    };
    let value = match value {
        None => "unknown",
        // As it is written in the configuration.
        Some("") => "\"\"",
        Some(value) => value,
    };
    BackendSetting { name: format!("redis {name}"), value: value.to_owned(), problem }
}

fn version_setting(info: &str) -> BackendSetting {
    let version = info.lines().find_map(|line| line.strip_prefix("redis_version:")).unwrap_or("unknown").trim();
    let mut numbers = version.split('.').map_while(|part| part.parse::<u32>().ok());
    let known = numbers.next().zip(numbers.next());
    let problem = match known {
        Some(known) if known >= OLDEST => None,
        _ => Some("functions need Redis 7.0 or later; upgrade it".to_owned()),
    };
    BackendSetting { name: "redis version".to_owned(), value: version.to_owned(), problem }
}

/// Returns the value of `CONFIG GET` of one name: `[name, value]`, or a map in RESP 3.
fn value_of(answer: &Value) -> Option<String> {
    match answer {
        Value::Array(pair) => pair.get(1).map(answer_text),
        Value::Map(pairs) => pairs.first().map(|(_, value)| answer_text(value)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_below_seven_are_a_problem() {
        for (info, fine) in [
            ("# Server\r\nredis_version:7.0.15\r\n", true),
            ("redis_version:10.2.1\r\n", true),
            ("redis_version:6.2.14\r\n", false),
            ("", false),
        ] {
            assert_eq!(version_setting(info).problem.is_none(), fine, "{info}");
        }
    }

    #[test]
    fn the_durability_of_a_commit_follows_from_replicas() {
        let problems = |can_fail_over, waits, behind| {
            let told = replica_settings(can_fail_over, waits, behind).into_iter();
            told.map(|setting| setting.problem.unwrap_or_default()).collect::<Vec<_>>()
        };
        assert!(problems(false, 0, 0).is_empty(), "one server");
        for (can_fail_over, waits, behind, lost, away) in [
            (false, 1, 0, "", "nothing can be committed"),
            (true, 2, 1, "", "set `store.wait_replicas = 1`"),
            (true, 0, 0, "", "has no replica"),
            (true, 0, 1, "a failover can lose acknowledged commits", ""),
            (false, 0, 1, "a failover can lose acknowledged commits", ""),
            (true, 1, 1, "", "while one of them is away"),
            (true, 1, 2, "", ""),
        ] {
            for (problem, said) in problems(can_fail_over, waits, behind).iter().zip([lost, away]) {
                let fits = if said.is_empty() { problem.is_empty() } else { problem.contains(said) };
                assert!(fits, "{can_fail_over} {waits} {behind}: `{problem}`, expected `{said}`");
            }
        }
        let moved = |text: &str| moving_slots(std::iter::once(text.to_owned()));
        let node = "07c37df 127.0.0.1:30004 myself,master - 0 0 1 connected 0-5460";
        assert_eq!((moved(node).value.as_str(), moved(node).problem), ("0", None));
        let moving = moved(&format!("{node} [93-<-292f8b3] [77->-e7d1eec]"));
        assert!(moving.value == "1" && moving.problem.is_some(), "{moving:?}");
        assert_eq!(connected_replicas("# Replication\r\nrole:master\r\nconnected_slaves:2\r\n"), 2);
    }

    #[test]
    fn nodes_that_agree_are_one_setting() {
        let answers = |values: &[&str]| {
            let node = |(n, value): (usize, &&str)| {
                (format!("h:{n}"), Some(Value::Array(vec![Value::Nil, Value::BulkString(value.as_bytes().to_vec())])))
            };
            values.iter().enumerate().map(node).collect::<Vec<_>>()
        };
        let of = |values: &[&str]| {
            let all = merge_nodes(answers(values), |answer| {
                check_setting("appendonly", "yes", "set it", answer.and_then(|value| value_of(&value)).as_deref())
            });
            all.into_iter().map(|one| (one.name, one.problem.is_some())).collect::<Vec<_>>()
        };
        assert_eq!(of(&["yes", "yes"]), [("redis appendonly".to_owned(), false)]);
        let two = [("redis appendonly at h:0".to_owned(), false), ("redis appendonly at h:1".to_owned(), true)];
        assert_eq!(of(&["yes", "no"]), two);
    }

    #[test]
    fn memory_is_what_the_server_counts_against_its_limit() {
        let info = "# Memory\r\nused_memory:900\r\nmaxmemory:1000\r\nmem_not_counted_for_evict:100\r\n";
        assert_eq!(parse_memory(info), Fill { used: 800, limit: Some(1_000) });
        assert!(memory_setting(parse_memory(info)).problem.is_some());
        assert_eq!(parse_memory("used_memory:900\r\nmaxmemory:0\r\n"), Fill { used: 900, limit: None });
        assert_eq!(parse_memory(""), Fill::default());
    }

    #[test]
    fn a_server_that_does_not_say_has_a_problem() {
        let setting = check_setting("appendfsync", "always", "set it", None);
        assert_eq!(setting.value, "unknown");
        assert!(setting.problem.unwrap().contains("doesn't say"));
    }
}
