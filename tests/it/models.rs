//! What an agent's configuration can make a worker do through its model: nothing to its files, its memory and the others.

use crate::support::cli::Up;
use serde_json::Value;
use std::time::{Duration, Instant};

/// Makes an agent of that scripted model and gives it a task: what the agent is suspended with.
fn refused(up: &Up, agent: &str, model: &str) -> String {
    up.file(&format!("{agent}.toml"), &format!("model = {{ provider = \"scripted\", name = {model:?} }}"));
    up.run(&["agent", "apply", &format!("{agent}.toml")]).ok();
    up.run(&["submit", agent, "go"]).ok();
    let start = Instant::now();
    loop {
        let shown = up.run(&["agent", "get", agent, "--output", "json"]).ok();
        let shown: Value = serde_json::from_str(&shown).unwrap();
        if shown["status"] == "SUSPENDED" {
            return shown["error"].as_str().unwrap().to_owned();
        }
        assert!(start.elapsed() < Duration::from_secs(20), "{shown}");
    }
}

/// Most memory that the process has had, in MiB.
fn peak(up: &Up) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", up.process.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() / 1024
}

#[test]
fn the_name_of_a_model_is_no_path_on_the_worker() {
    for scripted in ["", "rules"] {
        let up = Up::start_with(&[&format!("models.scripted={scripted}")]);
        let inside = up.dir.path().join("rules");
        std::fs::create_dir(&inside).unwrap();
        let pipe = up.dir.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let victim = up.dir.path().join("victim");
        std::fs::write(&victim, "precious").unwrap();
        let log = format!("calls_log = {:?}\n[[rule]]\nthen = {{ text = \"x\" }}\n", victim.display().to_string());
        up.file("writer.rules", &log);
        std::fs::write(inside.join("writer.rules"), log).unwrap();
        let absolute = |name: &str| up.dir.path().join(name).display().to_string();
        let names =
            ["/dev/zero", "/etc/passwd", "/no/such", "../victim", "none", &absolute("pipe"), &absolute("writer.rules")];
        for (n, name) in names.into_iter().enumerate() {
            let said = refused(&up, &format!("a{n}"), name);
            let expected = match scripted {
                "" => format!("the provider `scripted` has no model `{name}` here, only `echo` and `never`; "),
                _ => format!("there is no rules file `{name}` in the folder that `models.scripted` names; "),
            };
            let reason = said.split_once("can't be used: ").map_or(said.as_str(), |(_, reason)| reason);
            assert!(reason.starts_with(&expected), "the same for what exists and what doesn't: {said}");
        }
        if scripted == "rules" {
            let said = refused(&up, "writer", "writer.rules");
            assert!(said.contains("`calls_log` of rules file `writer.rules` is not a file in the folder"), "{said}");
        }
        assert_eq!(std::fs::read_to_string(&victim).unwrap(), "precious");
        up.agent("well", "echo");
        assert!(up.run(&["submit", "well", "hello", "--wait"]).ok().contains("hello"), "the others go on");
        assert!(peak(&up) < 400, "{} MiB", peak(&up));
    }
}
