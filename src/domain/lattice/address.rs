//! Paths that name their owner, `did:key:z6Mk…/w/x` and `/tenant/user/w/x`: within the owner's own tree they become
//! plain paths, and paths of another owner are refused.

use super::Namespace;
use super::catalog::is_stored_operation;
use crate::ids::Owner;
use crate::ids::did::DidKey;
use crate::limits::JOB_DEPTH;
use serde_json::{Map, Value};

/// Keys of arguments that are paths, or lists of paths.
const PATHS: [&str; 9] = ["path", "paths", "from", "to", "outputPath", "definition", "config", "id", "operation"];
/// Keys of arguments that may be lists of paths.
const LISTS: [&str; 3] = ["paths", "definition", "config"];
/// Key of the argument that names what `job/run` runs.
const OPERATION: &str = "operation";
/// Key of an argument whose own keys are paths.
const LOADS: &str = "loads";

/// A path of another owner's tree.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "Capability denied: `{path}` is not in the tree of `{owner}`, and no call reaches another owner's; expected a path \
     such as `w/x`, or one behind the DID of the owner's own key"
)]
pub struct ForeignTree {
    /// The path, cut to a readable length.
    pub path: String,
    /// Owner whose tree may be reached.
    pub owner: String,
}

/// Returns the plain path of an address, or an error if it names another owner; any other text stays as it is.
pub fn to_plain_path<'t>(owner: &Owner, text: &'t str) -> Result<&'t str, ForeignTree> {
    let (is_own, rest) = if text.starts_with("did:") {
        let (did, rest) = text.split_once('/').unwrap_or((text, ""));
        (DidKey::parse(did).is_some_and(|key| key.owner() == *owner), rest)
    } else {
        let Some((tenant, user, rest)) = split_address(text) else { return Ok(text) };
        (tenant == owner.tenant().as_str() && user == owner.user().as_str(), rest)
    };
    if is_own {
        return Ok(rest);
    }
    Err(ForeignTree { path: text.chars().take(120).collect(), owner: owner.to_string() })
}

/// Splits `/tenant/user/w/x` into tenant, user and path; `/w/x` is a plain path, so `None`.
fn split_address(text: &str) -> Option<(&str, &str, &str)> {
    let (tenant, rest) = text.strip_prefix('/')?.split_once('/')?;
    let (user, rest) = rest.split_once('/')?;
    let is_namespace = |text: &str| Namespace::ALL.iter().any(|namespace| namespace.prefix() == text);
    let first = rest.split('/').next().unwrap_or_default();
    (!is_namespace(tenant) && is_namespace(first)).then_some((tenant, user, rest))
}

/// Turns the addresses in the arguments of a call into plain paths, also those of what `job/run` runs.
pub fn localise(owner: &Owner, arguments: &mut Value) -> Result<(), ForeignTree> {
    let mut arguments = arguments;
    for _ in 0..=JOB_DEPTH {
        let Value::Object(map) = arguments else { return Ok(()) };
        for key in PATHS {
            match map.get_mut(key) {
                // A path of the catalogue has no owner: bindings and records know an operation by the path that was
                // written, and would miss an address of it.
                Some(Value::String(text)) if key == OPERATION && !is_stored_operation(text.as_str()) => {}
                Some(Value::Array(all)) if LISTS.contains(&key) => {
                    for path in all {
                        localise_path(owner, path)?;
                    }
                }
                Some(path) => localise_path(owner, path)?,
                None => {}
            }
        }
        if let Some(Value::Object(loads)) = map.get_mut(LOADS) {
            let plain = loads.iter().map(|(path, load)| Ok((to_plain_path(owner, path)?.to_owned(), load.clone())));
            *loads = plain.collect::<Result<Map<_, _>, ForeignTree>>()?;
        }
        if !map.contains_key(OPERATION) {
            return Ok(());
        }
        let Some(input) = map.get_mut("input") else { return Ok(()) };
        arguments = input;
    }
    Ok(())
}

/// Makes a text, or a list of keys whose first one may be a DID, a plain path.
fn localise_path(owner: &Owner, path: &mut Value) -> Result<(), ForeignTree> {
    match path {
        Value::String(text) => {
            let plain = to_plain_path(owner, text)?;
            if plain.len() < text.len() {
                *path = plain.into();
            }
        }
        Value::Array(keys) => {
            if let Some(Value::String(did)) = keys.first()
                && did.starts_with("did:")
            {
                to_plain_path(owner, did)?;
                keys.remove(0);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => {}
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const KEY: &str = "z6MkiTBz1ymuepAQ4HEHYSF1H8quG5GLVVQR3djdX3mDooWp";

    #[test]
    fn an_address_of_the_own_tree_is_a_path_others_are_refused() {
        let of_key: Owner = format!("did/{KEY}").parse().unwrap();
        let ann: Owner = "acme/ann".parse().unwrap();
        let did = |rest: &str| format!("did:key:{KEY}{rest}");
        for (owner, text, expected) in [
            (&of_key, did("/w/x"), Some("w/x")),
            (&of_key, did("/o/look"), Some("o/look")),
            (&of_key, did(""), Some("")),
            (&of_key, format!("/did/{KEY}/w/x"), Some("w/x")),
            (&of_key, "did:key:z6MkOther/w/x".into(), None),
            (&of_key, "did:web:venue.example/w/x".into(), None),
            (&ann, did("/w/x"), None),
            (&ann, "/acme/ann/w/x".into(), Some("w/x")),
            (&ann, "/acme/bob/w/x".into(), None),
            (&ann, "/w/acme/w/x".into(), Some("/w/acme/w/x")),
            (&ann, "w/did:key:x".into(), Some("w/did:key:x")),
            (&ann, "/acme/ann".into(), Some("/acme/ann")),
        ] {
            let found = to_plain_path(owner, &text);
            assert_eq!(found.clone().ok(), expected, "{owner} {text}");
            assert!(found.is_ok() || found.unwrap_err().to_string().contains("no call reaches another owner's"));
        }
    }

    #[test]
    fn every_argument_that_is_a_path_may_name_its_owner() {
        let owner: Owner = "acme/ann".parse().unwrap();
        let check = |given: Value, expected: Option<Value>| {
            let mut arguments = given.clone();
            let done = localise(&owner, &mut arguments);
            assert_eq!(done.ok().map(|()| arguments), expected, "{given}");
        };
        check(
            json!({"path": "/acme/ann/w/x", "value": "/acme/bob/w/x"}),
            Some(json!({"path": "w/x", "value": "/acme/bob/w/x"})),
        );
        check(json!({"paths": ["w/a", "/acme/ann/w/b"]}), Some(json!({"paths": ["w/a", "w/b"]})));
        check(json!({"config": ["/acme/ann/w/t", {"a": 1}]}), Some(json!({"config": ["w/t", {"a": 1}]})));
        check(json!({"from": "/acme/ann/w/x", "to": "/acme/bob/w/x"}), None);
        check(json!({"loads": {"/acme/ann/w/x": null}}), Some(json!({"loads": {"w/x": null}})));
        check(json!({"path": [format!("did:key:{KEY}"), "w", "x"]}), None);
        check(json!({"path": ["w", "/acme/bob/w"]}), Some(json!({"path": ["w", "/acme/bob/w"]})));
        let run = |path: &str| json!({"operation": "lattice/read", "input": {"path": path}});
        check(run("/acme/ann/w/x"), Some(run("w/x")));
        check(run("/acme/bob/w/x"), None);
        let named = |operation: &str| json!({"operation": operation, "input": {"path": "w/x"}});
        check(named("/acme/ann/o/look"), Some(named("o/look")));
        check(named("/acme/bob/o/look"), None);
        for operation in ["/acme/ann/v/ops/lattice/write", "/acme/bob/v/ops/lattice/write"] {
            check(named(operation), Some(named(operation)));
        }
        check(json!([1]), Some(json!([1])));
    }
}
