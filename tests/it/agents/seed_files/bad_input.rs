//! Wrong input, each with the text that somebody sees: refused, or reported in the ledger by name.

use super::*;
use crate::support::cli::Up;

#[test]
fn a_configuration_that_is_wrong_is_refused_and_names_the_place() {
    let up = Up::start();
    let row = |row: Value| json!({"contextMapping": [{"key": "a", "source": "b"}, row]});
    let bad = |entry: Value| json!({"context": ["fine", entry]});
    for (config, words) in [
        (bad(json!(7)), "`context[1]`: expected a map with `"),
        (bad(json!({"rfe": "w/x"})), "`context[1]`: unknown field `rfe`"),
        (bad(json!({"label": "x"})), "`context[1]`: expected one of `op`, `job`, `text` and `ref`"),
        (bad(json!({"ref": "w/../s"})), "`context[1]`: `ref`: "),
        (bad(json!({"text": "t", "budget": 0})), "`context[1]`: `budget`: expected 1 to 4000000 bytes, got 0"),
        (bad(json!({"text": "t", "budget": 4_000_001})), "`budget`: expected 1 to 4000000 bytes, got 4000001"),
        (
            bad(json!({"text": "t", "budget": "much"})),
            "`context[1].budget`: expected a whole number of at least 0, got text \"much\"",
        ),
        (json!({"contextBudget": {"bytes": 0}}), "`contextBudget"),
        (json!({"contextBudget": {"bytes": 4_000_001}}), "`contextBudget"),
        (json!({"contxt": []}), "unknown key `contxt`, did you mean `context`"),
        (json!({"contextMapping": 7}), "`contextMapping`: expected "),
        (row(json!({"key": 7, "source": "b"})), "`contextMapping[1]"),
        (row(json!({"key": "c", "source": ["b"]})), "`contextMapping[1].source`: "),
        (row(json!("c")), "`contextMapping[1]`: expected a row `{key, source, fallback?}`, got string"),
        (row(json!({"key": "c", "source": "_glob"})), "`contextMapping[1].source`: unknown source"),
        (json!({"toolArgInjection": {"t": {"a": 1}}}), "`toolArgInjection.t.a`: expected a key, got number"),
    ] {
        let mut config = config;
        config["model"] = json!({"provider": "scripted", "name": "echo"});
        up.file("bad.json", &config.to_string());
        let done = up.run(&["agent", "apply", "bad.json"]);
        assert!(done.code != 0 && done.err.contains(words), "{config}: expected `{words}`, got {done:#?}");
        assert!(done.err.contains("bad.json") || done.err.contains("`bad`"), "{done:#?}");
    }
}

fn done() -> Value {
    json!([{"then": {"text": "done"}}])
}

#[tokio::test(flavor = "multi_thread")]
async fn recursive_and_writing_entries_are_reported_in_the_turn() {
    let dir = tempfile::tempdir().unwrap();
    let venue = venue(dir.path(), &done()).await;
    let mut cycle = json!({"operation": "job/run", "input": {}});
    for _ in 0..8 {
        cycle = json!({"operation": "job/run", "input": cycle});
    }
    let ask_self = json!({"agentId": "loop", "input": "again"});
    let config = json!({"context": [
        {"op": "v/ops/agent/request", "input": ask_self, "label": "itself"},
        {"op": "job/run", "input": {"operation": "agent/request", "input": ask_self}, "label": "itself again"},
        {"op": "job/run", "input": cycle, "label": "round"},
        {"op": "lattice/read", "input": {"path": "g/loop/config/context"}, "label": "config"},
        {"op": "lattice/read", "input": {"path": 7}, "label": "wrong input"},
    ]});
    venue.agent("loop", config).await;
    let job = ask(&venue, "loop", "t1", json!({})).await;
    assert_eq!(output(&job), "done");
    let (prompt, _, ledger) = saw(&venue, &job, 1).await;
    let acts = "only operations that read can be context: it would run again in every turn";
    for (label, reason) in [
        ("itself", acts),
        ("itself again", acts),
        ("round", "nested more than 5 times"),
        ("wrong input", "arguments of `v/ops/lattice/read` are not valid: at `/path`"),
    ] {
        let row = row(&ledger, &format!("context/{label}"));
        assert_eq!(row.status.as_str(), "failed", "{row:?}");
        has(row.reason.as_deref().unwrap_or_default(), &[reason]);
        has(&prompt, &[&format!("[Context: {label} — unavailable: ")]);
    }
    has(&prompt, &["[Context: config]\n{exists: true"]);
    let jobs = operate(&venue, "lattice/list", json!({"path": "j"})).await;
    assert_eq!(jobs["count"], 1, "no entry has submitted anything: {jobs}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_binary_asset_is_described_by_its_type_and_size() {
    let dir = tempfile::tempdir().unwrap();
    let venue = venue(dir.path(), &done()).await;
    let store = async |asset: Value| operate(&venue, "asset/store", asset).await["path"].as_str().unwrap().to_owned();
    let bytes = store(json!({"contentBase64": "YWL/", "contentType": "application/pdf"})).await;
    let told = store(json!({"contentBase64": "YWL+/w==", "description": "a scan of the contract"})).await;
    let text = store(json!({"content": "# Terms", "contentType": "text/markdown"})).await;
    let context = json!([bytes, {"ref": told, "label": "scan"}, {"ref": text, "label": "terms"}]);
    venue.agent("viewer", json!({"context": context})).await;
    let job = ask(&venue, "viewer", "t1", json!({})).await;
    assert_eq!(output(&job), "done");
    let (prompt, _, ledger) = saw(&venue, &job, 1).await;
    let reason = "the content is not UTF-8 from byte 2 on (application/pdf, 3 bytes), and it has no description";
    let unavailable = format!("[Context: {bytes} — unavailable: {reason}]");
    has(&prompt, &["[Context: scan]\na scan of the contract", "[Context: terms]\n# Terms", &unavailable]);
    assert_eq!(row(&ledger, &format!("context/{bytes}")).status.as_str(), "failed");
}

#[tokio::test(flavor = "multi_thread")]
async fn loads_beyond_the_limit_are_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let call = |n: usize| json!({"tool": "context_load", "arguments": {"path": format!("w/p/{n}"), "budget": 0}});
    let rule = |agent: &str, turn: usize, loads: std::ops::Range<usize>| {
        let calls: Vec<_> = loads.map(call).collect();
        json!({"when": {"agent": agent, "turn": turn}, "then": {"calls": calls}})
    };
    let rules = json!([
        rule("greedy", 1, 0..60),
        rule("greedy", 2, 60..120),
        rule("mad", 1, 0..8_000),
        {"then": {"text": "{{tool_result}}"}},
    ]);
    let venue = venue(dir.path(), &rules).await;
    // An agent that names no tool is offered none, `context_load` neither.
    let loads = json!({"tools": ["v/ops/lattice/read"], "defaultTools": false});
    venue.agent("greedy", loads.clone()).await;
    venue.agent("mad", loads).await;
    let job = ask(&venue, "mad", "t0", json!({})).await;
    has(
        output(&job).as_str().unwrap(),
        &["of the 8000 calls of this reply the first 127 were made", "a reply makes at most 128 calls"],
    );
    let job = ask(&venue, "greedy", "t1", json!({})).await;
    assert_eq!(output(&job), "error: 100 paths are loaded already; unload one first (context_unload)");
    let (_, _, ledger) = saw(&venue, &job, 3).await;
    let loads: Vec<_> = ledger.rows.iter().filter(|row| row.key.starts_with("loads/")).collect();
    assert_eq!((loads.len(), loads[0].asked), (100, 256));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_huge_value_is_cut_where_it_is_inserted_and_reported() {
    let dir = tempfile::tempdir().unwrap();
    let venue = venue(dir.path(), &done()).await;
    write(&venue, "v/context/project", json!({"huge": "é".repeat(60_000), "list": vec![7; 40_000]})).await;
    venue
        .agent(
            "filled",
            json!({"systemPrompt": "A ${huge} B ${list} C", "context": [
                {"text": "x", "label": "${huge}"}, {"op": "test/echo", "input": {"of": "${huge}"}, "label": "echoed"},
            ]}),
        )
        .await;
    let job = ask(&venue, "filled", "t1", json!({})).await;
    assert_eq!(output(&job), "done", "{:?}", job.result);
    let (prompt, _, ledger) = saw(&venue, &job, 1).await;
    has(&prompt, &["A éé", " B [7, 7", " C"]);
    has(
        row(&ledger, "context/echoed").reason.as_deref().unwrap_or_default(),
        &["too long for its input: `huge` cut from 120000 to "],
    );
    assert!(prompt.len() < 180_000, "{}", prompt.len());
    has(&ledger.cut.join("\n"), &["`huge` cut from 120000 to ", "`list` cut from "]);
}
