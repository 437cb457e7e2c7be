//! `v/context`: values that operators set for a whole tenant, `project` and `users/<user>`.
//!
//! Each is one JSON document of the tenant's own owner, [`venue::tenant_owner`](crate::venue::tenant_owner): a map,
//! written under its version. No call of an agent writes them, and an agent reads no other user's.

use crate::domain::authority::HIDDEN;
use crate::domain::decode;
use crate::domain::ids::{Owner, OwnerPart, decode_token};
use crate::domain::lattice::Path;
use crate::domain::lattice::value::{append, get as navigate, normalise, remove, set};
use crate::domain::limits::{READ_WHOLE_BYTES, SHARED_VALUES_BYTES};
use crate::domain::values::Values;
use crate::store::{DocWrite, Edit, Store, StoreError, decode_listed, keys, steps};
use crate::venue::operation::{Invocation, OpError, Site};
use crate::venue::tenant_owner;
use crate::venue::workspace::WriteOp;
use crate::view::lattice::{ValueAppendedView, ValueDeletedView, ValueWrittenView};
use crate::view::to_json;
use bytes::Bytes;
use serde_json::{Map, Value, json};

/// First segment below `v/`.
pub const CONTEXT: &str = "context";
const PROJECT: &str = "project";
const USERS: &str = "users";

/// Users listed under `v/context/users`.
const LISTED: usize = 1_000;

/// Returns the values that operators have set for an owner: the user's and the project's, in one read.
pub async fn load(store: &dyn Store, owner: &Owner) -> Result<(Values, Values), StoreError> {
    let wanted = [keys::user_values(owner.user()), keys::PROJECT_VALUES.to_owned()];
    let mut found = store.get_many::<Values>(&tenant_owner(owner), &wanted).await?.into_iter();
    let mut next = || found.next().flatten().unwrap_or_default();
    Ok((next(), next()))
}

/// Checks that a call may read below `v/context`.
pub fn may_read(call: &Invocation<'_>) -> Result<(), OpError> {
    check_hidden(call)?;
    let place = Path::parse(HIDDEN).map_err(|error| OpError::Invalid(error.to_string()))?;
    let permitted = call.caller.authority.permits("crud/read", &place);
    permitted.map_err(|denied| OpError::Denied(denied.model_text(call.named)))
}

/// Checks that the model of a turn doesn't read by a path what the turn fills into its prompt and arguments: an agent
/// that binds arguments needs a capability that names the path.
fn check_hidden(call: &Invocation<'_>) -> Result<(), OpError> {
    let hides = matches!(&call.site, Site::Turn(site) if site.hides_values);
    if hides && !call.caller.authority.names_place(HIDDEN) {
        return Err(OpError::Denied(format!(
            "Capability denied: the values of `{HIDDEN}` are filled in for this agent and not shown to it; reading them \
             takes a capability that names `{HIDDEN}`. Retrying the same call will not help."
        )));
    }
    if call.caller.envelope.hides_values {
        return Err(OpError::Denied(format!(
            "Capability denied: the values of `{HIDDEN}` are filled in for the agent that is served here and not shown to \
             it, nor to agents that it asks. Retrying the same call will not help."
        )));
    }
    Ok(())
}

/// Returns the value at `segments` below `v/context`, if the caller may read the path.
pub async fn get(call: &Invocation<'_>, segments: &[String]) -> Result<Option<Value>, OpError> {
    check_hidden(call)?;
    let Some((first, rest)) = segments.split_first() else {
        let project = read_document(call, keys::PROJECT_VALUES).await?;
        let users = all_users(call).await?;
        return Ok(Some(json!({PROJECT: project.unwrap_or_else(|| json!({})), USERS: users})));
    };
    match (first.as_str(), rest.split_first()) {
        (PROJECT, _) => Ok(value_below(read_document(call, keys::PROJECT_VALUES).await?, rest)),
        (USERS, None) => Ok(Some(all_users(call).await?)),
        (USERS, Some((name, rest))) => {
            let Ok(user) = OwnerPart::new(name.as_str()) else { return Ok(None) };
            if !may_see(call, &user) {
                return Err(OpError::Denied(format!(
                    "`v/context/users/{user}` is another user's; an agent sees its own user's values only"
                )));
            }
            Ok(value_below(read_document(call, &keys::user_values(&user)).await?, rest))
        }
        _ => Ok(None),
    }
}

fn value_below(value: Option<Value>, segments: &[String]) -> Option<Value> {
    value.and_then(|value| navigate(&value, segments).cloned())
}

fn may_see(call: &Invocation<'_>, user: &OwnerPart) -> bool {
    call.caller.operator || call.caller.owner.user() == user
}

async fn read_document(call: &Invocation<'_>, key: &str) -> Result<Option<Value>, OpError> {
    Ok(call.venue.store.get(&tenant_owner(&call.caller.owner), key).await?)
}

/// Returns the users that have values, each with the values.
async fn all_users(call: &Invocation<'_>) -> Result<Value, OpError> {
    let owner = tenant_owner(&call.caller.owner);
    let mut users = Map::new();
    let (store, range) = (&*call.venue.store, steps::KeyRange::ascending(keys::USER_VALUES));
    let found = steps::scan(store, &owner, range, LISTED, READ_WHOLE_BYTES).await?;
    if !found.ended && found.docs.len() < LISTED {
        let size = READ_WHOLE_BYTES >> 20;
        let text =
            format!("the values of all users are larger than {size} MiB; read those of one, `v/context/users/ID`");
        return Err(OpError::Invalid(text));
    }
    for (key, doc) in found.docs {
        let name = decode_token(&key[keys::USER_VALUES.len()..]).and_then(|name| OwnerPart::new(name).ok());
        if let Some(name) = name.filter(|name| may_see(call, name)) {
            let values = decode_listed(&owner, &key, &doc.value.unwrap_or_default());
            users.extend(values.map(|values| (name.to_string(), values)));
        }
    }
    Ok(users.into())
}

/// Writes below `v/context` at once; for operators only.
pub async fn change(call: &Invocation<'_>, op: WriteOp) -> Result<Value, OpError> {
    let target = op.target().clone();
    if !call.caller.operator || matches!(call.site, Site::Turn(_)) {
        return Err(OpError::Denied(format!("`{target}` is written by operators alone")));
    }
    let (key, rest) = split_path(&target)?;
    let (store, owner) = (&*call.venue.store, tenant_owner(&call.caller.owner));
    let quota = call.venue.quota().await;
    let attempt = || async {
        let (before, version) = store.get_versioned(&owner, &key).await?;
        let (after, answer) = apply(&op, before.as_ref(), version, &rest, &target)?;
        let write = match after {
            None => DocWrite::delete(key.as_str()),
            Some(values) => DocWrite::put(key.as_str(), encode(&values, &target)?),
        };
        Ok(Edit::write([write.at_version(version)], answer).with_quota(quota))
    };
    store.edit(call.venue.now(), &owner, "the value", &target, attempt).await
}

/// Returns the document of a path, and the rest of the path inside it.
fn split_path(path: &Path) -> Result<(String, Vec<String>), OpError> {
    let wrong = || {
        OpError::Invalid(format!(
            "`{path}` can't be written, expected `v/context/project` or `v/context/users/<user>`, or below"
        ))
    };
    match path.segments() {
        [_, first, rest @ ..] if first == PROJECT => Ok((keys::PROJECT_VALUES.to_owned(), rest.to_vec())),
        [_, first, name, rest @ ..] if first == USERS => {
            let user = OwnerPart::new(name.as_str()).map_err(|e| OpError::Invalid(e.to_string()))?;
            Ok((keys::user_values(&user), rest.to_vec()))
        }
        _ => Err(wrong()),
    }
}

/// Returns the document after a change, `None` if it is deleted, and the answer; `version` is that before the change.
fn apply(
    op: &WriteOp,
    before: Option<&Value>,
    version: u64,
    rest: &[String],
    target: &Path,
) -> Result<(Option<Value>, Value), OpError> {
    let invalid = |e: crate::domain::lattice::value::ChangeError| OpError::Invalid(e.to_string());
    let mut values = before.cloned().unwrap_or_else(|| json!({}));
    match op {
        WriteOp::Write { expect: Some(_), .. } => {
            Err(OpError::Invalid(format!("`expect` is not supported under `v/context`, got it for `{target}`")))
        }
        WriteOp::Write { value, .. } => {
            let existed = set(&mut values, rest, normalise(value.clone())).map_err(invalid)?;
            let existed = if rest.is_empty() { before.is_some() } else { existed };
            Ok((Some(values), to_json(&ValueWrittenView { written: true, version: version + 1, existed })))
        }
        WriteOp::Append { value, .. } => {
            let index = append(&mut values, rest, normalise(value.clone())).map_err(invalid)? as u64;
            Ok((Some(values), to_json(&ValueAppendedView { appended: true, index, new_size: index + 1 })))
        }
        WriteOp::Delete { .. } if rest.is_empty() => {
            Ok((None, to_json(&ValueDeletedView { deleted: before.is_some() })))
        }
        WriteOp::Delete { .. } => {
            let deleted = remove(&mut values, rest);
            Ok((Some(values), to_json(&ValueDeletedView { deleted })))
        }
        WriteOp::Copy { .. } => Err(OpError::Invalid(format!("nothing can be copied to `{target}`; write it"))),
    }
}

fn encode(values: &Value, target: &Path) -> Result<Bytes, OpError> {
    if !values.is_object() {
        let got = crate::domain::lattice::value::type_name(values);
        return Err(OpError::Invalid(format!("expected a map of values at `{target}`, got a {got}")));
    }
    decode::check(values).map_err(|wrong| OpError::Invalid(format!("`{target}` would be {}", wrong.fact.reason)))?;
    let bytes = serde_json::to_vec(values).expect("JSON values serialise");
    if bytes.len() > SHARED_VALUES_BYTES {
        return Err(OpError::Invalid(format!(
            "the values at `{target}` would have {} bytes, expected at most {SHARED_VALUES_BYTES}",
            bytes.len()
        )));
    }
    Ok(bytes.into())
}
