//! `trellis policy revoke`: what it prints that it stops, and that this is what stops.

use crate::support::cli::Up;
use serde_json::Value;

const RULES: &str = r#"
[[rule]]
when = { agent = "scout", text = "make" }
then = { calls = [{ tool = "agent_create", arguments = { agentId = "made", config = { model = { provider = "scripted", name = "echo" } } } }, { tool = "complete_task", arguments = { result = "made it" } }] }

[[rule]]
when = { agent = "scout", turn = 1 }
then = { calls = [{ tool = "agent_request", arguments = { agentId = "idle", input = "go", wait = 0 } }] }

[[rule]]
then = { fault = "hang" }
"#;

/// A scout that has made an agent, set a timer and waits for a child; the ids of all that.
struct Scene {
    up: Up,
    timer: String,
    of_made: String,
    job: String,
    child: String,
}

impl Scene {
    fn set() -> Self {
        let up = Up::start();
        up.agent("scout", RULES);
        up.agent("idle", "never");
        up.agent("other", "echo");
        assert_eq!(up.run(&["submit", "scout", "make", "--wait"]).ok(), "made it");
        up.run(&["agent", "suspend", "idle"]).ok();
        let timer = up.run(&["timer", "set", "scout", "tick", "--every", "1h"]).ok();
        let of_made = up.run(&["timer", "set", "made", "tick", "--every", "1h"]).ok();
        up.run(&["timer", "set", "other", "tick", "--every", "1h"]).ok();
        let job = up.run(&["submit", "scout", "go"]).ok();
        let child = loop {
            let jobs = up.run(&["job", "list", "--agent", "idle", "--output", "ndjson"]).ok();
            if let Some(line) = jobs.lines().next() {
                let child: Value = serde_json::from_str(line).unwrap();
                break child["id"].as_str().unwrap().to_owned();
            }
        };
        Self { up, timer, of_made, job, child }
    }

    /// The lines that name it, each once.
    fn has(&self, printed: &str, verb: &str) {
        let next = |timer: &str| {
            let listed: Value =
                serde_json::from_str(&self.up.run(&["timer", "list", "--output", "json"]).ok()).unwrap();
            let found = listed["items"].as_array().unwrap().iter().find(|one| one["timer"] == *timer).unwrap();
            found["next"].as_str().unwrap().to_owned()
        };
        for line in [
            format!("{verb} agent made"),
            format!("{verb} agent scout"),
            format!("{verb} timer {} of scout, next {}", self.timer, next(&self.timer)),
            format!("{verb} timer {} of made, next {}", self.of_made, next(&self.of_made)),
            format!("{verb} job {} of scout, STARTED", self.job),
            format!("{verb} child {} of idle, PENDING", self.child),
        ] {
            assert_eq!(printed.lines().filter(|printed| **printed == line).count(), 1, "`{line}` in:\n{printed}");
        }
        assert_eq!(printed.lines().filter(|line| line.starts_with(verb)).count(), 6, "nothing of others:\n{printed}");
    }
}

#[test]
fn all_work_of_a_revoked_holder_is_listed_and_stops() {
    let scene = Scene::set();
    let up = &scene.up;
    let done = up.run(&["policy", "revoke", "--path", "w/payroll", "--holder", "agent:scout"]).expect(0, "");
    scene.has(&done.out, "narrows");
    let done = up.run(&["policy", "revoke", "--holder", "agent:scout", "--reason", "it roams"]).expect(0, "");
    scene.has(&done.out, "stops");
    let (of, why) = ("holder agent:scout  by local/me", "because it roams");
    let line = done.out.lines().find(|line| line.contains(why)).unwrap();
    assert!(line.starts_with("revoked ") && line.contains(of), "{line}");
    let id = line.split_whitespace().nth(1).unwrap();
    assert!(done.err.contains(&format!("`trellis policy restore {id}` takes it back")), "{}", done.err);
    // Nothing new starts, and what was listed ends for that reason.
    up.run(&["agent", "resume", "idle"]).ok();
    let refused = "nothing starts any more under holder `agent:scout`: it was revoked";
    up.run(&["job", "wait", &scene.child]).expect(3, refused);
    for agent in ["scout", "made"] {
        up.run(&["submit", agent, "x", "--wait"]).expect(3, refused);
    }
    assert_eq!(up.run(&["submit", "other", "x", "--wait"]).ok(), "x");
    up.run(&["policy", "restore", id]).ok();
    assert_eq!(up.run(&["submit", "made", "x", "--wait"]).ok(), "x");
}

#[test]
fn a_job_can_be_revoked_as_a_grant() {
    let scene = Scene::set();
    let up = &scene.up;
    let done = up.run(&["policy", "revoke", "--grant", &scene.job]).ok();
    let stops: Vec<_> = done.lines().filter(|line| line.starts_with("stops")).collect();
    let mut expected =
        [format!("stops job {} of scout, STARTED", scene.job), format!("stops child {} of idle, PENDING", scene.child)];
    let mut stops: Vec<_> = stops.into_iter().map(str::to_owned).collect();
    expected.sort();
    stops.sort();
    assert_eq!(stops, expected, "{done}");
    let none = up.run(&["policy", "revoke", "--holder", "agent:nobody"]).ok();
    assert!(none.lines().any(|line| line == "stops nothing that is there now"), "{none}");
    // A path is taken from everybody: there is nobody to list; also one of which a key has a slash.
    let path = up.run(&["policy", "revoke", "--path", "[\"w\", \"vendor/payroll\"]"]).ok();
    assert!(!path.contains("stops") && !path.contains("narrows"), "{path}");
    assert!(path.contains("path w/vendor\\/payroll"), "{path}");
    assert_eq!(up.run(&["policy", "show"]).ok(), path, "what is shown later");
    let json: Value =
        serde_json::from_str(&up.run(&["policy", "revoke", "--grant", &scene.job, "--output", "json"]).ok()).unwrap();
    assert_eq!(json["stops"]["jobs"].as_array().unwrap().len(), 2, "{json}");
}

#[test]
fn an_ability_that_nothing_needs_is_warned_of() {
    let up = Up::start();
    up.agent("echo", "echo");
    let warning = "nothing needs `crud/raed`, did you mean `crud/read`";
    let caps = r#"[{"with": "", "can": "*"}, {"with": "w/x", "can": "crud/raed"}]"#;
    for list in ["roots", "approvals"] {
        let done = up.run(&["policy", list, caps]).expect(0, &format!("warning: `caps[1].can`: {warning}"));
        assert!(!done.err.contains("caps[0]"), "{done:?}");
        let answer: Value = serde_json::from_str(&up.run(&["policy", list, caps, "--output", "json"]).ok()).unwrap();
        assert_eq!(answer["warnings"].as_array().map(Vec::len), Some(1), "{answer}");
    }
    up.run(&["policy", "roots", "null"]).ok();
    up.run(&["policy", "approvals", "[]"]).ok();
    let grant = r#"{"with": "w", "can": "crud/raed"}"#;
    for verb in ["submit", "message"] {
        let sent = up.run(&[verb, "echo", "hi", "--grant", grant]);
        let sent = sent.expect(0, &format!("warning: `--grant.can`: {warning}"));
        assert_eq!(sent.err.matches(warning).count(), 1, "{sent:?}");
    }
    up.run(&["token", "keygen", "me.jwk"]).ok();
    up.run(&["token", "keygen", "me.jwk"]).expect(6, "`me.jwk` exists, and no key is written over; name another file");
    let issue = ["token", "issue", "--key", "me.jwk", "--aud", "did:web:x", "--att"];
    up.run(&[&issue[..], &["w:crud/raed"]].concat()).expect(0, &format!("warning: `--att.can`: {warning}"));
    let done = up.run(&[&issue[..], &["w:crud/read"]].concat()).expect(0, "");
    assert!(!done.err.contains("warning"), "{done:?}");
}
