//! The addresses of the servers, parsed from `store.url`.

use redis::io::tcp::TcpSettings;
use redis::{
    Client, ClientTlsConfig, ConnectionInfo, IntoConnectionInfo, RedisConnectionInfo, RedisError, RedisResult,
    TlsCertificates,
};

/// A server, some nodes of a cluster, or Sentinels that know the primary; all servers have the same user and password.
pub struct Servers {
    /// One server, the nodes that are asked first, or the Sentinels (with database and login of their servers).
    pub nodes: Vec<ConnectionInfo>,
    /// Whether the nodes are a cluster.
    pub is_cluster: bool,
    /// The primary to ask for, if the nodes are Sentinels.
    pub primary: Option<SentinelPrimary>,
    /// Whether connections are encrypted.
    pub is_tls: bool,
    /// The URL for messages, without credentials.
    pub masked_url: String,
}

/// The primary that Sentinels are asked for.
pub struct SentinelPrimary {
    /// Its name at the Sentinels.
    pub name: String,
    /// User and password of the Sentinels themselves.
    pub login: RedisConnectionInfo,
}

/// The kind of servers that a URL names.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ServerKind {
    One,
    Cluster,
    Sentinel,
}

/// Schemes with their kind of servers, and whether connections are encrypted.
const SCHEMES: [(&str, ServerKind, bool); 6] = [
    ("redis://", ServerKind::One, false),
    ("rediss://", ServerKind::One, true),
    ("redis+cluster://", ServerKind::Cluster, false),
    ("rediss+cluster://", ServerKind::Cluster, true),
    ("redis+sentinel://", ServerKind::Sentinel, false),
    ("rediss+sentinel://", ServerKind::Sentinel, true),
];

/// Default port of Sentinels.
const SENTINEL_PORT: u16 = 26_379;

/// Start of the Sentinels' own login, behind the primary's name.
const SENTINEL_LOGIN: &str = "?sentinel_";

/// The accepted forms of a URL, for messages.
pub const URL_FORM: &str = "`redis://host:port`, `redis+cluster://host:port,host:port` or \
                        `redis+sentinel://host:port,host:port/primary` (`rediss…` for TLS), with `user:password@` before it";

/// Reason why a URL names no servers. No error holds a user or a password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ServersUrlError {
    /// The URL has none of the known schemes.
    #[error("expected {URL_FORM}")]
    Scheme,
    /// Something follows the database, or the hosts if there is none.
    #[error(
        "expected nothing behind host, port and database of `{places}`, but for the login of sentinels, which begins \
         with `?sentinel_username=` or `?sentinel_password=`"
    )]
    TextBehind {
        /// Hosts and database, without what follows: it may be a misspelled login.
        places: String,
    },
    /// A further server has a login of its own.
    #[error(
        "all servers have the same user and password: expected them before the first host alone, and `%40` where they \
         have an `@`"
    )]
    SeveralLogins,
    /// The URL of a cluster has a path.
    #[error("a cluster has no databases: expected nothing behind the hosts in `{places}`")]
    ClusterDatabase {
        /// Hosts with what follows.
        places: String,
    },
    /// The URL of Sentinels doesn't name the primary.
    #[error("expected what the sentinels call the primary behind the hosts, got `{places}`")]
    NoPrimary {
        /// Hosts with what follows.
        places: String,
    },
    /// The name of the primary has other characters.
    #[error("expected letters, digits, `.`, `-` and `_` as what the sentinels call the primary behind `{hosts}`")]
    PrimaryName {
        /// Hosts of the Sentinels.
        hosts: String,
    },
    /// The driver refuses the address of a server.
    #[error("`{place}`: {reason}; expected {URL_FORM}")]
    Address {
        /// Host and port as given.
        place: String,
        /// Text of the driver.
        reason: String,
    },
    /// The login of the Sentinels has another parameter.
    #[error(
        "expected `sentinel_username=…&sentinel_password=…` and nothing else behind `?`, and `%26` where they have an \
         `&`"
    )]
    SentinelParameter,
    /// The login of the Sentinels has no password.
    #[error("`sentinel_password` is missing behind `?`")]
    NoSentinelPassword,
    /// The login of the Sentinels has characters that must be escaped.
    #[error(
        "expected `%40`, `%2F`, `%3F`, `%23` and `%3A` where `sentinel_username` or `sentinel_password` have an `@`, \
         `/`, `?`, `#` or `:`, and `%25` for a `%`"
    )]
    UnescapedSentinelLogin,
    /// The driver refuses the login of the Sentinels; its text could contain the password.
    #[error("`sentinel_username` or `sentinel_password` can't be read")]
    UnreadableSentinelLogin,
}

impl Servers {
    /// Parses `redis[s]://[user:password@]host:port[/db]`, `redis[s]+cluster://[user:password@]host:port,host:port`, or
    /// `redis[s]+sentinel://[user:password@]host:port,host:port/primary[/db][?sentinel_username=…&sentinel_password=…]`.
    pub fn parse(url: &str) -> Result<Self, ServersUrlError> {
        let scheme = SCHEMES.iter().find_map(|scheme| Some((scheme, url.strip_prefix(scheme.0)?)));
        let (&(scheme, form, is_tls), rest) = scheme.ok_or(ServersUrlError::Scheme)?;
        let (rest, login) = match rest.split_once(SENTINEL_LOGIN).filter(|_| form == ServerKind::Sentinel) {
            Some((rest, login)) => (rest, sentinel_login(login)?),
            None => (rest, RedisConnectionInfo::default()),
        };
        let (credentials, places) = match rest.rfind('@') {
            Some(at) => rest.split_at(at + 1),
            None => ("", rest),
        };
        if let Some(end) = places.find(['?', '#', '&']) {
            return Err(ServersUrlError::TextBehind { places: places[..end].to_owned() });
        }
        if form != ServerKind::One && credentials.trim_end_matches('@').contains('@') {
            return Err(ServersUrlError::SeveralLogins);
        }
        let one = if is_tls { "rediss://" } else { "redis://" };
        let (list, primary, db) = match form {
            ServerKind::One => (vec![places.to_owned()], None, ""),
            ServerKind::Cluster => {
                let places = places.trim_end_matches('/');
                if places.contains('/') {
                    return Err(ServersUrlError::ClusterDatabase { places: places.to_owned() });
                }
                (places.split(',').map(str::to_owned).collect(), None, "")
            }
            ServerKind::Sentinel => {
                let (hosts, rest) = places.split_once('/').unwrap_or((places, ""));
                let (name, db) = rest.split_once('/').unwrap_or((rest, ""));
                if name.is_empty() {
                    return Err(ServersUrlError::NoPrimary { places: places.to_owned() });
                }
                if !name.chars().all(|c| c.is_ascii_alphanumeric() || ".-_".contains(c)) {
                    return Err(ServersUrlError::PrimaryName { hosts: hosts.to_owned() });
                }
                let primary = SentinelPrimary { name: name.to_owned(), login };
                (hosts.split(',').map(with_sentinel_port).collect(), Some(primary), db)
            }
        };
        let node = |place: &String| {
            let info = format!("{one}{credentials}{place}{}{db}", if db.is_empty() { "" } else { "/" });
            let info = info.into_connection_info();
            let refused =
                |error: RedisError| ServersUrlError::Address { place: place.clone(), reason: error.to_string() };
            Ok(info.map_err(refused)?.set_tcp_settings(tcp_settings()))
        };
        let nodes = list.iter().map(node).collect::<Result<Vec<_>, ServersUrlError>>()?;
        let shown: Vec<String> = nodes.iter().map(|node| node.addr().to_string()).collect();
        let behind = primary.as_ref().map(|primary| format!("/{}", primary.name)).unwrap_or_default();
        let shown = format!("{scheme}{}{behind}", shown.join(","));
        Ok(Self { masked_url: shown, nodes, is_cluster: form == ServerKind::Cluster, primary, is_tls })
    }
}

/// Parses what follows [`SENTINEL_LOGIN`], decoded like the part of a URL before its host.
fn sentinel_login(text: &str) -> Result<RedisConnectionInfo, ServersUrlError> {
    let (mut user, mut password) = ("", None);
    for (n, part) in text.split('&').enumerate() {
        let name = if n == 0 { Some(part) } else { part.strip_prefix(&SENTINEL_LOGIN[1..]) };
        match name.and_then(|name| name.split_once('=')) {
            Some(("username", given)) => user = given,
            Some(("password", given)) => password = Some(given),
            _ => return Err(ServersUrlError::SentinelParameter),
        }
    }
    let password = password.filter(|text| !text.is_empty()).ok_or(ServersUrlError::NoSentinelPassword)?;
    if [user, password].iter().any(|text| text.contains(['@', '/', '?', '#'])) || user.contains(':') {
        return Err(ServersUrlError::UnescapedSentinelLogin);
    }
    let info = format!("redis://{user}:{password}@sentinel").into_connection_info();
    let info = info.map_err(|_| ServersUrlError::UnreadableSentinelLogin)?;
    Ok(info.redis_settings().clone())
}

fn with_sentinel_port(place: &str) -> String {
    let has_port = place.rsplit(']').next().is_some_and(|rest| rest.contains(':'));
    if has_port || place.is_empty() { place.to_owned() } else { format!("{place}:{SENTINEL_PORT}") }
}

/// Returns a client for a server, with these certificates if there are some.
pub fn build_client(server: ConnectionInfo, tls: Option<&RedisTls>) -> RedisResult<Client> {
    match tls {
        Some(tls) => Client::build_with_tls(server, tls.clone().into()),
        None => Client::open(server),
    }
}

/// Returns the settings of every connection: small packets are sent at once.
pub fn tcp_settings() -> TcpSettings {
    TcpSettings::default().set_nodelay(true)
}

/// Certificates in PEM, beside those that the system trusts.
#[derive(Clone, Default)]
pub struct RedisTls {
    /// Certificate of the servers' authority; `None`: those that the system trusts.
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
    fn urls_name_one_server_a_cluster_or_sentinels() {
        let check = |url: &str, expected: (usize, bool, bool), shown: &str| {
            let servers = Servers::parse(url).unwrap();
            assert_eq!((servers.nodes.len(), servers.is_cluster, servers.is_tls), expected, "{url}");
            assert_eq!(servers.masked_url, shown);
            assert_eq!(servers.primary.is_some(), url.contains("sentinel"), "{url}");
        };
        check("redis+sentinel://a,b:7,[::1]/main", (3, false, false), "redis+sentinel://a:26379,b:7,::1:26379/main");
        check("rediss+sentinel://u:p@a/main/3", (1, false, true), "rediss+sentinel://a:26379/main");
        check("redis+sentinel://a/main/3?sentinel_password=p", (1, false, false), "redis+sentinel://a:26379/main");
        check("redis://h", (1, false, false), "redis://h:6379");
        check("redis://me:secret@127.0.0.1:7/2", (1, false, false), "redis://127.0.0.1:7");
        check("rediss://me:s@h:1", (1, false, true), "rediss://h:1");
        check("redis+cluster://a:1,b:2,[::1]:3/", (3, true, false), "redis+cluster://a:1,b:2,::1:3");
        check("rediss+cluster://u:p%40@a:1,b", (2, true, true), "rediss+cluster://a:1,b:6379");
    }

    #[test]
    fn a_user_and_password_count_for_every_node() {
        let nodes = |url: &str| Servers::parse(url).unwrap().nodes;
        let [cluster, sentinels] =
            ["redis+cluster://me:secret@a,b", "redis+sentinel://me:secret@a,b/main/3"].map(nodes);
        for node in cluster.iter().chain(&sentinels) {
            let settings = node.redis_settings();
            assert_eq!((settings.username(), settings.password()), (Some("me"), Some("secret")));
        }
        assert_eq!(sentinels[0].redis_settings().db(), 3);
    }

    #[test]
    fn sentinels_have_a_login_of_their_own() {
        for (url, user, password) in [
            ("redis+sentinel://me:p@a/main", None, None),
            ("redis+sentinel://me:p@a/main/3?sentinel_password=s%40%26%3A:+", None, Some("s@&::+")),
            ("redis+sentinel://a/main?sentinel_username=you%3A&sentinel_password=s", Some("you:"), Some("s")),
        ] {
            let servers = Servers::parse(url).unwrap();
            let login = servers.primary.unwrap().login;
            assert_eq!((login.username(), login.password()), (user, password), "{url}");
            assert_ne!(servers.nodes[0].redis_settings().password(), password.or(Some("none")), "{url}");
        }
    }

    #[test]
    fn wrong_urls_are_reported_without_credentials() {
        for (url, said) in [
            ("http://x", "expected `redis://host:port`, "),
            ("redis+sentinel://a,b", "expected what the sentinels call the primary behind the hosts, got `a,b`"),
            ("redis+sentinel://u:secret@a/main/x", "`a:26379`: "),
            ("redis+sentinel://,b/main", "``: "),
            ("redis+sentinel://a/main?sentinel_password=secret@x", "expected `%40`"),
            ("redis+sentinel://a/main?sentinel_password=secret&secret=1", "and nothing else behind `?`"),
            ("redis+sentinel://a/main?sentinel_password=secret&password=secret", "and nothing else behind `?`"),
            ("redis+sentinel://a/main?sentinel_username=secret", "`sentinel_password` is missing"),
            ("redis+sentinel://a/main?sentinel_username=x&sentinel_password=", "`sentinel_password` is missing"),
            ("redis+cluster://a?sentinel_password=secret", "expected nothing behind host"),
            ("redis://a:26379/main?sentinel_password=secret", "expected nothing behind host"),
            ("redis+sentinel://a/main?sentinelPassword=secret", "begins with `?sentinel_username=`"),
            ("redis+sentinel://a/main&sentinel_password=secret", "expected nothing behind host"),
            ("redis+sentinel://a/main;sentinel_password=secret", "expected letters, digits"),
            ("redis://u:secret@h:port", "`h:port`: "),
            ("redis+cluster://u:secret@a:1,b:x", "`b:x`: "),
            ("redis+cluster://a,", "``: "),
            ("redis+cluster://u:secret@a,u:secret@b", "expected them before the first host alone"),
            ("redis://h?protocol=resp3", "expected nothing behind host, port and database of `h`"),
            ("rediss://h/#insecure", "database of `h/`"),
            (
                "redis+cluster://u:secret@a:1/3",
                "a cluster has no databases: expected nothing behind the hosts in `a:1/3`",
            ),
        ] {
            let error = Servers::parse(url).err().unwrap().to_string();
            assert!(error.contains(said) && !error.contains("secret"), "{url}: {error}");
        }
    }
}
