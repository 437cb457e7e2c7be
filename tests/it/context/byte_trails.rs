//! `why` follows bytes: conversations that others read, copies, files of configurations, values of operators, answers,
//! and what is left of deleted sessions.

use crate::support::both_stores::{On, on_both};
use crate::support::cli::Up;
use crate::support::operate::{boss, operate};
use crate::support::redis_cluster::until;
use crate::support::venue::TestVenue;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use tempfile::TempDir;
use trellis::domain::chat::ChatMessage;
use trellis::domain::event::Submission;
use trellis::domain::ids::SessionKey;
use trellis::domain::origin::SourceRead;
use trellis::domain::session::{CallRecord, TurnRecord};
use trellis::process::clock::Clock;
use trellis::store::{DocWrite, keys};
use trellis::venue::agents;
use trellis::venue::ledger;
use trellis::venue::ledger::experiment::{Experiment, TurnFacts, assemble_prompt};
use trellis::venue::ledger::path_uses::{self, PathUse};
use trellis::venue::operation::Caller;

on_both! {
    readers_of_a_conversation_are_found
    an_answer_leads_to_whoever_asked
    a_copy_leads_on_in_every_agent_and_from_outside
    the_file_of_a_configuration_is_found
    values_of_operators_are_found_and_left_out
    a_deleted_session_leaves_its_names
    a_session_that_is_not_let_go_is_not_listed_as_removed
    copies_from_outside_are_recorded_within_the_quota
}

const RULES: &str = r#"
[[rule]]
when = { agent = "child", text = "hold" }
then = { text = "never", fault = "hang" }

[[rule]]
when = { agent = "child", turn = 1 }
then = { calls = [{ tool = "lattice_read", arguments = { path = "w/secret" } }] }

[[rule]]
when = { agent = "child" }
then = { text = "it is small" }

[[rule]]
when = { agent = "parent", turn = 1 }
then = { calls = [{ tool = "agent_request", arguments = { agentId = "child", input = "look", wait = 20000 } }] }

[[rule]]
when = { agent = "timeliner", turn = 1 }
then = { calls = [{ tool = "lattice_read", arguments = { path = "g/child/timeline" } }] }

[[rule]]
when = { agent = "sessioner", turn = 1 }
then = { calls = [{ tool = "agent_session-read", arguments = { agentId = "child", sessionId = "s" } }] }

[[rule]]
when = { agent = "previewer", turn = 1 }
then = { calls = [{ tool = "agent_context", arguments = { agentId = "holder" } }] }

[[rule]]
when = { agent = "informed", turn = 1 }
then = { calls = [{ tool = "agent_info", arguments = { agentId = "child" } }] }

[[rule]]
when = { agent = "copier", turn = 1 }
then = { calls = [{ tool = "lattice_copy", arguments = { from = "w/secret", to = "w/inside" } }] }

[[rule]]
then = { text = "done" }
"#;

const TOOLS: [&str; 7] = [
    "v/ops/lattice/read",
    "v/ops/lattice/copy",
    "v/ops/agent/request",
    "v/ops/agent/session-read",
    "v/ops/agent/context",
    "v/ops/agent/info",
    "v/ops/agent/list",
];

struct Site {
    venue: TestVenue,
    _dir: TempDir,
}

impl Site {
    async fn new(on: On) -> Option<Self> {
        let (venue, dir) = on.venue(RULES, Clock::system()).await?;
        venue.worker();
        venue.write("w/secret", json!({"words": "SecretWords"})).await;
        let site = Self { venue, _dir: dir };
        site.agent("child", json!({})).await;
        Some(site)
    }

    async fn agent(&self, name: &str, more: Value) {
        let mut config = json!({"tools": TOOLS, "defaultTools": false});
        config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        self.venue.agent(name, config).await;
    }

    /// Runs a task of an agent in its session `s`.
    async fn run(&self, agent: &str) {
        let submission =
            Submission { input: json!("go"), session_id: Some("s".parse().unwrap()), ..Submission::default() };
        let submitted = self.venue.arrive(agent, &format!("task-{agent}"), true, submission).await;
        self.venue.ended(&submitted.job.unwrap()).await;
    }

    async fn operate(&self, operation: &str, input: Value) {
        let caller = Caller { operator: true, ..boss(&self.venue.owner) };
        operate(&self.venue.venue, &caller, &format!("v/ops/{operation}"), input).await.unwrap();
    }

    async fn trace(&self, path: &str) -> Vec<PathUse> {
        let all = agents::all_ids(&self.venue.venue, &self.venue.owner).await.unwrap();
        path_uses::trace(&*self.venue.venue.store, &self.venue.owner, &all, path).await.unwrap().turns
    }

    /// How bytes of a path reached the models of an agent.
    async fn ways(&self, path: &str, agent: &str) -> Vec<(u64, String, String)> {
        let found = self.trace(path).await.into_iter().filter(|reached| reached.agent == agent);
        found.map(|reached| (reached.turn, reached.via, reached.source)).collect()
    }

    #[track_caller]
    fn has(ways: &[(u64, String, String)], turn: u64, via: &str, source: &str) {
        let found = ways.iter().any(|way| (way.0, way.1.as_str(), way.2.as_str()) == (turn, via, source));
        assert!(found, "{turn} {via} {source} in {ways:#?}");
    }
}

async fn readers_of_a_conversation_are_found(on: On) {
    let Some(site) = Site::new(on).await else { return };
    site.run("child").await;
    for agent in ["timeliner", "sessioner", "previewer", "informed"] {
        site.agent(agent, json!({})).await;
    }
    site.agent("holder", json!({"context": ["w/secret"]})).await;
    for agent in ["timeliner", "sessioner", "previewer", "informed"] {
        site.run(agent).await;
    }
    Site::has(&site.ways("w/secret", "timeliner").await, 1, "tool lattice_read", "g/child/timeline");
    Site::has(&site.ways("w/secret", "sessioner").await, 1, "tool agent_session-read", "g/child/sessions/s");
    Site::has(&site.ways("w/secret", "previewer").await, 1, "tool agent_context", "w/secret");
    assert_eq!(site.ways("w/secret", "informed").await, [], "what an agent is says nothing of what it has read");
    assert_eq!(site.ways("w/other", "timeliner").await, []);
}

async fn an_answer_leads_to_whoever_asked(on: On) {
    let Some(site) = Site::new(on).await else { return };
    site.agent("parent", json!({})).await;
    site.run("parent").await;
    let ways = site.ways("w/secret", "parent").await;
    let reads = ways.iter().filter(|(turn, via, source)| {
        (*turn, via.as_str()) == (1, "tool agent_request") && source.starts_with("j/") && source.ends_with("/output")
    });
    assert_eq!(reads.count(), 1, "{ways:#?}");
    assert!(ways.iter().any(|(turn, via, _)| (*turn, via.as_str()) == (2, "answer")), "and on from it: {ways:#?}");
    let own = site.ways("w/secret", "child").await;
    assert!(own.iter().all(|(turn, via, _)| via != "answer" || *turn == 2), "{own:#?}");
}

async fn a_copy_leads_on_in_every_agent_and_from_outside(on: On) {
    let Some(site) = Site::new(on).await else { return };
    site.agent("copier", json!({})).await;
    site.run("copier").await;
    site.operate("lattice/copy", json!({"from": "w/secret", "to": "w/outside"})).await;
    site.operate("lattice/copy", json!({"from": "w/outside", "to": "w/further"})).await;
    site.venue.write("w/unrelated", json!("plain")).await;
    site.agent("reader", json!({"context": ["w/inside", "w/further", "w/unrelated"]})).await;
    site.run("reader").await;
    let ways = site.ways("w/secret", "reader").await;
    Site::has(&ways, 1, "context/w/inside", "w/inside");
    Site::has(&ways, 1, "context/w/further", "w/further");
    assert!(ways.iter().all(|(_, via, _)| via != "context/w/unrelated"), "{ways:#?}");
    let copies = site.trace("w/secret").await.into_iter().filter(|reached| reached.agent.is_empty());
    let copies: Vec<_> = copies.map(|reached| (reached.source, reached.into.unwrap())).collect();
    assert!(copies.contains(&("w/secret".into(), "w/outside".into())), "{copies:?}");

    // An experiment without the path has none of the copies.
    let session = SessionKey { agent: "reader".parse().unwrap(), session: "s".parse().unwrap() };
    let all = agents::all_ids(&site.venue.venue, &site.venue.owner).await.unwrap();
    let (store, paths) = (&*site.venue.venue.store, ["w/secret".to_owned()]);
    let found = path_uses::trace_copies(store, &site.venue.owner, &all, &paths, &session, 1).await.unwrap();
    assert!(found.incomplete.is_empty(), "{found:?}");
    let facts = TurnFacts { copies: found.places, ..TurnFacts::default() };
    let text =
        prompt(&site, "reader", 1, &Experiment { without: vec!["w/secret".into()], ..Experiment::default() }, &facts)
            .await;
    assert!(!text.contains("SecretWords") && text.contains("plain"), "{text}");
}

async fn prompt(site: &Site, agent: &str, turn: u64, experiment: &Experiment, facts: &TurnFacts) -> String {
    let session = SessionKey { agent: agent.parse().unwrap(), session: "s".parse().unwrap() };
    let past = ledger::load(&*site.venue.venue.store, &site.venue.owner, &session, turn).await.unwrap().unwrap();
    let inputs = past.seen.unwrap().inputs.unwrap();
    let inputs = experiment.apply(inputs, &site.venue.venue.catalog.compiled_view(), facts).unwrap().inputs;
    serde_json::to_string(&assemble_prompt(&inputs).unwrap().request).unwrap()
}

async fn the_file_of_a_configuration_is_found(on: On) {
    let Some(site) = Site::new(on).await else { return };
    let config = json!({"systemPrompt": "FromTheFile", "model": {"provider": "scripted", "name": "rules"}});
    site.venue.write("w/files/made", config).await;
    site.operate("agent/create", json!({"agentId": "made", "config": "w/files/made"})).await;
    site.run("made").await;
    Site::has(&site.ways("w/files/made", "made").await, 1, "system", "g/made/config");
    assert_eq!(site.ways("w/files/made", "child").await, []);
}

async fn values_of_operators_are_found_and_left_out(on: On) {
    let Some(site) = Site::new(on).await else { return };
    site.operate(
        "lattice/write",
        json!({"path": "v/context/project", "value": {"city": "OsloWords", "land": "Norway", "eu.vat": "VatWords"}}),
    )
    .await;
    let mapping = json!({"name": "project.land"});
    site.agent("greeter", json!({"systemPrompt": "In {{city}}, {{name}}. {{eu.vat}}", "contextMapping": mapping}))
        .await;
    site.run("greeter").await;
    Site::has(&site.ways("v/context/project", "greeter").await, 1, "placeholder city", "v/context/project/city");
    Site::has(
        &site.ways("v/context/project/eu.vat", "greeter").await,
        1,
        "placeholder eu.vat",
        "v/context/project/eu.vat",
    );
    Site::has(&site.ways("v/context/project/land", "greeter").await, 1, "placeholder name", "v/context/project/land");
    for path in ["town", "eu", "name"] {
        assert_eq!(site.ways(&format!("v/context/project/{path}"), "greeter").await, [], "{path}");
    }
    let facts = TurnFacts::default();
    let experiment = |without: &str| Experiment { without: vec![without.into()], ..Experiment::default() };
    let text = prompt(&site, "greeter", 1, &experiment("v/context/project/city"), &facts).await;
    assert!(!text.contains("OsloWords") && text.contains("Norway"), "{text}");
    let text = prompt(&site, "greeter", 1, &experiment("v/context/project"), &facts).await;
    assert!(!text.contains("OsloWords") && !text.contains("Norway"), "{text}");
    let with = [("v/context/project".to_owned(), json!({"city": "BergenWords"}))].into();
    let text = prompt(&site, "greeter", 1, &Experiment { with, ..Experiment::default() }, &facts).await;
    assert!(text.contains("In BergenWords, ."), "{text}");
    let with = [("v/context/project/eu.vat".to_owned(), json!("NewWords"))].into();
    let text = prompt(&site, "greeter", 1, &Experiment { with, ..Experiment::default() }, &facts).await;
    assert!(text.contains("Norway. NewWords"), "{text}");
}

async fn a_deleted_session_leaves_its_names(on: On) {
    let Some(site) = Site::new(on).await else { return };
    site.agent("parent", json!({})).await;
    site.run("parent").await;
    site.run("child").await;
    let before = site.trace("w/secret").await;
    let sessions: BTreeSet<_> = before.iter().map(|reached| (reached.agent.clone(), reached.session.clone())).collect();
    assert!(sessions.len() > 2, "{sessions:?}");
    for (agent, session) in sessions {
        site.operate("agent/delete-session", json!({"agentId": agent, "sessionId": session})).await;
    }
    let after = site.trace("w/secret").await;
    assert_eq!(plain(&after), plain(&before));
    assert!(after.iter().all(|reached| reached.removed.is_some()), "{after:#?}");
}

/// What is known of a path, as if nothing of it had been removed.
fn plain(found: &[PathUse]) -> Vec<PathUse> {
    let mut found: Vec<_> = found.iter().map(|reached| PathUse { removed: None, ..reached.clone() }).collect();
    found.sort();
    found
}

/// Turns of a session that have read a path, in the store alone.
async fn write_turns(site: &Site, session: &SessionKey, numbers: std::ops::Range<u64>) {
    let call = CallRecord {
        tool: "lattice_read".into(),
        operation: "v/ops/lattice/read".into(),
        outcome: "ok".into(),
        reads: Some(vec![SourceRead::new("w/secret")]),
        ..CallRecord::default()
    };
    let said = vec![ChatMessage::Tool { call: "c".into(), name: "lattice_read".into(), text: "1".into() }];
    let record = |turn| TurnRecord { turn, said: said.clone(), calls: vec![call.clone()], ..TurnRecord::default() };
    let writes: Vec<_> = numbers.map(|turn| DocWrite::json(keys::turn(session, turn), &record(turn))).collect();
    for writes in writes.chunks(500) {
        let (venue, owner) = (&site.venue.venue, &site.venue.owner);
        venue.store.write(venue.now(), owner, writes).await.unwrap();
    }
}

async fn a_session_that_is_not_let_go_is_not_listed_as_removed(on: On) {
    let Some(site) = Site::new(on).await else { return };
    site.run("child").await;
    let session = SessionKey { agent: "child".parse().unwrap(), session: "s".parse().unwrap() };
    let (venue, owner) = (&site.venue.venue, &site.venue.owner);
    let submission =
        Submission { input: json!("hold"), session_id: Some("s".parse().unwrap()), ..Submission::default() };
    site.venue.arrive("child", "hold", false, submission).await;
    let is_held = async || {
        let sessions = venue.store.sessions(owner, Some(&session.agent), None, 9).await.unwrap();
        sessions.iter().any(|facts| facts.lease_until.is_some())
    };
    until("a turn holds the session", is_held).await;
    let delete = async || {
        let caller = Caller { operator: true, ..boss(owner) };
        let session = json!({"agentId": "child", "sessionId": "s"});
        operate(venue, &caller, "v/ops/agent/delete-session", session).await
    };
    let before = site.trace("w/secret").await;
    for _ in 0..2 {
        let error = delete().await.unwrap_err().to_string();
        assert!(error.contains("session"), "{error}");
        assert_eq!(site.trace("w/secret").await, before, "it is as it was");
    }
    // Of a long one, turns go before it is known that it stays: those alone are listed so.
    write_turns(&site, &session, 10..1_700).await;
    let before = site.trace("w/secret").await;
    delete().await.unwrap_err();
    let after = site.trace("w/secret").await;
    let kept = venue.store.scan(owner, &keys::turns(&session), None, false, 9_999).await.unwrap();
    let kept: BTreeSet<u64> = kept.iter().filter_map(|(key, _)| keys::number_of_turn(key)).collect();
    assert!(!kept.is_empty() && kept.len() < 1_690, "{} turns stay", kept.len());
    let turns = |found: &[PathUse], is: &dyn Fn(&PathUse) -> bool| -> BTreeSet<u64> {
        found.iter().filter(|reached| is(reached)).map(|reached| reached.turn).collect()
    };
    let gone = turns(&before, &|reached| !kept.contains(&reached.turn));
    let removed = turns(&after, &|reached| reached.removed.is_some());
    assert!(removed == gone, "{} turns are listed as removed, {} are", removed.len(), gone.len());
}

async fn copies_from_outside_are_recorded_within_the_quota(on: On) {
    let Some(site) = Site::new(on).await else { return };
    let (store, owner) = (&site.venue.venue.store, &site.venue.owner);
    let limit = store.usage(owner).await.unwrap().used.documents + 8;
    site.operate("quota/set", json!({"documents": limit})).await;
    for n in 0..12 {
        let to = format!("w/copy{n}");
        site.operate("lattice/copy", json!({"from": "w/secret", "to": to})).await;
        site.operate("lattice/delete", json!({"path": to})).await;
    }
    let copies = site.trace("w/secret").await.into_iter().filter(|reached| reached.agent.is_empty());
    assert!((1..12).contains(&copies.count()), "those that there was room for");
}

#[test]
fn the_command_takes_paths_of_resources() {
    let up = Up::start();
    assert_eq!(up.run(&["why", "r/app/u1"]).ok(), "no turn has shown `r/app/u1` to a model");
}
