//! Records that are deleted, cut or replaced behind the venue's back: what each of them costs, and who says so.

mod disk;
mod isolation;
mod kinds;
mod blockable_queue;
mod lost_records;
mod record_kinds;
mod busy_venue;
mod damaged_lists;
mod atomic_writes;

use crate::support::redis::RedisServer;
use redis::Value as Answer;
use std::path::Path;
use std::time::Duration;

/// What is done to a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blow {
    Deleted,
    Cut,
    Junk,
}

/// Text of an answer, or of the items of a list.
pub fn texts(answer: Answer) -> Vec<Vec<u8>> {
    match answer {
        Answer::Array(all) => all.into_iter().flat_map(texts).collect(),
        Answer::BulkString(bytes) => vec![bytes],
        Answer::SimpleString(text) => vec![text.into_bytes()],
        _ => Vec::new(),
    }
}

/// A command whose arguments are bytes.
pub async fn command(server: &RedisServer, words: &[&[u8]]) -> Answer {
    let client = redis::Client::open(server.url()).unwrap();
    // A machine under load takes longer than the driver's own times.
    let patience = Some(Duration::from_mins(1));
    let config = redis::AsyncConnectionConfig::new().set_connection_timeout(patience).set_response_timeout(patience);
    let mut connection = client.get_multiplexed_async_connection_with_config(&config).await.unwrap();
    let mut command = redis::cmd(std::str::from_utf8(words[0]).unwrap());
    for word in &words[1..] {
        command.arg(*word);
    }
    command.query_async(&mut connection).await.unwrap()
}

/// Copies the files of a folder, and of those in it.
fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy_folder(&path, &target);
        } else {
            std::fs::copy(&path, &target).unwrap();
        }
    }
}
