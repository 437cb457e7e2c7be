//! Warnings about abilities of capabilities that a command line grants.

use super::escape::cell;
use super::output::note;
use crate::domain::authority::ability::unknown_ability;
use crate::domain::authority::grant::unknown_abilities;
use serde_json::Value;

/// Notes on stderr each ability of these capabilities that nothing needs. A venue of another build may know it.
pub(crate) fn note_unknown(option: &str, caps: &[Value]) {
    let abilities = caps.iter().filter_map(|cap| cap.get("can")?.as_str());
    for warning in abilities.filter_map(|can| unknown_ability(option, can)) {
        note(&format!("warning: {warning}"));
    }
}

/// Notes on stderr what the venue warns of in the receipt of a submission with these grants, besides what
/// [`note_unknown`] has noted.
pub(crate) fn note_warnings(warnings: &[String], grants: &[Value]) {
    let known = unknown_abilities(grants);
    for warning in warnings.iter().filter(|warning| !known.contains(warning)) {
        note(&format!("warning: {}", cell(warning)));
    }
}
