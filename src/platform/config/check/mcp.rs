//! `mcp.*`: servers whose tools the agents of all owners may use.

use super::kinds::with_dot;
use crate::config::layers::{ConfigLayers, LayerEntry, MCP_SERVERS, SettingOrigin};
use crate::config::mask::error_value;
use crate::config::settings::{McpConfig, VenueMcpServer};
use crate::config::url::parse_callable;
use crate::domain::chat::HeaderText;
use crate::domain::headers::is_name;
use crate::domain::ids::secret::SecretName;
use crate::domain::limits::MCP_SERVERS as MOST;
use crate::domain::mcp::name::ServerName;
use crate::domain::mcp::oauth::settings::{ClientKeys, LoginGrant, LoginSettings, LoginSettingsError};
use crate::domain::mcp::revision::RevisionChoice;
use crate::domain::mcp::server::McpServer;
use std::collections::BTreeMap;

/// Values of one server by key.
type Leaves<'l> = BTreeMap<&'l str, &'l LayerEntry>;

pub(super) fn read(l: &mut ConfigLayers) -> McpConfig {
    let named = l.free_entries(&MCP_SERVERS);
    let (mut servers, mut errors) = (Vec::new(), Vec::new());
    for (name, leaves) in &named {
        let mut wrong = |leaf: &str, problem: String| {
            let entry = leaves.get(leaf).or_else(|| leaves.values().next());
            let origin = entry.map_or(SettingOrigin::Default, |entry| entry.origin.clone());
            errors.push((format!("{}{name}{leaf}", MCP_SERVERS.prefix, leaf = with_dot(leaf)), origin, problem));
        };
        match ServerName::new(name) {
            Err(problem) => wrong("", problem.to_string()),
            Ok(_) if servers.len() == MOST => wrong("", format!("expected at most {MOST} servers")),
            Ok(name) => servers.extend(server(name, leaves, &mut wrong)),
        }
    }
    for (key, origin, problem) in errors {
        l.add_error(&key, origin, problem);
    }
    McpConfig { servers, commands: l.entry("mcp.commands").value.as_bool().unwrap_or_default() }
}

/// Reads one server; `None` if a value of it is illegal.
fn server(name: ServerName, leaves: &Leaves<'_>, wrong: &mut impl FnMut(&str, String)) -> Option<VenueMcpServer> {
    let given = |leaf: &str| leaves.get(leaf).and_then(|entry| entry.value.as_str()).filter(|text| !text.is_empty());
    let command: Vec<String> =
        given("command").into_iter().flat_map(str::split_whitespace).map(str::to_owned).collect();
    let mut found = match (given("url"), command.is_empty()) {
        (Some(url), true) => McpServer::at_url(name, url),
        (None, false) => McpServer::of_program(name, &command),
        (None, true) => {
            wrong("url", "expected the URL of the server, or a `command`".to_owned());
            return None;
        }
        (Some(_), false) => {
            wrong("command", "expected one of `url` and `command`, got both".to_owned());
            return None;
        }
    };
    read_tools(&mut found, leaves, wrong)?;
    let read = UnplacedServer { found, command, env: list(leaves, "env") };
    if read.command.is_empty() { read.with_url(leaves, wrong) } else { read.with_program(leaves, wrong) }
}

/// Returns the parts of a text with commas.
fn list(leaves: &Leaves<'_>, leaf: &str) -> Vec<String> {
    let text = leaves.get(leaf).and_then(|entry| entry.value.as_str()).unwrap_or_default();
    text.split(',').map(str::trim).filter(|part| !part.is_empty()).map(str::to_owned).collect()
}

/// Reads what is about the tools of a server; `None` if a value of it is illegal.
fn read_tools(found: &mut McpServer, leaves: &Leaves<'_>, wrong: &mut impl FnMut(&str, String)) -> Option<()> {
    let given = |leaf: &str| leaves.get(leaf).and_then(|entry| entry.value.as_str()).filter(|text| !text.is_empty());
    found.tools = given("tools").map(|_| list(leaves, "tools"));
    (found.repeatable, found.once) = (list(leaves, "repeatable"), list(leaves, "once"));
    let word = given("revision").unwrap_or("auto");
    let Some(revision) = RevisionChoice::from_word(word) else {
        wrong("revision", format!("expected {}, got `{word}`", RevisionChoice::WORDS));
        return None;
    };
    found.revision = revision;
    if let Some(text) = given("timeout") {
        let time = humantime::parse_duration(text).ok().filter(|time| time.subsec_nanos() == 0);
        let Some(time) = time else {
            wrong("timeout", format!("expected whole seconds such as `60s`, got `{text}`"));
            return None;
        };
        found.timeout = Some(time.as_secs());
    }
    if let Err(problem) = found.check_tools() {
        wrong("", problem.to_string());
        return None;
    }
    Some(())
}

/// Keys that a program doesn't have.
const OF_URL: [&str; 10] = [
    "key_env",
    "secret",
    "header",
    "prefix",
    "login",
    "issuer",
    "client_id",
    "client_secret_env",
    "private_key_env",
    "scopes",
];

/// Reads how the venue logs in at a server with a URL; returns the variables with its client's keys. `None` if a value is
/// illegal.
fn read_login(
    found: &mut McpServer,
    has_key: bool,
    leaves: &Leaves<'_>,
    wrong: &mut impl FnMut(&str, String),
) -> Option<(Option<String>, Option<String>)> {
    let given = |leaf: &str| leaves.get(leaf).and_then(|entry| entry.value.as_str()).filter(|text| !text.is_empty());
    let owned = |leaf: &str| given(leaf).map(str::to_owned);
    let grant = match given("login") {
        None | Some("person") => LoginGrant::Login,
        Some("venue") => LoginGrant::ClientCredentials,
        Some(word) => {
            wrong("login", format!("expected `person` or `venue`, got `{word}`"));
            return None;
        }
    };
    let scopes = given("scopes").map(|_| list(leaves, "scopes"));
    let auth = LoginSettings {
        grant,
        issuer: owned("issuer"),
        client_id: owned("client_id"),
        scopes,
        ..LoginSettings::default()
    };
    let (secret, private) = (owned("client_secret_env"), owned("private_key_env"));
    if auth == LoginSettings::default() && secret.is_none() && private.is_none() {
        return Some((None, None));
    }
    let keys = ClientKeys { has_secret: secret.is_some(), has_private: private.is_some() };
    let checked = if has_key { Err(LoginSettingsError::Header) } else { found.check_login_header() };
    if let Err(problem) = checked.and_then(|()| auth.check_with(keys)) {
        wrong("", venue_words(&problem.to_string()));
        return None;
    }
    found.auth = Some(Box::new(auth));
    Some((secret, private))
}

/// Returns the text of an error with the keys of a venue in place of those of an agent.
fn venue_words(text: &str) -> String {
    let words = [
        ("`auth.clientId`", "`client_id`"),
        ("`auth.clientSecret`", "`client_secret_env`"),
        ("`auth.privateKey`", "`private_key_env`"),
        ("`auth.grant`: `client_credentials`", "`login = \"venue\"`"),
        ("`auth`: expected either it", "expected either a login"),
        ("`grant = \"client_credentials\"`", "`login = \"venue\"`"),
        ("`auth.", "`"),
        ("`clientId`", "`client_id`"),
        ("`clientSecret`", "`client_secret_env`"),
        ("`privateKey`", "`private_key_env`"),
    ];
    words.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
}

/// A server whose place is still to be read.
struct UnplacedServer {
    found: McpServer,
    command: Vec<String>,
    env: Vec<String>,
}

impl UnplacedServer {
    /// Reads what belongs to a URL.
    fn with_url(self, leaves: &Leaves<'_>, wrong: &mut impl FnMut(&str, String)) -> Option<VenueMcpServer> {
        let given =
            |leaf: &str| leaves.get(leaf).and_then(|entry| entry.value.as_str()).filter(|text| !text.is_empty());
        let Self { mut found, command, env } = self;
        if !env.is_empty() {
            wrong("env", "belongs to `command`; a server with a URL has `key_env`".to_owned());
            return None;
        }
        if let Err(problem) = parse_callable(&found.url) {
            let shown = error_value("url", &found.url);
            wrong("url", format!("expected a URL with `http://` or `https://`, got `{shown}`: {problem}"));
            return None;
        }
        let header = given("header").unwrap_or("Authorization").to_owned();
        if !is_name(&header) {
            wrong("header", format!("expected a header's name such as `Authorization`, got `{header}`"));
            return None;
        }
        let default = if header.eq_ignore_ascii_case("authorization") { "Bearer " } else { "" };
        let prefix = leaves.get("prefix").and_then(|entry| entry.value.as_str()).unwrap_or(default).to_owned();
        let key_env = given("key_env").map(str::to_owned);
        let of_key = ["header", "prefix"].into_iter().find(|leaf| given(leaf).is_some());
        if let Some(leaf) = of_key.filter(|_| key_env.is_none() && given("secret").is_none()) {
            wrong(leaf, "is about a key, and none is named: expected `key_env` or `secret`, too".to_owned());
            return None;
        }
        if let Some(path) = given("secret") {
            if key_env.is_some() {
                wrong("secret", "expected one of `key_env` and `secret`, got both".to_owned());
                return None;
            }
            let Ok(name) = SecretName::from_path(path) else {
                wrong("secret", "expected the path of a secret that each owner has, such as `s/GITHUB`".to_owned());
                return None;
            };
            found.headers.insert(header.clone(), HeaderText::Secret { name, prefix: prefix.clone() });
        }
        let (client_secret_env, private_key_env) = read_login(&mut found, key_env.is_some(), leaves, wrong)?;
        if let Err(problem) = found.check_headers() {
            wrong("", problem.to_string());
            return None;
        }
        let allow_private = leaves.get("allow_private").and_then(|entry| entry.value.as_bool()).unwrap_or_default();
        Some(VenueMcpServer {
            server: found,
            command,
            env,
            key_env,
            header,
            prefix,
            client_secret_env,
            private_key_env,
            allow_private,
        })
    }

    /// Refuses what belongs to a URL.
    fn with_program(self, leaves: &Leaves<'_>, wrong: &mut impl FnMut(&str, String)) -> Option<VenueMcpServer> {
        let is_given =
            |leaf: &&&str| leaves.get(**leaf).is_some_and(|entry| entry.value.as_str().is_some_and(|t| !t.is_empty()));
        if let Some(other) = OF_URL.iter().find(is_given) {
            wrong(other, "belongs to `url`; a program gets what it needs by `env`".to_owned());
            return None;
        }
        let Self { found: server, command, env } = self;
        let (header, prefix) = (String::new(), String::new());
        Some(VenueMcpServer {
            server,
            command,
            env,
            key_env: None,
            header,
            prefix,
            client_secret_env: None,
            private_key_env: None,
            allow_private: false,
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::config::{Config, McpConfig};
    use crate::domain::mcp::revision::RevisionChoice;
    use serde_json::json;
    use std::collections::BTreeMap;

    /// Settings `mcp.<key>`, or the first error.
    fn load(flags: &[(&str, &str)]) -> Result<McpConfig, String> {
        let flag = |(key, value): &(&str, &str)| (format!("mcp.{key}"), (*value).to_owned());
        let flags: Vec<(String, String)> = flags.iter().map(flag).collect();
        let loaded = Config::load(None, &BTreeMap::new(), &flags);
        loaded.map(|loaded| loaded.config.mcp).map_err(|errors| errors.0[0].to_string())
    }

    #[test]
    fn servers_are_read_with_their_defaults() {
        let config = load(&[
            ("servers.hub.url", "https://hub.example.com/mcp"),
            ("servers.hub.key_env", "HUB"),
            ("servers.own.url", "http://127.0.0.1:9/"),
            ("servers.own.secret", "s/OWN"),
            ("servers.own.header", "X-Key"),
            ("servers.own.tools", "get_*, find"),
            ("servers.own.once", "find"),
            ("servers.own.timeout", "90s"),
            ("servers.own.revision", "2025-11-25"),
            ("servers.own.allow_private", "true"),
        ])
        .unwrap();
        let [hub, own] = &config.servers[..] else { panic!("{config:?}") };
        assert_eq!(
            (hub.key_env.as_deref(), hub.header.as_str(), hub.prefix.as_str()),
            (Some("HUB"), "Authorization", "Bearer ")
        );
        assert_eq!((hub.server.name.as_str(), hub.server.tools.clone(), hub.allow_private), ("hub", None, false));
        let headers = json!({"X-Key": {"$secret": "s/OWN"}});
        assert_eq!((json!(own.server.headers), own.server.revision), (headers, RevisionChoice::Handshake));
        assert_eq!(own.server.tools.as_deref(), Some(&["get_*".to_owned(), "find".to_owned()][..]));
        assert_eq!((own.server.timeout, own.allow_private), (Some(90), true));
        assert!(!config.commands && hub.command.is_empty());
    }

    #[test]
    fn a_program_has_a_command_and_an_environment() {
        let config = load(&[
            ("servers.files.command", "npx -y server  /srv"),
            ("servers.files.env", "TOKEN, LANG"),
            ("servers.files.once", "*"),
            ("commands", "true"),
        ])
        .unwrap();
        let [files] = &config.servers[..] else { panic!("{config:?}") };
        assert_eq!((files.command.join("|"), files.env.join("|")), ("npx|-y|server|/srv".into(), "TOKEN|LANG".into()));
        assert_eq!((files.server.url.as_str(), config.commands), ("stdio:npx -y server /srv", true));
    }

    #[test]
    fn illegal_settings_are_named_with_their_place() {
        let url = ("servers.a.url", "https://h/");
        for (flags, part) in [
            (vec![("servers.a.url", "h")], "`mcp.servers.a.url` (flag): expected a URL"),
            (vec![("servers.a__b.url", "https://h/")], "`mcp.servers.a__b` (flag): expected 1 to 32"),
            (vec![("servers.a.tools", "x")], "`mcp.servers.a.url` (flag): expected the URL"),
            (vec![url, ("servers.a.tools", ", ,")], "`tools`: expected at least one name"),
            (vec![url, ("servers.a.header", "X-Key")], "`mcp.servers.a.header` (flag): is about a key"),
            (vec![url, ("servers.a.prefix", "Token ")], "`mcp.servers.a.prefix` (flag): is about a key"),
            (vec![url, ("servers.a.timeout", "soon")], "`mcp.servers.a.timeout` (flag): expected whole seconds"),
            (vec![url, ("servers.a.timeout", "1h")], "`timeout`: expected 1 to 300 seconds"),
            (vec![url, ("servers.a.revision", "1")], "`mcp.servers.a.revision` (flag): expected `auto`"),
            (vec![url, ("servers.a.secret", "K")], "`mcp.servers.a.secret` (flag): expected the path of a secret"),
            (vec![url, ("servers.a.secret", "s/K"), ("servers.a.key_env", "K")], "expected one of `key_env`"),
            (vec![url, ("servers.a.header", "a b")], "`mcp.servers.a.header` (flag): expected a header's name"),
            (vec![url, ("servers.a.hedaer", "x")], "hedaer"),
            (vec![url, ("servers.a.login", "nobody")], "`mcp.servers.a.login` (flag): expected `person` or `venue`"),
            (vec![url, ("servers.a.client_id", "c")], "`client_id`: expected `issuer` beside it"),
            (vec![url, ("servers.a.client_secret_env", "K")], "`client_secret_env`: expected `client_id` beside it"),
            (
                vec![url, ("servers.a.login", "venue")],
                "`login = \"venue\"` expects `client_id`, and `client_secret_env`",
            ),
            (vec![url, ("servers.a.scopes", "a"), ("servers.a.key_env", "K")], "expected either a login or the header"),
            (
                vec![url, ("servers.a.scopes", "a"), ("servers.a.secret", "s/K")],
                "expected either a login or the header",
            ),
            (vec![url, ("servers.a.command", "x")], "`mcp.servers.a.command` (flag): expected one of"),
            (vec![url, ("servers.a.env", "X")], "`mcp.servers.a.env` (flag): belongs to `command`"),
            (vec![("servers.a.command", "x"), ("servers.a.secret", "s/K")], "`mcp.servers.a.secret` (flag): belongs"),
        ] {
            let error = load(&flags).unwrap_err();
            assert!(error.contains(part), "{flags:?}: {error}");
        }
    }
}
