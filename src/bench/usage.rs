//! CPU time, memory and written bytes of this process, from `/proc`.

use std::time::Duration;

/// Clock ticks per second in `/proc/self/stat`; 100 on every Linux that Rust runs on.
const TICKS: u64 = 100;

/// CPU time that this process has used; zero where `/proc` isn't.
pub(super) fn cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name in parentheses may hold spaces: count from behind it. User and system time are
    // the 12th and 13th field from there.
    let rest = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let fields: Vec<u64> = rest.split_whitespace().skip(11).take(2).filter_map(|f| f.parse().ok()).collect();
    Duration::from_millis(fields.iter().sum::<u64>() * 1000 / TICKS)
}

/// Bytes that this process has had written to a disk; 0 where `/proc` isn't.
pub(super) fn written() -> u64 {
    let io = std::fs::read_to_string("/proc/self/io").unwrap_or_default();
    let line = io.lines().find_map(|line| line.strip_prefix("write_bytes:"));
    line.and_then(|bytes| bytes.trim().parse().ok()).unwrap_or(0)
}

/// Most memory that this process ever had resident, in MiB; 0 where `/proc` isn't.
pub(super) fn peak_mib() -> u64 {
    bytes("VmHWM:") / (1 << 20)
}

/// Memory that this process has resident, in bytes; 0 where `/proc` isn't.
pub(super) fn resident() -> u64 {
    bytes("VmRSS:")
}

fn bytes(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let kib = line.and_then(|rest| rest.split_whitespace().next()).and_then(|n| n.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}
