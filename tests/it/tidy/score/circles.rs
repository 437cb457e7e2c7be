//! Circles of files: which need each other, `mod.rs` included.

use super::Figure;
use super::reading::Reading;
use std::collections::{BTreeMap, BTreeSet};

type ModulePath = Vec<String>;

/// The crate and the module that a file is.
fn module_of(path: &str) -> ModulePath {
    let path = path.strip_prefix("src/").unwrap_or(path);
    let path = path.strip_suffix(".rs").unwrap_or(path);
    let mut parts: Vec<String> = path.split('/').map(str::to_owned).collect();
    if parts.last().is_some_and(|last| matches!(last.as_str(), "mod" | "lib" | "main")) {
        parts.pop();
    }
    // The root of a crate has a name of its own: `domain` and `platform` lie in the folder of the third.
    if parts.first().is_none_or(|first| first != "domain" && first != "platform") {
        parts.insert(0, "trellis".to_owned());
    }
    parts
}

struct Graph<'a> {
    modules: BTreeMap<ModulePath, &'a Reading>,
}

impl Graph<'_> {
    /// The module whose item a path of this module names; `None`: it names nothing of this crate.
    fn target(&self, from: &[String], path: &[String], depth: usize) -> Option<ModulePath> {
        let mut at = match path.first()?.as_str() {
            "crate" => vec![from[0].clone()],
            "self" => from.to_vec(),
            "super" => from[..from.len() - 1].to_vec(),
            first => {
                let child: ModulePath = from.iter().cloned().chain([first.to_owned()]).collect();
                if !self.modules.contains_key(&child) {
                    return None;
                }
                child
            }
        };
        let mut rest = path[1..].iter().peekable();
        while let Some(name) = rest.peek() {
            let next = if *name == "super" {
                at[..at.len().saturating_sub(1)].to_vec()
            } else {
                at.iter().cloned().chain([(*name).clone()]).collect()
            };
            if !self.modules.contains_key(&next) {
                break;
            }
            at = next;
            rest.next();
        }
        // Followed to where it is defined, if the module only passes it on.
        if let (Some(name), true) = (rest.peek(), depth < 8)
            && let Some((to, _)) = self.modules.get(&at)?.exports.iter().find(|(_, as_name)| as_name == *name)
            && let Some(found) = self.target(&at, to, depth + 1)
        {
            return Some(found);
        }
        Some(at)
    }

    fn edges(&self) -> BTreeMap<ModulePath, BTreeSet<ModulePath>> {
        let edges = self.modules.iter().map(|(module, reading)| {
            let to = reading.paths.iter().filter_map(|path| self.target(module, path, 0));
            (module.clone(), to.filter(|to| to != module && self.modules.contains_key(to)).collect())
        });
        edges.collect()
    }
}

fn reachable(edges: &BTreeMap<ModulePath, BTreeSet<ModulePath>>, from: &ModulePath) -> BTreeSet<ModulePath> {
    let (mut seen, mut open) = (BTreeSet::new(), vec![from]);
    while let Some(module) = open.pop() {
        for next in &edges[module] {
            if seen.insert(next.clone()) {
                open.push(next);
            }
        }
    }
    seen
}

/// The largest set of files of which each needs each other.
fn largest_circle(readings: &[Reading]) -> Vec<String> {
    let graph = Graph { modules: readings.iter().map(|reading| (module_of(&reading.path), reading)).collect() };
    let edges = graph.edges();
    let reach: BTreeMap<_, _> = edges.keys().map(|module| (module, reachable(&edges, module))).collect();
    let circle_of = |module: &ModulePath| -> Vec<String> {
        let to = reach[module].iter().filter(|other| reach[*other].contains(module));
        to.map(|other| graph.modules[other].path.clone()).collect()
    };
    edges.keys().map(circle_of).max_by_key(Vec::len).unwrap_or_default()
}

pub fn largest(readings: &[Reading]) -> Figure {
    Figure::new("files in the largest circle of files", 4, 4, largest_circle(readings))
}

#[test]
fn files_that_need_each_other_are_a_circle() {
    let file = |path: &str, paths: &[&str], exports: &[(&str, &str)]| {
        let split = |path: &str| path.split("::").map(str::to_owned).collect::<Vec<_>>();
        Reading {
            path: path.to_owned(),
            paths: paths.iter().map(|path| split(path)).collect(),
            exports: exports.iter().map(|(path, name)| (split(path), (*name).to_owned())).collect(),
            ..Reading::default()
        }
    };
    let circle = |b: &str| {
        largest_circle(&[
            file("src/lib.rs", &[], &[]),
            file("src/a/mod.rs", &[], &[("c::C", "C")]),
            file("src/a/c.rs", &["super::b::B"], &[]),
            file("src/a/b.rs", &[b], &[]),
        ])
    };
    assert_eq!(circle("super::C"), ["src/a/b.rs", "src/a/c.rs"], "a re-export is followed");
    assert_eq!(circle("crate::a::D"), Vec::<String>::new(), "a module that passes on a child doesn't need it");
}
