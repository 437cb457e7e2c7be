//! `v/ops/venue/*`: operations of operators on the venue as a whole.

use crate::domain::authority::ResourcePath;
use crate::venue::operation::{Effect, Invocation, Need, OpError, OpOutput, Operation, RegisteredOperation, operation};
use crate::venue::upkeep::audit::{self, AuditError};
use crate::venue::upkeep::backup;
use crate::venue::upkeep::doctor;
use schemars::JsonSchema;
use serde::Deserialize;

/// Returns the operations of this group.
pub fn operations() -> Vec<RegisteredOperation> {
    vec![operation::<AuditVenue>(), operation::<ExamineVenue>(), operation::<BackupVenue>()]
}

/// Compare everything that was accepted, by all owners, with what has ended, is pending, or is missing.
#[derive(Deserialize, JsonSchema)]
struct AuditVenue {
    /// first give what was lost its place or its end
    #[serde(default)]
    repair: bool,
    /// note that everything that was found lost until now is dealt with
    #[serde(default)]
    settle: bool,
}

impl Operation for AuditVenue {
    const PATH: &'static str = "v/ops/venue/audit";
    const EFFECT: Effect = Effect::Idempotent;

    fn needs(&self) -> Result<Vec<Need>, OpError> {
        Need::only("venue/audit", ResourcePath::owner_document("policy"))
    }

    async fn run(self, call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        call.require_operator::<Self>("")?;
        let report = async {
            if self.settle {
                audit::settle(call.venue, &call.caller.name).await?;
            }
            audit::report(call.venue, self.repair).await
        };
        match report.await {
            Ok(report) => Ok(OpOutput::of(&report)),
            Err(AuditError::Store(error)) => Err(OpError::Store(error)),
            Err(AuditError::Bus(error)) => Err(OpError::Failed(error.to_string())),
        }
    }
}

/// Say which guarantees hold with the settings of the servers, and what to change.
#[derive(Deserialize, JsonSchema)]
struct ExamineVenue {}

impl Operation for ExamineVenue {
    const PATH: &'static str = "v/ops/venue/doctor";
    const EFFECT: Effect = Effect::Read;

    fn needs(&self) -> Result<Vec<Need>, OpError> {
        Need::only("venue/doctor", ResourcePath::owner_document("policy"))
    }

    async fn run(self, call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        call.require_operator::<Self>("")?;
        let found = doctor::examine(call.venue).await;
        Ok(OpOutput::of(&found.map_err(|error| OpError::Failed(error.to_string()))?.view()))
    }
}

/// Copy the whole store, as it stands at one moment, while work goes on: into a folder of this name below `backups` in
/// the store's own. A store on servers is copied by their own tools.
#[derive(Deserialize, JsonSchema)]
struct BackupVenue {
    /// letters, digits, `.`, `_` and `-`
    name: String,
}

impl Operation for BackupVenue {
    const PATH: &'static str = "v/ops/venue/backup";
    // A second copy under the same name is refused. With `Once` each copy would hold its own call as one without an end,
    // and a restored store would ask what came of it.
    const EFFECT: Effect = Effect::Idempotent;

    fn needs(&self) -> Result<Vec<Need>, OpError> {
        Need::only("venue/backup", ResourcePath::owner_document("policy"))
    }

    async fn run(self, call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        call.require_operator::<Self>("")?;
        Ok(OpOutput::of(&backup::make(call.venue, &self.name).await?))
    }
}
