//! Why a model call can't go anywhere.

/// Why a call can't go anywhere; none of them goes away by asking again.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// No such provider.
    #[error("unknown provider `{given}`, expected one of {known}")]
    UnknownProvider {
        /// As given.
        given: String,
        /// Those that exist.
        known: String,
    },
    /// The variable of the key is unset or empty.
    #[error("no API key: `{0}` is not set")]
    NoKey(String),
    /// Not an HTTP URL.
    #[error("base URL `{url}` is not usable: {reason}")]
    BadUrl {
        /// As given.
        url: String,
        /// What is wrong.
        reason: String,
    },
    /// The configuration names no such host.
    #[error("base URL `{0}` is not an endpoint that the venue's configuration names, and the model has no `key`")]
    NotNamed(String),
    /// The configuration names no such host, and `http/*` may not call it.
    #[error("base URL `{url}`: {reason}")]
    Refused {
        /// As given.
        url: String,
        /// The rule.
        reason: String,
    },
    /// It would change the URL that is called.
    #[error(
        "model name `{}` is not usable: a provider's URL may contain it, so it has no `?`, `#`, `%`, `\\`, control character or part that is `.` or `..`", .0.escape_debug()
    )]
    BadName(String),
    /// The provider has no URL of its own.
    #[error("provider `{provider}` needs a base URL: {hint}")]
    NoUrl {
        /// Its name.
        provider: &'static str,
        /// What the URL looks like.
        hint: &'static str,
    },
    /// The caller of this model can't open secrets.
    #[error("the model needs the secret `{0}`, which only a worker can open")]
    NoSecret(String),
    /// Its value would break out of its line.
    #[error("header `{0}` is not usable: its value has characters that are not allowed in it")]
    BadHeader(String),
    /// Bound to other hosts.
    #[error(
        "secret `{name}` may not go to `{place}`: it is bound to {hosts} (over plain http only where the port is named)"
    )]
    NotBound {
        /// The secret's name.
        name: String,
        /// Scheme, host and port.
        place: String,
        /// Where it may go.
        hosts: String,
    },
}
