//! The format of a store: which builds can work on it, and beside each other.
//!
//! All records of a store share one number. A build that writes a form which the build before can't read, or must not
//! ignore, has the next number; a new key that an older build may keep unread (see [`crate::unknown_fields`]) needs none. The
//! first process of the newer build raises the number, and it never goes back: an older build that runs beside it, or
//! after it, reads the format after its own.

use serde::{Deserialize, Serialize};

/// Format of this build.
pub const FORMAT: u32 = 1;

/// Relation of a store's format to that of a build.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FormatFit {
    /// Both formats are equal.
    Same,
    /// The build's format is the next one, or the store is new: the store's format is raised.
    Raise,
    /// The store's format is the next one: a newer build has worked on it, and records that this build can't read are
    /// left to it.
    Behind,
}

/// Document that holds the format of a store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreFormat {
    /// Highest format of the builds that have worked on the store.
    pub format: u32,
    /// Version of the first build with that format.
    pub by: String,
}

/// Reason why a build can't work on a store.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// A build two or more formats ahead has worked on the store.
    #[error(
        "the store has format {found}, which trellis {by} has made, and this build reads up to {}: run that version or a \
         later one",
        reads + 1
    )]
    Newer {
        /// Format of the store.
        found: u32,
        /// Version that raised it.
        by: String,
        /// Format of the build.
        reads: u32,
    },
    /// The store's format is two or more behind.
    #[error(
        "the store has format {found}, which trellis {by} has made, and this build reads from {}: run a version between \
         them first",
        reads - 1
    )]
    Older {
        /// Format of the store.
        found: u32,
        /// Version that raised it.
        by: String,
        /// Format of the build.
        reads: u32,
    },
}

/// Checks whether a build of format `reads` can work on a store. A store without a format is new, or of a build from
/// before the first number, and has format 1.
pub fn check_format(found: Option<&StoreFormat>, reads: u32) -> Result<FormatFit, FormatError> {
    let Some(StoreFormat { format, by }) = found else {
        return if reads <= 2 {
            Ok(FormatFit::Raise)
        } else {
            Err(FormatError::Older { found: 1, by: "before it said so".into(), reads })
        };
    };
    match *format {
        found if found == reads => Ok(FormatFit::Same),
        found if found + 1 == reads => Ok(FormatFit::Raise),
        found if found == reads + 1 => Ok(FormatFit::Behind),
        found if found > reads => Err(FormatError::Newer { found, by: by.clone(), reads }),
        found => Err(FormatError::Older { found, by: by.clone(), reads }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_reads_the_format_before_and_the_one_after() {
        let of = |format| StoreFormat { format, by: "9.9.9".into() };
        for (found, reads, expected) in [
            (3, 3, Some(FormatFit::Same)),
            (2, 3, Some(FormatFit::Raise)),
            (4, 3, Some(FormatFit::Behind)),
            (1, 3, None),
            (5, 3, None),
        ] {
            assert_eq!(check_format(Some(&of(found)), reads).ok(), expected, "{found} {reads}");
        }
        for (reads, expected) in [(1, true), (2, true), (3, false)] {
            assert_eq!(check_format(None, reads) == Ok(FormatFit::Raise), expected, "{reads}");
        }
        let texts = [(5, "up to 4: run that version or a later one"), (1, "from 2: run a version between them first")];
        for (found, expected) in texts {
            let text = check_format(Some(&of(found)), 3).unwrap_err().to_string();
            assert!(text.contains(&format!("format {found}, which trellis 9.9.9 has made")), "{text}");
            assert!(text.ends_with(expected), "{text}");
        }
    }
}
