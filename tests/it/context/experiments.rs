//! An experiment changes what was asked, and nothing else.

use crate::support::both_stores::{On, on_both};
use crate::support::venue::TestVenue;
use serde_json::{Value, json};
use tempfile::TempDir;
use trellis::domain::chat::{ChatMessage, ModelRequest};
use trellis::domain::event::Submission;
use trellis::domain::ids::SessionKey;
use trellis::process::clock::Clock;
use trellis::venue::ledger::experiment::{Experiment, TurnFacts, assemble_prompt};
use trellis::venue::ledger::{self, PastTurn};

on_both! {
    the_same_configuration_gives_the_same_prompt
    another_configuration_changes_what_it_says
    another_document_is_shown_wherever_it_was_read
}

const RULES: &str = r#"
[[rule]]
when = { turn = 1, text = "read" }
then = { calls = [
  { tool = "lattice_read", arguments = { path = "w/doc" } },
  { tool = "lattice_read", arguments = { path = "w/doc/deep" } },
  { tool = "lattice_read", arguments = { paths = ["w/doc", "w/plain"] } },
  { tool = "lattice_list", arguments = { path = "w/doc" } },
  { tool = "lattice_copy", arguments = { from = "w/doc", to = "w/copy" } },
] }

[[rule]]
when = { agent = "reader", turn = 2 }
then = { calls = [{ tool = "lattice_read", arguments = { path = "w/copy" } }] }

[[rule]]
when = { turn = 1, text = "find" }
then = { calls = [{ tool = "more_tools", arguments = { query = "lattice aggregate" } }] }

[[rule]]
then = { text = "{\"total\": 1}" }
"#;

struct Site {
    venue: TestVenue,
    _dir: TempDir,
}

impl Site {
    async fn new(on: On) -> Option<Self> {
        let (venue, dir) = on.venue(RULES, Clock::system()).await?;
        venue.worker();
        venue.write("w/doc", json!({"deep": "OldDeep", "side": "OldSide"})).await;
        venue.write("w/plain", json!("PlainWords")).await;
        Some(Self { venue, _dir: dir })
    }

    async fn ask(&self, agent: &str, id: &str, submission: Submission) {
        let submission = Submission { session_id: Some("s".parse().unwrap()), ..submission };
        let submitted = self.venue.arrive(agent, &format!("{agent}-{id}"), true, submission).await;
        self.venue.ended(&submitted.job.unwrap()).await;
    }

    async fn past(&self, agent: &str, turn: u64) -> Option<PastTurn> {
        let session = SessionKey { agent: agent.parse().unwrap(), session: "s".parse().unwrap() };
        ledger::load(&*self.venue.venue.store, &self.venue.owner, &session, turn).await.unwrap()
    }

    async fn experiment(&self, agent: &str, turn: u64, experiment: Experiment) -> ModelRequest {
        let facts = TurnFacts { config: Some(self.venue.record(agent).await.config), ..TurnFacts::default() };
        let inputs = self.past(agent, turn).await.unwrap().seen.unwrap().inputs.unwrap();
        assemble_prompt(&experiment.apply(inputs, &self.venue.venue.catalog.compiled_view(), &facts).unwrap().inputs)
            .unwrap()
            .request
    }
}

fn agents() -> Vec<(&'static str, Value)> {
    let typed = json!({"type": "object", "properties": {"total": {"type": "integer"}}, "required": ["total"]});
    vec![
        ("plain", json!({})),
        (
            "texts",
            json!({"systemPrompt": "Be brief, {{who}}.", "context": ["w/doc", "Literal {{who}}", "w/none", {"ref": "w/doc", "label": "Again", "budget": 300}]}),
        ),
        ("typed", json!({"outputs": {"complete": {"schema": typed}}})),
        ("sparse", json!({"outputs": {"complete": {"schema": typed}}, "defaultTools": false})),
        ("minded", json!({"resources": {"memory": {"mode": "read-write", "preload": "all"}}})),
        (
            "bound",
            json!({"caps": [{"with": "w", "can": "crud"}], "contextBudget": {"bytes": 40_000}, "strictPlaceholders": true}),
        ),
        ("finder", json!({"tools": ["more_tools", "v/ops/lattice/list"], "defaultTools": true})),
        ("tree", json!({"loop": "goalTree", "tools": ["subgoal", "compact"]})),
        ("explicit", json!({"completion": "explicit", "limits": {"turns": 3}})),
        ("called", json!({"context": [{"op": "v/ops/lattice/read", "input": {"path": "w/doc"}, "label": "Read"}]})),
    ]
}

fn requests() -> Vec<(&'static str, Submission)> {
    let schema = json!({"type": "object", "properties": {"total": {"type": "integer"}}});
    let plain = |text: &str| Submission { input: json!(text), ..Submission::default() };
    let grants = json!([{"with": "w", "can": "crud/read"}, "app/user/u1"]);
    vec![
        ("read", plain("read")),
        ("find", plain("find")),
        ("granted", Submission { context: Some(grants.as_array().unwrap().clone()), ..plain("read") }),
        ("shaped", Submission { response_schema: Some(schema), ..plain("read") }),
        ("said", Submission { session_context: json!({"who": "Ann"}).as_object().unwrap().clone(), ..plain("hello") }),
    ]
}

async fn the_same_configuration_gives_the_same_prompt(on: On) {
    let Some(site) = Site::new(on).await else { return };
    let mut compared = 0;
    for (agent, config) in agents() {
        site.venue.agent(agent, config).await;
        for (id, request) in requests() {
            site.ask(agent, id, request).await;
        }
        let file = serde_json::to_value(site.venue.record(agent).await.config).unwrap();
        let mut turn = 1;
        while let Some(past) = site.past(agent, turn).await {
            turn += 1;
            let Some(seen) = past.seen else { continue };
            let recorded = assemble_prompt(&seen.inputs.unwrap()).unwrap();
            assert_eq!(recorded.ledger.prompt, seen.ledger.prompt);
            let again = site
                .experiment(agent, turn - 1, Experiment { config: Some(file.clone()), ..Experiment::default() })
                .await;
            assert_eq!(again, recorded.request, "{agent} {}", turn - 1);
            compared += 1;
        }
    }
    assert!(compared > 50, "{compared}");
}

fn text(request: &ModelRequest) -> String {
    let texts = request.messages.iter().map(|message| match message {
        ChatMessage::User { text, .. } | ChatMessage::Assistant { text, .. } | ChatMessage::Tool { text, .. } => text,
    });
    texts.fold(request.system.clone(), |all, text| all + "\n" + text)
}

async fn another_configuration_changes_what_it_says(on: On) {
    let Some(site) = Site::new(on).await else { return };
    let config = |system: &str, tools: Value| {
        json!({"model": {"provider": "scripted", "name": "rules"}, "systemPrompt": system, "tools": tools, "defaultTools": false,
            "resources": {"memory": {"mode": "read-write", "preload": "all"}}})
    };
    site.venue.agent("one", config("Before.", json!(["more_tools"]))).await;
    let grants = json!([{"with": "w", "can": "crud/read"}, "app/user/u1"]);
    let context = Some(grants.as_array().unwrap().clone());
    site.ask("one", "find", Submission { input: json!("find"), context, ..Submission::default() }).await;
    let names = |request: &ModelRequest| request.tools.iter().map(|tool| tool.name.clone()).collect::<Vec<_>>();
    let before = assemble_prompt(&site.past("one", 2).await.unwrap().seen.unwrap().inputs.unwrap()).unwrap().request;
    assert!(names(&before).contains(&"lattice_aggregate".to_owned()), "{:?}", names(&before));
    let changed = |config: Value| Experiment { config: Some(config), ..Experiment::default() };

    let after = site.experiment("one", 2, changed(config("Beyond.", json!(["more_tools"])))).await;
    assert_eq!(text(&after), text(&before).replacen("Before.", "Beyond.", 1));
    assert_eq!(after.tools, before.tools, "what the session found and the resources stay");

    let after =
        site.experiment("one", 2, changed(config("Before.", json!(["more_tools", "v/ops/lattice/list"])))).await;
    let added: Vec<_> = names(&after).into_iter().filter(|name| !names(&before).contains(name)).collect();
    let gone: Vec<_> = names(&before).into_iter().filter(|name| !names(&after).contains(name)).collect();
    assert_eq!((added, gone), (vec!["lattice_list".to_owned()], Vec::new()));

    let after = site.experiment("one", 2, changed(config("Before.", json!([])))).await;
    let gone: Vec<_> = names(&before).into_iter().filter(|name| !names(&after).contains(name)).collect();
    assert_eq!(gone, ["more_tools"]);
}

async fn another_document_is_shown_wherever_it_was_read(on: On) {
    let Some(site) = Site::new(on).await else { return };
    let tools = json!(["v/ops/lattice/read", "v/ops/lattice/list", "v/ops/lattice/copy"]);
    let context = json!(["w/doc", {"ref": "w/doc/side", "label": "Side"}, {"op": "v/ops/lattice/read", "input": {"path": "w/doc"}, "label": "By operation"}, "w/plain"]);
    site.venue.agent("reader", json!({"tools": tools, "defaultTools": false, "context": context})).await;
    site.ask("reader", "1", Submission { input: json!("read"), ..Submission::default() }).await;
    let before = assemble_prompt(&site.past("reader", 3).await.unwrap().seen.unwrap().inputs.unwrap()).unwrap().request;
    assert!(text(&before).matches("OldDeep").count() > 4, "{}", text(&before));

    let with =
        |path: &str, value: Value| Experiment { with: [(path.to_owned(), value)].into(), ..Experiment::default() };
    let after = text(&site.experiment("reader", 3, with("w/doc", json!({"deep": "NewDeep", "side": "NewSide"}))).await);
    assert!(!after.contains("OldDeep") && !after.contains("OldSide"), "{after}");
    assert!(after.matches("NewDeep").count() >= 4 && after.contains("PlainWords"), "{after}");
    assert!(after.contains("it can't be made again with another `w/doc`"), "what was made from it says so: {after}");

    let after = text(&site.experiment("reader", 3, with("w/doc/deep", json!("NewDeep"))).await);
    assert!(!after.contains("OldDeep") && after.contains("OldSide") && after.contains("NewDeep"), "{after}");

    let inputs = site.past("reader", 3).await.unwrap().seen.unwrap().inputs.unwrap();
    let none =
        with("w/never", json!(1)).apply(inputs, &site.venue.venue.catalog.compiled_view(), &TurnFacts::default());
    assert!(none.is_err());
}
