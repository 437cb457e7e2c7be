//! CPU time, memory and written bytes of processes of this machine, from `/proc`.

use std::time::Duration;

/// Clock ticks per second in `/proc/PID/stat`; 100 on every Linux that Rust runs on.
const TICKS: u64 = 100;

/// Usage of a process so far, with the children that it has waited for.
#[derive(Debug, Clone, Copy)]
pub(super) struct ProcessUsage {
    /// CPU time of user and system.
    pub(super) cpu: Duration,
    /// Bytes written to a disk.
    pub(super) written: u64,
}

/// Returns the usage of a process; `None` if `/proc` doesn't have it.
pub(super) fn read_usage(pid: u32) -> Option<ProcessUsage> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let io = std::fs::read_to_string(format!("/proc/{pid}/io")).ok()?;
    let line = io.lines().find_map(|line| line.strip_prefix("write_bytes:"))?;
    Some(ProcessUsage { cpu: cpu(&stat)?, written: line.trim().parse().ok()? })
}

fn cpu(stat: &str) -> Option<Duration> {
    // The name in parentheses may have spaces, so fields are counted after it: user and system time, and those of its
    // children, are the 12th to 15th.
    let (_, rest) = stat.rsplit_once(')')?;
    let fields: Vec<u64> = rest.split_whitespace().skip(11).take(4).filter_map(|f| f.parse().ok()).collect();
    (fields.len() == 4).then(|| Duration::from_millis(fields.iter().sum::<u64>() * 1000 / TICKS))
}

/// Returns the largest resident memory of this process so far, in MiB; 0 without `/proc`.
pub(super) fn peak_mib() -> u64 {
    bytes("VmHWM:") / (1 << 20)
}

/// Returns the resident memory of this process in bytes; 0 without `/proc`.
pub(super) fn resident() -> u64 {
    bytes("VmRSS:")
}

fn bytes(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let kib = line.and_then(|rest| rest.split_whitespace().next()).and_then(|n| n.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_is_read_behind_a_name_with_spaces() {
        let stat = "7 (a name) 9) S 1 7 7 0 -1 4194560 500 0 0 0 150 50 20 5 20 0 9 0 100 1 1";
        assert_eq!(cpu(stat), Some(Duration::from_millis(2_250)));
        assert_eq!(cpu("7 (a) S 1"), None);
    }
}
