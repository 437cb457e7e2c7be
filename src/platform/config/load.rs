//! Loads the configuration of all layers.

use super::check;
use super::layers::{ConfigErrors, ConfigLayers, ShownKey};
use super::settings::Config;
use std::collections::BTreeMap;
use std::path::Path;

/// A configuration and the origin of each of its values.
#[derive(Debug, Clone)]
pub struct LoadedConfig {
    /// The validated values.
    pub config: Config,
    /// Every key in the order of `config/default.toml`, for `config show`.
    pub entries: Vec<ShownKey>,
}

impl Config {
    /// Reads all layers: built-in defaults, `file`, `env` (variables `TRELLIS__SECTION__KEY`; others are ignored),
    /// `overrides` (`key`, `value`), later ones winning. Reports all errors together.
    pub fn load(
        file: Option<&Path>,
        env: &BTreeMap<String, String>,
        overrides: &[(String, String)],
    ) -> Result<LoadedConfig, ConfigErrors> {
        let layers = ConfigLayers::read(file, env, overrides);
        let entries = layers.shown_keys();
        check::config(layers).map(|config| LoadedConfig { config, entries })
    }
}
