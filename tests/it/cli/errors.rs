//! Exit codes and error texts of bad inputs, through the binary.

use crate::support::cli::{Up, run};
use crate::support::nats::NatsServer;
use crate::support::port;

#[test]
fn errors_found_before_sending_are_shown() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
    file("bad.toml", "systemPromt = \"x\"\nmodel = { provider = \"scripted\", name = \"echo\" }");
    file("broken.toml", "model = \n");
    file("later.json", r#"{"visibility": "all", "model": {"provider": "scripted", "name": "echo"}}"#);
    file("fleet.toml", "[worker]\nslotz = 3\nlease = \"soon\"\n");
    file("big.txt", &"x".repeat(1_000_000));
    for (args, err) in [
        (&["submti"][..], "unrecognized subcommand 'submti'"),
        (&["submit", "a b", "x"], "illegal agent id `a b`: whitespace is not allowed"),
        (&["submit", "a", "{\"x\": "], "malformed JSON in the argument: EOF while parsing"),
        (&["submit", "a", "123456789012345678901234567890"], "is larger than 64 bits hold"),
        (&["submit", "a", "x", "--context", "n=123456789012345678901234567890"], "is larger than 64 bits hold"),
        (&["lattice", "write", "w/x", "-123456789012345678901234567890"], "is larger than 64 bits hold"),
        (&["submit", "a", "@none.json"], "file `none.json` can't be read"),
        (&["submit", "a", "@big.txt"], "the input has 1000002 bytes, expected at most 900000"),
        (&["submit", "a", "x", "--owner", "me"], "illegal owner `me`: expected `tenant/user`"),
        (&["submit", "a", "x", "--wait=soon"], "--wait"),
        (&["submit", "a", "x", "--url", "localhost:8420"], "expected `http://` or `https://`"),
        (&["job", "get", "123"], "illegal job id `123`: expected 32 hexadecimal digits"),
        (&["agent", "apply", "bad.toml"], "`bad.toml`: unknown key `systemPromt`, did you mean `systemPrompt`"),
        (&["agent", "apply", "broken.toml"], "`broken.toml`: malformed TOML"),
        (&["agent", "apply", "later.json"], "key `visibility` is not supported by this version"),
        (&["agent", "apply", "nofolder"], "`nofolder`: there is no such file or folder"),
        (&["agent", "apply", "none.toml"], "file `none.toml` can't be read"),
        (&["up", "--set", "worker.slotz=3"], "`worker.slotz` (flag): is not a setting; did you mean `worker.slots`?"),
        (&["up", "--data", "a", "--set", "store.url=embedded:b"], "name two stores"),
        (&["audit", "--data", "a", "--set", "store.url=embedded:b"], "name two stores"),
        (&["up", "--listen", "0.0.0.0:8420"], "expected a loopback address"),
        (&["config", "check", "--config", "fleet.toml"], "the configuration has 2 errors"),
        (&["config", "check", "--set", "slots"], "expected `key=value`"),
        (&["serve"], "`trellis serve` needs a store that several processes can share, got `embedded:./trellis-data`"),
        (&["worker"], "or use `trellis up`"),
        (&["mock-llm", "none.toml"], "rules file `none.toml` can't be read"),
    ] {
        let done = run(dir.path(), args).expect(2, err);
        assert_eq!(done.out, "", "{args:?}");
    }
    assert!(!dir.path().join("trellis-data").exists(), "nothing was opened");
}

#[test]
fn a_missing_server_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let url = format!("http://127.0.0.1:{}", port::lasting());
    for args in [&["submit", "a", "x"][..], &["job", "list"], &["agent", "list"], &["lattice", "list"]] {
        let args: Vec<_> = args.iter().copied().chain(["--url", &url]).collect();
        run(dir.path(), &args).expect(8, &format!("no server at `{url}`")).expect(8, "is `trellis up` running?");
    }
    let nats = format!("nats://127.0.0.1:{}", port::lasting());
    run(dir.path(), &["submit", "a", "x", "--nats", &nats]).expect(8, &format!("no NATS at `{nats}`"));
    if let Some(server) = NatsServer::start_with(&["--user", "ann", "--pass", "right"]) {
        let with = |login: &str| server.url().replace("nats://", &format!("nats://{login}"));
        for url in [server.url(), with("ann:wrong@")] {
            let done = run(dir.path(), &["submit", "a", "x", "--nats", &url]).expect(7, "refused the login");
            assert!(!done.err.contains("is `nats-server -js` running") && !done.err.contains("wrong"), "{done:?}");
        }
    }
    let redis = format!("store.url=redis://127.0.0.1:{}", port::lasting());
    let doctor = ["doctor", "--set", &redis, "--set", &format!("bus.url={nats}")];
    run(dir.path(), &doctor).expect(8, "is unavailable");
}

#[test]
fn refusals_of_the_server_are_shown() {
    let up = Up::start();
    up.agent("echo", "echo");
    up.agent("never", "never");
    let unknown_job = "0".repeat(32);
    for (args, code, err) in [
        (&["submit", "nobody", "x"][..], 5, "no agent `nobody`; `trellis agent list` shows which there are"),
        (&["message", "nobody", "x"], 5, "no agent `nobody`"),
        (&["agent", "get", "nobody"], 5, "`nobody`"),
        (&["job", "get", &unknown_job], 5, "`trellis job list` shows which there are"),
        (&["job", "wait", &unknown_job], 5, &unknown_job),
        (&["job", "watch", &unknown_job], 5, &unknown_job),
        (&["job", "cancel", &unknown_job], 5, &unknown_job),
        (&["lattice", "read", "w/../x"], 2, "segment `..` is not allowed"),
        (&["lattice", "read", "q/x"], 2, "`q/x`"),
        (&["lattice", "write", "g/echo", "1"], 2, "can't be written"),
        (&["lattice", "read", "w/none"], 5, "nothing at `w/none`"),
        (&["submit", "echo", "x", "--owner", "_venue/_venue"], 7, "is the venue's own"),
        (&["submit", "never", "x", "--wait=300ms"], 4, "is still STARTED after 300ms; it goes on: `trellis job wait"),
    ] {
        up.run(args).expect(code, err);
    }
}

#[test]
fn a_repeated_id_is_a_conflict_unless_identical() {
    let up = Up::start();
    up.agent("echo", "echo");
    let first = up.run(&["submit", "echo", "one", "--id", "k"]).ok();
    assert_eq!(up.run(&["submit", "echo", "one", "--id", "k"]).ok(), first);
    up.run(&["submit", "echo", "two", "--id", "k"]).expect(6, "`k` was accepted before with another body");
    assert_eq!(up.run(&["job", "wait", &first]).ok(), "one");
}

#[test]
fn jobs_that_do_not_complete_have_their_exit_code() {
    let up = Up::start();
    up.agent("never", "never");
    up.agent("bad", "[[rule]]\nthen = { text = \"x\", fault = \"bad_request\" }\n");
    up.run(&["submit", "bad", "x", "--wait"]).expect(3, "FAILED (MODEL_ERROR)");
    let job = up.run(&["submit", "never", "x"]).ok();
    up.run(&["job", "cancel", &job, "--reason", "enough"]).ok();
    up.run(&["job", "wait", &job]).expect(3, "CANCELLED (CANCELLED): cancelled: enough");
    up.run(&["job", "cancel", &job]).ok();
    let done = up.run(&["submit", "bad", "y"]).ok();
    up.run(&["job", "wait", &done]).expect(3, "FAILED");
    up.run(&["job", "cancel", &done]).expect(6, &done);
}

#[test]
fn a_folder_of_agents_is_applied_whole_or_not_at_all() {
    let up = Up::start();
    let model = "model = { provider = \"scripted\", name = \"echo\" }";
    std::fs::create_dir(up.dir.path().join("all")).unwrap();
    for name in ["a", "c"] {
        up.file(&format!("all/{name}.toml"), model);
    }
    for name in ["b", "d"] {
        // Only the venue knows that there is no such operation to bind an argument of.
        let bound = format!(
            "{model}\ntools = [\"v/ops/lattice/write\"]\n[toolArgInjection.\"v/ops/lattice/write\"]\nnosuch = \"tenant_id\"\n"
        );
        up.file(&format!("all/{name}.toml"), &bound);
    }
    for dry_run in [&[][..], &["--dry-run"]] {
        let done = up.run(&[&["agent", "apply", "all"], dry_run].concat()).expect(2, "agent `b` of `all/b.toml`: ");
        assert!(done.err.contains("agent `d` of `all/d.toml`: ") && done.out.is_empty(), "{done:?}");
        assert!(!done.err.contains("are applied"), "{done:?}");
        assert_eq!(up.run(&["agent", "list", "--output", "ndjson"]).ok(), "", "{dry_run:?}");
    }
}

#[test]
fn a_scripted_model_without_rules_is_warned_of() {
    let up = Up::start();
    up.file("there.rules", "[[rule]]\nthen = { text = \"x\" }\n");
    for (name, warned) in [("echo", false), ("never", false), ("there.rules", false), ("gone.rules", true)] {
        up.file("a.toml", &format!("model = {{ provider = \"scripted\", name = \"{name}\" }}"));
        let done = up.run(&["agent", "apply", "a.toml"]).expect(0, "");
        let is_warned = done.err.contains("`model`: there is no rules file `gone.rules` in the folder");
        assert_eq!(is_warned, warned, "{name}: {done:?}");
    }
}

#[test]
fn a_chat_whose_turn_fails_is_an_error() {
    let up = Up::start();
    let model = "model = { provider = \"scripted\", name = \"echo\" }";
    up.file("strict.toml", &format!("strictPlaceholders = true\nsystemPrompt = \"${{nobody}}\"\n{model}"));
    up.run(&["agent", "apply", "strict.toml"]).ok();
    let done = up.run(&["chat", "strict", "hi"]).expect(3, "agent `strict` has not replied (");
    assert!(done.out.is_empty() && done.err.contains("no value for the placeholders"), "{done:?}");
    let done = up.run(&["chat", "strict", "hi", "--output", "json"]).expect(3, "");
    let answer: serde_json::Value = serde_json::from_str(&done.out).unwrap();
    assert!(answer["error"].as_str().is_some_and(|text| text.starts_with("no value for")), "{answer}");
    assert!(answer["errorCode"].is_string() && answer["response"].is_string(), "{answer}");
    up.agent("echo", "echo");
    let answer = up.run(&["chat", "echo", "[hi]", "--output", "json"]).ok();
    let answer: serde_json::Value = serde_json::from_str(&answer).unwrap();
    assert_eq!((&answer["response"], &answer["error"]), (&"[hi]".into(), &serde_json::Value::Null));
}

#[test]
fn a_taken_folder_or_port_is_an_error() {
    let up = Up::start();
    let second = ["up", "--data", "data", "--listen", "127.0.0.1:0"];
    run(up.dir.path(), &second).expect(8, "holds the folder; stop it or use another folder");
    // What a running process holds is asked over HTTP.
    let data = "store.url=embedded:data";
    for command in ["doctor", "audit"] {
        let nobody = [command, "--set", data, "--set", "http.listen=127.0.0.1:1"];
        run(up.dir.path(), &nobody).expect(8, "another process holds the folder");
        let listen = format!("http.listen={}", up.url.trim_start_matches("http://"));
        run(up.dir.path(), &[command, "--set", data, "--set", &listen]).ok();
        run(up.dir.path(), &[command, "--url", &up.url]).ok();
    }
    let doctor = run(up.dir.path(), &["doctor", "--url", &up.url]).ok();
    assert!(doctor.contains("embedded durability") && doctor.contains("policies"), "{doctor}");
    assert!(run(up.dir.path(), &["audit", "--url", &up.url, "--repair"]).ok().contains("unaccounted = 0"));
    let address = up.url.trim_start_matches("http://");
    let other = ["up", "--data", "other", "--listen", address];
    let taken = run(up.dir.path(), &other).expect(6, &format!("can't listen on `{address}`"));
    assert!(taken.err.contains("the venue `trellis` answers there"), "{}", taken.err);
}

#[test]
fn the_data_folder_is_its_users_alone() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    let mut up = Up::start();
    let data = up.dir.path().join("data");
    assert_eq!(std::fs::metadata(&data).unwrap().mode() & 0o777, 0o700);
    assert_eq!(std::fs::metadata(data.join("secrets.key")).unwrap().mode() & 0o777, 0o600);
    assert!(!up.process.log().contains("can look into"), "{}", up.process.log());
    up.process.signal("TERM");
    up.process.ended();
    std::fs::set_permissions(&data, std::fs::Permissions::from_mode(0o755)).unwrap();
    up.start_again();
    up.process.says("others on this machine can look into the data folder `data` (mode 755); `chmod 700` it");
}
