//! Names in a configuration that this venue doesn't know: warnings, or an error where the caller is strict.

use crate::domain::agent::AgentConfig;
use crate::domain::agent::unknown::Known;
use crate::venue::Venue;

/// A line for each.
pub fn warnings(venue: &Venue, config: &AgentConfig) -> Vec<String> {
    config.unknown(&Known { providers: venue.catalog.providers(), operations: &venue.catalog })
}

/// [`warnings`], and with `strict` none of them.
pub fn checked(venue: &Venue, config: &AgentConfig, strict: bool) -> Result<Vec<String>, String> {
    let warnings = warnings(venue, config);
    if strict && !warnings.is_empty() {
        return Err(format!("{}; without `strict` these are warnings", warnings.join("; ")));
    }
    Ok(warnings)
}
