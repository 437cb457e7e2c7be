//! The claim `att`: grants of a token, each element with the owner that it is about.

use super::error::{ClaimRule, GrantedElementRule, TokenError};
use crate::authority::Capability;
use crate::authority::capability::is_of_resources;
use crate::ids::did::DidKey;
use crate::ids::{Owner, OwnerPart};
use crate::lattice::{Path, PathRule};

/// Namespace of resources (memory, files), which aren't part of the lattice.
const RESOURCES: &str = "r";

/// One element of `att`, with its target resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrantedElement {
    /// Owner of the target, if it isn't the token's own owner.
    pub foreign: Option<Owner>,
    /// Capability on that owner's tree; `with` is "" for all of it.
    pub on: Capability,
}

impl GrantedElement {
    /// Reads one element of a token about `own`: `with` is a plain path of that owner, `did:key:…[/path]` or
    /// `/tenant/user[/path]`.
    pub fn parse(own: &Owner, given: &Capability) -> Result<Self, TokenError> {
        let illegal = |rule: GrantedElementRule| {
            let Capability { with, can } = given.clone();
            TokenError::Claim { claim: "att", rule: ClaimRule::Element { can, with, rule: Box::new(rule) } }
        };
        let (owner, path) = split_target(&given.with).map_err(illegal)?;
        let with = check_resource(path).map_err(illegal)?;
        let can = check_ability(&given.can).map_err(illegal)?;
        Ok(Self { foreign: owner.filter(|owner| owner != own), on: Capability { with, can } })
    }

    /// Whether `held` includes it. A list limits only the dimensions (paths, resources) that it mentions; `None` is all
    /// of the own tree, and nothing else.
    pub fn is_within(&self, held: Option<&[Self]>) -> bool {
        let Some(held) = held else { return self.foreign.is_none() };
        let alike: Vec<_> = held.iter().filter(|one| one.is_resource() == self.is_resource()).collect();
        if alike.is_empty() && !held.is_empty() {
            return self.foreign.is_none();
        }
        alike.iter().any(|one| one.foreign == self.foreign && one.on.covers(&self.on))
    }

    /// Whether it names a resource namespace rather than a path.
    pub fn is_resource(&self) -> bool {
        self.foreign.is_none() && is_of_resources(&self.on.with)
    }

    /// Returns it as a capability of the token's owner; one of another owner keeps `/tenant/user/` before its path.
    pub fn capability(&self) -> Capability {
        let Capability { with, can } = &self.on;
        let with = match &self.foreign {
            None => with.clone(),
            Some(owner) => format!("/{owner}/{with}").trim_end_matches('/').to_owned(),
        };
        Capability { with, can: can.clone() }
    }
}

/// Splits `with` into the owner that it names, if it does, and the rest.
fn split_target(with: &str) -> Result<(Option<Owner>, &str), GrantedElementRule> {
    if with.starts_with("did:") {
        let (did, path) = with.split_once('/').unwrap_or((with, ""));
        let key = DidKey::parse(did).ok_or(GrantedElementRule::Key)?;
        return Ok((Some(key.owner()), path));
    }
    let Some(rest) = with.strip_prefix('/') else { return Ok((None, with)) };
    let mut parts = rest.splitn(3, '/');
    let mut part = || OwnerPart::new(parts.next().unwrap_or_default()).map_err(GrantedElementRule::Owner);
    let owner = Owner::new(part()?, part()?);
    Ok((Some(owner), parts.next().unwrap_or_default()))
}

/// Checks a path of the lattice, a resource namespace `r/…`, or an address with a scheme; one trailing slash is
/// dropped.
fn check_resource(path: &str) -> Result<String, GrantedElementRule> {
    let path = path.strip_suffix('/').unwrap_or(path);
    if path.is_empty() {
        return Ok(String::new());
    }
    if path == "*" || path.ends_with("/*") {
        return Err(GrantedElementRule::Star);
    }
    if let Some((scheme, place)) = path.split_once("://") {
        let plain = scheme.chars().all(|c| c.is_ascii_alphanumeric());
        let clean = place.split('/').all(|part| !part.is_empty() && part != "." && part != "..");
        let printed = place.chars().all(|c| !c.is_control() && !c.is_whitespace());
        let legal = plain && clean && printed && !scheme.is_empty();
        return if legal { Ok(path.to_owned()) } else { Err(GrantedElementRule::Address) };
    }
    if path == RESOURCES {
        return Ok(path.to_owned());
    }
    // A resource namespace obeys the rules of paths, apart from its first segment.
    let rest = path.strip_prefix(RESOURCES).and_then(|rest| rest.strip_prefix('/'));
    let as_path = rest.map_or_else(|| path.to_owned(), |rest| format!("w/{rest}"));
    if as_path.starts_with('/') {
        return Err(GrantedElementRule::Path(PathRule::EmptySegment));
    }
    Path::parse(&as_path).map_err(|error| GrantedElementRule::Path(error.rule))?;
    Ok(path.to_owned())
}

/// Checks an ability by segments, or `*`; `crud/*` becomes `crud`.
fn check_ability(can: &str) -> Result<String, GrantedElementRule> {
    let plain = can.strip_suffix("/*").unwrap_or(can);
    let legal = |part: &str| {
        !part.is_empty() && part.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_')
    };
    let known = plain == "*" || (plain.len() <= 128 && plain.split('/').all(legal));
    if known { Ok(plain.to_owned()) } else { Err(GrantedElementRule::Ability) }
}
