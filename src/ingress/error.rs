//! Why a submission is not let in.

use crate::domain::authority::grant::GrantError;
use crate::domain::decode::Wrong;
use crate::domain::ids::{IdError, JobId};
use crate::domain::job::ErrorCode;
use crate::domain::limits::SESSION_CONTEXT_BYTES;
use crate::domain::values::entities::EntityIdsRequired;
use crate::domain::values::protected;

/// Why a submission can't become an admission.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SubmissionError {
    /// Not JSON of the right shape.
    #[error("malformed submission: {0}")]
    Malformed(Wrong),
    /// Over the limit.
    #[error(
        "the submission has {bytes} bytes, expected at most {limit}; put large values into `w/` and name their path"
    )]
    TooLarge {
        /// As sent.
        bytes: usize,
        /// Allowed.
        limit: usize,
    },
    /// Not an inbox of the caller.
    #[error("`replyTo` `{0}` is not allowed, expected `_INBOX.>` or `trellis.reply.<tenant>.<user>.>`")]
    ReplyTo(String),
    /// `replyTo` is somewhere that isn't the submitter's own.
    #[error(
        "`replyTo` `{subject}` is not allowed, expected `trellis.reply.{tenant}.{user}.>`: with a token an answer goes \
         to the inbox of its owner alone"
    )]
    ReplyToOther {
        /// As named.
        subject: String,
        /// The owner's tenant, as it stands in subjects.
        tenant: String,
        /// The owner's user, as it stands in subjects.
        user: String,
    },
    /// Values over the limit.
    #[error("`sessionContext` has {0} bytes, expected at most {SESSION_CONTEXT_BYTES}; put large values into `w/`")]
    ContextTooLarge(usize),
    /// Values that the caller may not set.
    #[error(transparent)]
    Override(#[from] protected::OverrideDenied),
    /// A message to an agent that asks for entities, without any.
    #[error(transparent)]
    EntityIds(#[from] EntityIdsRequired),
    /// A budget that can't be meant, or of a message.
    #[error("`budget`: {0}")]
    Budget(String),
    /// A priority of a message.
    #[error("`priority`: a message has none and waits behind no task, give it to a task")]
    Priority,
    /// A type of its output that can't be kept, or of a message.
    #[error("`responseSchema`: {0}")]
    ResponseSchema(String),
    /// Paths to show that break a rule.
    #[error("`loads`: {0}")]
    Loads(String),
    /// Nowhere that the output may go to, or of a message.
    #[error("`outputPath`: {0}")]
    OutputPath(String),
    /// Names of buckets that break a rule.
    #[error("`contextIds`: {0}")]
    ContextIds(String),
    /// A job that takes no message, or none by this way.
    #[error("job `{job}` {why}")]
    NotOpen {
        /// Which.
        job: JobId,
        /// Why.
        why: String,
    },
    /// No such job, to this owner.
    #[error("no job `{0}`")]
    NoJob(JobId),
    /// A grant that breaks a rule.
    #[error(transparent)]
    Grant(#[from] GrantError),
    /// Its id is no legal name, or one that only the venue makes.
    #[error(transparent)]
    Id(#[from] IdError),
    /// It says of itself what only the venue says.
    #[error(
        "`{0}` is set by the venue, leave it out; authority is named by `context` and by the `Authorization` header"
    )]
    Forged(&'static str),
}

impl SubmissionError {
    /// As it stands in the terminal answer.
    pub const fn code(&self) -> ErrorCode {
        match self {
            Self::Malformed(_)
            | Self::TooLarge { .. }
            | Self::ReplyTo(_)
            | Self::ReplyToOther { .. }
            | Self::ContextTooLarge(_)
            | Self::ContextIds(_)
            | Self::Priority
            | Self::ResponseSchema(_)
            | Self::Loads(_)
            | Self::OutputPath(_)
            | Self::Id(_)
            | Self::NotOpen { .. }
            | Self::NoJob(_)
            | Self::Budget(_) => ErrorCode::Refused,
            Self::Override(_) => ErrorCode::ContextOverrideDenied,
            Self::EntityIds(_) => ErrorCode::EntityIdsRequired,
            Self::Grant(_) => ErrorCode::GrantInvalid,
            Self::Forged(_) => ErrorCode::Forged,
        }
    }
}
