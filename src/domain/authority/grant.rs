//! Grants of a request, checked at intake: before a job exists and before any model call.

use super::Authority;
use super::ability::unknown_ability;
use super::capability::{Capability, CapabilityError, RESOURCES, covers, is_of_resources, overlaps, readable};
use crate::decode::{self, DataError};
use crate::visible::{self, first_hidden};
use serde_json::Value;
use unicode_normalization::is_nfc;

/// Number of grants of one request at most.
pub const MAX_GRANTS: usize = 256;

/// Bytes of a grant at most.
const MAX_BYTES: usize = 1024;

/// A refused grant; the whole request is refused with it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("GRANT_INVALID: grant {element}: {rule}")]
pub struct GrantError {
    /// Text of the grant, cut to 160 bytes.
    pub element: String,
    /// Rule that the grant breaks.
    pub rule: GrantRuleError,
}

/// Rule that a grant breaks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GrantRuleError {
    /// The request names too many grants.
    #[error("expected at most {MAX_GRANTS}")]
    Number,
    /// The grant is neither a text nor a map.
    #[error("expected a string or `{{with, can}}`")]
    Kind,
    /// The map has another form than a capability.
    #[error(transparent)]
    Data(#[from] DataError),
    /// The capability breaks a rule of its own.
    #[error(transparent)]
    Capability(#[from] CapabilityError),
    /// The namespace breaks a rule of namespaces.
    #[error("{0}")]
    Namespace(&'static str),
    /// The namespace is protected, or contains one that is.
    #[error(transparent)]
    Protected(#[from] ProtectedNamespaceError),
}

/// Relation of a granted namespace to a protected one by which it is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProtectedNamespaceError {
    /// The granted namespace is the protected one.
    #[error("namespace `{protected}` is protected")]
    Same {
        /// Namespace that is protected.
        protected: String,
    },
    /// The granted namespace contains the protected one.
    #[error("it contains the protected namespace `{protected}`")]
    Above {
        /// Namespace that is protected.
        protected: String,
    },
    /// The granted namespace is not deep enough below the protected one.
    #[error("expected at least {min} segments below the protected `{protected}`, got {found}")]
    JustBelow {
        /// Namespace that is protected.
        protected: String,
        /// Number of segments below it that a grant needs.
        min: usize,
        /// Number of segments below it that the grant has.
        found: usize,
    },
}

/// Reason why the text of a boundary is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BoundaryError {
    /// The namespace breaks a rule of namespaces.
    #[error("`{namespace}`: {rule}")]
    Namespace {
        /// Namespace as it was given.
        namespace: String,
        /// Rule that the namespace breaks.
        rule: &'static str,
    },
    /// A key is unknown, or its number is none.
    #[error("expected `min=N`, `boundary` or `ancestor`, got `{found}`")]
    Key {
        /// Key as it was given.
        found: String,
    },
}

/// A grant that its parent doesn't hold.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("GRANT_NOT_WITHIN_PARENT: `{grant}` is not within what you hold; a request may only hand on the same or less")]
pub struct NotWithinParent {
    /// Grant as the call named it.
    pub grant: String,
}

/// A resource namespace at and above which no request may be granted anything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Boundary {
    /// Namespace without `r/`, e.g. `app/user`.
    pub namespace: String,
    /// Number of segments that a grant needs below it.
    pub min_descendants: usize,
    /// Whether a grant of the namespace itself is legal.
    pub allow_boundary: bool,
    /// Whether a grant of what contains the namespace is legal.
    pub allow_ancestor: bool,
}

impl Boundary {
    /// Reads `NAMESPACE[:KEY…]` with the keys `min=N`, `boundary`, `ancestor`.
    pub fn parse(text: &str) -> Result<Self, BoundaryError> {
        let mut parts = text.split(':');
        let namespace = parts.next().unwrap_or_default();
        check_namespace(namespace)
            .map_err(|rule| BoundaryError::Namespace { namespace: namespace.to_owned(), rule })?;
        let mut boundary =
            Self { namespace: namespace.to_owned(), min_descendants: 1, allow_boundary: false, allow_ancestor: false };
        for part in parts {
            match (part, part.strip_prefix("min=").map(str::parse)) {
                ("boundary", _) => boundary.allow_boundary = true,
                ("ancestor", _) => boundary.allow_ancestor = true,
                (_, Some(Ok(min))) => boundary.min_descendants = min,
                _ => return Err(BoundaryError::Key { found: part.to_owned() }),
            }
        }
        Ok(boundary)
    }

    /// Checks a granted namespace against this boundary.
    fn check(&self, namespace: &str) -> Result<(), ProtectedNamespaceError> {
        let protected = || self.namespace.clone();
        if *namespace == self.namespace {
            let refused = || ProtectedNamespaceError::Same { protected: protected() };
            return if self.allow_boundary { Ok(()) } else { Err(refused()) };
        }
        if covers(namespace, &self.namespace) {
            let refused = || ProtectedNamespaceError::Above { protected: protected() };
            return if self.allow_ancestor { Ok(()) } else { Err(refused()) };
        }
        let below = namespace.strip_prefix(self.namespace.as_str()).and_then(|rest| rest.strip_prefix('/'));
        let depth = below.map_or(usize::MAX, |rest| rest.split('/').count());
        if depth < self.min_descendants {
            let min = self.min_descendants;
            return Err(ProtectedNamespaceError::JustBelow { protected: protected(), min, found: depth });
        }
        Ok(())
    }
}

/// Whether a character counts as whitespace: Unicode whitespace and the byte order mark.
fn is_space(c: char) -> bool {
    c.is_whitespace() || c == '\u{feff}'
}

/// Checks a namespace; the error is the first rule that it breaks.
pub fn check_namespace(text: &str) -> Result<(), &'static str> {
    let segments = || text.split('/');
    let rules: [(&'static str, bool); 12] = [
        ("it is empty", text.is_empty()),
        ("whitespace around it is not allowed", text.trim_matches(is_space) != text),
        ("a `/` at its beginning or end is not allowed", text.starts_with('/') || text.ends_with('/')),
        ("`//` is not allowed", text.contains("//")),
        ("a segment `.` or `..` is not allowed", segments().any(|segment| segment == "." || segment == "..")),
        ("`*` is not allowed", text.contains('*')),
        ("whitespace in a segment is not allowed", text.contains(is_space)),
        ("control characters are not allowed", text.contains(char::is_control)),
        (visible::RULE, first_hidden(text).is_some()),
        ("`>` is not allowed", text.contains('>')),
        ("expected Unicode normalisation form C", !is_nfc(text)),
        ("it is longer than 1024 bytes", text.len() > MAX_BYTES),
    ];
    rules.into_iter().find(|(_, broken)| *broken).map_or(Ok(()), |(rule, _)| Err(rule))
}

fn readable_element(value: &Value) -> String {
    let text = value.to_string();
    readable(&text[..text.floor_char_boundary(160)])
}

/// Returns the grants of a request: capability objects, or strings that name resource namespaces. Duplicates are
/// removed and the order is kept; one bad element refuses all.
pub fn parse(grants: &[Value], boundaries: &[Boundary]) -> Result<Vec<Capability>, GrantError> {
    if grants.len() > MAX_GRANTS {
        let element = format!("list of {} elements", grants.len());
        return Err(GrantError { element, rule: GrantRuleError::Number });
    }
    let mut caps: Vec<Capability> = Vec::new();
    for grant in grants {
        let cap =
            parse_grant(grant, boundaries).map_err(|rule| GrantError { element: readable_element(grant), rule })?;
        if !caps.contains(&cap) {
            caps.push(cap);
        }
    }
    Ok(caps)
}

fn parse_grant(grant: &Value, boundaries: &[Boundary]) -> Result<Capability, GrantRuleError> {
    let cap = match grant {
        Value::String(text) => {
            check_namespace(text).map_err(GrantRuleError::Namespace)?;
            Capability { with: format!("{RESOURCES}/{text}"), can: "*".into() }
        }
        Value::Object(_) => {
            let cap: Capability = decode::into_type(grant.clone())?;
            cap.check()?;
            cap
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => return Err(GrantRuleError::Kind),
    };
    if is_of_resources(&cap.with) {
        let with = cap.with.trim_end_matches('/');
        let namespace = with.strip_prefix(RESOURCES).unwrap_or(with).trim_start_matches('/');
        if matches!(grant, Value::Object(_)) && !namespace.is_empty() {
            check_namespace(namespace).map_err(GrantRuleError::Namespace)?;
        }
        for boundary in boundaries {
            boundary.check(namespace)?;
        }
    }
    Ok(cap)
}

/// Returns warnings about abilities in the `context` of a submission that nothing needs, each with its place.
pub fn unknown_abilities(grants: &[Value]) -> Vec<String> {
    let abilities = grants.iter().enumerate().filter_map(|(at, grant)| Some((at, grant.get("can")?.as_str()?)));
    abilities.filter_map(|(at, can)| unknown_ability(&format!("context[{at}]"), can)).collect()
}

/// Returns the authority of a child of `parent` when the call names grants: each must be within the parent's.
pub fn narrow(parent: &Authority, named: &[Capability]) -> Result<Authority, NotWithinParent> {
    for cap in named {
        let list = if cap.is_of_resources() { &parent.resources } else { &parent.paths };
        let within = match list {
            // The lattice is unlimited; of resources nothing is held.
            None => !cap.is_of_resources(),
            Some(held) => held.iter().any(|held| held.covers(cap)),
        };
        let revoked = parent.except.iter().any(|gone| overlaps(gone.as_str(), &cap.with));
        if !within || revoked {
            return Err(NotWithinParent { grant: readable(&cap.to_string()) });
        }
    }
    Ok(parent.intersect(&Authority::new(Some(named.to_vec()))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_grant_string_error_names_the_first_broken_rule() {
        for (grant, rule) in [
            (json!(7), "expected a string or"),
            (json!(""), "it is empty"),
            (json!(" /a"), "whitespace around it"),
            (json!("/a"), "a `/` at its beginning or end"),
            (json!("a/"), "a `/` at its beginning or end"),
            (json!("a//b/.."), "`//` is not allowed"),
            (json!("a/../b*"), "a segment `.` or `..`"),
            (json!("a/*"), "`*` is not allowed"),
            (json!("a/b c"), "whitespace in a segment"),
            (json!("a/b\tc"), "whitespace in a segment"),
            (json!("a/b\u{0}"), "control characters"),
            (json!("a/>"), "`>` is not allowed"),
            (json!("a/e\u{301}"), "normalisation form C"),
            (json!({"with": "w/a"}), "missing field `can`"),
            (json!({"with": "w/a", "can": "crud", "for": 1}), "unknown field `for`"),
            (json!({"with": "r/a b", "can": "*"}), "whitespace in a segment"),
            (json!({"with": "w/../s", "can": "*"}), "segment `..`"),
        ] {
            let error = parse(&[json!("app/ok"), grant.clone()], &[]).unwrap_err();
            assert!(error.rule.to_string().contains(rule), "{grant}: {error}");
            assert!(error.to_string().starts_with("GRANT_INVALID: grant "), "{error}");
        }
    }

    #[test]
    fn duplicate_grants_are_removed_and_nested_ones_keep_order() {
        let grants = [json!("b/x"), json!("a"), json!("b/x"), json!("a/b"), json!({"with": "r/a", "can": "*"})];
        let parsed = parse(&grants, &[]).unwrap();
        assert_eq!(parsed.iter().map(|cap| cap.with.as_str()).collect::<Vec<_>>(), ["r/b/x", "r/a", "r/a/b"]);
    }

    #[test]
    fn nested_namespaces_stay_in_an_intersection() {
        let held = |grants: &[&str]| {
            let grants: Vec<Value> = grants.iter().map(|grant| json!(grant)).collect();
            Authority::new(Some(parse(&grants, &[]).unwrap()))
        };
        let both = held(&["app/u1/billing", "app/u1", "app/u2"]);
        for (other, expected) in [
            (both.clone(), vec!["app/u1/billing", "app/u1", "app/u2"]),
            (held(&["app"]), vec!["app/u1/billing", "app/u1", "app/u2"]),
            (held(&["app/u1"]), vec!["app/u1/billing", "app/u1"]),
            (held(&["app/u1/billing/x", "app/u2"]), vec!["app/u1/billing/x", "app/u2"]),
            (Authority::without_limits(), vec!["app/u1/billing", "app/u1", "app/u2"]),
        ] {
            assert_eq!(both.intersect(&other).namespaces("read"), expected);
        }
        let caps = ["w/a", "w/a/b"].map(|with| Capability { with: with.into(), can: "crud".into() });
        let paths = Authority::new(Some(caps.to_vec()));
        assert_eq!(paths.intersect(&paths).capabilities().unwrap().len(), 1, "a path below another means nothing more");
    }

    #[test]
    fn a_protected_boundary_is_kept_at_above_and_just_below() {
        let boundary = |text: &str| vec![Boundary::parse(text).unwrap()];
        for (rule, grant, refused) in [
            ("app/user", "app/user", Some("is protected")),
            ("app/user", "app", Some("contains the protected namespace")),
            ("app/user", "app/user/u1", None),
            ("app/user", "app/users", None),
            ("app/user:min=2", "app/user/u1", Some("at least 2 segments")),
            ("app/user:min=2", "app/user/u1/x", None),
            ("app/user:boundary", "app/user", None),
            ("app/user:boundary", "app", Some("contains")),
            ("app/user:ancestor", "app", None),
        ] {
            for element in [json!(grant), json!({"with": format!("r/{grant}/"), "can": "crud/read"})] {
                let found = parse(&[element], &boundary(rule)).err().map(|error| error.rule.to_string());
                assert_eq!(found.is_some(), refused.is_some(), "{rule} {grant} {found:?}");
                assert!(found.unwrap_or_default().contains(refused.unwrap_or_default()), "{rule} {grant}");
            }
        }
        let all = parse(&[json!({"with": "r", "can": "*"})], &boundary("app/user"));
        assert!(all.unwrap_err().rule.to_string().contains("contains the protected"), "all resources");
        for text in ["", "/a", "app:min=x", "app:maximum=1"] {
            assert!(Boundary::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_child_s_grants_lie_within_its_parent_s() {
        let cap = |with: &str, can: &str| Capability { with: with.into(), can: can.into() };
        let parent = Authority::new(Some(vec![cap("w/a", "crud"), cap("r/app/user/u1", "*")]));
        for (named, within) in [
            (cap("r/app/user/u1", "*"), true),
            (cap("r/app/user/u1/billing", "*"), true),
            (cap("r/app/user", "*"), false),
            (cap("r/app/user/u2", "*"), false),
            (cap("r/app/user/u11", "*"), false),
            (cap("w/a/b", "crud/read"), true),
            (cap("w/a", "*"), false),
            (cap("w", "crud"), false),
        ] {
            assert_eq!(narrow(&parent, std::slice::from_ref(&named)).is_ok(), within, "{named}");
        }
        let child = narrow(&parent, &[cap("r/app/user/u1/billing", "*")]).unwrap();
        assert!(child.permits("crud/read", "w/a/x").is_ok(), "a dimension that is not mentioned is inherited");
        assert!(child.permits("read", "r/app/user/u1/notes").is_err());
        assert!(narrow(&parent, &[]).unwrap().permits("crud/read", "w/a").is_err(), "`[]` is nothing");
        assert!(narrow(&Authority::without_limits(), &[cap("r/app", "*")]).is_err(), "nobody granted it");
        assert!(narrow(&Authority::without_limits(), &[cap("w/a", "crud")]).is_ok());
        assert!(narrow(&parent.clone().except_resource("w/a/b"), &[cap("w/a/b/c", "crud")]).is_err(), "revoked");
        let error = narrow(&parent, &[cap("w", "crud")]).unwrap_err().to_string();
        assert!(error.starts_with("GRANT_NOT_WITHIN_PARENT: `crud on w`"), "{error}");
    }
}
