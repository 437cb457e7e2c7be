//! Manifests in the form of agntz, applied by the binary, and a task for each that needs no other program.

use crate::support::cli::{Process, Up};
use serde_json::{Value, json};

/// Answers of the model of any name, by what its prompt has.
const RULES: &str = r#"
[[rule]]
when = { prompt = "MOOD of this text: bees" }
then = { text = "{\"mood\": \"good\", \"sure\": 0.9}" }

[[rule]]
when = { prompt = "NAMES in bees" }
then = { text = "{\"names\": \"Maja\"}" }

[[rule]]
when = { prompt = "SHORTEN bees are many" }
then = { text = "many bees" }

[[rule]]
when = { prompt = "TRANSLATE to de: many bees" }
then = { text = "viele Bienen" }

[[rule]]
when = { prompt = "Heed this: be brief" }
then = { text = "{\"draft\": \"brief\"}" }

[[rule]]
when = { prompt = "AUTHOR about bees in a plain tone." }
then = { text = "{\"draft\": \"long\"}" }

[[rule]]
when = { prompt = "CRITIC of long" }
then = { text = "{\"good\": false, \"advice\": \"be brief\"}" }

[[rule]]
when = { prompt = "CRITIC of brief" }
then = { text = "{\"good\": true, \"advice\": \"\"}" }

[[rule]]
when = { prompt = "WEB bees" }
then = { text = "web facts" }

[[rule]]
when = { prompt = "PAPERS bees" }
then = { text = "paper facts" }

[[rule]]
when = { prompt = "WRITE with web facts and paper facts" }
then = { text = "the piece" }

[[rule]]
when = { prompt = "GREETER." }
then = { text = "bees are many" }
"#;

fn manifest(name: &str) -> &'static str {
    match name {
        "greeter" => include_str!("manifests/greeter.yaml"),
        "mood" => include_str!("manifests/mood.yaml"),
        "digest" => include_str!("manifests/digest.yaml"),
        "look-at-text" => include_str!("manifests/look-at-text.yaml"),
        "draft-until-good" => include_str!("manifests/draft-until-good.yaml"),
        "newsroom" => include_str!("manifests/newsroom.yaml"),
        "announce" => include_str!("manifests/announce.yaml"),
        "mail" => include_str!("manifests/mail.yaml"),
        other => panic!("no manifest `{other}`"),
    }
}

fn venue() -> (Up, Process) {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("rules.toml"), RULES).unwrap();
    let mut mock = Process::start(dir.path(), ["mock-llm", "rules.toml", "--listen", "127.0.0.1:0"]);
    let address = mock.says("serving `rules.toml` on ").split(' ').next().unwrap().to_owned();
    let address = address.trim_end_matches('/').to_owned();
    (Up::start_in(dir, &[&format!("models.endpoints.openai.base_url={address}/")]), mock)
}

#[test]
fn every_manifest_is_applied_and_read_back_unchanged() {
    let (up, _mock) = venue();
    for name in ["greeter", "mood", "digest", "look-at-text", "draft-until-good", "newsroom", "announce", "mail"] {
        let file = format!("{name}.yaml");
        up.file(&file, manifest(name));
        assert_eq!(up.run(&["agent", "apply", &file]).ok(), format!("{name} created, configuration 1"), "{name}");
        assert_eq!(up.run(&["agent", "apply", &file]).ok(), format!("{name} unchanged, configuration 1"), "{name}");
    }
}

#[test]
fn every_manifest_runs_with_a_scripted_model() {
    let (up, _mock) = venue();
    for name in ["greeter", "mood", "digest", "look-at-text", "draft-until-good", "newsroom"] {
        let file = format!("{name}.yaml");
        up.file(&file, manifest(name));
        up.run(&["agent", "apply", &file]).ok();
    }
    let facts = json!({"webSide": "web facts", "paperSide": "paper facts"});
    for (agent, input, expected) in [
        ("greeter", "hello", json!("bees are many")),
        ("mood", r#"{"text": "bees"}"#, json!({"mood": "good", "sure": 0.9})),
        ("mood", "bees", json!({"mood": "good", "sure": 0.9})),
        ("digest", r#"{"topic": "bees"}"#, json!({"found": "bees are many", "short": "many bees", "translated": null})),
        (
            "digest",
            r#"{"topic": "bees", "language": "de"}"#,
            json!({"found": "bees are many", "short": "many bees", "translated": "viele Bienen"}),
        ),
        ("look-at-text", "bees", json!({"mood": "good", "names": "Maja"})),
        ("draft-until-good", r#"{"topic": "bees"}"#, json!({"draft": "brief", "review": {"good": true, "advice": ""}})),
        ("newsroom", "bees", json!({"piece": "the piece", "facts": facts})),
    ] {
        let done = up.run(&["submit", agent, input, "--wait", "--output", "json"]).ok();
        let job: Value = serde_json::from_str(&done).unwrap_or_else(|_| panic!("{agent}: {done}"));
        assert_eq!((&job["status"], &job["output"]), (&json!("COMPLETE"), &expected), "{agent} {input}: {job}");
    }
    for agent in ["digest", "mood"] {
        let refused = up.run(&["submit", agent, r#"{"topc": "bees"}"#, "--wait"]);
        assert!(refused.err.contains("no input is named `topc`"), "{agent}: {refused:?}");
    }
}

#[test]
fn what_has_no_meaning_is_refused_by_name() {
    let up = Up::start();
    let branches: Vec<_> = (0..10_000).map(|n| format!("  - {{ ref: a, stateKey: s{n} }}")).collect();
    let branches = branches.join("\n");
    for (file, text, expected) in [
        ("image.yaml", "kind: image\nmodel: openai/x\nprompt: a\n".to_owned(), "no agent makes pictures"),
        ("many.yaml", format!("kind: parallel\nbranches:\n{branches}"), "expected at most 32, got 10000"),
        (
            "typo.yaml",
            "kind: sequential\nsteps:\n  - { ref: a }\noutput: { x: '{{b}}' }\n".to_owned(),
            "`pipeline.output`: nothing is named `b` here",
        ),
        (
            "loops.yaml",
            "kind: sequential\nuntil: '{{a}}'\nmaxIterations: 1000\nsteps:\n  - { ref: a }\n".to_owned(),
            "expected 1 to 100, got 1000",
        ),
        (
            "code.yaml",
            "kind: sequential\nsteps:\n  - { ref: a, when: '{{userQuery}} + 1 == 2' }\n".to_owned(),
            "there are comparisons and no other expressions",
        ),
        (
            "prompt.yaml",
            "kind: llm\nmodel: openai/x\ninputSchema: { topic: string }\ninstruction: a\nprompt: 'do {{topc}}'\n"
                .to_owned(),
            "`taskPrompt`: no input is named `topc`, did you mean `topic`",
        ),
        (
            "params.yaml",
            "kind: tool\ntool: { kind: local, name: f }\nparams: { k: 1 }\n".to_owned(),
            "`params`: belongs into `tool`",
        ),
        (
            "secret.yaml",
            "kind: tool\ntool: { kind: local, name: f, params: { k: '{{secrets.K}}' } }\n".to_owned(),
            "credentials are no values of the State",
        ),
        (
            "inner.yaml",
            "kind: sequential\nsteps:\n  - agent: { id: x, kind: llm, model: openai/x, skills: [a] }\n".to_owned(),
            "`pipeline.steps[0].agent`: `skills` has no meaning here",
        ),
    ] {
        up.file(file, &text);
        up.run(&["agent", "apply", file]).expect(2, expected);
    }
}
