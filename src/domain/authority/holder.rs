//! Who holds an authority and is asked many times: what it always holds is put into words once.

use super::capability::{Capability, covers, is_of_resources};
use super::{Authority, physical, scratch};

/// Values that the runtime fills in: nobody reads them by path without a capability.
pub const HIDDEN: &str = "v/context";

/// What [`Authority::permits`] comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Held {
    /// It is permitted.
    Yes,
    /// Nothing permits it.
    No,
    /// It would be, had it not been revoked.
    Revoked,
}

/// Who holds an authority and is asked for what it permits.
pub struct Holder<'a> {
    authority: &'a Authority,
    /// The session's own `c/`.
    scratch: Option<String>,
    /// Its own job.
    job: Option<String>,
    /// The job's own `t/`.
    task: Option<String>,
}

impl<'a> Holder<'a> {
    /// The holder of `authority`.
    pub fn of(authority: &'a Authority) -> Self {
        let home = &authority.home;
        let job = home.job.as_ref().map(|job| format!("j/{job}"));
        let task = job.as_ref().map(|job| format!("{job}/t"));
        Self { authority, scratch: home.session.as_ref().map(scratch), job, task }
    }

    /// [`Authority::may_know`].
    pub fn may_know(&self, used: &Capability) -> bool {
        let name = physical(used.with.trim_end_matches('/'), &self.authority.home);
        [used.can.as_str(), super::cover::reading(&used.with)].iter().any(|can| self.held(can, &name) == Held::Yes)
    }

    /// Of a physical name.
    pub(super) fn held(&self, ability: &str, name: &str) -> Held {
        if self.always(ability, name) {
            return Held::Yes;
        }
        let Authority { paths, resources, home, .. } = self.authority;
        let list = if is_of_resources(name) { resources } else { paths };
        // What a turn asks is for a person to decide, and for no turn.
        let by_person = home.session.is_some() && covers("job/approve", ability);
        let permitted = !by_person
            && match list {
                None => !is_of_resources(name),
                Some(caps) => caps.iter().any(|cap| cap.permits(ability, name)),
            };
        match permitted {
            true if self.authority.is_gone(name) => Held::Revoked,
            true => Held::Yes,
            false => Held::No,
        }
    }

    /// The session's own `c/`, the job's own `t/`, its own job, and reading `v/` without [`HIDDEN`].
    pub(super) fn always(&self, ability: &str, name: &str) -> bool {
        let within = |own: &Option<String>| own.as_ref().is_some_and(|own| covers(own, name));
        // Without a session or a job there is nothing that these could mean.
        let nobody = ["c", "t"].iter().any(|alias| covers(alias, name));
        let reads = || ability == "crud/read" && (within(&self.job) || covers("v", name) && !covers(HIDDEN, name));
        within(&self.scratch) || within(&self.task) || nobody || reads()
    }
}
