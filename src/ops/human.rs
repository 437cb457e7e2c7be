//! `v/ops/human/ask`: questions of an agent to a person. The call waits like one that needs an approval; the answers
//! are its result.

use crate::domain::approval::Question;
use crate::domain::ids::Owner;
use crate::domain::ids::did::DidKey;
use crate::domain::limits::{APPROVAL_TIME_MAX, QUESTIONS};
use crate::venue::operation::{Effect, Invocation, Need, OpError, OpOutput, Operation, RegisteredOperation, operation};
use schemars::JsonSchema;
use serde::Deserialize;

/// Catalogue path of the operation.
pub const ASK: &str = "v/ops/human/ask";

/// Covia's names for asking a person, and for the list of questions.
pub const ALIASES: [(&str, &str); 2] = [("v/ops/hitl/request", ASK), ("v/ops/hitl/list", "v/ops/approval/list")];

/// Returns the operations of this group.
pub fn operations() -> Vec<RegisteredOperation> {
    vec![operation::<AskPerson>()]
}

/// Ask a person. The answers come back as the result, however long it takes.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct AskPerson {
    pub(crate) title: String,
    /// explanation that stands behind the title
    pub(crate) description: Option<String>,
    #[schemars(length(min = 1, max = QUESTIONS))]
    pub(crate) asks: Vec<Question>,
    #[schemars(range(min = 1), description = format!(
        "seconds that the person has, at most {}; absent: as many as for an approval", APPROVAL_TIME_MAX.as_secs()
    ))]
    pub(crate) expires: Option<u64>,
    /// the same as `expires`
    #[schemars(range(min = 1))]
    pub(crate) timeout: Option<u64>,
    /// the owner whose people answer: no one else can
    pub(crate) user: Option<String>,
}

/// A question to people who don't answer for the owner.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`user`: the people of `{owner}` answer, and no one else; leave it out")]
pub(crate) struct OtherPeopleError {
    /// Owner of the agent.
    pub(crate) owner: Owner,
    /// User whom the call names.
    pub(crate) user: String,
}

impl AskPerson {
    /// Returns the text above the questions.
    pub(crate) fn heading(&self) -> String {
        let about = self.description.as_deref().map(|about| format!(": {about}"));
        format!("{}{}", self.title, about.unwrap_or_default())
    }

    /// Returns the seconds that the person has.
    pub(crate) fn seconds(&self) -> Option<u64> {
        self.expires.or(self.timeout)
    }

    /// Refuses a question to anybody except the owner's people.
    pub(crate) fn check_user(&self, owner: &Owner) -> Result<(), OtherPeopleError> {
        let did = DidKey::from_owner(owner).map(|key| key.to_string());
        match self.user.as_deref() {
            Some(user) if user != owner.to_string() && Some(user) != did.as_deref() => {
                Err(OtherPeopleError { owner: owner.clone(), user: user.to_owned() })
            }
            Some(_) | None => Ok(()),
        }
    }
}

impl Operation for AskPerson {
    const PATH: &'static str = ASK;
    const EFFECT: Effect = Effect::Read;

    fn needs(&self) -> Result<Vec<Need>, OpError> {
        Need::none()
    }

    async fn run(self, _call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        Err(OpError::Invalid(format!("`{ASK}` is for agents: in a turn it waits for a person")))
    }
}
