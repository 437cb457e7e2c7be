//! Errors of submissions.

use crate::domain::authority::grant::GrantError;
use crate::domain::decode::DataError;
use crate::domain::ids::{IdError, JobId};
use crate::domain::job::ErrorCode;
use crate::domain::limits::SESSION_CONTEXT_BYTES;
use crate::domain::resource::scratchpad::BucketsError;
use crate::domain::turn::options::{LoadsError, OutputTargetError};
use crate::domain::values::entities::EntityIdsRequired;
use crate::domain::values::protected_keys;
use crate::store::StoreError;

/// Why a submission can't become an admission.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SubmissionError {
    /// The body isn't JSON of the right shape.
    #[error("malformed submission: {0}")]
    Malformed(DataError),
    /// The body is larger than the limit.
    #[error(
        "the submission has {bytes} bytes, expected at most {limit}; put large values into `w/` and name their path"
    )]
    TooLarge {
        /// Bytes of the submission.
        bytes: usize,
        /// Most bytes allowed.
        limit: usize,
    },
    /// `replyTo` isn't an allowed inbox.
    #[error("`replyTo` `{0}` is not allowed, expected `_INBOX.>` or `trellis.reply.<tenant>.<user>.>`")]
    ReplyTo(String),
    /// `replyTo` isn't an inbox of the submitter's own.
    #[error(
        "`replyTo` `{subject}` is not allowed, expected `trellis.reply.{tenant}.{user}.>`: with a token an answer goes \
         to the inbox of its owner alone"
    )]
    ReplyToOther {
        /// Subject of the submission.
        subject: String,
        /// Tenant of the owner, as it is written in subjects.
        tenant: String,
        /// User of the owner, as it is written in subjects.
        user: String,
    },
    /// The values are larger than the limit.
    #[error("`sessionContext` has {0} bytes, expected at most {SESSION_CONTEXT_BYTES}; put large values into `w/`")]
    ContextTooLarge(usize),
    /// The caller may not set some of the values.
    #[error(transparent)]
    Override(#[from] protected_keys::OverrideDenied),
    /// The agent requires entities, and the message names none.
    #[error(transparent)]
    EntityIds(#[from] EntityIdsRequired),
    /// The budget is invalid, or is given for a message.
    #[error("`budget`: {0}")]
    Budget(String),
    /// A priority is given for a message.
    #[error("`priority`: a message has none and waits behind no task, give it to a task")]
    Priority,
    /// The schema of the output can't be used, or is given for a message.
    #[error("`responseSchema`: {0}")]
    ResponseSchema(String),
    /// Paths to show break a rule.
    #[error("`loads`: {0}")]
    Loads(LoadsError),
    /// The output may not go to the path, or the path is given for a message.
    #[error("`outputPath`: {0}")]
    OutputPath(Box<OutputTargetError>),
    /// Names of buckets break a rule.
    #[error("`contextIds`: {0}")]
    ContextIds(BucketsError),
    /// The job takes no message, or none in this way.
    #[error("job `{job}` {why}")]
    NotOpen {
        /// Id of the job.
        job: JobId,
        /// Reason of the refusal.
        why: String,
    },
    /// The owner has no such job.
    #[error("no job `{0}`")]
    NoJob(JobId),
    /// A grant breaks a rule.
    #[error(transparent)]
    Grant(#[from] GrantError),
    /// The id is no legal name, or one that only the venue makes.
    #[error(transparent)]
    Id(#[from] IdError),
    /// The submission sets what only the venue may set.
    #[error(
        "`{0}` is set by the venue, leave it out; authority is named by `context` and by the `Authorization` header"
    )]
    Forged(&'static str),
}

/// Why the admission of a submission is not prepared.
#[derive(Debug, Clone, thiserror::Error)]
pub enum PreparationError {
    /// The submission is refused.
    #[error(transparent)]
    Submission(#[from] SubmissionError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl SubmissionError {
    /// Returns the status code of HTTP for it.
    pub const fn status(&self) -> u16 {
        match self {
            Self::Malformed(_)
            | Self::ReplyTo(_)
            | Self::ReplyToOther { .. }
            | Self::Grant(_)
            | Self::ContextIds(_)
            | Self::Priority
            | Self::Budget(_)
            | Self::EntityIds(_)
            | Self::ResponseSchema(_)
            | Self::Loads(_)
            | Self::OutputPath(_)
            | Self::Id(_)
            | Self::Forged(_) => 400,
            Self::Override(_) => 403,
            Self::NoJob(_) => 404,
            Self::NotOpen { .. } => 409,
            Self::TooLarge { .. } | Self::ContextTooLarge(_) => 413,
        }
    }

    /// Returns the code of the error in the answer.
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
