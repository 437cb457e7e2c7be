//! The catalogue in the lattice, `v/ops/`: paths of operations.

use super::Namespace;

/// Path prefix of the catalogue.
pub const OPERATIONS: &str = "v/ops/";

/// Path of the operation that runs another one: `operation` names it, `input` is its input.
pub const RUN: &str = "v/ops/job/run";

/// Returns the full path of an operation: `lattice/read`, `lattice:read` and `/v/ops/lattice/read` →
/// `v/ops/lattice/read`.
pub fn catalog_path(path: &str) -> String {
    let path = path.trim_matches('/').replace(':', "/");
    if path.starts_with(OPERATIONS) { path } else { format!("{OPERATIONS}{path}") }
}

/// Whether an operation is [`RUN`], by its own path or one of Covia's.
pub fn is_run(path: &str) -> bool {
    [RUN, "v/ops/grid/run", "v/ops/grid/invoke"].contains(&path)
}

/// Namespaces in which a value may stand for an operation: pins, the workspace and assets.
const STORED: [&str; 3] = ["o/", "w/", "a/"];

/// Whether a path leads to a value that stands for an operation: a pin `o/<name>`, a definition below `w/`, or an asset
/// `a/<hash>`, each with or without its owner; or the hash of an asset alone.
pub fn is_stored_operation(path: &str) -> bool {
    let plain = strip_owner(path);
    STORED.iter().any(|namespace| plain.starts_with(namespace)) || is_hash(plain)
}

/// Whether a text is 64 hex digits, with or without `0x`.
fn is_hash(text: &str) -> bool {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    digits.len() == 64 && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Returns the path behind `did:…/` or `/tenant/user/`, or behind its first slash.
pub fn strip_owner(path: &str) -> &str {
    let is_namespace = |segment: &str| Namespace::ALL.iter().any(|namespace| namespace.prefix() == segment);
    if path.starts_with("did:") {
        return path.split_once('/').map_or("", |(_, rest)| rest);
    }
    let Some(rest) = path.strip_prefix('/') else { return path };
    let mut parts = rest.splitn(3, '/');
    match (parts.next(), parts.next(), parts.next()) {
        (Some(tenant), Some(_), Some(plain)) if !is_namespace(tenant) => plain,
        _ => rest,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pins_definitions_and_assets_stand_for_operations() {
        let hash = "ab".repeat(32);
        for (path, expected) in [
            ("o/look", true),
            ("/o/look/", true),
            ("w/ops/look", true),
            ("/acme/ann/o/look", true),
            ("/acme/ann/w/look", true),
            ("did:key:z6Mk/o/look", true),
            (&*hash, true),
            (&format!("0x{hash}"), true),
            (&format!("a/{hash}"), true),
            ("v/ops/o/x", false),
            ("/v/ops/w/x", false),
            ("lattice/read", false),
            ("asset:get", false),
            ("did:key:z6Mk", false),
            ("/acme/ann/v/ops/json/merge", false),
        ] {
            assert_eq!(is_stored_operation(path), expected, "{path}");
        }
    }
}
