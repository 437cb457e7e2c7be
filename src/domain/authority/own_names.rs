//! Names of an agent's own places as its paths spell them, `n/…`, `c/…` and `t/…`: a model sees its capabilities under
//! the names that it can write in a call.

use super::{Authority, Capability, ResourcePath, scratch_name};
use crate::lattice::layout::Scope;
use serde::{Deserialize, Serialize};

/// Capabilities as a model sees them; absent lists = nothing limits.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Disclosure {
    /// Capabilities that it holds.
    pub held: Vec<Capability>,
    /// Resources that were revoked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub revoked: Vec<ResourcePath>,
}

/// Returns the relative name of what lies in the home of an agent's session and job; any other name stays as it is.
pub(super) fn own_name(name: &str, home: &Scope) -> String {
    let mut places = Vec::new();
    if let Some(session) = &home.session {
        places.extend([("n", format!("g/{}/n", session.agent)), ("c", scratch_name(session))]);
    }
    places.extend(home.job.iter().map(|job| ("t", format!("j/{job}/t"))));
    let own = places.iter().find_map(|(own, place)| match name.strip_prefix(place.as_str())? {
        rest if rest.is_empty() || rest.starts_with('/') => Some(format!("{own}{rest}")),
        _ => None,
    });
    own.unwrap_or_else(|| name.to_owned())
}

impl Authority {
    /// Returns the capabilities and revocations under the agent's own names; `None` when nothing limits.
    pub fn disclosure(&self) -> Option<Disclosure> {
        let named = |cap: Capability| Capability { with: own_name(&cap.with, &self.home), ..cap };
        let held = self.capabilities()?.into_iter().map(named).collect();
        let revoked = self.except.iter().map(|gone| ResourcePath::from_name(own_name(gone.as_str(), &self.home)));
        Some(Disclosure { held, revoked: revoked.collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::SessionKey;

    #[test]
    fn own_places_get_short_names_and_others_keep_theirs() {
        let session = SessionKey { agent: "nt".parse().unwrap(), session: "s1".parse().unwrap() };
        let home = Scope { session: Some(session), job: Some("0123456789abcdef0123456789abcdef".parse().unwrap()) };
        for (name, expected) in [
            ("g/nt/n", "n"),
            ("g/nt/n/diary", "n/diary"),
            ("g/nt/n/", "n/"),
            ("g/nt/notes", "g/nt/notes"),
            ("g/nt", "g/nt"),
            ("g/kid/n/x", "g/kid/n/x"),
            ("g/nt/sessions/s1/c/x", "c/x"),
            ("g/nt/sessions/s2/c/x", "g/nt/sessions/s2/c/x"),
            ("j/0123456789abcdef0123456789abcdef/t", "t"),
            ("j/1123456789abcdef0123456789abcdef/t", "j/1123456789abcdef0123456789abcdef/t"),
            ("w/x", "w/x"),
            ("", ""),
        ] {
            assert_eq!(own_name(name, &home), expected, "{name}");
            assert_eq!(own_name(name, &Scope::default()), name);
        }
        let held =
            Authority::new(Some(vec![Capability { with: "n/diary".into(), can: "crud".into() }])).bind_home(&home);
        let held = held.except_resource(&crate::lattice::Path::parse("n/diary/private").unwrap());
        let disclosed = held.disclosure().unwrap();
        assert_eq!(disclosed.held[0].to_string(), "crud on n/diary");
        assert_eq!(disclosed.revoked[0].as_str(), "n/diary/private");
        assert_eq!(Authority::without_limits().bind_home(&home).disclosure(), None);
    }
}
