//! Headers that an agent's configuration adds to a call; a secret in one goes only to the hosts it is bound to.

use crate::domain::chat::{HeaderText, ModelSettings};
use crate::model::target_error::TargetError;
use crate::venue::outbound::url_destination;
use crate::venue::secrets::OpenedSecret;
use reqwest::Url;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

/// Resolves the headers of a call to `url`, with the secrets that were opened for it.
pub(super) fn resolve(settings: &ModelSettings, secrets: &[OpenedSecret], url: &Url) -> Result<HeaderMap, TargetError> {
    let mut headers = HeaderMap::new();
    for (name, text) in &settings.headers {
        let bad = || TargetError::BadHeader(name.clone());
        let header = HeaderName::from_bytes(name.as_bytes()).map_err(|_| bad())?;
        let mut value = match text {
            HeaderText::Plain(text) => HeaderValue::from_str(text).map_err(|_| bad())?,
            HeaderText::Secret { name, prefix } => {
                let secret = secrets.iter().find(|secret| secret.name == *name);
                let secret = secret.ok_or_else(|| TargetError::NoSecret(name.path()))?;
                check_bound(secret, url)?;
                HeaderValue::from_str(&format!("{prefix}{}", secret.value.reveal())).map_err(|_| bad())?
            }
        };
        value.set_sensitive(text.secret().is_some());
        headers.insert(header, value);
    }
    Ok(headers)
}

/// Checks that a secret may be sent to this URL.
pub(super) fn check_bound(secret: &OpenedSecret, url: &Url) -> Result<(), TargetError> {
    let to = url_destination(url);
    if secret.hosts.permits(&to) {
        return Ok(());
    }
    let hosts: Vec<_> = secret.hosts.hosts().iter().map(|host| format!("`{host}`")).collect();
    let hosts = if hosts.is_empty() { "no host".to_owned() } else { hosts.join(", ") };
    Err(TargetError::NotBound { name: secret.name.to_string(), place: to.origin(), hosts })
}
