//! Bounds of the documents that protect an owner. A queue keeps each of them in one message, against a loss of the store:
//! what is larger could be lost, and would be refused too late.

/// Bytes of an agent's record as JSON: of quotes alone, too, which a message escapes once more, it fits NATS' default
/// `max_payload` of 1 MiB. Longer texts belong into values that its context names.
pub const AGENT_BYTES: usize = 500_000;

/// Bytes of an owner's policy as JSON: a thousand revocations of usual length. It is read with every check.
pub const POLICY_BYTES: usize = 256 * 1024;

/// Bytes of a reason in such a document.
pub const REASON_BYTES: usize = 4 * 1024;

/// Bytes of the holder or the grant that a revocation names: four times the longest claim of a token.
pub const REVOKED_NAME_BYTES: usize = 1_024;

/// Bytes of a record of the queue: NATS' default `max_payload` less room for headers.
pub const PROTECTION_BYTES: usize = 1_040_000;

/// A document that would be larger than its kind may be: nothing is written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} takes {bytes} bytes as JSON, expected at most {most}: {advice}")]
pub struct OversizedDocument {
    /// A kind and a name, as the error shows it.
    pub what: String,
    /// Bytes of the document.
    pub bytes: usize,
    /// Bytes that are kept of one.
    pub most: usize,
    /// What the caller can do.
    pub advice: &'static str,
}

/// The beginning of a reason, where it is longer than [`REASON_BYTES`]: what it explains is done whatever it says.
pub fn cut_reason(mut reason: String) -> String {
    if reason.len() > REASON_BYTES {
        reason.truncate(reason.floor_char_boundary(REASON_BYTES - '…'.len_utf8()));
        reason.push('…');
    }
    reason
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_cut_between_characters_and_says_so() {
        for (given, bytes, end) in [
            ("short".to_owned(), 5, 't'),
            ("x".repeat(REASON_BYTES), REASON_BYTES, 'x'),
            ("x".repeat(REASON_BYTES + 1), REASON_BYTES, '…'),
            ("ü".repeat(REASON_BYTES), REASON_BYTES - 1, '…'),
        ] {
            let cut = cut_reason(given);
            assert_eq!((cut.len(), cut.chars().last()), (bytes, Some(end)));
        }
    }
}
