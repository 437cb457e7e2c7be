//! Purge: every provider deletes what it stores under a namespace. A repetition finds nothing and changes nothing.

use super::{PurgeArea, ResourceProviders, scratchpad};
use crate::domain::authority::capability::covers;
use crate::domain::ids::{Owner, decode_token};
use crate::domain::resource::files::{self, KIND as FILES};
use crate::domain::resource::kind_prefix;
use crate::domain::resource::scratchpad::KIND as SCRATCHPAD;
use crate::store::{DocWrite, Store, StoreError};
use crate::venue::Venue;
use crate::venue::failure::OpError;
use std::collections::BTreeMap;

/// Result of a purge.
#[derive(Debug, Default)]
pub struct PurgeCounts {
    /// Numbers of deleted entries, files, notes and things of other servers, by kind.
    pub counts: BTreeMap<String, usize>,
    /// Kinds whose servers can't be asked to delete.
    pub not_asked: Vec<String>,
}

/// Deletes what is under a namespace, with `recursive` also what is below it, in this store first. The error of another
/// server says which server it is; a repetition continues from there.
pub async fn purge(venue: &Venue, owner: &Owner, namespace: &str, recursive: bool) -> Result<PurgeCounts, OpError> {
    let providers = &venue.catalog.resources;
    let of_providers = providers.list_providers().map(|registered| {
        let provider = &registered.provider;
        (provider.kind(), provider.areas(namespace, recursive))
    });
    let mut purged = PurgeCounts::default();
    for (kind, areas) in of_providers.chain([(SCRATCHPAD, scratchpad::areas(namespace, recursive))]) {
        let mut count = 0;
        for area in areas {
            count += delete_area(venue, owner, &area).await?;
        }
        purged.counts.insert(kind.to_owned(), count);
    }
    for registered in providers.list_providers() {
        let kind = registered.provider.kind();
        if let Some(count) = registered.provider.purge(owner, namespace, recursive).await? {
            *purged.counts.entry(kind.to_owned()).or_default() += count;
        } else {
            purged.counts.remove(kind);
            purged.not_asked.push(kind.to_owned());
        }
    }
    Ok(purged)
}

async fn delete_area(venue: &Venue, owner: &Owner, area: &PurgeArea) -> Result<usize, StoreError> {
    let mut count = 0;
    let mut documents = venue.store.docs(owner, area.prefix.as_str());
    while let Some(page) = documents.keys().await? {
        let writes: Vec<_> = page.into_iter().map(DocWrite::delete).collect();
        venue.store.write(venue.now(), owner, &writes).await?;
        count += if area.counts { writes.len() } else { 0 };
    }
    Ok(count)
}

/// Returns the number of stored things by namespace and kind; for files, the namespace is the folder.
pub async fn count_stored(
    store: &dyn Store,
    owner: &Owner,
    under: Option<&str>,
) -> Result<BTreeMap<(String, String), usize>, StoreError> {
    let mut kept = BTreeMap::new();
    // What other servers store isn't known here.
    let own = ResourceProviders::default();
    for kind in own.list_providers().map(|registered| registered.provider.kind()).chain([SCRATCHPAD]) {
        let prefix = if kind == FILES { files::prefix_below("", false) } else { kind_prefix(kind) };
        let mut documents = store.docs(owner, prefix.as_str());
        while let Some(page) = documents.keys().await? {
            for key in page {
                let token = key[prefix.len()..].split('/').next().unwrap_or_default();
                let Some(mut namespace) = decode_token(token) else { continue };
                if kind == FILES {
                    namespace.truncate(namespace.rfind('/').unwrap_or(namespace.len()));
                }
                if under.is_none_or(|under| covers(under, &namespace)) {
                    *kept.entry((namespace, kind.to_owned())).or_default() += 1;
                }
            }
        }
    }
    Ok(kept)
}
