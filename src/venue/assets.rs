//! Assets as callers see them: store, read, list.

use crate::domain::asset::{Asset, AssetRecord, Draft};
use crate::domain::ids::{AssetId, Owner};
use crate::domain::limits::LIST_BYTES;
use crate::domain::media::{SniffedContent, sniff};
use crate::domain::quota::QuotaUsage;
use crate::store::{DocKey, DocWrite, StoreError, Window, WriteOutcome, decode_listed, keys, steps};
use crate::venue::Venue;
use crate::venue::jobs::ListPage;

/// Bytes of content per document: a store writes one in milliseconds, so that other writes get in between.
const CHUNK: usize = 256 * 1024;

/// Times that content is stored anew if others delete or store it at the same time.
const TRIES: usize = 8;

/// Stores an asset. Returns its id, its record, and whether it existed; then the stored record stays as it is.
///
/// Chunks of content are written first and the record last, by a write that checks the versions of the chunks: an asset
/// that is listed is complete. Each write counts against the quota by itself, so that concurrent uploads share what is
/// left of it; an upload that exceeds it deletes its chunks. After a crash chunks stay, and the next try uses them.
pub async fn put(venue: &Venue, owner: &Owner, draft: &Draft) -> Result<(AssetId, AssetRecord, bool), StoreError> {
    let id = AssetId::of_content(&draft.bytes);
    let mut upload = Upload { venue, owner, id: id.clone(), found: Vec::new(), written: Vec::new() };
    for _ in 0..TRIES {
        if let Some(known) = get(venue, owner, &id).await? {
            return Ok((id, known, true));
        }
        match upload.run(draft).await {
            Ok(WriteOutcome::Done) => return Ok((id, draft.record.clone(), false)),
            // Others store the same content, and may have finished.
            Ok(WriteOutcome::Conflict(_)) => upload.found.clear(),
            Err(error @ StoreError::Over(_)) => {
                upload.delete_chunks().await?;
                return match get(venue, owner, &id).await? {
                    Some(known) => Ok((id, known, true)),
                    None => Err(error),
                };
            }
            Err(error) => return Err(error),
        }
    }
    Err(StoreError::Contended { what: format!("asset `{id}`") })
}

/// Content that is being stored.
struct Upload<'a> {
    venue: &'a Venue,
    owner: &'a Owner,
    id: AssetId,
    /// Checks of the versions of the chunks that are stored.
    found: Vec<DocWrite>,
    /// Deletions of the chunks that this upload has written, each at the version it wrote.
    written: Vec<DocWrite>,
}

impl Upload<'_> {
    /// Writes all chunks and then the record.
    async fn run(&mut self, draft: &Draft) -> Result<WriteOutcome, StoreError> {
        let (chunks, bytes) = (draft.bytes.len().div_ceil(CHUNK) as u64, draft.bytes.len() as u64);
        self.venue.check_room(self.owner, QuotaUsage { documents: chunks + 1, bytes, ..QuotaUsage::default() }).await?;
        for (number, chunk) in draft.bytes.chunks(CHUNK).enumerate() {
            self.put_chunk(keys::asset_chunk(&self.id, number), chunk).await?;
        }
        let record = DocWrite::json(keys::asset(&self.id), &draft.record).at_version(0);
        let writes: Vec<_> = self.found.iter().cloned().chain([record]).collect();
        self.venue.write_within_quota(self.owner, &writes).await
    }

    /// Writes a chunk unless the store has it.
    async fn put_chunk(&mut self, key: DocKey, chunk: &[u8]) -> Result<(), StoreError> {
        let mut version = 0;
        for _ in 0..TRIES {
            let write = DocWrite::put(key.clone(), chunk.to_vec()).at_version(version);
            if self.venue.write_within_quota(self.owner, &[write]).await? == WriteOutcome::Done {
                self.found.push(DocWrite::check(key.clone(), version + 1));
                self.written.push(DocWrite::delete(key).at_version(version + 1));
                return Ok(());
            }
            let doc = self.venue.store.doc(self.owner, &key).await?;
            if doc.value.is_some_and(|value| value == chunk) {
                self.found.push(DocWrite::check(key, doc.version));
                return Ok(());
            }
            version = doc.version;
        }
        Err(StoreError::Contended { what: format!("asset `{}`", self.id) })
    }

    /// Deletes the chunks of this upload, unless another one has made an asset of them or rewritten them.
    async fn delete_chunks(self) -> Result<(), StoreError> {
        if !self.written.is_empty() {
            let no_record = DocWrite::check(keys::asset(&self.id), 0);
            let writes: Vec<_> = self.written.into_iter().chain([no_record]).collect();
            self.venue.store.write(self.venue.now(), self.owner, &writes).await?;
        }
        Ok(())
    }
}

/// Returns the record of an asset.
pub async fn get(venue: &Venue, owner: &Owner, id: &AssetId) -> Result<Option<AssetRecord>, StoreError> {
    venue.store.get(owner, &keys::asset(id)).await
}

/// Returns the record of an asset and the media type that its first bytes show; `None` if there is no such asset.
pub async fn read_head(
    venue: &Venue,
    owner: &Owner,
    id: &AssetId,
) -> Result<Option<(AssetRecord, Option<SniffedContent>)>, StoreError> {
    let Some(record) = get(venue, owner, id).await? else { return Ok(None) };
    let sniffed = first_bytes(venue, owner, id, record.size).await?;
    Ok(Some((record, sniffed)))
}

/// Returns the media type that the first bytes of an asset show. It is cached, because content never changes.
async fn first_bytes(
    venue: &Venue,
    owner: &Owner,
    asset: &AssetId,
    size: usize,
) -> Result<Option<SniffedContent>, StoreError> {
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

/// Returns an asset with its content, which is checked against its hash.
pub async fn read_content(venue: &Venue, owner: &Owner, id: &AssetId) -> Result<Option<Asset>, StoreError> {
    let Some(record) = get(venue, owner, id).await? else { return Ok(None) };
    let keys: Vec<_> = (0..record.size.div_ceil(CHUNK)).map(|number| [keys::asset_chunk(id, number)]).collect();
    let mut bytes = Vec::with_capacity(record.size);
    let (chunks, _) = steps::read(&*venue.store, owner, &keys, usize::MAX).await?;
    for doc in chunks.into_iter().flatten() {
        bytes.extend_from_slice(&doc.value.unwrap_or_default());
    }
    if AssetId::of_content(&bytes) != *id {
        let reason = format!("the content of `{}` is not what its name says", keys::asset(id));
        return Err(StoreError::Corrupt { store: "documents".into(), record: None, reason });
    }
    Ok(Some(Asset { id: id.clone(), record, bytes }))
}

/// Lists a page of an owner's assets by name. The page ends where the records exceed [`LIST_BYTES`].
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
            items.extend(decode_listed(owner, key, &bytes).map(|record| (id, record)));
        }
    }
    Ok(ListPage { items, total: page.total, next })
}
