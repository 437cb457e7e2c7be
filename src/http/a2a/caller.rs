//! The caller of a request to a published agent, whom the path names with its owner.

use super::error::{A2aError, A2aErrorKind};
use crate::domain::agent::AgentRecord;
use crate::domain::authority::ResourcePath;
use crate::domain::ids::{AgentId, Owner};
use crate::http::Api;
use crate::http::extract::RequestCaller;
use crate::venue::a2a;
use crate::venue::a2a::reader::TaskReader;
use axum::http::StatusCode;
use axum::http::request::Parts;

/// Owner and agent that a path names: `/a2a/{tenant}/{user}/{agent}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct AgentPlace {
    pub(super) owner: Owner,
    pub(super) agent: AgentId,
}

/// Parts of a path: tenant, user, agent.
pub(super) type PlaceNames = (String, String, String);

impl AgentPlace {
    /// Reads a place; what can't be a place is as unknown as what isn't there.
    pub(super) fn parse(names: &PlaceNames) -> Result<Self, A2aError> {
        let (tenant, user, agent) = names;
        let owner = format!("{tenant}/{user}").parse::<Owner>().ok();
        let agent = AgentId::new(agent.as_str()).ok();
        let (owner, agent) = owner.zip(agent).ok_or_else(no_agent)?;
        Ok(Self { owner, agent })
    }

    /// Returns the address of the agent below that of the API.
    pub(super) fn url(&self, api: &Api) -> String {
        let base = api.options.public_url();
        let (tenant, user) = (self.owner.tenant().token(), self.owner.user().token());
        format!("{base}/a2a/{tenant}/{user}/{}", self.agent.token())
    }

    /// Returns the agent, if it is published.
    pub(super) async fn find_agent(&self, api: &Api) -> Result<AgentRecord, A2aError> {
        a2a::find_agent(&api.venue, &self.owner, &self.agent).await?.ok_or_else(no_agent)
    }
}

/// The agent isn't there or isn't published; nothing says which.
fn no_agent() -> A2aError {
    let text = "no agent is published at this address; `a2a` in its configuration publishes it";
    A2aError::new(A2aErrorKind::Http(StatusCode::NOT_FOUND), text)
}

/// A caller, and the agent of its request.
pub(super) struct A2aCaller {
    pub(super) who: RequestCaller,
    pub(super) agent: AgentRecord,
}

impl A2aCaller {
    /// Verifies the sender of a request to an agent.
    pub(super) async fn identify(api: &Api, place: &AgentPlace, parts: &Parts) -> Result<Self, A2aError> {
        let who = RequestCaller::for_owner(parts, api, &place.owner).await?;
        Ok(Self { agent: place.find_agent(api).await?, who })
    }

    /// Returns the caller as a reader of the agent's tasks.
    pub(super) fn reader<'a>(&'a self, api: &'a Api) -> TaskReader<'a> {
        TaskReader {
            venue: &api.venue,
            caller: &self.who.caller,
            agent: &self.agent,
            url: Some(api.options.public_url()),
        }
    }

    /// Checks that the caller may read of the agent or use it: a token for something else learns no more of the agent
    /// than everybody does.
    pub(super) fn permit_details(&self) -> Result<(), A2aError> {
        let agent = &self.agent.id;
        if self.who.caller.reader().may_read_agent(agent) {
            return Ok(());
        }
        self.permit("agent/request", ResourcePath::agent(agent), "`GetExtendedAgentCard`")
    }

    /// Checks that the caller has this ability on a resource.
    pub(super) fn permit(&self, ability: &str, resource: ResourcePath, what: &str) -> Result<(), A2aError> {
        let permitted = self.who.caller.authority.permits(ability, resource);
        permitted.map_err(|denied| A2aError::not_permitted(denied.model_text(what)))
    }
}
