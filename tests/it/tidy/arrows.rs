//! Which module at the top may use which: a new arrow is a decision, and there is no circle.

use super::{Source, report, sources};
use std::collections::BTreeSet;

/// Each module with those that it may use. All stand below it, so that no circle can be.
const USES: [(&str, &[&str]); 16] = [
    ("domain", &[]),
    ("config", &["domain"]),
    ("process", &["domain", "config"]),
    ("store", &["domain", "process"]),
    ("bus", &["domain", "config", "process", "store"]),
    ("outbox", &["domain", "process", "store", "bus"]),
    ("venue", &["domain", "config", "process", "store", "bus", "outbox"]),
    ("model", &["domain", "venue"]),
    ("ingress", &["domain", "store", "bus", "venue"]),
    ("upkeep", &["domain", "store", "bus", "outbox", "venue", "ingress"]),
    ("ops", &["domain", "store", "outbox", "venue", "model", "ingress", "upkeep"]),
    ("worker", &["domain", "process", "store", "bus", "outbox", "venue", "model", "ingress", "upkeep", "ops"]),
    ("http", &["domain", "store", "bus", "venue", "ingress", "upkeep", "ops"]),
    ("app", &["domain", "config", "process", "store", "bus", "venue", "model", "upkeep", "ops", "worker", "http"]),
    ("bench", &["domain", "process", "store", "bus", "venue", "ingress", "upkeep", "ops"]),
    (
        "cli",
        &["domain", "config", "process", "store", "bus", "venue", "model", "ingress", "upkeep", "http", "app", "bench"],
    ),
];

/// The module at the top that a file is of; `None`: it is the crate's root or no part of the crate.
fn module_of(source: &Source) -> Option<&str> {
    let path = source.path.strip_prefix("src/")?;
    let top = path.split('/').next()?;
    let name = top.strip_suffix(".rs").unwrap_or(top);
    (!matches!(name, "lib" | "main")).then_some(name)
}

/// First names of the paths into the crate that production code has, with their lines.
fn named(source: &Source) -> Vec<(usize, String)> {
    let code: String = source.code().flat_map(|(_, line)| [line, "\n"]).collect();
    let mut found = Vec::new();
    for (at, root) in code.match_indices("crate::") {
        let line = code[..at].lines().count().max(1);
        let rest = &code[at + root.len()..];
        let name = |text: &str| text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
        match rest.strip_prefix('{').and_then(|group| group.split_once('}')) {
            Some((group, _)) => found.extend(group.split(',').map(|part| (line, name(part.trim())))),
            None => found.push((line, name(rest))),
        }
    }
    found
}

#[test]
fn modules_use_those_below_them_and_no_others() {
    let mut violations = Vec::new();
    let mut used = BTreeSet::new();
    for source in &sources() {
        let Some(module) = module_of(source).filter(|module| *module != "domain") else { continue };
        let Some((name, allowed)) = USES.iter().find(|(name, _)| *name == module) else {
            violations.push(source.at(1, format!("`{module}` is no module of the table in {}", file!())));
            continue;
        };
        for (line, other) in named(source).into_iter().filter(|(_, other)| other != module) {
            if allowed.contains(&other.as_str()) {
                used.insert((*name, other));
            } else {
                violations.push(source.at(line, format!("`{module}` uses `{other}`, which is not below it")));
            }
        }
    }
    for (name, allowed) in USES {
        let idle = allowed.iter().filter(|other| !used.contains(&(name, (**other).to_owned())));
        violations.extend(idle.map(|other| format!("{}: `{name}` may use `{other}` and doesn't", file!())));
    }
    report(&violations);
}

#[test]
fn the_table_has_no_circle() {
    for (at, (name, allowed)) in USES.iter().enumerate() {
        let below: Vec<&str> = USES[..at].iter().map(|(name, _)| *name).collect();
        let above: Vec<_> = allowed.iter().filter(|other| !below.contains(*other)).collect();
        assert!(above.is_empty(), "`{name}` may use {above:?}, which stand above it");
    }
}
