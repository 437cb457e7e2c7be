//! Records of the venue that it shows as part of the tree: agents, jobs, assets, the catalogue.

use super::{agent, shared};
use crate::domain::asset::{Asset, to_view};
use crate::domain::ids::AssetId;
use crate::domain::ids::{AgentId, JobId};
use crate::domain::lattice::value::get as navigate;
use crate::domain::lattice::{Namespace, Path};
use crate::domain::limits::LIST_PAGE;
use crate::domain::reader::{HIDDEN_KEY, is_content_key};
use crate::venue::agents;
use crate::venue::agents::templates::TEMPLATES;
use crate::venue::assets;
use crate::venue::jobs;
use crate::venue::operation::{Invocation, OpError, RegisteredOperation};
use crate::venue::secrets;
use serde_json::{Map, Value, json};

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
            let agents = agents::list(call.venue, owner, None, LIST_PAGE).await?;
            Ok(Some(agents.into_iter().map(|a| (a.id.to_string(), json!({"description": a.description}))).collect()))
        }
        (Namespace::Agents, Some(name)) => match AgentId::new(name) {
            Err(_) => Ok(None),
            Ok(id) => agent::get(call, &id, rest).await,
        },
        (Namespace::Jobs, None) => {
            let listed = jobs::list_ids(call.venue, owner, 0, JOBS).await?;
            let jobs = jobs::statuses(call.venue, owner, &listed.items).await?;
            Ok(Some(jobs.into_iter().map(|(id, status)| (id.to_string(), json!({"status": status}))).collect()))
        }
        (Namespace::Jobs, Some(id)) => match JobId::new(id) {
            Err(_) => Ok(None),
            Ok(id) => {
                let job =
                    jobs::read_for_people(call.venue, owner, &id).await?.map(|job| call.caller.reader().record(&job));
                Ok(job.and_then(|value| {
                    let hidden =
                        || value.get(HIDDEN_KEY).filter(|_| rest.first().is_some_and(|key| is_content_key(key)));
                    navigate(&value, rest).or_else(hidden).cloned()
                }))
            }
        },
        (Namespace::Venue, Some(shared::CONTEXT)) => shared::get(call, rest).await,
        (Namespace::Venue, None) => {
            let mut all = venue_value(call);
            // These values need a capability of their own.
            if shared::may_read(call).is_ok() {
                all[shared::CONTEXT] = shared::get(call, &[]).await?.unwrap_or_default();
            }
            Ok(Some(all))
        }
        (Namespace::Venue, Some(_)) => Ok(navigate(&venue_value(call), path.segments()).cloned()),
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
fn venue_value(call: &Invocation<'_>) -> Value {
    let mut ops = Map::new();
    let catalog = &call.venue.catalog;
    let aliases = catalog.aliases().filter_map(|(alias, _)| Some((alias, catalog.resolve(alias)?)));
    for (path, found) in catalog.operations().map(|found| (found.spec.path, found)).chain(aliases) {
        let mut names = path.trim_start_matches("v/ops/").split('/');
        if let (Some(group), Some(name)) = (names.next(), names.next()) {
            let group = ops.entry(group).or_insert_with(|| json!({}));
            group[name] = describe(path, found);
        }
    }
    json!({"ops": ops, "agents": {"templates": &*TEMPLATES}, "info": {"name": call.venue.name, "version": env!("CARGO_PKG_VERSION")}})
}

/// Returns an operation's metadata, as `v/ops/…` and `GET operations` show it.
pub fn describe(path: &str, found: &RegisteredOperation) -> Value {
    json!({
        "name": path,
        "description": found.spec.description,
        "operation": {"adapter": found.spec.path.trim_start_matches("v/ops/").replace('/', ":"), "input": found.spec.input},
    })
}

/// Returns the value at `a/<hash>` (the record), `a/<hash>/content` (the text, or the value of JSON), and below.
async fn asset_value(call: &Invocation<'_>, segments: &[String]) -> Result<Option<Value>, OpError> {
    let owner = &call.caller.owner;
    let Some((name, rest)) = segments.split_first() else {
        let found = assets::list(call.venue, owner, 0, ASSETS).await?.items;
        return Ok(Some(found.iter().map(|(id, record)| (id.to_string(), to_view(id, record))).collect()));
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
    let record = assets::get(call.venue, owner, &id).await?.map(|record| to_view(&id, &record));
    Ok(record.and_then(|value| navigate(&value, rest).cloned()))
}
