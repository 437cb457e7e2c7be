//! Parts of a configuration that this venue doesn't know or can't do: warnings, or an error if the caller is strict.

use super::missing_names;
use crate::domain::agent::AgentConfig;
use crate::domain::chat::ModelSettings;
use crate::domain::ids::Owner;
use crate::domain::tools::binding::BindingFaults;
use crate::domain::tools::unknown_names::KnownNames;
use crate::domain::visible::quote_foreign;
use crate::store::StoreError;
use crate::venue::operation::CatalogView;
use crate::venue::{Venue, declared, outside_tools, secrets};
use std::collections::BTreeSet;

/// Why a configuration is refused. Each line is a fault of one of its parts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigFaultsError {
    /// Bindings can't be kept.
    #[error("{}", .lines.join("; "))]
    Bindings {
        /// Faults of the bindings.
        lines: Vec<String>,
    },
    /// Declared tools have names of others.
    #[error("{}", .lines.join("; "))]
    Declared {
        /// Faults of the declarations.
        lines: Vec<String>,
    },
    /// There are warnings, and the caller is strict.
    #[error("{}; without `strict` these are warnings", .lines.join("; "))]
    Strict {
        /// Warnings, each about one part of the configuration.
        lines: Vec<String>,
    },
}

/// Returns one line for each warning.
pub fn warnings(venue: &Venue, owner: &Owner, config: &AgentConfig) -> Vec<String> {
    let of_one = |config: &AgentConfig| {
        let operations = declared::view_with_config(&venue.catalog, venue.catalog_view(owner), config);
        let bindings = binding_faults(venue, &operations, config).warnings;
        list_warnings(venue, owner, &operations, config, bindings)
    };
    let mut found = of_one(config);
    found.extend(outside_tools::refused_peers(venue, config));
    for (place, inline) in config.inline_agents() {
        found.extend(of_one(&inline).into_iter().map(|line| format!("`{place}`: {line}")));
    }
    found
}

/// Returns one line for each warning; `bindings` are those about bindings, which come last.
fn list_warnings(
    venue: &Venue,
    owner: &Owner,
    operations: &CatalogView,
    config: &AgentConfig,
    bindings: Vec<String>,
) -> Vec<String> {
    let of_venue = venue.catalog.mcp.places.of_venue().map(|server| &server.endpoint.settings().name);
    let servers: Vec<_> = config.mcp.iter().map(|server| &server.name).chain(of_venue).cloned().collect();
    let of_venue = venue.catalog.a2a.of_venue().map(|agent| &agent.endpoint.settings().name);
    let remote_agents: Vec<_> = config.a2a_agents.iter().map(|agent| &agent.name).chain(of_venue).cloned().collect();
    let providers = venue.catalog.providers();
    let known = KnownNames { providers, operations, servers: &servers, remote_agents: &remote_agents };
    let mut found = config.unknown_names(&known);
    let models = config.model.in_order().enumerate().filter(|_| config.pipeline.is_none());
    found.extend(models.filter_map(|(at, model)| {
        let why = venue.spend.price_error(owner, model)?;
        Some(format!("`{}`: {why}", ModelSettings::key_at(at)))
    }));
    found.extend(bindings);
    found.extend(declared::lint::warnings(&venue.catalog, operations, config));
    found
}

/// Returns one line for each model of a configuration that has no key: its secret isn't stored, or this worker's
/// environment has no such variable. The environments of other workers aren't known here. A process without a worker adds
/// a line about scripted models whose rules it doesn't see. Secrets of places elsewhere and of declared services, and
/// agents that others name, have a line where they are missing, too: each may be stored later.
pub async fn missing_keys(venue: &Venue, owner: &Owner, config: &AgentConfig) -> Result<Vec<String>, StoreError> {
    let mut found = Vec::new();
    let inline: Vec<_> =
        config.inline_agents().into_iter().map(|(place, config)| (format!("{place}."), config)).collect();
    let own = (String::new(), config);
    let all = std::iter::once((&own.0, own.1)).chain(inline.iter().map(|(place, config)| (place, config)));
    let models = all.filter(|(_, config)| config.pipeline.is_none());
    let models: Vec<_> = models
        .flat_map(|(place, config)| config.model.in_order().enumerate().map(move |(at, model)| (place, at, model)))
        .collect();
    for (place, at, model) in models {
        let why = match &model.key {
            None => venue.local.missing_key(model),
            Some(name) => secrets::describe_missing(&*venue.store, owner, name).await?,
        };
        let key = ModelSettings::key_at(at);
        found.extend(why.map(|why| format!("`{place}{key}`: {why}; until then its tasks wait")));
    }
    found.extend(unseen_rules(venue, config));
    found.extend(inline.iter().filter_map(|(_, config)| unseen_rules(venue, config)));
    found.extend(outside_tools::missing_secrets(venue, owner, config).await?);
    found.extend(missing_names::warnings(venue, owner, config).await?);
    Ok(found)
}

/// Returns the line about scripted models of which a process without a worker doesn't see the rules.
fn unseen_rules(venue: &Venue, config: &AgentConfig) -> Option<String> {
    let unseen = config.model.in_order().filter(|model| venue.local.lacks_rules(model));
    let names: BTreeSet<String> = unseen.map(|model| format!("`{}`", quote_foreign(&model.name))).collect();
    if names.is_empty() {
        return None;
    }
    let names = names.into_iter().collect::<Vec<_>>().join(", ");
    Some(format!(
        "`model`: this process has no worker and sees no rules for {names}: every worker must have them where its \
         `models.scripted` names"
    ))
}

fn binding_faults(venue: &Venue, operations: &CatalogView, config: &AgentConfig) -> BindingFaults {
    config.binding_faults(operations, &venue.catalog.resources.declared_tools(config))
}

/// Returns the [`warnings`] of a configuration. A binding that can't be kept is an error; with `strict` so is a
/// warning.
pub fn check(
    venue: &Venue,
    owner: &Owner,
    config: &AgentConfig,
    strict: bool,
) -> Result<Vec<String>, ConfigFaultsError> {
    // Places of inline agents are those of the whole configuration.
    let mut warnings = check_one(venue, owner, config, outside_tools::refused_peers(venue, config), strict)?;
    for (place, inline) in config.inline_agents() {
        let found = check_one(venue, owner, &inline, Vec::new(), strict).map_err(|error| error.with_place(&place))?;
        warnings.extend(found.into_iter().map(|line| format!("`{place}`: {line}")));
    }
    Ok(warnings)
}

impl ConfigFaultsError {
    /// Returns the error of an agent that is written inside of a pipeline.
    fn with_place(self, place: &str) -> Self {
        let placed = |lines: Vec<String>| lines.into_iter().map(|line| format!("`{place}`: {line}")).collect();
        match self {
            Self::Bindings { lines } => Self::Bindings { lines: placed(lines) },
            Self::Declared { lines } => Self::Declared { lines: placed(lines) },
            Self::Strict { lines } => Self::Strict { lines: placed(lines) },
        }
    }
}

/// Checks one configuration; `refused` are the lines about its places elsewhere, which come last.
fn check_one(
    venue: &Venue,
    owner: &Owner,
    config: &AgentConfig,
    refused: Vec<String>,
    strict: bool,
) -> Result<Vec<String>, ConfigFaultsError> {
    let shared = venue.catalog_view(owner);
    let operations = declared::view_with_config(&venue.catalog, shared.clone(), config);
    let lines = declared::lint::shadowed_names(&shared, config);
    if !lines.is_empty() {
        return Err(ConfigFaultsError::Declared { lines });
    }
    let BindingFaults { errors, warnings: bindings } = binding_faults(venue, &operations, config);
    if !errors.is_empty() {
        return Err(ConfigFaultsError::Bindings { lines: errors });
    }
    let mut warnings = list_warnings(venue, owner, &operations, config, bindings);
    warnings.extend(refused);
    if strict && !warnings.is_empty() {
        return Err(ConfigFaultsError::Strict { lines: warnings });
    }
    Ok(warnings)
}
