//! URLs that a venue calls: checks that don't depend on the configuration.

use reqwest::Url;

/// Returns a URL that can be called, or what is wrong with it.
pub fn parse_callable(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|error| error.to_string())?;
    check(&url)?;
    match url.fragment() {
        Some(_) => Err("a URL that is called has no `#`".into()),
        None => Ok(url),
    }
}

/// Checks that scheme and host of a URL can be called.
pub fn check(url: &Url) -> Result<(), String> {
    if !matches!(url.scheme(), "http" | "https") {
        return Err(format!("`url` expected `http://` or `https://`, got `{}:`", url.scheme()));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("credentials are not allowed in a URL; send a header".to_owned());
    }
    Ok(())
}
