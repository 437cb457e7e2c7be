//! The object of an ability: a name by whole segments, built from typed parts and never from a text.
//!
//! A path that is printed and split again changes as soon as a key has a `/` in it. So no resource is made from the
//! text of a path: only from a [`Path`], an id, or a capability as its author spelled it.

use super::capability::{Capability, INNER_SLASH, RESOURCES, readable};
use crate::ids::secret::SecretName;
use crate::ids::{AgentId, AssetId, JobId, QueueName};
use crate::lattice::{Namespace, Path};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The object of an ability. It is stored and compared with `INNER_SLASH` for a `/` inside a key, and shown with `\/`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ResourcePath(String);

impl ResourcePath {
    /// Returns the resource at `keys` in a namespace, each key one segment. Other spellings of a job's or an asset's id
    /// name the same resource.
    pub fn at_keys<'k>(namespace: Namespace, keys: impl IntoIterator<Item = &'k str>) -> Self {
        let mut name = namespace.prefix().to_owned();
        for (depth, key) in keys.into_iter().enumerate() {
            name.push('/');
            match (namespace, depth) {
                (Namespace::Jobs, 0) if let Ok(id) = JobId::new(key) => name.push_str(id.as_str()),
                (Namespace::Assets, 0) if let Ok(id) = AssetId::new(key) => name.push_str(id.as_str()),
                _ => name.push_str(&key.replace('/', INNER_SLASH)),
            }
        }
        Self(name)
    }

    /// Returns the whole of a namespace.
    pub fn whole_namespace(namespace: Namespace) -> Self {
        Self::at_keys(namespace, [])
    }

    /// Returns an agent, `g/<agent>`.
    pub fn agent(id: &AgentId) -> Self {
        Self::at_keys(Namespace::Agents, [id.as_str()])
    }

    /// Returns a job, `j/<job>`.
    pub fn job(id: &JobId) -> Self {
        Self::at_keys(Namespace::Jobs, [id.as_str()])
    }

    /// Returns an asset, `a/<hash>`.
    pub fn asset(id: &AssetId) -> Self {
        Self::at_keys(Namespace::Assets, [id.as_str()])
    }

    /// Returns a secret, `s/<name>`.
    pub fn secret(name: &SecretName) -> Self {
        Self::at_keys(Namespace::Secrets, [name.as_str()])
    }

    /// Returns a queue of external workers, `queue/<name>`.
    pub fn queue(name: &QueueName) -> Self {
        Self(format!("queue/{name}"))
    }

    /// Returns a namespace of the resource dimension, `r/<name>`; `""` stands for all of them.
    pub fn namespace(name: &str) -> Self {
        Self(format!("{RESOURCES}/{name}").trim_end_matches('/').to_owned())
    }

    /// Returns an address of the web. `path` begins with a `/` and is encoded as in a URL.
    pub fn web(scheme: &str, host: &str, path: &str) -> Self {
        Self(format!("{scheme}://{host}{path}"))
    }

    /// Returns a document of an owner that has no path, e.g. its policy.
    pub fn owner_document(what: &'static str) -> Self {
        Self(what.to_owned())
    }

    /// Returns the object of a capability as its author spelled it; no key of it has a `/`.
    pub fn from_capability(cap: &Capability) -> Self {
        Self(cap.with.trim_end_matches('/').to_owned())
    }

    /// Returns the form that is stored and compared.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Makes a resource of a name that is physical or relative already.
    pub(super) fn from_name(name: String) -> Self {
        Self(name)
    }
}

impl From<&Path> for ResourcePath {
    fn from(path: &Path) -> Self {
        Self::at_keys(path.namespace(), path.segments().iter().map(String::as_str))
    }
}

impl From<&Self> for ResourcePath {
    fn from(resource: &Self) -> Self {
        resource.clone()
    }
}

/// Lets tests spell resources as capabilities do.
#[cfg(test)]
impl From<&str> for ResourcePath {
    fn from(text: &str) -> Self {
        Self(text.trim_end_matches('/').to_owned())
    }
}

impl fmt::Display for ResourcePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&readable(&self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_resource_has_one_name() {
        let path = |keys: &[&str]| {
            let keys = keys.iter().map(|key| (*key).to_owned()).collect();
            ResourcePath::from(&Path::from_segments(keys).unwrap())
        };
        let (job, asset) = ("0123456789abcdef".repeat(2), "0123456789abcdef".repeat(4));
        for (resource, compared, shown) in [
            (path(&["w"]), "w".to_owned(), "w".to_owned()),
            (path(&["w", "vendor", "payroll"]), "w/vendor/payroll".into(), "w/vendor/payroll".into()),
            (path(&["w", "vendor/payroll"]), "w/vendor\u{1f}payroll".into(), "w/vendor\\/payroll".into()),
            (path(&["w", "/"]), "w/\u{1f}".into(), "w/\\/".into()),
            (path(&["w", "%2Fx"]), "w/%2Fx".into(), "w/%2Fx".into()),
            (path(&["j", &job, "a/b"]), format!("j/{job}/a\u{1f}b"), format!("j/{job}/a\\/b")),
            (path(&["j", &format!("0x{}", job.to_uppercase())]), format!("j/{job}"), format!("j/{job}")),
            (
                path(&["a", &asset.to_uppercase(), "content"]),
                format!("a/{asset}/content"),
                format!("a/{asset}/content"),
            ),
            (ResourcePath::job(&JobId::new(&job).unwrap()), format!("j/{job}"), format!("j/{job}")),
            (ResourcePath::namespace("app/u1"), "r/app/u1".into(), "r/app/u1".into()),
            (ResourcePath::namespace(""), "r".into(), "r".into()),
            (
                ResourcePath::web("https", "h:8443", "/a%2Fb"),
                "https://h:8443/a%2Fb".into(),
                "https://h:8443/a%2Fb".into(),
            ),
        ] {
            assert_eq!((resource.as_str(), resource.to_string()), (compared.as_str(), shown));
        }
    }
}
