//! Records of the venue that it shows as part of the tree: agents, jobs, assets, the catalogue.

use super::{agent, shared};
use crate::domain::asset::{Asset, AssetRecord};
use crate::domain::ids::AssetId;
use crate::domain::ids::{AgentId, JobId};
use crate::domain::lattice::value::{get as navigate, take};
use crate::domain::lattice::{Namespace, Path};
use crate::domain::limits::LIST_PAGE;
use crate::domain::reader::{HIDDEN_KEY, is_content_key};
use crate::venue::agents;
use crate::venue::agents::templates::TEMPLATES;
use crate::venue::assets;
use crate::venue::jobs;
use crate::venue::operation::{Invocation, OpError, RegisteredOperation};
use crate::venue::secrets;
use crate::view::asset::AssetView;
use crate::view::catalog::{OperationCallView, OperationNodeView};
use crate::view::job::JobView;
use crate::view::to_json;
use crate::view::tree::{AgentNodeView, JobNodeView, VenueAgentsView, VenueInfoView, VenueNodeView};
use serde_json::{Map, Value};

/// Assets shown under `a/`.
const ASSETS: usize = 1_000;
/// Jobs shown under `j/`.
const JOBS: usize = 1_000;

/// Returns the value at a path of a namespace that agents can't write.
pub async fn get(call: &Invocation<'_>, path: &Path) -> Result<Option<Value>, OpError> {
    let owner = &call.caller.owner;
    let (first, rest) = match path.segments().split_first() {
        Some((first, rest)) => (Some(first.as_str()), rest),
        None => (None, [].as_slice()),
    };
    match (path.namespace(), first) {
        (Namespace::Agents, None) => {
            let agents = agents::list(call.venue, owner, None, LIST_PAGE).await?.into_iter();
            let nodes =
                agents.map(|agent| (agent.id.to_string(), to_json(&AgentNodeView { description: agent.description })));
            Ok(Some(nodes.collect()))
        }
        (Namespace::Agents, Some(name)) => match AgentId::new(name) {
            Err(_) => Ok(None),
            Ok(id) => agent::get(call, &id, rest).await,
        },
        (Namespace::Jobs, None) => {
            let listed = jobs::list_ids(call.venue, owner, 0, JOBS).await?;
            let jobs = jobs::statuses(call.venue, owner, &listed.items).await?;
            let nodes = jobs.into_iter().map(|(id, status)| (id.to_string(), to_json(&JobNodeView { status })));
            Ok(Some(nodes.collect()))
        }
        (Namespace::Jobs, Some(id)) => match JobId::new(id) {
            Err(_) => Ok(None),
            Ok(id) => {
                let job = jobs::read_for_people(call.venue, owner, &id).await?;
                let record = job.map(|job| to_json(&JobView::for_reader(&job, &call.caller.reader())));
                Ok(record.and_then(|value| {
                    let hidden =
                        || value.get(HIDDEN_KEY).filter(|_| rest.first().is_some_and(|key| is_content_key(key)));
                    navigate(&value, rest).or_else(hidden).cloned()
                }))
            }
        },
        (Namespace::Venue, Some(shared::CONTEXT)) => shared::get(call, rest).await,
        (Namespace::Venue, None) => {
            let mut venue = venue_node(call);
            // These values need a capability of their own.
            if shared::may_read(call).is_ok() {
                venue.context = shared::get(call, &[]).await?;
            }
            Ok(Some(to_json(&venue)))
        }
        (Namespace::Venue, Some("ops")) => Ok(take(operation_nodes(call).into(), rest)),
        (Namespace::Venue, Some(_)) => Ok(take(to_json(&venue_node(call)), path.segments())),
        (Namespace::Assets, _) => asset_value(call, path.segments()).await,
        (Namespace::Secrets, None) => {
            let names = secrets::list_names(&*call.venue.store, owner).await?;
            Ok(Some(names.into_iter().map(|name| (name.to_string(), Value::Null)).collect()))
        }
        // The answer is the same whether or not there is one.
        (Namespace::Secrets, Some(name)) => Err(OpError::Denied(format!(
            "`s/{name}` can't be read: a secret's value is shown to nobody; operations take it by reference, as \
             {{\"$secret\": \"s/NAME\"}}"
        ))),
        (Namespace::Workspace | Namespace::Pins | Namespace::Notes | Namespace::Session | Namespace::Job, _) => {
            Ok(None)
        }
    }
}

/// Returns `v/`: the catalogue by group, templates of agents, and facts of the venue.
fn venue_node(call: &Invocation<'_>) -> VenueNodeView {
    let info = VenueInfoView { name: call.venue.name.clone(), version: env!("CARGO_PKG_VERSION").to_owned() };
    let agents = VenueAgentsView { templates: TEMPLATES.clone() };
    VenueNodeView { ops: operation_nodes(call), agents, info, context: None }
}

/// Returns `v/ops/`: the operations by group and name, aliases included.
fn operation_nodes(call: &Invocation<'_>) -> Map<String, Value> {
    let mut ops = Map::new();
    let catalog = call.catalog;
    let aliases = catalog.aliases().filter_map(|(alias, _)| Some((alias, catalog.resolve(alias)?)));
    for (path, found) in catalog.operations().map(|found| (&*found.spec.path, found)).chain(aliases) {
        let mut names = path.trim_start_matches("v/ops/").split('/');
        if let (Some(group), Some(name)) = (names.next(), names.next()) {
            let group = ops.entry(group).or_insert_with(|| Value::Object(Map::new()));
            group[name] = to_json(&describe(path, found));
        }
    }
    ops
}

/// Returns an operation's metadata, as `v/ops/…` and `GET adapters/{name}/operations` show it.
pub fn describe(path: &str, found: &RegisteredOperation) -> OperationNodeView {
    let adapter = found.spec.path.trim_start_matches("v/ops/").replace('/', ":");
    OperationNodeView {
        name: path.to_owned(),
        description: found.spec.description.clone(),
        operation: OperationCallView { adapter, input: found.spec.input.clone() },
    }
}

/// Returns the value at `a/<hash>` (the record), `a/<hash>/content` (the text, or the value of JSON), and below.
async fn asset_value(call: &Invocation<'_>, segments: &[String]) -> Result<Option<Value>, OpError> {
    let owner = &call.caller.owner;
    let Some((name, rest)) = segments.split_first() else {
        let found = assets::list(call.venue, owner, 0, ASSETS).await?.items;
        let node = |(id, record): &(AssetId, AssetRecord)| (id.to_string(), to_json(&AssetView::new(id, record)));
        return Ok(Some(found.iter().map(node).collect()));
    };
    let Ok(id) = AssetId::new(name) else { return Ok(None) };
    if let Some((first, rest)) = rest.split_first()
        && first == "content"
    {
        let asset: Option<Asset> = assets::read_content(call.venue, owner, &id).await?;
        let Some(asset) = asset else { return Ok(None) };
        let value = asset.value().map_err(|why| {
            OpError::Invalid(format!("`a/{id}/content` has no value: {why}; use `v/ops/asset/content`"))
        })?;
        return Ok(navigate(&value, rest).cloned());
    }
    let record = assets::get(call.venue, owner, &id).await?.map(|record| to_json(&AssetView::new(&id, &record)));
    Ok(record.and_then(|value| take(value, rest)))
}
