//! Assets as callers see them: store, read, list.

use crate::domain::asset::{Asset, AssetRecord, Draft};
use crate::domain::ids::{AssetId, Owner};
use crate::domain::limits::LIST_BYTES;
use crate::domain::media::{Sniffed, sniff};
use crate::domain::quota::QuotaUsage;
use crate::store::{DocWrite, OutsideWrite, StoreError, Window, decode, keys, steps};
use crate::venue::Venue;
use crate::venue::jobs::ListPage;

/// Bytes of content per document: a store writes one in milliseconds, and others get between.
const CHUNK: usize = 256 * 1024;

/// Stores an asset and says whether it was there already; then it stays as it was stored first.
///
/// Content goes first, in chunks, and the record last: an asset that is listed is whole. A crash
/// between leaves chunks that the next try writes again, byte for byte the same.
pub async fn put(venue: &Venue, owner: &Owner, draft: &Draft) -> Result<(AssetId, AssetRecord, bool), StoreError> {
    let id = AssetId::of(&draft.bytes);
    if let Some(known) = get(venue, owner, &id).await? {
        return Ok((id, known, true));
    }
    let (chunks, bytes) = (draft.bytes.len().div_ceil(CHUNK), draft.bytes.len());
    venue
        .room(owner, QuotaUsage { documents: chunks as u64 + 1, bytes: bytes as u64, ..QuotaUsage::default() })
        .await?;
    for (number, chunk) in draft.bytes.chunks(CHUNK).enumerate() {
        let write = DocWrite::put(keys::asset_chunk(&id, number), chunk.to_vec());
        venue.store.write(venue.now(), owner, &[write]).await?;
    }
    let write = DocWrite::json(keys::asset(&id), &draft.record).at(0);
    if venue.store.write(venue.now(), owner, &[write]).await? == OutsideWrite::Done {
        return Ok((id, draft.record.clone(), false));
    }
    // Somebody stored the same content at the same time.
    let known = get(venue, owner, &id).await?;
    Ok((id, known.unwrap_or_else(|| draft.record.clone()), true))
}

/// What is said about an asset.
pub async fn get(venue: &Venue, owner: &Owner, id: &AssetId) -> Result<Option<AssetRecord>, StoreError> {
    venue.store.get(owner, &keys::asset(id)).await
}

/// The record of an asset, and what its content is by its first bytes; `None` when there is no such asset.
pub async fn head(
    venue: &Venue,
    owner: &Owner,
    id: &AssetId,
) -> Result<Option<(AssetRecord, Option<Sniffed>)>, StoreError> {
    let Some(record) = get(venue, owner, id).await? else { return Ok(None) };
    let sniffed = first_bytes(venue, owner, id, record.size).await?;
    Ok(Some((record, sniffed)))
}

/// What a content is by its first bytes: remembered, because it never changes.
async fn first_bytes(
    venue: &Venue,
    owner: &Owner,
    asset: &AssetId,
    size: usize,
) -> Result<Option<Sniffed>, StoreError> {
    if let Some(known) = venue.prompts.sniffed.get(asset) {
        return Ok(known);
    }
    let docs = venue.store.read(owner, &[keys::asset_chunk(asset, 0)]).await?;
    let bytes = docs.into_iter().next().and_then(|doc| doc.value).unwrap_or_default();
    let sniffed = sniff(&bytes, bytes.len() >= size);
    if bytes.len() == size.min(CHUNK) {
        venue.prompts.sniffed.insert(asset.clone(), sniffed);
    }
    Ok(sniffed)
}

/// An asset with its content, which is checked against its name.
pub async fn content(venue: &Venue, owner: &Owner, id: &AssetId) -> Result<Option<Asset>, StoreError> {
    let Some(record) = get(venue, owner, id).await? else { return Ok(None) };
    let keys: Vec<_> = (0..record.size.div_ceil(CHUNK)).map(|number| [keys::asset_chunk(id, number)]).collect();
    let mut bytes = Vec::with_capacity(record.size);
    let (chunks, _) = steps::read(&*venue.store, owner, &keys, usize::MAX).await?;
    for doc in chunks.into_iter().flatten() {
        bytes.extend_from_slice(&doc.value.unwrap_or_default());
    }
    if AssetId::of(&bytes) != *id {
        let reason = format!("the content of `{}` is not what its name says", keys::asset(id));
        return Err(StoreError::Corrupt { store: "documents".into(), reason });
    }
    Ok(Some(Asset { id: id.clone(), record, bytes }))
}

/// A page of an owner's assets by name: no more than what is said of them weighs [`LIST_BYTES`] together.
pub async fn list(
    venue: &Venue,
    owner: &Owner,
    offset: usize,
    limit: usize,
) -> Result<ListPage<(AssetId, AssetRecord)>, StoreError> {
    let window = Window { reverse: false, skip: offset, limit, values: false };
    let page = venue.store.page(owner, keys::ASSETS, window).await?;
    let places: Vec<_> = page.docs.into_iter().map(|(key, _)| [key]).collect();
    let (found, _) = steps::read(&*venue.store, owner, &places, LIST_BYTES).await?;
    let next = offset + found.len();
    let mut items = Vec::with_capacity(found.len());
    for ([key], mut doc) in places.iter().zip(found) {
        let id = AssetId::new(key.strip_prefix(keys::ASSETS).unwrap_or_default());
        if let (Ok(id), Some(bytes)) = (id, doc.pop().and_then(|doc| doc.value)) {
            items.push((id, decode(key, &bytes)?));
        }
    }
    Ok(ListPage { items, total: page.total, next })
}
