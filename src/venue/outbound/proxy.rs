//! The proxy that carries outgoing calls, and its failures as distinct from those of the servers behind it.

use super::error_causes;
use crate::config::proxy::ProxySettings;
use hyper::Uri;
use hyper_util::client::proxy::matcher::Matcher;
use reqwest::{ClientBuilder, Proxy, StatusCode, Url};
use std::fmt;
use std::sync::Arc;

/// Beginning of the client's error for a connection through a proxy, whose type is private.
const TUNNEL: &str = "tunnel error: ";
/// Rest of that error for each cause.
const NO_CONNECTION: &str = "failed to create underlying connection";
const NO_LOGIN: &str = "proxy authorization required";
const NO_WAY: &str = "unsuccessful";

/// The proxy for outgoing calls, or none.
#[derive(Clone, Default)]
pub struct ProxyRoute {
    settings: ProxySettings,
    /// Key of the setting, such as `models.proxy`, for errors.
    setting: String,
    /// `None` if all calls are direct.
    matcher: Option<Arc<Matcher>>,
}

impl fmt::Debug for ProxyRoute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ProxyRoute").field(&self.settings).finish()
    }
}

/// Why a proxy didn't carry a call. The address of the proxy is hidden from readers of a job.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProxyFailure {
    /// Status 407, which a retry doesn't change.
    #[error("the proxy of `{setting}` {}", if *.has_login { "refuses its login" } else { "wants a login" })]
    Login {
        /// Key of the proxy's setting.
        setting: String,
        /// Whether the venue has a login for the proxy.
        has_login: bool,
    },
    /// The proxy is down or unreachable.
    #[error("the proxy of `{setting}` can't be reached: {reason}")]
    Unreachable {
        /// Key of the proxy's setting.
        setting: String,
        /// Causes of the failure.
        reason: String,
    },
    /// The proxy refused the connection with an error.
    #[error("the proxy of `{setting}` makes no connection to this host: it may not, or can't")]
    NoConnection {
        /// Key of the proxy's setting.
        setting: String,
    },
    /// The call failed behind the proxy or on the way.
    #[error("through the proxy of `{setting}`: {reason}")]
    Beyond {
        /// Key of the proxy's setting.
        setting: String,
        /// Causes of the failure.
        reason: String,
    },
}

impl ProxyRoute {
    /// Makes a route by these settings, whose key is `setting`.
    pub fn new(settings: &ProxySettings, setting: &str) -> Self {
        let is_direct = settings.http.is_none() && settings.https.is_none();
        let matcher = (!is_direct).then(|| Arc::new(settings.matcher()));
        Self { settings: settings.clone(), setting: setting.to_owned(), matcher }
    }

    /// Whether no call goes through a proxy.
    pub const fn is_direct(&self) -> bool {
        self.matcher.is_none()
    }

    /// Whether a proxy carries calls to a URL.
    pub fn carries(&self, url: &Url) -> bool {
        self.proxy_of(url).is_some()
    }

    fn proxy_of(&self, url: &Url) -> Option<&Url> {
        let uri = url.as_str().parse::<Uri>().ok()?;
        self.matcher.as_ref()?.intercept(&uri)?;
        if url.scheme() == "https" { self.settings.https.as_ref() } else { self.settings.http.as_ref() }
    }

    /// Configures a client that sends everything through the proxy, for URLs that [`ProxyRoute::carries`].
    pub fn configure(&self, client: ClientBuilder) -> reqwest::Result<ClientBuilder> {
        let mut client = client.no_proxy();
        if let Some(url) = &self.settings.http {
            client = client.proxy(Proxy::http(url.clone())?);
        }
        if let Some(url) = &self.settings.https {
            client = client.proxy(Proxy::https(url.clone())?);
        }
        Ok(client)
    }

    /// Returns the error of a call to `url` that a proxy carried; `None` if the call was direct.
    pub fn failure(&self, url: &Url, error: &reqwest::Error) -> Option<ProxyFailure> {
        let proxy = self.proxy_of(url)?;
        let setting = self.setting.clone();
        let causes = error_causes(error);
        let tunnel = causes.iter().position(|cause| cause.starts_with(TUNNEL));
        let reason = |from: usize| causes.iter().skip(from).cloned().collect::<Vec<_>>().join(": ");
        Some(match tunnel.map(|at| (at, &causes[at][TUNNEL.len()..])) {
            Some((_, NO_LOGIN)) => self.login_failure(proxy),
            Some((_, NO_WAY)) => ProxyFailure::NoConnection { setting },
            Some((at, NO_CONNECTION)) => ProxyFailure::Unreachable { setting, reason: reason(at + 1) },
            // The first cause shows the URL of the call.
            None if error.is_connect() && url.scheme() == "http" => {
                ProxyFailure::Unreachable { setting, reason: reason(1) }
            }
            Some((at, _)) => ProxyFailure::Beyond { setting, reason: reason(at) },
            None => ProxyFailure::Beyond { setting, reason: reason(1) },
        })
    }

    /// Returns the error of an answer that comes from the proxy itself; through a tunnel to `https://` none does.
    pub fn refusal(&self, url: &Url, status: StatusCode) -> Option<ProxyFailure> {
        let wants = status == StatusCode::PROXY_AUTHENTICATION_REQUIRED && url.scheme() == "http";
        self.proxy_of(url).filter(|_| wants).map(|proxy| self.login_failure(proxy))
    }

    fn login_failure(&self, proxy: &Url) -> ProxyFailure {
        let has_login = !proxy.username().is_empty() || proxy.password().is_some();
        ProxyFailure::Login { setting: self.setting.clone(), has_login }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn a_proxy_carries_what_no_exception_names() {
        let check = |exceptions: &str, variables: &[(&str, &str)], url: &str, carried: bool| {
            let text = if variables.is_empty() { "http://p:3128" } else { "environment" };
            let variables: BTreeMap<String, String> =
                variables.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
            let settings = ProxySettings::parse(text, exceptions, &variables).unwrap();
            let route = ProxyRoute::new(&settings, "models.proxy");
            assert_eq!(route.carries(&Url::parse(url).unwrap()), carried, "{exceptions} {variables:?} {url}");
        };
        check("", &[], "https://api.example.com/v1", true);
        check("", &[], "http://10.0.0.7:8080/", true);
        for loopback in ["http://localhost:11434/v1", "http://127.9.9.9/", "https://[::1]:1/"] {
            check("", &[], loopback, false);
        }
        for (exceptions, url, carried) in [
            ("example.com", "https://api.example.com/", false),
            (".example.com", "https://example.com/", false),
            ("example.com", "https://notexample.com/", true),
            ("10.0.0.0/8, x", "http://10.0.0.7:8080/", false),
            ("*", "https://a.example.com/", false),
        ] {
            check(exceptions, &[], url, carried);
            check("", &[("ALL_PROXY", "http://p:1"), ("no_proxy", exceptions)], url, carried);
        }
        let https_alone = [("https_proxy", "http://p:1")];
        check("", &https_alone, "https://a.example.com/", true);
        check("", &https_alone, "http://a.example.com/", false);
        check("", &[("HTTP_PROXY", "p:1"), ("REQUEST_METHOD", "GET")], "http://a.example.com/", false);
        check("", &[("PATH", "/bin")], "https://a.example.com/", false);
    }

    #[test]
    fn a_route_is_never_shown_with_its_login() {
        let settings = ProxySettings::parse("http://user:hunter2@p:3128", "", &BTreeMap::new()).unwrap();
        let route = ProxyRoute::new(&settings, "models.proxy");
        let client = route.configure(reqwest::Client::builder()).unwrap();
        let builder = format!("{client:?}");
        let shown = format!("{settings:?} {route:?} {builder} {:?}", client.build().unwrap());
        assert!(shown.contains("p:3128") && !shown.contains("hunter2") && !shown.contains("user:"), "{shown}");
    }
}
