//! The files for deployment name real files, real settings and no open port.

mod drain;
mod kubernetes;
mod graceful_stop;
mod upgrade;
mod workflows;

use crate::support::cli;
use std::{collections::BTreeMap, path::Path};
use trellis::config::{BusUrl, Config, StoreUrl};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap()
}

/// Lines of one service of docker-compose.yml, without indentation and quotes around them. Enough
/// of YAML for a file whose services stand two spaces deep.
fn service(name: &str) -> Vec<String> {
    let text = read("docker-compose.yml");
    let (_, services) = text.split_once("\nservices:\n").unwrap();
    let lines: Vec<String> = services
        .lines()
        .skip_while(|line| *line != format!("  {name}:"))
        .skip(1)
        .take_while(|line| line.is_empty() || line.starts_with("   "))
        .map(|line| line.trim().to_owned())
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .collect();
    assert!(!lines.is_empty(), "no service `{name}`");
    lines
}

fn value<'a>(service: &'a [String], key: &str) -> &'a str {
    let found = service.iter().find_map(|line| line.strip_prefix(key)?.strip_prefix(": "));
    found.unwrap_or_else(|| panic!("no `{key}` in {service:#?}"))
}

#[test]
fn the_servers_run_with_the_very_files_that_the_tests_use() {
    for (name, image, file) in [("nats", "nats:2.15", "nats.conf"), ("redis", "redis:7", "redis.conf")] {
        let lines = service(name);
        assert!(value(&lines, "image").starts_with(image));
        let inside = format!("/etc/{name}/{file}");
        assert!(lines.contains(&format!("- ./config/{file}:{inside}:ro")), "{lines:#?}");
        assert!(value(&lines, "command").contains(&inside), "{lines:#?}");
        assert!(
            lines.contains(&format!("- {name}-data:/data"))
                && read("docker-compose.yml").contains(&format!("\n  {name}-data:"))
        );
        assert!(value(&lines, "command").contains("\"/data\""), "its data is on the volume: {lines:#?}");
        assert!(root().join("config").join(file).is_file());
    }
    for needed in ["appendonly yes", "appendfsync always", "maxmemory-policy noeviction"] {
        assert!(read("config/redis.conf").lines().any(|line| line == needed), "{needed}");
    }
    for needed in ["max_payload: 1MB", "  sync_interval: always"] {
        assert!(read("config/nats.conf").lines().any(|line| line == needed), "{needed}");
    }
}

#[test]
fn ports_are_on_loopback_and_services_have_health_checks() {
    for name in ["nats", "redis", "serve", "worker"] {
        let lines = service(name);
        assert!(lines.iter().any(|line| line == "healthcheck:"), "{name}");
        let ports = lines.iter().skip_while(|line| *line != "ports:").skip(1).take_while(|line| line.starts_with('-'));
        for port in ports {
            assert!(port.starts_with("- \"127.0.0.1:"), "{name} opens {port}");
        }
    }
}

#[test]
fn the_settings_of_serve_and_worker_are_legal() {
    for name in ["serve", "worker"] {
        let lines = service(name);
        let mounts = lines.iter().filter_map(|line| line.strip_prefix("- ./")?.strip_suffix(":ro")?.split_once(':'));
        let mounts: BTreeMap<&str, &str> = mounts.map(|(here, there)| (there, here)).collect();
        let here = |value: &str| {
            mounts.get(value).map_or_else(|| value.to_owned(), |file| root().join(file).display().to_string())
        };
        let env: BTreeMap<String, String> = lines
            .iter()
            .filter_map(|line| line.strip_prefix("- ")?.split_once('='))
            .map(|(key, value)| (key.to_owned(), here(value)))
            .collect();
        let config = Config::load(None, &env, &[]).unwrap().config;
        assert!(config.store.require_durable && config.bus.monitor.is_some(), "{name}");
        assert!(matches!(config.store.url, StoreUrl::Redis(_)) && matches!(config.bus.url, BusUrl::Nats(_)));
        assert_eq!(value(&lines, "command"), format!("[\"{name}\"]"));
        let url = "http://127.0.0.1:8420";
        let help = cli::run(root(), &["ready", "--help"]).ok();
        assert!(help.contains(&format!("[default: {url}]")), "the health check asks there: {help}");
        let listens = if name == "serve" { Some(config.http.listen) } else { config.worker.listen };
        assert_eq!(listens.map(|address| format!("http://{address}")).as_deref(), Some(url));
        assert_eq!(value(&lines, "test"), "[\"CMD\", \"trellis\", \"ready\"]", "the image has no shell");
        let grace = humantime::parse_duration(value(&lines, "stop_grace_period")).unwrap();
        assert!(grace > config.worker.grace, "docker would kill before the shutdown is over");
        assert!(!lines.iter().any(|line| line.starts_with("container_name")), "`--scale` needs free names");
    }
}

#[test]
fn the_workers_have_the_rules_of_the_example_agents() {
    let lines = service("worker");
    let place = lines.iter().find_map(|line| line.strip_prefix("- TRELLIS__MODELS__SCRIPTED=")).unwrap();
    let mounted =
        lines.iter().find_map(|line| line.strip_prefix("- ./")?.strip_suffix(&format!(":{place}:ro"))).unwrap();
    let rules = trellis::model::rules_path::find(Some(&root().join(mounted)), "rules").unwrap();
    assert!(rules.answers_all_names, "{mounted}");
}

#[test]
fn the_image_uses_the_declared_rust_and_runs_without_root() {
    let text = read("config/Dockerfile");
    let version = env!("CARGO_PKG_RUST_VERSION");
    assert!(text.contains(&format!("FROM rust:{version}-")), "rust-version is {version}");
    let last_user = text.lines().rfind(|line| line.starts_with("USER ")).unwrap();
    let numbers = last_user.trim_start_matches("USER ").split(':').map(|id| id.parse::<u32>().unwrap());
    assert!(numbers.clone().count() == 2 && numbers.clone().all(|id| id > 0), "{last_user}");
    let stages: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("FROM ")).collect();
    let last = text.rsplit_once("\nFROM ").unwrap().1;
    assert!(!last.contains("\nRUN "), "without a shell nothing can be run");
    // One that was built with a newer C library doesn't start on an older one.
    assert_eq!(stages, [&format!("rust:{version}-bookworm AS build"), "gcr.io/distroless/cc-debian12"]);
    assert!(last.contains("CMD [\"trellis\", \"ready\"]"), "{last}");
    for line in text.lines().filter_map(|line| line.strip_prefix("COPY ")).filter(|line| !line.starts_with("--from")) {
        let mut names: Vec<&str> = line.split_whitespace().collect();
        names.pop();
        for name in names {
            assert!(root().join(name).exists(), "the image copies `{name}`");
        }
    }
}
