//! The server's settings on which the guarantees rest, for `trellis doctor`.

use super::connection::{Again, Pool};
use crate::store::{BackendSetting, Fill, StoreError};
use redis::Value;

/// Setting, the value it must have, what breaks otherwise.
const EXPECTED: [(&str, &str, &str); 5] = [
    ("appendonly", "yes", "a restart loses everything; set `appendonly yes`"),
    ("appendfsync", "always", "a kill can lose acknowledged commits; set `appendfsync always`"),
    ("no-appendfsync-on-rewrite", "no", "commits are not durable while the log is rewritten; set it to `no`"),
    ("maxmemory-policy", "noeviction", "at the memory limit accepted work is evicted; set `noeviction`"),
    ("save", "", "snapshots fork the server beside the log and add no safety; set `save \"\"`"),
];

/// First version with functions.
const OLDEST: (u32, u32) = (7, 0);

/// Reads them all. A server that doesn't let itself be asked (managed ones rename `CONFIG`) gets
/// a value `unknown` with a problem, no error.
pub async fn read(pool: &Pool) -> Result<Vec<BackendSetting>, StoreError> {
    let mut info = redis::cmd("INFO");
    info.arg("server");
    let mut settings = vec![version(&text(&pool.run(&info, Again::Yes).await?))];
    for (name, expected, problem) in EXPECTED {
        let mut get = redis::cmd("CONFIG");
        get.arg("GET").arg(name);
        let value = match pool.run(&get, Again::Yes).await {
            Ok(answer) => value_of(&answer),
            Err(error) if error.is_transient() => return Err(error),
            Err(_) => None,
        };
        settings.push(judge(name, expected, problem, value.as_deref()));
    }
    settings.push(room(fill(pool).await));
    Ok(settings)
}

/// What the server uses of its memory, as it counts itself when it refuses; nothing where it doesn't say.
pub async fn fill(pool: &Pool) -> Fill {
    let mut info = redis::cmd("INFO");
    info.arg("memory");
    match pool.run(&info, Again::Yes).await {
        Ok(answer) => memory(&text(&answer)),
        // Where it matters, the call that comes behind says so.
        Err(_) => Fill::default(),
    }
}

fn memory(info: &str) -> Fill {
    let number = |name: &str| info.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok());
    let used = number("used_memory:").unwrap_or(0).saturating_sub(number("mem_not_counted_for_evict:").unwrap_or(0));
    Fill { used, limit: number("maxmemory:").filter(|limit| *limit > 0) }
}

fn room(fill: Fill) -> BackendSetting {
    let problem = fill.is_tight().then(|| "no new work is taken; free memory or raise `maxmemory`".to_owned());
    BackendSetting { name: "redis memory".to_owned(), value: fill.to_string(), problem }
}

fn judge(name: &str, expected: &str, problem: &str, value: Option<&str>) -> BackendSetting {
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

fn version(info: &str) -> BackendSetting {
    let version = info.lines().find_map(|line| line.strip_prefix("redis_version:")).unwrap_or("unknown").trim();
    let mut numbers = version.split('.').map_while(|part| part.parse::<u32>().ok());
    let known = numbers.next().zip(numbers.next());
    let problem = match known {
        Some(known) if known >= OLDEST => None,
        _ => Some("functions need Redis 7.0 or later; upgrade it".to_owned()),
    };
    BackendSetting { name: "redis version".to_owned(), value: version.to_owned(), problem }
}

/// `CONFIG GET` of one name: `[name, value]`, a map in RESP 3.
fn value_of(answer: &Value) -> Option<String> {
    match answer {
        Value::Array(pair) => pair.get(1).map(text),
        Value::Map(pairs) => pairs.first().map(|(_, value)| text(value)),
        _ => None,
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => text.clone(),
        _ => String::new(),
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
            assert_eq!(version(info).problem.is_none(), fine, "{info}");
        }
    }

    #[test]
    fn memory_is_what_the_server_counts_against_its_limit() {
        let info = "# Memory\r\nused_memory:900\r\nmaxmemory:1000\r\nmem_not_counted_for_evict:100\r\n";
        assert_eq!(memory(info), Fill { used: 800, limit: Some(1_000) });
        assert!(room(memory(info)).problem.is_some());
        assert_eq!(memory("used_memory:900\r\nmaxmemory:0\r\n"), Fill { used: 900, limit: None });
        assert_eq!(memory(""), Fill::default());
    }

    #[test]
    fn a_server_that_does_not_say_has_a_problem() {
        let setting = judge("appendfsync", "always", "set it", None);
        assert_eq!(setting.value, "unknown");
        assert!(setting.problem.unwrap().contains("doesn't say"));
    }
}
