//! `url` of a section, or what the file of `url_file` holds: a URL with a password that nobody reads in the environment.

use super::super::SettingOrigin;
use super::{Layers, parse, path};

/// Read when the process starts. No error shows what is in the file.
pub(super) fn read<T: Default>(l: &mut Layers, section: &str, expected: &str, read: impl Fn(&str) -> Option<T>) -> T {
    let [url, url_file] = ["url", "url_file"].map(|name| format!("{section}.{name}"));
    let Some(file) = path(l, &url_file) else { return parse(l, &url, expected, read) };
    let (origin, other) = (l.entry(&url_file).origin.clone(), l.entry(&url).origin.clone());
    if other != SettingOrigin::Default {
        l.fail(&url_file, origin, format!("`{url}` is set as well ({other}): set one of the two"));
        return T::default();
    }
    let shown = file.display();
    let problem = match std::fs::read_to_string(&file) {
        Err(error) => format!("file `{shown}` can't be read: {error}"),
        Ok(text) => match read(text.trim()) {
            // What is wrong with it beside other settings is told of this one.
            Some(value) => {
                l.set_origin(&url, origin);
                return value;
            }
            None => format!("expected {expected} in file `{shown}`, and something else is there"),
        },
    };
    l.fail(&url_file, origin, problem);
    T::default()
}
