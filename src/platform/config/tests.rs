//! Tables: what is set, and the values or errors that come out.

use super::{
    AuthMode, BusUrl, Config, ConfigErrors, DEFAULTS, DidKeys, LoadedConfig, LogFormat, SettingOrigin, StoreUrl,
    mask_url,
};
use crate::domain::authority::envelope::AccessMode;
use crate::domain::resource::remote::RemoteOperation;
use crate::domain::{ids::did::DidKey, token::TokenSubject};
use std::{collections::BTreeMap, io::Write, path::PathBuf, time::Duration};

fn load(file: &str, env: &[(&str, &str)], flags: &[(&str, &str)]) -> Result<LoadedConfig, ConfigErrors> {
    let pair = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
    let env: BTreeMap<String, String> = env.iter().map(pair).collect();
    let flags: Vec<(String, String)> = flags.iter().map(pair).collect();
    if file.is_empty() {
        return Config::load(None, &env, &flags);
    }
    let mut temp = tempfile::Builder::new().prefix("trellis").suffix(".toml").tempfile().unwrap();
    temp.write_all(file.as_bytes()).unwrap();
    Config::load(Some(temp.path()), &env, &flags)
}

/// Loads and expects exactly these lines of errors; `FILE` stands for the file's path.
fn check_errors(file: &str, env: &[(&str, &str)], flags: &[(&str, &str)], expected: &[&str]) {
    let errors = load(file, env, flags).map(|loaded| loaded.config).unwrap_err();
    let lines: Vec<String> = errors
        .0
        .iter()
        .map(|error| match &error.origin {
            SettingOrigin::File(path) => error.to_string().replace(path.as_str(), "FILE"),
            _ => error.to_string(),
        })
        .collect();
    assert_eq!(lines, expected);
}

#[test]
fn the_defaults_are_valid_and_every_key_has_a_comment() {
    let config = load("", &[], &[]).unwrap().config;
    assert_eq!(config.store.url, StoreUrl::Embedded(PathBuf::from("./trellis-data")));
    assert_eq!(config.bus.url, BusUrl::Embedded);
    assert_eq!(config.bus.out_max_age, Duration::from_hours(7 * 24));
    assert_eq!(config.http.listen.to_string(), "127.0.0.1:8420");
    assert_eq!((config.worker.slots, config.worker.lease), (16, Duration::from_secs(30)));
    assert_eq!(config.models.scripted, None);
    assert_eq!((config.http_client.allow_hosts.len(), config.http_client.allow_private), (0, false));
    let mut previous = "";
    for line in DEFAULTS.lines() {
        if line.contains(" = ") && !line.starts_with('#') {
            assert!(previous.starts_with('#'), "no comment above `{line}`");
        }
        previous = line;
    }
}

#[test]
fn later_layers_win_key_by_key_and_origins_are_kept() {
    let loaded = load(
        "[worker]\nslots = 2\nlease = \"10s\"\ncrash_limit = 7\n[log]\nformat = \"json\"\n",
        &[("TRELLIS__WORKER__SLOTS", "3"), ("TRELLIS__WORKER__LEASE", "20s"), ("PATH", "/bin"), ("TRELLIS_URL", "x")],
        &[("worker.slots", "4"), ("catalog.test", "true")],
    )
    .unwrap();
    let worker = &loaded.config.worker;
    assert_eq!((worker.slots, worker.lease, worker.crash_limit), (4, Duration::from_secs(20), 7));
    assert_eq!(loaded.config.log.format, LogFormat::Json);
    assert!(loaded.config.catalog.test);
    let origin = |key: &str| loaded.entries.iter().find(|entry| entry.key == key).unwrap().origin.to_string();
    assert_eq!(origin("worker.slots"), "flag");
    assert_eq!(origin("worker.lease"), "env TRELLIS__WORKER__LEASE");
    assert!(origin("worker.crash_limit").starts_with("file /"));
    assert_eq!(origin("worker.sweep"), "default");
}

#[test]
fn all_errors_are_reported_with_key_origin_and_expectation() {
    check_errors(
        "[worker]\nslots = \"many\"\nslotz = 3\n[retry]\nfirst = \"2 parsecs\"\n",
        &[("TRELLIS__WORKER__CRASH_LIMIT", "0"), ("TRELLIS__STOR__URL", "x")],
        &[("log.format", "yaml"), ("models.timeout", "0s")],
        &[
            "`worker.slots` (file FILE): expected a whole number, got `many` (line 2, column 1)",
            "`worker.slotz` (file FILE): is not a setting; did you mean `worker.slots`? (line 3, column 1)",
            "`stor.url` (env TRELLIS__STOR__URL): is not a setting; did you mean `store.url`?",
            "`worker.crash_limit` (env TRELLIS__WORKER__CRASH_LIMIT): expected 1 to 1000, got `0`",
            "`models.timeout` (flag): expected a duration from 10ms to 1h such as `30s` or `5m`, got `0s`",
            "`log.format` (flag): expected `text` or `json`, got `yaml`",
            "`retry.first` (file FILE): expected a duration from 1ms to 1h such as `30s` or `5m`, got `2 parsecs` (line 5, column 1)",
        ],
    );
}

#[test]
fn single_wrong_values_say_what_was_expected() {
    for (key, value, expected) in [
        (
            "store.url",
            "redis:",
            "expected `embedded:DIR`, `redis://host:port`, `redis+cluster://host:port,host:port` or `redis+sentinel://host:port,host:port/primary` (`rediss` for TLS), got `redis:`",
        ),
        (
            "store.url",
            "embedded:",
            "expected `embedded:DIR`, `redis://host:port`, `redis+cluster://host:port,host:port` or `redis+sentinel://host:port,host:port/primary` (`rediss` for TLS), got `embedded:`",
        ),
        (
            "store.url",
            "redis+cluster:///",
            "expected `embedded:DIR`, `redis://host:port`, `redis+cluster://host:port,host:port` or `redis+sentinel://host:port,host:port/primary` (`rediss` for TLS), got `redis+cluster:///`",
        ),
        ("store.tls_cert", "c.pem", "a client shows a certificate and has its key: set `store.tls_key` too"),
        ("store.tls_key", "k.pem", "a client shows a certificate and has its key: set `store.tls_cert` too"),
        ("store.wait_replicas", "6", "expected 0 to 5, got `6`"),
        ("bus.url", "http://h", "expected `embedded` or `nats://host:port`, got `http://h`"),
        ("bus.tls_cert", "c.pem", "a client shows a certificate and has its key: set `bus.tls_key` too"),
        ("bus.replicas", "two", "expected a whole number, got `two`"),
        ("store.shards", "100", "expected a power of two from 1 to 4096, got `100`"),
        ("http.body_limit", "99999999", "expected 1024 to 983040, got `99999999`"),
        ("http.listen", "8420", "expected an address such as `127.0.0.1:8420`, got `8420`"),
        ("catalog.test", "maybe", "expected `true` or `false`, got `maybe`"),
        ("auth.mode", "jwt2", "expected `none` or `jwt`, got `jwt2`"),
        ("worker", "3", "expected a section with keys, got `3`"),
        ("models.timeout", "61m", "expected a duration from 10ms to 1h such as `30s` or `5m`, got `61m`"),
        ("models.endpoints.x.base_url", "ftp://x", "expected a URL with `http://` or `https://`, got `ftp://x`"),
        ("models.endpoints.x.url", "http://x", "is not a setting; did you mean `models.endpoints.x.base_url`?"),
        ("log.level", "a=b=c", "expected a level (`info`) or filter (`info,trellis::worker=debug`), got `a=b=c`"),
        ("log.level", "loud", "expected a level (`info`) or filter (`info,trellis::worker=debug`), got `loud`"),
        (
            "log.level",
            "info,hyper",
            "expected a level (`info`) or filter (`info,trellis::worker=debug`), got `info,hyper`",
        ),
        ("log.level", "", "expected a level (`info`) or filter (`info,trellis::worker=debug`), got ``"),
        (
            "worker.name",
            "a\nERROR forged",
            "expected up to 128 characters without line breaks or other control characters, got `a\\nERROR forged`",
        ),
        (
            "models.scripted",
            "/nowhere/rules.toml",
            "expected a file or a folder of rules, and `/nowhere/rules.toml` is neither",
        ),
        ("models.calls_log", "/nowhere/calls.jsonl", "expected a file in a folder that exists, and `/nowhere` is none"),
    ] {
        check_errors("", &[], &[(key, value)], &[&format!("`{key}` (flag): {expected}")]);
    }
}

#[test]
fn a_value_of_another_type_shows_no_credential() {
    check_errors(
        "[store]\nurl = [\"redis://u:hunter2@h\"]\n",
        &[],
        &[],
        &["`store.url` (file FILE): expected text, got a list (line 2, column 1)"],
    );
}

#[test]
fn bad_combinations_are_refused_at_the_key_that_was_set() {
    check_errors(
        "",
        &[("TRELLIS__STORE__URL", "redis://u:p@h:1")],
        &[],
        &[
            "`store.url` (env TRELLIS__STORE__URL): the embedded bus lives in the embedded store; expected `bus.url = \"nats://…\"` with `store.url = \"redis://…\"`",
        ],
    );
    check_errors(
        "[bus]\nurl = \"nats://h\"\n",
        &[],
        &[],
        &[
            "`bus.url` (file FILE): the embedded store serves one process and brings its own bus; expected `store.url = \"redis://…\"` with `bus.url = \"nats://…\"` (line 2, column 1)",
        ],
    );
    check_errors(
        "",
        &[],
        &[("http.listen", "0.0.0.0:80")],
        &[
            "`http.listen` (flag): with `auth.mode = \"none\"` everybody who can connect may do everything; expected a loopback address such as `127.0.0.1:8420`, got `0.0.0.0:80`",
        ],
    );
    check_errors(
        "",
        &[],
        &[("retry.max", "1ms")],
        &["`retry.max` (flag): expected `retry.max` of at least `retry.first`, got `1ms` and `1s`"],
    );
    check_errors(
        "",
        &[],
        &[("store.url", "redis://h"), ("bus.url", "nats://u:secret@h"), ("bus.creds_file", "u.creds")],
        &[
            "`bus.creds_file` (flag): a client has one login: expected `bus.creds_file` or a user in `bus.url`, got both",
        ],
    );
    load("", &[], &[("store.url", "redis://h"), ("bus.url", "nats://a,nats://b:1"), ("http.listen", "[::1]:80")])
        .unwrap();
}

#[test]
fn a_file_that_is_missing_or_no_toml_is_one_error() {
    check_errors("[worker\n", &[], &[], &["file FILE: is not TOML: line 1, column 8: unclosed table, expected `]`"]);
    let missing = Config::load(Some("/nowhere/t.toml".as_ref()), &BTreeMap::new(), &[]).map(|_| ()).unwrap_err();
    assert!(missing.to_string().contains("file /nowhere/t.toml: can't be read:"), "{missing}");
}

#[test]
fn endpoints_are_read_from_every_layer() {
    let config = load(
        "[models.endpoints.local]\nbase_url = \"http://h/v1/\"\n",
        &[("TRELLIS__MODELS__ENDPOINTS__OTHER__BASE_URL", "https://o/")],
        &[("models.endpoints.local.api_key_env", "K")],
    )
    .unwrap()
    .config;
    let endpoints: Vec<_> = config
        .models
        .endpoints
        .iter()
        .map(|(name, e)| (name.as_str(), e.base_url.as_str(), e.api_key_env.as_deref()))
        .collect();
    assert_eq!(endpoints, [("local", "http://h/v1/", Some("K")), ("other", "https://o/", None)]);
}

#[test]
fn kinds_of_resources_are_read_with_their_defaults() {
    let config = load(
        "[resources.kinds.rag]\nurl = \"https://h/x\"\nallow_private = true\n",
        &[
            ("TRELLIS__RESOURCES__KINDS__CRM__URL", "http://c:8080"),
            ("TRELLIS__RESOURCES__KINDS__CRM__ALLOW_PRIVATE", "true"),
        ],
        &[
            ("resources.kinds.rag.operations", "search,put"),
            ("resources.kinds.rag.mode", "read-write"),
            ("resources.kinds.crm.header", "X-Key"),
            ("resources.kinds.crm.timeout", "250ms"),
        ],
    )
    .unwrap()
    .config;
    let crm = &config.resources.kinds["crm"];
    assert_eq!((crm.url.as_str(), crm.allow_private, crm.mode), ("http://c:8080", true, None));
    assert_eq!((crm.header.as_str(), crm.prefix.as_str(), crm.timeout), ("X-Key", "", Duration::from_millis(250)));
    assert_eq!(crm.operations, [RemoteOperation::Read, RemoteOperation::Search]);
    let rag = &config.resources.kinds["rag"];
    assert_eq!((rag.prefix.as_str(), rag.allow_private, rag.mode), ("Bearer ", true, Some(AccessMode::ReadWrite)));
    assert_eq!(
        (rag.operations.as_slice(), rag.key_env.as_deref()),
        (&[RemoteOperation::Search, RemoteOperation::Put][..], None)
    );
    assert_eq!(rag.timeout, Duration::from_secs(10));
}

#[test]
fn kinds_of_resources_that_can_not_work_are_refused() {
    for (leaf, value, expected) in [
        (
            "rag.url",
            "ftp://x",
            "expected a URL with `http://` or `https://`, got `ftp://x`: `url` expected `http://` or `https://`, got `ftp:`",
        ),
        (
            "rag.url",
            "http://u:p@h/",
            "expected a URL with `http://` or `https://`, got `http://***@h/`: credentials are not allowed in a URL; send a header",
        ),
        (
            "rag.operations",
            "serach",
            "expected some of `context`, `list`, `read`, `search`, `put`, `delete`, `purge` with commas between, and not `purge` alone, got `serach`",
        ),
        ("rag.mode", "write", "expected `read` or `read-write`, got `write`"),
        ("rag.timeout", "2m", "expected a duration from 10ms to 1m such as `10s`, got `2m`"),
        ("rag.allow_private", "maybe", "expected `true` or `false`, got `maybe`"),
        ("rag.header", "a b", "expected a header's name such as `Authorization`, got `a b`"),
        ("rag.urll", "x", "is not a setting; did you mean `resources.kinds.rag.url`?"),
    ] {
        let file = if leaf == "rag.url" { "" } else { "[resources.kinds.rag]\nurl = \"https://h\"\n" };
        let key = format!("resources.kinds.{leaf}");
        check_errors(file, &[], &[(&key, value)], &[&format!("`{key}` (flag): {expected}")]);
    }
    let own = "`memory` is a kind of its own, name this one otherwise";
    let key = "resources.kinds.memory.url";
    check_errors("", &[], &[(key, "https://h")], &[&format!("`resources.kinds.memory` (flag): {own}")]);
    let none = "expected a URL with `http://` or `https://`, got ``: relative URL without a base";
    check_errors("", &[], &[("resources.kinds.x.about", "y")], &[&format!("`resources.kinds.x.url` (flag): {none}")]);
}

#[test]
fn credentials_are_masked_where_configuration_is_shown() {
    for (url, shown) in [
        ("redis://u:p@h:1/0", "redis://***@h:1/0"),
        ("nats://token@a,nats://b", "nats://***@a,nats://b"),
        ("redis://u:p/q@h", "redis://***@h"),
        ("redis://u:p,q@h", "redis://***@h"),
        ("redis+cluster://u:p@a:1,b:2", "redis+cluster://***@a:1,b:2"),
        ("redis+sentinel://u:p@a:1,b:2/main", "redis+sentinel://***@a:1,b:2/main"),
        ("redis+sentinel://a,b/main?sentinel_password=p@,q", "redis+sentinel://***"),
        ("redis+sentinel://u:p@a/main?sentinel_username=u", "redis+sentinel://***@a/main?***"),
        ("redis+sentinel://u:a?sentinel_b@h/main", "redis+sentinel://***"),
        ("redis+sentinel://a/main?sentinelPassword=p", "redis+sentinel://a/main?***"),
        ("redis+cluster://a/main&password=p", "redis+cluster://a/main?***"),
        ("nats://u:p,q@a,nats://t@b,c", "nats://***@a,nats://***@b,c"),
        ("embedded:./x@y", "embedded:./x@y"),
        ("http://h/a", "http://h/a"),
        ("nats://h:4222?token=p", "nats://h:4222?***"),
        ("redis://u:p", "redis://u:***"),
        ("redis+cluster://a:1,b:p", "redis+cluster://a:1,b:***"),
        ("nats://u:p/h", "nats://u:***/h"),
        ("redis://[::1]:1", "redis://[::1]:1"),
        ("redis://[::1]", "redis://[::1]"),
    ] {
        assert_eq!(mask_url(url), shown);
    }
    let loaded = load("", &[], &[("store.url", "redis://u:p@h"), ("bus.url", "nats://t@h")]).unwrap();
    let shown = loaded.entries.iter().map(|e| format!("{}={}", e.key, e.value)).collect::<Vec<_>>().join("\n");
    assert!(shown.contains("store.url=\"redis://***@h\"") && !shown.contains("u:p"), "{shown}");
    let errors = load("", &[], &[("bus.url", "http://user:pass@h")]).map(|_| ()).unwrap_err().to_string();
    assert!(!errors.contains("pass"), "{errors}");
}

#[test]
fn proxies_are_read_from_settings_files_and_the_environment() {
    let proxy = |flags: &[(&str, &str)], env: &[(&str, &str)]| load("", env, flags).unwrap().config.models.proxy;
    let shown = |settings: &super::proxy::ProxySettings| {
        let text = |url: &Option<reqwest::Url>| url.as_ref().map_or("-".to_owned(), ToString::to_string);
        format!("{} {}", text(&settings.http), text(&settings.https))
    };
    let set = [("models.proxy", "environment")];
    let env = |env: &[(&str, &str)]| shown(&proxy(&set, env));
    assert_eq!(shown(&proxy(&[], &[("HTTPS_PROXY", "http://p:1")])), "- -", "off by default");
    assert_eq!(shown(&proxy(&[("models.proxy", "http://u:pw@p:1")], &[])), "http://u:pw@p:1/ http://u:pw@p:1/");
    assert_eq!(
        env(&[("HTTPS_PROXY", "http://a:1"), ("https_proxy", "http://b:1"), ("ALL_PROXY", "c:1")]),
        "http://c:1/ http://a:1/"
    );
    assert_eq!(env(&[("HTTPS_PROXY", ""), ("https_proxy", "http://b:1")]), "- -");
    assert_eq!(
        env(&[("http_proxy", "https://b:1"), ("all_proxy", "socks5://x"), ("https_proxy", "c")]),
        "https://b:1/ http://c/"
    );
    assert_eq!(env(&[]), "- -");
    let exceptions = proxy(&[set[0], ("models.no_proxy", "own.example")], &[("NO_PROXY", "theirs.example")]).exceptions;
    assert_eq!(exceptions, "localhost,127.0.0.0/8,::1,theirs.example,own.example");

    let mut file = tempfile::NamedTempFile::new().unwrap();
    writeln!(file, "http://u:hunter2@p:1").unwrap();
    let path = file.path().display().to_string();
    let loaded = load("", &[], &[("http_client.proxy_file", &path)]).unwrap();
    assert_eq!(shown(&loaded.config.http_client.proxy), "http://u:hunter2@p:1/ http://u:hunter2@p:1/");
    assert!(!format!("{:?} {:?}", loaded.config, loaded.entries).contains("hunter2"));
}

#[test]
fn exceptions_that_match_no_host_are_refused() {
    for (given, is_taken) in [
        ("", true),
        ("a.example, .b.example,10.0.0.0/8,::1/128,*", true),
        ("10.0.0.0/32,fd00::/0,localhost", true),
        ("10.0.0.0/99", false),
        ("10.0.0.0/33", false),
        ("::1/129", false),
        ("10.0.0/8", false),
        ("10.0.0.0/", false),
        ("10.0.0.0/+8", false),
        ("a.example/8", false),
        ("a.example b.example", false),
        ("a\u{200b}.example", false),
    ] {
        for key in ["http_client.no_proxy", "models.no_proxy"] {
            let refused = load("", &[], &[(key, given)]).map(|_| ()).map_err(|errors| errors.to_string());
            assert_eq!(refused.is_ok(), is_taken, "{given}: {refused:?}");
            assert!(refused.err().is_none_or(|error| error.contains(key) && error.contains("10.0.0.0/8")), "{given}");
        }
    }
}

#[test]
fn a_name_of_the_venue_is_one_line_that_can_be_seen() {
    for (given, is_taken) in [
        ("Büro 7", true),
        ("", false),
        (" ", false),
        ("a\nb", false),
        ("a\u{0}b", false),
        ("a\u{1b}[31mb", false),
        ("a\u{9b}b", false),
        ("a\u{2028}b", false),
        ("a\u{202e}b", false),
    ] {
        let refused = load("", &[], &[("venue.name", given)]).map(|_| ()).map_err(|errors| errors.to_string());
        assert_eq!(refused.is_ok(), is_taken, "{given:?}: {refused:?}");
        assert!(refused.err().is_none_or(|error| error.contains("on one line")), "{given:?}");
    }
}

#[test]
fn a_proxy_that_can_not_be_used_is_refused_without_its_login() {
    let expected = "expected `none`, `environment` or `http://[user:password@]host:port`, got";
    for (given, reason) in [
        ("", "``: relative URL without a base"),
        ("socks5://u:hunter2@p:1", "`socks5://***@p:1`: only proxies at `http://` and `https://` are spoken to"),
        ("u:hunter2@p:1", "`***@p:1`: only proxies at `http://` and `https://` are spoken to"),
        ("http:/u:hunter2@p:x1", "`***@p:x1`: invalid port number"),
        ("http://u:hunter2@", "`http://***@`: empty host"),
        ("http://p:1/path", "`http://p:1/path`: a proxy has no path; "),
        ("http://u:hun#ter2@p:1", "`http://***@p:1`: invalid port number"),
    ] {
        let error = load("", &[], &[("http_client.proxy", given)]).map(|_| ()).unwrap_err().to_string();
        let line = format!("`http_client.proxy` (flag): {expected} {reason}");
        assert!(error.contains(&line) && !error.contains("hun"), "{given}: {error}");
    }
    let of_environment = [("models.proxy", "environment")];
    let error =
        load("", &[("https_proxy", "socks5://u:hunter2@p:1")], &of_environment).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("got `environment`: `https_proxy`: only proxies at `http://`"), "{error}");
    assert!(!error.contains("hunter2"), "{error}");
}

const KEY: &str = "did:key:z6MkiTBz1ymuepAQ4HEHYSF1H8quG5GLVVQR3djdX3mDooWp";

#[test]
fn authentication_is_read_as_lists() {
    let key = DidKey::parse(KEY).unwrap();
    let file =
        format!("[auth]\nmode = \"jwt\"\noperators = \"acme/root, {KEY}\"\naudience = \"did:web:t.example,t\"\n");
    let auth = load(&file, &[], &[("http.listen", "0.0.0.0:80"), ("auth.leeway", "0s")]).unwrap().config.auth;
    assert_eq!((auth.mode, auth.leeway), (AuthMode::Jwt, Duration::ZERO));
    assert_eq!(auth.audience, ["did:web:t.example", "t"]);
    assert_eq!(auth.operators, [TokenSubject::Owner("acme/root".parse().unwrap()), TokenSubject::Key(key.clone())]);
    assert_eq!(auth.did_keys, DidKeys::Only(vec![]));
    let of = |text: &str| load("", &[], &[("auth.did_keys", text)]).unwrap().config.auth.did_keys;
    assert_eq!((of("*"), of(&format!(" {KEY} "))), (DidKeys::All, DidKeys::Only(vec![key])));
}

#[test]
fn authentication_that_can_not_work_is_refused() {
    for (key, value, expected) in [
        ("auth.operators", "acme", "expected `tenant/user` or `did:key:z6Mk…` with commas between, got `acme`"),
        ("auth.operators", "a/b,,", "expected `tenant/user` or `did:key:z6Mk…` with commas between, got `a/b,,`"),
        ("auth.audience", "a b", "expected names with commas between such as `did:web:trellis.example`, got `a b`"),
        ("auth.leeway", "10m", "expected a duration from 0s to 5m such as `30s` or `5m`, got `10m`"),
    ] {
        check_errors("", &[], &[(key, value)], &[&format!("`{key}` (flag): {expected}")]);
    }
    let nobody = "with `auth.mode = \"jwt\"` and no key nobody could come in; expected `auth.jwks`, `auth.did_keys`, or a `did:key:…` in `auth.operators`";
    check_errors("", &[], &[("auth.mode", "jwt")], &[&format!("`auth.mode` (flag): {nobody}")]);
    check_errors(
        "",
        &[],
        &[("auth.mode", "jwt"), ("auth.jwks", "keys.json"), ("http.listen", "0.0.0.0:80")],
        &[
            "`http.listen` (flag): an API beyond this machine needs a name that tokens are made for; expected e.g. `auth.audience = \"did:web:trellis.example\"` with `http.listen = \"0.0.0.0:80\"`",
        ],
    );
}

#[test]
fn a_url_may_stand_in_a_file_and_no_error_shows_it() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        std::fs::write(dir.path().join(name), text).unwrap();
        dir.path().join(name).display().to_string()
    };
    let (redis, nats) = (file("redis", "redis://:hunter2@h:1\n"), file("nats", " nats://u:hunter2@n:2 "));
    let load = |set: &[(&str, &str)]| {
        let set: Vec<_> = set.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        Config::load(None, &BTreeMap::new(), &set)
    };
    let loaded = load(&[("store.url_file", &redis), ("bus.url_file", &nats)]).unwrap();
    assert_eq!(loaded.config.store.url, StoreUrl::Redis("redis://:hunter2@h:1".into()));
    assert_eq!(loaded.config.bus.url, BusUrl::Nats("nats://u:hunter2@n:2".into()));
    assert!(!format!("{:?}", loaded.entries).contains("hunter2"));

    let (wrong, missing) = (file("wrong", "http://hunter2@h"), dir.path().join("missing").display().to_string());
    let both = [("store.url_file", &*redis), ("bus.url_file", &nats), ("store.url", "redis://:hunter2@x:1")];
    for (set, expected) in [
        (&both[..], "`store.url_file` (flag): `store.url` is set as well (flag): set one of the two".to_owned()),
        (
            &[("store.url_file", &*wrong), ("bus.url_file", &nats)],
            format!(
                "`store.url_file` (flag): expected `embedded:DIR`, `redis://host:port`, `redis+cluster://host:port,host:port` or `redis+sentinel://host:port,host:port/primary` (`rediss` for TLS) in file `{wrong}`, and something else is there"
            ),
        ),
        (
            &[("store.url_file", &*redis), ("bus.url_file", &missing)],
            format!("`bus.url_file` (flag): file `{missing}` can't be read: No such file or directory (os error 2)"),
        ),
        (&[("store.url_file", &*redis)], "`store.url` (flag): the embedded bus lives in the embedded store".to_owned()),
    ] {
        let text = load(set).unwrap_err().to_string();
        assert!(text.contains(&expected) && !text.contains("hunter2"), "{text}");
    }
}
