//! Processes that are measured: this one, and servers that listen on this machine.

use super::usage::{self, ProcessUsage};
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, ToSocketAddrs, UdpSocket};

/// A server that the measured process uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BenchServer {
    /// Part of its program's name, e.g. `redis`.
    pub program: &'static str,
    /// Host of the server.
    pub host: String,
    /// Port of the server.
    pub port: u16,
}

impl BenchServer {
    /// Parses the servers of a URL with a scheme, or of several with commas between; after the first, hosts are enough.
    pub fn parse_urls(program: &'static str, urls: &str, port: u16) -> Vec<Self> {
        let of_url = |url: &str| {
            let url = url.trim();
            let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
            let place = rest.split(['/', '?']).next().unwrap_or_default();
            let place = place.rsplit_once('@').map_or(place, |(_, place)| place);
            let (host, port) = match place.rsplit_once(':').filter(|(host, _)| !host.ends_with(':')) {
                // An IPv6 address in brackets has colons of its own.
                Some((host, given)) if !given.ends_with(']') => (host, given.parse().ok()?),
                _ => (place, port),
            };
            let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
            Some(Self { program, host, port })
        };
        urls.split(',').filter_map(of_url).collect()
    }

    fn pid(&self) -> Option<u32> {
        let places = (self.host.as_str(), self.port).to_socket_addrs().ok()?;
        let here: Vec<IpAddr> = places.map(|place| place.ip()).filter(|ip| is_local(*ip)).collect();
        let sockets: Vec<String> = listeners(self.port)
            .into_iter()
            .filter(|(ip, _)| ip.is_unspecified() && !here.is_empty() || here.contains(ip))
            .map(|(_, inode)| format!("socket:[{inode}]"))
            .collect();
        // A proxy of a container listens on the same port and does not do the work.
        pids().into_iter().find(|pid| is_program(*pid, self.program) && has_socket(*pid, &sockets))
    }
}

/// A process that is measured.
#[derive(Debug, Clone)]
pub(super) struct Process {
    /// Name of the process in a report.
    pub(super) name: String,
    /// `None` if it doesn't run on this machine, or is not readable.
    pid: Option<u32>,
}

impl Process {
    /// Returns this process and the servers.
    pub(super) fn list_processes(servers: &[BenchServer]) -> Vec<Self> {
        let own = Self { name: "trellis".to_owned(), pid: Some(std::process::id()) };
        let server = |s: &BenchServer| Self { name: format!("{} at {}:{}", s.program, s.host, s.port), pid: s.pid() };
        std::iter::once(own).chain(servers.iter().map(server)).collect()
    }

    /// Returns what the process has used so far.
    pub(super) fn usage(&self) -> Option<ProcessUsage> {
        self.pid.and_then(usage::read_usage)
    }
}

/// Whether an address belongs to this machine.
fn is_local(ip: IpAddr) -> bool {
    UdpSocket::bind((ip, 0)).is_ok()
}

/// Returns the listeners on a port: addresses, and numbers of sockets.
fn listeners(port: u16) -> Vec<(IpAddr, String)> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(|table| fs::read_to_string(table).unwrap_or_default());
    tables.iter().flat_map(|table| table.lines().filter_map(|line| listener(line, port))).collect()
}

fn listener(line: &str, port: u16) -> Option<(IpAddr, String)> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let (ip, own_port) = fields.get(1)?.split_once(':')?;
    let listens = *fields.get(3)? == "0A" && u16::from_str_radix(own_port, 16) == Ok(port);
    listens.then(|| Some((address(ip)?, (*fields.get(9)?).to_owned())))?
}

/// Parses an address of `/proc/net`: words of four bytes in this machine's byte order.
fn address(hex: &str) -> Option<IpAddr> {
    let word = |at: usize| u32::from_str_radix(hex.get(at * 8..at * 8 + 8)?, 16).ok().map(u32::to_ne_bytes);
    if hex.len() == 8 {
        return Some(Ipv4Addr::from(word(0)?).into());
    }
    let bytes: Vec<u8> = (0..4).map(word).collect::<Option<Vec<_>>>()?.concat();
    Some(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?).to_canonical())
}

fn pids() -> Vec<u32> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let mut pids: Vec<u32> = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    pids.sort_unstable();
    pids
}

fn is_program(pid: u32, program: &str) -> bool {
    fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.contains(program))
}

fn has_socket(pid: u32, sockets: &[String]) -> bool {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
    let mut targets = entries.flatten().filter_map(|entry| fs::read_link(entry.path()).ok());
    targets.any(|target| sockets.iter().any(|socket| target.as_os_str() == socket.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn servers_are_those_of_the_urls() {
        let found = |urls: &str| {
            let all = BenchServer::parse_urls("nats", urls, 4222).into_iter();
            all.map(|server| format!("{} {}", server.host, server.port)).collect::<Vec<_>>().join(", ")
        };
        for (urls, expected) in [
            ("nats://localhost", "localhost 4222"),
            ("nats://a:b@h:1, tls://i:2/", "h 1, i 2"),
            ("redis://:secret@127.0.0.1:7000/3", "127.0.0.1 7000"),
            ("redis+cluster://u:p@h:1,i:2,j", "h 1, i 2, j 4222"),
            ("nats://[::1]:5", "::1 5"),
            ("nats://[::1]", "::1 4222"),
            ("nats://h:port", ""),
        ] {
            assert_eq!(found(urls), expected, "{urls}");
        }
    }

    #[test]
    fn only_servers_on_this_machine_are_found() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let own = fs::read_to_string("/proc/self/comm").unwrap();
        let program: &'static str = own.trim().to_owned().leak();
        let at = |host: &str, program| BenchServer {
            program,
            host: host.to_owned(),
            port: listener.local_addr().unwrap().port(),
        };
        assert_eq!(at("127.0.0.1", program).pid(), Some(std::process::id()));
        assert_eq!(at("127.0.0.1", "another program").pid(), None);
        // An address that is kept for examples.
        assert_eq!(at("192.0.2.1", program).pid(), None);
    }

    #[test]
    fn addresses_are_read_as_the_system_writes_them() {
        let word = |bytes: [u8; 4]| format!("{:08X}", u32::from_ne_bytes(bytes));
        assert_eq!(address(&word([127, 0, 0, 1])), Some(IpAddr::V4(Ipv4Addr::LOCALHOST)));
        let mapped = [[0; 4], [0; 4], [0, 0, 255, 255], [10, 0, 0, 7]].map(word).concat();
        assert_eq!(address(&mapped), Some(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 7))));
        assert_eq!(address("12"), None);
    }
}
