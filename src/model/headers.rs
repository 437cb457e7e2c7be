//! The headers that an agent's configuration adds to a call, with the secrets in them: each goes only where it is bound.

use crate::domain::chat::{HeaderText, ModelSettings};
use crate::model::endpoint::TargetError;
use crate::venue::outbound::destination;
use crate::venue::secrets::Secret;
use reqwest::Url;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

/// The headers of a call to `url`, with the secrets that were opened for it.
pub(super) fn resolve(settings: &ModelSettings, secrets: &[Secret], url: &Url) -> Result<HeaderMap, TargetError> {
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

/// Whether a secret may go to this place.
pub(super) fn check_bound(secret: &Secret, url: &Url) -> Result<(), TargetError> {
    let to = destination(url);
    if secret.hosts.permits(&to) {
        return Ok(());
    }
    let hosts: Vec<_> = secret.hosts.hosts().iter().map(|host| format!("`{host}`")).collect();
    let hosts = if hosts.is_empty() { "no host".to_owned() } else { hosts.join(", ") };
    Err(TargetError::NotBound { name: secret.name.to_string(), place: to.place(), hosts })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::chat::ModelHeaders;
    use crate::domain::secret::{Binding, Plain};
    use crate::model::endpoint::{Keys, ProviderOptions, resolve};
    use serde_json::{Value, json};

    fn secret(name: &str, value: &str, hosts: &[&str]) -> Secret {
        let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
        Secret {
            name: name.parse().unwrap(),
            value: Plain::new(value.into()).unwrap(),
            hosts: Binding::parse(&hosts).unwrap(),
        }
    }

    fn headers(headers: Value) -> ModelHeaders {
        serde_json::from_value(headers).unwrap()
    }

    fn check(base_url: Option<&str>, given: Value, secrets: &[Secret]) -> Result<Vec<(String, String)>, String> {
        let settings = ModelSettings {
            base_url: base_url.map(Into::into),
            headers: headers(given),
            ..ModelSettings::new("openai", "m")
        };
        let keys = Keys::new([("OPENAI_API_KEY".to_owned(), "sk-env".to_owned())]);
        let options = ProviderOptions { keys, ..ProviderOptions::default() };
        let target = resolve(&settings, secrets, &options).map_err(|error| error.to_string())?;
        assert!(!format!("{target:?}").contains("gw-1"), "{target:?}");
        let shown = |(name, value): (&HeaderName, &HeaderValue)| (name.to_string(), value.to_str().unwrap().to_owned());
        Ok(target.headers.iter().map(shown).collect())
    }

    #[test]
    fn a_secret_in_a_header_goes_where_it_is_bound() {
        let given = || json!({"X-Gateway": {"$secret": "s/GW", "prefix": "Token "}, "X-Title": "a title"});
        let bound = || secret("GW", "gw-1", &["api.openai.com"]);
        let sent = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
            pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        let both = sent(&[("x-gateway", "Token gw-1"), ("x-title", "a title")]);
        assert_eq!(check(None, given(), &[bound()]), Ok(both));
        for (base_url, secrets, part) in [
            (None, vec![], "the model needs the secret `s/GW`, which only a worker can open"),
            (None, vec![secret("OTHER", "gw-1", &["api.openai.com"])], "the secret `s/GW`"),
            (None, vec![secret("GW", "gw-1", &["example.com"])], "may not go to `https://api.openai.com:443`"),
            (None, vec![secret("GW", "gw-1", &[])], "it is bound to no host"),
            (None, vec![secret("GW", "gw-1\r\nHost: x", &["api.openai.com"])], "header `X-Gateway` is not usable"),
            // A secret in a header is no key: a URL that the venue doesn't name needs one.
            (Some("https://example.com/v1"), vec![secret("GW", "gw-1", &["example.com"])], "the model has no `key`"),
        ] {
            let error = check(base_url, given(), &secrets).unwrap_err();
            assert!(error.contains(part) && !error.contains("gw-1"), "{base_url:?}: {error}");
        }
    }
}
