//! From verified links to who asks and for what: every link may only narrow the one above it.

use super::att::GrantedElement;
use super::{Claims, SpeaksFor, TokenRefused, TokenSubject};
use crate::authority::Capability;
use crate::ids::Owner;
use crate::ids::did::DidKey;
use crate::time::Millis;
use crate::values::Values;
use crate::values::protected::USER_ID;
use serde_json::Value;
use std::time::Duration;

/// Whose signature a link has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Signer {
    /// The key that is its issuer.
    Key(DidKey),
    /// A trusted issuer.
    Issuer(SpeaksFor),
}

/// One token of a chain, its signature verified.
#[derive(Debug, Clone, PartialEq)]
pub struct Link {
    /// What it says.
    pub claims: Claims,
    /// Who signed it.
    pub signer: Signer,
}

/// Who holds a token, and for what.
#[derive(Debug, Clone, PartialEq)]
pub struct Bearer {
    /// Whose data: the root's.
    pub owner: Owner,
    /// Whom the root is about.
    pub subject: TokenSubject,
    /// What is granted: `None` = everything that the owner holds, empty = nothing. What another
    /// owner granted has `/tenant/user/` before its path.
    pub capabilities: Option<Vec<Capability>>,
    /// `user_id`, and what a trusted issuer says of the person: `user.name`, `user.email`.
    pub claims: Values,
    /// The grant ids, the last link's first.
    pub grants: Vec<String>,
    /// It was handed on by its subject.
    pub delegated: bool,
    /// Who presents what was handed on: the issuer of the last link.
    pub holder: Option<String>,
    /// The end of the first link that ends.
    pub expires: Millis,
}

/// When and by whom tokens are looked at.
#[derive(Debug, Clone, Copy)]
pub struct Judge<'a> {
    /// The time that counts.
    pub now: Millis,
    /// How far clocks may differ.
    pub leeway: Duration,
    /// Names of the venue.
    pub audiences: &'a [&'a str],
}

/// Judges a chain, the presented token first and the root last. The owner is the root's, the
/// capabilities are the presented token's.
pub fn judge(links: &[Link], by: Judge<'_>) -> Result<Bearer, TokenRefused> {
    let (Some(presented), Some(root)) = (links.first(), links.last()) else { return Err(TokenRefused::Missing) };
    for link in links {
        in_time(&link.claims, by)?;
    }
    if !presented.claims.audience.iter().any(|name| by.audiences.contains(&name.as_str())) {
        return Err(TokenRefused::Audience);
    }
    let subject = root_subject(root)?;
    let owner = subject.owner();
    let mut held = root_grants(root, &owner)?;
    for pair in links.windows(2).rev() {
        let [link, above] = pair else { continue };
        joined(&link.claims, &above.claims, &subject)?;
        held = narrowed(&link.claims, &owner, held)?;
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

fn in_time(claims: &Claims, by: Judge<'_>) -> Result<(), TokenRefused> {
    if by.now >= claims.expires.plus(by.leeway) {
        Err(TokenRefused::Expired)
    } else if by.now.plus(by.leeway) < claims.not_before {
        Err(TokenRefused::NotYet)
    } else {
        Ok(())
    }
}

/// The subject of a root, when its signer may speak for it: a key for itself alone, an issuer for
/// its owners.
fn root_subject(root: &Link) -> Result<TokenSubject, TokenRefused> {
    let subject = match (&root.claims.subject, &root.signer) {
        (Some(subject), _) => subject.clone(),
        // A UCAN has none: it is about the key that signs it.
        (None, Signer::Key(key)) => TokenSubject::Key(key.clone()),
        (None, Signer::Issuer(_)) => {
            return Err(TokenRefused::Claim { claim: "sub", rule: "it is missing".to_owned() });
        }
    };
    let speaks = match (&root.signer, &subject) {
        (Signer::Key(signer), TokenSubject::Key(key)) => signer == key,
        (Signer::Issuer(issuer), TokenSubject::Owner(owner)) => issuer.covers(owner),
        (Signer::Key(_), TokenSubject::Owner(_)) | (Signer::Issuer(_), TokenSubject::Key(_)) => false,
    };
    if speaks { Ok(subject) } else { Err(TokenRefused::Subject) }
}

/// What a root grants: of its own tree what it likes, of others' only what its signer speaks for.
fn root_grants(root: &Link, owner: &Owner) -> Result<Option<Vec<GrantedElement>>, TokenRefused> {
    let Some(att) = &root.claims.att else { return Ok(None) };
    let rooted = |granted: &GrantedElement| match (&granted.foreign, &root.signer) {
        (None, _) => true,
        (Some(other), Signer::Issuer(issuer)) => issuer.covers(other),
        (Some(_), Signer::Key(_)) => false,
    };
    granted(att, owner, rooted).map(Some)
}

fn granted(
    att: &[Capability],
    owner: &Owner,
    is_held: impl Fn(&GrantedElement) -> bool,
) -> Result<Vec<GrantedElement>, TokenRefused> {
    let one = |given: &Capability| {
        let granted = GrantedElement::parse(owner, given)?;
        if is_held(&granted) {
            Ok(granted)
        } else {
            Err(TokenRefused::NotHeld(format!("`{}`", crate::visible::quoted(&given.to_string()))))
        }
    };
    att.iter().map(one).collect()
}

/// Whether `link` was made by whom `above` is for, and within its time.
fn joined(link: &Claims, above: &Claims, root: &TokenSubject) -> Result<(), TokenRefused> {
    if !above.audience.contains(&link.issuer) {
        return Err(TokenRefused::Chain("the `aud` of a link is not the `iss` of the next one"));
    }
    if link.expires > above.expires {
        return Err(TokenRefused::Chain("a link lasts longer than the one above it"));
    }
    let Some(subject) = &link.subject else { return Ok(()) };
    if subject == root || subject.to_string() == link.issuer {
        Ok(())
    } else {
        Err(TokenRefused::Chain("the `sub` of a link is neither the root's nor its own issuer"))
    }
}

/// What is left behind a link. An `att` that is absent hands everything on.
fn narrowed(
    link: &Claims,
    owner: &Owner,
    held: Option<Vec<GrantedElement>>,
) -> Result<Option<Vec<GrantedElement>>, TokenRefused> {
    let Some(att) = &link.att else { return Ok(held) };
    let mut left = granted(att, owner, |granted| granted.is_within(held.as_deref()))?;
    // A list says nothing of a dimension that it doesn't mention: there the one above goes on.
    if !left.is_empty() {
        for resources in [false, true] {
            if left.iter().all(|one| one.is_resource() != resources) {
                left.extend(held.iter().flatten().filter(|one| one.is_resource() == resources).cloned());
            }
        }
    }
    Ok(Some(left))
}

/// What is known of the person. A key that speaks for itself could claim any name and address, so
/// only its own id counts.
fn identity(root: &Link, owner: &Owner) -> Values {
    let mut values = Values::new();
    values.extend([USER_ID, "user.id"].map(|key| (key.to_owned(), Value::from(owner.user().as_str()))));
    if let Signer::Issuer(_) = root.signer {
        let named =
            [(["user_name", "user.name"], &root.claims.name), (["user_email", "user.email"], &root.claims.email)];
        for (keys, claim) in named {
            if let Some(text) = claim {
                values.extend(keys.map(|key| (key.to_owned(), Value::from(text.as_str()))));
            }
        }
    }
    values
}
