//! Size limits of the documents that protect an owner. The queue keeps each of them in one message, against a loss of
//! the store: a larger one could be lost, and would be refused too late.

/// Bytes of an agent's record as JSON. Even a record of quotes alone, which a message escapes once more, fits NATS'
/// default `max_payload` of 1 MiB. Longer texts belong into values that the agent's context names.
pub const AGENT_BYTES: usize = 500_000;

/// Bytes of an owner's policy as JSON: a thousand revocations of usual length. Each check reads it.
pub const POLICY_BYTES: usize = 256 * 1024;

/// Bytes of a reason in such a document.
pub const REASON_BYTES: usize = 4 * 1024;

/// Bytes of the holder or the grant that a revocation names: four times the longest claim of a token.
pub const REVOKED_NAME_BYTES: usize = 1_024;

/// Bytes of a record of the queue: NATS' default `max_payload` less room for headers.
pub const PROTECTION_BYTES: usize = 1_040_000;

/// A document larger than its kind may be; it is not written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} takes {bytes} bytes as JSON, expected at most {most}: {advice}")]
pub struct OversizedDocument {
    /// Kind and name of the document, as the error shows it.
    pub what: String,
    /// Bytes of the document.
    pub bytes: usize,
    /// Bytes that such a document may have.
    pub most: usize,
    /// Advice to the caller.
    pub advice: &'static str,
}

/// Cuts a reason to [`REASON_BYTES`]: the deed that it explains is done in any case.
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
