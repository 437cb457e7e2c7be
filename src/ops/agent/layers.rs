//! Configurations as callers give them: maps, and names of what is stored, one over the other.

use crate::domain::agent::merge;
use crate::domain::authority::ResourcePath;
use crate::domain::decode;
use crate::domain::ids::AssetId;
use crate::domain::lattice::{Namespace, Path};
use crate::domain::limits::CONFIG_LAYERS;
use crate::ops::asset::asset_id;
use crate::venue::agents;
use crate::venue::operation::{Invocation, Need, OpError};
use crate::venue::tree::value_at;
use serde_json::{Map, Value, json};

/// JSON Schema of such an argument.
pub(super) fn input(about: &str) -> Value {
    let about = format!("{about}: a map, the path or asset of one, or a list of these, of which later ones count");
    json!({"type": ["object", "string", "array"], "description": about})
}

/// Where a layer is stored.
enum Stored {
    Asset(AssetId),
    Path(Path),
}

impl Stored {
    fn of(name: &str) -> Result<Self, OpError> {
        if let Ok(id) = asset_id(name) {
            return Ok(Self::Asset(id));
        }
        let path = Path::parse(name);
        path.map(Self::Path).map_err(|error| {
            OpError::Invalid(format!("a configuration is a map, or the path or asset of one, got `{name}`: {error}"))
        })
    }

    fn need(&self) -> Need {
        let resource = match self {
            Self::Asset(id) => ResourcePath::asset(id),
            Self::Path(path) => path.into(),
        };
        Need { ability: "crud/read", resource }
    }

    /// Where its value is read.
    fn path(&self) -> Result<Path, OpError> {
        match self {
            Self::Path(path) => Ok(path.clone()),
            Self::Asset(id) => {
                Path::parse(&format!("a/{id}/content")).map_err(|error| OpError::Invalid(error.to_string()))
            }
        }
    }
}

/// The layers of arguments, the first to count first; `null` is none.
fn layers<'a>(arguments: &[&'a Value]) -> Result<Vec<&'a Value>, OpError> {
    let mut layers = Vec::new();
    for given in arguments {
        match given {
            Value::Null => {}
            Value::Array(several) => layers.extend(several),
            one => layers.push(one),
        }
    }
    if layers.len() > CONFIG_LAYERS {
        let got = layers.len();
        return Err(OpError::Invalid(format!("expected at most {CONFIG_LAYERS} layers of a configuration, got {got}")));
    }
    Ok(layers)
}

/// What reading the layers needs, and using the keys that they name as they stand.
pub(super) fn needs(arguments: &[&Value]) -> Result<Vec<Need>, OpError> {
    let mut needs = Vec::new();
    for layer in layers(arguments)? {
        match layer {
            Value::String(name) => needs.push(Stored::of(name)?.need()),
            Value::Object(_) => {
                needs.extend(agents::key_needed(layer));
                needs.extend(agents::key_needed(&layer["state"]["config"]));
            }
            other => {
                return Err(OpError::Invalid(format!(
                    "a configuration is a map, or the path or asset of one, got {other}"
                )));
            }
        }
    }
    Ok(needs)
}

/// The configuration that the layers are together; `None` without any.
pub(super) async fn resolved(
    call: &Invocation<'_>,
    arguments: &[&Value],
) -> Result<Option<Map<String, Value>>, OpError> {
    let mut whole: Option<Value> = None;
    for layer in layers(arguments)? {
        let layer = match layer {
            Value::String(name) => stored(call, name).await?,
            given => given.clone(),
        };
        let Value::Object(layer) = layer else {
            return Err(OpError::Invalid(format!("a configuration is a map, got {layer}")));
        };
        match &mut whole {
            None => whole = Some(Value::Object(layer)),
            Some(whole) => merge::shallow(whole, &layer),
        }
    }
    Ok(whole.and_then(|whole| if let Value::Object(map) = whole { Some(map) } else { None }))
}

/// What is stored under a name; a pin leads to the asset that it names.
async fn stored(call: &Invocation<'_>, name: &str) -> Result<Value, OpError> {
    let stored = Stored::of(name)?;
    let missing = || OpError::NotFound(format!("no configuration at `{name}`: nothing is stored there"));
    let value = value_at(call, &stored.path()?).await?.ok_or_else(missing)?;
    let value = match (&stored, value["asset"].as_str()) {
        (Stored::Path(path), Some(asset)) if path.namespace() == Namespace::Pins => {
            let asset = Stored::Asset(asset_id(asset)?);
            let need = asset.need();
            let permitted = call.caller.authority.permits(need.ability, &need.resource);
            permitted.map_err(|denied| OpError::Denied(denied.text(&format!("the configuration `{name}`"))))?;
            value_at(call, &asset.path()?).await?.ok_or_else(missing)?
        }
        _ => value,
    };
    let text = |text: &str| decode::data(text.as_bytes()).unwrap_or(Value::Null);
    let value = if let Value::String(json) = &value { text(json) } else { value };
    if value.is_object() {
        return Ok(value);
    }
    Err(OpError::Invalid(format!("what is stored at `{name}` is no configuration: expected a map")))
}
