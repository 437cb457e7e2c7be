//! Resolution of a model's endpoint: the URL to call, and its key. Keys of the environment go only where they belong.

use crate::domain::chat::ModelSettings;
use crate::domain::nearest::did_you_mean;
use crate::domain::wire::dialect::{COMPATIBLE, Dialect, find_dialect, providers as dialects};
use crate::model::headers;
pub use crate::model::keys::Keys;
pub use crate::model::target_error::TargetError;
use crate::venue::operation::OpError;
use crate::venue::outbound::HttpPolicy;
use crate::venue::outbound::proxy::ProxyRoute;
use crate::venue::secrets::OpenedSecret;
use reqwest::Url;
use reqwest::header::HeaderMap;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Name of the provider that needs no network.
pub const SCRIPTED: &str = "scripted";

/// Key that is sent where a protocol requires one and the endpoint has none.
const KEYLESS: &str = "none";

/// Endpoints, keys and network rules of providers.
#[derive(Debug, Clone)]
pub struct ProviderOptions {
    /// Endpoints of the venue's configuration, by provider. A name that is no provider is an OpenAI-compatible endpoint
    /// of that name.
    pub endpoints: BTreeMap<String, ModelEndpoint>,
    /// Source of API keys.
    pub keys: Keys,
    /// Rules for URLs that the configuration doesn't name; they are called only with an owner's secret.
    pub unlisted_hosts: HttpPolicy,
    /// Proxy for the calls.
    pub proxy: ProxyRoute,
}

impl Default for ProviderOptions {
    /// Takes default URLs, and keys from the environment.
    fn default() -> Self {
        ProviderOptions {
            endpoints: BTreeMap::new(),
            keys: Keys::from_env(),
            unlisted_hosts: HttpPolicy::default(),
            proxy: ProxyRoute::default(),
        }
    }
}

/// A URL that may be called, and the source of its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelEndpoint {
    /// URL up to the version: `http://localhost:8000/v1`.
    pub base_url: String,
    /// Name of the environment variable with the key; `None` for an endpoint without a key.
    pub api_key_env: Option<String>,
}

/// Destination of one call.
#[derive(Clone, PartialEq)]
pub struct CallTarget {
    /// The provider's wire format and its special rules.
    pub dialect: Dialect,
    /// URL that ends with `/`.
    pub base_url: Url,
    /// The key that is sent.
    pub key: String,
    /// Headers of the agent's configuration.
    pub headers: HeaderMap,
    /// Only an agent's configuration names the URL: it has the network rules of `http/*`.
    pub is_unlisted: bool,
}

impl CallTarget {
    fn new(dialect: Dialect, base_url: Url, key: String) -> Self {
        Self { dialect, base_url, key, headers: HeaderMap::new(), is_unlisted: false }
    }
}

impl fmt::Debug for CallTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (provider, url) = (self.dialect.provider, self.base_url.as_str());
        f.debug_struct("CallTarget").field("provider", &provider).field("base_url", &url).finish_non_exhaustive()
    }
}

/// Returns the names of all providers that a model may have, with these endpoints of the venue's configuration.
pub fn providers<'e>(endpoints: impl Iterator<Item = &'e str>) -> Vec<String> {
    let own = dialects().into_iter().chain([SCRIPTED]).map(str::to_owned);
    own.chain(endpoints.map(str::to_owned)).collect::<BTreeSet<_>>().into_iter().collect()
}

/// Resolves the destination of a call of `settings`, with the secrets that were opened for it.
pub fn resolve(
    settings: &ModelSettings,
    secrets: &[OpenedSecret],
    options: &ProviderOptions,
) -> Result<CallTarget, TargetError> {
    let target = resolve_key(settings, secrets, options)?;
    let headers = headers::resolve(settings, secrets, &target.base_url)?;
    Ok(CallTarget { headers, ..target })
}

fn resolve_key(
    settings: &ModelSettings,
    secrets: &[OpenedSecret],
    options: &ProviderOptions,
) -> Result<CallTarget, TargetError> {
    let dialect = dialect_of(&settings.provider, options)?;
    if !is_plain(&settings.name) {
        return Err(TargetError::BadName(settings.name.clone()));
    }
    if let Some(name) = &settings.key {
        let secret = secrets.iter().find(|secret| secret.name == *name);
        let secret = secret.ok_or_else(|| TargetError::NoSecret(name.path()))?;
        return with_secret(settings, dialect, secret, options);
    }
    let key_of = |endpoint: &ModelEndpoint| match &endpoint.api_key_env {
        Some(name) => options.keys.get(name),
        None => Ok(KEYLESS.to_owned()),
    };
    let default_key = || match dialect.key_env {
        Some(name) => options.keys.get(name),
        None => Ok(KEYLESS.to_owned()),
    };
    let own = options.endpoints.get(&settings.provider);
    let at = |url: &str, key: String| Ok(CallTarget::new(dialect, parse_base_url(url, &dialect)?, key));
    let Some(asked) = &settings.base_url else {
        return match own {
            Some(endpoint) => at(&endpoint.base_url, key_of(endpoint)?),
            None => at(default_url(&dialect)?, default_key()?),
        };
    };
    let url = parse_base_url(asked, &dialect)?;
    let mut same_host = false;
    for endpoint in own.into_iter().chain(options.endpoints.values()) {
        let named = parse(&endpoint.base_url)?;
        if url.origin() == named.origin() {
            same_host = true;
            if url.path().starts_with(named.path()) {
                return at(asked, key_of(endpoint)?);
            }
        }
    }
    if same_host {
        // Another path of a named host may belong to another tenant: it is called without the key.
        return at(asked, KEYLESS.to_owned());
    }
    if default_url(&dialect).is_ok_and(|default| parse(default).is_ok_and(|default| default == url)) {
        return at(asked, default_key()?);
    }
    Err(TargetError::UnlistedHost(asked.clone()))
}

/// Resolves a call with an owner's own key, which may go only to the hosts it is bound to. A URL that the configuration
/// doesn't name must be one that `http/*` may call.
fn with_secret(
    settings: &ModelSettings,
    dialect: Dialect,
    secret: &OpenedSecret,
    options: &ProviderOptions,
) -> Result<CallTarget, TargetError> {
    let own = options.endpoints.get(&settings.provider).map(|endpoint| endpoint.base_url.as_str());
    let url = match settings.base_url.as_deref().or(own) {
        Some(url) => parse_base_url(url, &dialect)?,
        None => parse(default_url(&dialect)?)?,
    };
    headers::check_bound(secret, &url)?;
    let strange = is_unlisted(&url, &dialect, options);
    if strange {
        let refused = |error: OpError| TargetError::HostRefused { url: url.to_string(), reason: error.to_string() };
        options.unlisted_hosts.check(&url).map_err(refused)?;
    }
    Ok(CallTarget { is_unlisted: strange, ..CallTarget::new(dialect, url, secret.value.reveal().to_owned()) })
}

/// Whether a URL is on no server that the configuration or the provider names.
fn is_unlisted(url: &Url, dialect: &Dialect, options: &ProviderOptions) -> bool {
    let mut named = options.endpoints.values().map(|endpoint| endpoint.base_url.as_str()).chain(dialect.base_url);
    !named.any(|named| parse(named).is_ok_and(|named| named.origin() == url.origin()))
}

/// Whether calls go to an owner's own server, with the owner's key. They cost the venue nothing, and the use that such
/// a server reports is its owner's word.
pub(super) fn is_own_server(settings: &ModelSettings, options: &ProviderOptions) -> bool {
    let (Some(url), Some(_)) = (&settings.base_url, &settings.key) else { return false };
    let Ok(dialect) = dialect_of(&settings.provider, options) else { return false };
    parse_base_url(url, &dialect).is_ok_and(|url| is_unlisted(&url, &dialect, options))
}

/// Returns the dialect of a provider; a name that only the venue's configuration has uses Chat Completions.
fn dialect_of(provider: &str, options: &ProviderOptions) -> Result<Dialect, TargetError> {
    match find_dialect(provider) {
        Some(dialect) => Ok(dialect),
        None if options.endpoints.contains_key(provider) => Ok(COMPATIBLE),
        None => {
            let known = providers(options.endpoints.keys().map(String::as_str));
            let hint = did_you_mean(provider, &known.iter().map(String::as_str).collect::<Vec<_>>());
            let known = known.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
            Err(TargetError::UnknownProvider { given: provider.to_owned(), hint, known })
        }
    }
}

fn default_url(dialect: &Dialect) -> Result<&'static str, TargetError> {
    let provider = dialect.provider;
    let hint = match provider {
        "azure" => "`https://RESOURCE.openai.azure.com/openai/v1`",
        "bedrock" => {
            "`https://bedrock-runtime.REGION.amazonaws.com/openai/v1`, with a Bedrock API key; Bedrock's own format and \
             its signatures are not spoken"
        }
        "vertex" => {
            "`https://REGION-aiplatform.googleapis.com/v1/projects/PROJECT/locations/REGION/publishers/google`, with an \
             access token as its key; Claude on Vertex is not spoken"
        }
        _ => "name one in `models.endpoints` of the venue's configuration",
    };
    dialect.base_url.ok_or(TargetError::NoUrl { provider, hint })
}

/// Whether a model's name can't change the URL that it is put into: with `..` it would lead to another part of the
/// provider's
/// API, with the venue's key.
fn is_plain(name: &str) -> bool {
    let is_odd = |c: char| c.is_control() || "?#%\\".contains(c);
    !name.chars().any(is_odd) && !name.split('/').any(|part| matches!(part, "." | ".."))
}

/// Parses the URL of an endpoint. Ollama's own URL may lack the path of its Chat Completions.
fn parse_base_url(text: &str, dialect: &Dialect) -> Result<Url, TargetError> {
    let mut url = parse(text)?;
    if dialect.provider.starts_with("ollama") && url.path() == "/" {
        url.set_path("/v1/");
    }
    Ok(url)
}

/// Parses an HTTP URL and makes it end with `/`, so that providers' paths can be joined.
fn parse(text: &str) -> Result<Url, TargetError> {
    let bad = |reason: &str| TargetError::BadUrl { url: text.to_owned(), reason: reason.to_owned() };
    let mut url = Url::parse(text).map_err(|error| bad(&error.to_string()))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(bad("expected `http` or `https`"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(bad("expected no credentials in it"));
    }
    // A provider's path is joined to the URL, so it must not follow a query.
    if url.query().is_some() {
        return Err(bad("expected no query, the path of the provider's call follows"));
    }
    let path = url.path().to_ascii_lowercase();
    if ["%2f", "%5c"].iter().any(|part| path.contains(part)) {
        return Err(bad("expected no escaped `/` or `\\` in its path"));
    }
    url.set_fragment(None);
    if !url.path().ends_with('/') {
        let path = format!("{}/", url.path());
        url.set_path(&path);
    }
    Ok(url)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::hosts::HostRule;
    use crate::domain::secret::{Binding, PlainSecret};
    use reqwest::header::{HeaderName, HeaderValue};
    use serde_json::{Value, json};

    fn options() -> ProviderOptions {
        let endpoint =
            |url: &str, key: Option<&str>| ModelEndpoint { base_url: url.into(), api_key_env: key.map(Into::into) };
        ProviderOptions {
            endpoints: BTreeMap::from([
                ("anthropic".to_owned(), endpoint("https://gateway.test/anthropic/v1", Some("GATEWAY"))),
                ("local".to_owned(), endpoint("http://127.0.0.1:8000/v1", None)),
                ("broken".to_owned(), endpoint("http://127.0.0.1:8001/v1", Some("UNSET"))),
            ]),
            keys: Keys::new(
                [("OPENAI_API_KEY", "sk-env"), ("GATEWAY", "gk")].map(|(n, k)| (n.to_owned(), k.to_owned())),
            ),
            unlisted_hosts: HttpPolicy {
                hosts: HostRule::list("models.example.com, 127.0.0.1:9").unwrap(),
                ..HttpPolicy::default()
            },
            proxy: ProxyRoute::default(),
        }
    }

    fn check(provider: &str, base_url: Option<&str>) -> Result<(&'static str, String, String), String> {
        let settings = ModelSettings { base_url: base_url.map(Into::into), ..ModelSettings::new(provider, "m") };
        let target = resolve(&settings, &[], &options());
        let shown = |target: CallTarget| (target.dialect.provider, target.base_url.into(), target.key);
        target.map(shown).map_err(|error| error.to_string())
    }

    #[test]
    fn keys_go_only_where_they_belong() {
        let table = [
            ("openai", None, ("openai", "https://api.openai.com/v1/", "sk-env")),
            ("openai", Some("https://api.openai.com/v1"), ("openai", "https://api.openai.com/v1/", "sk-env")),
            ("ollama", None, ("ollama", "http://localhost:11434/v1/", KEYLESS)),
            ("anthropic", None, ("anthropic", "https://gateway.test/anthropic/v1/", "gk")),
            ("local", None, ("compatible", "http://127.0.0.1:8000/v1/", KEYLESS)),
            ("openai", Some("http://127.0.0.1:8000/v1/"), ("openai", "http://127.0.0.1:8000/v1/", KEYLESS)),
            ("ollama", Some("http://127.0.0.1:8000"), ("ollama", "http://127.0.0.1:8000/v1/", KEYLESS)),
            (
                "anthropic",
                Some("https://gateway.test/anthropic/v1/eu"),
                ("anthropic", "https://gateway.test/anthropic/v1/eu/", "gk"),
            ),
            ("openai", Some("https://gateway.test/other"), ("openai", "https://gateway.test/other/", KEYLESS)),
            (
                "openai",
                Some("https://gateway.test/anthropic/v1x"),
                ("openai", "https://gateway.test/anthropic/v1x/", KEYLESS),
            ),
            (
                "openai",
                Some("https://gateway.test/anthropic/v1/../../x"),
                ("openai", "https://gateway.test/x/", KEYLESS),
            ),
        ];
        for (provider, base_url, (dialect, target, key)) in table {
            let expected = Ok((dialect, target.to_owned(), key.to_owned()));
            assert_eq!(check(provider, base_url), expected, "{provider} {base_url:?}");
        }
    }

    #[test]
    fn a_model_s_name_can_not_change_the_url() {
        let check = |name: &str| {
            let settings = ModelSettings::new("openai", name);
            resolve(&settings, &[], &options()).map(|_| ())
        };
        for name in
            ["gpt-4o", "qwen2.5:7b", "meta-llama/Llama-3.1-8B:free", "accounts/x/models/y@2", "a..b", "ü 1", "x::y"]
        {
            assert_eq!(check(name), Ok(()), "{name}");
        }
        for name in ["../files", "a/../b", "./a", "a/.", "..", "a?key=b", "a#b", "%2e%2e/x", "a\\b", "a\nb"] {
            assert_eq!(check(name), Err(TargetError::BadName(name.to_owned())), "{name}");
        }
    }

    #[test]
    fn illegal_endpoints_are_refused() {
        let not_named = |url: &str| {
            format!(
                "base URL `{url}` is not an endpoint that the venue's configuration names, and the model has no `key`"
            )
        };
        for url in
            ["https://evil.test/v1", "http://api.openai.com/v1", "http://127.0.0.1:9/v1", "https://api.openai.com/v2"]
        {
            assert_eq!(check("openai", Some(url)), Err(not_named(url)));
        }
        assert!(check("openai", Some("file:///etc")).unwrap_err().contains("expected `http` or `https`"));
        for url in ["http://127.0.0.1:8000/v1/files?x=", "http://127.0.0.1:8000/v1%2fx"] {
            assert!(check("openai", Some(url)).unwrap_err().contains(": expected no "), "{url}");
        }
        assert!(check("openai", Some("http://k@127.0.0.1:8000/v1")).unwrap_err().contains("no credentials"));
        assert_eq!(check("groq", None), Err("no API key: `GROQ_API_KEY` is not set".into()));
        assert_eq!(check("broken", None), Err("no API key: `UNSET` is not set".into()));
        let unknown = check("opneai", None).unwrap_err();
        assert!(check("azure", None).unwrap_err().starts_with("provider `azure` needs a base URL: `https://RESOURCE."));
        assert!(
            unknown.starts_with("unknown provider `opneai`, did you mean `openai`, expected one of `"),
            "{unknown}"
        );
        for name in ["`anthropic`", "`gemini`", "`local`", "`ollama`", "`openai`", "`scripted`"] {
            assert!(unknown.contains(name), "{unknown}");
        }
    }

    fn check_secret(provider: &str, base_url: Option<&str>, hosts: &[&str]) -> Result<(String, bool), String> {
        let secret = opened("KEY", "sk-owners-own", hosts);
        let settings = ModelSettings {
            base_url: base_url.map(Into::into),
            key: Some(secret.name.clone()),
            ..ModelSettings::new(provider, "m")
        };
        assert!(matches!(resolve(&settings, &[], &options()), Err(TargetError::NoSecret(_))));
        let target = resolve(&settings, std::slice::from_ref(&secret), &options());
        let target = target.map_err(|error| error.to_string())?;
        assert_eq!(is_own_server(&settings, &options()), target.is_unlisted);
        assert!(!is_own_server(&ModelSettings { key: None, ..settings.clone() }, &options()), "the venue's key");
        assert_eq!(target.key, "sk-owners-own", "never the venue's");
        Ok((target.base_url.into(), target.is_unlisted))
    }

    #[test]
    fn an_owners_key_goes_only_to_bound_and_allowed_hosts() {
        let ok = |url: &str, strange| Ok((url.to_owned(), strange));
        assert_eq!(check_secret("openai", None, &["api.openai.com"]), ok("https://api.openai.com/v1/", false));
        let named = "https://gateway.test/anthropic/v1/";
        assert_eq!(check_secret("anthropic", None, &["gateway.test"]), ok(named, false));
        assert_eq!(check_secret("local", None, &["127.0.0.1:8000"]), ok("http://127.0.0.1:8000/v1/", false));
        let other = Some("https://models.example.com/v1");
        assert_eq!(check_secret("openai", other, &["*.example.com"]), ok("https://models.example.com/v1/", true));
        for (base_url, hosts, part) in [
            (None, &["models.example.com"][..], "may not go to `https://api.openai.com:443`: it is bound to `models"),
            (other, &[], "it is bound to no host"),
            (other, &["api.openai.com"], "secret `KEY` may not go to `https://models.example.com:443`"),
            (Some("http://models.example.com/v1"), &["models.example.com"], "over plain http only where"),
            (
                Some("https://evil.test/v1"),
                &["evil.test"],
                "host `evil.test` port 443 is not one that this venue allows",
            ),
            (Some("http://127.0.0.1:9/v1"), &["127.0.0.1:9"], "is not a public address"),
            (Some("http://127.0.0.1:8000@evil.test/"), &["127.0.0.1:8000"], "expected no credentials in it"),
        ] {
            let error = check_secret("openai", base_url, hosts).unwrap_err();
            assert!(error.contains(part) && !error.contains("sk-owners"), "{base_url:?}: {error}");
        }
    }

    #[test]
    fn keys_are_never_printed() {
        let shown = format!("{:?} {:?}", options(), resolve(&ModelSettings::new("openai", "m"), &[], &options()));
        assert!(!shown.contains("sk-env") && !shown.contains("gk"), "{shown}");
    }

    fn opened(name: &str, value: &str, hosts: &[&str]) -> OpenedSecret {
        let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
        OpenedSecret {
            name: name.parse().unwrap(),
            value: PlainSecret::new(value.into()).unwrap(),
            hosts: Binding::parse(&hosts).unwrap(),
        }
    }

    fn check_headers(
        base_url: Option<&str>,
        given: Value,
        secrets: &[OpenedSecret],
    ) -> Result<Vec<(String, String)>, String> {
        let settings = ModelSettings {
            base_url: base_url.map(Into::into),
            headers: serde_json::from_value(given).unwrap(),
            ..ModelSettings::new("openai", "m")
        };
        let keys = Keys::new([("OPENAI_API_KEY".to_owned(), "sk-env".to_owned())]);
        let options = ProviderOptions { keys, ..ProviderOptions::default() };
        let target = resolve(&settings, secrets, &options).map_err(|error| error.to_string())?;
        assert!(!format!("{target:?}").contains("gw-secret-value"), "{target:?}");
        let shown = |(name, value): (&HeaderName, &HeaderValue)| (name.to_string(), value.to_str().unwrap().to_owned());
        Ok(target.headers.iter().map(shown).collect())
    }

    #[test]
    fn a_secret_in_a_header_goes_where_it_is_bound() {
        let given = || json!({"X-Gateway": {"$secret": "s/GW", "prefix": "Token "}, "X-Title": "a title"});
        let bound = || opened("GW", "gw-secret-value", &["api.openai.com"]);
        let sent = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
            pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        let both = sent(&[("x-gateway", "Token gw-secret-value"), ("x-title", "a title")]);
        assert_eq!(check_headers(None, given(), &[bound()]), Ok(both));
        for (base_url, secrets, part) in [
            (None, vec![], "the model needs the secret `s/GW`, which only a worker can open"),
            (None, vec![opened("OTHER", "gw-secret-value", &["api.openai.com"])], "the secret `s/GW`"),
            (
                None,
                vec![opened("GW", "gw-secret-value", &["example.com"])],
                "may not go to `https://api.openai.com:443`",
            ),
            (None, vec![opened("GW", "gw-secret-value", &[])], "it is bound to no host"),
            (
                None,
                vec![opened("GW", "gw-secret-value\r\nHost: x", &["api.openai.com"])],
                "header `X-Gateway` is not usable",
            ),
            // A secret in a header is no key: a URL that the venue doesn't name needs one.
            (
                Some("https://example.com/v1"),
                vec![opened("GW", "gw-secret-value", &["example.com"])],
                "the model has no `key`",
            ),
        ] {
            let error = check_headers(base_url, given(), &secrets).unwrap_err();
            assert!(error.contains(part) && !error.contains("gw-secret-value"), "{base_url:?}: {error}");
        }
    }
}
