//! Errors of requests to the endpoint of scripted models.

/// Reason why a request can't be answered by a script.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum MockRequestError {
    /// The body is not JSON; the text of the JSON parser.
    #[error("{reason}")]
    NotJson { reason: String },
    /// The body is JSON, but not an object.
    #[error("expected an object")]
    NotAnObject,
    /// The body doesn't name a model.
    #[error("expected `model`, got none")]
    NoModel,
    /// The messages are missing or not a list.
    #[error("expected a list `{key}`")]
    NoList { key: &'static str },
    /// The input of a response is missing, or neither a text nor a list.
    #[error("expected `input`, a text or a list")]
    NoInput,
    /// A message has a role that the protocol doesn't know, or none.
    #[error("unknown role {role:?}")]
    UnknownRole { role: Option<String> },
    /// An item of a response has a type that is not known for its role.
    #[error("unknown item {kind:?} of role {role:?}")]
    UnknownItem { kind: String, role: Option<String> },
    /// The last part of the path names no method of Gemini.
    #[error("expected `MODEL:generateContent`, got `{call}`")]
    UnknownMethod { call: String },
}

impl MockRequestError {
    /// Makes the error of a message's role.
    pub(super) fn unknown_role(role: Option<&str>) -> Self {
        Self::UnknownRole { role: role.map(str::to_owned) }
    }
}
