//! Context values of a turn, from the request, the user and the project.

use crate::domain::agent::AgentRecord;
use crate::domain::event::Mandate;
use crate::domain::turn::TurnInput;
use crate::domain::values::{Resolver, Values, placeholder};
use crate::store::StoreError;
use crate::venue::Venue;
use crate::venue::tree::shared;

/// Returns the resolver of a turn's values. It reads the store, once, only if the configuration or a text uses values.
pub(super) async fn resolver(
    venue: &Venue,
    turn_input: &TurnInput,
    agent: &AgentRecord,
) -> Result<Resolver, StoreError> {
    let config = &agent.config;
    let loaded = serde_json::to_string(&agent.state.context).unwrap_or_default();
    let Mandate { event: _, session_context, context_ids: _, envelope } = &turn_input.mandate;
    if !config.uses_values() && !placeholder::has_any(&loaded) {
        // Entity ids narrow the tools, and need no more than the request.
        let session = if config.entity_ids_required { session_context.clone() } else { Values::new() };
        return Ok(Resolver::new(session, Values::new(), Values::new(), config.context_mapping.clone()));
    }
    let (mut user, project) = shared::load(&*venue.store, &turn_input.owner).await?;
    // The token alone says who the user is, so its claims replace stored values.
    user.extend(envelope.claims.clone());
    Ok(Resolver::new(session_context.clone(), user, project, config.context_mapping.clone()))
}
