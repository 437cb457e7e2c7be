//! What is known of the assets that a prompt refers to, with authority checked for each: their bytes are not read here.

use crate::domain::authority::ResourcePath;
use crate::domain::ids::AssetId;
use crate::domain::media::{Attachment, MediaType};
use crate::domain::wire::dialect::dialect;
use crate::store::StoreError;
use crate::venue::Venue;
use crate::venue::assets;
use crate::venue::operation::Caller;
use futures::future::try_join_all;

/// What is known of these assets, for a caller and for a provider, by their names.
pub(super) async fn known(
    venue: &Venue,
    caller: &Caller,
    provider: &str,
    assets: Vec<AssetId>,
) -> Result<Vec<Attachment>, StoreError> {
    let known = assets.into_iter().map(|asset| attachment(venue, caller, provider, asset));
    let mut known = try_join_all(known).await?;
    // In an order that doesn't change with what is served: the record of a turn has what changed.
    known.sort_by(|one, other| one.asset.cmp(&other.asset));
    Ok(known)
}

async fn attachment(venue: &Venue, caller: &Caller, provider: &str, asset: AssetId) -> Result<Attachment, StoreError> {
    // The same answer whether or not anything is there.
    if let Some(reason) = denial(caller, &asset) {
        return Ok(Attachment::named(asset).withhold(reason));
    }
    let heads = match assets::heads(venue, &caller.owner, std::slice::from_ref(&asset)).await {
        Err(error) if error.is_transient() => return Err(error),
        Err(error) => return Ok(Attachment::named(asset).withhold(error.to_string())),
        Ok(heads) => heads,
    };
    let Some((record, sniffed)) = heads.into_iter().flatten().next() else {
        return Ok(Attachment::named(asset).withhold("no such asset"));
    };
    let attachment = record.attachment(asset, sniffed);
    let refusal = attachment.media.and_then(|media| refusal(provider, media));
    Ok(match refusal.filter(|_| attachment.is_shown()) {
        Some(reason) => attachment.withhold(reason),
        None => attachment,
    })
}

/// Why a caller may not see an asset.
fn denial(caller: &Caller, asset: &AssetId) -> Option<String> {
    let denied = caller.authority.permits("crud/read", ResourcePath::asset(asset)).err()?;
    Some(format!("capability denied: needs {} on {}", denied.ability, denied.resource))
}

/// Why a provider is not sent this; of one that the configuration of the venue names no more is known.
fn refusal(provider: &str, media: MediaType) -> Option<String> {
    dialect(provider)?.refusal_of(media)
}
