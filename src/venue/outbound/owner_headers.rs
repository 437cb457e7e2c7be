//! Headers that a configuration names for a place, with the secrets of an owner, which go only where they are bound to.

use crate::domain::chat::{HeaderText, ModelHeaders};
use crate::domain::ids::Owner;
use crate::domain::secret::{Destination, Mask};
use crate::store::Store;
use crate::venue::failure::OpError;
use crate::venue::secrets::Vault;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

/// Headers of requests for an owner, and what is masked in the answers.
#[derive(Debug, Clone, Default)]
pub(crate) struct ResolvedHeaders {
    /// Headers for the place alone.
    pub(crate) headers: HeaderMap,
    /// Secrets among them.
    pub(crate) mask: Mask,
}

/// A place to which headers go, with its name in errors.
pub(crate) struct HeaderPlace<'a> {
    /// Where secrets may be bound to.
    pub(crate) to: Destination,
    /// Kind of the place, such as `MCP server`.
    pub(crate) kind: &'static str,
    /// Name of the place.
    pub(crate) name: &'a str,
}

impl ResolvedHeaders {
    /// Adds the headers of a configuration to the venue's own.
    ///
    /// # Errors
    /// A secret isn't stored, or isn't bound to the place; a text can't be a header.
    pub(crate) async fn add_named(
        mut self,
        named: &ModelHeaders,
        place: &HeaderPlace<'_>,
        store: &dyn Store,
        vault: &Vault,
        owner: &Owner,
    ) -> Result<Self, OpError> {
        let HeaderPlace { to, kind, name: place } = place;
        for (name, text) in named {
            let (plain, is_secret) = match text {
                HeaderText::Plain(text) => (text.clone(), false),
                HeaderText::Secret { name, prefix } => {
                    let secret = vault.open(store, owner, name).await?;
                    if !secret.hosts.permits(to) {
                        return Err(OpError::Denied(format!(
                            "secret `{name}` may not go to `{}`, the place of the {kind} `{place}`: bind it to that host \
                             (`trellis secret set`)",
                            to.origin(),
                        )));
                    }
                    self.mask.add(&secret.name, &secret.value);
                    (format!("{prefix}{}", secret.value.reveal()), true)
                }
            };
            let wrong = || OpError::Invalid(format!("header `{name}` of the {kind} `{place}`"));
            let legal = HeaderName::from_bytes(name.as_bytes()).map_err(|_| wrong())?;
            let mut value = HeaderValue::from_str(&plain).map_err(|_| wrong())?;
            value.set_sensitive(is_secret);
            self.headers.insert(legal, value);
        }
        Ok(self)
    }
}
