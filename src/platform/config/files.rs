//! Small files that a person names: only regular ones of at most the expected length.

use rustix::fs::OFlags;
use std::fs::File;
use std::io::{Error, ErrorKind, Read, Result};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Longest settings file, key, certificate or secret, in bytes.
pub const SETTINGS_FILE_BYTES: u64 = 4 << 20;

/// Reads a regular file of at most `max` bytes. A pipe without a writer would never open, a device never end, and a
/// file may grow while it is read, so its size is not taken from its metadata.
pub fn read_file(path: &Path, max: u64) -> Result<Vec<u8>> {
    // Checked before the open, because a pipe may block there, and after it, because another file may have its name by
    // then.
    check_regular(path.metadata()?.is_file())?;
    // Some files of the kernel claim to be regular and block their readers, e.g. `/proc/kmsg`.
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or_default();
    let file = File::options().read(true).custom_flags(flags).open(path)?;
    check_regular(file.metadata()?.is_file())?;
    let mut bytes = Vec::new();
    file.take(max + 1).read_to_end(&mut bytes).map_err(|error| match error.kind() {
        ErrorKind::WouldBlock => invalid("expected a regular file, got one whose content is still to come".to_owned()),
        _ => error,
    })?;
    if bytes.len() as u64 > max {
        return Err(invalid(format!("expected at most {max} bytes, got more")));
    }
    Ok(bytes)
}

/// [`read_file`] as UTF-8 text, without the byte order mark that some editors put before it.
pub fn read_text_file(path: &Path, max: u64) -> Result<String> {
    let text = String::from_utf8(read_file(path, max)?).map_err(|_| invalid("expected UTF-8".to_owned()))?;
    Ok(without_mark(text))
}

/// Returns a text without the byte order mark that it may begin with.
pub fn without_mark(text: String) -> String {
    text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text)
}

fn check_regular(is_regular: bool) -> Result<()> {
    if is_regular { Ok(()) } else { Err(invalid("expected a regular file".to_owned())) }
}

fn invalid(reason: String) -> Error {
    Error::new(ErrorKind::InvalidData, reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernel refuses users who may not open them.
    #[test]
    fn a_kernel_file_does_not_block_the_reader() {
        for file in ["/proc/kmsg", "/sys/kernel/debug/tracing/trace_pipe"] {
            let error = read_file(Path::new(file), 1 << 30).unwrap_err();
            let reasons = ["still to come", "denied", "not permitted", "No such file"];
            assert!(reasons.iter().any(|reason| error.to_string().contains(reason)), "{file}: {error}");
        }
    }

    #[test]
    fn only_regular_files_of_the_expected_length_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let place = |name: &str| folder.path().join(name);
        std::fs::write(place("four"), "four").unwrap();
        std::fs::write(place("latin"), [0xe9]).unwrap();
        let made = std::process::Command::new("mkfifo").arg(place("pipe")).status().unwrap();
        assert!(made.success());
        let read = |name: &str, max| read_text_file(&place(name), max).map_err(|error| error.to_string());
        assert_eq!(read("four", 4), Ok("four".to_owned()));
        std::fs::write(place("marked"), "\u{feff}{}").unwrap();
        assert_eq!(read("marked", 5), Ok("{}".to_owned()));
        for (name, max, reason) in [
            ("four", 3, "expected at most 3 bytes, got more"),
            ("latin", 3, "expected UTF-8"),
            ("pipe", 3, "expected a regular file"),
            ("", 3, "expected a regular file"),
            ("/dev/zero", 3, "expected a regular file"),
            ("none", 3, "No such file"),
        ] {
            let error = read(name, max).unwrap_err();
            assert!(error.contains(reason), "{name}: {error}");
        }
    }
}
