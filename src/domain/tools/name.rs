//! Names of tools, and paths that stand for operations.

/// Longest tool name that providers accept.
pub(super) const MAX_NAME: usize = 64;

/// `v/ops/covia/read` → `covia_read`, `o/look` → `look`.
pub fn tool_name(path: &str) -> String {
    let plain = path.trim_matches('/');
    let short = match plain.rsplit_once('/') {
        Some((_, pin)) if is_pin(path) => pin,
        Some(_) | None => plain.trim_start_matches("v/ops/"),
    };
    let name: String =
        short.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '_' }).collect();
    name.chars().take(MAX_NAME).collect()
}

/// Whether a path is a pin's, `o/<name>`, with or without its owner.
pub fn is_pin(path: &str) -> bool {
    let owned = path.starts_with('/') || path.starts_with("did:");
    path.trim_start_matches('/').starts_with("o/") || (owned && path.contains("/o/"))
}

/// Why a path of a configuration is no tool.
pub(super) fn missing(path: &str) -> &'static str {
    if is_pin(path) {
        "no pin of an operation, or none that this agent may read"
    } else {
        "no such operation in the catalog"
    }
}

pub(super) fn is_legal(name: &str) -> bool {
    (1..=MAX_NAME).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_and_pins_have_names_of_tools() {
        for (path, name, pin) in [
            ("v/ops/covia/read", "covia_read", false),
            ("covia:read", "covia_read", false),
            ("o/look", "look", true),
            ("/o/look/", "look", true),
            ("did:key:z6Mk/o/look it up", "look_it_up", true),
            ("/acme/ann/o/look", "look", true),
            ("v/ops/o/x", "o_x", false),
        ] {
            assert_eq!((tool_name(path).as_str(), is_pin(path)), (name, pin), "{path}");
        }
    }
}
