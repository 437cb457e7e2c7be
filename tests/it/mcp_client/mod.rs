//! Tools of other servers: a venue as a client of the Model Context Protocol, over real HTTP.

mod bounds;
mod calls;
mod changes;
mod configuration;
mod conformance;
mod killed;
mod late_ends;
mod late_tasks;
mod login_server;
mod login_attacks;
mod login_renewals;
mod logins;
mod marks;
mod programs;
mod questions;
mod sdk_servers;
mod sessions;

pub use sdk_servers::{ServerProcess, installed};

use crate::support::mcp_server::McpTestServer;
use crate::support::venue::TestVenue;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use trellis::domain::hosts::HostRule;
use trellis::domain::job::Job;
use trellis::domain::mcp::server::McpServer;
use trellis::domain::secret::KeyRing;
use trellis::venue::mcp_client::{McpEndpoint, McpServers, VenueServer};
use trellis::venue::outbound::HttpPolicy;
use trellis::venue::secrets::Vault;

/// `clerk` searches and pays; `searcher` only searches, and `payer` only pays.
const RULES: &str = r#"
[[rule]]
when = { agent = "clerk", turn = 1 }
then = { calls = [{ tool = "shop__search", arguments = { q = "tea" } }] }

[[rule]]
when = { agent = "clerk", turn = 2 }
then = { calls = [{ tool = "shop__pay", arguments = { q = "tea" } }] }

[[rule]]
when = { agent = "searcher", turn = 1 }
then = { calls = [{ tool = "shop__search", arguments = { q = "tea" } }] }

[[rule]]
when = { agent = "payer", turn = 1 }
then = { calls = [{ tool = "shop__pay", arguments = { q = "tea" } }] }

[[rule]]
then = { text = "told: {{tool_result}}" }
"#;

const HUB_RULES: &str = r#"
[[rule]]
when = { turn = 1 }
then = { calls = [{ tool = "hub__ping", arguments = {} }] }

[[rule]]
then = { text = "told" }
"#;

/// A venue that may call servers on this machine.
pub struct ClientSite {
    pub venue: TestVenue,
    _dir: TempDir,
}

impl ClientSite {
    /// A venue with a worker, whose rules are these.
    pub async fn with_rules(rules: &str) -> Self {
        let (venue, dir) = TestVenue::embedded(rules).await;
        Self::of(venue, dir)
    }

    /// The same of a venue without a worker.
    pub fn of(mut venue: TestVenue, dir: TempDir) -> Self {
        let inner = Arc::get_mut(&mut venue.venue).unwrap();
        inner.catalog = trellis::ops::catalog_with(true, any_loopback());
        inner.secrets = Vault::new(KeyRing::parse(&"01".repeat(32)).unwrap());
        venue.worker();
        Self { venue, _dir: dir }
    }

    /// A venue with a catalogue that is made, and without a worker.
    pub fn with_catalog(mut venue: TestVenue, dir: TempDir) -> Self {
        let inner = Arc::get_mut(&mut venue.venue).unwrap();
        inner.secrets = Vault::new(KeyRing::parse(&"01".repeat(32)).unwrap());
        Self { venue, _dir: dir }
    }

    pub async fn new() -> Self {
        Self::with_rules(RULES).await
    }

    /// A venue whose configuration names a server; its agents call `hub__ping`.
    pub async fn hub(settings: McpServer) -> Self {
        let is_shared = settings.secrets().next().is_none();
        let endpoint = McpEndpoint::of_venue(settings, any_loopback(), None).unwrap();
        Self::with_server(VenueServer { endpoint: Arc::new(endpoint), is_shared }).await
    }

    /// The same with a server that is made.
    pub async fn with_server(server: VenueServer) -> Self {
        let servers = McpServers::new([server]);
        let (mut venue, dir) = TestVenue::embedded(HUB_RULES).await;
        let inner = Arc::get_mut(&mut venue.venue).unwrap();
        inner.catalog = trellis::ops::catalog(true).with_mcp(servers);
        inner.secrets = Vault::new(KeyRing::parse(&"01".repeat(32)).unwrap());
        venue.worker();
        Self { venue, _dir: dir }
    }

    /// An agent with the tools of a server `shop`; `more` has further settings of it.
    pub async fn agent(&self, id: &str, server: &McpTestServer, more: Value) {
        self.venue.agent(id, shop_agent(&server.url(), more)).await;
    }

    /// Outcomes of the calls of each turn of a job's session.
    pub async fn outcomes(&self, job: &Job) -> Vec<Vec<String>> {
        let turns = self.venue.turns(job.head.agent.as_str(), job.head.session.as_str()).await;
        turns.iter().map(|turn| turn.calls.iter().map(|call| call.outcome.as_str().to_owned()).collect()).collect()
    }
}

/// The configuration of an agent with all tools of a server `shop`.
pub fn shop_agent(url: &str, more: Value) -> Value {
    let mut shop = json!({"name": "shop", "url": url, "timeout": 2});
    let Value::Object(more) = more else { panic!("expected a map") };
    shop.as_object_mut().unwrap().extend(more);
    json!({"mcp": [shop], "tools": ["v/ops/mcp/shop/*"], "defaultTools": false})
}

/// A policy for calls to this machine.
pub fn any_loopback() -> HttpPolicy {
    let hosts = (1..=u16::MAX).map(|port| HostRule::parse(&format!("127.0.0.1:{port}")).unwrap()).collect();
    HttpPolicy { hosts, allow_private: true, timeout: Duration::from_secs(20), ..HttpPolicy::default() }
}

/// The text that an agent has ended with.
pub fn told(job: &Job) -> String {
    let output = job.result.as_ref().and_then(|result| result.output.clone()).unwrap_or_default();
    output.as_str().map_or_else(|| output.to_string(), str::to_owned)
}

/// Waits until something holds.
pub async fn until(what: &str, holds: impl Fn() -> bool) {
    for _ in 0..500 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("expected: {what}");
}
