//! `v/ops/spend/today`: what an owner has spent today, and what its caps leave.

use crate::domain::authority::ResourcePath;
use crate::domain::ids::{AgentId, SessionId, SessionKey};
use crate::domain::lattice::Namespace;
use crate::venue::operation::{Effect, Invocation, Need, OpError, OpOutput, Operation, RegisteredOperation, operation};
use crate::venue::spending;
use crate::view::spend::SpendTodayView;
use schemars::JsonSchema;
use serde::Deserialize;

/// Number of listed sessions: the default and the maximum.
const SESSIONS: (usize, usize) = (20, 500);

/// Returns the operations of this group.
pub fn operations() -> Vec<RegisteredOperation> {
    vec![operation::<SpentToday>()]
}

/// Tokens and money that were spent today, by model and session, and the caps: what is used, held and left of them, and
/// when they reset. With a session, its cap too. Of the caps of users the caller's own.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct SpentToday {
    agent_id: Option<AgentId>,
    session_id: Option<SessionId>,
    /// whose cap of the day, in the place of the caller's; for operators
    user: Option<String>,
    /// sessions that are listed, those that have used most first
    #[schemars(range(max = SESSIONS.1))]
    limit: Option<usize>,
}

impl Operation for SpentToday {
    const PATH: &'static str = "v/ops/spend/today";
    const EFFECT: Effect = Effect::Read;

    fn needs(&self) -> Result<Vec<Need>, OpError> {
        if self.agent_id.is_some() != self.session_id.is_some() {
            return Err(OpError::Invalid("expected `agentId` and `sessionId` together, or none of them".into()));
        }
        Need::only("crud/read", ResourcePath::whole_namespace(Namespace::Agents))
    }

    async fn run(self, call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        let (venue, caller) = (call.venue, call.caller);
        let session = self.agent_id.zip(self.session_id).map(|(agent, session)| SessionKey { agent, session });
        let sees_all = caller.operator && !caller.is_agent();
        let today = spending::today(venue, &caller.owner, self.limit.unwrap_or(SESSIONS.0)).await?;
        let request = caller.request_envelope();
        let own = request.user(&caller.owner);
        let user = self.user.as_deref().unwrap_or(&own);
        if user != own && !sees_all {
            return Err(OpError::Denied(format!("what user `{user}` has spent only operators of the venue see")));
        }
        let caps = spending::caps(venue, &caller.owner, user, session.as_ref(), sees_all).await?;
        Ok(OpOutput::of(&SpendTodayView { caps, ..today }))
    }
}
