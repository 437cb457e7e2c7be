//! From verified links to a bearer and its capabilities: every link may only narrow the one above it.

use super::att::GrantedElement;
use super::error::{ClaimRule, TokenError};
use super::{Claims, SpeaksFor, TokenSubject};
use crate::authority::Capability;
use crate::ids::Owner;
use crate::ids::did::DidKey;
use crate::time::Millis;
use crate::values::Values;
use crate::values::protected_keys::USER_ID;
use serde_json::Value;
use std::time::Duration;

/// Signer of a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Signer {
    /// The key is the issuer itself.
    Key(DidKey),
    /// The key belongs to a trusted issuer.
    Issuer(SpeaksFor),
}

/// One token of a chain with a verified signature.
#[derive(Debug, Clone, PartialEq)]
pub struct Link {
    /// Claims of the token.
    pub claims: Claims,
    /// Signer of the token.
    pub signer: Signer,
}

/// Bearer of a token, and its capabilities.
#[derive(Debug, Clone, PartialEq)]
pub struct Bearer {
    /// Owner of the data: the root's.
    pub owner: Owner,
    /// Subject of the root.
    pub subject: TokenSubject,
    /// Granted capabilities: `None` = everything that the owner holds, empty = nothing. A capability of another owner
    /// has `/tenant/user/` before its path.
    pub capabilities: Option<Vec<Capability>>,
    /// Claims of the person: `user_id`, and from a trusted issuer `user.name` and `user.email`.
    pub claims: Values,
    /// Ids of the grants, the last link's first.
    pub grants: Vec<String>,
    /// Whether its subject handed it on.
    pub delegated: bool,
    /// Issuer of the last link, if the token was handed on.
    pub holder: Option<String>,
    /// Earliest end of the links.
    pub expires: Millis,
}

/// Time and names by which tokens are judged.
#[derive(Debug, Clone, Copy)]
pub struct JudgeSettings<'a> {
    /// Time of the judgement.
    pub now: Millis,
    /// Difference of clocks that is tolerated.
    pub leeway: Duration,
    /// Names of the venue as an audience.
    pub audiences: &'a [&'a str],
}

/// Judges a chain, the presented token first and the root last. The owner is the root's, the capabilities are the
/// presented token's.
pub fn judge(links: &[Link], by: JudgeSettings<'_>) -> Result<Bearer, TokenError> {
    let (Some(presented), Some(root)) = (links.first(), links.last()) else { return Err(TokenError::Missing) };
    for link in links {
        check_time(&link.claims, by)?;
    }
    if !presented.claims.audience.iter().any(|name| by.audiences.contains(&name.as_str())) {
        return Err(TokenError::Audience);
    }
    let subject = root_subject(root)?;
    let owner = subject.owner();
    let mut held = root_grants(root, &owner)?;
    for pair in links.windows(2).rev() {
        let [link, above] = pair else { continue };
        check_link(&link.claims, &above.claims, &subject)?;
        held = narrow_grants(&link.claims, &owner, held)?;
    }
    Ok(Bearer {
        claims: identity(root, &owner),
        capabilities: held.map(|held| held.iter().map(GrantedElement::capability).collect()),
        grants: links.iter().filter_map(|link| link.claims.grant.clone()).collect(),
        delegated: links.len() > 1,
        holder: (links.len() > 1).then(|| presented.claims.issuer.clone()),
        // Links end no later than those above them.
        expires: presented.claims.expires,
        owner,
        subject,
    })
}

/// Checks that a token narrows its proofs, the nearest first: as [`judge`] does, but before anything is signed. Whether
/// the root's key may speak for its subject is known to a venue alone.
pub fn check_narrowing(token: &Claims, proofs: &[Claims], now: Millis) -> Result<(), TokenError> {
    let links = [token].into_iter().chain(proofs).map(|claims| {
        let key = match &claims.subject {
            Some(TokenSubject::Key(key)) => Some(key.clone()),
            Some(TokenSubject::Owner(_)) => None,
            None => DidKey::parse(&claims.issuer),
        };
        Link { claims: claims.clone(), signer: key.map_or(Signer::Issuer(SpeaksFor::everybody()), Signer::Key) }
    });
    let audiences: Vec<&str> = token.audience.iter().map(String::as_str).collect();
    let by = JudgeSettings { now, leeway: Duration::ZERO, audiences: &audiences };
    judge(&links.collect::<Vec<_>>(), by).map(|_| ())
}

fn check_time(claims: &Claims, by: JudgeSettings<'_>) -> Result<(), TokenError> {
    if by.now >= claims.expires.plus(by.leeway) {
        Err(TokenError::Expired)
    } else if by.now.plus(by.leeway) < claims.not_before {
        Err(TokenError::NotYet)
    } else {
        Ok(())
    }
}

/// Returns the subject of a root, if its signer may speak for it: a key for itself alone, an issuer for its owners.
fn root_subject(root: &Link) -> Result<TokenSubject, TokenError> {
    let subject = match (&root.claims.subject, &root.signer) {
        (Some(subject), _) => subject.clone(),
        // A UCAN has no subject: it is about the key that signs it.
        (None, Signer::Key(key)) => TokenSubject::Key(key.clone()),
        (None, Signer::Issuer(_)) => {
            return Err(TokenError::Claim { claim: "sub", rule: ClaimRule::Missing });
        }
    };
    let speaks = match (&root.signer, &subject) {
        (Signer::Key(signer), TokenSubject::Key(key)) => signer == key,
        (Signer::Issuer(issuer), TokenSubject::Owner(owner)) => issuer.covers(owner),
        (Signer::Key(_), TokenSubject::Owner(_)) | (Signer::Issuer(_), TokenSubject::Key(_)) => false,
    };
    if speaks { Ok(subject) } else { Err(TokenError::Subject) }
}

/// Returns the grants of a root: any on its own tree, and on others' trees only what its signer speaks for.
fn root_grants(root: &Link, owner: &Owner) -> Result<Option<Vec<GrantedElement>>, TokenError> {
    let Some(att) = &root.claims.att else { return Ok(None) };
    let rooted = |granted: &GrantedElement| match (&granted.foreign, &root.signer) {
        (None, _) => true,
        (Some(other), Signer::Issuer(issuer)) => issuer.covers(other),
        (Some(_), Signer::Key(_)) => false,
    };
    parse_grants(att, owner, rooted).map(Some)
}

fn parse_grants(
    att: &[Capability],
    owner: &Owner,
    is_held: impl Fn(&GrantedElement) -> bool,
) -> Result<Vec<GrantedElement>, TokenError> {
    let one = |given: &Capability| {
        let granted = GrantedElement::parse(owner, given)?;
        if is_held(&granted) {
            Ok(granted)
        } else {
            Err(TokenError::NotHeld(format!("`{}`", crate::visible::quote_foreign(&given.to_string()))))
        }
    };
    att.iter().map(one).collect()
}

/// Checks that `link` was made by the audience of `above`, and within its time.
fn check_link(link: &Claims, above: &Claims, root: &TokenSubject) -> Result<(), TokenError> {
    if !above.audience.contains(&link.issuer) {
        return Err(TokenError::Chain("the `aud` of a link is not the `iss` of the next one"));
    }
    if link.expires > above.expires {
        return Err(TokenError::Chain("a link lasts longer than the one above it"));
    }
    let Some(subject) = &link.subject else { return Ok(()) };
    if subject == root || subject.to_string() == link.issuer {
        Ok(())
    } else {
        Err(TokenError::Chain("the `sub` of a link is neither the root's nor its own issuer"))
    }
}

/// Returns the capabilities behind a link. An absent `att` hands everything on.
fn narrow_grants(
    link: &Claims,
    owner: &Owner,
    held: Option<Vec<GrantedElement>>,
) -> Result<Option<Vec<GrantedElement>>, TokenError> {
    let Some(att) = &link.att else { return Ok(held) };
    let mut left = parse_grants(att, owner, |granted| granted.is_within(held.as_deref()))?;
    // A list says nothing of a dimension that it doesn't mention: the capabilities above count there.
    if !left.is_empty() {
        for resources in [false, true] {
            if left.iter().all(|one| one.is_resource() != resources) {
                left.extend(held.iter().flatten().filter(|one| one.is_resource() == resources).cloned());
            }
        }
    }
    Ok(Some(left))
}

/// Returns the claims of the person. A key that speaks for itself could claim any name and address, so only its own id
/// counts.
fn identity(root: &Link, owner: &Owner) -> Values {
    let mut values = Values::new();
    values.extend([USER_ID, "user.id"].map(|key| (key.to_owned(), Value::from(owner.user().as_str()))));
    if let Signer::Issuer(_) = root.signer {
        let named = [
            ([USER_ID, "user.id"], &root.claims.user_id),
            (["user_name", "user.name"], &root.claims.name),
            (["user_email", "user.email"], &root.claims.email),
        ];
        for (keys, claim) in named {
            if let Some(text) = claim {
                values.extend(keys.map(|key| (key.to_owned(), Value::from(text.as_str()))));
            }
        }
    }
    values
}
