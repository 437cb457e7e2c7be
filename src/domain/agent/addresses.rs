//! Addresses in a configuration, `/tenant/user/w/x` and `did:key:…/w/x`: those into its owner's own tree become plain
//! paths.

use crate::ids::Owner;
use crate::lattice::address::{ForeignTree, to_plain_path};
use crate::lattice::catalog::strip_owner;
use serde_json::Value;

/// Keys of lists of capabilities.
const CAPS: [&str; 2] = ["caps", "delegable"];
/// Keys of a context entry that are paths.
const SOURCES: [&str; 2] = ["ref", "op"];

/// Turns the addresses of a configuration into plain paths: in capabilities, context entries, and the same inside
/// `state`. Without an owner every address counts as an own one, which serves to check the rest.
///
/// # Errors
/// An address leads into another owner's tree.
pub fn localise(owner: Option<&Owner>, config: &mut Value) -> Result<(), ForeignTree> {
    localise_level(owner, config)?;
    if let Some(state) = config.get_mut("state") {
        localise_level(owner, state)?;
        if let Some(config) = state.get_mut("config") {
            localise_level(owner, config)?;
        }
    }
    Ok(())
}

fn localise_level(owner: Option<&Owner>, config: &mut Value) -> Result<(), ForeignTree> {
    for cap in CAPS.iter().flat_map(|key| items(config, key)).collect::<Vec<_>>() {
        let with = config.pointer_mut(&format!("{cap}/with"));
        with.map_or(Ok(()), |with| localise_text(owner, with))?;
    }
    for entry in items(config, "context") {
        let Some(entry) = config.pointer_mut(&entry) else { continue };
        // A text with spaces is literal text.
        if entry.as_str().is_some_and(|text| !text.contains(char::is_whitespace)) {
            localise_text(owner, entry)?;
        }
        for key in SOURCES {
            entry.get_mut(key).map_or(Ok(()), |path| localise_text(owner, path))?;
        }
    }
    Ok(())
}

/// Returns the JSON pointers of the items of a list.
fn items(config: &Value, key: &str) -> Vec<String> {
    let count = config.get(key).and_then(Value::as_array).map_or(0, Vec::len);
    (0..count).map(|at| format!("/{key}/{at}")).collect()
}

fn localise_text(owner: Option<&Owner>, value: &mut Value) -> Result<(), ForeignTree> {
    let Some(text) = value.as_str() else { return Ok(()) };
    let plain = match owner {
        Some(owner) => to_plain_path(owner, text)?,
        None if text.starts_with('/') || text.starts_with("did:") => strip_owner(text),
        None => text,
    };
    if plain != text {
        *value = plain.into();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn own_addresses_become_paths_and_foreign_ones_are_refused() {
        let owner: Owner = "acme/ann".parse().unwrap();
        let given = |of: &str| {
            let at = |path: &str| format!("/acme/{of}/{path}");
            let inside = json!({
                "caps": [{"with": at("w/a"), "can": "crud"}],
                "delegable": [{"with": at("w"), "can": "crud/read"}],
                "context": [at("w/b"), format!("{} is text", at("w/b")), {"ref": at("w/c")}, {"op": at("o/look"), "input": {}}],
            });
            json!({"caps": inside["caps"], "context": inside["context"], "state": {"context": inside["context"], "config": inside}})
        };
        let expected = {
            let context = json!(["w/b", "/acme/ann/w/b is text", {"ref": "w/c"}, {"op": "o/look", "input": {}}]);
            let caps = json!([{"with": "w/a", "can": "crud"}]);
            let inside = json!({"caps": caps, "delegable": [{"with": "w", "can": "crud/read"}], "context": context});
            json!({"caps": caps, "context": context, "state": {"context": context, "config": inside}})
        };
        let mut own = given("ann");
        localise(Some(&owner), &mut own).unwrap();
        assert_eq!(own, expected);
        let error = localise(Some(&owner), &mut given("bob")).unwrap_err();
        assert!(error.to_string().contains("`/acme/bob/w/a` is not in the tree of `acme/ann`"), "{error}");
        let mut anybody = given("bob");
        localise(None, &mut anybody).unwrap();
        assert_eq!(anybody["caps"], expected["caps"]);
        for other in [json!(null), json!({"caps": 1, "context": {}, "state": []}), json!({"context": [1, null]})] {
            let mut same = other.clone();
            localise(Some(&owner), &mut same).unwrap();
            assert_eq!(same, other);
        }
    }
}
