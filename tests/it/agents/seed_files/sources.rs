//! Configurations as the sources write them, in the formats that they use: applied by the binary, and a task each.

use crate::support::cli::{Process, Up};
use crate::support::model_server::ModelServer;
use crate::support::provider::{ProviderServer, answer};
use serde_json::{Value, json};

/// What a model of any name answers.
const RULES: &str = r#"
[[rule]]
when = { prompt = "Analyze the sentiment" }
then = { text = "```json\n{\"sentiment\": \"positive\", \"confidence\": 0.9}\n```" }

[[rule]]
when = { prompt = "You are Alice" }
then = { text = "{\"vendor_name\": \"ACME\", \"total_amount\": 12.5}" }

[[rule]]
then = { text = "done" }
"#;

/// An example: file, text, what its task returns, what its prompt shows.
type Example = (&'static str, &'static str, Value, &'static [&'static str]);

fn examples() -> Vec<Example> {
    vec![
        (
            "support-with-memory.yaml",
            AGNTZ_MEMORY,
            json!("done"),
            &["Help the user. Use memory only when it is relevant."],
        ),
        ("memrez-support.yaml", AGNTZ_PRELOAD, json!("done"), &["Use durable memory"]),
        ("sentiment-analyzer.yaml", AGNTZ_TYPED, json!({"sentiment": "positive", "confidence": 0.9}), &["Analyze"]),
        ("Alice.json", COVIA_ALICE, json!({"vendor_name": "ACME", "total_amount": 12.5}), &["You are Alice"]),
        ("Helper.json", COVIA_CALL, json!("done"), &["You are Helper."]),
        (
            "buyer.json",
            COVIA_PAGE,
            json!("done"),
            &["[Context: Company Policy", "## Covia Lattice", "- crud on w/enrichments/"],
        ),
        ("reader.json", COVIA_TEMPLATE, json!("done"), &["You are a data analysis agent"]),
        ("mailer.yaml", PLATOS_YAML, json!("done"), &["Say hello."]),
        ("mailer-too.json", PLATOS_JSON, json!("done"), &["Say hello."]),
        ("orchestrator.json", IDEALIC, json!("done"), &["You orchestrate."]),
    ]
}

/// `agntz-context-and-resources`, "Resources".
const AGNTZ_MEMORY: &str = "id: support-with-memory
kind: llm
model:
  provider: openai
  name: gpt-5.4
instruction: |
  Help the user. Use memory only when it is relevant.
resources:
  memory:
    mode: read-write
    autoScan: true
";

/// agntz's schema of resources, with everything that a memory takes.
const AGNTZ_PRELOAD: &str = "id: memrez-support
name: memrez Support Example
kind: llm
model: { provider: openai, name: gpt-5.6-sol, temperature: 0.2 }
instruction: |
  Help the user. Use durable memory when it is relevant.
resources:
  memory:
    mode: read-write
    autoScan: true
    preload:
      core: true
      topics: [goals, equipment]
      limit: 30
      maxChars: 10000
      types: [fact, preference, summary]
    writePolicy:
      descendants: true
      ancestorPromotion: none
maxSteps: 12
";

const AGNTZ_TYPED: &str = "# LLM agent with structured output
id: sentiment-analyzer
name: Sentiment Analyzer
description: Analyzes the sentiment of text
kind: llm
model:
  provider: openai
  name: gpt-5.6-luna
instruction: |
  Analyze the sentiment of the following text and respond with a JSON object.
outputSchema:
  sentiment:
    type: string
    enum: [positive, negative, neutral]
  confidence: number
";

/// Covia's demo of invoices.
const COVIA_ALICE: &str = r#"{
  "operation": "v/ops/goaltree/chat",
  "state": { "config": {
    "llmOperation": "v/ops/langchain/openai",
    "model": "gpt-5.4-mini",
    "defaultTools": false,
    "caps": [],
    "systemPrompt": "You are Alice, an AP Invoice Scanner.",
    "responseFormat": {
      "name": "InvoiceExtraction",
      "schema": {
        "type": "object",
        "properties": { "vendor_name": { "type": "string" }, "total_amount": { "type": "number" } },
        "required": ["vendor_name", "total_amount"],
        "additionalProperties": false
      }
    }
  }}
}"#;

/// A file of Covia's demo is a whole call of `agent/create`.
const COVIA_CALL: &str = r#"{
  "agentId": "Helper",
  "overwrite": true,
  "config": { "operation": "v/ops/goaltree/chat" },
  "state": { "config": {
    "llmOperation": "v/ops/langchain/openai", "model": "gpt-5.4-mini", "defaultTools": false,
    "systemPrompt": "You are Helper."
  }}
}"#;

/// `covia-tools-and-context`: tools, context and capabilities of the page in one agent.
const COVIA_PAGE: &str = r#"{
  "model": "gpt-5.4-mini",
  "tools": [
    "v/ops/covia/read",
    "v/ops/covia/write",
    { "operation": "v/ops/http/get", "name": "fetch_url", "description": "Fetch a web page" }
  ],
  "context": [
    { "ref": "w/docs/policy", "label": "Company Policy" },
    { "ref": "w/vendor-records/acme", "label": "ACME Vendor Record" }
  ],
  "caps": [
    { "with": "w/vendor-records/", "can": "crud/read" },
    { "with": "w/enrichments/", "can": "crud" }
  ],
  "state": { "context": [{ "op": "v/ops/covia/list", "input": { "path": "w/vendors" }, "label": "Known Vendors" }] }
}"#;

const COVIA_TEMPLATE: &str = r#"{
  "name": "Reader Agent Template",
  "description": "Read-only data analysis.",
  "operation": "v/ops/llmagent/chat",
  "systemPrompt": "You are a data analysis agent with read-only access.",
  "llmOperation": "v/ops/langchain/openai",
  "model": "gpt-5.4-mini",
  "defaultTools": false,
  "tools": ["v/ops/covia/read", "v/ops/covia/list", "v/ops/covia/slice", "more_tools"]
}"#;

/// `platos-agent-context`, "Configure mappings" and "Inject into tool arguments".
const PLATOS_YAML: &str = "model: { provider: openai, name: gpt-5.4 }
systemPrompt: Say ${greeting}.
tools:
  - { operation: v/ops/test/echo, name: send_email, description: Sends mail }
contextMapping:
  - { key: user_id, source: session.user_id, fallback: none }
  - { key: calendar_id, source: _auto }
  - { key: region, source: _global }
  - { key: greeting, source: 'CONSTANT:hello' }
toolArgInjection:
  send_email: { from: user_email, tenant_id: tenant_id }
";

const PLATOS_JSON: &str = r#"{
  "model": {"provider": "openai", "name": "gpt-5.4"},
  "systemPrompt": "Say ${greeting}.",
  "tools": [{"operation": "v/ops/test/echo", "name": "send_email", "description": "Sends mail"}],
  "contextMapping": {
    "greeting": {"source": "CONSTANT:hello"},
    "toolArgInjection": {
      "send_email": { "from": "user_email", "tenant_id": "tenant_id" }
    }
  }
}"#;

/// `idealic-agent-scopes`: provisioned and requested scopes, a delegate with both, an activity.
const IDEALIC: &str = r#"{
  "model": "openai/gpt-5.4",
  "systemPrompt": "You orchestrate.",
  "tools": [
    { "name": "sendMessage", "description": "Sends a message.", "_scopes": { "const": ["input"] } },
    { "operation": "v/ops/test/echo", "name": "logEvent", "_scopes": { "const": ["state"] } },
    {
      "name": "summarizeArticle", "description": "Sums an article up.", "_delegate": "anonymous",
      "_scopes": { "type": "array", "items": { "enum": ["state", "input"] } }
    }
  ]
}"#;

#[test]
fn source_configurations_are_applied_unchanged_and_work() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("rules.toml"), RULES).unwrap();
    let mut mock = Process::start(dir.path(), ["mock-llm", "rules.toml", "--listen", "127.0.0.1:0"]);
    let judge = ModelServer::in_front_of_url(&mock.says("serving `rules.toml` on "));
    let address = judge.url("/v1/");
    let up = Up::start_with(&[&format!("models.endpoints.openai.base_url={address}"), "catalog.test=true"]);
    for (file, text, expected, shown) in examples() {
        up.file(file, text);
        let agent = file.rsplit_once('.').unwrap().0;
        assert_eq!(up.run(&["agent", "apply", file]).ok(), format!("{agent} created, configuration 1"), "{file}");
        let done = up.run(&["submit", agent, "go", "--wait", "--grant", "app/user/u1", "--output", "json"]).ok();
        let job: Value = serde_json::from_str(&done).unwrap_or_else(|_| panic!("{file}: {done}"));
        assert_eq!((&job["status"], &job["output"]), (&json!("COMPLETE"), &expected), "{file}: {job}");
        let turns: Value = serde_json::from_str(&up.run(&["turn", "list", agent, "--output", "json"]).ok()).unwrap();
        let name = turns["turns"][0]["name"].as_str().unwrap_or_else(|| panic!("{file}: {turns}")).to_owned();
        let prompt = up.run(&["turn", "show", &name, "--prompt"]).ok();
        for part in shown {
            assert!(prompt.contains(part), "{file}: expected `{part}` in {prompt}");
        }
        assert_eq!(up.run(&["agent", "apply", file]).ok(), format!("{agent} unchanged, configuration 1"), "{file}");
    }
}

#[test]
fn keys_without_meaning_are_refused_by_name_and_reason() {
    let up = Up::start();
    for (file, text, expected) in [
        ("pipeline.yaml", "kind: sequential\nsteps: []\n", "`pipeline.steps`: expected at least one step"),
        ("loop.yaml", "kind: loop\n", "`kind`: expected `llm`, `sequential`, `parallel` or `tool`, got \"loop\""),
        ("skilled.yaml", "kind: llm\nmodel: openai/x\nskills: [researcher]\n", "`skills` has no meaning here: "),
        (
            "local.yaml",
            "kind: llm\nmodel: openai/x\ntools:\n  - kind: local\n    tools: [calculator]\n",
            "`tools[0]`: a `local` tool is a function of an agntz process",
        ),
        (
            "callback.yaml",
            "kind: llm\nmodel: openai/x\ntools:\n  - { kind: callback, name: find_recipes, url: https://x, secret: s }\n",
            "`tools[0]`: a `callback` tool is a route of the application that calls agntz; put it behind HTTP",
        ),
        (
            "blocks.yaml",
            "kind: llm\nmodel: openai/x\ninstruction: Write. {{#if feedback}}Mind {{feedback}}.\n",
            "`systemPrompt`: expected a `{{/if}}` for each `{{#if …}}`",
        ),
        (
            "sampled.yaml",
            "kind: llm\nmodel: { provider: openai, name: x, topK: 5 }\n",
            "`model.topK` has no place here: put it into `model.extra`",
        ),
        (
            "promoted.yaml",
            "model: openai/x\nresources: { memory: { writePolicy: { ancestorPromotion: parent } } }\n",
            "expected `none`, got `parent`: a grant writes into its own scope and below it, never above",
        ),
        (
            "rag.yaml",
            "model: openai/x\nresources: { docs: { kind: rag } }\n",
            "`resources.docs`: nothing provides the kind `rag`, there are `memory` and `files`",
        ),
        ("other.json", r#"{"llmOperation": "v/test/ops/llm"}"#, "no model answers under `v/test/ops/llm`"),
        ("named.json", r#"{"model": "wonder-1"}"#, "write `PROVIDER/wonder-1` or `{provider, name}`"),
        ("state.json", r#"{"model": "gpt-5", "state": {"history": []}}"#, "`state.history`: expected `state.config`"),
    ] {
        up.file(file, text);
        up.run(&["agent", "apply", file]).expect(2, expected);
    }
}

/// The page's RAG beside its memory, with settings of its provider.
const AGNTZ_RAG: &str = "id: support-with-docs
kind: llm
model: { provider: scripted, name: docs.rules }
instruction: |
  Help the user. Look into the handbook first.
resources:
  docs:
    kind: rag
    mode: read
    preload: { topK: 3 }
    index: handbook
  memory:
    mode: read-write
";

#[tokio::test(flavor = "multi_thread")]
async fn a_manifest_of_another_kind_runs_on_the_venues_provider() {
    let server = ProviderServer::start(|message| {
        answer(&match message["operation"].as_str() {
            Some("context") => {
                json!({"text": format!("Most read: holidays ({})", message["settings"]["preload"]["topK"])})
            }
            _ => json!({"items": [{"id": "h1", "content": "28 days"}]}),
        })
    })
    .await;
    let url = format!("resources.kinds.rag.url={}", server.url());
    let operations = "resources.kinds.rag.operations=context,search,put";
    let up = Up::start_with(&[&url, operations, "resources.kinds.rag.allow_private=true"]);
    up.file("docs.rules", DOCS_RULES);
    up.file("support-with-docs.yaml", AGNTZ_RAG);
    let applied = up.run(&["agent", "apply", "support-with-docs.yaml"]).ok();
    assert_eq!(applied, "support-with-docs created, configuration 1");
    let done = up.run(&["submit", "support-with-docs", "How many?", "--wait", "--grant", "app/user/u1"]).ok();
    assert!(done.contains("28 days"), "{done}");
    let turns = up.run(&["turn", "list", "support-with-docs", "--output", "json"]).ok();
    let turns: Value = serde_json::from_str(&turns).unwrap();
    let name = turns["turns"].as_array().unwrap().last().unwrap()["name"].as_str().unwrap().to_owned();
    let prompt = up.run(&["turn", "show", &name, "--prompt"]).ok();
    for part in ["## Resource: docs", "Most read: holidays (3)", "docs_search", "memory_write"] {
        assert!(prompt.contains(part), "expected `{part}` in {prompt}");
    }
    assert!(!prompt.contains("docs_put"), "it may only be read: {prompt}");
    let (_, message) = server.asked("search").remove(0);
    assert_eq!((&message["settings"]["index"], &message["namespaces"]), (&json!("handbook"), &json!(["app/user/u1"])));
    up.file("typo.yaml", "model: openai/x\nresources: { docs: { kind: crm } }\n");
    up.run(&["agent", "apply", "typo.yaml"])
        .expect(2, "nothing provides the kind `crm`, there are `memory`, `files` and `rag`");
}

const DOCS_RULES: &str = r#"
[[rule]]
when = { turn = 1 }
then = { calls = [{ tool = "docs_search", arguments = { query = "holidays" } }] }

[[rule]]
then = { text = "{{tool_result}}" }
"#;
