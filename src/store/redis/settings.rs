//! The server's settings on which the guarantees rest, for `trellis doctor`.

use super::connection::{Again, Pool};
use crate::store::{Setting, StoreError};
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
pub async fn read(pool: &Pool) -> Result<Vec<Setting>, StoreError> {
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
    Ok(settings)
}

fn judge(name: &str, expected: &str, problem: &str, value: Option<&str>) -> Setting {
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
    Setting { name: format!("redis {name}"), value: value.to_owned(), problem }
}

fn version(info: &str) -> Setting {
    let version = info.lines().find_map(|line| line.strip_prefix("redis_version:")).unwrap_or("unknown").trim();
    let mut numbers = version.split('.').map_while(|part| part.parse::<u32>().ok());
    let known = numbers.next().zip(numbers.next());
    let problem = match known {
        Some(known) if known >= OLDEST => None,
        _ => Some("functions need Redis 7.0 or later; upgrade it".to_owned()),
    };
    Setting { name: "redis version".to_owned(), value: version.to_owned(), problem }
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
    fn a_server_that_does_not_say_has_a_problem() {
        let setting = judge("appendfsync", "always", "set it", None);
        assert_eq!(setting.value, "unknown");
        assert!(setting.problem.unwrap().contains("doesn't say"));
    }
}
