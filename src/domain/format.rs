//! The format of what a venue keeps: which builds can work on one store, and beside each other.
//!
//! One number for all records of a store. A build that keeps something in a form that the build before can't read, or
//! must not pass over, has the next number; a new key that an older build may keep unread (see [`crate::kept`]) is none.
//! It is raised by the first process of the newer build, and never goes back: an older build that runs beside it, or
//! after it, reads the one after its own.

use serde::{Deserialize, Serialize};

/// Of this build.
pub const FORMAT: u32 = 1;

/// How the formats of a store and of a build stand to each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FormatFit {
    /// The same.
    Same,
    /// The build's is the next one, or the store is new: the store's is raised.
    Raise,
    /// The store's is the next one: a newer build has worked there, and what this one can't read is left to it.
    Behind,
}

/// The document that says which a store has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreFormat {
    /// The highest of the builds that have worked there.
    pub format: u32,
    /// The version of the first of them.
    pub by: String,
}

/// Why a build can't work on a store.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// A build two or more formats ahead has worked there.
    #[error(
        "the store has format {found}, which trellis {by} has made, and this build reads up to {}: run that version or a \
         later one",
        reads + 1
    )]
    Newer {
        /// Of the store.
        found: u32,
        /// Who made it so.
        by: String,
        /// Of the build.
        reads: u32,
    },
    /// It was left two or more formats behind.
    #[error(
        "the store has format {found}, which trellis {by} has made, and this build reads from {}: run a version between \
         them first",
        reads - 1
    )]
    Older {
        /// Of the store.
        found: u32,
        /// Who made it so.
        by: String,
        /// Of the build.
        reads: u32,
    },
}

/// Whether a build of format `reads` can work on a store. One that says nothing is new, or of a build from before the
/// first number, and has format 1.
pub fn stands(found: Option<&StoreFormat>, reads: u32) -> Result<FormatFit, FormatError> {
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
            assert_eq!(stands(Some(&of(found)), reads).ok(), expected, "{found} {reads}");
        }
        for (reads, expected) in [(1, true), (2, true), (3, false)] {
            assert_eq!(stands(None, reads) == Ok(FormatFit::Raise), expected, "{reads}");
        }
        let texts = [(5, "up to 4: run that version or a later one"), (1, "from 2: run a version between them first")];
        for (found, expected) in texts {
            let text = stands(Some(&of(found)), 3).unwrap_err().to_string();
            assert!(text.contains(&format!("format {found}, which trellis 9.9.9 has made")), "{text}");
            assert!(text.ends_with(expected), "{text}");
        }
    }
}
