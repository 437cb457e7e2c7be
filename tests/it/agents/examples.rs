//! The files of `config/examples` are legal, and the agents decide by them as the policy says.

use crate::support::venue::TestVenue;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;
use trellis::bus::embedded::EmbeddedBus;
use trellis::domain::agent::AgentConfig;
use trellis::domain::agent::tool::ToolEntry;
use trellis::domain::ids::SessionKey;
use trellis::domain::job::{Job, JobStatus};
use trellis::domain::lattice;
use trellis::model::rules::ScriptRules;
use trellis::process::clock::Clock;
use trellis::store::embedded::EmbeddedStore;
use trellis::store::keys;
use trellis::venue::workspace::{Workspace, WriteOp};

const AGENTS: [&str; 2] = ["accounts-payable", "vendor-enrichment"];

fn file(name: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("config/examples").join(name)).unwrap()
}

fn agent(name: &str) -> Value {
    toml::from_str(&file(&format!("{name}.toml"))).unwrap()
}

fn seed() -> BTreeMap<String, Value> {
    serde_json::from_str(&file("seed.json")).unwrap()
}

/// What the policy says of an invoice, computed from the seed.
fn by_policy(seed: &BTreeMap<String, Value>, invoice: &Value) -> &'static str {
    let vendor = invoice["vendor"].as_str().unwrap();
    let total = invoice["total"].as_f64().unwrap();
    let paid = seed["w/ledger"].as_array().unwrap();
    let same = |line: &Value| ["vendor", "vendorReference"].into_iter().all(|key| line[key] == invoice[key]);
    let found = seed["w/vendors"].get(vendor).map(|vendor| vendor["standing"].as_str().unwrap());
    match found.or(seed["w/registry"].get(vendor).map(|_| "new")) {
        _ if paid.iter().any(same) => "rejected",
        None | Some("on-hold") => "held",
        Some("new") if total > 1_000.0 => "escalated",
        Some(_) if total > 10_000.0 => "escalated",
        Some(_) => "approved",
    }
}

fn tree(venue: &TestVenue) -> Workspace {
    Workspace::new(venue.venue.store.clone(), venue.owner.clone(), lattice::layout::Scope::default())
}

/// The workspace of seed.json, both agents, a worker that plays by `rules`.
async fn office(dir: &Path, rules: &str) -> TestVenue {
    let store = EmbeddedStore::open(&dir.join("data")).unwrap();
    let bus = EmbeddedBus::new(store.clone(), Duration::from_secs(30), Clock::system()).unwrap();
    let venue = TestVenue::new(store, std::sync::Arc::new(bus), dir, rules).await;
    for (path, value) in seed() {
        let path = lattice::Path::parse(&path).unwrap();
        tree(&venue).apply_now(venue.venue.now(), &WriteOp::Write { path, value, expect: None }).await.unwrap();
    }
    for name in AGENTS {
        venue.agent(name, agent(name)).await;
    }
    venue.worker();
    venue
}

async fn read(venue: &TestVenue, path: &str) -> Value {
    tree(venue).get(&lattice::Path::parse(path).unwrap()).await.unwrap().unwrap_or_default()
}

async fn turns(venue: &TestVenue, job: &Job) -> usize {
    let key = SessionKey { agent: job.head.agent.clone(), session: job.head.session.clone() };
    venue.venue.store.scan(&venue.owner, &keys::turns(&key), None, false, 100).await.unwrap().len()
}

fn text(job: &Job) -> String {
    let result = job.result.as_ref().unwrap();
    assert_eq!(job.status, JobStatus::Complete, "{result:?}");
    result.output.as_ref().unwrap().as_str().unwrap().to_owned()
}

#[test]
fn agent_files_name_operations_of_the_catalog() {
    let catalog = trellis::ops::catalog(false).compiled_view();
    for name in AGENTS {
        let config = AgentConfig::parse(&agent(name)).unwrap();
        for tool in &config.tools {
            let ToolEntry::Path(path) = tool else { panic!("{tool:?}") };
            assert!(catalog.resolve(path).is_some(), "{path}");
        }
        assert!(config.caps.is_some(), "an example of least authority");
    }
}

#[test]
fn the_seed_has_legal_paths_and_every_kind_of_case() {
    let seed = seed();
    for path in seed.keys() {
        assert_eq!(lattice::Path::parse(path).unwrap().to_string(), *path);
    }
    let invoices = seed["w/invoices"].as_object().unwrap();
    let decisions: Vec<_> = invoices.values().map(|invoice| by_policy(&seed, invoice)).collect();
    assert_eq!(decisions, ["approved", "approved", "escalated", "approved", "rejected", "held"]);
    for (id, invoice) in invoices {
        let lines = invoice["lines"].as_array().unwrap();
        let sum: f64 = lines.iter().map(|l| l["quantity"].as_f64().unwrap() * l["unitPrice"].as_f64().unwrap()).sum();
        assert!((sum - invoice["total"].as_f64().unwrap()).abs() < 0.005, "{id}");
    }
}

#[test]
fn rules_files_parse() {
    for name in ["demo-rules.toml", "scripted.toml"] {
        ScriptRules::parse(&file(name)).unwrap();
    }
}

#[tokio::test]
async fn every_invoice_is_decided_as_the_policy_says() {
    let dir = tempfile::tempdir().unwrap();
    let venue = office(dir.path(), &file("demo-rules.toml")).await;
    let seed = seed();
    let invoices = seed["w/invoices"].as_object().unwrap();
    let jobs = invoices.iter().map(|(id, invoice)| {
        let input = json!({"invoice": id, "vendor": invoice["vendor"]});
        let venue = &venue;
        async move { venue.run("accounts-payable", id, input).await }
    });
    let jobs = futures::future::join_all(jobs).await;
    for ((id, invoice), job) in invoices.iter().zip(&jobs) {
        let decision = by_policy(&seed, invoice);
        assert_eq!(read(&venue, &format!("w/decisions/{id}/decision")).await, decision, "{id}");
        assert!(text(job).starts_with(&format!("{id} is {decision}: ")), "{}", text(job));
        let turns = turns(&venue, job).await;
        assert!((3..=6).contains(&turns), "{id} took {turns} turns");
    }
    assert_eq!(read(&venue, "w/vendors/delta-catering/name").await, "Delta Catering e.K.");
    assert_eq!(read(&venue, "w/ledger").await.as_array().unwrap().len(), 2 + invoices.len());
}

#[tokio::test]
async fn an_unknown_vendor_is_paused_and_a_slow_lookup_parks() {
    let dir = tempfile::tempdir().unwrap();
    let rules = file("demo-rules.toml").replace("input = { vendor", "wait = 0, input = { vendor");
    let venue = office(dir.path(), &rules).await;
    let input = |vendor: &str| json!({"invoice": "INV-2000", "vendor": vendor});
    let job = venue.run("accounts-payable", "unknown", input("nobody-ltd")).await;
    assert!(text(&job).starts_with("INV-2000 is held: neither our records"), "{}", text(&job));
    let job = venue.run("accounts-payable", "found", input("delta-catering")).await;
    assert!(text(&job).starts_with("INV-2000 is approved: Delta Catering e.K. is a new vendor"), "{}", text(&job));
}
