//! Rules for public addresses, and a resolver that gives connections no others.

use futures::future::BoxFuture;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

/// Function that resolves a name to addresses.
pub type Lookup = Arc<dyn Fn(String) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> + Send + Sync>;

/// Returns the lookup of the operating system.
pub fn system_lookup() -> Lookup {
    Arc::new(|name| {
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            Ok(found.map(|address| address.ip()).collect())
        })
    })
}

/// The name has no address that may be called.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{host}` is at {address}, which is not a public address (this venue's `{setting}.allow_private` is false)")]
pub struct NotPublic {
    /// Host of the request.
    pub host: String,
    /// Address of the host.
    pub address: String,
    /// Section of the configuration that decides this.
    pub setting: String,
}

/// The resolver of the connections themselves. The address that was checked is the one that is connected to: no other
/// is returned, and a name is looked up once per connection.
pub(super) struct PublicResolver {
    pub(super) lookup: Lookup,
    pub(super) allow_private: bool,
    pub(super) setting: String,
}

impl Resolve for PublicResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let (host, allow_private, setting) = (name.as_str().to_owned(), self.allow_private, self.setting.clone());
        let found = (self.lookup)(host.clone());
        Box::pin(async move {
            let found = found.await?;
            let (legal, other): (Vec<_>, Vec<_>) =
                found.into_iter().partition(|address| allow_private || is_public(*address));
            if let (true, Some(address)) = (legal.is_empty(), other.first()) {
                return Err(NotPublic { host, address: address.to_string(), setting }.into());
            }
            let addresses = legal.into_iter().map(|address| SocketAddr::new(address, 0));
            Ok(Box::new(addresses) as Addrs)
        })
    }
}

/// Whether an address belongs to the public internet: not this machine, not a private or shared network, not multicast
/// or reserved, and no such address embedded in another one.
pub fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

/// Suffixes of names of no public host: RFC 6761, 6762, 8375 and 9476, and those that private networks use.
const INTERNAL_ENDINGS: [&str; 9] =
    ["localhost", "localdomain", "local", "internal", "intranet", "lan", "home.arpa", "alt", "onion"];

/// Whether a name is never public: it has one part, or a suffix for private networks.
pub(super) fn is_internal_name(name: &str) -> bool {
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    let is_below = |end: &str| name.strip_suffix(end).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
    !name.contains('.') || INTERNAL_ENDINGS.iter().any(|end| is_below(end))
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let private = matches!((a, b), (0 | 10 | 127, _) | (100, 64..=127) | (169, 254) | (172, 16..=31) | (192, 168));
    // Protocol assignments, documentation, the old 6to4 relays, benchmarks.
    let special =
        matches!((a, b, c), (192, 0, 0 | 2) | (192, 88, 99) | (198, 51, 100) | (203, 0, 113) | (198, 18..=19, _));
    // Addresses from 224 on are multicast or reserved.
    !private && !special && a < 224
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let parts = address.segments();
    let embedded = |high: u16, low: u16| {
        let [a, b] = high.to_be_bytes();
        let [c, d] = low.to_be_bytes();
        is_public_v4(Ipv4Addr::new(a, b, c, d))
    };
    match parts {
        // An IPv4 address mapped, behind NAT64, or in 6to4.
        [0, 0, 0, 0, 0, 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] | [0x2002, high, low, ..] => {
            embedded(high, low)
        }
        // Teredo and other protocol assignments, documentation.
        [0x2001, 0..=0x1ff | 0xdb8, ..] => false,
        [0x3fff, second, ..] if second < 0x1000 => false,
        // Global unicast; all other addresses are local, multicast or reserved.
        [first, ..] => first & 0xe000 == 0x2000,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_private_networks_are_told_from_public_ones() {
        for (name, internal) in [
            ("api.example.com", false),
            ("notlocal.org", false),
            ("mylocal", true),
            ("metadata", true),
            ("localhost", true),
            ("a.LOCALHOST.", true),
            ("metadata.google.internal", true),
            ("redis.default.svc.cluster.local", true),
            ("router.home.arpa", true),
            ("home.arpa.example.com", false),
        ] {
            assert_eq!(is_internal_name(name), internal, "{name}");
        }
    }

    #[test]
    fn private_addresses_are_told_from_public_ones() {
        for (address, public) in [
            ("93.184.216.34", true),
            ("1.1.1.1", true),
            ("172.15.0.1", true),
            ("172.32.0.1", true),
            ("100.63.0.1", true),
            ("2606:4700::1111", true),
            ("64:ff9b::101:101", true),
            ("2002:101:101::1", true),
            ("0.0.0.0", false),
            ("10.1.2.3", false),
            ("100.64.0.1", false),
            ("127.0.0.1", false),
            ("127.8.8.8", false),
            ("169.254.169.254", false),
            ("172.16.0.1", false),
            ("172.31.255.255", false),
            ("192.0.2.1", false),
            ("192.168.1.1", false),
            ("198.18.0.1", false),
            ("203.0.113.9", false),
            ("224.0.0.1", false),
            ("255.255.255.255", false),
            ("::", false),
            ("::1", false),
            ("::ffff:127.0.0.1", false),
            ("::ffff:10.0.0.1", false),
            ("::127.0.0.1", false),
            ("64:ff9b::a00:1", false),
            ("2002:7f00:1::", false),
            ("2001::1", false),
            ("2001:db8::1", false),
            ("3fff:1::1", false),
            ("fc00::1", false),
            ("fd12::1", false),
            ("fe80::1", false),
            ("fec0::1", false),
            ("ff02::1", false),
        ] {
            assert_eq!(is_public(address.parse().unwrap()), public, "{address}");
        }
    }
}
