//! Authority: what a turn or a caller may do. [`Authority::permits`] is checked before every read, call and delegation,
//! and again at commit. An authority only ever narrows.

pub mod ability;
pub mod capability;
mod cover;
mod denial;
pub mod envelope;
pub mod grant;
mod holder;
mod intersection;
#[cfg(test)]
mod oracle_tests;
mod own_names;
pub mod policy;
pub mod resource;
pub mod trail;

use crate::ids::SessionKey;
use crate::lattice::layout::Scope;
pub use capability::Capability;
use capability::{covers, overlaps};
pub use denial::DenialError;
use holder::Permission;
pub use holder::{HIDDEN, Holder};
use intersection::intersect_lists;
pub use own_names::Disclosure;
pub use resource::ResourcePath;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// What a turn or a caller may do, in two dimensions: names of the lattice (and hosts), and resource namespaces. A list
/// limits only the dimensions that it mentions; an empty list limits both to nothing. Resources need a capability that
/// names them even where nothing limits.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Authority {
    /// Capabilities on the lattice and on hosts; absent = no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    paths: Option<Vec<Capability>>,
    /// Capabilities on resources; absent = no limit yet, and nothing held.
    #[serde(skip_serializing_if = "Option::is_none")]
    resources: Option<Vec<Capability>>,
    /// Resources that were revoked, with everything below.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    except: Vec<ResourcePath>,
    /// Session and job whose `n/`, `c/` and `t/` the names stand for; these are always held.
    #[serde(skip_serializing_if = "is_nowhere")]
    home: Scope,
}

fn is_nowhere(home: &Scope) -> bool {
    *home == Scope::default()
}

/// A refused request: what it needed and what is held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CapabilityDenied {
    /// Ability that was needed.
    pub ability: String,
    /// Resource that it was needed on.
    pub resource: ResourcePath,
    /// Capabilities that are held.
    pub held: Vec<Capability>,
    /// Whether the request would be permitted, had the resource not been revoked.
    pub revoked: bool,
}

impl CapabilityDenied {
    /// Returns the missing capability, as a reason why something is not shown.
    pub fn missing_capability(&self) -> String {
        format!("capability denied: needs {} on {}", self.ability, self.resource)
    }

    /// Returns the text that a model gets instead of a result.
    pub fn model_text(&self, operation: &str) -> String {
        let held: Vec<_> = self.held.iter().map(ToString::to_string).collect();
        let held = match (held.is_empty(), self.revoked) {
            (false, _) => held.join(", "),
            (true, false) => "(none)".to_owned(),
            (true, true) => "all that was not revoked".to_owned(),
        };
        let revoked = if self.revoked { ", which was revoked" } else { "" };
        format!(
            "Capability denied: {operation} requires {} on {}{revoked}. Your capabilities are: {held}. \
             Retrying the same call will not help.",
            self.ability, self.resource
        )
    }
}

/// Returns the physical name of `n/…`, `c/…` and `t/…` for their agent, session and job, so that no alias permits more
/// than the place that it stands for.
fn physical_name<'n>(name: &'n str, home: &Scope) -> Cow<'n, str> {
    let (first, rest) = name.split_once('/').map_or((name, ""), |(first, rest)| (first, rest));
    let base = match (first, &home.session, &home.job) {
        ("n", Some(session), _) => format!("g/{}/n", session.agent),
        ("c", Some(session), _) => scratch_name(session),
        ("t", _, Some(job)) => format!("j/{job}/t"),
        _ => return Cow::Borrowed(name),
    };
    Cow::Owned(if rest.is_empty() { base } else { format!("{base}/{rest}") })
}

/// Returns a resource under its physical name.
fn physical_resource(resource: &ResourcePath, home: &Scope) -> ResourcePath {
    ResourcePath::from_name(physical_name(resource.as_str(), home).into_owned())
}

fn scratch_name(session: &SessionKey) -> String {
    format!("g/{}/sessions/{}/c", session.agent, session.session)
}

impl Authority {
    /// Makes an authority without a limit on the lattice, and without resources.
    pub fn without_limits() -> Self {
        Self::default()
    }

    /// Makes an authority limited to `caps`; `None` = no limit.
    pub fn new(caps: Option<Vec<Capability>>) -> Self {
        let Some(caps) = caps else { return Self::default() };
        if caps.is_empty() {
            return Self { paths: Some(Vec::new()), resources: Some(Vec::new()), ..Self::default() };
        }
        let (resources, paths): (Vec<_>, Vec<_>) = caps.into_iter().partition(Capability::is_of_resources);
        let mentioned = |list: Vec<Capability>| (!list.is_empty()).then_some(list);
        Self { paths: mentioned(paths), resources: mentioned(resources), ..Self::default() }
    }

    /// Whether nothing limits it.
    pub fn is_unlimited(&self) -> bool {
        self.paths.is_none() && self.resources.is_none() && self.except.is_empty()
    }

    /// Binds it to an agent's session and job: `n/`, `c/` and `t/` stand for theirs.
    #[must_use]
    pub fn bind_home(self, home: &Scope) -> Self {
        let settle = |caps: Vec<Capability>| {
            let settled =
                caps.into_iter().map(|cap| Capability { with: physical_name(&cap.with, home).into_owned(), ..cap });
            settled.collect()
        };
        let except = self.except.iter().map(|gone| physical_resource(gone, home)).collect();
        Self { paths: self.paths.map(settle), except, home: home.clone(), ..self }
    }

    /// Returns the session and job whose `n/`, `c/` and `t/` the names stand for.
    pub const fn home(&self) -> &Scope {
        &self.home
    }

    /// Removes the session and the job: an authority that is handed on holds nobody's scratch space.
    #[must_use]
    pub fn without_home(self) -> Self {
        Self { home: Scope::default(), ..self }
    }

    /// Removes the job, for use by any job of the session. It permits no more than with a job, whose own documents come
    /// on top.
    #[must_use]
    pub fn without_job(self) -> Self {
        Self { home: Scope { job: None, ..self.home }, ..self }
    }

    /// Returns the authority without what lies at or under a resource.
    #[must_use]
    pub fn except_resource(mut self, gone: impl Into<ResourcePath>) -> Self {
        let gone = physical_resource(&gone.into(), &self.home);
        if !self.except.iter().any(|other| covers(other.as_str(), gone.as_str())) {
            self.except.retain(|other| !covers(gone.as_str(), other.as_str()));
            self.except.push(gone);
            self.except.sort();
        }
        self
    }

    /// Returns the capabilities for people and models; `None` when nothing limits.
    pub fn capabilities(&self) -> Option<Vec<Capability>> {
        if self.paths.is_none() && self.resources.is_none() {
            return None;
        }
        let everything = || vec![Capability { with: String::new(), can: "*".into() }];
        let mut listed = self.paths.clone().unwrap_or_else(everything);
        listed.extend(self.resources.iter().flatten().cloned());
        Some(listed)
    }

    /// Returns the resource namespaces, without `r/`, on which an ability is held, in the order of the grants.
    /// Namespaces revoked as a whole are left out; `""` stands for all of them.
    pub fn namespaces(&self, ability: &str) -> Vec<String> {
        let held = self.resources.iter().flatten().filter(|cap| capability::ability_covers(&cap.can, ability));
        let held = held.map(|cap| cap.with.trim_end_matches('/'));
        let held = held.filter(|with| !self.except.iter().any(|gone| covers(gone.as_str(), with)));
        let mut names: Vec<String> = Vec::new();
        for with in held {
            let name = with.strip_prefix(capability::RESOURCES).unwrap_or(with).trim_start_matches('/');
            if !names.iter().any(|known| known == name) {
                names.push(name.to_owned());
            }
        }
        names
    }

    /// Returns the revoked resources.
    pub fn revocations(&self) -> &[ResourcePath] {
        &self.except
    }

    /// Whether something at, above or below a resource was revoked.
    pub fn is_revoked(&self, resource: impl Into<ResourcePath>) -> bool {
        self.is_name_revoked(physical_resource(&resource.into(), &self.home).as_str())
    }

    fn is_name_revoked(&self, name: &str) -> bool {
        self.except.iter().any(|gone| overlaps(gone.as_str(), name))
    }

    /// Checks that the holder may use `ability` on a resource.
    ///
    /// Always held: the session's own `c/`, the job's own `t/`, its own job, and reading `v/` without
    /// `v/context`.
    pub fn permits(&self, ability: &str, resource: impl Into<ResourcePath>) -> Result<(), CapabilityDenied> {
        let resource = resource.into();
        let name = physical_name(resource.as_str(), &self.home);
        let held = Holder::new(self).check(ability, &name);
        if held == Permission::Yes {
            return Ok(());
        }
        Err(CapabilityDenied {
            ability: ability.to_owned(),
            resource,
            held: self.disclosure().map(|disclosed| disclosed.held).unwrap_or_default(),
            revoked: held == Permission::Revoked,
        })
    }

    /// Whether a capability names something at or under a place. An authority without limits names nothing.
    pub fn names_place(&self, place: &str) -> bool {
        self.paths.iter().flatten().any(|cap| covers(place, cap.with.trim_end_matches('/')))
    }

    /// Whether anything at or under a resource may be reached.
    pub fn reaches(&self, resource: impl Into<ResourcePath>) -> bool {
        let resource = resource.into();
        let name = physical_name(resource.as_str(), &self.home);
        let Some(caps) = &self.paths else { return true };
        let own = ["c", "t", "v"].iter().any(|always| covers(always, resource.as_str()));
        own || caps.iter().any(|cap| overlaps(&cap.with, &name))
    }

    /// Whether an ability is held on something at, above or below a place. What is always held doesn't count.
    pub fn holds_near(&self, ability: &str, place: &str) -> bool {
        if self.except.iter().any(|gone| covers(gone.as_str(), place)) {
            return false;
        }
        let Some(caps) = &self.paths else { return true };
        caps.iter().any(|cap| capability::ability_covers(&cap.can, ability) && overlaps(&cap.with, place))
    }

    /// Returns the capability by which [`Authority::permits`] succeeds; `None` when nothing limits.
    pub fn justification(&self, ability: &str, resource: impl Into<ResourcePath>) -> Option<String> {
        let caps = self.paths.as_ref()?;
        let resource = resource.into();
        let name = physical_name(resource.as_str(), &self.home);
        let held = caps.iter().find(|cap| cap.permits(ability, &name));
        Some(held.map_or_else(|| format!("{ability} on {resource} (always held)"), ToString::to_string))
    }

    /// Returns the use of `ability` on a resource as it is recorded: by the physical name. `None` when the ability is
    /// held without any capability, or not at all.
    pub fn recorded_use(&self, ability: &str, resource: impl Into<ResourcePath>) -> Option<Capability> {
        let resource = physical_resource(&resource.into(), &self.home);
        (!Holder::new(self).always_holds(ability, resource.as_str()) && self.permits(ability, &resource).is_ok())
            .then(|| Capability { with: resource.as_str().to_owned(), can: ability.to_owned() })
    }

    /// Whether a resource lies at, above or below what a capability is on, where both stand for the same agent, session
    /// and job.
    pub fn touches(&self, cap: &Capability, resource: impl Into<ResourcePath>) -> bool {
        let name = physical_resource(&resource.into(), &self.home);
        overlaps(&physical_name(&cap.with, &self.home), name.as_str())
    }

    /// Returns what both permit, at the place of `self`. Names of `n/`, `c/` and `t/` must be physical
    /// ([`Authority::bind_home`]) where they stand for different places.
    #[must_use]
    pub fn intersect(&self, other: &Self) -> Self {
        let both = Self {
            paths: intersect_lists(self.paths.as_ref(), other.paths.as_ref()),
            resources: intersect_lists(self.resources.as_ref(), other.resources.as_ref()),
            except: self.except.clone(),
            home: self.home.clone(),
        };
        other.except.iter().fold(both, Self::except_resource)
    }

    /// Returns the intersection with a list that limits and grants nothing: resources that are not held yet stay
    /// unheld.
    #[must_use]
    pub fn limit_to(&self, limit: &Self) -> Self {
        let limited = self.intersect(limit);
        Self { resources: limited.resources.filter(|_| self.resources.is_some()), ..limited }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lattice::Path;

    fn caps(list: &[(&str, &str)]) -> Vec<Capability> {
        list.iter().map(|(with, can)| Capability { with: (*with).into(), can: (*can).into() }).collect()
    }

    fn authority(list: &[(&str, &str)]) -> Authority {
        Authority::new(Some(caps(list)))
    }

    fn home() -> Scope {
        let session = SessionKey { agent: "helper".parse().unwrap(), session: "s1".parse().unwrap() };
        Scope { session: Some(session), job: Some("0123456789abcdef0123456789abcdef".parse().unwrap()) }
    }

    #[test]
    fn a_capability_covers_whole_segments_and_narrower_abilities() {
        let held = authority(&[("w/vendor/", "crud/read"), ("w/out", "crud"), ("g/helper", "agent/request")])
            .bind_home(&home());
        for (ability, resource, permitted) in [
            ("crud/read", "w/vendor", true),
            ("crud/read", "w/vendor/acme/name", true),
            ("crud/read", "w/vendor-secrets", false),
            ("crud/write", "w/vendor/acme", false),
            ("crud/delete", "w/out/1", true),
            ("agent/request", "g/helper", true),
            ("agent/create", "g/helper", false),
            ("crud/write", "c/x", true),
            ("crud/write", "t/x", true),
            ("crud/read", "v/ops", true),
            ("crud/write", "v/ops", false),
            ("crud/read", "w", false),
        ] {
            assert_eq!(held.permits(ability, resource).is_ok(), permitted, "{ability} {resource}");
        }
        assert!(authority(&[("w", "crud/write")]).permits("crud/append", "w/l").is_ok());
        assert!(authority(&[("", "*")]).permits("crud/read", "w/l").is_ok());
    }

    #[test]
    fn absent_is_no_limit_and_empty_is_nothing() {
        assert!(Authority::without_limits().permits("crud/read", "w/x").is_ok());
        for (ability, resource) in [("crud/read", "w/x"), ("crud/read", "r/x"), ("agent/request", "g/x")] {
            assert!(authority(&[]).permits(ability, resource).is_err(), "{resource}");
        }
    }

    #[test]
    fn a_list_limits_only_the_dimensions_that_it_mentions() {
        let paths = authority(&[("w/a", "crud")]);
        let resources = authority(&[("r/app/u1", "*")]);
        assert!(resources.permits("crud/read", "w/anything").is_ok());
        assert!(resources.permits("read", "r/app/u1/x").is_ok());
        assert!(resources.permits("read", "r/app/u2").is_err());
        let both = paths.intersect(&resources);
        assert!(both.permits("crud/read", "w/a").is_ok() && both.permits("crud/read", "w/b").is_err());
        assert!(both.permits("read", "r/app/u1").is_ok());
        assert!(both.intersect(&authority(&[])).permits("read", "r/app/u1").is_err());
    }

    #[test]
    fn resources_always_need_a_grant_that_names_them() {
        for held in [Authority::without_limits(), authority(&[("", "*")]), authority(&[("w", "*")])] {
            assert!(held.permits("read", "r/app").is_err(), "{held:?}");
        }
        assert!(authority(&[("r", "*")]).permits("read", "r/app").is_ok());
    }

    #[test]
    fn a_list_that_limits_grants_no_resource() {
        let (some, other) = (authority(&[("r/app", "*")]), authority(&[("w", "crud")]));
        assert!(some.limit_to(&authority(&[("r/app/u1", "*")])).permits("read", "r/app/u1").is_ok());
        assert!(other.limit_to(&some).permits("read", "r/app").is_err());
        assert!(Authority::without_limits().limit_to(&some).permits("read", "r/app").is_err());
        assert!(some.limit_to(&other).permits("read", "r/app").is_ok());
    }

    #[test]
    fn an_alias_permits_no_more_than_the_place_that_it_means() {
        let notes = authority(&[("n/diary", "crud")]).bind_home(&home());
        assert!(notes.permits("crud/read", "n/diary/1").is_ok() && notes.permits("crud/read", "n/other").is_err());
        assert!(notes.permits("crud/read", "g/helper/n/diary").is_ok());
        let other = SessionKey { agent: "other".parse().unwrap(), session: "s9".parse().unwrap() };
        let elsewhere = Scope { session: Some(other), job: None };
        let child = notes.clone().without_home().bind_home(&elsewhere);
        assert!(child.permits("crud/read", "n/diary").is_err(), "the notes of another agent");
        assert!(child.permits("crud/read", "g/helper/n/diary").is_ok());
        assert!(notes.permits("crud/read", "g/helper/sessions/s1/c/x").is_ok(), "its own session");
        assert!(notes.permits("crud/read", "g/helper/sessions/s2/c/x").is_err());
        assert!(child.permits("crud/read", "g/helper/sessions/s1/c/x").is_err());
        assert!(notes.permits("crud/read", "j/0123456789abcdef0123456789abcdef/output").is_ok(), "its own task");
        assert!(notes.permits("crud/read", "j/ffffffffffffffffffffffffffffffff").is_err());
    }

    #[test]
    fn a_key_with_a_slash_is_one_segment() {
        let path = Path::from_segments(vec!["w".into(), "a/b".into(), "c".into()]).unwrap();
        for (with, permitted) in [("w/a", false), ("w/a/b", false), ("w/a\\/b", false), ("w", true)] {
            let held = authority(&[(with, "crud")]);
            assert_eq!(held.permits("crud/read", &path).is_ok(), permitted, "{with}");
            assert_eq!(held.justification("crud/read", &path).unwrap().contains("always"), !permitted, "{with}");
            assert_eq!(held.reaches(&path), permitted, "{with}");
            assert_eq!(authority(&[("w", "crud")]).except_resource(with).is_revoked(&path), permitted, "{with}");
            assert_eq!(held.touches(&held.capabilities().unwrap()[0], &path), permitted, "{with}");
        }
        let revoked = authority(&[("w", "crud")]).except_resource(&path);
        assert!(revoked.permits("crud/read", "w/a").is_ok() && revoked.permits("crud/read", &path).is_err());
        let denied = authority(&[]).permits("crud/read", &path).unwrap_err();
        assert!(denied.model_text("x").contains("crud/read on w/a\\/b/c"), "{}", denied.model_text("x"));
    }

    #[test]
    fn a_revocation_by_an_alias_covers_the_place_itself() {
        let held = authority(&[("w", "crud"), ("n", "crud")]);
        for held in [
            held.clone().except_resource("n/diary").bind_home(&home()),
            held.bind_home(&home()).except_resource("n/diary"),
        ] {
            assert!(held.permits("crud/read", "n/diary/1").is_err() && held.permits("crud/read", "n/x").is_ok());
            assert!(held.permits("crud/read", "g/helper/n/diary").is_err());
        }
    }

    #[test]
    fn a_revoked_right_and_all_containing_it_are_lost() {
        let held = authority(&[("w", "crud")]).except_resource("w/a/b");
        for (name, permitted) in [("w/a/b", false), ("w/a/b/c", false), ("w/a", false), ("w", false), ("w/a/bc", true)]
        {
            assert_eq!(held.permits("crud/read", name).is_ok(), permitted, "{name}");
        }
        assert!(Authority::without_limits().intersect(&held).permits("crud/read", "w/a/b").is_err());
        assert!(held.clone().bind_home(&home()).permits("crud/write", "c/x").is_ok());
        let text = Authority::without_limits()
            .except_resource("w/a")
            .permits("crud/read", "w/a/b")
            .unwrap_err()
            .model_text("x");
        assert!(
            text.contains("crud/read on w/a/b, which was revoked. Your capabilities are: all that was not"),
            "{text}"
        );
        assert_eq!(held.except_resource("w/a").revocations(), [ResourcePath::from("w/a")]);
    }

    #[test]
    fn an_intersection_never_permits_more_than_either() {
        let a = authority(&[("w", "crud"), ("g", "agent")]);
        let b = authority(&[("w/vendor", "crud/read"), ("", "agent/request")]);
        let both = a.intersect(&b);
        assert_eq!(both, authority(&[("w/vendor", "crud/read"), ("g", "agent/request")]));
        assert_eq!(Authority::without_limits().intersect(&b), b);
        assert_eq!(a.intersect(&Authority::without_limits()), a);
        assert!(a.covers(&both) && b.covers(&both) && !both.covers(&a));
    }

    #[test]
    fn a_denial_names_what_was_needed_and_what_is_held() {
        let denied = authority(&[("w/a", "crud/read")]).permits("crud/write", "w/b").unwrap_err();
        assert_eq!(
            denied.model_text("v/ops/lattice/write"),
            "Capability denied: v/ops/lattice/write requires crud/write on w/b. Your capabilities are: \
             crud/read on w/a. Retrying the same call will not help."
        );
    }
}
