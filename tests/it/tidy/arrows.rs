//! Which module at the top may use which: a new arrow is a decision, and there is no circle.

use super::{Source, report, sources};
use std::collections::{BTreeMap, BTreeSet};

/// Each module with those that it may use. All stand below it, so that no circle can be.
const USES: [(&str, &[&str]); 14] = [
    ("domain", &[]),
    ("config", &["domain"]),
    ("view", &["domain"]),
    ("process", &["domain", "config"]),
    ("store", &["domain", "process"]),
    ("bus", &["domain", "config", "process", "store"]),
    ("venue", &["domain", "view", "config", "process", "store", "bus"]),
    ("model", &["domain", "config", "venue"]),
    ("ops", &["domain", "view", "store", "venue", "model"]),
    ("worker", &["domain", "view", "process", "store", "bus", "venue", "model", "ops"]),
    ("http", &["domain", "view", "process", "store", "bus", "venue", "ops"]),
    ("app", &["domain", "config", "process", "store", "bus", "venue", "model", "ops", "worker", "http"]),
    ("bench", &["domain", "process", "store", "bus", "venue", "ops", "http"]),
    ("cli", &["domain", "view", "config", "process", "store", "bus", "venue", "model", "http", "app", "bench"]),
];

/// Modules of the crate `platform`, which the crate above has under the same names.
const PLATFORM: [&str; 4] = ["config", "process", "store", "bus"];

/// The module at the top that a file is of; `None`: it is the crate's root or no part of the crate.
fn module_of(source: &Source) -> Option<&str> {
    let path = source.path.strip_prefix("src/")?;
    let path = path.strip_prefix("platform/").unwrap_or(path);
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
        found.extend(first_names(rest).into_iter().map(|name| (line, name)));
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

/// Paths `crate::<module>::<child>` and, in files right below the module, `super::<child>`: which children of a module
/// use which, each with a place.
fn children_used(module: &str, all: &[Source]) -> BTreeMap<(String, String), String> {
    let parent = if PLATFORM.contains(&module) { "src/platform" } else { "src" };
    let folder = format!("{parent}/{module}/");
    let root = if module == "domain" { String::new() } else { format!("{module}::") };
    let mut found = BTreeMap::new();
    for source in all {
        let Some(path) = source.path.strip_prefix(&folder) else { continue };
        let (child, deep) = path.split_once('/').map_or((path, false), |(child, _)| (child, true));
        let child = child.strip_suffix(".rs").unwrap_or(child);
        if matches!(child, "mod" | "lib") {
            continue;
        }
        let code: String = source.code().flat_map(|(_, line)| [line, "\n"]).collect();
        let mut roots = vec![format!("crate::{root}")];
        if !deep {
            roots.push("super::".to_owned());
        }
        for prefix in roots {
            for (at, _) in code.match_indices(&prefix) {
                if code[..at].ends_with("super::") {
                    continue;
                }
                let line = code[..at].lines().count().max(1);
                for other in first_names(&code[at + prefix.len()..]).into_iter().filter(|other| other != child) {
                    found.entry((child.to_owned(), other)).or_insert_with(|| source.at(line, String::new()));
                }
            }
        }
    }
    found
}

/// The first name of a path, or those of a group of paths.
fn first_names(rest: &str) -> Vec<String> {
    let name = |text: &str| text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
    match rest.strip_prefix('{').and_then(|group| group.split_once('}')) {
        Some((group, _)) => group.split(',').map(|part| name(part.trim())).collect(),
        None => vec![name(rest)],
    }
}

#[test]
fn the_folders_of_a_module_form_no_circle() {
    let all = sources();
    let mut violations = Vec::new();
    for (module, _) in USES {
        let used = children_used(module, &all);
        let children: BTreeSet<&String> = used.keys().map(|(child, _)| child).collect();
        let next = |from: &str| -> Vec<&String> {
            used.keys().filter(|(child, _)| child == from).map(|(_, other)| other).collect()
        };
        let reached = |from: &str| {
            let (mut seen, mut open) = (BTreeSet::new(), next(from));
            while let Some(name) = open.pop() {
                if seen.insert(name.clone()) {
                    open.extend(next(name));
                }
            }
            seen
        };
        let circle: BTreeSet<String> =
            children.iter().filter(|child| reached(child).contains(**child)).map(|child| (*child).clone()).collect();
        for ((from, to), place) in &used {
            if circle.contains(from) && circle.contains(to) {
                violations.push(format!("{place}: `{module}::{from}` uses `{to}`, which uses it in turn"));
            }
        }
    }
    report(&violations);
}
