//! A holder of an authority for many checks: the names that are always held are computed once.

use super::capability::{Capability, covers, is_of_resources};
use super::{Authority, physical_name, scratch_name};

/// Values that the runtime fills in: reading them by path needs a capability.
pub const HIDDEN: &str = "v/context";

/// Result of a check of an authority.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Permission {
    /// The use is permitted.
    Yes,
    /// Nothing permits the use.
    No,
    /// The use would be permitted, had it not been revoked.
    Revoked,
}

/// An authority with the names that its holder always holds.
pub struct Holder<'a> {
    authority: &'a Authority,
    /// Name of the session's own `c/`.
    scratch: Option<String>,
    /// Name of its own job.
    job: Option<String>,
    /// Name of the job's own `t/`.
    task: Option<String>,
}

impl<'a> Holder<'a> {
    /// Makes the holder of `authority`.
    pub fn new(authority: &'a Authority) -> Self {
        let home = &authority.home;
        let job = home.job.as_ref().map(|job| format!("j/{job}"));
        let task = job.as_ref().map(|job| format!("{job}/t"));
        Self { authority, scratch: home.session.as_ref().map(scratch_name), job, task }
    }

    /// Whether the use of a capability may be known, see [`Authority::may_know`].
    pub fn may_know(&self, used: &Capability) -> bool {
        let name = physical_name(used.with.trim_end_matches('/'), &self.authority.home);
        [used.can.as_str(), super::cover::reading_ability(&used.with)]
            .iter()
            .any(|can| self.check(can, &name) == Permission::Yes)
    }

    /// Returns whether an ability is held on a physical name, and if not, whether it was revoked.
    pub(super) fn check(&self, ability: &str, name: &str) -> Permission {
        if self.always_holds(ability, name) {
            return Permission::Yes;
        }
        let Authority { paths, resources, home, .. } = self.authority;
        let list = if is_of_resources(name) { resources } else { paths };
        // A person decides on approvals; no turn may.
        let by_person = home.session.is_some() && covers("job/approve", ability);
        let permitted = !by_person
            && match list {
                None => !is_of_resources(name),
                Some(caps) => caps.iter().any(|cap| cap.permits(ability, name)),
            };
        match permitted {
            true if self.authority.is_name_revoked(name) => Permission::Revoked,
            true => Permission::Yes,
            false => Permission::No,
        }
    }

    /// Whether it is held in any case: the session's own `c/`, the job's own `t/`, its own job, and reading `v/`
    /// without [`HIDDEN`].
    pub(super) fn always_holds(&self, ability: &str, name: &str) -> bool {
        let within = |own: &Option<String>| own.as_ref().is_some_and(|own| covers(own, name));
        // Without a session or a job these aliases stand for nothing.
        let nobody = ["c", "t"].iter().any(|alias| covers(alias, name));
        let reads = || ability == "crud/read" && (within(&self.job) || covers("v", name) && !covers(HIDDEN, name));
        within(&self.scratch) || within(&self.task) || nobody || reads()
    }
}
