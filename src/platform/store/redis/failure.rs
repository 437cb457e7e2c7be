//! The meaning of a driver's error: whether a second call can help, and what to report.

use crate::store::StoreError;
use redis::{ErrorKind, RedisError, ServerErrorKind};

/// Converts an error of the store named `store`, one server or a cluster.
pub fn classify(store: &str, is_cluster: bool, error: &RedisError) -> StoreError {
    let moved = matches!(error.kind(), ErrorKind::Server(ServerErrorKind::Moved | ServerErrorKind::Ask));
    let reason = if moved && !is_cluster {
        format!("it is a node of a cluster: set `store.url` to `redis+cluster://` with its nodes ({error})")
    } else {
        describe(error)
    };
    let store = store.to_owned();
    match error_class(error) {
        ErrorClass::Unavailable => StoreError::Unavailable { store, reason },
        ErrorClass::Full if error.code() == Some("OOM") => {
            StoreError::Full { store, reason: format!("{reason}; free memory or raise `maxmemory`") }
        }
        // The server says that it can't write its disk, and why.
        ErrorClass::Full => StoreError::Full { store, reason },
        ErrorClass::Corrupt => StoreError::Corrupt { store, record: None, reason },
    }
}

/// Whether the call was not applied and can soon succeed: the server loads, or slots or primaries are moving.
pub fn is_temporary(error: &RedisError) -> bool {
    match error.kind() {
        ErrorKind::Server(kind) => matches!(
            kind,
            ServerErrorKind::BusyLoading
                | ServerErrorKind::Moved
                | ServerErrorKind::Ask
                | ServerErrorKind::TryAgain
                | ServerErrorKind::ClusterDown
                | ServerErrorKind::MasterDown
                | ServerErrorKind::ReadOnly
        ),
        ErrorKind::ClusterConnectionNotFound | ErrorKind::MasterNameNotFoundBySentinel => true,
        _ => false,
    }
}

/// Whether the connection broke, maybe in the middle of an answer, which the driver reports as a parse error.
pub fn is_cut(error: &RedisError) -> bool {
    error.is_connection_dropped() || error.kind() == ErrorKind::Parse
}

/// Whether the server lacks the library.
pub fn is_unknown_function(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::ResponseError) && detail_contains(error, "Function not found")
}

/// Returns the driver's error text, with its meaning where that isn't clear.
fn describe(error: &RedisError) -> String {
    let means = match error.kind() {
        ErrorKind::Server(ServerErrorKind::Moved | ServerErrorKind::Ask) => {
            let to = error.redirect_node().map(|(node, slot)| format!("slot {slot} is said to be at {node}"));
            format!("{}, which doesn't answer", to.unwrap_or_else(|| "its slot is said to be at another node".into()))
        }
        ErrorKind::Server(ServerErrorKind::TryAgain) => "its slot is being moved to another node".into(),
        ErrorKind::Server(ServerErrorKind::ReadOnly) => "the server is a replica now".into(),
        ErrorKind::Server(ServerErrorKind::ClusterDown) => "no primary has its slot, or too few are left".into(),
        ErrorKind::ClusterConnectionNotFound => "no node of the cluster can be reached".into(),
        ErrorKind::MasterNameNotFoundBySentinel => {
            "no Sentinel knows a primary of that name that is up, nor has made another one yet".into()
        }
        ErrorKind::Parse => "the connection was cut in the middle of an answer, or it is no Redis that answers".into(),
        _ => return error.to_string(),
    };
    format!("{means} ({error})")
}

#[derive(Debug, PartialEq, Eq)]
enum ErrorClass {
    Unavailable,
    Full,
    Corrupt,
}

fn error_class(error: &RedisError) -> ErrorClass {
    match error.kind() {
        ErrorKind::Server(ServerErrorKind::ResponseError) if detail_contains(error, "max number of clients") => {
            ErrorClass::Unavailable
        }
        ErrorKind::Server(ServerErrorKind::ResponseError | ServerErrorKind::CrossSlot)
        | ErrorKind::UnexpectedReturnType => ErrorClass::Corrupt,
        ErrorKind::Extension => match error.code() {
            Some("OOM" | "MISCONF") => ErrorClass::Full,
            // The server is busy, or lacks replicas or a login that it requires.
            Some("BUSY" | "NOREPLICAS" | "NOAUTH" | "WRONGPASS" | "UNBLOCKED") => ErrorClass::Unavailable,
            _ => ErrorClass::Corrupt,
        },
        _ => ErrorClass::Unavailable,
    }
}

fn detail_contains(error: &RedisError, words: &str) -> bool {
    error.detail().is_some_and(|detail| detail.contains(words))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_server(code: &str, words: &str) -> RedisError {
        let line = format!("-{code} {words}\r\n");
        redis::parse_redis_value(line.as_bytes()).unwrap().extract_error().unwrap_err()
    }

    #[test]
    fn a_full_server_is_advised_by_what_is_full() {
        let of = |code: &str| classify("redis://h", false, &of_server(code, "words")).to_string();
        assert!(of("OOM").ends_with("; free memory or raise `maxmemory`"), "{}", of("OOM"));
        assert!(of("MISCONF").contains("is full") && !of("MISCONF").contains("memory"), "{}", of("MISCONF"));
    }

    #[test]
    fn errors_say_whether_calling_again_can_help() {
        for (code, expected) in [
            ("OOM", ErrorClass::Full),
            ("MISCONF", ErrorClass::Full),
            ("BUSY", ErrorClass::Unavailable),
            ("NOREPLICAS", ErrorClass::Unavailable),
            ("UNBLOCKED", ErrorClass::Unavailable),
            ("WRONGTYPE", ErrorClass::Corrupt),
            ("CORRUPT", ErrorClass::Corrupt),
            ("CROSSSLOT", ErrorClass::Corrupt),
            ("CLUSTERDOWN", ErrorClass::Unavailable),
            ("READONLY", ErrorClass::Unavailable),
        ] {
            assert_eq!(error_class(&of_server(code, "words")), expected, "{code}");
        }
        let io = RedisError::from(std::io::Error::other("reset"));
        assert_eq!(error_class(&io), ErrorClass::Unavailable);
        // As the driver's decoder says of an answer behind whose middle nothing comes.
        let cut = redis::parse_redis_value(b"?x\r\n").unwrap_err();
        assert_eq!((cut.kind(), error_class(&cut), is_cut(&cut)), (ErrorKind::Parse, ErrorClass::Unavailable, true));
        assert!(!is_cut(&of_server("OOM", "words")));
    }

    #[test]
    fn cluster_redirections_are_transient_and_explained() {
        for (code, words, said) in [
            ("MOVED", "77 127.0.0.1:7001", "slot 77 is said to be at 127.0.0.1:7001, which doesn't answer"),
            ("ASK", "77 127.0.0.1:7001", "slot 77 is said to be at 127.0.0.1:7001"),
            ("TRYAGAIN", "Multiple keys request during rehashing of slot", "its slot is being moved to another node"),
            ("CLUSTERDOWN", "Hash slot not served", "no primary has its slot"),
            ("READONLY", "You can't write against a read only replica.", "the server is a replica now"),
            ("LOADING", "Redis is loading the dataset in memory", "loading"),
        ] {
            let error = of_server(code, words);
            assert!(is_temporary(&error), "{code}");
            let told = classify("redis+cluster://a:1", true, &error);
            assert!(matches!(told, StoreError::Unavailable { .. }) && told.to_string().contains(said), "{told}");
        }
        let told = classify("redis://a:1", false, &of_server("MOVED", "77 127.0.0.1:7001")).to_string();
        assert!(told.contains("set `store.url` to `redis+cluster://` with its nodes"), "{told}");
        assert!(
            !is_temporary(&of_server("OOM", "x")) && !is_temporary(&RedisError::from(std::io::Error::other("reset")))
        );
    }
}
