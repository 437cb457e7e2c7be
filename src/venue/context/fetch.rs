//! Fetches the pieces of a context from their sources, with authority checked per read. A piece that can't be read is
//! an item that says why; only a store without an answer stops the turn.

use crate::domain::agent::entry::{EntrySource, job_part};
use crate::domain::authority::capability::overlaps;
use crate::domain::authority::{HIDDEN, ResourcePath};
use crate::domain::context::entry::{ContextRead, ContextReadError};
use crate::domain::context::fill;
use crate::domain::context::item::{Absence, ItemContent, PromptItem, Section, limit_items};
use crate::domain::decode;
use crate::domain::ids::{AssetId, JobId};
use crate::domain::lattice::address::localise;
use crate::domain::lattice::{Namespace, Path};
use crate::domain::limits::{CONTEXT_OPERATION_TIME, ENTRY_BYTES};
use crate::domain::media::{MediaType, references};
use crate::domain::origin::{Origin, content_hash};
use crate::domain::values::Resolver;
use crate::store::StoreError;
use crate::venue::Venue;
use crate::venue::assets;
use crate::venue::jobs;
use crate::venue::operation::pin::{PinReader, check_arguments};
use crate::venue::operation::{Caller, CatalogView, Effect, Invocation, NO_SECTIONS, OpError, Reads, Site, dispatch};
use crate::venue::tree::value_at;
use crate::venue::workspace::Workspace;
use futures::future::try_join_all;
use serde_json::Value;

/// The tree that is read, and the caller whose authority counts.
pub(super) struct ContextReader<'a> {
    pub(super) venue: &'a Venue,
    pub(super) catalog: &'a CatalogView,
    pub(super) caller: &'a Caller,
    pub(super) workspace: &'a Workspace,
    pub(super) resolver: &'a Resolver,
    /// Whether the agent's model may not load values that the runtime fills in for it.
    pub(super) hides_values: bool,
}

/// A value, or why there is none.
type FetchResult = Result<Value, (Absence, String)>;

impl ContextReader<'_> {
    /// Fetches all pieces at once and returns their items in order, bounded to what a turn takes.
    pub(super) async fn fetch_items(&self, reads: Vec<ContextRead>) -> Result<Vec<PromptItem>, StoreError> {
        try_join_all(reads.into_iter().map(|read| self.fetch_item(read))).await.map(limit_items)
    }

    async fn fetch_item(&self, read: ContextRead) -> Result<PromptItem, StoreError> {
        let ContextRead { section, key, label, source, asked, priority, required, mut tags } = read;
        let name = source.as_ref().ok().and_then(EntrySource::name);
        let (mut unresolved, reads) = (Vec::new(), Reads::default());
        let is_operation = matches!(source, Ok(EntrySource::Operation { .. }));
        tags.needs = source.iter().filter_map(EntrySource::resource).map(|on| ("crud/read".to_owned(), on)).collect();
        let picture = self.find_picture(&source).await?;
        let mut attachments: Vec<_> = picture.iter().map(|(asset, _)| asset.clone()).collect();
        let found = match (picture, source) {
            (Some((_, text)), _) => Ok(text.into()),
            (None, Err(error)) => Err((Absence::Failed, error.to_string())),
            (None, Ok(EntrySource::Text(text))) => Ok(Value::String(text)),
            (None, Ok(EntrySource::Path(path))) if let Some(reason) = self.hidden_reason(&path, section) => {
                Err((Absence::Denied, reason))
            }
            (None, Ok(EntrySource::Path(path))) => self.fetch_path(&path, &reads).await?,
            (None, Ok(EntrySource::Asset(asset))) => self.fetch_asset(&asset).await?,
            (None, Ok(EntrySource::Job { job, within })) => self.fetch_job(&job, &within).await?,
            (None, Ok(EntrySource::Operation { path, input, pinned })) => {
                let (input, report) = fill::fill_input(input, self.resolver);
                unresolved = report.missed_keys();
                let misfit = pinned.and_then(|pin| check_arguments(&pin.path, &pin.schema, &input).err());
                if let Some(misfit) = misfit {
                    operation_failure(misfit)?
                } else if report.cut.is_empty() {
                    self.fetch_operation(&path, input, &mut tags.needs, &reads).await?
                } else {
                    // With half of a value the operation would do something else than intended.
                    Err((Absence::Failed, format!("a value is too long for its input: {}", report.cut.join(", "))))
                }
            }
        };
        let seen = reads.found_reads();
        let own = seen.iter().find(|seen| Some(&seen.path) == name.as_ref());
        let (version, hash) = own.map(|seen| (seen.version, seen.hash.clone())).unwrap_or_default();
        let mut origin = Origin { version, hash, reads: if is_operation { seen } else { Vec::new() } };
        let (content, allowed) = match found {
            Ok(value) => {
                let value = decode::limit_depth(value);
                attachments.extend(references(&value).assets);
                if name.is_some() {
                    origin.hash.get_or_insert_with(|| content_hash(&value));
                }
                let allowed = if is_operation { None } else { self.justification(&tags.needs) };
                (ItemContent::from_value(value, asked.unwrap_or(ENTRY_BYTES)), allowed)
            }
            Err((why, reason)) => (ItemContent::Absent(why, reason), None),
        };
        let source = name;
        Ok(PromptItem {
            section,
            key,
            label,
            source,
            allowed,
            asked,
            priority,
            required,
            unresolved,
            tags,
            origin,
            content,
            attachments,
        })
    }

    /// Returns the capabilities that allow these needs; `None` if there are no needs, or one isn't allowed.
    fn justification(&self, needs: &[(String, ResourcePath)]) -> Option<String> {
        let authority = &self.caller.authority;
        let grounds: Option<Vec<_>> =
            needs.iter().map(|(ability, resource)| authority.justification(ability, resource)).collect();
        grounds.filter(|grounds| !grounds.is_empty()).map(|grounds| grounds.join(", "))
    }

    /// Returns why a path to values that only the runtime fills in is hidden. A model may not load its own agent's; and
    /// none of an agent that asks.
    fn hidden_reason(&self, path: &Path, section: Section) -> Option<String> {
        if !overlaps(ResourcePath::from(path).as_str(), HIDDEN) {
            return None;
        }
        if self.caller.envelope.hides_values {
            return Some("it is filled in for the agent that asks, and not shown to it nor for it".to_owned());
        }
        let is_own = section == Section::Loads && self.hides_values && !self.caller.authority.names_place(HIDDEN);
        is_own.then(|| format!("it is filled in for this agent: needs a capability on {HIDDEN}"))
    }

    /// Returns the denial of a read, which is the same whether or not anything is there.
    fn denial(&self, resource: &ResourcePath) -> Option<(Absence, String)> {
        let denied = self.caller.authority.permits("crud/read", resource).err()?;
        Some((Absence::Denied, denied.missing_capability()))
    }

    async fn fetch_path(&self, path: &Path, reads: &Reads) -> Result<FetchResult, StoreError> {
        if let Some(denied) = self.denial(&path.into()) {
            return Ok(Err(denied));
        }
        match value_at(&self.invocation("v/ops/lattice/read", reads), path).await {
            Ok(Some(value)) => Ok(Ok(value)),
            Ok(None) => Ok(Err((Absence::Missing, "nothing is there".into()))),
            Err(error) => operation_failure(error),
        }
    }

    /// Returns the picture or document that a source names, and the text above it; `None` for a source that names none,
    /// or one that may not be read.
    async fn find_picture(
        &self,
        source: &Result<EntrySource, ContextReadError>,
    ) -> Result<Option<(AssetId, String)>, StoreError> {
        let asset = match source {
            Ok(EntrySource::Asset(asset)) => asset.clone(),
            Ok(EntrySource::Path(path)) => match asset_at(path) {
                Some(asset) => asset,
                None => return Ok(None),
            },
            Err(_) | Ok(EntrySource::Text(_) | EntrySource::Job { .. } | EntrySource::Operation { .. }) => {
                return Ok(None);
            }
        };
        if self.denial(&ResourcePath::asset(&asset)).is_some() {
            return Ok(None);
        }
        let head = match assets::read_head(self.venue, &self.caller.owner, &asset).await {
            Err(error) if error.is_transient() => return Err(error),
            head => head.unwrap_or_default(),
        };
        let Some((record, Some(sniffed))) = head else { return Ok(None) };
        if sniffed.media == MediaType::Text {
            return Ok(None);
        }
        let text = record.description.or(record.name).unwrap_or_else(|| format!("a/{asset}"));
        Ok(Some((asset, text)))
    }

    async fn fetch_asset(&self, asset: &AssetId) -> Result<FetchResult, StoreError> {
        if let Some(denied) = self.denial(&ResourcePath::asset(asset)) {
            return Ok(Err(denied));
        }
        let found = match assets::read_content(self.venue, &self.caller.owner, asset).await {
            Ok(Some(found)) => found,
            Ok(None) => return Ok(Err((Absence::Missing, "no such asset".into()))),
            Err(error) => return store_failure(error),
        };
        Ok(match (found.text(), found.record.description.as_deref()) {
            (Ok(text), _) | (Err(_), Some(text)) => Ok(text.into()),
            (Err(error), None) => {
                let (kind, bytes) = (&found.record.content_type, found.bytes.len());
                let reason = format!("{error} ({kind}, {bytes} bytes), and it has no description");
                Err((Absence::Failed, reason))
            }
        })
    }

    async fn fetch_job(&self, job: &JobId, within: &[String]) -> Result<FetchResult, StoreError> {
        if let Some(denied) = self.denial(&ResourcePath::job(job)) {
            return Ok(Err(denied));
        }
        let found = match jobs::get(self.venue, &self.caller.owner, job).await {
            Ok(Some(found)) => found,
            Ok(None) => return Ok(Err((Absence::Missing, "no such job".into()))),
            Err(error) => return store_failure(error),
        };
        let Some(result) = found.result else {
            return Ok(Err((Absence::Missing, format!("the job is {}", found.status.as_str()))));
        };
        Ok(match (result.output, result.error) {
            (Some(output), _) => match job_part(&output, within) {
                Some(value) => Ok(value.clone()),
                None => Err((Absence::Missing, "nothing is there in the job's output".into())),
            },
            (None, Some(error)) => Err((Absence::Failed, format!("the job ended {}: {error}", result.status.as_str()))),
            (None, None) => Err((Absence::Missing, "the job has no output".into())),
        })
    }

    /// Runs an operation, and adds to `needs` what its call needs.
    async fn fetch_operation(
        &self,
        path: &str,
        mut input: Value,
        needs: &mut Vec<(String, ResourcePath)>,
        reads: &Reads,
    ) -> Result<FetchResult, StoreError> {
        if self.catalog.resolve(path).is_none() {
            return Ok(Err((Absence::Failed, "no such operation in the catalog".into())));
        }
        let (owner, authority) = (&self.caller.owner, &self.caller.authority);
        let pins = PinReader { venue: self.venue, catalog: self.catalog, owner, authority, workspace: self.workspace };
        match pins.resolve_inner(path, &mut input).await {
            Ok(_) => {}
            Err(OpError::Store(error)) if error.is_transient() => return Err(error),
            Err(OpError::Denied(reason)) => return Ok(Err((Absence::Denied, reason))),
            Err(error) => return operation_failure(error),
        }
        if let Err(foreign) = localise(owner, &mut input) {
            return Ok(Err((Absence::Denied, foreign.to_string())));
        }
        let settled = match dispatch::resolve_call(self.catalog, path, input, false) {
            Ok(settled) => settled,
            Err(error) => return operation_failure(error),
        };
        let needed = settled.needs().into_iter().flatten();
        needs.extend(needed.map(|need| (need.ability.to_owned(), need.resource)));
        if settled.found.spec.effect != Effect::Read {
            let reason = "only operations that read can be context: it would run again in every turn";
            return Ok(Err((Absence::Failed, reason.into())));
        }
        let call = self.invocation(path, reads);
        match tokio::time::timeout(CONTEXT_OPERATION_TIME, dispatch::invoke_resolved(&call, settled)).await {
            Ok(Ok(output)) => Ok(Ok(output.value)),
            Ok(Err(OpError::Denied(reason))) => Ok(Err((Absence::Denied, reason))),
            Ok(Err(error)) => operation_failure(error),
            Err(_) => {
                let reason = format!("no answer within {} s", CONTEXT_OPERATION_TIME.as_secs());
                Ok(Err((Absence::Failed, reason)))
            }
        }
    }

    fn invocation<'a>(&'a self, named: &'a str, reads: &'a Reads) -> Invocation<'a> {
        Invocation {
            named,
            venue: self.venue,
            catalog: self.catalog,
            caller: self.caller,
            workspace: self.workspace,
            scoped: &NO_SECTIONS,
            site: Site::Api { key: None, job: None },
            reads,
            fills_prompt: true,
        }
    }
}

/// Returns the asset of `a/HASH`.
fn asset_at(path: &Path) -> Option<AssetId> {
    match path.segments() {
        [id] if path.namespace() == Namespace::Assets => AssetId::new(id).ok(),
        _ => None,
    }
}

/// Makes a failed item of a damaged document; a transient error of the store stops the turn.
fn store_failure(error: StoreError) -> Result<FetchResult, StoreError> {
    if error.is_transient() { Err(error) } else { Ok(Err((Absence::Failed, error.to_string()))) }
}

fn operation_failure(error: OpError) -> Result<FetchResult, StoreError> {
    match error {
        OpError::Store(error) => store_failure(error),
        error => Ok(Err((Absence::Failed, error.to_string()))),
    }
}
