//! Metadata of the assets that a prompt refers to. Authority is checked for each; their bytes are not read here.

use crate::domain::authority::ResourcePath;
use crate::domain::ids::AssetId;
use crate::domain::media::{Attachment, MediaType};
use crate::domain::wire::dialect::find_dialect;
use crate::store::StoreError;
use crate::venue::Venue;
use crate::venue::assets;
use crate::venue::operation::Caller;
use futures::future::try_join_all;

/// Returns what is known of these assets, for a caller and a provider, ordered by name.
pub(super) async fn look_up(
    venue: &Venue,
    caller: &Caller,
    provider: &str,
    assets: Vec<AssetId>,
) -> Result<Vec<Attachment>, StoreError> {
    let known = assets.into_iter().map(|asset| attachment(venue, caller, provider, asset));
    let mut known = try_join_all(known).await?;
    // The order doesn't depend on what is served, so the record of a turn holds only what changed.
    known.sort_by(|one, other| one.asset.cmp(&other.asset));
    Ok(known)
}

async fn attachment(venue: &Venue, caller: &Caller, provider: &str, asset: AssetId) -> Result<Attachment, StoreError> {
    // The answer is the same whether or not the asset exists.
    if let Err(denied) = caller.authority.permits("crud/read", ResourcePath::asset(&asset)) {
        return Ok(Attachment::of_asset(asset).withhold(denied.missing_capability()));
    }
    let (record, sniffed) = match assets::read_head(venue, &caller.owner, &asset).await {
        Err(error) if error.is_transient() => return Err(error),
        Err(error) => return Ok(Attachment::of_asset(asset).withhold(error.to_string())),
        Ok(None) => return Ok(Attachment::of_asset(asset).withhold("no such asset")),
        Ok(Some(head)) => head,
    };
    let attachment = record.attachment(asset, sniffed);
    let refusal = attachment.media.and_then(|media| refusal(provider, media));
    Ok(match refusal.filter(|_| attachment.is_shown()) {
        Some(reason) => attachment.withhold(reason),
        None => attachment,
    })
}

/// Returns why a provider is not sent this media type; `None` for a provider that only the venue's configuration names.
fn refusal(provider: &str, media: MediaType) -> Option<String> {
    find_dialect(provider)?.media_refusal(media)
}
