//! The envelope of every event: the authority of its request, narrowed at each step.

use super::capability::Capability;
use super::grant::{self, NotWithinParent};
use super::trail::{self, Trail};
use super::{Authority, Scope};
use crate::budget::Purse;
use crate::ids::Owner;
use crate::lineage::Lineage;
use crate::time::Millis;
use crate::values::Values;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Not;

/// Claim of a token that names its user.
const USER_CLAIM: &str = "user_id";

/// Extent of access to a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AccessMode {
    /// Tools that read are offered.
    Read,
    /// All tools are offered.
    ReadWrite,
}

/// The authority of a request on its way through agents: bounds to which every step only adds. It is stored with the
/// event; each turn computes what it permits under the policy of that moment.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Envelope {
    /// Upper bound of what may be done.
    #[serde(skip_serializing_if = "Authority::is_unlimited")]
    pub bound: Authority,
    /// Upper bound of access by kind of resource, such as `memory` or `files`; absent = no bound yet.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub modes: BTreeMap<String, AccessMode>,
    /// Names that a revocation may name: the caller, then `agent:<id>` of each agent above, outermost first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub holders: Vec<String>,
    /// Ids that a revocation may name: of the token and of the jobs above. The granted capabilities are in `bound`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub grants: Vec<String>,
    /// Claims of the verified token behind it, e.g. `user_id`.
    #[serde(skip_serializing_if = "Values::is_empty")]
    pub claims: Values,
    /// Names of the budget accounts that it is charged to, outermost first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub accounts: Vec<String>,
    /// Time at which the request ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Millis>,
    /// Chain of agents that it comes through.
    #[serde(skip_serializing_if = "Lineage::is_outermost")]
    pub lineage: Lineage,
    /// Expiry of its token. Work that was accepted goes on after it; no timer fires under it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires: Option<Millis>,
    /// Whether the runtime fills in values for an agent above that it isn't shown, so that nobody below may read them by
    /// path either.
    #[serde(skip_serializing_if = "Not::not")]
    pub hides_values: bool,
}

impl Envelope {
    /// Whether nothing limits it and nobody is named.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Whether one turn may act for both: they have the same bounds, claims, accounts and deadline. Holders, grants,
    /// lineage and expiry may differ.
    pub fn may_share_turn(&self, other: &Self) -> bool {
        let limits = |envelope: &Self| (envelope.accounts.clone(), envelope.deadline);
        self.bound == other.bound
            && self.modes == other.modes
            && self.claims == other.claims
            && self.hides_values == other.hides_values
            && limits(self) == limits(other)
    }

    /// Returns the name of the user for whom the request is made, through whatever agents: the claim `user_id` of the
    /// token; without one the first holder that is no agent; without one `owner`, in whose tree it runs.
    pub fn user<'e>(&'e self, owner: &'e Owner) -> Cow<'e, str> {
        let claimed = self.claims.get(USER_CLAIM).and_then(|user| user.as_str()).filter(|user| !user.is_empty());
        let is_agent = |holder: &str| holder.starts_with("agent:") && !holder.contains('/');
        let sent_it = || self.holders.iter().map(String::as_str).find(|holder| !is_agent(holder));
        match claimed.or_else(sent_it) {
            Some(user) => user.into(),
            None => owner.to_string().into(),
        }
    }

    /// Returns the holders and the grants of this envelope.
    pub fn trail(&self) -> Trail {
        Trail { holders: self.holders.clone(), grants: self.grants.clone() }
    }

    /// Adds those holders and grants of a trail that it doesn't name yet.
    #[must_use]
    pub fn with_trail(mut self, trail: &Trail) -> Self {
        trail::add_names(&mut self.holders, &trail.holders);
        trail::add_names(&mut self.grants, &trail.grants);
        self
    }

    /// Narrows the bound to the grants of a request; absent = inherited.
    #[must_use]
    pub fn narrow_to_grants(mut self, grants: Option<Vec<Capability>>) -> Self {
        self.bound = self.bound.intersect(&Authority::new(grants));
        self
    }

    /// Returns the envelope that a turn hands on to a child job. `holder` is `agent:<id>` of the turn's agent, `home` its
    /// session and job, and `effective` its present authority. The child may do no more than `effective`, than
    /// `delegable` of the agent's configuration, and than the capabilities `named` by the call; `None` is no limit.
    /// Fails if one of `named` is not within the first two.
    pub fn hand_on(
        &self,
        holder: String,
        effective: &Authority,
        delegable: Option<&[Capability]>,
        named: Option<&[Capability]>,
        home: &Scope,
    ) -> Result<Self, NotWithinParent> {
        let ceiling = Authority::new(delegable.map(<[_]>::to_vec)).bind_home(home);
        let held = effective.limit_to(&ceiling);
        let bound = match named {
            None => held,
            Some(named) => grant::narrow(&held, named)?,
        };
        let mut child = Self { bound: bound.without_home(), ..self.clone() };
        child.holders.push(holder);
        child.grants.extend(home.job.as_ref().map(ToString::to_string));
        if let Some(session) = &home.session {
            child.lineage = self.lineage.under_agent(&session.agent);
        }
        Ok(child)
    }

    /// Returns a time, or the end of the request if that is sooner.
    pub fn limit_time(&self, time: Millis) -> Millis {
        self.deadline.map_or(time, |ends| ends.min(time))
    }

    /// Replaces the accounts by those of a purse, and applies its deadline.
    #[must_use]
    pub fn charge_to(mut self, purse: &Purse) -> Self {
        self.accounts = purse.accounts().cloned().collect();
        let own = purse.deadline.map(|deadline| deadline.at);
        self.deadline = self.deadline.into_iter().chain(own).min();
        self
    }

    /// Returns the access to a kind of resource: the declared one within this bound.
    pub fn mode(&self, kind: &str, declared: AccessMode) -> AccessMode {
        self.modes.get(kind).map_or(declared, |bound| (*bound).min(declared))
    }

    /// Narrows the access by kind to that of an agent's resources: no descendant gets more.
    #[must_use]
    pub fn clamp_modes<'k>(mut self, declared: impl IntoIterator<Item = (&'k str, AccessMode)>) -> Self {
        for (kind, mode) in declared {
            let mode = self.mode(kind, mode);
            self.modes.insert(kind.to_owned(), mode);
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::SessionKey;

    fn cap(with: &str, can: &str) -> Capability {
        Capability { with: with.into(), can: can.into() }
    }

    fn home() -> Scope {
        let session = SessionKey { agent: "mid".parse().unwrap(), session: "s".parse().unwrap() };
        Scope { session: Some(session), job: Some("0123456789abcdef0123456789abcdef".parse().unwrap()) }
    }

    #[test]
    fn the_user_of_a_request_stays_the_same_when_delegated() {
        let owner = "acme/app".parse().unwrap();
        let user = |claim: serde_json::Value, holders: &[&str]| {
            let claims = Values::from_iter([(USER_CLAIM.to_owned(), claim)]);
            let holders = holders.iter().map(|&holder| holder.to_owned()).collect();
            let envelope = Envelope { holders, claims, ..Envelope::default() };
            let child =
                envelope.hand_on("agent:mid".into(), &Authority::without_limits(), None, None, &home()).unwrap();
            assert_eq!(child.user(&owner), envelope.user(&owner));
            envelope.user(&owner).into_owned()
        };
        for (claim, holders, expected) in [
            ("ann".into(), &["acme/app"][..], "ann"),
            ("ann".into(), &[], "ann"),
            ("".into(), &["did:key:z", "acme/app"], "did:key:z"),
            (7.into(), &["acme/bob"], "acme/bob"),
            (serde_json::Value::Null, &[], "acme/app"),
        ] {
            assert_eq!(user(claim.clone(), holders), expected, "{claim} {holders:?}");
        }
    }

    #[test]
    fn a_mode_narrows_through_agents_without_the_resource() {
        let top = Envelope::default().clamp_modes([("memory", AccessMode::Read)]);
        let middle = top.hand_on("agent:mid".into(), &Authority::without_limits(), None, None, &home()).unwrap();
        let bottom = middle.clamp_modes([("memory", AccessMode::ReadWrite), ("files", AccessMode::ReadWrite)]);
        assert_eq!(
            (bottom.mode("memory", AccessMode::ReadWrite), bottom.mode("files", AccessMode::ReadWrite)),
            (AccessMode::Read, AccessMode::ReadWrite)
        );
        assert_eq!(Envelope::default().mode("memory", AccessMode::Read), AccessMode::Read);
    }

    #[test]
    fn delegated_rights_are_held_delegable_and_named() {
        let effective = Authority::new(Some(vec![cap("w", "crud"), cap("n/diary", "crud"), cap("r/app/u1", "*")]))
            .bind_home(&home());
        let hand = |delegable: Option<&[Capability]>, named: Option<&[Capability]>| {
            Envelope::default().hand_on("agent:mid".into(), &effective, delegable, named, &home())
        };
        let all = hand(None, None).unwrap();
        assert!(all.bound.permits("crud/write", "w/x").is_ok());
        assert!(all.bound.permits("crud/read", "g/mid/n/diary").is_ok(), "the giver's notes, by their place");
        assert_eq!((all.holders, all.grants), (vec!["agent:mid".into()], vec![home().job.unwrap().to_string()]));
        assert_eq!(all.lineage.chain, ["mid".parse().unwrap()]);
        let some = hand(Some(&[cap("w/a", "crud/read")]), None).unwrap();
        assert!(some.bound.permits("crud/read", "w/a").is_ok() && some.bound.permits("crud/read", "w/b").is_err());
        assert!(some.bound.permits("read", "r/app/u1").is_ok(), "a dimension that `delegable` doesn't mention");
        assert!(hand(Some(&[]), None).unwrap().bound.permits("crud/read", "w/a").is_err());
        assert!(hand(Some(&[cap("w/a", "crud")]), Some(&[cap("w/b", "crud")])).is_err(), "beyond `delegable`");
        assert!(hand(None, Some(&[cap("w/b", "crud/read")])).unwrap().bound.permits("crud/write", "w/b").is_err());
    }

    #[test]
    fn absent_grants_inherit_and_empty_ones_are_nothing() {
        let held = Envelope { bound: Authority::new(Some(vec![cap("w", "crud")])), ..Envelope::default() };
        assert!(held.clone().narrow_to_grants(None).bound.permits("crud/read", "w/x").is_ok());
        assert!(held.clone().narrow_to_grants(Some(Vec::new())).bound.permits("crud/read", "w/x").is_err());
        assert!(
            held.narrow_to_grants(Some(vec![cap("", "*")])).bound.permits("crud/read", "s/x").is_err(),
            "never wider"
        );
    }

    #[test]
    fn an_envelope_reads_back_and_unknown_keys_are_refused() {
        let envelope = Envelope {
            bound: Authority::new(Some(vec![cap("w", "crud")])).except_resource("w/x"),
            holders: vec!["t/u".into()],
            ..Envelope::default()
        }
        .clamp_modes([("memory", AccessMode::Read)]);
        let text = serde_json::to_string(&envelope).unwrap();
        assert_eq!(serde_json::from_str::<Envelope>(&text).unwrap(), envelope, "{text}");
        assert_eq!(serde_json::to_string(&Envelope::default()).unwrap(), "{}");
        assert!(serde_json::from_str::<Envelope>(r#"{"bounds": {}}"#).is_err());
    }

    #[test]
    fn a_deadline_only_comes_nearer() {
        let at = |ms| Purse {
            deadline: Some(crate::budget::Deadline { at: Millis(ms), origin: crate::budget::LimitOrigin::Request }),
            ..Purse::default()
        };
        let envelope = Envelope::default().charge_to(&at(5));
        assert_eq!(envelope.clone().charge_to(&at(9)).deadline, Some(Millis(5)));
        assert_eq!(envelope.clone().charge_to(&at(3)).deadline, Some(Millis(3)));
        assert_eq!(envelope.charge_to(&Purse::default()).deadline, Some(Millis(5)), "a message keeps it, too");
    }
}
