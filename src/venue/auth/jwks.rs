//! `auth.jwks`: the keys of trusted issuers, which are read again when the file changes.

use crate::config::files::read_file;
use crate::domain::decode::{self, DataError};
use crate::domain::token::{SpeaksFor, SpeaksForError};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use parking_lot::{Mutex, RwLock};
use serde::Deserialize;
use serde_json::Value;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Most bytes of the file: thousands of keys.
const FILE_BYTES: u64 = 1 << 20;
/// Pause between two checks of the file: a key that is removed counts for so long.
const LOOK: Duration = Duration::from_secs(1);
/// Checks after a change at which the file is read again even if its stamp is the same: a write in the same moment
/// leaves the same times.
const UNSETTLED: u32 = 2;

/// Why a key set can't be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("key set `{}` (`auth.jwks`): {problem}", .path.display())]
pub struct JwksError {
    /// Path of the file.
    pub path: PathBuf,
    /// What is wrong with the file.
    pub problem: KeySetError,
}

/// What is wrong with the file of a key set.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeySetError {
    /// The system starts no thread to watch the file.
    #[error("no thread to watch it: {reason}")]
    NoThread {
        /// Text of the system.
        reason: String,
    },
    /// The file can't be read.
    #[error("can't be read: {reason}")]
    Unreadable {
        /// Text of the system, or the limit that the file breaks.
        reason: String,
    },
    /// The file is a folder, a pipe or a device.
    #[error("can't be read: expected a regular file")]
    Irregular,
    /// The file is no JSON of a key set.
    #[error("expected `{{\"keys\": [...]}}`: {0}")]
    Form(DataError),
    /// A key can't be used.
    #[error("`keys[{at}]`: {error}")]
    Key {
        /// Place of the key in the set.
        at: usize,
        /// Rule that the key breaks.
        error: IssuerKeyError,
    },
    /// Two keys have the same names; holds the place of the second.
    #[error("`keys[{0}]`: another key has the same `kid` and `trellis_issuer`")]
    Duplicate(usize),
}

/// Why a key of a set can't be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IssuerKeyError {
    /// The key has another form.
    #[error(transparent)]
    Form(#[from] DataError),
    /// The key is a private one.
    #[error("it has `d` and so is a private key; only public keys belong here")]
    Private,
    /// The key names an owner that can't be.
    #[error("`trellis_owner` {0}")]
    Owner(#[from] SpeaksForError),
    /// The key has no name.
    #[error("expected `kid`, by which tokens name it")]
    NoKid,
    /// The key has no bytes of an Ed25519 key.
    #[error("expected `x` to be the 32 bytes of an Ed25519 key in base64url")]
    NoPoint,
}

/// A key set in a file. Requests read no file: a thread checks every second whether the file has changed, and reads it
/// then. A change that can't be read leaves the keys as they were, with a log line.
#[derive(Debug)]
pub struct Jwks {
    file: Arc<WatchedFile>,
}

#[derive(Debug)]
struct WatchedFile {
    path: PathBuf,
    keys: RwLock<Vec<IssuerKey>>,
    seen: Mutex<LastRead>,
}

/// The file as it was read last.
#[derive(Debug)]
struct LastRead {
    stamp: Result<FileStamp, KeySetError>,
    /// The content, or why it couldn't be read.
    bytes: Result<Vec<u8>, KeySetError>,
    unsettled: u32,
}

/// Metadata that changes with a file's content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileStamp {
    inode: (u64, u64),
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

#[derive(Debug, Clone)]
struct IssuerKey {
    kid: String,
    issuer: Option<String>,
    speaks: SpeaksFor,
    key: [u8; 32],
}

impl Jwks {
    /// Reads the file, and watches it for as long as the value lives.
    pub fn open(path: &Path) -> Result<Self, JwksError> {
        let keys = Self::read_once(path)?;
        let watched = Arc::downgrade(&keys.file);
        let thread = std::thread::Builder::new().name("trellis-keys".into()).spawn(move || watch(&watched));
        let problem = |error: io::Error| KeySetError::NoThread { reason: error.to_string() };
        thread.map_err(|error| JwksError { path: path.to_owned(), problem: problem(error) })?;
        Ok(keys)
    }

    /// Reads the file without watching it.
    fn read_once(path: &Path) -> Result<Self, JwksError> {
        let failed = |problem| JwksError { path: path.to_owned(), problem };
        let stamp = stamp(path);
        let bytes = read(path).map_err(failed)?;
        let keys = RwLock::new(parse(&bytes).map_err(failed)?);
        let seen = Mutex::new(LastRead { stamp, bytes: Ok(bytes), unsettled: UNSETTLED });
        Ok(Self { file: Arc::new(WatchedFile { path: path.to_owned(), keys, seen }) })
    }

    /// Finds the key `kid` if it may sign for `issuer`, and the owners that it speaks for.
    pub fn find(&self, issuer: &str, kid: &str) -> Option<([u8; 32], SpeaksFor)> {
        let keys = self.file.keys.read();
        let mut named = keys.iter().filter(|key| key.kid == kid);
        named
            .find(|key| key.issuer.as_deref().is_none_or(|name| name == issuer))
            .map(|key| (key.key, key.speaks.clone()))
    }

    /// Checks the file and returns whether it was read.
    #[cfg(test)]
    pub(super) fn check_file(&self) -> bool {
        self.file.check_file()
    }
}

/// Watches the file until the last holder of the key set is gone.
fn watch(file: &Weak<WatchedFile>) {
    loop {
        std::thread::sleep(LOOK);
        let Some(file) = file.upgrade() else { return };
        file.check_file();
    }
}

impl WatchedFile {
    fn check_file(&self) -> bool {
        let mut seen = self.seen.lock();
        let stamp = stamp(&self.path);
        let changed = stamp != seen.stamp;
        if !changed && seen.unsettled == 0 {
            return false;
        }
        seen.unsettled = if changed { UNSETTLED } else { seen.unsettled - 1 };
        seen.stamp = stamp;
        let bytes = read(&self.path);
        if bytes == seen.bytes {
            return true;
        }
        let keys = bytes.as_ref().map_err(Clone::clone).and_then(|bytes| parse(bytes));
        seen.bytes = bytes;
        match keys {
            Ok(keys) => {
                tracing::info!(path = %self.path.display(), keys = keys.len(), "key set read again");
                *self.keys.write() = keys;
            }
            Err(problem) => {
                let problem = problem.to_string();
                tracing::error!(path = %self.path.display(), problem, "key set not taken; the keys before stay");
            }
        }
        true
    }
}

fn unreadable(error: &io::Error) -> KeySetError {
    KeySetError::Unreadable { reason: error.to_string() }
}

fn metadata(path: &Path) -> Result<Metadata, KeySetError> {
    let metadata = fs::metadata(path).map_err(|error| unreadable(&error))?;
    // A pipe or a device would block its reader.
    if metadata.is_file() { Ok(metadata) } else { Err(KeySetError::Irregular) }
}

fn stamp(path: &Path) -> Result<FileStamp, KeySetError> {
    metadata(path).map(|found| FileStamp {
        inode: (found.dev(), found.ino()),
        size: found.size(),
        modified: (found.mtime(), found.mtime_nsec()),
        changed: (found.ctime(), found.ctime_nsec()),
    })
}

fn read(path: &Path) -> Result<Vec<u8>, KeySetError> {
    read_file(path, FILE_BYTES).map_err(|error| unreadable(&error))
}

#[derive(Deserialize)]
struct JwkSet {
    keys: Vec<Value>,
}

#[derive(Deserialize)]
struct PublicJwk {
    kid: Option<String>,
    x: String,
    d: Option<String>,
    trellis_issuer: Option<String>,
    trellis_owner: Option<OwnerClaim>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum OwnerClaim {
    One(String),
    Many(Vec<String>),
}

fn parse(bytes: &[u8]) -> Result<Vec<IssuerKey>, KeySetError> {
    let set: JwkSet = decode::from_json(bytes).map_err(KeySetError::Form)?;
    let mut keys: Vec<IssuerKey> = Vec::new();
    // Keys of other types sign other kinds of tokens.
    let usable = |jwk: &&Value| jwk["kty"] == "OKP" && jwk["crv"] == "Ed25519" && jwk["use"] != "enc";
    for (at, jwk) in set.keys.iter().enumerate().filter(|(_, jwk)| usable(jwk)) {
        let key = issuer_key(jwk).map_err(|error| KeySetError::Key { at, error })?;
        if keys.iter().any(|other| other.kid == key.kid && other.issuer == key.issuer) {
            return Err(KeySetError::Duplicate(at));
        }
        keys.push(key);
    }
    Ok(keys)
}

fn issuer_key(jwk: &Value) -> Result<IssuerKey, IssuerKeyError> {
    let jwk = decode::into_type::<PublicJwk>(jwk.clone())?;
    if jwk.d.is_some() {
        return Err(IssuerKeyError::Private);
    }
    let key = URL_SAFE_NO_PAD.decode(&jwk.x).ok().and_then(|bytes| bytes.try_into().ok());
    let speaks = match &jwk.trellis_owner {
        None => SpeaksFor::everybody(),
        Some(OwnerClaim::One(one)) => SpeaksFor::only([one.as_str()])?,
        Some(OwnerClaim::Many(many)) => SpeaksFor::only(many.iter().map(String::as_str))?,
    };
    Ok(IssuerKey {
        kid: jwk.kid.filter(|kid| !kid.is_empty()).ok_or(IssuerKeyError::NoKid)?,
        issuer: jwk.trellis_issuer,
        speaks,
        key: key.ok_or(IssuerKeyError::NoPoint)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const X: &str = "O2onvM62pC1io6jQKm8Nc2UyFXcd4kOmOsBIoYtZ2ik";

    fn refused(keys: &Value) -> String {
        parse(json!({"keys": keys}).to_string().as_bytes()).map(|_| ()).unwrap_err().to_string()
    }

    #[test]
    fn keys_of_other_kinds_are_passed_over_and_wrong_ones_named() {
        let good = json!({"kty": "OKP", "crv": "Ed25519", "kid": "a", "x": X});
        let others = json!([{"kty": "RSA", "n": "x", "e": "y"}, {"kty": "oct", "k": "z"}, good]);
        assert_eq!(parse(json!({"keys": others}).to_string().as_bytes()).unwrap().len(), 1);
        let with = |key: &str, value: Value| {
            let mut jwk = good.clone();
            jwk[key] = value;
            json!([jwk])
        };
        for (keys, part) in [
            (with("kid", json!("")), "`keys[0]`: expected `kid`"),
            (with("x", json!("AAAA")), "expected `x` to be the 32 bytes"),
            (with("d", json!(X)), "private key"),
            (with("trellis_owner", json!("a/b/c")), "`trellis_owner` `a/b/c`"),
            (json!([good, good]), "`keys[1]`: another key has the same `kid`"),
        ] {
            let problem = refused(&keys);
            assert!(problem.contains(part), "{problem}");
        }
        assert!(parse(b"[]").map(|_| ()).unwrap_err().to_string().contains("expected `{\"keys\""));
    }

    #[test]
    fn a_changed_key_file_is_reloaded_unless_it_is_broken() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("keys.json");
        let set = |kid: &str| {
            let key = json!({"kty": "OKP", "crv": "Ed25519", "kid": kid, "x": X, "trellis_issuer": "https://i"});
            fs::write(&path, json!({"keys": [key]}).to_string()).unwrap();
        };
        assert!(Jwks::open(&path).unwrap_err().to_string().contains("can't be read"));
        set("a");
        let jwks = Jwks::read_once(&path).unwrap();
        assert!(jwks.find("https://i", "a").is_some());
        assert!(jwks.find("https://other", "a").is_none(), "the key of one issuer is no other's");
        set("b");
        assert!(jwks.find("https://i", "a").is_some(), "a request reads no file");
        assert!(jwks.check_file());
        assert!(jwks.find("https://i", "a").is_none(), "taken out");
        assert!(jwks.find("https://i", "b").is_some());
        assert!(
            (0..UNSETTLED).all(|_| jwks.check_file()) && !jwks.check_file(),
            "it is read as long as it may still change unseen"
        );
        fs::write(&path, "{").unwrap();
        jwks.check_file();
        assert!(jwks.find("https://i", "b").is_some());
        fs::remove_file(&path).unwrap();
        jwks.check_file();
        assert!(jwks.find("https://i", "b").is_some());
        set("c");
        jwks.check_file();
        assert!(jwks.find("https://i", "b").is_none());
        assert!(jwks.find("https://i", "c").is_some());
    }

    #[test]
    fn oversized_and_irregular_key_files_are_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("keys.json");
        for (at, problem) in
            [(Path::new("/dev/zero"), "expected a regular file"), (dir.path(), "expected a regular file")]
        {
            assert!(Jwks::open(at).unwrap_err().problem.to_string().contains(problem), "{}", at.display());
        }
        fs::write(&path, " ".repeat(2 << 20)).unwrap();
        let problem = Jwks::open(&path).unwrap_err().problem.to_string();
        assert!(problem.contains("expected at most 1048576 bytes, got more"), "{problem}");
    }

    #[test]
    fn nothing_watches_a_key_set_that_nobody_holds() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("keys.json");
        fs::write(&path, r#"{"keys": []}"#).unwrap();
        let jwks = Jwks::open(&path).unwrap();
        let file = Arc::downgrade(&jwks.file);
        drop(jwks);
        // The thread holds it for the moment of a look at most.
        std::thread::sleep(Duration::from_millis(50));
        assert!(file.upgrade().is_none());
    }
}
