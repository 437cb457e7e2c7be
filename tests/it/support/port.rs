//! Ports for servers that come back on their port after they were killed, and ports where nobody listens.

use std::collections::HashSet;
use std::net::TcpListener;
use std::sync::{LazyLock, Mutex};

/// Below what the system gives to whoever asks for any port, so that nobody gets it meanwhile.
const FIRST: u16 = 10_000;
const COUNT: u128 = 20_000;

/// A free port that nobody else in this process has had.
pub fn lasting() -> u16 {
    static TAKEN: LazyLock<Mutex<HashSet<u16>>> = LazyLock::new(Mutex::default);
    for _ in 0..10_000 {
        let chance = u16::try_from(uuid::Uuid::new_v4().as_u128() % COUNT).unwrap();
        let port = FIRST + chance;
        if TAKEN.lock().unwrap().insert(port) && TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
    panic!("no free port");
}
