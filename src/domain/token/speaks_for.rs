//! Owners that an issuer's key may speak for.

use crate::ids::did::TENANT;
use crate::ids::{IdError, Owner, OwnerPart};
use crate::visible::quote_foreign;

/// Owners by whole names: a tenant with all its users, or one user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpeaksFor(Option<Vec<Prefix>>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Prefix {
    tenant: OwnerPart,
    user: Option<OwnerPart>,
}

/// A name of owners that is illegal.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{}`: {error}", quote_foreign(.name))]
pub struct SpeaksForError {
    /// Name as it was given.
    pub name: String,
    /// Rule that its tenant or its user breaks.
    pub error: IdError,
}

impl SpeaksFor {
    /// Returns the set of every owner that isn't a key of its own.
    pub const fn everybody() -> Self {
        Self(None)
    }

    /// Returns the set of these owners, each `tenant` or `tenant/user`; an illegal name is the error.
    pub fn only<'t>(names: impl IntoIterator<Item = &'t str>) -> Result<Self, SpeaksForError> {
        let prefix = |name: &str| {
            let bad = |error| SpeaksForError { name: name.to_owned(), error };
            let (tenant, user) = name.split_once('/').map_or((name, None), |(tenant, user)| (tenant, Some(user)));
            let tenant = OwnerPart::new(tenant).map_err(bad)?;
            Ok(Prefix { tenant, user: user.map(OwnerPart::new).transpose().map_err(bad)? })
        };
        names.into_iter().map(prefix).collect::<Result<_, SpeaksForError>>().map(|prefixes| Self(Some(prefixes)))
    }

    /// Whether `owner` is one of them. An owner that is a key never is: it speaks for itself.
    pub fn covers(&self, owner: &Owner) -> bool {
        let Self(prefixes) = self;
        let named = |prefix: &Prefix| {
            prefix.tenant == *owner.tenant() && prefix.user.as_ref().is_none_or(|user| user == owner.user())
        };
        owner.tenant().as_str() != TENANT && prefixes.as_ref().is_none_or(|prefixes| prefixes.iter().any(named))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_count_as_a_whole_and_a_key_speaks_for_itself() {
        let some = SpeaksFor::only(["acme", "globex/bob"]).unwrap();
        let all = SpeaksFor::everybody();
        for (owner, by_some, by_all) in [
            ("acme/ann", true, true),
            ("acme-evil/ann", false, true),
            ("globex/bob", true, true),
            ("globex/bobby", false, true),
            ("did/z6MkiTBz1ymuepAQ4HEHYSF1H8quG5GLVVQR3djdX3mDooWp", false, false),
        ] {
            let owner = owner.parse().unwrap();
            assert_eq!((some.covers(&owner), all.covers(&owner)), (by_some, by_all), "{owner}");
        }
        assert!(!SpeaksFor::only([]).unwrap().covers(&"acme/ann".parse().unwrap()));
        assert!(SpeaksFor::only(["a/b/c"]).unwrap_err().to_string().contains("`/` is not allowed"));
        assert!(SpeaksFor::only([""]).is_err());
    }
}
