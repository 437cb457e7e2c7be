//! The description is whole, and as rich as the one that was kept by hand.

use super::*;
use crate::http::routes::routes;
use std::collections::BTreeSet;

/// What `{"$ref": …}` stands for.
fn meant<'d>(document: &'d Value, value: &'d Value) -> &'d Value {
    match value["$ref"].as_str() {
        Some(reference) => meant(document, document.pointer(&reference[1..]).unwrap()),
        None => value,
    }
}

/// Names of parameters, statuses, and keys of the body of a method.
fn offers(document: &Value, path: &str, method: &str) -> [BTreeSet<String>; 3] {
    let item = &document["paths"][path];
    let operation = &item[method];
    let parameters =
        [&item["parameters"], &operation["parameters"]].into_iter().filter_map(|all| all.as_array()).flatten();
    let names = parameters.map(|one| meant(document, one)["name"].as_str().unwrap().to_owned()).collect();
    let statuses = operation["responses"].as_object().unwrap().keys().cloned().collect();
    let bodies = operation["requestBody"]["content"].as_object().into_iter().flatten();
    let keys = bodies.filter_map(|(_, body)| {
        let mut parts = ["/schema", "/schema/anyOf/0", "/schema/allOf/0"].iter().filter_map(|part| body.pointer(part));
        parts.find_map(|schema| meant(document, schema)["properties"].as_object())
    });
    [names, statuses, keys.flatten().map(|(key, _)| key.clone()).collect()]
}

#[test]
fn every_handwritten_description_is_present() {
    let document = document(&routes());
    let mut lines = 0;
    for line in include_str!("pinned.txt").lines() {
        let parts: Vec<_> = line.split('|').collect();
        let (method, path) = parts[0].split_once(' ').unwrap();
        assert!(document["paths"][path][method]["summary"].is_string(), "{line}");
        for (had, has) in parts[1..].iter().zip(offers(&document, path, method)) {
            let missing: Vec<_> = had.split_whitespace().filter(|name| !has.contains(*name)).collect();
            assert!(missing.is_empty(), "{method} {path}: {missing:?}");
        }
        lines += 1;
    }
    assert_eq!(lines, 58);
}

#[test]
fn references_resolve_and_path_placeholders_are_parameters() {
    let document = document(&routes());
    let text = document.to_string();
    let mut text = text.as_str();
    while let Some((_, rest)) = text.split_once("\"#/") {
        let (pointer, rest) = rest.split_once('"').unwrap();
        assert!(document.pointer(&format!("/{pointer}")).is_some(), "dangling `#/{pointer}`");
        text = rest;
    }
    let mut ids = BTreeSet::new();
    for route in routes() {
        let path = route.path.replace("{*", "{");
        let [names, ..] = offers(&document, &path, route.method);
        for name in path.split('{').skip(1).map(|part| part.split('}').next().unwrap()) {
            assert!(names.contains(name), "{path}: `{name}`");
        }
        assert!(ids.insert(route.about.id) && !route.about.id.is_empty(), "{} {path}", route.method);
        assert!(!route.about.answers.is_empty(), "{} {path}", route.method);
    }
    for (name, link) in document["components"]["links"].as_object().unwrap() {
        assert!(ids.contains(link["operationId"].as_str().unwrap()), "{name}");
    }
}
