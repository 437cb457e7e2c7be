//! Finds rules files of scripted models: the file that `models.scripted` names, or files in the folder that it names.

use crate::config::files::{SETTINGS_FILE_BYTES, read_text_file};
use crate::model::calls_log::CallsLog;
use crate::model::rules::ScriptRules;
use crate::model::rules_error::RulesError;
use std::path::{Component, Path, PathBuf};
use std::time::SystemTime;

/// Entries of a folder, and levels of folders in it, that are searched for rules at the start.
const FOLDER_ENTRIES: usize = 10_000;
const FOLDER_LEVELS: usize = 4;

/// Extensions of rules files; a file of another name is read only when an agent names it.
const RULES_EXTENSIONS: [&str; 3] = ["toml", "json", "rules"];

/// Error of rules that can't be loaded; a repetition doesn't help. It says nothing about files outside the configured
/// folder, not even whether they exist.
#[derive(Debug, thiserror::Error)]
pub enum RulesPathError {
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

/// A rules file as it was read: a later change is noticed by its time and size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RulesStamp {
    path: PathBuf,
    modified: Option<SystemTime>,
    bytes: u64,
}

impl RulesStamp {
    /// Reads the time and the size of a file; `None` if there is none.
    fn read(path: &Path) -> Option<Self> {
        let found = path.metadata().ok()?;
        Some(Self { path: path.to_owned(), modified: found.modified().ok(), bytes: found.len() })
    }

    /// Whether the file has another content by now. One that is gone counts as unchanged.
    pub fn has_changed(&self) -> bool {
        Self::read(&self.path).is_some_and(|now| now != *self)
    }
}

/// Loaded rules, with the log that they name.
#[derive(Debug)]
pub struct FoundRules {
    /// Name of the rules in messages.
    pub name: String,
    /// Whether they answer for every name of a model: true of the one configured file, false of a file in a folder.
    pub answers_all_names: bool,
    /// The file as it was read.
    pub stamp: Option<RulesStamp>,
    /// Parsed rules of the file.
    pub rules: ScriptRules,
    /// Log that the file names.
    pub log: Option<CallsLog>,
}

/// Loads the rules for the model `name`: those of the file `configured`, or of the file with that relative path in the
/// folder `configured`. It blocks.
pub fn find(configured: Option<&Path>, name: &str) -> Result<FoundRules, RulesPathError> {
    let configured = configured.ok_or_else(|| RulesPathError::NoRules(name.to_owned()))?;
    if !configured.is_dir() {
        return file(configured);
    }
    let unknown = || RulesPathError::Unknown(name.to_owned());
    let folder = configured.canonicalize().map_err(|_| unknown())?;
    // A link in the folder may lead to another file of it, as where a cluster mounts its configuration.
    let path = join_inside(&folder, Path::new(name)).ok_or_else(unknown)?;
    let target = path.canonicalize().map_err(|_| unknown())?;
    if !target.starts_with(&folder) || !target.is_file() {
        return Err(unknown());
    }
    // By its link: another target is another content.
    let stamp = RulesStamp::read(&path);
    Ok(FoundRules { stamp, ..read(&target, name.to_owned(), &folder, false)? })
}

/// Loads a rules file at any path; only what an operator chose may come here. It blocks.
pub fn file(path: &Path) -> Result<FoundRules, RulesPathError> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    read(path, path.display().to_string(), folder, true)
}

/// Checks the rules before a task needs them: those of the file `configured`, or of each file in the folder
/// `configured` that looks like rules. It blocks.
pub fn check(configured: &Path) -> Result<(), RulesPathError> {
    if !configured.is_dir() {
        return file(configured).map(drop);
    }
    let mut left = FOLDER_ENTRIES;
    rules_files(configured, FOLDER_LEVELS, &mut left).iter().try_for_each(|path| check_file(configured, path))
}

fn check_file(folder: &Path, path: &Path) -> Result<(), RulesPathError> {
    // The folder may hold other files, and files whose name no agent can write.
    let Ok(text) = read_text_file(path, SETTINGS_FILE_BYTES) else { return Ok(()) };
    match read(path, path.display().to_string(), folder, false) {
        Err(RulesPathError::Rules { error, .. }) if error.may_be_other_file() && !mentions_rules(&text) => Ok(()),
        read => read.map(drop),
    }
}

/// Lists files with an extension of rules in a folder and in `levels - 1` levels of folders below it, sorted. `left` is
/// how many more entries may be read; those behind them are left out.
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

/// Reads and parses the rules file at `path`, which messages call `name`; its log must be in `folder`.
fn read(path: &Path, name: String, folder: &Path, answers_all_names: bool) -> Result<FoundRules, RulesPathError> {
    let unreadable = |reason: String| RulesPathError::Unreadable { file: name.clone(), reason };
    let stamp = RulesStamp::read(path);
    let text = read_text_file(path, SETTINGS_FILE_BYTES).map_err(|error| unreadable(error.to_string()))?;
    let mut rules = ScriptRules::parse(&text)
        .map_err(|error| RulesPathError::Rules { file: name.clone(), error: Box::new(error) })?;
    let log = match rules.calls_log.take() {
        None => None,
        Some(log) => Some(open_log(folder, &log).ok_or_else(|| RulesPathError::LogOutside(name.clone()))?),
    };
    Ok(FoundRules { name, answers_all_names, stamp, rules, log })
}

/// Joins the relative path `name` to a folder; `None` if it is empty or has a part such as `..` that leads out.
fn join_inside(folder: &Path, name: &Path) -> Option<PathBuf> {
    let mut parts = name.components().peekable();
    parts.peek()?;
    parts.all(|part| matches!(part, Component::Normal(_))).then(|| folder.join(name))
}

/// Returns the log at `log`, relative to `folder` or absolute; `None` unless that is in the folder, and a regular file
/// or nothing yet.
fn open_log(folder: &Path, log: &Path) -> Option<CallsLog> {
    let folder = folder.canonicalize().ok()?;
    let path = folder.join(log);
    let path = path.parent()?.canonicalize().ok()?.join(path.file_name()?);
    let own = path.symlink_metadata().map_or(true, |found| found.is_file());
    (own && path.starts_with(&folder)).then(|| CallsLog::new(path))
}

#[cfg(test)]
#[path = "rules_path_tests.rs"]
mod tests;
