//! What agents and strangers wrote commands no terminal: each command that prints it, on one and in a pipe.

use crate::support::cli::Up;
use crate::support::terminal::Terminal;
use serde_json::{Value, json};

/// Clears the screen, names the window, colours, deletes, returns and turns the text around; the last
/// letter tells that it is shown at all. Short enough for the cells of lists.
const EVIL: &str = "\u{1b}[2J\u{1b}]0;owned\u{7}\u{1b}[32mCOMPLETE\u{1b}[0m\u{9b}31m\u{8}\r\u{202e}\u{2066}e";

/// What the end of it is shown as: in text, and in JSON.
const SHOWN: [&str; 2] = ["\\u{202e}\\u{2066}e", "\\u202e\\u2066e"];

const RULES: &str = r#"
[[rule]]
when = { agent = "evil", turn = 1 }
then = { text = "EVIL", calls = [{ tool = "lattice_read", arguments = { path = "w/evil", "EVIL" = "EVIL" } }, { tool = "lattice_read", arguments = { path = "w/evil" } }] }

[[rule]]
when = { agent = "fails" }
then = { calls = [{ tool = "fail_task", arguments = { error = "EVIL" } }] }

[[rule]]
when = { agent = "asks", turn = 1 }
then = { calls = [{ tool = "human_ask", arguments = { title = "EVIL", asks = [{ id = "q", type = "choice", prompt = "EVIL", choices = ["EVIL", "b"] }] } }] }

[[rule]]
when = { agent = "pays", turn = 1 }
then = { calls = [{ tool = "lattice_write", arguments = { path = "w/prod/x", value = { "EVIL" = "EVIL" } } }] }

[[rule]]
then = { text = "EVIL" }
"#;

/// As JSON writes it, and TOML.
fn escaped() -> String {
    EVIL.chars()
        .map(|c| if c.is_ascii_graphic() { c.to_string() } else { format!("\\u{:04x}", u32::from(c)) })
        .collect()
}

/// The first character that commands or hides.
fn dirt(text: &str, kept: &[char]) -> Option<char> {
    let hidden = ['\u{202e}', '\u{2066}', '\u{200b}'];
    text.chars().find(|c| !kept.contains(c) && (c.is_control() || hidden.contains(c)))
}

/// Everything that may be evil is.
struct Scene {
    up: Up,
    done: String,
    failed: String,
    session: String,
}

fn json_of(up: &Up, args: &[&str]) -> Value {
    serde_json::from_str(&up.run(&[args, &["--output", "json"]].concat()).ok()).unwrap()
}

impl Scene {
    fn set() -> Self {
        let up = Up::start();
        let text = escaped();
        up.run(&["lattice", "write", "w/evil", &format!("{{\"{text}\": \"{text}\"}}")]).ok();
        up.run(&["lattice", "write", "w/text", &format!("\"{text}\"")]).ok();
        up.run(&["policy", "approvals", r#"[{"with": "w/prod", "can": "crud/write"}]"#]).ok();
        up.file("evil.rules", &RULES.replace("EVIL", &text));
        let file = |name: &str, more: &str| {
            let model = "model = { provider = \"scripted\", name = \"evil.rules\" }";
            up.file(&format!("{name}.toml"), &format!("description = \"{text}\"\n{more}\n{model}"));
            up.run(&["agent", "apply", &format!("{name}.toml")]).ok();
        };
        file("evil", &format!("systemPrompt = \"{text}\"\ncontext = [{{ ref = \"w/text\", label = \"l\" }}]"));
        for (name, more) in [("fails", ""), ("pays", ""), ("talks", ""), ("asks", "tools = [\"v/ops/human/ask\"]")] {
            file(name, more);
        }
        let ended = |agent: &str| {
            let job = up.run(&["submit", agent, EVIL]).ok();
            up.run(&["job", "wait", &job]);
            job
        };
        let (done, failed) = (ended("evil"), ended("fails"));
        let session = json_of(&up, &["job", "get", &done])["session"].as_str().unwrap().to_owned();
        up.run(&["timer", "set", "talks", EVIL, "--after", "1h"]).ok();
        up.run(&["policy", "revoke", "--path", "w/nothing", "--reason", EVIL]).ok();
        for agent in ["asks", "pays"] {
            up.run(&["submit", agent, EVIL]).ok();
        }
        while json_of(&up, &["approvals"])["items"].as_array().unwrap().len() < 2 {}
        up.run(&["agent", "suspend", "fails", "--reason", EVIL]).ok();
        Self { up, done, failed, session }
    }

    /// Every command that prints what others wrote, and whether that is to be seen in it.
    fn commands(&self) -> Vec<(bool, Vec<String>)> {
        let turn = format!("evil/{}/1", self.session);
        let second = format!("evil/{}/2", self.session);
        let (done, failed, session) = (self.done.as_str(), self.failed.as_str(), self.session.as_str());
        let all: Vec<(bool, Vec<&str>)> = vec![
            (true, vec!["lattice", "read", "w/evil"]),
            (true, vec!["lattice", "read", "w/text"]),
            (true, vec!["lattice", "list", "w/evil"]),
            (true, vec!["lattice", "inspect", "w/evil", "w/text"]),
            (true, vec!["agent", "list"]),
            (true, vec!["agent", "get", "evil"]),
            (true, vec!["agent", "get", "fails"]),
            (true, vec!["job", "list"]),
            (true, vec!["job", "list", "--text", "complete"]),
            (true, vec!["job", "get", done]),
            (true, vec!["job", "get", failed]),
            (true, vec!["job", "wait", done]),
            (true, vec!["job", "wait", failed]),
            (true, vec!["job", "watch", done]),
            (true, vec!["job", "watch", failed]),
            (false, vec!["job", "cancel", done, "--reason", EVIL]),
            (false, vec!["session", "list", "evil"]),
            (true, vec!["session", "show", "evil", session]),
            (false, vec!["turn", "list", "evil"]),
            (false, vec!["turn", "show", &turn]),
            (true, vec!["turn", "show", &turn, "--prompt"]),
            (true, vec!["turn", "show", &second, "--prompt"]),
            (true, vec!["turn", "diff", &turn, &second]),
            (false, vec!["turn", "replay", &second, "--without", "w/text"]),
            (false, vec!["context", "evil"]),
            (true, vec!["context", "evil", "--prompt"]),
            (false, vec!["why", "w/evil"]),
            (false, vec!["why", "w/text"]),
            (true, vec!["approvals"]),
            (false, vec!["timer", "list"]),
            (true, vec!["policy", "show"]),
            (false, vec!["dead", "list"]),
            (false, vec!["audit"]),
            (false, vec!["spend"]),
            (true, vec!["submit", "talks", EVIL, "--wait"]),
            (true, vec!["chat", "talks", EVIL]),
            (true, vec!["lattice", "read", EVIL]),
            (true, vec!["agent", "get", EVIL]),
            (true, vec!["job", "get", EVIL]),
            (true, vec![EVIL]),
        ];
        let owned = |args: Vec<&str>| args.into_iter().map(str::to_owned).collect();
        all.into_iter().map(|(shown, args)| (shown, owned(args))).collect()
    }
}

fn is_shown(text: &str) -> bool {
    SHOWN.iter().any(|shown| text.contains(shown))
}

#[test]
fn each_command_shows_terminal_escapes_as_codes() {
    let Some(terminal) = Terminal::new() else { return };
    let scene = Scene::set();
    let (dir, url) = (scene.up.dir.path(), scene.up.url.as_str());
    for (shown, args) in scene.commands() {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        // `audit` asks the server of this address.
        let out = terminal.run(dir, url, &args, &[("NO_COLOR", "1")]);
        assert_eq!(dirt(&out, &['\n', '\t']), None, "{args:?}:\n{out:?}");
        assert!(!shown || is_shown(&out), "{args:?} doesn't show it:\n{out:?}");
        let json = terminal.run(dir, url, &[&args[..], &["--output", "ndjson"]].concat(), &[("NO_COLOR", "1")]);
        assert_eq!(dirt(&json, &['\n', '\t']), None, "{args:?} as JSON:\n{json:?}");
    }
    // Its own colours pass, and none of the data's.
    let out = terminal.run(dir, url, &["job", "list"], &[]);
    assert!(out.contains("\u{1b}[32mCOMPLETE"), "{out:?}");
    let of_data = out.replace("\u{1b}[32mCOMPLETE", "").replace("\u{1b}[31mFAILED", "");
    assert!(!of_data.contains("\u{1b}[32m"), "{out:?}");
}

#[test]
fn watched_text_keeps_no_colours_of_its_own() {
    let Some(terminal) = Terminal::new() else { return };
    let up = Up::start();
    let rules =
        format!("[[rule]]\nthen = {{ text = \"{} and so on\", stream_chunk_ms = 30, delay_ms = 1500 }}\n", escaped());
    up.agent("talks", &rules);
    let job = up.run(&["submit", "talks", "x"]).ok();
    let out = terminal.run(up.dir.path(), &up.url, &["job", "watch", &job], &[("NO_COLOR", "1")]);
    assert!(is_shown(&out) && out.contains("and so on"), "{out:?}");
    assert_eq!(dirt(&out, &['\n', '\t']), None, "{out:?}");
}

#[test]
fn in_a_pipe_tables_are_clean_and_data_begins_no_escape() {
    let scene = Scene::set();
    for (_, args) in scene.commands() {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let done = scene.up.run(&args);
        let both = done.out + &done.err;
        let begins = both.chars().find(|c| matches!(c, '\u{1b}' | '\u{9b}'));
        assert_eq!(begins, None, "{args:?}:\n{both:?}");
    }
    for args in [&["job", "list"][..], &["agent", "list"], &["turn", "list", "evil"], &["timer", "list"]] {
        let table = scene.up.run(args).ok();
        assert_eq!(dirt(&table, &['\n']), None, "{args:?}:\n{table:?}");
    }
    // A program gets the value as it is.
    let value = json_of(&scene.up, &["lattice", "read", "w/text"]);
    assert_eq!(value["value"], json!(EVIL));
}
