//! Errors of a model call without a destination.

/// Reason why a call has no destination; a repetition doesn't help.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// There is no provider of this name.
    #[error(
        "unknown provider `{given}`{hint}, expected one of {known}, or a name of your own with \
         `models.endpoints.NAME.base_url` in the configuration"
    )]
    UnknownProvider {
        /// Name as given.
        given: String,
        /// Proposal of a name that is near; empty without one.
        hint: String,
        /// Names of the providers that exist.
        known: String,
    },
    /// The environment variable of the key is unset or empty.
    #[error("no API key: `{0}` is not set")]
    NoKey(String),
    /// The text is not a usable HTTP URL.
    #[error("base URL `{url}` is not usable: {reason}")]
    BadUrl {
        /// URL as given.
        url: String,
        /// What was expected.
        reason: String,
    },
    /// The configuration names no such host.
    #[error("base URL `{0}` is not an endpoint that the venue's configuration names, and the model has no `key`")]
    UnlistedHost(String),
    /// The configuration names no such host, and `http/*` may not call it.
    #[error("base URL `{url}`: {reason}")]
    HostRefused {
        /// URL as given.
        url: String,
        /// Rule that refuses it.
        reason: String,
    },
    /// The model's name would change the URL that is called.
    #[error(
        "model name `{}` is not usable: a provider's URL may contain it, so it has no `?`, `#`, `%`, `\\`, control character or part that is `.` or `..`", .0.escape_debug()
    )]
    BadName(String),
    /// The provider has no URL of its own.
    #[error("provider `{provider}` needs a base URL: {hint}")]
    NoUrl {
        /// Name of the provider.
        provider: &'static str,
        /// Example of such a URL.
        hint: &'static str,
    },
    /// The caller of this model can't open secrets.
    #[error("the model needs the secret `{0}`, which only a worker can open")]
    NoSecret(String),
    /// The value of a header has characters that would end its line.
    #[error("header `{0}` is not usable: its value has characters that are not allowed in it")]
    BadHeader(String),
    /// The secret is bound to other hosts.
    #[error(
        "secret `{name}` may not go to `{place}`: it is bound to {hosts} (over plain http only where the port is named)"
    )]
    NotBound {
        /// Name of the secret.
        name: String,
        /// Scheme, host and port.
        place: String,
        /// Hosts that it may go to.
        hosts: String,
    },
}
