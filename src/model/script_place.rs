//! Places of rules files: the one file, or the one folder, that the venue's configuration names.

use crate::config::files::{SETTINGS_FILE_BYTES, read_text_file};
use crate::model::calls_log::CallsLog;
use crate::model::rules::ScriptRules;
use crate::model::rules_error::RulesError;
use std::path::{Component, Path, PathBuf};

/// Entries of a folder, and levels of folders in it, that are searched for rules at the start.
const FOLDER_ENTRIES: usize = 10_000;
const FOLDER_LEVELS: usize = 4;

/// Extensions of rules files; a file of another name is read only when an agent names it.
const RULES_EXTENSIONS: [&str; 3] = ["toml", "json", "rules"];

/// Error of rules that can't be loaded; a repetition doesn't help. Nothing is said about files outside the place.
#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    /// The venue has no rules.
    #[error(
        "the provider `scripted` has no model `{0}` here, only `echo` and `never`; who runs this venue names a file or a folder of rules in `models.scripted`"
    )]
    NoRules(String),
    /// The name is not that of a file in the folder.
    #[error("there is no rules file `{0}` in the folder that `models.scripted` names")]
    Unknown(String),
    /// The file can't be read.
    #[error("rules file `{file}` can't be read: {reason}")]
    Unreadable {
        /// Name as given.
        file: String,
        /// Message of the system.
        reason: String,
    },
    /// The file is not a rules file.
    #[error("rules file `{file}`: {error}")]
    Rules {
        /// Name as given.
        file: String,
        /// Error of the rules.
        error: Box<RulesError>,
    },
    /// The log would be outside the folder.
    #[error("`calls_log` of rules file `{0}` is not a file in the folder of the rules")]
    LogOutside(String),
}

/// Loaded rules, with the log that they name.
#[derive(Debug)]
pub struct FoundRules {
    /// Name of the rules in messages.
    pub name: String,
    /// Whether they answer for every name of a model.
    pub answers_all_names: bool,
    /// Parsed rules of the file.
    pub rules: ScriptRules,
    /// Log that the file names.
    pub log: Option<CallsLog>,
}

/// Loads the rules of a model's name. It blocks.
pub fn find(place: Option<&Path>, name: &str) -> Result<FoundRules, PlaceError> {
    let place = place.ok_or_else(|| PlaceError::NoRules(name.to_owned()))?;
    if !place.is_dir() {
        return file(place);
    }
    let unknown = || PlaceError::Unknown(name.to_owned());
    let folder = place.canonicalize().map_err(|_| unknown())?;
    // A link in the folder may lead to another file of it, as where a cluster mounts its configuration.
    let path = join_inside(&folder, Path::new(name)).and_then(|path| path.canonicalize().ok());
    let path = path.filter(|path| path.starts_with(&folder) && path.is_file()).ok_or_else(unknown)?;
    read(&path, name.to_owned(), &folder, false)
}

/// Loads a rules file, for a caller that may choose any.
pub fn file(path: &Path) -> Result<FoundRules, PlaceError> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    read(path, path.display().to_string(), folder, true)
}

/// Checks the configured place before a task needs it: the file, or the files of the folder that look like rules. It
/// blocks.
pub fn check(place: &Path) -> Result<(), PlaceError> {
    if !place.is_dir() {
        return file(place).map(drop);
    }
    let mut left = FOLDER_ENTRIES;
    rules_files(place, FOLDER_LEVELS, &mut left).iter().try_for_each(|path| check_file(place, path))
}

fn check_file(folder: &Path, path: &Path) -> Result<(), PlaceError> {
    // The folder may hold other files, and files whose name no agent can write.
    let Ok(text) = read_text_file(path, SETTINGS_FILE_BYTES) else { return Ok(()) };
    match read(path, path.display().to_string(), folder, false) {
        Err(PlaceError::Rules { error, .. }) if error.may_be_other_file() && !mentions_rules(&text) => Ok(()),
        read => read.map(drop),
    }
}

/// Lists files below a folder with an extension of rules, sorted; `left` bounds the entries that are read.
fn rules_files(folder: &Path, levels: usize, left: &mut usize) -> Vec<PathBuf> {
    let Ok(entries) = folder.read_dir() else { return Vec::new() };
    let mut entries: Vec<PathBuf> = entries.filter_map(Result::ok).map(|entry| entry.path()).take(*left).collect();
    *left -= entries.len();
    entries.sort();
    let mut found = Vec::new();
    for path in entries {
        // A cluster mounts the files of a folder as links to those of a hidden one.
        let is_hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        let is_folder = path.symlink_metadata().is_ok_and(|found| found.is_dir());
        if is_folder && !is_hidden && levels > 1 {
            found.append(&mut rules_files(&path, levels - 1, left));
        } else if path.is_file()
            && path.extension().is_some_and(|ending| RULES_EXTENSIONS.iter().any(|known| ending == *known))
        {
            found.push(path);
        }
    }
    found
}

/// Whether a line of a text begins like the rules of a file.
fn mentions_rules(text: &str) -> bool {
    text.lines().any(|line| line.trim_start_matches(['[', '{', '"', '\'', ' ', '\t']).starts_with("rule"))
}

fn read(path: &Path, name: String, folder: &Path, every: bool) -> Result<FoundRules, PlaceError> {
    let unreadable = |reason: String| PlaceError::Unreadable { file: name.clone(), reason };
    let text = read_text_file(path, SETTINGS_FILE_BYTES).map_err(|error| unreadable(error.to_string()))?;
    let mut rules =
        ScriptRules::parse(&text).map_err(|error| PlaceError::Rules { file: name.clone(), error: Box::new(error) })?;
    let log = match rules.calls_log.take() {
        None => None,
        Some(log) => Some(open_log(folder, &log).ok_or_else(|| PlaceError::LogOutside(name.clone()))?),
    };
    Ok(FoundRules { name, answers_all_names: every, rules, log })
}

/// Joins a path to a folder that its name can't leave.
fn join_inside(folder: &Path, name: &Path) -> Option<PathBuf> {
    let mut parts = name.components().peekable();
    parts.peek()?;
    parts.all(|part| matches!(part, Component::Normal(_))).then(|| folder.join(name))
}

/// Makes a log in the folder, at a regular file or one that doesn't exist yet.
fn open_log(folder: &Path, log: &Path) -> Option<CallsLog> {
    let folder = folder.canonicalize().ok()?;
    let path = folder.join(log);
    let path = path.parent()?.canonicalize().ok()?.join(path.file_name()?);
    let own = path.symlink_metadata().map_or(true, |found| found.is_file());
    (own && path.starts_with(&folder)).then(|| CallsLog::new(path))
}

#[cfg(test)]
#[path = "script_place_tests.rs"]
mod tests;
