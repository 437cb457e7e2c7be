//! Calls of models and tools through a real proxy.

use crate::support::certificates::certificates;
use crate::support::cli::{Done, Up, command};
use crate::support::http_proxy::{HttpProxy, TlsFront};
use crate::support::model_server::ModelServer;
use crate::support::raw_reply::RawReply;
use crate::support::redis_cluster::until;
use serde_json::{Value, json};
use std::net::TcpListener;
use tempfile::TempDir;

const KEY: &str = "sk-only-for-the-provider";
const LOGIN: &str = "worker:hunter2";

fn model_server() -> ModelServer {
    let chunk = json!({"choices": [{"index": 0, "delta": {"content": "hello"}, "finish_reason": "stop"}]});
    ModelServer::scripted(vec![RawReply::events(&[chunk.to_string().as_str(), "[DONE]"])])
}

/// Two proxies and a provider with certificates, the provider also over TLS.
struct Network {
    open: HttpProxy,
    closed: HttpProxy,
    server: ModelServer,
    tls: TlsFront,
    dir: TempDir,
}

impl Network {
    fn start() -> Option<Self> {
        let (open, closed) = (HttpProxy::start(None)?, HttpProxy::start(Some(LOGIN))?);
        let (server, dir) = (model_server(), tempfile::tempdir().unwrap());
        certificates(dir.path());
        let tls = TlsFront::start(dir.path(), server.address().port())?;
        Some(Self { open, closed, server, tls, dir })
    }

    fn https(&self) -> String {
        format!("https://models.proxied.example:{}/v1", self.tls.port)
    }

    fn http(&self) -> String {
        format!("http://models.proxied.example:{}/v1", self.server.address().port())
    }

    /// `trellis model try` of the provider at this URL.
    fn try_model(&self, url: &str, settings: &[&str], env: &[(&str, &str)]) -> Done {
        let mut command = command(self.dir.path());
        for name in ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"] {
            command.env_remove(name).env_remove(name.to_ascii_lowercase());
        }
        command.env("PROVIDER_KEY", KEY).env("SSL_CERT_FILE", self.dir.path().join("ca.pem"));
        command.envs(env.iter().copied());
        command.args(["model", "try", "openai/m", "--base-url", url, "--key-env", "PROVIDER_KEY"]);
        let settings = settings.iter().flat_map(|setting| ["--set", setting]);
        let output = command.args(settings).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        let done =
            Done { code: output.status.code().unwrap_or(-1), out: text(output.stdout), err: text(output.stderr) };
        assert!(!format!("{done:?}").contains("hunter2"), "{done:?}");
        done
    }

    /// It reaches the provider; returns what the proxy has newly written.
    fn reached(&self, proxy: &HttpProxy, url: &str, settings: &[&str], env: &[(&str, &str)]) -> String {
        let (calls, before) = (self.server.calls().len(), proxy.log().len());
        // This provider can talk, and has no tools.
        let done =
            self.try_model(url, settings, env).expect(1, "does not work with this model: tools, structured output");
        assert!(done.out.contains("hello"), "{done:?}");
        let new = self.server.calls().split_off(calls);
        assert!(!new.is_empty());
        for call in new {
            assert_eq!(call.headers["authorization"], format!("Bearer {KEY}"));
            assert_eq!(call.headers.get("proxy-authorization"), None, "the login is the proxy's");
        }
        proxy.log()[before..].to_owned()
    }
}

#[test]
fn calls_of_models_go_through_the_proxy_that_is_set() {
    let Some(net) = Network::start() else { return };
    let open = format!("models.proxy={}", net.open.url(""));
    let closed = format!("models.proxy={}", net.closed.url("worker:hunter2@"));
    let (tunnel, forward) = ("CONNECT models.proxied.example:", "POST models.proxied.example:");
    for (proxy, setting) in [(&net.open, open.as_str()), (&net.closed, &closed)] {
        let log = net.reached(proxy, &net.https(), &[setting], &[]);
        assert!(log.contains(tunnel) && !log.contains(forward) && !log.contains(KEY), "{log}");
        let log = net.reached(proxy, &net.http(), &[setting], &[]);
        assert!(log.contains(forward), "{log}");
    }

    let (asked, url) = (["models.proxy=environment"], net.closed.url("worker:hunter2@"));
    for name in ["HTTPS_PROXY", "https_proxy", "ALL_PROXY"] {
        assert!(net.reached(&net.closed, &net.https(), &asked, &[(name, &url)]).contains(tunnel), "{name}");
    }
    std::fs::write(net.dir.path().join("proxy"), format!("{url}\n")).unwrap();
    assert!(net.reached(&net.closed, &net.https(), &["models.proxy_file=proxy"], &[]).contains(tunnel));

    // A proxy that is down, beside a provider on this machine.
    let local = net.server.url("/v1");
    assert_eq!(net.reached(&net.open, &local, &["models.proxy=http://127.0.0.1:1"], &[]), "");
}

#[test]
fn a_proxy_that_does_not_carry_a_call_is_named_as_the_reason() {
    let Some(net) = Network::start() else { return };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let down = format!("models.proxy=http://worker:hunter2@{}", listener.local_addr().unwrap());
    drop(listener);
    let nameless = format!("models.proxy={}", net.closed.url(""));
    let wrong = format!("models.proxy={}", net.closed.url("worker:hunter22@"));
    let through = format!("models.proxy={}", net.open.url(""));
    for url in [net.https(), net.http()] {
        let check = |setting: &str, expected: &str| {
            net.try_model(&url, &[setting], &[]).expect(8, &format!("model `openai/m` {expected}"))
        };
        check(&nameless, "can't be used: the proxy of `models.proxy` wants a login");
        check(&wrong, "can't be used: the proxy of `models.proxy` refuses its login");
        let done = check(&down, "is unavailable: the proxy of `models.proxy` can't be reached: ");
        assert!(done.err.contains("Connection refused") && !done.err.contains("127.0.0.1"), "{done:?}");
    }
    let unknown = format!("https://models.unknown.example:{}/v1", net.tls.port);
    let done = net.try_model(&unknown, &[&through], &[]);
    done.expect(8, "is unavailable: the proxy of `models.proxy` makes no connection to this host");
    // Nobody trusts this certificate.
    let done = net.try_model(&net.https(), &[&through], &[("SSL_CERT_FILE", "/dev/null")]);
    done.expect(
        8,
        "is unavailable: through the proxy of `models.proxy`: client error (Connect): invalid peer certificate",
    );
    assert!(net.server.calls().is_empty());
}

#[test]
fn nothing_goes_through_a_proxy_that_was_not_asked_for() {
    let Some(net) = Network::start() else { return };
    let env = |name| [("HTTPS_PROXY", net.open.url("")), (name, "proxied.example".to_owned())];
    let before = net.open.log();
    for (settings, no_proxy) in [
        (&[][..], "UNUSED"),
        (&["http_client.proxy=environment"], "UNUSED"),
        (&["models.proxy=environment"], "NO_PROXY"),
        (&["models.proxy=environment"], "no_proxy"),
        (&["models.proxy=environment", "models.no_proxy=models.proxied.example"], "UNUSED"),
    ] {
        let env = env(no_proxy);
        let env = env.each_ref().map(|(name, value)| (*name, value.as_str()));
        let done = net.try_model(&net.https(), settings, &env).expect(8, "is unavailable: ");
        assert!(done.err.contains("dns error") && !done.err.contains("proxy"), "{settings:?}: {done:?}");
    }
    assert_eq!(net.open.log(), before);
    assert!(net.server.calls().is_empty());
}

/// An operation of the venue: its answer, or its error.
async fn run(up: &Up, operation: &str, input: Value) -> String {
    let run = json!({"operation": operation, "input": input});
    let got = reqwest::Client::new().post(format!("{}/api/v1/run", up.url)).json(&run).send().await.unwrap();
    got.json::<Value>().await.unwrap().to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn tools_reach_only_public_hosts_through_the_proxy() {
    let (Some(open), Some(closed)) = (HttpProxy::start(None), HttpProxy::start(Some(LOGIN))) else { return };
    let site = ModelServer::start(|call| match call.path.as_str() {
        "/moved" => RawReply::json(&json!({})).status(302).header("location", "http://169.254.169.254/latest"),
        "/named" => RawReply::json(&json!({})).status(302).header("location", "http://metadata.internal/latest"),
        _ => RawReply::json(&json!({"hello": "tool"})),
    });
    let port = site.address().port();
    let hosts = format!("http_client.allow_hosts=*:{port}, *");
    let up = Up::start_with(&[&hosts, &format!("http_client.proxy={}", open.url(""))]);
    let get = async |url: String| run(&up, "v/ops/http/get", json!({"url": url})).await;
    let answer = get(format!("http://site.proxied.example:{port}/x")).await;
    assert!(answer.contains(r#"{"hello":"tool"}"#), "{answer}");
    // It logs a request when its connection is over.
    until("the proxy has logged it", async || open.log().contains("GET site.proxied.example")).await;

    let (asked, seen) = (site.calls().len(), open.log().len());
    for url in [
        format!("http://127.0.0.1:{port}/x"),
        format!("http://localhost:{port}/x"),
        format!("http://[::ffff:127.0.0.1]:{port}/x"),
        "http://10.0.0.7/x".to_owned(),
    ] {
        let answer = get(url.clone()).await;
        assert!(answer.contains("not a public address"), "{url}: {answer}");
    }
    for url in ["http://metadata/x", "http://metadata.internal/x", "http://x.svc.cluster.local./x"] {
        let answer = get(url.to_owned()).await;
        assert!(answer.contains("is a name of private networks"), "{url}: {answer}");
    }
    assert_eq!((site.calls().len(), &open.log()[seen..]), (asked, ""), "none of these was sent");
    for (path, expected) in [("moved", "not a public address"), ("named", "is a name of private networks")] {
        let answer = get(format!("http://site.proxied.example:{port}/{path}")).await;
        assert!(answer.contains(expected), "{path}: {answer}");
    }
    assert!(!open.log().contains("latest"));

    let up = Up::start_with(&[&hosts, &format!("http_client.proxy={}", closed.url("worker:hunter22@"))]);
    for url in [format!("http://site.proxied.example:{port}/x"), format!("https://site.proxied.example:{port}/x")] {
        let answer = run(&up, "v/ops/http/get", json!({"url": url})).await;
        assert!(answer.contains("the proxy of `http_client.proxy` refuses its login"), "{answer}");
        assert!(!answer.contains("hunter"), "{answer}");
    }
    assert!(!up.process.log().contains("hunter"), "{}", up.process.log());
    let shown = up.run(&["config", "show", "--set", "http_client.proxy=http://worker:hunter2@p:1"]).ok();
    assert!(shown.contains("http://***@p:1") && !shown.contains("hunter"), "{shown}");
}
