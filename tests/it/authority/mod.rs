//! Who may do what: grants, tokens, revocation, secrets.

mod disclosure;
mod grants;
mod model_settings;
mod protected_sizes;
mod revocation;
mod revocation_in_turns;
mod secrets;
mod submission_ids;
pub mod tokens;
