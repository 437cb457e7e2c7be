//! Messages, tasks and cards of the Agent2Agent protocol 1.0.1, as its JSON has them.
//!
//! The types are our own and not those of `a2a-lf`: that crate brings a second library of times and a third version of
//! base64, its errors name no place, and it doesn't read the field names of the protocol's `.proto` file, which JSON may
//! have and the protocol's test kit sends. Unknown fields are skipped, and a null is an absent field.

mod card;
mod error;
mod message;
mod request;
mod task;

pub use card::{
    A2aCapabilities, A2aCard, A2aExtension, A2aHttpAuth, A2aInterface, A2aScopes, A2aSecurityRequirement,
    A2aSecurityScheme, A2aSkillView,
};
pub use error::{A2aErrorInfo, A2aRestError, A2aRpcError, A2aRpcErrorAnswer, A2aRpcResult, A2aStatusView};
pub use message::{A2aArtifact, A2aMessage, A2aPart, A2aRole};
pub use request::{
    A2aAuthentication, A2aListRequest, A2aNotificationConfig, A2aNotificationPage, A2aNotificationRequest,
    A2aSendConfiguration, A2aSendRequest, A2aTaskRequest,
};
pub use task::{
    A2aArtifactUpdate, A2aNothing, A2aSendAnswer, A2aStatusUpdate, A2aStreamEvent, A2aTask, A2aTaskPage, A2aTaskState,
    A2aTaskStatus,
};
