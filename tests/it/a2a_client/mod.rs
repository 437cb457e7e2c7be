//! Agents elsewhere: a venue as a client of the Agent2Agent protocol, over real HTTP.

mod calls;
mod cards;
mod hostile;
mod killed;
mod peers;
mod sdk_server;

use crate::mcp_client::any_loopback;
use crate::support::a2a_server::A2aTestServer;
use crate::support::venue::TestVenue;
use serde_json::{Value, json};
use std::fmt::Write;
use std::sync::Arc;
use tempfile::TempDir;
use trellis::domain::context::assemble::assemble;
use trellis::domain::ids::SessionKey;
use trellis::domain::job::Job;
use trellis::domain::secret::KeyRing;
use trellis::venue::ledger;
use trellis::venue::secrets::Vault;

/// `clerk` sends its input to the agent elsewhere, and ends with what that has said; `talker` answers its question.
const RULES: &str = r#"
[[rule]]
when = { agent = "clerk", turn = 1 }
then = { calls = [{ tool = "a2a__partner", arguments = { message = "{{input}}" } }] }

[[rule]]
when = { agent = "talker", turn = 1 }
then = { calls = [{ tool = "a2a__partner", arguments = { message = "{{input}}" } }] }

[[rule]]
when = { agent = "talker", turn = 2 }
then = { calls = [{ tool = "a2a__partner", arguments = { message = "L", task = "t-1" } }] }

[[rule]]
when = { agent = "waiter", turn = 1 }
then = { calls = [{ tool = "a2a__partner", arguments = { task = "t-1" } }] }

[[rule]]
when = { text = "status=COMPLETE" }
then = { text = "later: found it" }

[[rule]]
when = { text = "status=FAILED" }
then = { text = "later: it failed" }

[[rule]]
then = { text = "told: {{tool_result}}" }
"#;

/// A venue that may call servers on this machine.
pub struct CallerSite {
    pub venue: TestVenue,
    _dir: TempDir,
}

impl CallerSite {
    pub async fn new() -> Self {
        let (mut venue, dir) = TestVenue::embedded(RULES).await;
        let inner = Arc::get_mut(&mut venue.venue).unwrap();
        inner.catalog = trellis::ops::catalog_with(true, any_loopback());
        inner.secrets = Vault::new(KeyRing::parse(&"01".repeat(32)).unwrap());
        venue.worker();
        Self { venue, _dir: dir }
    }

    /// An agent with the tool of an agent elsewhere; `more` has further settings of it.
    pub async fn agent(&self, id: &str, server: &A2aTestServer, more: Value) {
        self.venue.agent(id, partner_agent(&server.url(), more)).await;
    }
}

/// What the model was asked in the turns of a job: its messages, and the tools that it was shown.
pub async fn asked_of_model(site: &CallerSite, job: &Job) -> String {
    let key = SessionKey { agent: job.head.agent.clone(), session: job.head.session.clone() };
    let mut all = String::new();
    for record in site.venue.turns(key.agent.as_str(), key.session.as_str()).await {
        let past = ledger::load(&*site.venue.venue.store, &site.venue.owner, &key, record.turn).await.unwrap().unwrap();
        let request = assemble(&past.seen.unwrap().inputs.unwrap()).unwrap().request;
        writeln!(all, "{request:?}").unwrap();
    }
    all
}

/// The configuration of an agent with the tool of an agent elsewhere.
pub fn partner_agent(url: &str, more: Value) -> Value {
    let mut partner = json!({"name": "partner", "url": url, "timeout": 2});
    let Value::Object(more) = more else { panic!("expected a map") };
    partner.as_object_mut().unwrap().extend(more);
    json!({"a2aAgents": [partner], "tools": ["v/ops/a2a/partner/send"], "defaultTools": false})
}

/// The text that an agent has ended with.
pub fn told(job: &Job) -> String {
    let output = job.result.as_ref().and_then(|result| result.output.clone()).unwrap_or_default();
    output.as_str().map_or_else(|| output.to_string(), str::to_owned)
}
