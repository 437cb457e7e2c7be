//! The principal to whom an id belongs: the caller, and the authority of the call.
//!
//! The same id of the same caller under the same authority is the same request. From any other principal it is a
//! conflict: results made under one authority are not returned under another.

use crate::authority::Capability;
use crate::ids::sha256_hex;
use serde::{Deserialize, Serialize};
use serde_json::json;

/// A caller and its authority, to tell apart owners of ids.
///
/// It is a function of the lasting parts of a token: its subject, its holder, and its capabilities. A renewed token of
/// the same subject with the same rights is the same principal. Later revocations and grants of an owner change no
/// principal, because a redelivered message would then conflict with itself.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Principal(Option<String>);

impl Principal {
    /// Any caller where no token is needed, and the venue, whose ids are its own.
    pub const ANYBODY: Self = Self(None);

    /// Returns the bearer of a token about `subject`, handed on to `holder` if there is one. `capabilities` is `None`
    /// for all that the subject holds.
    pub fn bearer(subject: &str, holder: Option<&str>, capabilities: Option<&[Capability]>) -> Self {
        let rights = capabilities.map(|capabilities| {
            let one = |cap: &Capability| (cap.with.trim_end_matches('/').to_owned(), cap.can.clone());
            let mut rights: Vec<_> = capabilities.iter().map(one).collect();
            rights.sort();
            rights.dedup();
            rights
        });
        Self(Some(sha256_hex(json!(["principal", subject, holder, rights]).to_string().as_bytes())))
    }

    /// Returns the mark that tells it from others; `None` for [`Self::ANYBODY`].
    pub fn mark(&self) -> Option<&str> {
        self.0.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_principal_is_subject_holder_and_unordered_rights() {
        let cap = |with: &str, can: &str| Capability { with: with.into(), can: can.into() };
        let (read, write) = (cap("w/a", "crud/read"), cap("w/b", "crud/write"));
        let of = |subject, holder, caps: Option<&[Capability]>| Principal::bearer(subject, holder, caps);
        let both = [read.clone(), write.clone()];
        let first = of("t/u", None, Some(&both));
        for (again, same) in [
            (of("t/u", None, Some(&both)), true),
            (of("t/u", None, Some(&[write.clone(), cap("w/a/", "crud/read"), read.clone()])), true),
            (of("t/u", None, Some(std::slice::from_ref(&read))), false),
            (of("t/u", None, Some(&[])), false),
            (of("t/u", None, None), false),
            (of("t/v", None, Some(&both)), false),
            (of("t/u", Some("did:key:z6Mk"), Some(&both)), false),
            (Principal::ANYBODY, false),
        ] {
            assert_eq!(again == first, same, "{again:?}");
        }
        assert_eq!(Principal::default(), Principal::ANYBODY);
    }
}
