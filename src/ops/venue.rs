//! `v/ops/venue/*`: operations of operators on the venue as a whole.

use crate::domain::authority::ResourcePath;
use crate::upkeep::audit::{self, AuditError};
use crate::upkeep::backup;
use crate::upkeep::doctor;
use crate::venue::operation::{Effect, Invocation, Need, OpError, Operation, Output, RegisteredOperation, operation};
use schemars::JsonSchema;
use serde::Deserialize;

/// Returns the operations of this group.
pub fn operations() -> Vec<RegisteredOperation> {
    vec![operation::<Audit>(), operation::<Doctor>(), operation::<Backup>()]
}

/// Compare everything that was accepted, by all owners, with what has ended, is pending, or is missing.
#[derive(Deserialize, JsonSchema)]
struct Audit {
    /// first give what was lost its place or its end
    #[serde(default)]
    repair: bool,
    /// note that everything that was found lost until now is dealt with
    #[serde(default)]
    settle: bool,
}

impl Operation for Audit {
    const PATH: &'static str = "v/ops/venue/audit";
    const EFFECT: Effect = Effect::Idempotent;

    fn needs(&self) -> Result<Vec<Need>, OpError> {
        Need::only("venue/audit", ResourcePath::kept("policy"))
    }

    async fn run(self, call: &Invocation<'_>) -> Result<Output, OpError> {
        call.for_operators::<Self>("")?;
        let report = async {
            if self.settle {
                audit::settle(call.venue, &call.caller.name).await?;
            }
            audit::report(call.venue, self.repair).await
        };
        match report.await {
            Ok(report) => Ok(report.into()),
            Err(AuditError::Store(error)) => Err(OpError::Store(error)),
            Err(AuditError::Bus(error)) => Err(OpError::Failed(error.to_string())),
        }
    }
}

/// Say which guarantees hold with the settings of the servers, and what to change.
#[derive(Deserialize, JsonSchema)]
struct Doctor {}

impl Operation for Doctor {
    const PATH: &'static str = "v/ops/venue/doctor";
    const EFFECT: Effect = Effect::Read;

    fn needs(&self) -> Result<Vec<Need>, OpError> {
        Need::only("venue/doctor", ResourcePath::kept("policy"))
    }

    async fn run(self, call: &Invocation<'_>) -> Result<Output, OpError> {
        call.for_operators::<Self>("")?;
        let found = doctor::examine(call.venue).await;
        Ok(found.map_err(|error| OpError::Failed(error.to_string()))?.to_json().into())
    }
}

/// Copy the whole store, as it stands at one moment, while work goes on: into a folder of this name below `backups` in
/// the store's own. A store on servers is copied by their own tools.
#[derive(Deserialize, JsonSchema)]
struct Backup {
    /// letters, digits, `.`, `_` and `-`
    name: String,
}

impl Operation for Backup {
    const PATH: &'static str = "v/ops/venue/backup";
    const EFFECT: Effect = Effect::Once;

    fn needs(&self) -> Result<Vec<Need>, OpError> {
        Need::only("venue/backup", ResourcePath::kept("policy"))
    }

    async fn run(self, call: &Invocation<'_>) -> Result<Output, OpError> {
        call.for_operators::<Self>("")?;
        Ok(backup::make(call.venue, &self.name).await?.into())
    }
}
