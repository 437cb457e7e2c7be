//! Resources: their declarations in an agent's configuration, and the grants for their data.

pub mod files;
pub mod memory;
pub mod remote;
pub mod scratchpad;

use crate::authority::capability::{RESOURCES, covers, readable};
use crate::authority::envelope::{AccessMode, Envelope};
use crate::authority::grant::check_namespace;
use crate::authority::{Authority, CapabilityDenied, DenialError};
use crate::foreign::is_break;
use crate::ids::{encode_token, sha256_hex};
use crate::limits::RESOURCES as MOST;
use crate::visible::quote_names;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Bytes of the name of a resource and of a kind at most: a tool's name has at most 64 characters.
const NAME_BYTES: usize = 40;

/// Line break with indentation, so that no line of a foreign text begins an entry.
const INDENT: &str = "\n  ";

/// The resources of an agent by name.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Resources(BTreeMap<String, DeclaredResource>);

/// One declared resource. It grants nothing: access comes from the grants of a request.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct DeclaredResource {
    /// Kind of the provider; the resource's name when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    kind: Option<String>,
    /// Access at most; the provider's default when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<AccessMode>,
    /// Settings of the provider.
    #[serde(flatten)]
    pub settings: Map<String, Value>,
}

/// A declared resource with its name.
#[derive(Debug, Clone, Copy)]
pub struct NamedResource<'c> {
    /// Name in the configuration.
    pub name: &'c str,
    /// Kind of the provider.
    pub kind: &'c str,
    /// Declaration of the resource.
    pub resource: &'c DeclaredResource,
}

/// Why the declarations of resources are refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ResourcesError {
    /// There are too many; holds their number.
    #[error("`resources`: expected at most {MOST}, got {0}")]
    TooMany(usize),
    /// The name or the kind of a resource is illegal.
    #[error(
        "`resources.{name}`: expected a name of letters, digits, `_` and `-` that begins with a letter and has at most \
         {NAME_BYTES} characters, got `{}`",
        readable(.found)
    )]
    IllegalName {
        /// Name of the resource.
        name: String,
        /// The illegal name or kind.
        found: String,
    },
    /// Another tool of the agent begins as those of the resource.
    #[error("`resources.{name}`: the tool `{tool}` lies among its own, which begin with `{prefix}`; rename one")]
    ToolWithPrefix {
        /// Name of the resource.
        name: String,
        /// Name of the tool.
        tool: String,
        /// Prefix of the resource's tools.
        prefix: String,
    },
    /// The tools of another resource begin as those of the resource.
    #[error("`resources.{name}`: its tools begin with `{prefix}` as those of `{other}` do; rename one")]
    SamePrefix {
        /// Name of the resource.
        name: String,
        /// Prefix of the tools of both.
        prefix: String,
        /// Name of the other resource.
        other: String,
    },
}

/// Why a call may not use a namespace.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NamespaceError {
    /// The named namespace breaks a rule of namespaces.
    #[error("`{key}`: {rule}")]
    Illegal {
        /// Argument that names the namespace, or a path in it.
        key: &'static str,
        /// Rule that it breaks.
        rule: &'static str,
    },
    /// The namespace was not granted, or was revoked.
    #[error(transparent)]
    Denied(#[from] DenialError),
    /// The call names no namespace, and several were granted, or all.
    #[error("name the `{key}`: {} are granted, and none of them is meant by itself", quote_names(.granted))]
    Ambiguous {
        /// Argument that names the namespace.
        key: &'static str,
        /// Namespaces that were granted.
        granted: Vec<String>,
    },
}

/// Checks the namespace that a call names in an argument.
fn check_named(key: &'static str, namespace: &str) -> Result<(), NamespaceError> {
    check_namespace(namespace).map_err(|rule| NamespaceError::Illegal { key, rule })
}

/// Whether a name matches `^[a-zA-Z][a-zA-Z0-9_-]*$` and is at most [`NAME_BYTES`] long.
fn is_legal_name(name: &str) -> bool {
    name.len() <= NAME_BYTES
        && name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
}

/// Returns the prefix of a resource's tools: `my-notes` → `my_notes_`.
pub fn prefix(name: &str) -> String {
    let name: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    name + "_"
}

impl Resources {
    /// Whether no resource is declared.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns all declared resources, sorted by name.
    pub fn declarations(&self) -> impl Iterator<Item = NamedResource<'_>> {
        self.0.iter().map(|(name, resource)| NamedResource {
            name,
            kind: resource.kind.as_deref().unwrap_or(name),
            resource,
        })
    }

    /// Returns the resource of this name.
    pub fn get(&self, name: &str) -> Option<NamedResource<'_>> {
        self.declarations().find(|declared| declared.name == name)
    }

    /// Checks the declarations; `tools` are the names of the agent's other tools.
    pub fn check(&self, tools: &[String]) -> Result<(), ResourcesError> {
        if self.0.len() > MOST {
            return Err(ResourcesError::TooMany(self.0.len()));
        }
        let mut prefixes: BTreeMap<String, &str> = BTreeMap::new();
        for NamedResource { name, kind, .. } in self.declarations() {
            if let Some(found) = [name, kind].into_iter().find(|text| !is_legal_name(text)) {
                return Err(ResourcesError::IllegalName { name: name.to_owned(), found: found.to_owned() });
            }
            let prefix = prefix(name);
            if let Some(tool) = tools.iter().find(|tool| tool.starts_with(&prefix)) {
                return Err(ResourcesError::ToolWithPrefix { name: name.to_owned(), tool: tool.clone(), prefix });
            }
            if let Some(other) = prefixes.insert(prefix.clone(), name) {
                return Err(ResourcesError::SamePrefix { name: name.to_owned(), prefix, other: other.to_owned() });
            }
        }
        Ok(())
    }
}

/// Ability on a resource's data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ability {
    /// Reading of the data.
    Read,
    /// Changes of the data.
    Write,
}

impl Ability {
    /// Returns the name in capabilities.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
        }
    }
}

/// A use of a namespace, which is checked again when the turn commits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamespaceUse {
    /// Ability that is used.
    pub ability: Ability,
    /// Namespace without `r/`.
    pub namespace: String,
}

/// The namespaces that a request was granted, without `r/`, at one time.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HeldNamespaces {
    read: Vec<String>,
    write: Vec<String>,
    /// Namespaces that were revoked, with everything below.
    except: Vec<String>,
    /// Namespaces beyond which the resource sees nothing, whatever was granted; empty = no such limit.
    branches: Vec<String>,
}

impl HeldNamespaces {
    /// Returns the resources of an authority.
    pub fn from_authority(authority: &Authority) -> Self {
        let except =
            authority.revocations().iter().filter_map(|gone| gone.as_str().strip_prefix(RESOURCES)?.strip_prefix('/'));
        Self {
            read: authority.namespaces(Ability::Read.as_str()),
            write: authority.namespaces(Ability::Write.as_str()),
            except: except.map(str::to_owned).collect(),
            branches: Vec::new(),
        }
    }

    /// Returns the grants within some branches, for a resource that is limited to them.
    #[must_use]
    pub fn limit_to(&self, branches: &[String]) -> Self {
        if branches.is_empty() {
            return self.clone();
        }
        let part = |granted: &String| {
            let common =
                branches.iter().filter_map(|branch| match (covers(branch, granted), covers(granted, branch)) {
                    (true, _) => Some(granted.clone()),
                    (false, true) => Some(branch.clone()),
                    (false, false) => None,
                });
            common.collect::<Vec<_>>()
        };
        let parts = |granted: &[String]| {
            let mut parts: Vec<String> = Vec::new();
            for one in granted.iter().flat_map(part) {
                if !parts.contains(&one) {
                    parts.push(one);
                }
            }
            parts
        };
        let (read, write) = (parts(&self.read), parts(&self.write));
        Self { read, write, except: self.except.clone(), branches: branches.to_vec() }
    }

    /// Whether a namespace lies in the branches of the resource.
    pub fn is_in_branches(&self, namespace: &str) -> bool {
        self.branches.is_empty() || self.branches.iter().any(|branch| covers(branch, namespace))
    }

    /// Returns the namespaces on which an ability is held, in the order of the grants.
    pub fn with_ability(&self, ability: Ability) -> &[String] {
        match ability {
            Ability::Read => &self.read,
            Ability::Write => &self.write,
        }
    }

    /// Returns the namespaces that were revoked, with everything below.
    pub fn revoked_namespaces(&self) -> &[String] {
        &self.except
    }

    /// Whether nothing was granted.
    pub fn is_empty(&self) -> bool {
        self.read.is_empty() && self.write.is_empty()
    }

    /// Whether namespaces can be read, and none can be written.
    pub fn is_read_only(&self) -> bool {
        self.write.is_empty() && !self.read.is_empty()
    }

    /// Whether a namespace, or one that contains it, was granted and not revoked.
    pub fn allows(&self, ability: Ability, namespace: &str) -> bool {
        self.with_ability(ability).iter().any(|held| covers(held, namespace))
            && !self.except.iter().any(|gone| covers(gone, namespace))
    }

    /// Checks a use of a namespace by a tool as [`HeldNamespaces::allows`] does.
    pub fn check(&self, tool: &str, ability: Ability, namespace: &str) -> Result<(), DenialError> {
        if self.allows(ability, namespace) { Ok(()) } else { Err(self.denial(tool, ability, namespace)) }
    }

    /// Checks that any namespace was granted for a tool.
    pub fn check_any(&self, tool: &str, ability: Ability) -> Result<(), DenialError> {
        if self.with_ability(ability).is_empty() { Err(self.denial(tool, ability, "")) } else { Ok(()) }
    }

    fn denial(&self, tool: &str, ability: Ability, namespace: &str) -> DenialError {
        let on = self.with_ability(ability);
        let revoked = self.except.iter().any(|gone| covers(gone, namespace));
        let held = on.iter().map(|held| crate::authority::Capability {
            with: format!("{RESOURCES}/{held}"),
            can: ability.as_str().into(),
        });
        let denied = CapabilityDenied {
            ability: ability.as_str().into(),
            resource: crate::authority::ResourcePath::namespace(namespace),
            held: held.collect(),
            revoked,
        };
        DenialError::new(tool, denied)
    }

    /// Returns the namespace of a write that names none: the only one that is granted.
    pub fn only_namespace(&self, tool: &str, ability: Ability, key: &'static str) -> Result<&str, NamespaceError> {
        match self.with_ability(ability) {
            [] => Err(self.denial(tool, ability, "").into()),
            [one] if !one.is_empty() => Ok(one),
            many => Err(NamespaceError::Ambiguous { key, granted: many.to_vec() }),
        }
    }

    /// Returns the source of a resource's text and the grants on it, as the ledger records them.
    pub fn ledger_source(&self) -> (String, String) {
        let names = |what: &str| {
            let named = self.read.iter().map(|held| format!("{what}{RESOURCES}/{held}"));
            named.collect::<Vec<_>>().join(", ")
        };
        (names(""), names("read on "))
    }
}

/// Returns the access to a declared resource in a turn: the least of the declared one, of the inherited bound, and of
/// the access that the grants permit on any namespace.
pub fn mode(
    declared: NamedResource<'_>,
    default: Option<AccessMode>,
    envelope: &Envelope,
    held: &HeldNamespaces,
) -> AccessMode {
    let mode = envelope.mode(declared.kind, declared.resource.mode.or(default).unwrap_or(AccessMode::Read));
    if held.is_read_only() { AccessMode::Read } else { mode }
}

/// Returns the key prefix of all documents of a kind.
pub fn kind_prefix(kind: &str) -> String {
    format!("{RESOURCES}/{kind}/")
}

/// Returns the key prefix of the documents of exactly one namespace.
pub fn namespace_prefix(kind: &str, namespace: &str) -> String {
    format!("{}{}/", kind_prefix(kind), encode_token(namespace))
}

/// Returns the key prefix of the documents of everything below a namespace.
pub fn prefix_below(kind: &str, namespace: &str) -> String {
    format!("{}{}", kind_prefix(kind), encode_token(&format!("{namespace}/")))
}

/// Returns the SHA-256 of a text in hexadecimal digits, which names contents.
pub fn hash(text: &str) -> String {
    sha256_hex(text.as_bytes())
}

/// Indents a foreign text, so that it is one entry of a list.
pub fn indent(text: &str) -> String {
    text.replace("\r\n", "\n").replace(is_break, INDENT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authority::Capability;
    use serde_json::json;

    fn resources(value: Value) -> Resources {
        serde_json::from_value(value).unwrap()
    }

    fn held(grants: &[(&str, &str)], revoked: &[&str]) -> HeldNamespaces {
        let caps = grants.iter().map(|(with, can)| Capability { with: (*with).into(), can: (*can).into() });
        let authority = Authority::new(Some(caps.collect()));
        HeldNamespaces::from_authority(&revoked.iter().fold(authority, |held, gone| held.except_resource(*gone)))
    }

    #[test]
    fn declarations_are_checked_with_the_names_of_tools() {
        for (value, tools, expected) in [
            (json!({"memory": {}}), vec![], None),
            (json!({"notes": {"kind": "memory", "mode": "read-write", "autoScan": false}}), vec!["memory_x"], None),
            (json!({"1st": {}}), vec![], Some("expected a name of letters")),
            (json!({"a b": {}}), vec![], Some("expected a name of letters")),
            (json!({"": {}}), vec![], Some("expected a name of letters")),
            (json!({"memory": {"kind": "no/such"}}), vec![], Some("got `no/such`")),
            (json!({"my-notes": {}, "my_notes": {}}), vec![], Some("as those of `my-notes` do")),
            (json!({"memory": {}}), vec!["memory_read"], Some("the tool `memory_read` lies among its own")),
            (json!({"memory": {}}), vec!["memory_other"], Some("the tool `memory_other` lies among its own")),
        ] {
            let tools: Vec<_> = tools.into_iter().map(str::to_owned).collect();
            let found = resources(value.clone()).check(&tools).err();
            assert_eq!(found.is_some(), expected.is_some(), "{value}: {found:?}");
            let text = found.map(|error| error.to_string()).unwrap_or_default();
            assert!(text.contains(expected.unwrap_or_default()), "{value}: {text}");
        }
        let value = json!({"notes": {"kind": "memory", "mode": "read", "autoScan": false}});
        let notes = resources(value.clone());
        assert_eq!(serde_json::to_value(&notes).unwrap(), value);
        let declared = notes.get("notes").unwrap();
        assert_eq!((declared.kind, declared.resource.mode), ("memory", Some(AccessMode::Read)));
        assert_eq!(declared.resource.settings, *json!({"autoScan": false}).as_object().unwrap());
    }

    #[test]
    fn the_mode_is_the_least_of_declared_inherited_and_granted() {
        let (read, write) = (AccessMode::Read, AccessMode::ReadWrite);
        let (all, some) = (held(&[("r/a", "*")], &[]), held(&[("r/a", "read")], &[]));
        for (declared, default, bound, held, expected) in [
            (json!({}), None, None, &all, read),
            (json!({}), Some(write), None, &all, write),
            (json!({"mode": "read-write"}), None, None, &all, write),
            (json!({"mode": "read"}), Some(write), None, &all, read),
            (json!({"mode": "read-write"}), None, Some(read), &all, read),
            (json!({"mode": "read-write"}), None, Some(write), &some, read),
        ] {
            let resources = resources(json!({"memory": declared}));
            let envelope = Envelope::default().clamp_modes(bound.map(|mode| ("memory", mode)));
            assert_eq!(mode(resources.get("memory").unwrap(), default, &envelope, held), expected, "{declared}");
        }
    }

    #[test]
    fn abilities_are_held_per_path_and_what_is_revoked_is_not() {
        let both = held(&[("r/a/x", "read"), ("r/a/y", "*"), ("w", "crud")], &[]);
        for (ability, namespace, allowed) in [
            (Ability::Read, "a/x", true),
            (Ability::Write, "a/x", false),
            (Ability::Read, "a/y/deep", true),
            (Ability::Write, "a/y/deep", true),
            (Ability::Write, "a/yy", false),
            (Ability::Read, "a", false),
        ] {
            assert_eq!(both.allows(ability, namespace), allowed, "{ability:?} {namespace}");
        }
        let some = held(&[("r/a", "*")], &["r/a/x"]);
        assert!(some.allows(Ability::Write, "a") && some.allows(Ability::Write, "a/y"));
        assert!(!some.allows(Ability::Read, "a/x") && !some.allows(Ability::Read, "a/x/y"));
        let denial = some.check("memory_write", Ability::Write, "a/x").unwrap_err().to_string();
        assert!(denial.contains("memory_write requires write on r/a/x, which was revoked"), "{denial}");
        assert!(held(&[("r/a/x", "*")], &["r/a"]).is_empty(), "revoked as a whole");
        let denial = held(&[], &[]).check("memory_read", Ability::Read, "").unwrap_err().to_string();
        assert!(denial.contains("requires read on r. Your capabilities are: (none)"), "{denial}");
    }

    #[test]
    fn a_write_that_names_no_place_means_the_only_one() {
        assert_eq!(held(&[("r/a", "*")], &[]).only_namespace("t", Ability::Write, "scope"), Ok("a"));
        let many = held(&[("r/a", "*"), ("r/b", "*")], &[]);
        let many = many.only_namespace("t", Ability::Write, "scope").unwrap_err().to_string();
        assert!(many.starts_with("name the `scope`: `a`, `b` are granted"), "{many}");
        assert!(held(&[("r/a", "read")], &[]).only_namespace("t", Ability::Write, "scope").is_err());
        assert!(
            held(&[("r", "*")], &[]).only_namespace("t", Ability::Write, "scope").is_err(),
            "everything is no place"
        );
    }

    #[test]
    fn a_namespaces_documents_are_apart_from_its_neighbours() {
        assert_eq!(namespace_prefix("memory", "app/u1"), "r/memory/app%2Fu1/");
        assert_eq!(prefix_below("memory", "app/u1"), "r/memory/app%2Fu1%2F");
        for other in ["app/u1/x", "app/u11", "app"] {
            assert!(!namespace_prefix("memory", other).starts_with(&namespace_prefix("memory", "app/u1")), "{other}");
        }
        assert!(namespace_prefix("memory", "app/u1/x").starts_with(&prefix_below("memory", "app/u1")));
        assert!(!namespace_prefix("memory", "app/u11").starts_with(&prefix_below("memory", "app/u1")));
    }
}
