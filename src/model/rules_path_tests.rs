//! Tests of [`super`]: a model's name reaches files in the configured folder, and nothing else of the machine.

use super::*;
use std::os::unix::fs::symlink;
use std::time::{Duration, Instant};

const RULES: &str = "[[rule]]\nthen = { text = 'x' }\n";

/// Makes a folder with `rules/r.toml`, `rules/sub/s.toml`, and `beside.toml` outside of `rules`.
fn rules_folder() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(dir.path().join("rules/sub")).unwrap();
    std::fs::write(dir.path().join("beside.toml"), RULES).unwrap();
    std::fs::write(dir.path().join("rules/r.toml"), RULES).unwrap();
    std::fs::write(dir.path().join("rules/sub/s.toml"), RULES).unwrap();
    dir
}

fn make_pipe(path: &Path) {
    assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success());
}

#[test]
fn names_reach_regular_files_of_the_folder_alone() {
    let dir = rules_folder();
    let folder = dir.path().join("rules");
    symlink("r.toml", folder.join("link.toml")).unwrap();
    symlink("../beside.toml", folder.join("out.toml")).unwrap();
    symlink("..", folder.join("up")).unwrap();
    make_pipe(&folder.join("pipe"));
    let beside = dir.path().join("beside.toml").display().to_string();
    for name in ["r.toml", "sub/s.toml", "link.toml"] {
        let found = find(Some(&folder), name).unwrap();
        assert_eq!((found.name.as_str(), found.answers_all_names), (name, false));
    }
    let refused = [
        "",
        ".",
        "..",
        "/",
        "none.toml",
        "../beside.toml",
        "sub/../../beside.toml",
        "./r.toml",
        "up/beside.toml",
        "out.toml",
        "sub",
        "pipe",
        "/dev/zero",
        "/etc/passwd",
        "/no/such",
        "r.toml\0",
        &beside,
    ];
    for name in refused {
        let said = find(Some(&folder), name).unwrap_err().to_string();
        let expected = format!("there is no rules file `{name}` in the folder that `models.scripted` names");
        assert_eq!(said, expected, "the same for what exists and what doesn't");
    }
}

#[test]
fn without_configured_rules_no_name_reaches_anything() {
    let beside = rules_folder();
    for name in ["rules", "/dev/zero", "/etc/passwd", &beside.path().join("beside.toml").display().to_string()] {
        let said = find(None, name).unwrap_err().to_string();
        assert!(
            said.starts_with(&format!("the provider `scripted` has no model `{name}` here, only `echo`")),
            "{said}"
        );
    }
}

#[test]
fn devices_pipes_and_endless_files_are_refused_at_once() {
    let dir = rules_folder();
    make_pipe(&dir.path().join("pipe"));
    std::fs::write(dir.path().join("long"), " ".repeat(4 * 1024 * 1024 + 1)).unwrap();
    std::fs::write(dir.path().join("bytes"), [0xff]).unwrap();
    let start = Instant::now();
    let table = [
        ("/dev/zero", "expected a regular file"),
        ("pipe", "expected a regular file"),
        ("long", "expected at most 4194304 bytes, got more"),
        ("bytes", "expected UTF-8"),
    ];
    for (name, reason) in table {
        let said = find(Some(&dir.path().join(name)), "any").unwrap_err().to_string();
        assert!(said.ends_with(&format!("can't be read: {reason}")), "{said}");
    }
    // The system says that this file has 0 bytes, but it has some.
    let said = find(Some(Path::new("/proc/self/status")), "any").unwrap_err().to_string();
    assert!(said.contains("`/proc/self/status`: line 1"), "{said}");
    assert!(start.elapsed() < Duration::from_secs(5));
}

#[test]
fn a_log_is_a_file_in_the_folder_of_the_rules() {
    let dir = rules_folder();
    let folder = dir.path().join("rules");
    symlink("../beside.toml", folder.join("link.jsonl")).unwrap();
    symlink("..", folder.join("up")).unwrap();
    make_pipe(&folder.join("pipe"));
    let absolute = folder.join("calls.jsonl").display().to_string();
    let load_with_log = |log: &str| {
        std::fs::write(folder.join("r.toml"), format!("calls_log = {log:?}\n{RULES}")).unwrap();
        let (one, many) = (find(Some(&folder.join("r.toml")), "any"), find(Some(&folder), "r.toml"));
        assert_eq!(one.is_ok(), many.is_ok(), "{log}");
        many.map(|found| assert!(found.log.is_some())).map_err(|error| error.to_string())
    };
    for log in ["calls.jsonl", "sub/calls.jsonl", "./calls.jsonl", &absolute] {
        assert_eq!(load_with_log(log), Ok(()), "{log}");
    }
    let beside = dir.path().join("beside.toml").display().to_string();
    for log in
        ["", "..", "../calls.jsonl", "/etc/calls.jsonl", "link.jsonl", "up/c.jsonl", "pipe", "sub", "no/c", &beside]
    {
        let expected = "`calls_log` of rules file `r.toml` is not a file in the folder of the rules";
        assert_eq!(load_with_log(log), Err(expected.to_owned()), "{log}");
    }
    assert_eq!(std::fs::read_to_string(dir.path().join("beside.toml")).unwrap(), RULES);
}

#[test]
fn a_file_or_a_whole_folder_of_rules_is_checked() {
    let dir = rules_folder();
    let folder = dir.path().join("rules");
    let check_with = |name: &str, text: &str| {
        let path = folder.join(name);
        std::fs::write(&path, text).unwrap();
        let (as_folder, as_file) = (check(&folder), check(&path));
        std::fs::remove_file(&path).unwrap();
        (as_folder.map_err(|error| error.to_string()), as_file.map_err(|error| error.to_string()))
    };
    let wrong = [
        ("b.toml", "[[rule]]\nwen = {}\nthen = { text = 'x' }\n", "did you mean `when` (line 2, column 1)"),
        ("sub/b.rules", "[[rules]]\nthen = { text = 'x' }\n", "did you mean `rule` (line 1, column 3)"),
        ("b.json", "{\"rule\": [{\"then\": {}}]}", "(line 1, column 12)"),
        ("b.rules", "[[rule]]\nthen = {\n", "line 2, column"),
        ("b.toml", "calls_log = '../x'\n", "is not a file in the folder of the rules"),
    ];
    for (name, text, expected) in wrong {
        let (as_folder, as_file) = check_with(name, text);
        assert!(as_file.as_ref().is_err_and(|said| said.contains(expected)), "{name}: {as_file:?}");
        let said = as_folder.unwrap_err();
        assert!(said.contains(expected) && said.contains(name), "{name}: {said}");
    }
    // Files that are no rules: an agent, a configuration, notes.
    for (name, text) in [
        ("agent.toml", "model = 'scripted/r.toml'\n"),
        ("fleet.toml", "[worker]\nslots = 3\n"),
        ("broken.json", "{\"a\": "),
        ("notes.md", "[[rule]]\nwen = {}\n"),
    ] {
        assert_eq!(check_with(name, text).0, Ok(()), "{name}");
    }
    assert!(check(&dir.path().join("none.toml")).unwrap_err().to_string().contains("can't be read"));
}
