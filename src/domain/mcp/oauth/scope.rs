//! Scopes: which are legal, and which are asked for.

use crate::limits::{MCP_SCOPE_BYTES, MCP_SCOPES};

/// Scope that some login servers want for a token that renews others.
const OFFLINE_ACCESS: &str = "offline_access";

/// Rule that a list of scopes breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ScopeError {
    /// The list is too long.
    #[error("expected at most {MCP_SCOPES} scopes of {MCP_SCOPE_BYTES} bytes together")]
    TooLong,
    /// A scope has a character that none may have.
    #[error("expected scopes of printable ASCII characters, without quotes and `\\`")]
    Characters,
}

/// Where the scopes of a login come from.
#[derive(Debug, Clone, Copy, Default)]
pub struct ScopeSources<'s> {
    /// Scopes that the configuration names.
    pub configured: Option<&'s [String]>,
    /// Scopes that the server's refusal names.
    pub challenged: Option<&'s [String]>,
    /// Scopes that the server's metadata names.
    pub of_resource: Option<&'s [String]>,
    /// Scopes of an earlier login, and those that a call lacked since.
    pub earlier: &'s [String],
    /// Scopes that the login server's metadata names.
    pub of_issuer: Option<&'s [String]>,
}

/// Splits a text into its scopes, each once.
pub fn parse_scopes(text: &str) -> Result<Vec<String>, ScopeError> {
    if text.len() > MCP_SCOPE_BYTES {
        return Err(ScopeError::TooLong);
    }
    let mut scopes: Vec<String> = Vec::new();
    for scope in text.split(' ').filter(|scope| !scope.is_empty()) {
        if !scopes.iter().any(|known| known == scope) {
            scopes.push(scope.to_owned());
        }
    }
    check_scopes(&scopes).map(|()| scopes)
}

/// Checks scopes that are in a list already.
pub fn check_scopes(scopes: &[String]) -> Result<(), ScopeError> {
    let bytes: usize = scopes.iter().map(|scope| scope.len() + 1).sum();
    if scopes.len() > MCP_SCOPES || bytes > MCP_SCOPE_BYTES + 1 {
        return Err(ScopeError::TooLong);
    }
    let is_legal = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\');
    let are_legal = scopes.iter().all(|scope| !scope.is_empty() && scope.bytes().all(is_legal));
    if are_legal { Ok(()) } else { Err(ScopeError::Characters) }
}

/// Returns the scopes to ask for: those of the configuration, else of the refusal, else of the server's metadata, else none;
/// with them those of an earlier login, and the one for renewals where the login server has it.
pub fn select_scopes(sources: &ScopeSources<'_>) -> Result<Vec<String>, ScopeError> {
    let base = sources.configured.or(sources.challenged).or(sources.of_resource).unwrap_or_default();
    let mut scopes = Vec::new();
    for scope in base.iter().chain(sources.earlier) {
        // What the login server doesn't have, it would refuse.
        let is_left_out = scope == OFFLINE_ACCESS && sources.configured.is_none();
        if !is_left_out && !scopes.contains(scope) {
            scopes.push(scope.clone());
        }
    }
    let has_offline = sources.of_issuer.is_some_and(|supported| supported.iter().any(|scope| scope == OFFLINE_ACCESS));
    // Alone it would stand for less than the scopes that the login server gives by itself.
    if has_offline && !scopes.is_empty() && !wants_offline(&scopes) {
        scopes.push(OFFLINE_ACCESS.to_owned());
    }
    check_scopes(&scopes).map(|()| scopes)
}

/// Whether the scopes are to outlast the person's visit, so that the login server must ask for consent.
pub fn wants_offline(scopes: &[String]) -> bool {
    scopes.iter().any(|scope| scope == OFFLINE_ACCESS)
}

/// Returns the scopes that are wanted and not among those that were asked for.
pub fn missing_scopes(wanted: &[String], asked: &[String]) -> Vec<String> {
    wanted.iter().filter(|scope| !asked.contains(scope)).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    /// A text of `-` is an absent list.
    fn select(parts: [&str; 5]) -> String {
        let lists = parts.map(list);
        let given = |at: usize| (parts[at] != "-").then_some(&lists[at][..]);
        let sources = ScopeSources {
            configured: given(0),
            challenged: given(1),
            of_resource: given(2),
            earlier: &lists[3],
            of_issuer: given(4),
        };
        select_scopes(&sources).unwrap().join(" ")
    }

    #[test]
    fn scopes_come_from_the_first_that_names_them() {
        for (parts, expected) in [
            (["-", "-", "-", "", "-"], ""),
            (["-", "-", "a b", "", "-"], "a b"),
            (["-", "c", "a b", "", "-"], "c"),
            (["d", "c", "a b", "", "-"], "d"),
            (["", "c", "a b", "", "-"], ""),
            (["-", "c", "-", "a c", "-"], "c a"),
            (["-", "a", "-", "", "a offline_access"], "a offline_access"),
            (["-", "a", "-", "", "a b"], "a"),
            (["-", "a offline_access", "-", "", "a b"], "a"),
            (["a offline_access", "-", "-", "", "-"], "a offline_access"),
            (["-", "-", "-", "", "offline_access"], ""),
        ] {
            assert_eq!(select(parts), expected, "{parts:?}");
        }
    }

    #[test]
    fn scopes_are_bounded_and_legal() {
        assert_eq!(parse_scopes(" a  b a "), Ok(list("a b")));
        assert_eq!(parse_scopes(""), Ok(vec![]));
        assert_eq!(parse_scopes("a\tb"), Err(ScopeError::Characters));
        assert_eq!(parse_scopes("a\"b"), Err(ScopeError::Characters));
        assert_eq!(parse_scopes("é"), Err(ScopeError::Characters));
        assert_eq!(parse_scopes(&"x".repeat(1 << 20)), Err(ScopeError::TooLong));
        let many: Vec<String> = (0..65).map(|n| n.to_string()).collect();
        assert_eq!(parse_scopes(&many.join(" ")), Err(ScopeError::TooLong));
        assert_eq!(missing_scopes(&list("a b"), &list("b")), ["a"]);
    }
}
