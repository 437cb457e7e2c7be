//! `v/ops/human/ask`: an agent's questions to a person. The call waits like one that needs an
//! approval; the answers are its result.

use crate::domain::approval::Question;
use crate::domain::limits::{APPROVAL_TIME_MAX, QUESTIONS};
use crate::venue::operation::{Effect, Invocation, Need, OpError, Operation, Output, RegisteredOperation, operation};
use schemars::JsonSchema;
use serde::Deserialize;

/// Its catalog path.
pub const ASK: &str = "v/ops/human/ask";

/// The operations of this group.
pub fn operations() -> Vec<RegisteredOperation> {
    vec![operation::<AskPerson>()]
}

/// Ask a person. The answers come back as the result, however long it takes.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct AskPerson {
    pub(crate) title: String,
    #[schemars(length(min = 1, max = QUESTIONS))]
    pub(crate) asks: Vec<Question>,
    #[schemars(range(min = 1), description = format!(
        "seconds that the person has, at most {}; absent: as many as for an approval", APPROVAL_TIME_MAX.as_secs()
    ))]
    pub(crate) expires: Option<u64>,
}

impl Operation for AskPerson {
    const PATH: &'static str = ASK;
    const EFFECT: Effect = Effect::Read;

    fn needs(&self) -> Result<Vec<Need>, OpError> {
        Need::none()
    }

    async fn run(self, _call: &Invocation<'_>) -> Result<Output, OpError> {
        Err(OpError::Invalid(format!("`{ASK}` is for agents: in a turn it waits for a person")))
    }
}
