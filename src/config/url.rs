//! URLs that a venue calls: what is wrong with one whatever is configured.

use reqwest::Url;

/// A URL that can be called, or what is wrong with it.
pub fn callable(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|error| error.to_string())?;
    check(&url)?;
    match url.fragment() {
        Some(_) => Err("a URL that is called has no `#`".into()),
        None => Ok(url),
    }
}

/// Whether a URL's scheme and host can be called at all.
pub fn check(url: &Url) -> Result<(), String> {
    if !matches!(url.scheme(), "http" | "https") {
        return Err(format!("`url` expected `http://` or `https://`, got `{}:`", url.scheme()));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("credentials are not allowed in a URL; send a header".to_owned());
    }
    Ok(())
}
