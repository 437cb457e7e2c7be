//! Where the servers are: `store.url`, read.

use redis::io::tcp::TcpSettings;
use redis::{ClientTlsConfig, ConnectionInfo, IntoConnectionInfo, TlsCertificates};

/// A server, or some nodes of a cluster; all of them have the same user and password.
pub struct Servers {
    /// One server, or the nodes that are asked first.
    pub nodes: Vec<ConnectionInfo>,
    /// They are a cluster.
    pub is_cluster: bool,
    /// Connections are encrypted.
    pub is_tls: bool,
    /// For messages: without credentials.
    pub shown: String,
}

/// Schemes with what they mean: of one server, a cluster, encrypted.
const SCHEMES: [(&str, bool, bool); 4] = [
    ("redis://", false, false),
    ("rediss://", false, true),
    ("redis+cluster://", true, false),
    ("rediss+cluster://", true, true),
];

/// What a URL must look like.
pub const FORM: &str =
    "`redis://host:port` or `redis+cluster://host:port,host:port` (`rediss…` for TLS), with `user:password@` before it";

impl Servers {
    /// Reads `redis[s]://[user:password@]host:port[/db]`, or `redis[s]+cluster://[user:password@]host:port,host:port`.
    /// The error says what is wrong with it, without its credentials.
    pub fn of(url: &str) -> Result<Self, String> {
        let scheme = SCHEMES.iter().find_map(|scheme| Some((scheme, url.strip_prefix(scheme.0)?)));
        let (&(scheme, is_cluster, is_tls), rest) = scheme.ok_or_else(|| format!("expected {FORM}"))?;
        let (credentials, places) = match rest.rfind('@') {
            Some(at) => rest.split_at(at + 1),
            None => ("", rest),
        };
        if places.contains(['?', '#']) {
            return Err(format!("expected nothing behind host, port and database, got `{places}`"));
        }
        if is_cluster && credentials.trim_end_matches('@').contains('@') {
            return Err("all nodes have the same user and password: expected them before the first host alone, and \
                        `%40` where they have an `@`"
                .to_owned());
        }
        let one = if is_tls { "rediss://" } else { "redis://" };
        let list: Vec<&str> = if is_cluster {
            let places = places.trim_end_matches('/');
            if places.contains('/') {
                return Err(format!("a cluster has no databases: expected nothing behind the hosts in `{places}`"));
            }
            places.split(',').collect()
        } else {
            vec![places]
        };
        let node = |place: &&str| {
            let info = format!("{one}{credentials}{place}").into_connection_info();
            let info = info.map_err(|error| format!("`{place}`: {error}; expected {FORM}"))?;
            Ok(info.set_tcp_settings(tcp()))
        };
        let nodes = list.iter().map(node).collect::<Result<Vec<_>, String>>()?;
        let shown: Vec<String> = nodes.iter().map(|node| node.addr().to_string()).collect();
        Ok(Self { shown: format!("{scheme}{}", shown.join(",")), nodes, is_cluster, is_tls })
    }
}

/// Of every connection: what is small is sent at once.
pub fn tcp() -> TcpSettings {
    TcpSettings::default().set_nodelay(true)
}

/// Certificates in PEM, beside those that the system trusts.
#[derive(Clone, Default)]
pub struct RedisTls {
    /// Who signs the servers' certificates; `None`: who the system trusts.
    pub authority: Option<Vec<u8>>,
    /// This client's certificate and its key.
    pub client: Option<(Vec<u8>, Vec<u8>)>,
}

impl std::fmt::Debug for RedisTls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (authority, client) = (self.authority.is_some(), self.client.is_some());
        f.debug_struct("RedisTls").field("authority", &authority).field("client", &client).finish()
    }
}

impl From<RedisTls> for TlsCertificates {
    fn from(tls: RedisTls) -> Self {
        let client_tls = tls.client.map(|(client_cert, client_key)| ClientTlsConfig { client_cert, client_key });
        Self { client_tls, root_cert: tls.authority }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_name_one_server_or_a_cluster() {
        let check = |url: &str, expected: (usize, bool, bool), shown: &str| {
            let servers = Servers::of(url).unwrap();
            assert_eq!((servers.nodes.len(), servers.is_cluster, servers.is_tls), expected, "{url}");
            assert_eq!(servers.shown, shown);
        };
        check("redis://h", (1, false, false), "redis://h:6379");
        check("redis://me:secret@127.0.0.1:7/2", (1, false, false), "redis://127.0.0.1:7");
        check("rediss://me:s@h:1", (1, false, true), "rediss://h:1");
        check("redis+cluster://a:1,b:2,[::1]:3/", (3, true, false), "redis+cluster://a:1,b:2,::1:3");
        check("rediss+cluster://u:p%40@a:1,b", (2, true, true), "rediss+cluster://a:1,b:6379");
    }

    #[test]
    fn a_user_and_password_count_for_every_node() {
        for node in Servers::of("redis+cluster://me:secret@a,b").unwrap().nodes {
            let settings = node.redis_settings();
            assert_eq!((settings.username(), settings.password()), (Some("me"), Some("secret")));
        }
    }

    #[test]
    fn what_is_wrong_is_said_without_credentials() {
        for (url, said) in [
            ("http://x", "expected `redis://host:port` or"),
            ("redis://u:secret@h:port", "`h:port`: "),
            ("redis+cluster://u:secret@a:1,b:x", "`b:x`: "),
            ("redis+cluster://a,", "``: "),
            ("redis+cluster://u:secret@a,u:secret@b", "expected them before the first host alone"),
            ("redis://h?protocol=resp3", "expected nothing behind host, port and database, got `h?protocol=resp3`"),
            ("rediss://h/#insecure", "got `h/#insecure`"),
            (
                "redis+cluster://u:secret@a:1/3",
                "a cluster has no databases: expected nothing behind the hosts in `a:1/3`",
            ),
        ] {
            let error = Servers::of(url).err().unwrap();
            assert!(error.contains(said) && !error.contains("secret"), "{url}: {error}");
        }
    }
}
