//! The catalog in the tree, `v/ops/`: paths that stand for operations.

/// Where the catalog lies in the tree.
pub const OPERATIONS: &str = "v/ops/";

/// The operation that runs another one, which its `operation` names, with its `input`.
pub const RUN: &str = "v/ops/job/run";

/// `lattice/read`, `lattice:read` and `/v/ops/lattice/read` → `v/ops/lattice/read`.
pub fn catalog_path(path: &str) -> String {
    let path = path.trim_matches('/').replace(':', "/");
    if path.starts_with(OPERATIONS) { path } else { format!("{OPERATIONS}{path}") }
}

/// Whether a path is a pin's, `o/<name>`, with or without its owner.
pub fn is_pin(path: &str) -> bool {
    let owned = path.starts_with('/') || path.starts_with("did:");
    path.trim_start_matches('/').starts_with("o/") || (owned && path.contains("/o/"))
}
