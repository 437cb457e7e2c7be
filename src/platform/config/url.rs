//! URLs that a venue calls: checks that don't depend on the configuration.

use reqwest::Url;

/// Reason why a URL can't be called.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallableUrlError {
    /// The text is not a URL.
    #[error("{reason}")]
    Syntax {
        /// Text of the parser.
        reason: String,
    },
    /// The URL isn't one of HTTP.
    #[error("`url` expected `http://` or `https://`, got `{scheme}:`")]
    Scheme {
        /// Scheme of the URL.
        scheme: String,
    },
    /// The URL has a user or a password.
    #[error("credentials are not allowed in a URL; send a header")]
    Credentials,
    /// The URL has a fragment.
    #[error("a URL that is called has no `#`")]
    Fragment,
}

/// Parses a URL that can be called.
pub fn parse_callable(text: &str) -> Result<Url, CallableUrlError> {
    let url = Url::parse(text).map_err(|error| CallableUrlError::Syntax { reason: error.to_string() })?;
    check(&url)?;
    match url.fragment() {
        Some(_) => Err(CallableUrlError::Fragment),
        None => Ok(url),
    }
}

/// Checks that scheme and host of a URL can be called.
pub fn check(url: &Url) -> Result<(), CallableUrlError> {
    if !matches!(url.scheme(), "http" | "https") {
        return Err(CallableUrlError::Scheme { scheme: url.scheme().to_owned() });
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(CallableUrlError::Credentials);
    }
    Ok(())
}
