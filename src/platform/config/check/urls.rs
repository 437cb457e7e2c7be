//! A URL of a setting, or of the file of its `…_file`, so that a password needn't be in the environment.

use super::values::path;
use crate::config::files::{SETTINGS_FILE_BYTES, read_text_file};
use crate::config::layers::{ConfigLayers, SettingOrigin};
use crate::config::mask::error_value;

/// The text of a URL, and where it was found.
pub(super) struct UrlSetting {
    pub text: String,
    key: String,
    origin: SettingOrigin,
    /// The file that it was read from.
    file: Option<String>,
}

impl UrlSetting {
    /// Records that the text is no such URL. The error shows no content of a file and no login; `why` must not either.
    pub fn refuse(self, l: &mut ConfigLayers, expected: &str, why: Option<&str>) {
        let why = why.map(|why| format!(": {why}")).unwrap_or_default();
        let problem = match &self.file {
            Some(file) => format!("expected {expected} in file `{file}`, and something else is there{why}"),
            None => format!("expected {expected}, got `{}`{why}", error_value(&self.key, &self.text)),
        };
        l.add_error(&self.key, self.origin, problem);
    }
}

/// Reads the setting `key`, or the file that `{key}_file` names, once at the start. `None`: an error is recorded.
pub(super) fn read_url(l: &mut ConfigLayers, key: &str) -> Option<UrlSetting> {
    let (setting, file_key) = (l.entry(key).clone(), format!("{key}_file"));
    let Some(file) = path(l, &file_key) else {
        let text = setting.value.as_str().unwrap_or_default().to_owned();
        return Some(UrlSetting { text, key: key.to_owned(), origin: setting.origin, file: None });
    };
    let origin = l.entry(&file_key).origin.clone();
    if setting.origin != SettingOrigin::Default {
        l.add_error(&file_key, origin, format!("`{key}` is set as well ({}): set one of the two", setting.origin));
        return None;
    }
    let shown = file.display();
    match read_text_file(&file, SETTINGS_FILE_BYTES) {
        Err(error) => {
            l.add_error(&file_key, origin, format!("file `{shown}` can't be read: {error}"));
            None
        }
        Ok(text) => {
            // Errors of the URL beside other settings are reported for the file's setting.
            l.set_origin(key, origin.clone());
            Some(UrlSetting { text: text.trim().to_owned(), key: file_key, origin, file: Some(shown.to_string()) })
        }
    }
}

/// Reads a URL with [`read_url`] and parses it by `read`.
pub(in crate::config) fn read<T: Default>(
    l: &mut ConfigLayers,
    key: &str,
    expected: &str,
    read: impl Fn(&str) -> Option<T>,
) -> T {
    let Some(given) = read_url(l, key) else { return T::default() };
    read(&given.text).unwrap_or_else(|| {
        given.refuse(l, expected, None);
        T::default()
    })
}
