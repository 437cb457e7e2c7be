//! What a configuration says that this venue doesn't know or can't do: warnings, or an error where the
//! caller is strict.

use crate::domain::agent::AgentConfig;
use crate::domain::chat::ModelSettings;
use crate::domain::ids::Owner;
use crate::domain::tools::unknown::KnownNames;
use crate::venue::Venue;

/// A line for each.
pub fn warnings(venue: &Venue, owner: &Owner, config: &AgentConfig) -> Vec<String> {
    let mut found = config.unknown(&KnownNames { providers: venue.catalog.providers(), operations: &venue.catalog });
    let models = config.model.in_order().enumerate();
    found.extend(models.filter_map(|(at, model)| {
        let why = venue.spend.unpriced(owner, model)?;
        Some(format!("`{}`: {why}", ModelSettings::key_at(at)))
    }));
    found
}

/// [`warnings`], and with `strict` none of them.
pub fn checked(venue: &Venue, owner: &Owner, config: &AgentConfig, strict: bool) -> Result<Vec<String>, String> {
    let warnings = warnings(venue, owner, config);
    if strict && !warnings.is_empty() {
        return Err(format!("{}; without `strict` these are warnings", warnings.join("; ")));
    }
    Ok(warnings)
}
