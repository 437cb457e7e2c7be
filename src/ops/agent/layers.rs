//! Configurations as callers give them: maps, and names of stored maps, in layers.

use crate::domain::agent::merge;
use crate::domain::authority::ResourcePath;
use crate::domain::decode;
use crate::domain::ids::AssetId;
use crate::domain::lattice::{Namespace, Path, PathError};
use crate::domain::limits::CONFIG_LAYERS;
use crate::ops::asset::asset_id;
use crate::venue::agents;
use crate::venue::operation::{Invocation, Need, OpError};
use crate::venue::tree::value_to_copy;
use serde::Deserialize;
use serde_json::{Map, Value};

/// A configuration in layers, of which later ones count: maps, and names of stored maps.
#[derive(Default, Deserialize)]
#[serde(try_from = "Value")]
pub(super) struct AgentConfigLayers(Vec<ConfigLayer>);

enum ConfigLayer {
    /// A map in the request.
    Given(Value),
    /// A stored map with the name that the request gives.
    Named(String, StoredLayer),
}

/// Why a layer of a configuration is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum ConfigLayerError {
    /// The layer is neither a map nor a text; holds the value.
    #[error("a configuration is a map, or the path or asset of one, got {0}")]
    Form(Value),
    /// The text is no name of a stored map.
    #[error("a configuration is a map, or the path or asset of one, got `{name}`: {error}")]
    Name {
        /// Text that was given.
        name: String,
        /// Why the text is no path.
        error: PathError,
    },
}

impl TryFrom<Value> for AgentConfigLayers {
    type Error = ConfigLayerError;

    fn try_from(given: Value) -> Result<Self, ConfigLayerError> {
        let layers = if let Value::Array(several) = given { several } else { vec![given] };
        let layer = |layer| match layer {
            Value::String(name) => StoredLayer::from_name(&name).map(|stored| ConfigLayer::Named(name, stored)),
            Value::Object(_) => Ok(ConfigLayer::Given(layer)),
            other => Err(ConfigLayerError::Form(other)),
        };
        layers.into_iter().map(layer).collect::<Result<_, _>>().map(Self)
    }
}

/// Place of a stored layer.
enum StoredLayer {
    Asset(AssetId),
    Path(Path),
}

impl StoredLayer {
    fn from_name(name: &str) -> Result<Self, ConfigLayerError> {
        if let Ok(id) = asset_id(name) {
            return Ok(Self::Asset(id));
        }
        let path = Path::parse(name);
        path.map(Self::Path).map_err(|error| ConfigLayerError::Name { name: name.to_owned(), error })
    }

    fn need(&self) -> Need {
        let resource = match self {
            Self::Asset(id) => ResourcePath::asset(id),
            Self::Path(path) => path.into(),
        };
        Need { ability: "crud/read", resource }
    }

    /// Returns the path at which the value is read.
    fn path(&self) -> Result<Path, OpError> {
        match self {
            Self::Path(path) => Ok(path.clone()),
            Self::Asset(id) => {
                Path::parse(&format!("a/{id}/content")).map_err(|error| OpError::Invalid(error.to_string()))
            }
        }
    }
}

/// Returns what reading the layers needs, and what using the keys needs that the maps name.
pub(super) fn layer_needs(layers: &[&AgentConfigLayers]) -> Result<Vec<Need>, OpError> {
    let got: usize = layers.iter().map(|AgentConfigLayers(layers)| layers.len()).sum();
    if got > CONFIG_LAYERS {
        return Err(OpError::Invalid(format!("expected at most {CONFIG_LAYERS} layers of a configuration, got {got}")));
    }
    let mut needs = Vec::new();
    for layer in layers.iter().flat_map(|AgentConfigLayers(layers)| layers) {
        match layer {
            ConfigLayer::Named(_, stored) => needs.push(stored.need()),
            ConfigLayer::Given(layer) => {
                needs.extend(agents::keys_needed(layer));
                needs.extend(agents::keys_needed(&layer["state"]["config"]));
            }
        }
    }
    Ok(needs)
}

/// Merges the layers into a configuration; `None` if there are none.
pub(super) async fn merge_layers(
    call: &Invocation<'_>,
    layers: impl IntoIterator<Item = AgentConfigLayers> + Send,
) -> Result<Option<Map<String, Value>>, OpError> {
    let mut whole: Option<Value> = None;
    let layers: Vec<ConfigLayer> = layers.into_iter().flat_map(|AgentConfigLayers(layers)| layers).collect();
    let several = layers.len() > 1;
    for layer in layers {
        let layer = match layer {
            ConfigLayer::Named(name, at) => read_stored(call, &name, &at).await?,
            ConfigLayer::Given(given) => given,
        };
        let Value::Object(mut layer) = layer else {
            return Err(OpError::Invalid(format!("a configuration is a map, got {layer}")));
        };
        if several {
            layer = fold_state(layer);
        }
        match &mut whole {
            None => whole = Some(Value::Object(layer)),
            Some(whole) => merge::shallow(whole, &layer),
        }
    }
    Ok(whole.and_then(|whole| if let Value::Object(map) = whole { Some(map) } else { None }))
}

/// Moves the keys of `state.config`, which count before the others of their layer, so that those of later layers replace
/// them.
fn fold_state(mut layer: Map<String, Value>) -> Map<String, Value> {
    let Some(state) = layer.get_mut("state").and_then(Value::as_object_mut) else { return layer };
    let Some(Value::Object(config)) = state.get("config").cloned() else { return layer };
    state.shift_remove("config");
    if state.is_empty() {
        layer.shift_remove("state");
    }
    layer.extend(config);
    layer
}

/// Refuses a `state` beside a configuration with its own `state`, because one of them would be ignored.
pub(super) fn check_one_state(config: &Map<String, Value>, state: Option<&Value>) -> Result<(), OpError> {
    if state.is_none() || !config.contains_key("state") {
        return Ok(());
    }
    Err(OpError::Invalid("`state`: `config` has a `state` too, write both into one".into()))
}

/// Reads what is stored under a name; a pin leads to the asset that it names.
async fn read_stored(call: &Invocation<'_>, name: &str, stored: &StoredLayer) -> Result<Value, OpError> {
    let missing = || OpError::NotFound(format!("no configuration at `{name}`: nothing is stored there"));
    let value = value_to_copy(call, &stored.path()?).await?.ok_or_else(missing)?;
    let value = match (stored, value["asset"].as_str()) {
        (StoredLayer::Path(path), Some(asset)) if path.namespace() == Namespace::Pins => {
            let asset = StoredLayer::Asset(asset_id(asset)?);
            let need = asset.need();
            let permitted = call.caller.authority.permits(need.ability, &need.resource);
            permitted.map_err(|denied| OpError::Denied(denied.model_text(&format!("the configuration `{name}`"))))?;
            value_to_copy(call, &asset.path()?).await?.ok_or_else(missing)?
        }
        _ => value,
    };
    let text = |text: &str| decode::lenient_json(text.as_bytes()).unwrap_or(Value::Null);
    let mut value = if let Value::String(json) = &value { text(json) } else { value };
    // Covia's older definitions have the configuration at `agent.config`.
    if let Some(config @ Value::Object(_)) = value.pointer_mut("/agent/config") {
        return Ok(config.take());
    }
    if value.is_object() {
        return Ok(value);
    }
    Err(OpError::Invalid(format!("what is stored at `{name}` is no configuration: expected a map")))
}
