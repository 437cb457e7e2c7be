//! The policy of an owner: the roots of what may be done, and the revocations.

use super::capability::{Capability, covers};
use super::envelope::Envelope;
use super::trail::Trail;
use super::{Authority, ResourcePath, Scope};
use crate::bounds::{AGENT_BYTES, OversizedDocument, POLICY_BYTES, cut_reason};
use crate::time::Millis;
use serde::{Deserialize, Serialize};

/// Number of revocations of one owner at most: each turn checks every one.
pub const MAX_REVOCATIONS: usize = 1000;

/// Policy of an owner; every commit compares its version.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Policy {
    /// Upper bound of what anything of this owner may do; absent = no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub roots: Option<Vec<Capability>>,
    /// Calls that need any of these wait for a person's approval.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub approvals: Vec<Capability>,
    /// Revocations, the oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub revocations: Vec<Revocation>,
}

/// A revocation: all that it names must match, and it names at least one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Revocation {
    /// Name of the revocation, to restore by.
    pub id: String,
    /// Path that is revoked with everything below; absent = everything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<ResourcePath>,
    /// Holder that it applies to: a caller, or `agent:<id>` and what it handed on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<String>,
    /// Grant that it applies to: a token's id or a job, and what was handed on under it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grant: Option<String>,
    /// Reason for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Name of the caller who revoked.
    pub by: String,
    /// Time of the revocation.
    pub at: Millis,
}

/// The acting party, for [`Policy::effective`].
#[derive(Debug, Clone, Copy)]
pub struct Actor<'a> {
    /// Name of the holder: `agent:<id>` or a caller.
    pub holder: &'a str,
    /// Capabilities of its own; absent = no limit of its own.
    pub caps: Option<&'a [Capability]>,
    /// Authority of its creator.
    pub creator: &'a Authority,
    /// Holders and grants under which it was made.
    pub made: &'a Trail,
    /// Session and job whose `n/`, `c/` and `t/` it means.
    pub home: &'a Scope,
}

impl Policy {
    /// Returns what an actor may do for a request: roots ∩ the request's bound ∩ its creator's ∩ its own list, without
    /// what was revoked. Only a request grants resources.
    pub fn effective(&self, actor: Actor<'_>, envelope: &Envelope) -> Authority {
        let own = Authority::new(actor.caps.map(<[_]>::to_vec)).bind_home(actor.home);
        let roots = Authority::new(self.roots.clone()).bind_home(actor.home);
        let bound = envelope.bound.clone().bind_home(actor.home);
        let held = bound.limit_to(&own).limit_to(actor.creator).limit_to(&roots);
        self.revocations.iter().filter(|revocation| revocation.applies_to_actor(actor, envelope)).fold(
            held,
            |held, revocation| match &revocation.path {
                Some(path) => held.except_resource(path),
                None => held.intersect(&Authority::new(Some(Vec::new()))),
            },
        )
    }
}

impl Policy {
    /// Returns the revocations that apply to a caller outside turns: by its name, or by one of its request's grants.
    /// Revocations by path alone are left out: they limit agents, and their author may go on reading.
    pub fn caller_revocations<'a>(
        &'a self,
        holder: &'a str,
        envelope: &'a Envelope,
    ) -> impl Iterator<Item = &'a Revocation> {
        self.revocations.iter().filter(move |revocation| {
            let (creator, made, home) = (&Authority::without_limits(), &Trail::default(), &Scope::default());
            revocation.has_subject()
                && revocation.applies_to_actor(Actor { holder, caps: None, creator, made, home }, envelope)
        })
    }

    /// Returns the revocation by which an actor may start nothing for a request.
    pub fn start_revocation(&self, actor: Actor<'_>, envelope: &Envelope) -> Option<&Revocation> {
        self.revocations
            .iter()
            .find(|revocation| revocation.revokes_everything() && revocation.applies_to_actor(actor, envelope))
    }

    /// Returns the revocation by which nothing starts of what was made under `trail`.
    pub fn trail_revocation(&self, trail: &Trail) -> Option<&Revocation> {
        self.revocations.iter().find(|revocation| revocation.revokes_everything() && revocation.applies_to(trail))
    }

    /// Returns the revocation of an agent's path by which the agent doesn't serve a request. Work that was sent before
    /// the revocation is checked again when it starts.
    pub fn agent_revocation(&self, agent: &ResourcePath, envelope: &Envelope) -> Option<&Revocation> {
        self.revocations.iter().find(|revocation| revocation.closes_agent(agent, envelope))
    }
}

impl Policy {
    /// Cuts long reasons, which older builds accepted.
    #[must_use]
    pub fn with_cut_reasons(mut self) -> Self {
        for revocation in &mut self.revocations {
            revocation.reason = revocation.reason.take().map(cut_reason);
        }
        self
    }

    /// Refuses a policy that is too large. `before` is the one it replaces: an older build's larger one may always
    /// shrink, and accepts revocations up to [`AGENT_BYTES`], as long as the queue keeps it.
    pub fn check_size(&self, before: &Self, owner: &str) -> Result<(), OversizedDocument> {
        let bytes = |policy: &Self| serde_json::to_vec(policy).map_or(usize::MAX, |text| text.len());
        let (before, after) = (bytes(before), bytes(self));
        let is_old = before > POLICY_BYTES;
        if after <= POLICY_BYTES || after < before || is_old && after <= AGENT_BYTES {
            return Ok(());
        }
        Err(OversizedDocument {
            what: format!("the policy of `{owner}`"),
            bytes: after,
            most: POLICY_BYTES,
            advice: "its roots, approvals and revocations count together; restore revocations that aren't needed any more, \
                     or set fewer roots and approvals",
        })
    }
}

impl Revocation {
    /// Whether it revokes all that a holder or a grant may do, so that nothing starts under it.
    pub const fn revokes_everything(&self) -> bool {
        self.path.is_none() && self.has_subject()
    }

    /// Whether it names a holder or a grant.
    pub const fn has_subject(&self) -> bool {
        self.holder.is_some() || self.grant.is_some()
    }

    /// Whether it applies to what was made under `trail`.
    pub fn applies_to(&self, trail: &Trail) -> bool {
        self.has_subject()
            && self.holder.as_ref().is_none_or(|holder| trail.holders.contains(holder))
            && self.grant.as_ref().is_none_or(|grant| trail.grants.contains(grant))
    }

    /// Returns the error text for work that may not start under it.
    pub fn refusal(&self) -> String {
        let path = self.path.as_ref().map(ToString::to_string);
        let named = [("path", &path), ("holder", &self.holder), ("grant", &self.grant)];
        let named = named.iter().filter_map(|(what, name)| Some(format!("{what} `{}`", name.as_ref()?)));
        let named = named.collect::<Vec<_>>().join(" and ");
        format!("nothing starts any more under {named}: it was revoked (revocation `{}`)", self.id)
    }

    /// Whether an agent may not serve a request. A path alone limits agents; people may still ask the agent.
    fn closes_agent(&self, agent: &ResourcePath, envelope: &Envelope) -> bool {
        let is_way = |path: &ResourcePath| covers(path.as_str(), agent.as_str());
        let is_agent = |holder: &String| holder.starts_with("agent:");
        self.path.as_ref().is_some_and(is_way)
            && if self.has_subject() {
                self.applies_to(&envelope.trail())
            } else {
                envelope.holders.iter().any(is_agent)
            }
    }

    fn applies_to_actor(&self, actor: Actor<'_>, envelope: &Envelope) -> bool {
        if !self.has_subject() {
            return self.path.is_some();
        }
        let mut own = envelope.trail();
        own.holders.push(actor.holder.to_owned());
        own.grants.extend(actor.home.job.as_ref().map(ToString::to_string));
        self.applies_to(&own) || self.applies_to(actor.made)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::SessionKey;

    fn cap(with: &str, can: &str) -> Capability {
        Capability { with: with.into(), can: can.into() }
    }

    const JOB: &str = "0123456789abcdef0123456789abcdef";

    fn revocation(path: Option<&str>, holder: Option<&str>, grant: Option<&str>) -> Revocation {
        Revocation {
            id: "r".into(),
            path: path.map(Into::into),
            holder: holder.map(Into::into),
            grant: grant.map(Into::into),
            reason: None,
            by: "t/u".into(),
            at: Millis(0),
        }
    }

    fn permits(policy: &Policy, caps: Option<&[Capability]>, envelope: &Envelope, ability: &str, name: &str) -> bool {
        let session = SessionKey { agent: "a".parse().unwrap(), session: "s".parse().unwrap() };
        let home = Scope { session: Some(session), job: Some(JOB.parse().unwrap()) };
        let creator = Authority::without_limits();
        let actor = Actor { holder: "agent:a", caps, creator: &creator, made: &Trail::default(), home: &home };
        policy.effective(actor, envelope).permits(ability, name).is_ok()
    }

    #[test]
    fn a_policy_grows_to_its_bound_and_shrinks_from_any_size() {
        let policy = |count: usize, reason: usize| {
            let one = || Revocation { reason: Some("\"".repeat(reason / 2)), ..revocation(Some("w/a"), None, None) };
            Policy { revocations: (0..count).map(|_| one()).collect(), ..Policy::default() }
        };
        let (none, old) = (Policy::default(), policy(3, POLICY_BYTES));
        for (after, before, is_taken) in [
            (policy(60, 4_000), &none, true),
            (policy(70, 4_000), &none, false),
            (policy(70, 4_000), &policy(69, 4_000), true),
            (policy(200, 4_000), &policy(69, 4_000), false),
            (policy(2, POLICY_BYTES), &old, true),
            (old.clone(), &old, false),
        ] {
            let refused = after.check_size(before, "acme/ann").err().map(|refused| refused.to_string());
            assert_eq!(refused.is_none(), is_taken, "{refused:?}");
            assert!(refused.is_none_or(|text| text.starts_with("the policy of `acme/ann` takes ")));
        }
        assert!(old.clone().with_cut_reasons().check_size(&old, "acme/ann").is_ok());
    }

    #[test]
    fn effective_rights_lie_within_roots_bound_and_caps() {
        let policy = Policy { roots: Some(vec![cap("w", "crud"), cap("g", "agent")]), ..Policy::default() };
        let bound = Authority::new(Some(vec![cap("w/a", "crud"), cap("s", "*")]));
        let envelope = Envelope { bound, ..Envelope::default() };
        let caps = [cap("w", "crud/read")];
        for (caps, ability, name, permitted) in [
            (Some(&caps[..]), "crud/read", "w/a/x", true),
            (Some(&caps[..]), "crud/write", "w/a/x", false),
            (Some(&caps[..]), "crud/read", "w/b", false),
            (None, "crud/write", "w/a/x", true),
            (None, "crud/read", "s/x", false),
            (Some(&[][..]), "crud/read", "w/a", false),
            (Some(&[][..]), "crud/write", "c/x", true),
        ] {
            assert_eq!(permits(&policy, caps, &envelope, ability, name), permitted, "{caps:?} {ability} {name}");
        }
    }

    #[test]
    fn a_revocation_by_path_holder_or_grant_reaches_delegations() {
        let revoked = |path: Option<&str>, holder: Option<&str>, grant: Option<&str>| {
            let revocation = revocation(path, holder, grant);
            Policy { revocations: vec![revocation], ..Policy::default() }
        };
        let envelope = Envelope {
            holders: vec!["t/u".into(), "agent:top".into()],
            grants: vec!["jti-1".into()],
            ..Envelope::default()
        };
        for (policy, name, permitted) in [
            (revoked(Some("w/a"), None, None), "w/a/x", false),
            (revoked(Some("w/a/"), None, None), "w/a", false),
            (revoked(Some("w/a"), None, None), "w/b", true),
            (revoked(Some("w/a"), None, None), "c/x", true),
            (revoked(None, Some("agent:a"), None), "w/b", false),
            (revoked(None, Some("agent:top"), None), "w/b", false),
            (revoked(None, Some("agent:b"), None), "w/b", true),
            (revoked(None, None, Some("jti-1")), "w/b", false),
            (revoked(None, None, Some(JOB)), "w/b", false),
            (revoked(None, None, Some("jti-2")), "w/b", true),
            (revoked(Some("w/a"), Some("agent:top"), None), "w/a", false),
            (revoked(Some("w/a"), Some("agent:b"), None), "w/a", true),
            (revoked(None, None, None), "w/a", true),
        ] {
            assert_eq!(permits(&policy, None, &envelope, "crud/read", name), permitted, "{policy:?} {name}");
        }
    }

    #[test]
    fn a_request_asks_again_for_the_way_to_its_agent() {
        let request = |holders: &[&str], grants: &[&str]| Envelope {
            holders: holders.iter().map(|name| (*name).to_owned()).collect(),
            grants: grants.iter().map(|name| (*name).to_owned()).collect(),
            ..Envelope::default()
        };
        let (ann, child) = (request(&["t/ann"], &["jti"]), request(&["t/ann", "agent:top"], &["jti", JOB]));
        for (path, holder, grant, by_ann, by_agent) in [
            (Some("g/a"), Some("t/ann"), None, true, true),
            (Some("g"), Some("t/ann"), None, true, true),
            (Some("g/a"), None, Some("jti"), true, true),
            (Some("g/a"), Some("agent:top"), None, false, true),
            (Some("g/a"), None, Some(JOB), false, true),
            (Some("g/a"), None, None, false, true),
            (Some("g/a"), Some("t/bob"), None, false, false),
            (Some("g/a/n"), Some("t/ann"), None, false, false),
            (Some("g/ab"), Some("t/ann"), None, false, false),
            (Some("w"), Some("t/ann"), None, false, false),
            (None, Some("t/ann"), None, false, false),
        ] {
            let revocation = revocation(path, holder, grant);
            let policy = Policy { revocations: vec![revocation], ..Policy::default() };
            let is_closed = |request| policy.agent_revocation(&"g/a".into(), request).is_some();
            assert_eq!((is_closed(&ann), is_closed(&child)), (by_ann, by_agent), "{path:?} {holder:?} {grant:?}");
        }
    }

    #[test]
    fn a_waiting_job_is_rechecked_against_its_trail_at_start() {
        let trail =
            Trail { holders: vec!["t/ann".into(), "agent:clerk".into()], grants: vec!["jti".into(), JOB.into()] };
        for (path, holder, grant, has_ended) in [
            (None, None, Some("jti"), true),
            (None, None, Some(JOB), true),
            (None, Some("agent:clerk"), None, true),
            (None, Some("agent:clerk"), Some("other"), false),
            (None, Some("t/bob"), None, false),
            (Some("w/pay"), None, Some("jti"), false),
            (Some("w/pay"), None, None, false),
        ] {
            let policy = Policy { revocations: vec![revocation(path, holder, grant)], ..Policy::default() };
            assert_eq!(policy.trail_revocation(&trail).is_some(), has_ended, "{path:?} {holder:?} {grant:?}");
        }
    }

    #[test]
    fn jobs_under_a_revoked_grant_may_do_nothing() {
        let trail = |holders: &[&str], grants: &[&str]| Trail {
            holders: holders.iter().map(|name| (*name).to_owned()).collect(),
            grants: grants.iter().map(|name| (*name).to_owned()).collect(),
        };
        let (made, by_other) = (trail(&["t/ann", "agent:maker"], &["jti-1", "job-1"]), trail(&["t/bob"], &["jti-2"]));
        let request = Envelope::default().with_trail(&by_other);
        for (path, holder, grant, stopped, permitted) in [
            (None, None, Some("jti-1"), true, false),
            (None, Some("t/ann"), None, true, false),
            (None, Some("agent:maker"), Some("job-1"), true, false),
            (None, Some("t/bob"), Some("jti-2"), true, false),
            (None, Some("t/bob"), Some("jti-1"), false, true),
            (None, None, Some("jti-3"), false, true),
            (Some("w/pay"), None, Some("jti-1"), false, false),
            (Some("w/else"), None, Some("jti-1"), false, true),
            (Some("w/pay"), None, None, false, false),
        ] {
            let revocation = revocation(path, holder, grant);
            let text = revocation.refusal();
            let policy = Policy { revocations: vec![revocation], ..Policy::default() };
            let (creator, home) = (Authority::without_limits(), Scope::default());
            let actor = Actor { holder: "agent:a", caps: None, creator: &creator, made: &made, home: &home };
            assert_eq!(policy.start_revocation(actor, &request).is_some(), stopped, "{text}");
            assert_eq!(policy.effective(actor, &request).permits("crud/read", "w/pay").is_ok(), permitted, "{text}");
        }
    }
}
