//! Conversion of a verified token to a caller.

use super::VerifiedToken;
use crate::domain::authority::Authority;
use crate::domain::authority::envelope::Envelope;
use crate::domain::ids::Owner;
use crate::domain::principal::Principal;
use crate::domain::values::Values;
use crate::venue::operation::Caller;

/// A caller as the token shows it, or as the request names it where no token is needed.
#[derive(Debug, Clone)]
pub struct AuthenticatedCaller {
    /// The caller with its authority.
    pub caller: Caller,
    /// Whether the caller may give values to keys that its token claims.
    pub may_override: bool,
    /// The owner of the token; `None` without a token.
    pub token_owner: Option<Owner>,
}

/// A request names another owner than its token.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the token is about owner `{0}`, and only operators act for others")]
pub struct NotTheOwner(pub Owner);

impl VerifiedToken {
    /// Returns the caller of a request about `named`; `None` stands for the token's own owner. An operator may name
    /// another owner, and then acts in his own name and without the claims of his token.
    pub fn caller(self, named: Option<Owner>) -> Result<AuthenticatedCaller, NotTheOwner> {
        let own = named.as_ref().is_none_or(|named| *named == self.owner);
        if !own && !self.operator {
            return Err(NotTheOwner(self.owner));
        }
        let token_owner = Some(self.owner.clone());
        let name = if own { self.owner.to_string() } else { self.subject.to_string() };
        let claims = if own { self.claims } else { Values::new() };
        let expires = Some(self.expires).filter(|_| !self.keeps_timers);
        let envelope = Envelope { grants: self.grants, claims, expires, ..Envelope::default() };
        let (subject, capabilities) = (self.subject.to_string(), self.capabilities.as_deref());
        let principal = Principal::bearer(&subject, self.holder.as_deref(), capabilities);
        let caller = Caller::new(named.unwrap_or(self.owner), name, Authority::new(self.capabilities));
        let caller = Caller { operator: self.operator, envelope, principal, ..caller };
        Ok(AuthenticatedCaller { caller, may_override: self.may_override, token_owner })
    }
}
