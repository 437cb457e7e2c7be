//! Stage 4: what a turn knows, from the request, the user and the project.

use super::Worker;
use super::session::Leased;
use crate::domain::agent::{AgentConfig, AgentRecord};
use crate::domain::turn::run::Plan;
use crate::domain::values::entities::{self, EntityIdsRequired};
use crate::domain::values::{Resolver, Values, placeholder};
use crate::ops::shared;
use crate::store::StoreError;

/// The values of a turn. The store is asked, once, only when the configuration or a text names any.
pub(super) async fn resolver(
    worker: &Worker,
    leased: &Leased,
    agent: &AgentRecord,
    plan: &Plan,
) -> Result<Resolver, StoreError> {
    let config = &agent.config;
    let loaded = serde_json::to_string(&agent.state.context).unwrap_or_default();
    let session = || leased.run.session_context(plan).cloned().unwrap_or_default();
    if !config.uses_values() && !placeholder::has_any(&loaded) {
        // Entity ids narrow the tools, and need no more than the request.
        let session = if config.entity_ids_required { session() } else { Values::new() };
        return Ok(Resolver::new(session, Values::new(), Values::new(), config.context_mapping.clone()));
    }
    let (user, project) = shared::load(&*worker.venue.store, &leased.lease.owner).await?;
    Ok(Resolver::new(session(), user, project, config.context_mapping.clone()))
}

/// Whether a turn may begin: a request to an agent with a mandate names its entities.
pub(super) fn mandate(leased: &Leased, config: &AgentConfig, plan: &Plan) -> Result<(), EntityIdsRequired> {
    if !config.entity_ids_required {
        return Ok(());
    }
    let none = Values::new();
    let session = leased.run.session_context(plan).unwrap_or(&none);
    entities::ids(&config.entity_ids_key, session).map(drop)
}
