//! Sources of keys: the environment, a file, and for a process without both a file that it makes.

use super::random_bytes;
use crate::config::files::{SETTINGS_FILE_BYTES, read_text_file};
use crate::domain::secret::{Key, KeyError, KeyRing};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// Environment variable with keys.
pub const KEY_VARIABLE: &str = "TRELLIS_SECRETS_KEY";

/// Name of the key file that a process makes in its data folder.
const OWN_FILE: &str = "secrets.key";

/// Why there are no keys.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    /// The text is not a list of keys.
    #[error("{place}: {error}")]
    Keys {
        /// The file or the variable.
        place: String,
        /// What is wrong with the text.
        error: KeyError,
    },
    /// The file can't be read or written.
    #[error("key file `{}` can't be {verb}: {error}", .path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// `read` or `written`.
        verb: &'static str,
        /// Error of the system.
        error: io::Error,
    },
    /// Other users may read the file.
    #[error("key file `{}` can be read by others (mode {mode:03o}); `chmod 600` it", .path.display())]
    Open {
        /// Path of the file.
        path: PathBuf,
        /// Mode of the file.
        mode: u32,
    },
    /// The file exists and must not be replaced.
    #[error("key file `{}` exists; `--add` puts a new key before those in it", .0.display())]
    Exists(PathBuf),
    /// The system gives no random bytes.
    #[error("{0}")]
    Random(String),
}

/// Loads the keys of the environment, then those of a file.
pub fn load(variable: Option<&str>, file: Option<&Path>) -> Result<KeyRing, KeyFileError> {
    let ring = |place: String, text: &str| KeyRing::parse(text).map_err(|error| KeyFileError::Keys { place, error });
    let first = variable.map_or_else(|| Ok(KeyRing::default()), |text| ring(format!("`{KEY_VARIABLE}`"), text))?;
    let Some(path) = file else { return Ok(first) };
    let place = || format!("key file `{}`", path.display());
    let second = ring(place(), &read(path)?)?;
    first.append(second).map_err(|error| KeyFileError::Keys { place: place(), error })
}

/// Loads keys like [`load`]; if there are none, those of the data folder. With `make`, a key is made there if there is
/// none, which a log line says.
pub fn load_or_make(
    variable: Option<&str>,
    file: Option<&Path>,
    folder: &Path,
    make: bool,
) -> Result<KeyRing, KeyFileError> {
    let keys = load(variable, file)?;
    if !keys.is_empty() || file.is_some() {
        return Ok(keys);
    }
    let own = folder.join(OWN_FILE);
    if make && !own.exists() {
        keygen(&own, false)?;
        tracing::info!("made the key file `{}` for secrets; keep a copy: without it they are lost", own.display());
    }
    if own.exists() { load(None, Some(&own)) } else { Ok(keys) }
}

fn read(path: &Path) -> Result<Zeroizing<String>, KeyFileError> {
    let failed = |error| KeyFileError::File { path: path.to_owned(), verb: "read", error };
    let mode = std::fs::metadata(path).map_err(failed)?.permissions().mode() & 0o777;
    if mode & 0o007 != 0 {
        return Err(KeyFileError::Open { path: path.to_owned(), mode });
    }
    read_text_file(path, SETTINGS_FILE_BYTES).map(Zeroizing::new).map_err(failed)
}

/// Makes a fresh key.
pub fn fresh_key() -> Result<Key, KeyFileError> {
    random_bytes().map(Key::new).map_err(|error| KeyFileError::Random(error.to_string()))
}

/// Writes a fresh key to a file that only its owner can read. With `add` it is put before the keys that the file has;
/// the file is replaced as a whole.
pub fn keygen(path: &Path, add: bool) -> Result<Key, KeyFileError> {
    let failed = |error| KeyFileError::File { path: path.to_owned(), verb: "written", error };
    let before = match path.exists() {
        true if add => read(path)?,
        true => return Err(KeyFileError::Exists(path.to_owned())),
        false => Zeroizing::default(),
    };
    KeyRing::parse(&before)
        .map_err(|error| KeyFileError::Keys { place: format!("key file `{}`", path.display()), error })?;
    let key = fresh_key()?;
    let text = Zeroizing::new(format!("{}\n{}", *key.line(), *before));
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.new", std::process::id()));
    let new = path.with_file_name(name);
    let write = || -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&new, path)?;
        // The file name must be durable, because secrets will be sealed with the key.
        let folder = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(folder)?.sync_all()
    };
    write().map_err(|error| {
        // A half-written file is useless.
        let _ = std::fs::remove_file(&new);
        failed(error)
    })?;
    Ok(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_from_the_environment_first_then_from_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("keys");
        let first = keygen(&path, false).unwrap();
        assert!(matches!(keygen(&path, false), Err(KeyFileError::Exists(_))));
        let second = keygen(&path, true).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let own = format!("mine:{}", "07".repeat(32));
        let keys = load(Some(&own), Some(&path)).unwrap().ids();
        assert_eq!(
            keys.iter().map(ToString::to_string).collect::<Vec<_>>(),
            ["mine".to_owned(), second.id().to_string(), first.id().to_string()]
        );
        assert!(load(None, None).unwrap().is_empty());
    }

    #[test]
    fn a_file_that_is_open_missing_or_no_list_of_keys_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("keys");
        let error = || load(None, Some(&path)).unwrap_err().to_string();
        assert!(error().contains("can't be read"), "{}", error());
        std::fs::write(&path, "s3cret-but-no-key").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(error().contains("can be read by others (mode 644)"), "{}", error());
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        assert!(error().contains("key 1 is not a key") && !error().contains("s3cret"), "{}", error());
        assert!(keygen(&path, true).is_err());
        assert!(load(Some("x"), None).unwrap_err().to_string().starts_with("`TRELLIS_SECRETS_KEY`: key 1"));
    }

    #[test]
    fn one_process_makes_its_own_key_once() {
        let dir = tempfile::tempdir().unwrap();
        assert!(load_or_make(None, None, dir.path(), false).unwrap().is_empty());
        let made = load_or_make(None, None, dir.path(), true).unwrap().ids();
        assert_eq!(made.len(), 1);
        assert_eq!(load_or_make(None, None, dir.path(), true).unwrap().ids(), made);
        assert_eq!(load_or_make(None, None, dir.path(), false).unwrap().ids(), made);
        let own = "07".repeat(32);
        assert_ne!(load_or_make(Some(&own), None, dir.path(), true).unwrap().ids(), made);
    }
}
